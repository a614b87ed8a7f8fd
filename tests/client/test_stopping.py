"""Ending a wait: Ctrl-C, time limits, cancelling from another thread, closing."""

import gc
import os
import signal
import threading
from contextlib import contextmanager

import pytest

import gradwire
from gradwire._session import Ticket
from tests.client.test_processes import run


def long_chain(steps=80, size=500):
    """A leaf and a loss whose backward takes a second, unless it is stopped between two nodes."""
    x = gradwire.full((size, size), 1e-3, requires_grad=True)
    y = x
    for _ in range(steps):
        y = y @ x
    loss = y.sum()
    loss.item()
    return x, loss


@contextmanager
def once_it_waits(session, act):
    """Another thread acts when the block waits for the server and that is at it; not any more after the block."""
    over = threading.Event()

    def waits():
        records = [record for flight in tuple(session._delivery.flights) for record in flight.records]
        return any(type(record) is Ticket and record.result is None for record in records)

    def work():
        while not waits():
            if over.wait(0.001):
                return
        if not over.wait(0.05):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def wait_for_ever(y):
    while True:
        y.sum().item()


def test_ctrl_c_in_a_wait_stops_the_command_on_the_server(deferring):
    x, loss = long_chain()
    with pytest.raises(KeyboardInterrupt), once_it_waits(deferring, press_ctrl_c):
        loss.backward(retain_graph=True)
    assert x.grad is None  # nothing has changed
    loss.backward()  # and the graph is not freed
    assert x.grad.shape == x.shape


def test_ctrl_c_stops_nothing_that_was_issued_before(deferring):
    x = gradwire.full((500, 500), 1e-3)
    count = gradwire.zeros(())
    for _ in range(60):
        y = x
        for _ in range(3):
            y = y @ x
        count += 1.0
    with pytest.raises(KeyboardInterrupt), once_it_waits(deferring, press_ctrl_c):
        wait_for_ever(y)
    assert count.item() == 60.0
    assert y.isfinite().all().item()


def test_a_command_over_its_time_limit_is_stopped_and_changes_nothing(deferring):
    x, loss = long_chain()
    with pytest.raises(TimeoutError, match=r"0\.05") as caught, gradwire.timeout(0.05):
        loss.backward(retain_graph=True)
    assert isinstance(caught.value, gradwire.GradwireTimeoutError)
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert x.grad is None
    with gradwire.timeout(100):
        loss.backward(retain_graph=True)
        assert x.grad.shape == x.shape


def test_a_wait_for_what_others_issued_ends_in_time_and_stops_none_of_it(deferring):
    x = gradwire.full((500, 500), 1e-3)
    count = gradwire.zeros(())
    for _ in range(100):
        y = x
        for _ in range(4):
            y = y @ x
        count += 1.0
    with pytest.raises(gradwire.GradwireTimeoutError, match="no answer within"), gradwire.timeout(0.01):
        count.item()
    assert count.item() == 100.0


def test_time_limits_nest_and_are_positive(deferring):
    x = gradwire.ones(2)
    with gradwire.timeout(50), gradwire.timeout(100.0):
        assert (x * 2).tolist() == [2.0, 2.0]
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            gradwire.timeout(seconds)


def test_cancelling_from_another_thread_ends_the_wait_and_the_session_goes_on(deferring):
    x, loss = long_chain()
    with pytest.raises(gradwire.GradwireRuntimeError) as caught, once_it_waits(deferring, deferring.cancel):
        loss.backward(retain_graph=True)
    assert caught.value.reason == "CANCELLED"
    gradwire.sync()
    assert x.grad is None
    loss.backward(retain_graph=True)
    assert x.grad.shape == x.shape


def test_what_is_cancelled_gives_its_ids_back_all_the_same(deferring):
    x = gradwire.full((400, 400), 1e-3)
    y = x
    for _ in range(200):
        y = y @ x
    deferring.flush()
    deferring.cancel()
    gradwire.sync()  # that it was cancelled is no news
    del x, y
    gc.collect()
    assert deferring.describe().tensor_count == 0


def fail_late(index):
    x = gradwire.arange(3)
    for at in (0, index):
        x.index_select(0, gradwire.tensor([at]))


def test_a_refusal_that_nobody_was_told_is_raised_at_close(server_address, monkeypatch):
    monkeypatch.setenv("GRADWIRE_SYNC", "0")
    session = gradwire.connect(server_address)
    fail_late(7)
    with pytest.raises(IndexError, match="test_stopping"):
        session.close()
    session.close()
    with pytest.raises(gradwire.GradwireConnectionError, match="the session was closed"):
        session.sync()


def test_closing_waits_for_what_was_issued(server_address, monkeypatch):
    monkeypatch.setenv("GRADWIRE_SYNC", "0")
    session = gradwire.connect(server_address)
    for _ in range(3):
        x = gradwire.ones(3) * 2.0
    del x
    session.close()
    assert not session.buffer


def test_a_refusal_that_nobody_was_told_is_shown_at_exit(server_address):
    code, _, err = run(
        """
        import gradwire
        x = gradwire.arange(3)
        for at in (0, 7):
            x.index_select(0, gradwire.tensor([at]))
        """,
        GRADWIRE_ADDRESS=server_address,
    )
    assert code == 0
    assert "IndexError" in err
    assert "index_select" in err


STORM = """
    import gc, os, random, signal, threading, time
    import gradwire

    session = gradwire.current_session()
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    raised, begin, enough = 0, threading.Event(), threading.Event()

    def storm():
        draw = random.Random(0)
        begin.wait()
        while not enough.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(draw.choice((0.0003, 0.001, 0.005, 0.02)))

    def work():
        y = x
        for _ in range(20):
            y = y * 1.5
        y.sum().backward()
        x.grad = None
        assert (x * 3.0).tolist() == [3.0, 6.0]

    thread = threading.Thread(target=storm)
    thread.start()
    work()
    while raised < 40:
        try:
            begin.set()
            work()
        except KeyboardInterrupt:
            raised += 1
    while signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except KeyboardInterrupt:
            pass
    enough.set()
    thread.join()

    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    found = []  # no lock was left taken
    other = threading.Thread(target=lambda: found.append((x + 1.0).tolist()), daemon=True)
    other.start()
    other.join(30)
    assert found == [[2.0, 3.0]]
    gradwire.sync()
    x.grad = None
    gc.collect()
    print(session.describe().tensor_count)
"""


@pytest.mark.parametrize("sync", ["0", "1"])
def test_a_storm_of_ctrl_c_loses_nothing_and_the_session_goes_on(server_address, sync):
    code, out, err = run(STORM, GRADWIRE_ADDRESS=server_address, GRADWIRE_SYNC=sync)
    assert code == 0, err
    assert int(out) <= 4, "tensors that nothing refers to were not released"
