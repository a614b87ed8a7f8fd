"""Sessions: ownership of tensors, releases, and what survives interruptions."""

import asyncio
import gc
import threading

import numpy as np
import pytest

import gradwire
from gradwire._session.session import Session
from gradwire._transport.link import Link, LinkBroken
from gradwire.v1 import service_pb2


def bytes_held(session: Session) -> int:
    gc.collect()
    return session.describe().bytes


def test_dropped_tensors_are_released_to_the_last_byte(deferring):
    x = gradwire.ones(100, 100, requires_grad=True)
    for _ in range(3):
        y = (x * x).sum()
        y.backward()
    assert bytes_held(deferring) > 0
    del x, y
    assert bytes_held(deferring) == 0
    deferring.sync()
    assert deferring.describe().tensor_count == 0


def test_views_detached_tensors_gradients_and_results_are_released_too(deferring):
    x = gradwire.ones(10, 10, requires_grad=True)
    kept = [x.t(), x.detach(), x[0], x.data, (x * 2).unbind(), x.max(0), repr(x), x.numpy(force=True)]
    kept[0].sum().backward()
    kept.append(x.grad)
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    kept += [y.grad, y.grad_fn, y.grad_fn.next_functions]
    del x, y, kept
    assert bytes_held(deferring) == 0


def test_a_refused_command_leaves_nothing(deferring):
    x = gradwire.ones(10)
    before = bytes_held(deferring)
    for _ in range(5):
        with pytest.raises(RuntimeError):
            x + gradwire.ones(3)
    assert bytes_held(deferring) == before


def test_sessions_opened_used_and_dropped_leave_nothing(server_address):
    watching = gradwire.connect(server_address)
    before = watching.server_info()
    for _ in range(25):
        session = gradwire.connect(server_address)
        with session:
            (gradwire.ones(50, requires_grad=True) * 2.0).sum().backward()
        del session
    gradwire.connect(server_address).close()  # takes the place of the last as the default
    gc.collect()
    after = watching.server_info()
    assert after.sessions <= before.sessions
    assert after.bytes == before.bytes
    watching.close()


def test_a_session_ends_before_garbage_is_collected(server_address):
    watching = gradwire.connect(server_address)
    before = watching.server_info().sessions
    gc.disable()
    try:
        for _ in range(3):
            with gradwire.connect(server_address) as session, session:
                (gradwire.ones(50, requires_grad=True) * 2.0).sum().backward()
            del session
        gradwire.connect(server_address).close()
        assert watching.server_info().sessions == before
    finally:
        gc.enable()
    watching.close()


def test_a_session_dropped_in_a_cycle_is_ended_too(server_address):
    watching = gradwire.connect(server_address)
    before = watching.server_info()
    for _ in range(5):
        session = gradwire.connect(server_address)
        session.itself = [session]
        x = gradwire.ones(50, requires_grad=True)
        x.itself = [x]
    gradwire.connect(server_address).close()
    del session, x
    gc.collect()
    after = watching.server_info()
    assert (after.sessions, after.bytes) == (before.sessions, before.bytes)
    watching.close()


def test_a_closed_session_tells_every_thread_so(server_address):
    session = gradwire.connect(server_address)
    x = gradwire.ones(2, requires_grad=True)
    told, working = [], threading.Barrier(4)

    def work():
        y = (x * 2.0).sum()
        working.wait()
        try:
            while True:
                y = y * 1.5 if len(told) % 2 else (x * 2.0).sum()
                y.item()
        except gradwire.GradwireError as error:
            told.append((type(error), str(error), error.reason))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    working.wait()
    session.close()
    for thread in threads:
        thread.join(120)
    assert told == [(gradwire.GradwireConnectionError, "the session was closed", "UNAVAILABLE")] * 3


def test_a_session_is_current_inside_its_block_only(server_address):
    default, other = gradwire.connect(server_address), gradwire.connect(server_address)
    with default:
        with other:
            x = gradwire.ones(1)
        y = gradwire.ones(1)
    assert x._session is other
    assert y._session is default
    assert gradwire.ones(1)._session is other  # the last connected is the default
    default.close()
    other.close()


