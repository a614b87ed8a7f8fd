"""What a worker preloads and which pages it readies: nothing while its sessions are small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire_engine.compile.eager.preloading import Preloader
from gradwire_server.common.allocator import PAGES
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.worker import runtime
from tests.server.harness import LIMITS, Running


class Noted:
    """A preloader that only notes that it began."""

    WORTH = Preloader.WORTH
    begun = False

    def begin(self) -> None:
        self.begun = True


def test_pages_are_readied_once_for_a_large_session_and_for_no_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    readied: list[int] = []
    monkeypatch.setattr(runtime, "ready_pages", readied.append)
    running = Running(LIMITS)
    try:
        with gradwire.connect(running.address):
            small: Any = gradwire.tensor(np.ones(1000, np.float32))
            assert (small * 2).sum().item() == 2000
            assert not readied
            large: Any = gradwire.tensor(np.ones(runtime.PAGES_WORTH // 4, np.float32))
            for _ in range(3):
                assert (large * 2).sum().item() == runtime.PAGES_WORTH // 2
            assert readied == [min(PAGES, LIMITS.max_bytes // 16)]
    finally:
        running.stop()


def test_all_workers_together_ready_a_small_part_of_the_sessions_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    readied: list[int] = []
    monkeypatch.setattr(runtime, "ready_pages", readied.append)
    monkeypatch.setattr(runtime, "PRELOADER", Noted())
    limits = replace(LIMITS, max_bytes=64 << 20)
    for worker in range(4):
        one = runtime.Runtime(limits, SharedCounters(4), worker)
        one.make_call("Open", 1, b"", 1, None)
        one.sessions[1].account.bytes = runtime.PAGES_WORTH
        one.make_call("Run", 1, b"", 2, None)
    assert len(readied) == 4
    assert sum(readied) <= limits.max_bytes // 16


def test_small_sessions_preload_nothing_and_a_large_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    preloader = Noted()
    monkeypatch.setattr(runtime, "PRELOADER", preloader)
    running = Running(LIMITS)
    try:
        with gradwire.connect(running.address):
            small: Any = gradwire.tensor(np.ones(100, np.float32))
            assert (small * 2).sum().item() == 200
            assert not preloader.begun
            large = gradwire.tensor(np.ones(preloader.WORTH // 4, np.float32))
            assert large.sum().item() == preloader.WORTH // 4
            assert (small * 2).sum().item() == 200
            assert preloader.begun
    finally:
        running.stop()
