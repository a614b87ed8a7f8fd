"""Hooks over the server: threads, memory, other clients, lost connections. The scenarios test their rules."""

import gc
import os
import subprocess
import sys
import threading
import traceback
from typing import Any

import pytest

import gradwire
from gradwire.v1 import commands_pb2, service_pb2
from tests.client.faulty_proxy import FaultyProxy
from tests.scenarios.kit import square_function


def _leaf(session: gradwire.Session) -> gradwire.Tensor:
    with session:
        return gradwire.tensor([1.0, 2.0, 3.0], requires_grad=True)


def test_the_traceback_of_a_hooks_error_shows_the_users_lines(session: gradwire.Session) -> None:
    x = _leaf(session)

    def my_own_hook(g: gradwire.Tensor) -> None:
        raise ZeroDivisionError("mine")

    x.register_hook(my_own_hook)
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        (x * x).sum().backward()
    assert "my_own_hook" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert x.grad is None


def test_hooks_run_on_the_thread_that_called_backward(session: gradwire.Session) -> None:
    seen = {}

    def work(number: int) -> None:
        with session:
            x = gradwire.tensor([1.0, 2.0, 3.0], requires_grad=True)
            x.register_hook(lambda g: seen.setdefault(number, []).append(threading.get_ident()) or g * number)
            for _ in range(5):
                (x * x).sum().backward()
            seen[number].append((threading.get_ident(), x.grad.tolist()))

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number in (1, 2, 3):
        *called, (own, gradient) = seen[number]
        assert called == [own] * 5
        assert gradient == [10.0 * number, 20.0 * number, 30.0 * number]


def test_two_threads_may_be_in_hooks_at_once(session: gradwire.Session) -> None:
    met = threading.Barrier(2, timeout=120)
    results = {}

    def work(number: int) -> None:
        with session:
            x = gradwire.tensor([float(number)], requires_grad=True)
            x.register_hook(lambda g: (met.wait(), g * 2)[1])
            (x * x).sum().backward()
            results[number] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == {1: [4.0], 2: [8.0]}


def test_a_hook_goes_with_its_tensor(session: gradwire.Session) -> None:
    x = _leaf(session)
    for _ in range(5):
        y = x * 2
        y.register_hook(lambda g: None)
        y.sum().backward()
        del y
    gc.collect()
    session.sync()
    session.describe()
    assert not session.hooks


def test_a_removed_hook_is_forgotten_and_backward_waits_no_more(deferring: gradwire.Session) -> None:
    x = _leaf(deferring)
    handle = x.register_hook(lambda g: None)
    x.sum().backward()
    handle.remove()
    deferring.sync()
    assert not deferring.hooks


def test_a_failed_backward_leaves_nothing_suspended(session: gradwire.Session) -> None:
    x = _leaf(session)
    session.sync()
    gc.collect()
    held = session.describe()

    def hook(g: gradwire.Tensor) -> None:
        raise KeyError

    x.register_hook(hook)
    for _ in range(3):
        with pytest.raises(KeyError):
            (x.exp() * x).sum().backward()
    gc.collect()
    now = session.describe()
    assert (now.tensor_count, now.bytes) == (held.tensor_count, held.bytes)


def test_a_function_of_several_gradients_is_called_at_the_end_if_a_tensor_has_moved(session: gradwire.Session) -> None:
    x, seen = _leaf(session), []
    y = x * 2

    def note(gradients: Any) -> None:
        seen.append([None if each is None else each.tolist() for each in gradients])

    gradwire.autograd.graph.register_multi_grad_hook((x, y), note)
    y.mul_(3)
    y.sum().backward(inputs=[x])
    assert seen == [[[6.0] * 3, [3.0] * 3]]


@pytest.mark.parametrize("hooked", [False, True])
def test_a_backward_that_tells_of_an_earlier_refusal_is_known_to_be_done_or_not(
    deferring: gradwire.Session, hooked: bool
) -> None:
    other, x = _leaf(deferring), _leaf(deferring)
    other.register_hook(lambda g: g)
    if hooked:
        x.register_hook(lambda g: g)
    fine, singular = gradwire.eye(2), gradwire.zeros(2, 2)
    for turn in range(3):
        y = (x * 3).sum()
        gradwire.linalg.inv(singular if turn == 2 else fine)
        if turn < 2:
            y.backward()
            x.grad = None
    with pytest.raises(RuntimeError, match="singular"):
        y.backward()
    found = None if x.grad is None else x.grad.tolist()
    assert found == (None if hooked else [3.0, 3.0, 3.0])
    (x * 1).sum().backward()
    assert x.grad.tolist() == ([1.0] * 3 if hooked else [4.0] * 3)


