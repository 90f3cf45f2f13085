"""Kernels compiled at the same time, before any of them is launched; no GPU is needed."""

import threading
import time

import pytest
import torch
from dp_calc.kernels.launch import compiled_ahead, counted, launch

from .compiler import kernels_compiled_only


class Kernel:
    """Notes what it is compiled for, in which thread; ``compiling`` is done there."""

    def __init__(self, compiling=lambda: None):
        self.compiling = compiling
        self.compiled = []
        self.threads = set()

    def __getitem__(self, grid):
        raise AssertionError("the kernel was launched")

    def warmup(self, *arguments, grid, **constants):
        self.compiling()
        self.threads.add(threading.current_thread())
        self.compiled.append((arguments, grid, constants))


class Doubled(torch.autograd.Function):
    """Launches a kernel in each direction."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_kernel = backward
        launch(forward, (1,), x)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        launch(ctx.backward_kernel, (1,), grad)
        return 2 * grad, None, None


def test_nothing_runs_and_each_kernel_is_compiled_once_elsewhere():
    kernel, x = Kernel(), torch.zeros(4)
    with counted() as counts, compiled_ahead():
        for number in (7, 7, 16):
            launch(kernel, (2,), x, None, number, BLOCK=4)
    assert not counts
    read = [arguments[1:] for arguments, _, _ in kernel.compiled]
    assert sorted(read, key=str) == [(None, 16), (None, 7)]
    assert all(rest == [(2,), {"BLOCK": 4}] for _, *rest in kernel.compiled)
    assert threading.current_thread() not in kernel.threads


def test_tensors_are_told_apart_by_dtype_and_alignment_and_not_held():
    kernel, x = Kernel(), torch.zeros(9)
    with compiled_ahead():
        for tensor in (x, x.clone(), x[1:], x.double()):
            launch(kernel, (1,), tensor)
    pointers = [arguments[0] for arguments, _, _ in kernel.compiled]
    seen = {(p.dtype, p.data_ptr() % 16) for p in pointers}
    assert seen == {(torch.float32, 0), (torch.float32, 4), (torch.float64, 0)}
    assert len(pointers) == 3
    assert not any(isinstance(p, torch.Tensor) for p in pointers)


def test_kernels_of_a_backward_pass():
    forward, backward = Kernel(), Kernel()
    x = torch.ones(3, requires_grad=True)
    with compiled_ahead():
        torch.autograd.grad(Doubled.apply(x, forward, backward).sum(), x)
    assert len(forward.compiled) == len(backward.compiled) == 1


def test_launches_of_other_threads_are_none_of_its_business():
    kernel = Kernel()
    failures = []

    def launch_it():
        try:
            launch(kernel, (1,))
        except AssertionError as error:
            failures.append(str(error))

    with compiled_ahead():
        thread = threading.Thread(target=launch_it)
        thread.start()
        thread.join()
    assert failures == ["the kernel was launched"]
    assert not kernel.compiled


def test_what_cannot_be_compiled_is_left_to_its_launch():
    def fail():
        raise ValueError("no")

    failing, other = Kernel(fail), Kernel()
    with compiled_ahead():
        launch(failing, (1,))
        launch(other, (1,))
    assert len(other.compiled) == 1
    with pytest.raises(AssertionError, match="launched"):
        launch(failing, (1,))


def test_an_interruption_does_not_wait_for_the_compiler():
    may_end = threading.Event()
    kernel = Kernel(lambda: may_end.wait(60))

    def interrupted():
        with compiled_ahead():
            for number in range(500):
                launch(kernel, (1,), number)
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    waited = time.monotonic() - start
    may_end.set()
    assert waited < 30  # what holds a thread ends after 60
    assert len(kernel.compiled) < 500


def test_a_kernel_is_there_afterwards():
    triton = pytest.importorskip("triton", reason="needs the package triton")
    tl = pytest.importorskip("triton.language")

    @triton.jit
    def filling(out, number, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), number)

    def fill():
        for dtype in (torch.float32, torch.float64):
            for number in (3, 16):
                launch(filling, (1,), torch.zeros(64, dtype=dtype), number, BLOCK=64)

    done = []
    with kernels_compiled_only() as launched:
        hook = triton.knobs.runtime.jit_post_compile_hook
        triton.knobs.runtime.jit_post_compile_hook = lambda **found: done.append(found)
        try:
            with compiled_ahead():
                fill()
            assert len(done) == len(launched) == 4
            fill()
            assert len(launched) == 8
            assert len(done) == 4
        finally:
            triton.knobs.runtime.jit_post_compile_hook = hook
