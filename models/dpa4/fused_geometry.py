"""Tables of the kernels that go from edge vectors to frames and radial features."""

from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from ...kernels.edge_frames import FrameTables, edge_frames
from ...kernels.radial import RadialTables, radial_features
from .harmonics import generators, ladder_step, spherical_harmonics
from .radial import RADIAL_NORM_EPS, RadialBasis, RadialNetwork
from .view import DPA4EdgeView

__all__ = ["FusedFrames", "FusedRadial", "PlainRadial", "frame_tables"]


class FusedFrames(nn.Module):
    """Rotations of orders up to one into the frames of edges, (E, 3, D).

    Args:
        lmax: highest degree.
        eps: of the configuration.
        device: where the kernel runs.
    """

    def __init__(self, lmax: int, eps: float, device: torch.device):
        super().__init__()
        self.lmax, self.eps = lmax, eps
        tables = frame_tables(lmax, eps, torch.float32)
        for name in ("powers", "coefficients", "step"):
            tensor = getattr(tables, name).to(device)
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, view: DPA4EdgeView) -> Tensor:
        """See ``kernels.edge_frames.edge_frames``."""
        tables = FrameTables(self.powers, self.coefficients, self.step, self.eps)
        return view.once(f"frames {self.lmax}", lambda: edge_frames(view.vec, tables))


class PlainRadial(nn.Module):
    """Features of the edges from the radial network as it is written.

    Args:
        projection: from radial features to those wanted, ((L + 1) C, n).
    """

    def __init__(self, projection: Tensor):
        super().__init__()
        self.register_buffer("projection", projection.float(), persistent=False)

    def forward(self, view: DPA4EdgeView) -> tuple[Tensor, Tensor]:
        """Features (E, n) and envelope (E,)."""
        radial = view.radial.flatten(1)[:, : len(self.projection)]
        return radial @ self.projection, view.geometry.envelope


class FusedRadial(nn.Module):
    """Features of the edges from their vectors in one kernel, like ``PlainRadial``.

    The last layer of the network and the projection are both linear, so they are one.

    Args:
        basis: radial basis of the model.
        network: its radial network, one that ``covers`` is true for.
        projection: as for ``PlainRadial``, float64.
        rcut: cutoff of the envelope as the model rounds it, in Å.
        exponent: number of terms of the envelope.
        eps: of the configuration.
        vanishing: whether the radial features are multiplied by the envelope.
    """

    def __init__(
        self,
        basis: RadialBasis,
        network: RadialNetwork,
        projection: Tensor,
        rcut: float,
        exponent: int,
        eps: float,
        vanishing: bool,
    ):
        super().__init__()
        first, *between, last = network.net
        norm = between[0].adam_scale if len(between) > 1 else None
        n_used = len(projection)
        out = last.matrix.double()[:, :n_used] @ projection
        out_bias = None if last.bias is None else last.bias.double()[:n_used] @ projection
        self.tables = RadialTables(
            basis.adam_freqs[0],
            first.matrix,
            first.bias,
            norm,
            out.float(),
            None if out_bias is None else out_bias.float(),
            (float(basis.rcut), rcut),
            (basis.exponent, exponent),
            eps,
            RADIAL_NORM_EPS,
            vanishing,
        )

    def forward(self, view: DPA4EdgeView) -> tuple[Tensor, Tensor]:
        """Features (E, n) and envelope (E,)."""
        return radial_features(view.vec, self.tables)


def frame_tables(lmax: int, eps: float, dtype: torch.dtype) -> FrameTables:
    """Tables of ``kernels.edge_frames`` for degrees up to ``lmax``."""
    powers = np.array(
        [p for p in product(range(lmax + 1), repeat=3) if sum(p) <= lmax], dtype=np.int32
    )
    jays = generators(lmax)
    of_harmonics = _coefficients(powers, lmax)
    tables = np.stack([of_harmonics, *(of_harmonics @ jay for jay in jays)])
    return FrameTables(
        torch.from_numpy(powers.T.copy()),
        torch.from_numpy(tables).to(dtype),
        torch.from_numpy(ladder_step(lmax, 0)).to(dtype),
        eps,
    )


def _coefficients(powers: np.ndarray, lmax: int) -> np.ndarray:
    """Each harmonic as a polynomial whose terms all have its degree, (M, D).

    On the unit sphere these monomials are independent, so that values at more points
    than there are monomials settle the coefficients.
    """
    points = np.random.default_rng(0).normal(size=(8 * len(powers), 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    monomials = (points[:, None, :] ** powers).prod(-1)
    values = spherical_harmonics(torch.from_numpy(points), lmax).numpy()
    result = np.zeros((len(powers), values.shape[1]))
    for l in range(lmax + 1):
        terms = powers.sum(1) == l
        rows = slice(l * l, (l + 1) ** 2)
        result[terms, rows] = np.linalg.lstsq(
            monomials[:, terms], values[:, rows], rcond=None
        )[0]
    return result
