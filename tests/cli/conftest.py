import ase.io
import pytest

from dp_calc.cli import main
from dp_calc.data import water_model

from .md_cases import water


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


@pytest.fixture
def water_file(tmp_path):
    """Write a structure with every digit."""

    def write(atoms=None, name="in.traj"):
        path = tmp_path / name
        ase.io.write(path, water() if atoms is None else atoms)
        return path

    return write


@pytest.fixture
def run_md(dp_calc, tmp_path):
    """Run dynamics of the bundled model: status, stdout, stderr."""

    def run(path, *args, out="md.traj"):
        fixed = ("-m", water_model(), "--device", "cpu", "-o", tmp_path / out)
        return dp_calc("md", path, *fixed, *args)

    return run
