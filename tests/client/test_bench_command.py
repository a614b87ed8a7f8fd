"""`gradwire bench`: what it measures, its error for an absent server, and the arguments that it refuses."""

import importlib.util
import json
import socket
import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from gradwire._cli import bench, workloads
from gradwire._cli.main import main
from gradwire._transport import transport


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is computed and sent makes no difference here."""

    def training(torch: Any, batch: int, sizes: tuple[int, ...], steps: int, compiled: bool = False) -> workloads.Run:
        return workloads.training(torch, 8, sizes, 2, compiled)

    monkeypatch.setattr(bench, "chain", partial(workloads.chain, length=20))
    monkeypatch.setattr(bench, "training", training)
    monkeypatch.setattr(bench, "LARGE", bench.SMALL)
    monkeypatch.setattr(bench, "_BULK_BYTES", 4 << 20)


def test_bench_measures_a_server_and_leaves_no_session(
    server_address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, deferring
) -> None:
    monkeypatch.setattr(bench, "_pytorch", lambda: None)
    before = deferring.server_info().sessions
    assert main(["bench", server_address, "--seconds=0.01", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    figures = {figure["name"]: figure for figure in told["figures"]}
    assert told["address"] == server_address
    assert told["devices"][0] == "cpu"
    for name in ("round trip of a tiny op and its value, p50", "a tensor's bytes to the server"):
        assert figures[name]["value"] > 0
    assert {figure["unit"] for figure in told["figures"]} == {"µs", "ops/s", "steps/s", "MB/s"}
    assert deferring.server_info().sessions == before


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_bench_compares_with_pytorch_where_it_is_installed(
    server_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    torch.set_num_threads(1)  # more of them spin while other tests run
    assert main(["bench", server_address, "--seconds=0.01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("× PyTorch's time" in line for line in lines) >= 3


def test_bench_does_without_pytorch(
    server_address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_pytorch", lambda: None)
    assert main(["bench", server_address, "--seconds=0.01"]) == 0
    out = capsys.readouterr().out
    assert "× PyTorch's time" not in out
    assert "With PyTorch installed here" in out


def test_bench_of_no_server_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_RETRY_WAITS", (0.01,) * 6)
    with socket.socket() as taken:  # bound without listening, so no other process gets the port
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["bench", address]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gradwire bench: ")
    assert address in error
    assert "Traceback" not in error


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9", "soon"])
def test_bench_refuses_a_time_that_is_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(["bench", f"--seconds={seconds}"])
    assert refusal.value.code == 2
    assert "--seconds" in capsys.readouterr().err


def test_the_module_ends_with_the_commands_status() -> None:
    with socket.socket() as taken:  # bound without listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run([sys.executable, "-m", "gradwire", "bench", address], capture_output=True, text=True)
    assert ended.returncode == 1
    assert address in ended.stderr
