import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.constraints import FixAtoms
from ase.units import GPa

from dp_calc import DP
from dp_calc.data import water_model


def _water(pbc=True):
    atoms = molecule("H2O")
    atoms.rattle(0.05, seed=2)
    atoms.cell = [[4.2, 0, 0], [0.3, 4.4, 0], [-0.5, 0.2, 4.6]]
    atoms.pbc = pbc
    atoms.set_momenta(np.ones((3, 3)))
    return atoms


def _slab():
    atoms = _water((True, True, False))
    atoms.cell = [[4.2, 0, 0], [0.3, 4.4, 0], [0, 0, 12]]
    return atoms


@pytest.fixture
def structure(tmp_path):
    def write(atoms, name="in.traj"):
        path = tmp_path / name
        ase.io.write(path, atoms)
        return path

    return write


@pytest.fixture
def run(dp_calc, tmp_path):
    def run(path, *args, out="relaxed.traj"):
        fixed = ("-m", water_model(), "--device", "cpu", "-o", tmp_path / out)
        return dp_calc("relax", path, *fixed, *args)

    return run


def _evaluated(path):
    atoms = ase.io.read(path)
    atoms.calc = DP(water_model(), device="cpu")
    return atoms


def _row(out, name):
    return next(line.split()[1:] for line in out.splitlines() if name in line.split()[:1])


@pytest.mark.parametrize("optimizer", ["bfgs", "fire"])
def test_atoms_relax_and_the_cell_stays(run, structure, tmp_path, optimizer):
    start = _water()
    status, out, err = run(structure(start), "--optimizer", optimizer, "--fmax", 0.03)
    assert status == 0, err
    relaxed = _evaluated(tmp_path / "relaxed.traj")
    forces = np.linalg.norm(relaxed.get_forces(), axis=1)
    assert forces.max() <= 0.03
    assert np.array_equal(relaxed.cell, start.cell)
    assert not relaxed.has("momenta")
    start.calc = relaxed.calc
    for name, atoms in (("after", relaxed), ("before", start)):
        energy, force, pressure, volume = map(float, _row(out, name))
        assert energy == pytest.approx(atoms.get_potential_energy(), abs=1e-6)
        assert pressure == pytest.approx(-atoms.get_stress()[:3].mean() / GPa, abs=1e-4)
        assert volume == pytest.approx(atoms.get_volume(), abs=1e-4)
    assert force > 0.03
    steps = ase.io.read(tmp_path / "relaxed.steps.traj", ":")
    assert np.array_equal(steps[0].positions, start.positions)
    assert np.array_equal(steps[-1].positions, relaxed.positions)


@pytest.mark.parametrize("pressure", [0.0, 2.0])
def test_cell_relaxes_to_the_pressure(run, structure, tmp_path, pressure):
    args = ("--cell", "all", "--pressure-gpa", pressure, "--smax-gpa", 0.02)
    status, _, err = run(structure(_water()), *args)
    assert status == 0, err
    stress = _evaluated(tmp_path / "relaxed.traj").get_stress() / GPa
    # Compressed: stress is negative where pressure is positive.
    assert stress[:3] == pytest.approx([-pressure] * 3, abs=0.0201)
    assert stress[3:] == pytest.approx([0.0] * 3, abs=0.0201)


def test_hydrostatic_cell_keeps_its_shape(run, structure, tmp_path):
    start = _water()
    status, _, err = run(structure(start), "--cell", "hydrostatic", "--pressure-gpa", 3)
    assert status == 0, err
    relaxed = _evaluated(tmp_path / "relaxed.traj")
    ratio = np.array(relaxed.cell)[np.diag_indices(3)] / np.array(start.cell).diagonal()
    assert ratio == pytest.approx([ratio[0]] * 3)
    assert ratio[0] < 0.99
    assert -relaxed.get_stress()[:3].mean() / GPa == pytest.approx(3, abs=0.1)


def test_chosen_components_relax_and_no_others(run, structure, tmp_path):
    start = _water()
    status, _, err = run(structure(start), "--cell", "zz", "--smax-gpa", 0.02)
    assert status == 0, err
    relaxed = _evaluated(tmp_path / "relaxed.traj")
    assert np.array_equal(relaxed.cell[:, :2], start.cell[:, :2])
    assert relaxed.cell[2, 2] != start.cell[2, 2]
    assert abs(relaxed.get_stress()[2]) <= 0.0201 * GPa
    assert abs(relaxed.get_stress()[0]) > 0.03 * GPa


def test_a_slab_relaxes_in_its_plane(run, structure, tmp_path):
    start = _slab()
    status, out, err = run(structure(start), "--cell", "xx,yy,xy", "--steps", 3)
    assert status == 1, err
    relaxed = ase.io.read(tmp_path / "relaxed.traj")
    assert np.array_equal(relaxed.cell[2], start.cell[2])
    assert not np.allclose(relaxed.cell[:2, :2], start.cell[:2, :2])
    assert _row(out, "after")[2:] == ["-", "-"]


