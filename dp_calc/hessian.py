"""Second derivatives of the energy by the positions of the atoms."""

import torch
from torch import Tensor
from tqdm import tqdm

from .models import EdgeList, Potential
from .reading import System

__all__ = ["hessian"]

_EDGES = 1024
"""Edges per backward pass; with fewer its time goes into starting its operations."""

_ASYMMETRY = {torch.float32: 1e-3, torch.float64: 1e-9}
"""H and its transpose differ by less from rounding, in units of 1 eV/Å² + max |H|."""


def hessian(model: Potential, system: System, progress: bool = True) -> Tensor:
    """Differentiate the energy twice.

    Edge vectors are functions of displacements of the atoms, so that all periodic images
    of an atom move with it. Each row is a gradient of the energy's gradient. For a small
    structure one backward pass gives several rows: it runs over as many copies of the
    structure, which know nothing of one another.

    Args:
        model: gives atomic energies from types, edges and conditions.
        system: its arguments for one structure.
        progress: whether to show a progress bar on stderr.

    Returns:
        (3N, 3N) in eV/Å², float64, exactly symmetric; row 3 i + a is coordinate a of
        atom i. A model in float32 gives the accuracy of float32.

    Raises:
        FloatingPointError: an entry is infinite or not a number.
        ArithmeticError: it was not symmetric to rounding, so the model's derivatives are
            wrong or incomplete.
    """
    n_rows, n_edges = 3 * len(system.types), system.edges.n_edges
    if n_edges == 0:
        return system.edges.vec.new_zeros(n_rows, n_rows)
    n_copies = min(n_rows, max(1, _EDGES // n_edges))
    moved = system.edges.vec.new_zeros(n_copies, n_rows, requires_grad=True)
    with torch.enable_grad():
        energy = _energy(model, system, moved)
        (gradient,) = torch.autograd.grad(energy, moved, create_graph=True)
    result = moved.new_empty(n_rows, n_rows)
    with tqdm(total=n_rows, unit="row", disable=not progress) as bar:
        for rows in torch.arange(n_rows, device=result.device).split(n_copies):
            result[rows] = _rows(gradient, moved, rows)
            bar.update(len(rows))
    return _symmetric(result, model)


def _energy(model: Potential, system: System, moved: Tensor) -> Tensor:
    """Energy of all copies as a function of displacements ``moved``, (copies, 3N)."""
    n_copies, moved = len(moved), moved.reshape(-1, 3)
    edges = _repeated(system.edges, n_copies)
    edges = edges.with_vec(edges.vec + (edges.at_src(moved) - edges.at_dst(moved)))
    per_atom = [spec.name for spec in model.inputs if spec.per_atom]
    conditions = {
        name: value.repeat(n_copies, 1) if name in per_atom else value
        for name, value in system.conditions.items()
    }
    return model(system.types.repeat(n_copies), edges, conditions).sum()


def _repeated(edges: EdgeList, n_copies: int) -> EdgeList:
    """Edges of copies of a structure; atom i of copy c is atom c N + i."""
    first = torch.arange(n_copies, device=edges.src.device) * edges.n_atoms
    src = (edges.src + first[:, None]).flatten()
    dst = (edges.dst + first[:, None]).flatten()
    vec = edges.vec.detach().repeat(n_copies, 1)
    return EdgeList.from_sorted(src, dst, vec, n_copies * edges.n_atoms)


def _rows(gradient: Tensor, moved: Tensor, rows: Tensor) -> Tensor:
    """Some rows of the Hessian, one from each copy, (rows, 3N)."""
    picked = torch.zeros_like(gradient)
    picked[torch.arange(len(rows), device=rows.device), rows] = 1
    (result,) = torch.autograd.grad(gradient, moved, picked, retain_graph=True)
    return result[: len(rows)]


def _symmetric(result: Tensor, model: Potential) -> Tensor:
    """Half the sum of a Hessian and its transpose, if they agree to rounding."""
    finite = torch.isfinite(result).all(1)
    if not finite.all():
        atom = int((~finite).nonzero()[0]) // 3
        raise FloatingPointError(
            f"the model gave a non-finite second derivative for atom {atom}; the "
            "structure is probably far from anything that the model was trained on"
        )
    difference = (result - result.mT).abs().max().item()
    largest = result.abs().max().item()
    if difference > _ASYMMETRY[model.dtype] * (1 + largest):
        raise ArithmeticError(
            "the second derivatives of this model are wrong: exchanging the two "
            f"coordinates changes one by {difference:.3g} eV/Å², and the largest is "
            f"{largest:.3g}; please report the model"
        )
    return (result + result.mT) / 2
