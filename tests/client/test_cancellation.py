"""The end of a wait: Ctrl-C, timeouts, cancellation from another thread, close."""

import gc
import os
import signal
import threading
import time
from contextlib import contextmanager

import pytest

import gradwire
from gradwire._session.outbox import Waiter
from tests.client.test_processes import run


def long_chain(seconds=0.3, size=500):
    """A leaf and a loss whose forward took that long here, so that backward takes twice as long.

    Backward is stopped between two nodes. How many products it takes depends on the machine.
    """
    x = gradwire.full((size, size), 1e-3, requires_grad=True)
    steps = 40
    while True:
        began = time.monotonic()
        y = x
        for _ in range(steps):
            y = y @ x
        loss = y.sum()
        loss.item()
        if time.monotonic() - began >= seconds:
            return x, loss
        steps *= 2


@contextmanager
def once_it_waits(session, act):
    """Another thread acts while the block waits for a computing server, and not after the block."""
    over = threading.Event()

    def waits():
        records = [record for batch in tuple(session._retransmission.in_flight) for record in batch.records]
        return any(type(record) is Waiter and record.result is None for record in records)

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
    x = gradwire.full((600, 600), 1e-3)
    count = gradwire.zeros(())
    for _ in range(40):
        y = x
        for _ in range(4):
            y = y @ x
        count += 1.0
    with pytest.raises(gradwire.GradwireTimeoutError, match="no answer within"), gradwire.timeout(0.005):
        count.item()
    assert count.item() == 40.0


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


def test_an_unreported_refusal_is_raised_at_close(server_address, monkeypatch):
    monkeypatch.setenv("GRADWIRE_SYNC", "0")
    session = gradwire.connect(server_address)
    fail_late(7)
    with pytest.raises(IndexError, match="test_cancellation"):
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


def test_an_unreported_refusal_is_shown_at_exit(server_address):
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
    from tests.client import signal_stress

    print(signal_stress.run({kind!r}, 80, 0.001, 0.01, 7, {uses}))
"""


@pytest.mark.parametrize(
    ("kind", "uses", "sync"), [("int", False, "0"), ("alarm", False, "1"), ("usr1", True, "0"), ("alarm", True, "0")]
)
def test_whatever_a_signals_handler_raises_anywhere_values_are_those_of_the_undisturbed_run(
    server_address, kind, uses, sync
):
    code, out, err = run(STORM.format(kind=kind, uses=uses), GRADWIRE_ADDRESS=server_address, GRADWIRE_SYNC=sync)
    assert code == 0, err
    assert "80 exceptions" in out


ARRIVED = """
    import signal, time
    import gradwire
    from gradwire._base import signals

    handled = []
    signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
    session = gradwire.current_session()
    x = gradwire.ones(3)
    y = x * 2.0
    y.tolist()
    y = x * 3.0
    session.flush()
    while not session._retransmission.has_answer():
        time.sleep(0.001)
    signals._pending.append(signal.SIGUSR1)
    session._take_arrived()
    signals.deliver()
    assert handled == [signal.SIGUSR1]
    assert y.tolist() == [3.0] * 3
"""


def test_answers_that_have_arrived_are_left_while_a_signal_is_pending(server_address):
    code, _, err = run(ARRIVED, GRADWIRE_ADDRESS=server_address, GRADWIRE_SYNC="0")
    assert code == 0, err


def test_by_grpc_too(server_address):
    code, _, err = run(
        STORM.format(kind="alarm", uses=True), GRADWIRE_ADDRESS=server_address, GRADWIRE_LOCAL_STREAM="0"
    )
    assert code == 0, err


HANDLERS = """
    import signal
    import gradwire
    from signal import getsignal as seen_early, signal as set_early

    def handler(number, frame):
        raise ValueError("alarm")

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGALRM, handler)
    gradwire.ones(2).tolist()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.signal(signal.SIGALRM, signal.SIG_IGN) is handler
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    set_early(signal.SIGUSR1, handler)
    gradwire.ones(2).tolist()
    assert seen_early(signal.SIGUSR1) is not handler, "one that was set by another way is found"
    assert signal.getsignal(signal.SIGUSR1) is handler
    import asyncio
    async def main():
        return signal.getsignal(signal.SIGINT)
    if hasattr(asyncio, "Runner"):  # which looks for the default
        assert asyncio.run(main()) is not signal.default_int_handler
"""


def test_programs_see_their_own_handlers(server_address):
    code, _, err = run(HANDLERS, GRADWIRE_ADDRESS=server_address)
    assert code == 0, err


TICKING = """
    import signal, time
    import gradwire

    ticks = []
    x = gradwire.full((700, 700), 1 / 700)  # products stay as they are
    (x @ x).sum().item()
    link = gradwire.current_session()._retransmission._link
    signal.signal(signal.SIGALRM, lambda number, frame: ticks.append(time.monotonic()))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    steps, in_the_wait = 75, []
    while len(in_the_wait) < 2:  # grpc looks for signals five times in a second
        steps *= 2
        assert steps < 100_000, "no handler ran in a wait"
        y = x
        for _ in range(steps):
            y = y @ x
        y.sum()
        gradwire.current_session().flush()
        began = len(ticks)
        y.sum().item()
        in_the_wait = ticks[began:]
    signal.setitimer(signal.ITIMER_REAL, 0)
    after = gradwire.current_session()._retransmission._link
    assert after is link, "a handler that raises nothing broke the connection"
"""


@pytest.mark.parametrize("local", ["0", "1"])
def test_a_handler_that_raises_nothing_runs_in_a_wait_and_ends_nothing(server_address, local):
    code, _, err = run(TICKING, GRADWIRE_ADDRESS=server_address, GRADWIRE_LOCAL_STREAM=local)
    assert code == 0, err
