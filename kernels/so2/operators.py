"""The operators as a model calls them: first derivatives, float32, CUDA."""

import torch
from torch import Tensor

from ..derivatives import refuse_forward_mode
from ..requirements import Requirements
from . import ops
from .weights import StackWeights

__all__ = ["mix", "rotate_in", "tile_sum"]

_ROTATE_IN = Requirements(
    "rotate_in",
    source="float32 (E, D, H)",
    frames="float32 (E, 3, D)",
    factors="float32 (E, n)",
    scale="float32 (K, H), contiguous",
)

_MIX = Requirements(
    "mix",
    rows="float32 (E, R, H)",
    order_0="any (layers, parts, F, n, n), contiguous",
    order_1="any (layers, parts, F, m, m), contiguous",
    gate="any (...), contiguous",
    order_0_t="any (layers, parts, F, n, n), contiguous",
    order_1_t="any (layers, parts, F, m, m), contiguous",
    gate_t="any (...), contiguous",
)

_TILE_SUM = Requirements(
    "tile_sum",
    rows="float32 (E, R, H)",
    frames="float32 (E, 3, D)",
    weight="float32 (E, K)",
)


def rotate_in(
    frames: Tensor,
    factors: Tensor,
    source: Tensor,
    scale: Tensor | None,
    rank: int,
    channels: int,
) -> tuple[Tensor, Tensor]:
    """Rows of the source of each edge in its frame, mixed by degree.

    Args:
        frames: from ``kernels.edge_frames``, (E, 3, D).
        factors: of each edge, (E, n): see ``rank``; columns past the last are not read.
        source: features of the source, (E, D, H).
        scale: factor of each kernel and channel, (rank, H), or None.
        rank: number of kernels that mix the degrees of one order, the same for -1 and +1,
            entry ``[from, to, kernel]`` of order 0 first; 0 where the factors are one per
            degree and channel, ``[degree, channel]``, and nothing mixes.
        channels: channels of a stream, a power of two that divides H.

    Returns:
        Rows (E, R, H), and the first of them, (E, H).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    sizes = _ROTATE_IN.check(source, frames, factors, scale)
    lmax, width = _degree("rotate_in", sizes["D"]), sizes["H"]
    if channels < 1 or channels & (channels - 1) or width % channels:
        raise ValueError(
            f"rotate_in: streams of {channels} channels must be a power of two and "
            f"divide {width}"
        )
    fewest = rank * (sizes["D"] + lmax**2) or (lmax + 1) * width
    if sizes["n"] < fewest or sizes.get("K", rank) != rank:
        raise ValueError(
            f"rotate_in: rank {rank} takes {fewest} factors per edge and {rank} rows of "
            f"scale, not {sizes['n']} and {sizes.get('K', 'none')}"
        )
    refuse_forward_mode(frames, factors, source)
    return ops.rotate_in(frames, factors, source, scale, rank, channels)


def mix(rows: Tensor, weights: StackWeights, cohort_edges: int) -> Tensor:
    """The SO(2) stack: residual layers with gates, the last one linear.

    Args:
        rows: (E, R, H).
        weights: of the stack.
        cohort_edges: as in ``KernelOptions``.

    Returns:
        (E, R, H).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    layout = weights.layout
    n, m = layout.sizes
    known = {"R": layout.n_rows, "H": layout.width, "F": layout.n_focus, "n": n, "m": m}
    _MIX.check(rows, *weights.tensors, **known)
    refuse_forward_mode(rows)
    save = torch.is_grad_enabled() and rows.requires_grad
    options = (layout.n_focus, weights.precision, cohort_edges, save)
    return ops.mix(rows, *weights.tensors, *options)[0]


def tile_sum(frames: Tensor, rows: Tensor, weight: Tensor, tile: int) -> Tensor:
    """Rows rotated back, weighted and summed over each tile of edges.

    Args:
        frames: from ``kernels.edge_frames``, (E, 3, D), E a multiple of ``tile``.
        rows: (E, R, H).
        weight: per edge and group of H / K channels, (E, K).
        tile: edges in a tile.

    Returns:
        (E / tile, D, H).

    Raises:
        ValueError: the tensors do not fit.
        RuntimeError: derivatives in forward mode are asked for.
    """
    sizes = _TILE_SUM.check(rows, frames, weight)
    lmax = _degree("tile_sum", sizes["D"])
    if sizes["R"] != 3 * lmax + 1 or sizes["H"] % sizes["K"]:
        raise ValueError(
            f"tile_sum: degree {lmax} has {3 * lmax + 1} rows, and {sizes['K']} weights "
            f"divide their channels, but there are {sizes['R']} rows of {sizes['H']}"
        )
    if len(rows) % tile:
        raise ValueError(f"{len(rows)} edges are no whole number of tiles of {tile}")
    refuse_forward_mode(frames, rows, weight)
    return ops.tile_sum(frames, rows, weight, tile)


def _degree(operator: str, n_packed: int) -> int:
    """L of D = (L + 1)^2."""
    lmax = round(n_packed**0.5) - 1
    if (lmax + 1) ** 2 != n_packed:
        raise ValueError(f"{operator}: D must be the square of L + 1, not {n_packed}")
    return lmax
