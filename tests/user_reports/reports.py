"""Models, structures and counters that the reported failures are rebuilt with."""

from pathlib import Path

import pytest
import torch
from ase.io import read

from dp_calc import DP
from dp_calc.data import water_model, water_structure

DATA = Path(__file__).parents[1] / "data"
WATER = water_model()
COPPER = DATA / "nano_narrow.pt"  # H C O Na Cl Cu, random weights, 6 Å
TINY = DATA / "zero_block.pt"  # the same elements, the cheapest model
CHARGED = DATA / "options" / "block_history_bias.pt"  # needs charge and spin state
SPINS = DATA / "options" / "attention_projections.pt"  # needs a spin of each atom

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)
needs_two_gpus = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="needs two CUDA devices"
)


def evaluate(atoms, calc):
    """Energy and forces of a structure, with the calculator attached to it."""
    atoms.calc = calc
    return atoms.get_potential_energy(), atoms.get_forces()


def evaluations(calc):
    """List that grows by one, the number of edges, with each pass of the model."""
    seen = []
    calc.model.register_forward_pre_hook(lambda _, args: seen.append(args[1].n_edges))
    return seen


def water4():
    """Four molecules at 300 K in a periodic cell, with momenta."""
    return read(DATA / "water4.extxyz")


def water64():
    """64 molecules at 300 K in a periodic cell, with momenta."""
    return read(water_structure())


def ice():
    """Two molecules of cubic ice in a skewed periodic cell, relaxed with ``WATER``."""
    return read(DATA / "ice.extxyz")


def float64(path):
    """Calculator whose rounding is out of the way of finite differences."""
    return DP(path, dtype="float64")
