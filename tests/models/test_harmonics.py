"""Harmonics, frames and Wigner rows against their defining properties."""

import numpy as np
import pytest
import torch
from dp_calc.models.dpa4.grid import so3_grid, sphere_grid
from dp_calc.models.dpa4.harmonics import (
    WignerRows,
    edge_frame,
    generators,
    spherical_harmonics,
)
from dp_calc.models.dpa4.layout import degree_of_row
from scipy.spatial.transform import Rotation
from scipy.special import sph_harm_y

LMAX = 6


def unit_vectors(n, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((n, 3))
    return torch.tensor(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_harmonics_follow_the_complex_ones():
    u = unit_vectors(20)
    x, y, z = u.numpy().T
    theta, phi = np.arccos(z), np.arctan2(y, x)
    result = spherical_harmonics(u, LMAX).numpy()
    for l in range(LMAX + 1):
        scale = np.sqrt(4 * np.pi / (2 * l + 1))
        for m in range(l + 1):
            complex_value = scale * sph_harm_y(l, m, theta, phi)  # Condon-Shortley phase
            factor = np.sqrt(2) if m else 1
            row = l * l + l
            np.testing.assert_allclose(
                result[:, row + m], factor * complex_value.real, atol=1e-13
            )
            if m:
                np.testing.assert_allclose(
                    result[:, row - m], -factor * complex_value.imag, atol=1e-13
                )


def test_wigner_rows_rotate_harmonics_and_are_orthonormal():
    frames = torch.tensor(Rotation.random(30, rng=np.random.default_rng(1)).as_matrix())
    points = unit_vectors(30, seed=2)
    rows = WignerRows(LMAX, LMAX)(frames)
    before = spherical_harmonics(points, LMAX)
    after = spherical_harmonics((frames @ points[:, :, None])[:, :, 0], LMAX)
    for l in range(LMAX + 1):
        block = slice(l * l, (l + 1) ** 2)
        d = rows[:, LMAX - l : LMAX + l + 1, block]
        rotated = (d @ before[:, block, None])[:, :, 0]
        torch.testing.assert_close(rotated, after[:, block], rtol=0, atol=1e-13)
        eye = torch.eye(2 * l + 1, dtype=torch.float64).expand(30, -1, -1)
        torch.testing.assert_close(d @ d.mT, eye, rtol=0, atol=1e-13)
        assert not rows[:, : LMAX - l, block].any()


def test_fewer_orders_are_the_same_rows():
    frames = edge_frame(unit_vectors(5))
    full = WignerRows(4, 4)(frames)
    torch.testing.assert_close(WignerRows(4, 1)(frames), full[:, 3:6], rtol=0, atol=0)


def test_generators_are_derivatives_of_rotated_harmonics():
    u, step = unit_vectors(4), 1e-6
    for k, jay in enumerate(torch.tensor(generators(LMAX))):
        axis = np.eye(3)[k] * step
        turn = torch.tensor(Rotation.from_rotvec(axis).as_matrix())
        back = turn.T
        plus = spherical_harmonics(u @ turn.T, LMAX)
        minus = spherical_harmonics(u @ back.T, LMAX)
        expected = spherical_harmonics(u, LMAX) @ jay.T
        torch.testing.assert_close(
            (plus - minus) / (2 * step), expected, rtol=0, atol=1e-8
        )


@pytest.mark.parametrize("z", [1.0, -1.0, -0.5, np.nextafter(-0.5, 0), 0.0])
def test_edge_frame_is_a_rotation_with_finite_gradients_everywhere(z):
    x = np.sqrt(1 - z * z)
    vec = torch.tensor([[x, 0.0, z]], dtype=torch.float64, requires_grad=True)
    frame = edge_frame(vec / vec.norm())
    torch.testing.assert_close(frame @ frame.mT, torch.eye(3, dtype=torch.float64)[None])
    torch.testing.assert_close(torch.linalg.det(frame).detach(), torch.ones(1).double())
    aligned = (frame[0] @ vec[0]).detach()
    torch.testing.assert_close(aligned, torch.tensor([0.0, 0.0, 1.0]).double())
    gradient = torch.autograd.grad(frame.sum(), vec)[0]
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("lmax", "kmax"), [(1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (4, 0)]
)
def test_analysis_inverts_synthesis_on_the_rotation_grid(lmax, kmax):
    synthesis, analysis = so3_grid(lmax, kmax)
    degree = np.repeat(degree_of_row(lmax), 2 * kmax + 1)
    order = np.tile([0, *np.repeat(range(1, kmax + 1), 2)], (lmax + 1) ** 2)
    expected = np.diag((order <= degree).astype(float))
    np.testing.assert_allclose(analysis @ synthesis, expected, atol=1e-13)


def test_known_products_on_the_grids():
    synthesis, analysis = sphere_grid(1, 1)
    field = np.zeros(4)
    field[2] = 1  # degree 1, order 0
    product = analysis @ (synthesis @ field) ** 2
    np.testing.assert_allclose(product, [np.sqrt(2) / 6, 0, 0, 0], atol=1e-14)
    synthesis, analysis = so3_grid(1, 1)
    field = np.zeros((4, 3))
    field[2, 0] = 1
    product = analysis @ (synthesis @ field.ravel()) ** 2
    np.testing.assert_allclose(product.reshape(4, 3)[0, 0], 1 / 3, atol=1e-14)


@pytest.mark.parametrize("lmax", [1, 2, 3])
def test_grid_is_fine_enough_for_products(lmax):
    """Another grid orientation gives the same product, so nothing is aliased."""
    rng = np.random.default_rng(5)
    left, right = rng.standard_normal((2, (lmax + 1) ** 2))
    synthesis, analysis = sphere_grid(lmax, lmax)
    product = analysis @ ((synthesis @ left) * (synthesis @ right))
    turn = torch.tensor(Rotation.from_rotvec([0.3, -0.8, 0.5]).as_matrix())[None]
    rows = WignerRows(lmax, lmax)(turn)[0].numpy()
    d = np.zeros((len(left), len(left)))
    for l in range(lmax + 1):
        block = slice(l * l, (l + 1) ** 2)
        d[block, block] = rows[lmax - l : lmax + l + 1, block]
    turned = analysis @ ((synthesis @ d @ left) * (synthesis @ d @ right))
    np.testing.assert_allclose(turned, d @ product, atol=1e-13)
