"""Counting launches; numbers come from the kernels that are launched elsewhere."""

import threading
from types import SimpleNamespace

import pytest
from dp_calc.kernels.launch import counted, launch


class Kernel:
    """Notes how it is launched."""

    def __init__(self, name):
        self.__name__ = name
        self.launches = []

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.launches.append(
            SimpleNamespace(grid=grid, arguments=arguments, constants=constants)
        )


def test_everything_is_handed_on():
    kernel = Kernel("kernel")
    launch(kernel, (3, 2), 1.5, None, BLOCK=4, num_warps=2)
    (one,) = kernel.launches
    assert one.grid == (3, 2)
    assert one.arguments == (1.5, None)
    assert one.constants == {"BLOCK": 4, "num_warps": 2}


def test_launches_are_counted_by_name_within_the_context():
    first, second = Kernel("first"), Kernel("second")
    launch(first, (1,))
    with counted() as outer:
        launch(first, (1,))
        with counted() as inner:
            launch(second, (1,))
        launch(first, (1,))
    launch(second, (1,))
    assert outer == {"first": 2, "second": 1}
    assert inner == {"second": 1}
    assert inner["first"] == 0


def test_equal_counters_are_told_apart():
    with counted() as outer:
        with counted():
            pass
        launch(Kernel("kernel"), (1,))
    assert outer == {"kernel": 1}


def test_launches_of_other_threads_are_counted():
    kernel = Kernel("kernel")
    with counted() as counts:
        threads = [
            threading.Thread(target=lambda: [launch(kernel, (1,)) for _ in range(500)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == {"kernel": 8 * 500}


def test_counting_ends_with_an_error():
    with pytest.raises(KeyError), counted() as counts:
        raise KeyError
    launch(Kernel("kernel"), (1,))
    assert not counts
