"""The measurements on a GPU say that they need one."""

from __future__ import annotations

import pytest

from benchmarks import gpu


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("HOSTCUPY", raising=False)
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(gpu.devices, "cupy", lambda: None)
    assert gpu.main() == 2
    assert "needs a CUDA GPU" in capsys.readouterr().out
