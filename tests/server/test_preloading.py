"""What a worker preloads: nothing while its sessions are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire_engine.compile.eager.preloading import Preloader
from gradwire_server.worker import runtime
from tests.server.harness import LIMITS, Running


class Noted:
    """A preloader that only notes that it began."""

    WORTH = Preloader.WORTH
    begun = False

    def begin(self) -> None:
        self.begun = True


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
