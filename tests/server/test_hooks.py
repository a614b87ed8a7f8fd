"""Hooks as any client meets them: over unary calls, and what is refused."""

import grpc
import numpy as np
import pytest

from gradwire.v1 import commands_pb2, hooks_pb2, types_pb2
from gradwire_server.session.state import hook_table
from tests.server.harness import Id, Remote, Running, refused, running


def _hooked(session: Remote) -> tuple[int, int]:
    """A leaf with a hook of number 77, and a sum that depends on it."""
    leaf = session.create([1.0, 2.0], requires_grad=True)
    total = session.op("sum", Id(session.op("mul", Id(leaf), Id(leaf)).id)).id
    session.stub.RegisterHook(
        hooks_pb2.RegisterHookRequest(session_id=session.id, hook=77, tensor=leaf, kind=types_pb2.HOOK_KIND_TENSOR)
    )
    return leaf, total


def test_a_hook_is_answered_over_unary_calls():
    with running() as server:
        session = server.open()
        leaf, total = _hooked(session)
        answer = session.stub.Backward(
            commands_pb2.BackwardRequest(session_id=session.id, tensors=[total], answers_hooks=True)
        )
        assert (answer.due.hook, answer.due.kind) == (77, types_pb2.HOOK_KIND_TENSOR)
        doubled = session.op("mul", Id(answer.due.gradients[0].id), 2.0).id
        done = session.stub.ResumeBackward(
            hooks_pb2.ResumeBackwardRequest(
                session_id=session.id, backward=answer.due.backward, replaces=True, gradients=[doubled]
            )
        )
        assert list(done.accumulated) == [leaf]
        assert session.grad(leaf).tolist() == [4.0, 8.0]


def test_a_client_that_answers_no_hooks_is_refused():
    with running() as server:
        session = server.open()
        _, total = _hooked(session)
        with pytest.raises(grpc.RpcError) as refused:
            session.stub.Backward(commands_pb2.BackwardRequest(session_id=session.id, tensors=[total]))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_backward_that_is_given_up_is_gone():
    with running() as server:
        session = server.open()
        leaf, total = _hooked(session)
        answer = session.stub.Backward(
            commands_pb2.BackwardRequest(session_id=session.id, tensors=[total], answers_hooks=True)
        )
        resume = hooks_pb2.ResumeBackwardRequest(session_id=session.id, backward=answer.due.backward, abandon=True)
        session.stub.ResumeBackward(resume)
        resume.abandon = False
        with pytest.raises(grpc.RpcError, match="no longer waits"):
            session.stub.ResumeBackward(resume)
        assert session.grad(leaf) is None


def test_a_hook_call_names_the_tensors_that_received_a_gradient_and_they_keep_it():
    with running() as server:
        session = server.open()
        first, hooked = (session.create([1.0, 2.0], requires_grad=True) for _ in range(2))
        total = session.op("sum", Id(session.op("mul", Id(first), Id(hooked)).id)).id
        for number, kind in enumerate((types_pb2.HOOK_KIND_TENSOR, types_pb2.HOOK_KIND_ACCUMULATED), 77):
            session.stub.RegisterHook(
                hooks_pb2.RegisterHookRequest(session_id=session.id, hook=number, tensor=hooked, kind=kind)
            )
        request = commands_pb2.BackwardRequest(session_id=session.id, tensors=[total], answers_hooks=True)
        answer = session.stub.Backward(request)
        assert (answer.due.hook, list(answer.accumulated)) == (77, [first])
        assert session.grad(first).tolist() == [1.0, 2.0]
        resume = hooks_pb2.ResumeBackwardRequest(session_id=session.id, backward=answer.due.backward)
        again = session.stub.ResumeBackward(resume)
        assert (again.due.hook, again.due.leaf.id, list(again.accumulated)) == (78, hooked, [hooked])
        resume.abandon = True
        session.stub.ResumeBackward(resume)
        assert session.grad(first).tolist() == session.grad(hooked).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("fields", "phrase"),
    [
        ({"hook": 0}, "no number for a new hook"),
        ({"hook": 77}, "no number for a new hook"),
        ({"kind": 0}, "no kind of hook"),
        ({"tensor": 999}, "no tensor 999"),
        ({"kind": types_pb2.HOOK_KIND_AFTER, "node": 123}, "no node 123"),
    ],
)
def test_a_hook_that_makes_no_sense_is_refused(fields, phrase):
    with running() as server:
        session = server.open()
        leaf, _ = _hooked(session)
        given = {"hook": 78, "tensor": leaf, "kind": types_pb2.HOOK_KIND_TENSOR, **fields}
        with pytest.raises(grpc.RpcError, match=phrase):
            session.stub.RegisterHook(hooks_pb2.RegisterHookRequest(session_id=session.id, **given))


