import os
import signal

import pytest

from dp_calc.cli import stepping
from dp_calc.cli.stepping import Stopped, advance


def _run(steps, act, *, save_every=3, done=lambda step: False):
    """Advance a counter; what was recorded and saved."""
    log = {"step": 0, "recorded": [], "saved": []}

    def items():
        yield
        while log["step"] < steps:
            act(log["step"] + 1)
            log["step"] += 1
            yield

    def note(name):
        return lambda: log[name].append(log["step"])

    count = lambda: log["step"]  # noqa: E731
    try:
        advance(
            items(), count, note("recorded"), note("saved"), save_every,
            lambda: done(log["step"]),
        )  # fmt: skip
    except (Stopped, ArithmeticError, OSError, KeyboardInterrupt) as error:
        return log, error
    return log, None


def _at(step, action):
    return lambda now: action() if now == step else None


def _fail(error):
    raise error


def test_every_step_is_recorded_and_the_last_is_saved():
    log, error = _run(7, lambda step: None)
    assert error is None
    assert log["recorded"] == list(range(8))
    assert log["saved"] == [3, 6, 7]


def test_nothing_is_saved_twice_or_at_the_start():
    assert _run(6, lambda step: None)[0]["saved"] == [3, 6]
    assert _run(0, lambda step: None)[0]["saved"] == []


def test_an_aim_that_is_reached_ends_the_run():
    log, error = _run(7, lambda step: None, done=lambda step: step == 4)
    assert error is None
    assert log["recorded"] == [0, 1, 2, 3, 4]
    assert log["saved"] == [3, 4]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_step_end_and_saves_it(number):
    before = signal.getsignal(number)
    log, error = _run(7, _at(5, lambda: os.kill(os.getpid(), number)))
    assert isinstance(error, Stopped)
    assert (error.signal, error.step) == (number, 5)
    assert log["recorded"] == [0, 1, 2, 3, 4, 5]
    assert log["saved"] == [3, 5]
    assert signal.getsignal(number) == before


def test_one_signal_delivered_twice_counts_once():
    twice = lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)]  # noqa: E731
    log, error = _run(7, _at(5, twice))
    assert isinstance(error, Stopped)
    assert log["saved"] == [3, 5]


def test_a_second_signal_interrupts_at_once(monkeypatch):
    monkeypatch.setattr(stepping, "_PATIENCE", -1.0)
    twice = lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)]  # noqa: E731
    log, error = _run(7, _at(5, twice))
    assert isinstance(error, KeyboardInterrupt)
    assert log["saved"] == [3]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ValueError("two atoms meet"), FloatingPointError),
        (FloatingPointError("not finite"), FloatingPointError),
        (OSError(28, "No space left on device"), OSError),
    ],
)
def test_a_step_that_fails_is_not_saved(raised, told):
    log, error = _run(7, _at(5, lambda: _fail(raised)))
    assert type(error) is told
    assert "stopped after step 4" in str(error)
    assert "the checkpoint of step 3" in str(error)
    assert (raised.args[-1]) in str(error)
    assert log["saved"] == [3]
