"""Tables of the kernels that start from edge vectors, against the model in float64."""

import pytest
import torch
from dp_calc.models.dpa4.harmonics import WignerRows, edge_frame, spherical_harmonics

pytest.importorskip("dp_calc.kernels.edge_frames", reason="needs the package triton")
from dp_calc.kernels.edge_frames import reference
from dp_calc.models.dpa4.fused_geometry import frame_tables

EXACT = 1e-11


def directions():
    vec = torch.randn(50, 3, generator=torch.Generator().manual_seed(2)).double()
    vec[0], vec[1] = torch.tensor([0, 0, 2.0]), torch.tensor([0, 0, -2.0])
    return vec / vec.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("lmax", [1, 2, 3, 4])
def test_frames_are_rows_of_the_wigner_matrix(lmax):
    unit = directions()
    frames = reference.edge_frames(unit, frame_tables(lmax, 1e-7, torch.float64))
    rows = WignerRows(lmax, 1).double()(edge_frame(unit))  # orders -1, 0, +1
    assert (frames - rows[:, [1, 0, 2]]).abs().max() < EXACT
    assert (frames[:, 0] - spherical_harmonics(unit, lmax)).abs().max() < EXACT


@pytest.mark.parametrize("lmax", [1, 3])
def test_what_no_turn_about_the_edge_changes_has_the_right_derivative(lmax):
    generator = torch.Generator().manual_seed(4)
    left, right = torch.randn(2, 50, (lmax + 1) ** 2, generator=generator).double()

    def invariant(rows):
        a = torch.einsum("ekd,ed->ek", rows, left)
        b = torch.einsum("ekd,ed->ek", rows, right)
        along, across = a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2], a[:, 1] * b[:, 2]
        return (a[:, 0] * b[:, 0] + along * a[:, 0] + across - a[:, 2] * b[:, 1]).sum()

    tables = frame_tables(lmax, 1e-7, torch.float64)
    wigner = WignerRows(lmax, 1).double()
    paths = [
        lambda unit: reference.edge_frames(unit, tables),
        lambda unit: wigner(edge_frame(unit / unit.norm(dim=1, keepdim=True)))[
            :, [1, 0, 2]
        ],
    ]
    grads = []
    for path in paths:
        leaf = directions().requires_grad_()
        (grad,) = torch.autograd.grad(invariant(path(leaf)), leaf)
        grads.append(grad)
    assert grads[1].abs().max() > 1
    assert (grads[0] - grads[1]).abs().max() < EXACT * grads[1].abs().max()
