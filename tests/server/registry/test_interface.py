"""What the front asks of a backend: every backend has it, with parameters of the same names."""

import inspect
from typing import Any

import pytest

from gradwire_server.registry import interface
from gradwire_server.registry.files import Files
from gradwire_server.registry.process_backend import WorkersBackend
from gradwire_server.registry.thread_backend import InProcessBackend


def _methods(protocol: type) -> dict[str, Any]:
    return {name: value for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"}


def _asked() -> list[Any]:
    pairs = [
        (interface.SessionBackend, InProcessBackend),
        (interface.SessionBackend, WorkersBackend),
        (interface.FileStore, Files),
    ]
    return [
        pytest.param(asked, getattr(offers, name, None), id=f"{offers.__name__}.{name}")
        for protocol, offers in pairs
        for name, asked in _methods(protocol).items()
    ]


@pytest.mark.parametrize(("asked", "offered"), _asked())
def test_a_backend_has_each_method_with_the_same_parameters(asked: Any, offered: Any) -> None:
    assert offered is not None
    wanted, found = (list(inspect.signature(each).parameters.values()) for each in (asked, offered))
    assert [each.name for each in found[: len(wanted)]] == [each.name for each in wanted]
    assert [each.default for each in found[: len(wanted)]] == [each.default for each in wanted]
    assert all(each.default is not each.empty for each in found[len(wanted) :])


@pytest.mark.parametrize(("asked", "offered"), _asked())
def test_what_the_front_awaits_is_awaitable(asked: Any, offered: Any) -> None:
    if inspect.iscoroutinefunction(asked):
        assert inspect.iscoroutinefunction(offered)
    else:
        assert not inspect.iscoroutinefunction(offered)
