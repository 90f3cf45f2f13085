"""The kernels get through Triton's compiler, of which the interpreter knows nothing."""

import pytest

from ..compiler import kernels_compiled_only
from .problems import problem


@pytest.mark.parametrize(
    ("n_streams", "n_heads", "normed"), [(1, 1, False), (2, 2, True)], ids=str
)
def test_kernels_compile(n_streams, n_heads, normed):
    with kernels_compiled_only() as compiled:
        problem([20], n_streams, n_heads, normed=normed).results()
    assert len({name for name, _ in compiled}) == 4
    assert max(size for _, size in compiled) <= 48 * 1024  # any GPU has these
