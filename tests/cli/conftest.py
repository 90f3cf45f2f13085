import pytest

from dp_calc.cli import main


@pytest.fixture
def dp_calc(capsys):
    """Run the command line in this process: arguments -> (status, stdout, stderr)."""

    def run(*args):
        try:
            status = main([str(arg) for arg in args])
        except SystemExit as exit_:  # raised by argparse
            status = exit_.code
        output = capsys.readouterr()
        return status, output.out, output.err

    return run
