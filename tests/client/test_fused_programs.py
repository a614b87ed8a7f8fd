"""A compiled training step on a server that compiles its plans, beside PyTorch; each step verifies the kernels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire._transport.embedded import EmbeddedServer

pytest.importorskip("llvmlite")
SECONDS = 120.0


@pytest.fixture
def verifying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A default session on a server that verifies; answers the directory of its kernels."""
    monkeypatch.setenv("GRADWIRE_JIT", "verify")
    monkeypatch.setenv("GRADWIRE_KERNEL_CACHE", str(tmp_path / "kernels"))
    server = EmbeddedServer()
    with closing(gradwire.connect(server.address)):
        yield tmp_path / "kernels"
    server.stop()


def trained(torch: Any) -> tuple[Any, list[Any]]:
    """A step of AdamW of a small net with layer norm, gelu and softmax, and its parameters."""
    rng = np.random.default_rng(0)
    nn, functional = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8), nn.Softmax(-1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.tensor(rng.standard_normal(tuple(parameter.shape)).astype(np.float32)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.tensor(rng.standard_normal((24, 16)).astype(np.float32))
    wanted = torch.tensor(rng.random((24, 8)).astype(np.float32))

    def step() -> Any:
        optimizer.zero_grad()
        loss = functional.mse_loss(net(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return step, list(net.parameters())


def test_a_training_step_is_fused_and_agrees_with_pytorch(verifying: Path) -> None:
    torch = pytest.importorskip("torch")
    (step, parameters), (peer, expected) = trained(gradwire), trained(torch)
    compiled = gradwire.compile(step)
    end, steps, last = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        loss, wanted = compiled(), peer()
        assert float(loss.item()) == pytest.approx(float(wanted.item()), rel=1e-3)
        steps += 1
        found = len(list(verifying.glob("*.o"))) if verifying.exists() else 0
        if found >= 4 and steps > last + 20:  # all kernels of the plan came, and its replacement has run
            break
        last = last if found >= 4 else steps
    assert found >= 4
    for one, other in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-2, atol=2e-3)
