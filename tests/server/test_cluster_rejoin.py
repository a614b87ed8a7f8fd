"""A machine on which Ray has ended joins again by itself: after the first machine was cut off, also."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.cluster_machines import COUNT, machines
from gradwire_server.cluster import rejoin
from gradwire_server.cluster.checks import CheckFailed, Refused, check_answers, check_version
from gradwire_server.cluster.head_record import FileRecord
from gradwire_server.cluster.machine import NodeOptions
from tests.client.sharing import train
from tests.namespaces import may_make
from tests.server.harness import running, until
from tests.server.machines import actor_of, session_of

CUT_SECONDS = 6.0  # Ray's head counts a machine as lost after four


@pytest.fixture
def options(tmp_path: Path) -> NodeOptions:
    return NodeOptions("127.0.0.1", 1, str(tmp_path), str(tmp_path), ("--workers=1",), "127.0.0.1:2")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """Gets the wait before each next try, and why there is one. Signals are as they were afterwards."""
    found = list[tuple[float, str]]()
    monkeypatch.setattr(rejoin, "end_by_signals", lambda: None)
    monkeypatch.setattr(rejoin, "become_rejoin", lambda text, wait, said: found.append((wait, said)))
    return found


def refusing(error: Exception) -> Callable[[NodeOptions], None]:
    def run_node(options: NodeOptions) -> None:
        raise error

    return run_node


def test_options_pass_through_a_command_line(options: NodeOptions) -> None:
    again = NodeOptions.of_json(options.to_json())
    assert (again.endpoint, again.token, list(again.arguments)) == (options.endpoint, options.token, ["--workers=1"])
    assert again.address == "127.0.0.1:2"


def test_what_may_pass_is_tried_again_after_a_bounded_wait_and_told_once(
    options: NodeOptions, tried: list[tuple[float, str]], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    waited = list[float]()
    monkeypatch.setattr(rejoin.time, "sleep", waited.append)
    monkeypatch.setattr(rejoin, "run_node", refusing(CheckFailed("the head is away")))
    rejoin.main(options.to_json(), "1", "")
    for _ in range(8):
        rejoin.main(options.to_json(), str(tried[-1][0]), tried[-1][1])
    assert [wait for wait, _ in tried] == [2, 4, 8, 16, 20, 20, 20, 20, 20]
    assert all(wait / 2 <= each <= wait for each, wait in zip(waited, (1, 2, 4, 8, 16, 20, 20, 20, 20), strict=True))
    assert capsys.readouterr().err == "127.0.0.1:1 cannot join yet, and tries again: the head is away\n"


def test_what_stays_refused_is_told_and_ends(
    options: NodeOptions, tried: list[tuple[float, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with pytest.raises(Refused, match="copy it from the machine"):
        rejoin.run_node(options)  # there is no token
    with pytest.raises(Refused, match="Upgrade the nodes"):
        check_version("1.2.0", {"a:1": "1.4.0"})
    monkeypatch.setattr("gradwire_server.cluster.checks.why_no_head", lambda *_: "refuses the token: …")
    with pytest.raises(Refused, match="refuses the token"):
        check_answers("127.0.0.1:2", tmp_path / "token")
    monkeypatch.setattr("gradwire_server.cluster.checks.why_no_head", lambda *_: "cannot be reached: …")
    with pytest.raises(CheckFailed) as error:
        check_answers("127.0.0.1:2", tmp_path / "token")
    assert not isinstance(error.value, Refused)
    assert rejoin.main(options.to_json(), "0", "") == 1
    assert "does not join again: there is no " in capsys.readouterr().err
    assert not tried


def test_a_cluster_that_was_ended_is_not_joined_again_until_it_is_started(
    options: NodeOptions, tried: list[tuple[float, str]], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(rejoin, "run_node", refusing(CheckFailed("away")))
    record = FileRecord(Path(options.state_dir))
    rejoin.main(options.to_json(), "0", "")  # a cluster of before has no record
    assert len(tried) == 1
    record.swap("")
    assert rejoin.main(options.to_json(), "0", "") == 0
    assert "`gradwire cluster down` has ended the cluster" in capsys.readouterr().out
    record.swap("127.0.0.1:2")
    rejoin.main(options.to_json(), "0", "away")
    assert len(tried) == 2


def test_a_signal_ends_the_wait(options: NodeOptions) -> None:
    code = (
        "import sys, time; from gradwire_server.cluster import rejoin; real = time.sleep\n"
        "def sleep(seconds): print(seconds, flush=True); real(seconds)\n"
        "rejoin.time.sleep = sleep; sys.exit(rejoin.main(sys.argv[1], '1000', ''))"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-c", code, options.to_json()], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert waiting.stdout is not None and waiting.stdout.readline()
    waiting.send_signal(signal.SIGTERM)
    waiting.communicate(timeout=100)
    assert waiting.returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.skipif(not may_make(), reason="network namespaces need root and `ip`")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_machines_join_again_after_the_first_one_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRADWIRE_TOKEN", "TMPDIR"):  # which `machines` sets
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.delenv("GRADWIRE_TOKEN")
    monkeypatch.delenv("TMPDIR")
    with running() as server:
        expected = train(server.address, 40)
    with machines() as cluster:
        if cluster.network is None:
            pytest.skip("this machine makes no network namespaces")
        network = cluster.network
        rays = [session_of(actor_of(each)) for each in cluster.endpoints]
        began = 0.0

        def disturb(step: int) -> None:
            nonlocal began
            if step == 10:
                network.cut(0)
                began = time.monotonic()
            elif step == 20:
                time.sleep(max(0.0, began + CUT_SECONDS - time.monotonic()))
                network.heal(0)
            elif step > 20:
                time.sleep(0.5)  # so that Ray's end is during the training

        assert train(cluster.addresses, 40, disturb) == expected

        def again() -> bool:
            now = [session_of(actor_of(each)) for each in cluster.endpoints]
            return all(each not in (0, before) for each, before in zip(now[1:], rays[1:], strict=True))

        until(again, "Ray to start again on the other machines")
        until(cluster.all_report, "all nodes")
        assert cluster.statuses() == [None] * COUNT
        assert train(cluster.addresses, 40) == expected
