"""A GPU whose context broke is found, and one that is sound is not taken for it; on hostcupy, which can break."""

from __future__ import annotations

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from gradwire_server.worker.broken_gpu import GpuWatch
from tests.gpu import hostcupy

if hostcupy.folder() is None:
    pytest.skip("needs hostcupy", allow_module_level=True)


@pytest.fixture(autouse=True)
def gpu() -> None:
    """The device of this process: no stand-in."""


def test_an_illegal_access_is_found_at_the_next_read_and_stays() -> None:
    assert not devices.is_broken()
    with activate(Context()):
        x = engine.tensor(devices.to_device(np.ones(3), "cuda:0"))
        watch = GpuWatch()
        assert watch.refusal(RuntimeError("of another kind")) is None
        with hostcupy.broken():
            with pytest.raises(RuntimeError) as failure:  # not a refusal of an op's
                devices.host(engine.call("exp", (x,)).array)
            assert not isinstance(failure.value, engine.EngineError)
            refusal = watch.refusal(failure.value)
        assert refusal is not None
        assert watch.broken
    assert not devices.is_broken()