def test_a_client_that_runs_no_hooks_is_refused(session: gradwire.Session) -> None:
    x = _leaf(session)
    x.register_hook(lambda g: g * 2)
    y = (x * x).sum()
    request = commands_pb2.BackwardRequest(tensors=[y._id], retain_graph=True)
    with pytest.raises(NotImplementedError, match="hook"):
        session.wait(service_pb2.Command(backward=request))
    assert x.grad is None
    y.backward()
    assert x.grad.tolist() == [4.0, 8.0, 12.0]


def test_a_backward_that_does_not_wait_cannot_be_gone_on_with(session: gradwire.Session) -> None:
    from gradwire.v1 import hooks_pb2

    with pytest.raises(ValueError, match="no backward 77 waits"):
        session.wait(service_pb2.Command(resume_backward=hooks_pb2.ResumeBackwardRequest(backward=77)))


def test_a_hook_in_a_compiled_function_is_refused_or_runs_uncompiled(deferring: gradwire.Session) -> None:
    x = _leaf(deferring)

    def step(x: gradwire.Tensor) -> gradwire.Tensor:
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return y.sum()

    with pytest.raises(NotImplementedError, match="hook"):
        gradwire.compile(step, fullgraph=True)(x)
    with pytest.warns(UserWarning, match="hook"):
        result = gradwire.compile(step)(x)
    result.backward()
    assert x.grad.tolist() == [6.0] * 3


_Square = square_function(gradwire)


def test_a_custom_function_goes_with_its_graph(session: gradwire.Session) -> None:
    x = _leaf(session)
    for _ in range(5):
        _Square.apply(x * 2).sum().backward()
    gc.collect()
    session.sync()
    session.describe()
    assert not session.hooks
    assert x.grad.tolist() == [40.0, 80.0, 120.0]


def test_what_a_custom_function_saves_is_freed_on_the_server(session: gradwire.Session) -> None:
    x = gradwire.ones(100_000, requires_grad=True)
    session.sync()
    held = session.describe().bytes
    y = _Square.apply(x * 2)
    assert session.describe().bytes > held + 2 * 390_000
    y.sum().backward()
    x.grad = None
    del y
    gc.collect()
    assert session.describe().bytes == held


def test_a_custom_function_in_a_compiled_function_is_refused(deferring: gradwire.Session) -> None:
    x = _leaf(deferring)
    with pytest.raises(NotImplementedError, match=r"autograd\.Function"):
        gradwire.compile(lambda x: _Square.apply(x).sum(), fullgraph=True)(x)


def _step_and_sync(step: Any, x: gradwire.Tensor, session: gradwire.Session) -> None:
    step(x)
    session.sync()


def test_a_program_that_comes_to_a_hook_is_refused(deferring: gradwire.Session) -> None:
    x = _leaf(deferring)

    @gradwire.compile(fullgraph=True)
    def step(x: gradwire.Tensor) -> None:
        (x * x).sum().backward()

    for _ in range(3):
        step(x)
    assert x.grad.tolist() == [6.0, 12.0, 18.0]
    handle = x.register_hook(lambda g: g * 10)
    with pytest.raises(NotImplementedError, match="hook"):
        _step_and_sync(step, x, deferring)
    handle.remove()
    step(x)
    assert x.grad.tolist() == [8.0, 16.0, 24.0]


def test_a_checkpoint_draws_the_same_random_numbers_again(session: gradwire.Session) -> None:
    x = gradwire.ones(1000, requires_grad=True)

    def drop(x: gradwire.Tensor) -> gradwire.Tensor:
        return gradwire.nn.functional.dropout(x * 2, 0.5).exp()

    gradwire.manual_seed(3)
    expected, following = drop(x), gradwire.rand(3).tolist()
    expected.sum().backward()
    gradient, x.grad = x.grad, None
    gradwire.manual_seed(3)
    y = gradwire.utils.checkpoint.checkpoint(drop, x, use_reentrant=False)
    assert gradwire.rand(3).tolist() == following
    then = gradwire.rand(3)
    gradwire.manual_seed(3)
    drop(x), gradwire.rand(3)
    assert gradwire.rand(3).tolist() == then.tolist()
    state = gradwire.get_rng_state()
    y.sum().backward()
    assert y.tolist() == expected.tolist()
    assert x.grad.tolist() == gradient.tolist()
    assert gradwire.get_rng_state().tolist() == state.tolist()


