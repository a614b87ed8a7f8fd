"""The server is killed and restarted on its state directory.

With a log, no answered command is lost. Without one, a client that has seen more than the last snapshot gets an error.
"""

import json
import shutil
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwire
from tests.client.chaos import chaos, digest, restarting_server, train

STEPS = 60


@cache
def undisturbed(address: str) -> list[bytes]:
    return train(address, STEPS)


@pytest.mark.parametrize("local", [False, True])
def test_weights_are_those_of_the_undisturbed_run_though_server_and_worker_are_killed(
    server_address: str, tmp_path: Path, local: bool
) -> None:
    """A short run without random disturbances. After a restart, a local stream is local again."""
    flags = "--durability=log", "--snapshot-every=0.5"
    with restarting_server(tmp_path, *flags, seed=4, most_bytes=5_000, local=local) as server:

        def disturb(step: int) -> None:
            if step in (15, 40):
                server.kill()
                server.start()
            elif step == 28:
                assert server.kill_worker() == 1
            elif step in (14, 39, 59):
                link = gradwire.current_session()._transport._link
                assert link is not None
                assert link.is_local is local

        found = train(server.address, STEPS, disturb)
    assert server.kills == 2
    assert server.proxy.cuts or local, "the proxy has cut no connection"
    assert found == undisturbed(server_address)


def test_clients_go_on_through_kills_stops_and_connections_that_are_cut_or_made_twice(
    server_address: str, tmp_path: Path
) -> None:
    """A short `make chaos` without the outage, of given events."""
    wanted = digest(train(server_address, 120))
    events = ("killed", "suspended", "worker killed", "terminated")
    found, done = chaos(9, 120, tmp_path, 0.04, clients=2, most_bytes=10_000, span=(0.5, 1.5), events=events)
    assert [each.strip() for each in found] == [wanted] * 2, done
    assert all(done[each] for each in events), done
    assert done["cut"] and done["duplicated"], done


def test_sigterm_stores_sessions_and_ends_with_status_0(server_address: str, tmp_path: Path) -> None:
    with restarting_server(tmp_path) as server:
        statuses: list[int] = []

        def disturb(step: int) -> None:
            if step == 30:
                statuses.append(server.terminate())
                server.start()

        found = train(server.address, STEPS, disturb)
    assert statuses == [0]
    assert found == undisturbed(server_address)


def stepped(x: Any, hook: Any) -> Any:
    """A backward that comes to a hook; the loss."""
    y = (x * 2).exp()
    y.register_hook(hook)
    loss = (y * y).sum()
    loss.backward()
    return loss


def test_sigterm_in_the_middle_of_a_backward_with_hooks_lets_it_come_to_its_end(tmp_path: Path) -> None:
    with restarting_server(tmp_path, "--snapshot-every=0", "--grace-seconds=60") as server:
        session = gradwire.connect(server.address)
        session._retransmission.patience = 300.0
        x = gradwire.ones(3, requires_grad=True)
        kept = x * 5
        statuses: list[int] = []
        ending = threading.Thread(target=lambda: statuses.append(server.terminate(cuts=False)))

        def hook(g: Any) -> Any:
            if not ending.ident:
                ending.start()
                time.sleep(0.3)
            return (g + kept.detach()) * float((kept * 2).sum())

        stepped(x, hook)
        ending.join()
        server.start()
        expected = x.grad.tolist()
        x.grad = None
        stepped(x, hook)
        assert (statuses, x.grad.tolist()) == ([0], expected)
        kept.sum().backward()
        session.close()


def test_a_backward_that_outlasts_the_grace_is_given_up_and_its_session_stored(tmp_path: Path) -> None:
    with restarting_server(tmp_path, "--snapshot-every=0", "--grace-seconds=0.5") as server:
        session = gradwire.connect(server.address)
        session._retransmission.patience = 300.0
        x = gradwire.ones(3, requires_grad=True)
        kept = x * 5
        statuses: list[int] = []

        def hook(g: Any) -> None:
            statuses.append(server.terminate())
            server.start()

        with pytest.raises(RuntimeError, match="no longer waits") as caught:
            stepped(x, hook)
        assert caught.value.reason == "CANCELLED"
        assert (statuses, x.grad) == ([0], None)
        kept.sum().backward()
        assert x.grad.tolist() == [5.0] * 3
        session.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_session_that_cannot_be_stored_is_named_and_the_exit_status_tells(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], workers: int
) -> None:
    with restarting_server(tmp_path, "--snapshot-every=0", f"--workers={workers}") as server:
        sessions = []  # one that is dropped is closed
        for spoilt in (True, False):
            sessions.append(session := gradwire.connect(server.address))
            x = gradwire.ones(3)
            if spoilt:
                session.save()
                (home,) = (tmp_path / "sessions").iterdir()
                shutil.rmtree(home)
                home.write_text("in the way")
            x += 1.0
            session.sync()
        assert server.terminate() == 3
    lost = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "is lost" in line]
    assert len(lost) == 1
    assert "the server cannot write" in lost[0]["error"] and lost[0]["session"]


def test_a_client_that_has_seen_more_than_the_last_snapshot_gets_an_error(tmp_path: Path) -> None:
    with restarting_server(tmp_path, "--snapshot-every=0") as server:
        session = gradwire.connect(server.address)
        x = gradwire.zeros(1)
        session.save()
        x += 1.0
        assert x.item() == 1.0
        server.kill()
        server.start()
        with pytest.raises(gradwire.GradwireError, match="no longer has this session") as caught:
            (x + 1).item()
        assert caught.value.reason == "EPOCH_MISMATCH"
        session.close()


