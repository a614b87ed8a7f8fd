"""Every test here runs on a GPU, if there is one, and on the stand-in for CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gradwire
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core import device as devices
from tests.gpu import hostcupy, stand_in
from tests.server.harness import LIMITS, Running

if (built := hostcupy.folder()) is not None:
    hostcupy.install(built)


@pytest.fixture(params=["CuPy", "stand-in"], autouse=True)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU, or what stands in for one. Ops use their kernels, as on a server by default."""
    monkeypatch.setattr(OPTIONS, "mode", "on")
    if request.param == "stand-in":
        with stand_in.installed():
            yield
    elif devices.cupy() is None:
        pytest.skip("needs CuPy and a CUDA GPU")
    else:
        yield


@pytest.fixture
def session(gpu: None) -> Iterator[Any]:
    """A session of a server in this process, which therefore has the GPU that the test has."""
    running = Running(LIMITS)
    try:
        with gradwire.connect(running.address) as session:
            yield session
    finally:
        running.stop()
