"""Tables of the kernels that go from edge vectors to frames and radial features."""

from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...kernels.edge_frames import FrameTables, edge_frames
from ...kernels.radial import RadialTables, radial_features
from .config import DescriptorConfig
from .embedding import EnvironmentSeed
from .harmonics import generators, ladder_step, spherical_harmonics
from .linear import MLPLayer
from .radial import RADIAL_NORM_EPS, RadialBasis, RadialNetwork
from .view import DPA4EdgeView

__all__ = [
    "FusedFrames",
    "FusedRadial",
    "PlainRadial",
    "covers_radial",
    "frame_tables",
    "fused_network",
    "fused_seed",
]


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
        return radial @ self.projection, view.envelope


class FusedRadial(nn.Module):
    """Features of the edges from their vectors in one kernel.

    Args:
        config: options of the model, for which ``covers_radial`` is true.
        basis: radial basis of the model.
        hidden: from the basis to the hidden layer.
        norm_scale: of the norm of the hidden layer, or None.
        out: from the hidden layer to the features, (W, n), float64.
        out_bias: (n,), float64, or None.
        vanishing: whether the features are multiplied by the envelope.
    """

    def __init__(
        self,
        config: DescriptorConfig,
        basis: RadialBasis,
        hidden: MLPLayer,
        norm_scale: Tensor | None,
        out: Tensor,
        out_bias: Tensor | None,
        vanishing: bool,
    ):
        super().__init__()
        self.n_features = out.shape[1]
        missing = -self.n_features % 16
        out = F.pad(out, (0, missing)).float()
        out_bias = None if out_bias is None else F.pad(out_bias, (0, missing)).float()
        self.tables = RadialTables(
            basis.adam_freqs[0],
            hidden.matrix,
            hidden.bias,
            norm_scale,
            out,
            out_bias,
            (float(basis.rcut), float(np.float32(config.rcut))),
            config.env_exp,
            config.eps,
            RADIAL_NORM_EPS,
            vanishing,
        )

    def forward(self, view: DPA4EdgeView) -> tuple[Tensor, Tensor]:
        """Features (E, n) and envelope (E,)."""
        features, envelope = radial_features(view.vec, self.tables)
        return features[:, : self.n_features], envelope


def covers_radial(config: DescriptorConfig) -> bool:
    """Whether the kernel knows the radial network of a model."""
    simple = config.basis_type == "bessel" and config.bridging is None
    return simple and config.activation == "silu" and len(config.radial_mlp) == 1


def fused_network(
    config: DescriptorConfig,
    basis: RadialBasis,
    network: RadialNetwork,
    projection: Tensor | None = None,
) -> FusedRadial:
    """The radial network and, if given, a projection as in ``PlainRadial``, float64.

    The last layer of the network and the projection are both linear, so they are one.
    """
    hidden, *between, last = network.net
    out, bias = last.matrix.double(), last.bias
    bias = None if bias is None else bias.double()
    if projection is not None:
        n_used = len(projection)
        out = out[:, :n_used] @ projection
        bias = None if bias is None else bias[:n_used] @ projection
    norm_scale = between[0].adam_scale if len(between) > 1 else None
    vanishing = config.version >= 1.1
    return FusedRadial(config, basis, hidden, norm_scale, out, bias, vanishing)


def fused_seed(
    config: DescriptorConfig, basis: RadialBasis, seed: EnvironmentSeed
) -> FusedRadial:
    """``EnvironmentSeed._of_length``: three linear layers, of which two are one."""
    first, second = seed.rbf_proj_layer1, seed.rbf_proj_layer2
    to_hidden = seed.g_layer1.matrix[: seed.n_radial].double()
    out, bias = second.matrix.double() @ to_hidden, None
    if second.bias is not None:
        bias = second.bias.double() @ to_hidden + seed.g_layer1.bias.double()
    return FusedRadial(config, basis, first, None, out, bias, vanishing=False)


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
