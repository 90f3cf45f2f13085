"""Random rows of edges in tiles, the float64 answers, and how far off a result is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from dp_calc.kernels.edge_weights import WeightTables, edge_weights, reference
from torch import Tensor

TILE = 16


@dataclass(frozen=True)
class Problem:
    """Inputs of ``edge_weights``, and a cotangent of its result.

    Attributes:
        inputs: bias, query, key, strength and, unless streams do not compete, scalars.
        rows: ``tile_row`` and ``tile_ptr``.
        tables: as the kernels want them.
        cotangent: (S, K).
    """

    inputs: Sequence[Tensor]
    rows: tuple[Tensor, Tensor]
    tables: WeightTables
    cotangent: Tensor

    def run(self, *inputs: Tensor) -> Tensor:
        """The operator."""
        scalars = inputs[4] if len(inputs) == 5 else None
        return edge_weights(*inputs[:4], scalars, *self.rows, self.tables, TILE)

    def exact(self, *inputs: Tensor) -> Tensor:
        """The reference in the precision of the inputs."""
        scalars = inputs[4] if len(inputs) == 5 else None
        tables = change_tables(self.tables, lambda x: x.to(inputs[0].dtype))
        tile_row = self.rows[0]
        return reference.edge_weights(*inputs[:4], scalars, tile_row, tables, TILE)

    def results(self) -> tuple[Tensor, ...]:
        """Weights and the gradients of all inputs."""
        return with_gradients(self.run, self.inputs, self.cotangent)

    def expected(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        """The same without kernels."""
        inputs = [x.to(dtype) for x in self.inputs]
        return with_gradients(self.exact, inputs, self.cotangent.to(dtype))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Problem":
        """With inputs, cotangent and tables changed."""
        return replace(
            self,
            inputs=[change(x) for x in self.inputs],
            cotangent=change(self.cotangent),
            tables=change_tables(self.tables, change),
        )


def change_tables(tables: WeightTables, change: Callable[[Tensor], Tensor]):
    changed = {
        name: change(x) for name, x in vars(tables).items() if isinstance(x, Tensor)
    }
    return replace(tables, **changed)


def with_gradients(function, inputs, cotangent) -> tuple[Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = function(*leaves)
    return result.detach(), *torch.autograd.grad(result, leaves, cotangent)


def problem(
    degrees: Sequence[int],
    n_streams: int = 2,
    n_heads: int = 1,
    channels: int = 16,
    unused: int = 0,
    normed: bool = True,
    biased: bool = True,
    device: str = "cpu",
    seed: int = 5,
) -> Problem:
    """Rows of some numbers of edges; streams compete where there are several.

    Args:
        degrees: edges of each row.
        n_streams: number of streams.
        n_heads: heads of each.
        channels: of each head.
        unused: tiles without edges, all in one more row.
        normed: whether scalars are normed before they compete.
        biased: whether there is a bias then.
        device: of the tensors.
        seed: of the numbers.
    """
    random = _Random(device, seed)
    tiles, real = _tiles(degrees, unused)
    n_slots, n_weights = len(real), n_streams * n_heads
    width = n_weights * channels
    strength = random(n_slots).sigmoid() * real.to(device)
    inputs = [random(n_slots, n_weights), random(len(tiles), width)]
    inputs += [random(n_slots, width), strength]
    tables = WeightTables(0.1 + random(n_weights).square())
    if n_streams > 1:
        inputs.append(random(n_slots, width))
        tables = replace(
            tables,
            competition=random(n_streams, n_heads * channels) / 4,
            competition_bias=random(n_streams) if biased else None,
            norm_eps=1e-3 if normed else None,
        )
    tile_ptr = torch.cat([tiles.new_zeros(1), tiles.cumsum(0)]).to(device)
    tile_row = torch.arange(len(tiles)).repeat_interleave(tiles).to(device)
    cotangent = random(n_slots, n_weights)
    return Problem(inputs, (tile_row, tile_ptr), tables, cotangent)


def _tiles(degrees: Sequence[int], unused: int) -> tuple[Tensor, Tensor]:
    """Tiles of each row, and 1 or 0 for each slot."""
    degrees = torch.tensor([*degrees, 0])
    tiles = -(-degrees // TILE)
    real = [(torch.arange(TILE * n) < d) for n, d in zip(tiles, degrees, strict=True)]
    tiles[-1] = unused
    return tiles, torch.cat([*real, torch.zeros(TILE * unused, dtype=torch.bool)])


def deviation(result: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest number."""
    assert result.shape == expected.shape
    assert result.dtype == torch.float32
    assert result.is_contiguous()
    if not expected.numel():
        return 0.0
    scale = expected.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    return ((result.double() - expected).abs().max() / scale).item()


class _Random:
    """Draws of normal numbers, the same on every device."""

    def __init__(self, device: str, seed: int):
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator).to(self._device)