def test_a_client_that_has_seen_no_more_than_the_last_snapshot_goes_on(tmp_path: Path) -> None:
    with restarting_server(tmp_path, "--snapshot-every=0") as server:
        session = gradwire.connect(server.address)
        x = gradwire.zeros(1)
        x += 1.0
        session.save()
        server.kill()
        server.start()
        x += 1.0
        assert x.item() == 2.0
        session.close()


class Doubled(gradwire.autograd.Function):
    """A custom function, whose Python lives here."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 2 + x * 0


def test_everything_a_session_has_survives_a_crash(tmp_path: Path) -> None:
    """Hooks, custom functions, programs, views, large tensors both ways, refusals, a second session."""
    with restarting_server(tmp_path, "--durability=log", "--snapshot-every=0") as server:
        session, other = gradwire.connect(server.address), gradwire.connect(server.address)
        session.__enter__()
        seen: list[Any] = []
        x = gradwire.arange(4.0, requires_grad=True)
        y = Doubled.apply(x)
        y.register_hook(lambda g: seen.append(g.tolist()))
        base = gradwire.zeros(2, 4)
        base[1] = y
        large = gradwire.from_numpy(np.arange(400_000, dtype=np.float64))
        wrong = gradwire.ones(3)
        with pytest.raises(RuntimeError):
            gradwire.ones(2) @ wrong

        @gradwire.compile
        def step(value: Any) -> Any:
            return (value * 2).sin()

        before = [step(gradwire.ones(3) * turn).tolist() for turn in range(3)]
        with other:
            theirs = gradwire.ones(2) * 3
            other.sync()
        session.sync()
        server.kill()
        server.start()
        base.sum().backward()
        assert seen == [[1.0] * 4]
        assert x.grad is not None
        assert x.grad.tolist() == [2.0] * 4
        assert large.numpy()[-1] == 399_999.0
        assert [step(gradwire.ones(3) * turn).tolist() for turn in range(3)] == before
        server.kill()
        server.start()
        assert (large[:3] + 1).tolist() == [1.0, 2.0, 3.0]
        assert large.numpy()[-1] == 399_999.0
        with other:
            assert theirs.tolist() == [3.0, 3.0]
        session.__exit__()
        session.close()
        other.close()


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15])
def test_killed_in_a_backward_or_a_snapshot_nothing_is_lost(tmp_path: Path, delay: float) -> None:
    """The kill comes while a long backward and snapshots of 30 MB, one after the other, are under way."""
    with restarting_server(tmp_path, "--durability=log", "--snapshot-every=0.05") as server:
        session = gradwire.connect(server.address)
        gradwire.manual_seed(0)
        x = gradwire.rand(2000, 2000, requires_grad=True)
        y = x
        for _ in range(6):
            y = (y * 1.01).tanh()
        y.sum().backward()
        session.flush()
        killer = threading.Timer(delay, server.kill)
        killer.start()
        killer.join()
        server.start()
        assert x.grad is not None
        found = x.grad.numpy()
        session.close()
        session = gradwire.connect(server.address)
        gradwire.manual_seed(0)
        x = gradwire.rand(2000, 2000, requires_grad=True)
        y = x
        for _ in range(6):
            y = (y * 1.01).tanh()
        y.sum().backward()
        assert x.grad is not None
        assert found.tobytes() == x.grad.numpy().tobytes()
        session.close()


def test_steps_that_are_programs_give_the_bits_of_the_same_ops(server_address: str) -> None:
    """So that it shows in no bit where a restart made a program be prepared anew."""
    with gradwire.connect(server_address) as session:
        gradwire.manual_seed(0)
        start, gradient = gradwire.rand(1000), gradwire.rand(1000)
        weight, same, buffer = start.clone().requires_grad_(), start.clone(), gradient.clone()
        optimizer = gradwire.optim.SGD([weight], lr=0.013, momentum=0.9)
        for step in range(6):
            weight.grad = gradient
            optimizer.step()
            if step:
                buffer.mul_(0.9).add_(gradient)
            same.add_(buffer, alpha=-0.013)
            assert weight.detach().numpy().tobytes() == same.numpy().tobytes(), step
    session.close()


def test_a_clock_that_jumps_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradwire.v1 import snapshots_pb2
    from gradwire_server.registry import session_catalog
    from gradwire_server.storage import snapshot_files

    def kept(jump: float) -> bool:
        root = tmp_path / str(jump)
        monkeypatch.undo()
        one = session_catalog.SessionCatalog(root, grace=100.0, max_snapshots=1, max_bytes=0)
        one.open()
        folder = one.home("a")
        head = snapshots_pb2.SnapshotHead(
            session_digest=session_catalog.digest_of("a"), saved_unix_ms=int(time.time() * 1000)
        )
        writing = snapshot_files.SnapshotFileWriter(folder, 1, head, snapshots_pb2.SessionState())
        head.format = snapshot_files.FORMAT
        for _ in writing.data([], None):
            pass
        writing.commit()
        assert one.put("a")
        now = time.time()
        monkeypatch.setattr(session_catalog.time, "time", lambda: now + jump)
        one.sweep()
        found = one.find("a", "") is not None
        one.close()
        return found

    assert kept(1e6)
    assert kept(-1e6)
