"""Energy, forces and stress of liquid water."""

from ase.io import read
from ase.units import GPa

from dp_calc import DP
from dp_calc.data import water_model, water_structure

atoms = read(water_structure())
atoms.calc = DP(water_model())

energy = atoms.get_potential_energy()
pressure = -atoms.get_stress()[:3].mean() / GPa
print(f"energy    {energy:12.4f} eV")
print(f"per atom  {energy / len(atoms):12.4f} eV")
print(f"pressure  {pressure:12.4f} GPa, without the kinetic part")

# Everything is there from the one evaluation.
results = atoms.calc.results
print("first oxygen:", results["energies"][0], "eV,", results["forces"][0], "eV/Å")
print("virial in eV:")
print(results["virial"])