@pytest.mark.parametrize(("seconds", "kept"), [(3600.0, True), (-1.0, False)])
def test_an_abandoned_backward_is_dropped_after_its_time(monkeypatch, seconds, kept):
    monkeypatch.setattr(hook_table, "SUSPENDED_SECONDS", seconds)
    with running() as server:
        session = server.open()
        leaf, total = _hooked(session)
        request = commands_pb2.BackwardRequest(session_id=session.id, tensors=[total], answers_hooks=True)
        due = session.stub.Backward(request).due
        server.do(server.tidy())
        resume = hooks_pb2.ResumeBackwardRequest(session_id=session.id, backward=due.backward)
        if kept:
            assert list(session.stub.ResumeBackward(resume).accumulated) == [leaf]
            return
        with pytest.raises(grpc.RpcError, match="no longer waits"):
            session.stub.ResumeBackward(resume)
        assert session.grad(leaf) is None


def test_a_place_of_the_graph_is_named_once_and_not_of_a_leaf():
    with running() as server:
        session = server.open()
        leaf = session.create([1.0, 2.0], requires_grad=True)
        made = session.op("mul", Id(leaf), Id(leaf)).id
        request = hooks_pb2.NameEdgeRequest(session_id=session.id, tensor=made, edge=501)
        assert session.stub.NameEdge(request).edge.grad_fn == "MulBackward0"
        with pytest.raises(grpc.RpcError, match="501"):
            session.stub.NameEdge(request)
        request.tensor, request.edge = leaf, 502
        with pytest.raises(grpc.RpcError, match="a leaf has no node in the graph"):
            session.stub.NameEdge(request)


@pytest.mark.parametrize("kind", ["hook", "unused"])
def test_a_refused_differentiation_has_freed_nothing_and_retains_nothing(server: Running, kind: str) -> None:
    """Whether it is refused is known before it begins, so it does not begin."""
    session = server.open()
    leaf, other = session.create([1.0, 2.0], requires_grad=True), session.create([1.0], requires_grad=True)
    middle = session.op("exp", Id(leaf)).id
    loss = session.op("sum", Id(session.op("mul", Id(middle), Id(middle)).id)).id
    if kind == "hook":
        session.stub.RegisterHook(
            hooks_pb2.RegisterHookRequest(session_id=session.id, tensor=leaf, kind=types_pb2.HOOK_KIND_TENSOR, hook=7)
        )
        request = commands_pb2.BackwardRequest(session_id=session.id, tensors=[loss], inputs=[middle, leaf])
        assert refused(session.stub.Backward, request)[1] == "NOT_SUPPORTED"
        session.stub.RemoveHook(hooks_pb2.RemoveHookRequest(session_id=session.id, hook=7))
    else:
        asked = commands_pb2.GradientsRequest(session_id=session.id, outputs=[loss], inputs=[leaf, other])
        assert refused(session.stub.Gradients, asked)[1] == "UNUSED_INPUT"
    assert session.backward(loss) == [leaf]  # not `middle`, which retains nothing
    assert np.allclose(session.grad(leaf), 2 * np.exp([2.0, 4.0]))
