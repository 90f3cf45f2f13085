"""Fixed-order sums and gathers against dense matrices."""

import pytest
import torch
from dp_calc.kernels.segment import gather, segment_sum


def random_segments(n_edges, n_rows, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, max(n_rows - 2, 1), (n_edges,), generator=generator)
    order = torch.argsort(index, stable=True)
    counts = torch.bincount(index, minlength=n_rows)
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return index, order, ptr, generator


@pytest.mark.parametrize(("n_edges", "n_rows"), [(0, 3), (1, 1), (37, 5), (1000, 63)])
@pytest.mark.parametrize("shape", [(), (3,), (4, 5)])
def test_sum_equals_the_dense_product_and_leaves_empty_rows_zero(n_edges, n_rows, shape):
    index, order, ptr, generator = random_segments(n_edges, n_rows, n_edges)
    values = torch.randn(n_edges, *shape, generator=generator, dtype=torch.float64)
    one_hot = torch.zeros(n_rows, n_edges, dtype=torch.float64)
    one_hot[index, torch.arange(n_edges)] = 1
    expected = torch.tensordot(one_hot, values, dims=1)
    result = segment_sum(values, index, order, ptr)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-13)
    assert torch.all(result[-1] == 0) or n_rows == 1


def test_sum_and_gather_are_adjoint_to_third_order():
    index, order, ptr, generator = random_segments(7, 4, 3)
    values = torch.randn(
        7, 2, generator=generator, dtype=torch.float64, requires_grad=True
    )
    rows = torch.randn(4, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def energy(values, rows):
        summed = segment_sum(values**3, index, order, ptr)
        return (summed * gather(rows**2, index, order, ptr)[:4]).sum()

    assert torch.autograd.gradcheck(energy, (values, rows))
    assert torch.autograd.gradgradcheck(energy, (values, rows))
    first = torch.autograd.grad(energy(values, rows), values, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), values, create_graph=True)[0]
    third = torch.autograd.grad(second.sum(), values)[0]
    weight = segment_sum(torch.ones_like(values), index, order, ptr)  # shape of the sums
    assert weight.shape == rows.shape
    expected = 6 * gather(gather(rows**2, index, order, ptr)[:4], index, order, ptr)
    torch.testing.assert_close(third, expected)


def test_each_sum_is_taken_in_the_given_order():
    # In float32 (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
    values = torch.tensor([[1e8], [1.0], [-1e8]])
    index, ptr = torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3])
    assert segment_sum(values, index, torch.tensor([0, 1, 2]), ptr).item() == 0.0
    assert segment_sum(values, index, torch.tensor([0, 2, 1]), ptr).item() == 1.0


def test_unused_memory_around_the_values_is_never_read():
    padded = torch.full((9, 4), torch.nan, dtype=torch.float64)
    padded[2:7, 1:3] = 1.0
    values = padded[2:7, 1:3]  # not contiguous
    index = torch.tensor([0, 0, 1, 1, 1])
    result = segment_sum(values, index, torch.arange(5), torch.tensor([0, 2, 5]))
    assert result.tolist() == [[2.0, 2.0], [3.0, 3.0]]
