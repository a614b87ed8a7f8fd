"""Reentry: finalizers that Python runs while their thread sends or receives, and batches that cannot be made."""

from collections.abc import Callable
from typing import Any

import pytest

import gradwire
from gradwire._transport import wire


def once(function: Callable[..., Any], meanwhile: Callable[[], object]) -> Callable[..., Any]:
    """The function, in whose first call something else is done, as Python runs a finalizer."""
    rest = [meanwhile]

    def called(*args: Any, **kwargs: Any) -> Any:
        while rest:
            rest.pop()()
        return function(*args, **kwargs)

    return called


def test_what_a_finalizer_issues_while_a_batch_is_made_is_sent_after_it(deferring, monkeypatch) -> None:
    x, found = gradwire.ones(3), []

    def finalize() -> None:
        x.mul_(2)
        found.append(x + y)
        deferring.flush()

    y = x * 3
    deferring.sync()
    for _ in range(2):  # the second time no op waits
        found.clear()
        x = gradwire.ones(3)
        y = x * 3
        monkeypatch.setattr(wire, "stream_batch", once(wire.stream_batch, finalize))
        deferring.flush()
        x.add_(1)
        assert (x + 0).tolist() == [3.0, 3.0, 3.0]
        assert found[0].tolist() == [5.0, 5.0, 5.0]


def test_a_finalizer_that_asks_for_a_value_while_a_batch_is_made_is_refused(deferring, monkeypatch) -> None:
    x = gradwire.ones(3)

    def finalize() -> None:
        with pytest.raises(RuntimeError, match="a finalizer"):
            x.tolist()
        with pytest.raises(RuntimeError, match="a finalizer"):
            deferring.sync()

    monkeypatch.setattr(wire, "stream_batch", once(wire.stream_batch, finalize))
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_finalizer_that_asks_for_a_value_while_answers_are_handed_out_is_refused(deferring, monkeypatch) -> None:
    x = gradwire.ones(3)

    def finalize() -> None:
        with pytest.raises(RuntimeError, match="a finalizer"):
            x.tolist()
        x.add_(1)

    monkeypatch.setattr(deferring, "_deliver_answers", once(deferring._deliver_answers, finalize))
    x.add_(1)
    assert (x * 1).tolist() == [2.0, 2.0, 2.0]
    assert x.tolist() == [3.0, 3.0, 3.0]


def test_a_session_whose_batch_cannot_be_made_loses_no_command_in_silence(deferring, monkeypatch) -> None:
    x = gradwire.ones(3)
    deferring.sync()

    def fail() -> None:
        raise ValueError("of a test")

    x.add_(1)
    with monkeypatch.context() as patched:
        patched.setattr(wire, "stream_batch", once(wire.stream_batch, fail))
        with pytest.raises(RuntimeError, match="no batch could be made of the commands: ValueError"):
            deferring.flush()
    with pytest.raises(RuntimeError, match="no batch could be made"):
        x.tolist()
