"""A compiled training step on a server that compiles its plans, beside PyTorch; each step verifies the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire._transport.embedded import EmbeddedServer
from gradwire_engine.compile.fusion.fused import WORK_BEFORE

pytest.importorskip("llvmlite")


@pytest.fixture
def verifying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A default session on a server that verifies; answers the directory of its kernels."""
    monkeypatch.setenv("GRADWIRE_JIT", "verify")
    monkeypatch.setenv("GRADWIRE_KERNEL_CACHE", str(tmp_path / "kernels"))
    server = EmbeddedServer()
    with closing(gradwire.connect(server.address)):
        yield tmp_path / "kernels"
    server.stop()


ROWS, WIDTH = 2048, 64
# More than the runs after which the plan is replaced: twenty results of this size take longer than fused.WORK_BEFORE.
STEPS = 110


def trained(torch: Any) -> tuple[Any, list[Any]]:
    """A step of AdamW of a small net with layer norm, gelu and softmax, and its parameters."""
    rng = np.random.default_rng(0)
    nn, functional = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(16, WIDTH), nn.LayerNorm(WIDTH), nn.GELU(), nn.Linear(WIDTH, 8), nn.Softmax(-1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.tensor(rng.standard_normal(tuple(parameter.shape)).astype(np.float32)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x = torch.tensor(rng.standard_normal((ROWS, 16)).astype(np.float32))
    wanted = torch.tensor(rng.random((ROWS, 8)).astype(np.float32))

    def step() -> Any:
        optimizer.zero_grad()
        loss = functional.mse_loss(net(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return step, list(net.parameters())


def test_a_training_step_is_fused_and_agrees_with_pytorch(verifying: Path) -> None:
    torch = pytest.importorskip("torch")
    assert WORK_BEFORE / (20e-9 * ROWS * WIDTH) < STEPS - 5
    (step, parameters), (peer, expected) = trained(gradwire), trained(torch)
    compiled = gradwire.compile(step)
    for _ in range(STEPS):
        loss, wanted = compiled(), peer()
        assert float(loss.item()) == pytest.approx(float(wanted.item()), rel=1e-3)
    assert len(list(verifying.glob("*.o"))) >= 4
    for one, other in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-2, atol=2e-3)
