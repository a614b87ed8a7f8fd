"""A worker whose GPU is broken refuses what fails, and ends before its next call."""

from __future__ import annotations

import logging
import os

import pytest

from gradwire_server.worker import broken_gpu
from gradwire_server.worker.broken_gpu import STATUS, GpuWatch


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Statuses that processes would have ended with."""
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    return statuses


def test_a_failure_on_a_sound_gpu_is_not_its_own(monkeypatch: pytest.MonkeyPatch, ended: list[int]) -> None:
    monkeypatch.setattr(broken_gpu, "is_broken", lambda: False)
    watch = GpuWatch()
    assert watch.refusal(RuntimeError("a bug")) is None
    watch.end_if_broken()
    assert ended == []


def test_a_failure_on_a_broken_gpu_ends_the_worker(
    monkeypatch: pytest.MonkeyPatch, ended: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(broken_gpu, "is_broken", lambda: True)
    watch = GpuWatch()
    with caplog.at_level(logging.CRITICAL):
        for _ in range(2):
            refusal = watch.refusal(RuntimeError("an illegal memory access was encountered"))
            assert refusal is not None
            assert "worker ends" in str(refusal)
    assert len(caplog.records) == 1
    watch.end_if_broken()
    assert ended == [STATUS]


def test_memory_that_a_gpu_lacks_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken_gpu, "is_broken", lambda: pytest.fail("must not wait for the GPU"))
    assert GpuWatch().refusal(MemoryError()) is None
