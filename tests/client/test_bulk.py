"""Large tensors: transfers survive broken connections, report progress, and never hold a tensor twice in memory."""

import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import gradwire
from gradwire._transport import bulk
from gradwire.v1 import commands_pb2, service_pb2
from tests.client.proxy import cutting

MIB = 1 << 20
VALUES = np.random.default_rng(0).standard_normal(2 * MIB + 76, dtype=np.float32)  # 8 MiB and a bit


# Runs in a separate process, to measure its peak memory. Prints the rise of each end's peak, in payloads.
MEMORY = """
import numpy as np, gradwire
from pathlib import Path

def memory(pid, word):
    return next(int(line.split()[1]) << 10 for line in open(f"/proc/{pid}/status") if line.startswith(word))

def rises(work):
    before = [memory(pid, "VmRSS") for pid in pids]
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    kept.append(work())
    print(*((memory(pid, "VmHWM") - was) / values.nbytes for pid, was in zip(pids, before)))

session, kept = gradwire.connect(), []
pids = "self", session._embedded._process.pid
gradwire.tensor(np.ones(4 << 20, np.uint8)).numpy()
values = np.ones(96 << 20, np.float32)
rises(lambda: gradwire.tensor(values))
rises(lambda: kept[0].numpy())
assert (kept[1] == 1).all()
"""


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes go by connections."""
    monkeypatch.setenv("GRADWIRE_SHARED_MEMORY", "0")


@pytest.fixture(params=["shared", "streamed"])
def either(request, server_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[gradwire.Session]:
    """A session whose bytes go through shared memory, and one whose do not."""
    monkeypatch.setenv("GRADWIRE_SHARED_MEMORY", "1" if request.param == "shared" else "0")
    with gradwire.connect(server_address) as opened:
        yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(3))
def test_an_upload_resumes_where_connections_break(server_address: str, streamed: None, seed: int) -> None:
    rng = random.Random(seed)
    with cutting(server_address, [rng.randrange(20_000, 3 * MIB) for _ in range(5)]) as proxy:
        with gradwire.connect(proxy.address) as session:
            x = gradwire.tensor(VALUES)
            assert proxy.broken >= 3
            np.testing.assert_array_equal(x.numpy(), VALUES)
        session.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_download_resumes_where_connections_break(server_address: str, streamed: None, seed: int) -> None:
    rng = random.Random(seed)
    cuts = [VALUES.nbytes * 3 // 2, *(rng.randrange(20_000, 3 * MIB) for _ in range(5))]
    with cutting(server_address, cuts) as proxy:  # the first connection lets the upload through
        with gradwire.connect(proxy.address) as session:
            x = gradwire.tensor(VALUES)
            assert proxy.broken == 0
            np.testing.assert_array_equal(x.numpy(), VALUES)
            assert proxy.broken >= 3
        session.close()


def test_a_connection_that_stays_away_is_an_error_and_not_a_wait(
    server_address: str, streamed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "_WAITS", (0.01,) * 5)
    monkeypatch.setattr(bulk, "_LONGEST_WAIT", 0.05)
    with (
        cutting(server_address, [2 * MIB, *[0] * 1000]) as proxy,
        gradwire.connect(proxy.address, patience=0.5),
        pytest.raises(gradwire.GradwireConnectionError),
    ):
        gradwire.tensor(VALUES)


def test_what_is_read_is_what_was_there_whatever_comes_next(either: gradwire.Session) -> None:
    x = gradwire.tensor(VALUES)
    answer = either.wait(service_pb2.Command(read=commands_pb2.ReadRequest(tensor=x._id))).read.transfer
    x.mul_(0.0)
    gradwire.sync()
    got = np.empty(answer.total_bytes, np.uint8)
    either.download(answer.transfer_id, got.data)
    np.testing.assert_array_equal(got.view(np.float32), VALUES)
    assert x.sum().item() == 0.0


def test_every_dtype_and_layout_comes_through(either: gradwire.Session) -> None:
    for values in (
        VALUES.reshape(3, -1).T,
        VALUES[::2],
        VALUES.astype(np.float64)[: 1 << 19].reshape(16, -1),
        VALUES[: 1 << 19].astype(np.complex64),
        (VALUES > 0)[:3_000_001],
        np.arange(1_500_000).astype(np.int16),
    ):
        x = gradwire.tensor(values)
        np.testing.assert_array_equal(x.numpy(), values)
        np.testing.assert_array_equal(
            x.t().numpy() if x.dim() == 2 else x[::3].numpy(), values.T if x.dim() == 2 else values[::3]
        )
    half = gradwire.tensor(VALUES).to(gradwire.bfloat16)
    np.testing.assert_allclose(np.array(half.tolist()), VALUES, rtol=1 / 128)


def test_progress_is_reported_in_order_up_to_the_end(either: gradwire.Session) -> None:
    told: list[tuple[str, int, int]] = []
    with gradwire.progress(lambda *args: told.append(args)):
        gradwire.tensor(VALUES).numpy()
        gradwire.tensor([1.0]).numpy()
    gradwire.tensor(VALUES)
    for kind in ("upload", "download"):
        done = [through for what, through, total in told if what == kind and total == VALUES.nbytes]
        assert done == sorted(set(done))
        assert done[-1] == VALUES.nbytes
        assert len(done) >= 3
    assert {what for what, _, _ in told} == {"upload", "download"}


def test_what_the_callback_raises_ends_the_transfer(either: gradwire.Session) -> None:
    def stop(kind: str, done: int, total: int) -> None:
        raise ValueError(f"enough of that {kind}")

    x = gradwire.tensor(VALUES)
    with gradwire.progress(stop):
        with pytest.raises(ValueError, match="enough of that upload"):
            gradwire.tensor(VALUES)
        with pytest.raises(ValueError, match="enough of that download"):
            x.numpy()
    np.testing.assert_array_equal(x.numpy(), VALUES)


def test_what_the_server_refuses_is_refused_by_name(session: gradwire.Session) -> None:
    with pytest.raises(gradwire.GradwireError, match="no download 'unknown'") as refused:
        session.download("unknown", memoryview(bytearray(10)))
    assert refused.value.reason == "TRANSFER_NOT_FOUND"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
@pytest.mark.parametrize("shared", ["1", "0"])
def test_neither_end_holds_a_tensor_twice(shared: str) -> None:
    environment = {**os.environ, "GRADWIRE_SHARED_MEMORY": shared}
    command = [sys.executable, "-c", MEMORY]
    least = [math.inf] * 4
    # On a machine that is busy elsewhere gRPC's own buffers fill up meanwhile; the path itself does not vary.
    for _ in range(3):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
        assert answer.returncode == 0, answer.stderr
        least = list(map(min, least, map(float, answer.stdout.split())))
        up_client, up_server, down_client, down_server = least
        if max(up_client, down_server) < 0.1 and max(up_server, down_client) < 1.1:
            return
    pytest.fail(f"up {up_client} and {up_server} of the payload, down {down_client} and {down_server}")