@pytest.mark.parametrize(
    ("make", "args", "expected"),
    [
        (lambda: _water(False), ("--cell", "all"), "no axis of this one is periodic"),
        (_slab, ("--cell", "all"), "open axis 2"),
        (_slab, ("--cell", "all"), "give --cell xx,yy,xy"),
        (_slab, ("--cell", "hydrostatic"), "give --cell xx,yy,xy"),
        (_slab, ("--cell", "xx", "--pressure-gpa", 1), "leave --pressure-gpa out"),
        (lambda: Atoms("O", pbc=True), ("--cell", "all"), "span none"),
        (lambda: Atoms("Cu"), (), "contains Cu"),
        (_water, ("--cell", "abc"), "xx,yy,zz,yz,xz,xy"),
        (_water, ("--pressure-gpa", 1), "give --cell with it"),
        (_water, ("--smax-gpa", 1), "give --cell with it"),
        (_water, ("--fmax", 0), "in eV/Å, above 0"),
        (_water, ("--fmax", "5 meV"), "in eV/Å, above 0"),
        (_water, ("--steps", -1), "whole number of at least 0"),
        (_water, ("--cell", "all", "--pressure-gpa", 101325), "in GPa"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_written(
    run, structure, tmp_path, make, args, expected
):
    path = structure(make())
    status, out, err = run(path, *args)
    assert (status, out) == (2, "")
    assert expected in err
    assert list(tmp_path.iterdir()) == [path]


def test_a_format_that_ase_cannot_write_is_refused_first(run, structure):
    status, _, err = run(structure(_water()), out="relaxed.foo")
    assert status == 2
    assert "ASE writes no format" in err


def test_an_output_without_a_name_is_refused(dp_calc, structure):
    status, out, err = dp_calc(
        "relax", structure(_water()), "-m", water_model(), "-o", ""
    )
    assert (status, out) == (2, "")
    assert "the output needs a name" in err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("relaxed.vasp", "Lattice vectors"),
        ("relaxed.xtl", "keV"),
        ("relaxed.pwi", "needs more than a structure"),
        ("relaxed.pov", "more than one file"),
    ],
)
def test_a_format_that_does_not_take_the_structure_is_refused_first(
    run, structure, tmp_path, name, reason
):
    path = structure(molecule("H2O"))
    status, out, err = run(path, out=name)
    assert (status, out) == (2, "")
    assert reason in err
    assert "take a name like relaxed.extxyz" in err
    assert list(tmp_path.iterdir()) == [path]


def test_constraints_are_kept_and_told(run, structure, tmp_path):
    start = _water(False)
    start.set_constraint(FixAtoms([1]))
    status, out, err = run(structure(start))
    assert status == 0, err
    assert "FixAtoms, from the file and kept" in out
    relaxed = ase.io.read(tmp_path / "relaxed.traj")
    assert np.array_equal(relaxed.positions[1], start.positions[1])
    assert not np.allclose(relaxed.positions[0], start.positions[0])


def test_the_output_can_have_any_format(run, structure, tmp_path):
    for name in ("POSCAR", "relaxed.cif", "relaxed.extxyz", "relaxed.db", "relaxed.json"):
        for _ in range(2):
            status, _, err = run(structure(_water()), "--overwrite", out=name)
            assert status == 0, err
            (relaxed,) = ase.io.read(tmp_path / name, ":")
            assert sorted(relaxed.symbols) == ["H", "H", "O"]


def test_a_file_name_with_an_at_sign_is_a_file_name(run, structure, tmp_path):
    status, _, err = run(structure(_water(), "at@300.traj"), out="relaxed@300.traj")
    assert status == 0, err
    assert (tmp_path / "relaxed@300.traj").is_file()


def test_notes_of_any_kind_in_the_file_do_not_stop_the_run(run, structure, tmp_path):
    atoms = _water()
    atoms.info.update({1: 2, "nested": {"a": [1]}, "text": 'with "quotes" ☃', "no": None})
    atoms.info["large"] = np.arange(2000.0)
    atoms.arrays["objects"] = np.array([None, "a", 1], dtype=object)
    path = structure(atoms, "notes.traj")
    for name in ("relaxed.extxyz", "relaxed.traj"):
        status, _, err = run(path, "--steps", 1, "--overwrite", out=name)
        assert status == 1, err
        status, _, err = run(path, "--resume", out=name)
        assert status == 0, err
    assert ase.io.read(tmp_path / "relaxed.extxyz").info["text"] == atoms.info["text"]


def test_a_single_atom_is_relaxed_already(run, structure, tmp_path):
    status, _, err = run(structure(Atoms("O")))
    assert status == 0, err
    assert len(ase.io.read(tmp_path / "relaxed.steps.traj", ":")) == 1


@pytest.mark.parametrize("optimizer", ["bfgs", "fire"])
@pytest.mark.parametrize("cell", [(), ("--cell", "all", "--pressure-gpa", 1)])
def test_pieces_equal_the_whole(run, structure, tmp_path, optimizer, cell):
    path = structure(_water())
    args = ("--optimizer", optimizer, *cell, "--fmax", 1e-4)
    assert run(path, *args, "--steps", 16, out="whole.cif")[0] == 1
    for number, more in enumerate((0, 5, 11, 16)):
        resume = ("--resume",) if number else ()
        status, _, err = run(path, *args, "--steps", more, *resume, out="pieces.cif")
        assert status == 1, err
        assert "not converged" in err
    for suffix in (".cif", ".steps.traj"):
        whole = (tmp_path / f"whole{suffix}").read_bytes()
        assert (tmp_path / f"pieces{suffix}").read_bytes() == whole


def test_a_converged_run_goes_on_to_a_smaller_force(run, structure, tmp_path):
    path = structure(_water())
    assert run(path)[0] == 0
    first = len(ase.io.read(tmp_path / "relaxed.steps.traj", ":"))
    assert run(path, "--resume")[0] == 0
    assert len(ase.io.read(tmp_path / "relaxed.steps.traj", ":")) == first
    assert run(path, "--resume", "--fmax", 0.003)[0] == 0
    assert len(ase.io.read(tmp_path / "relaxed.steps.traj", ":")) > first


def test_another_run_is_not_resumed(run, structure):
    path = structure(_water())
    run(path, "--steps", 2)
    status, _, err = run(path, "--resume", "--optimizer", "fire")
    assert status == 2
    assert "optimizer is fire (was bfgs)" in err
    status, _, err = run(path)
    assert "exists already" in err
