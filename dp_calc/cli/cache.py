"""``dp-calc cache``: where compiled code is kept, how much, and out with it."""

import argparse

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "cache",
        help="show or clear the compiled code on disk",
        description="Show where compiled code is kept and how much there is. It can be "
        "cleared at any time: what is needed is compiled again. DP_CACHE_DIR names "
        "another folder.",
    )
    parser.add_argument("--clear", action="store_true", help="delete it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from ..compile_cache import cache_folder, clear_cache

    folder = cache_folder()
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    if args.clear:
        clear_cache()
        print(f"{size:.1f} MB deleted from {folder}")
    else:
        print(f"{size:.1f} MB in {folder}")
    return 0
