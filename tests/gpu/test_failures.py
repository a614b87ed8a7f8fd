"""A GPU that fails: a broken context is found, memory beyond the pool is refused; on hostcupy, which can do both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core.context import Context, activate
from gradwire_server.common import limits
from gradwire_server.worker.broken_gpu import GpuWatch
from tests.gpu import hostcupy

if hostcupy.folder() is None:
    pytest.skip("needs hostcupy", allow_module_level=True)


@pytest.fixture(autouse=True)
def gpu() -> None:
    """The device of this process: no stand-in."""


@pytest.fixture
def limited() -> Iterator[int]:
    """Pools of a thousandth of the card; its bytes."""
    devices.limit_pools(0.001)
    yield devices.card_bytes()[0] // 1000
    devices.limit_pools(1.0)


def test_memory_beyond_the_pool_is_refused_and_what_fits_is_not(limited: int) -> None:
    with activate(Context()):
        x = engine.call("ones", ((limited // 6,),), {"device": "cuda:1"})
        with pytest.raises(engine.EngineError) as refused:
            engine.call("exp", (x,))
        assert refused.value.reason == engine.Reason.MEMORY_LIMIT
        assert engine.call("zeros", ((10,),), {"device": "cuda:1"}).device == "cuda:1"


def test_the_default_limits_follow_the_smaller_memory_of_host_and_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1 << 50)
    cards = devices.card_bytes()
    made = limits.Limits().resolved()
    assert made.max_bytes == sum(cards) * 4 // 5
    assert made.max_session_bytes == max(cards) * 9 // 10
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1 << 30)
    made = limits.Limits().resolved()
    assert (made.max_bytes, made.max_session_bytes) == ((1 << 30) * 4 // 5, 1 << 29)


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
