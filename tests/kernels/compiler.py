"""Compiles kernels for a GPU that need not be there."""

from contextlib import contextmanager

import pytest


@contextmanager
def kernels_compiled_only():
    """Compile each kernel launched here for an H200, and run none.

    Yields:
        Names of the kernels compiled, and the bytes of shared memory that each takes.
    """
    triton = pytest.importorskip("triton", reason="needs the package triton")
    from dp_calc.kernels import requirements
    from dp_calc.kernels.products import INTERPRETED
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    if INTERPRETED:
        pytest.skip("needs TRITON_INTERPRET unset")
    try:
        assert triton.knobs.nvidia.ptxas.path
    except RuntimeError:
        pytest.skip("needs the program ptxas, which Triton brings along on Linux")
    compiled = []
    run, active = JITFunction.run, driver._active

    def compile_only(kernel, *args, warmup, **options):
        result = run(kernel, *args, warmup=True, **options)
        compiled.append((kernel.fn.__name__, result.metadata.shared))
        return result

    JITFunction.run = compile_only
    driver.set_active(_H200())
    asked_for = requirements._run_without_gpu
    requirements._run_without_gpu = lambda: True
    try:
        yield compiled
    finally:
        JITFunction.run = run
        driver.set_active(active)
        requirements._run_without_gpu = asked_for


class _H200:
    """What Triton asks a driver for when it compiles."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return "not there"  # kernels of a GPU that is there are kept under its number

    def get_current_stream(self, device):
        return None