@pytest.mark.parametrize("kind", ["node", "leaf", "plain", "nested"])
def test_a_checkpoint_of_an_argument_that_was_changed_since_is_refused(session: gradwire.Session, kind: str) -> None:
    from gradwire.utils.checkpoint import checkpoint

    w = gradwire.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    changed = {"leaf": w, "plain": gradwire.ones(2, 2)}.get(kind, w * 1.0)

    def part(a: Any) -> Any:
        return (a + 1).sin() * w

    made = checkpoint(lambda a: part(a[0]), [changed], use_reentrant=False)
    if kind == "nested":
        made = checkpoint(lambda a: checkpoint(part, a, use_reentrant=False) * a, changed, use_reentrant=False)
    made.sum().backward(retain_graph=True)
    assert w.grad is not None
    again = checkpoint(part, changed, use_reentrant=False)
    with gradwire.no_grad():
        changed.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        again.sum().backward()


def test_a_checkpoint_holds_nothing_until_backward(session: gradwire.Session) -> None:
    x = gradwire.ones(100_000, requires_grad=True)
    session.sync()
    held = session.describe().bytes

    def deep(x: gradwire.Tensor) -> gradwire.Tensor:
        for _ in range(10):
            x = x.sin()
        return x

    y = deep(x)
    plain = session.describe().bytes - held
    del y
    y = gradwire.utils.checkpoint.checkpoint(deep, x, use_reentrant=False)
    gc.collect()
    assert plain >= 10 * 400_000
    assert session.describe().bytes - held <= 400_000 + 16  # what watches the argument
    y.sum().backward()
    x.grad = None
    del y
    gc.collect()
    assert session.describe().bytes == held
    session.sync()
    assert not session.hooks


def test_hooks_run_once_each_though_the_connection_is_cut(server_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")  # which would pass the proxy by
    between = FaultyProxy(server_address, 5)
    session = gradwire.connect(between.address)
    try:
        x = _leaf(session)
        seen = []

        def hook(g: gradwire.Tensor) -> gradwire.Tensor:
            between.cut_all()
            seen.append(g.tolist())
            between.cut_all()
            return g * 2

        x.register_hook(hook)
        x.register_post_accumulate_grad_hook(lambda p: between.cut_all())
        for _ in range(5):
            (x * x).sum().backward()
        assert seen == [[2.0, 4.0, 6.0]] * 5
        assert x.grad.tolist() == [20.0, 40.0, 60.0]
    finally:
        session.close()
        between.stop()
    assert between.connections > 5  # each cut was met with another connection


def test_ctrl_c_in_a_hook_ends_the_backward_alone(session: gradwire.Session) -> None:
    x = _leaf(session)

    def hook(g: gradwire.Tensor) -> None:
        raise KeyboardInterrupt

    handle = x.register_hook(hook)
    with pytest.raises(KeyboardInterrupt):
        (x * x).sum().backward()
    assert x.grad is None
    handle.remove()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_the_session_works_on_where_a_program_runs_out_of_stack(session: gradwire.Session) -> None:
    with session:
        x = gradwire.tensor([1.0, 2.0, 3.0], requires_grad=True)

        def deeper(y: gradwire.Tensor) -> Any:
            return deeper((y * 1.5).sum() + y)

        for _ in range(3):
            with pytest.raises(RecursionError):
                deeper(x)
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_what_edges_and_hooks_of_several_tensors_held_is_given_back(session: gradwire.Session) -> None:
    graph = gradwire.autograd.graph
    x = _leaf(session)
    session.sync()
    gc.collect()
    held = session.describe()
    for _ in range(3):
        y = x.exp()
        edge = graph.get_gradient_edge(y)
        handle = graph.register_multi_grad_hook((x, y), lambda gradients: None)
        y.mul_(2)
        gradwire.autograd.grad(y.sum(), (edge, y))
        handle.remove()
        del y, edge
    session.sync()
    gc.collect()
    session.sync()
    now = session.describe()
    assert (now.tensor_count, now.bytes) == (held.tensor_count, held.bytes)
    assert not session.hooks


def test_a_session_of_a_client_that_died_in_a_hook_ends_and_no_other_does(server_address: str) -> None:
    program = (
        "import os, gradwire\n"
        "x = gradwire.tensor([1.0], requires_grad=True)\n"
        "x.register_hook(lambda g: os._exit(3))\n"
        "(x * x).sum().backward()\n"
    )
    with gradwire.connect(server_address) as session:
        x = _leaf(session)
        environment = {**os.environ, "GRADWIRE_ADDRESS": server_address}
        died = subprocess.run([sys.executable, "-c", program], env=environment, timeout=200, check=False)
        assert died.returncode == 3
        x.register_hook(lambda g: g * 2)
        (x * x).sum().backward()
        assert x.grad.tolist() == [4.0, 8.0, 12.0]
