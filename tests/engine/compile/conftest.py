"""Fixtures of the tests of ops' loops: kernels of machine code, and a context that notes which loops were used."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import gradwire_engine as engine
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core.context import CURRENT
from tests.engine.compile.fusing import KERNELS, NotedLoops


@pytest.fixture
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled at their first use, in the cache of this process's tests."""
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setattr(OPTIONS, "kernels", KERNELS)


@pytest.fixture
def noted() -> Iterator[NotedLoops]:
    """The loops of a context in which the test computes."""
    loops = NotedLoops()
    with engine.activate(replace(CURRENT.get(), loops=loops)):
        yield loops