def test_new_tensors_follow_the_tensor_they_are_made_from(server_address):
    one, other = gradwire.connect(server_address), gradwire.connect(server_address)
    with one:
        x = gradwire.ones(2)
    with other:
        assert x.new_zeros(2)._session is one
        assert (x * 2)._session is one
        assert gradwire.zeros_like(x)._session is one
        assert x[[0]].tolist() == [1.0]
    one.close()
    other.close()


def test_large_tensors_travel_in_chunks(deferring):
    values = np.arange(3_000_000, dtype=np.float32).reshape(3, -1)
    assert values.nbytes > deferring.limits.max_inline_bytes
    x = gradwire.tensor(values)
    for _ in range(2):
        y = gradwire.from_numpy(values)
    assert np.array_equal(x.numpy(), values)
    assert np.array_equal((y + 1).numpy(), values + 1)
    del x, y
    assert bytes_held(deferring) == 0


def test_large_bfloat16_tensors_travel_too(deferring):
    values = np.arange(1_000_000, dtype=np.float32)
    x = gradwire.tensor(values, dtype=gradwire.bfloat16)
    assert x.dtype is gradwire.bfloat16
    assert x[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert len(x.tolist()) == 1_000_000


def test_threads_share_a_session(deferring):
    failures = []

    def work(number):
        try:
            x = gradwire.full((8,), float(number), requires_grad=True)
            for _ in range(200):
                y = (x * x).sum()
                y.backward()
                assert y.item() == 8.0 * number * number
                assert x.grad.tolist() == [2.0 * number] * 8
                x.grad = None
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_tasks_have_sessions_of_their_own(server_address):
    one, other = gradwire.connect(server_address), gradwire.connect(server_address)

    async def made_in(session):
        with session:
            await asyncio.sleep(0)
            return gradwire.ones(1)._session

    async def both():
        return await asyncio.gather(made_in(one), made_in(other))

    assert asyncio.run(both()) == [one, other]
    one.close()
    other.close()


def test_what_a_pausing_program_left_is_sent_all_the_same(without_maintenance, deferring):
    from gradwire._session import sessions

    x = gradwire.ones(1000)
    for _ in range(2):
        y = x * 2.0
    del x, y
    assert deferring.buffer or deferring.released
    deferring.flush_without_waiting()
    assert not deferring.buffer
    assert not deferring.released
    assert sessions._maintained


def test_a_keyboard_interrupt_in_a_wait_loses_nothing(untold, without_maintenance, deferring, monkeypatch):
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    receive = Link.receive_batch

    def interrupted(link):
        monkeypatch.setattr(Link, "receive_batch", receive)
        raise KeyboardInterrupt

    monkeypatch.setattr(Link, "receive_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x * 2.0
    y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]
    del y
    count = deferring.describe().tensor_count
    assert count == 2  # x and its gradient; the interrupted result was released


def test_a_batch_whose_answer_was_lost_is_sent_again_and_applies_once(
    untold, without_maintenance, deferring, monkeypatch
):
    x = gradwire.tensor([1.0])
    with gradwire.no_grad():
        x.add_(1.0)
    receive, send, sent = Link.receive_batch, Link.send, []

    def once_broken(link):
        receive(link)
        monkeypatch.setattr(Link, "receive_batch", receive)
        raise LinkBroken(gradwire.GradwireError("the connection broke"))

    monkeypatch.setattr(Link, "receive_batch", once_broken)
    monkeypatch.setattr(Link, "send", lambda link, request: sent.append(request) or send(link, request))
    x.add_(1.0)
    batch, attach, again = sent[:3]
    assert service_pb2.StreamRequest.FromString(attach).HasField("attach")
    assert batch == again
    assert x.tolist() == [3.0]


def test_server_info_names_devices_and_limits(deferring):
    info = gradwire.server_info()
    assert any(device.name == "cpu" for device in info.devices)
    assert info.limits.max_inline_bytes > 0
