"""What is said where the kernels cannot be compiled."""

from types import SimpleNamespace

import pytest
import torch

from dp_calc.fusing import _why_not_trusted

from ..kernels.compiler import kernels_compiled_only


def on_kernels(largest_error):
    """A model on a GPU whose kernels are tried so."""
    tried = SimpleNamespace(fused=SimpleNamespace(largest_error=largest_error))
    blocks = [SimpleNamespace(so2_conv=tried)]
    return SimpleNamespace(
        device=torch.device("cuda"), descriptor=SimpleNamespace(blocks=blocks)
    )


def failing(error):
    def largest_error():
        raise error

    return on_kernels(largest_error)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (RuntimeError("CUDA error: no kernel\nCompile with TORCH_USE_CUDA_DSA\n"), None),
        (RuntimeError("\n  \n CUDA error: no kernel"), None),
        (MemoryError(), "MemoryError"),
    ],
)
def test_the_line_that_says_what_is_wrong(error, what):
    expected = f"cannot be compiled here ({what or 'CUDA error: no kernel'})"
    assert _why_not_trusted(failing(error), "exact").endswith(expected)


def test_the_line_of_a_failure_in_a_called_function():
    """Triton tells of the call alone, ending with a mark below it."""
    triton = pytest.importorskip("triton", reason="needs the package triton")
    tl = pytest.importorskip("triton.language")

    @triton.jit
    def called(x):
        return tl.undefined(x)

    @triton.jit
    def kernel(x, called: tl.constexpr):
        tl.store(x, called(tl.load(x)))

    with kernels_compiled_only():
        fused = on_kernels(lambda: kernel[(1,)](torch.zeros(1), called))
        why = _why_not_trusted(fused, "exact")
    assert "'undefined'" in why
    assert len(why.splitlines()) == 1
