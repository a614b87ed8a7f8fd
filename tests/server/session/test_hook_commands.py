"""Hook commands: a backward that waits for its client, custom functions, edges and checkpoints, without a server."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import hooks_pb2, types_pb2
from gradwire_engine import Backward, Tensor, call, tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session import hook_commands
from gradwire_server.session.hook_commands import node_behind, pass_through, resume_backward
from gradwire_server.session.state import hook_table
from tests.server.session.opened import bound, ended, opened


@pytest.fixture
def session() -> Iterator[Any]:
    with opened() as made:
        yield made


@pytest.fixture
def result(session: Any) -> Tensor:
    """y = sum(x * 3), known as 2; x, known as 1, is [1, 2]."""
    made = call("sum", (bound(session, 1, 1.0, 2.0) * 3.0,))
    session.bind(2, made)
    return made


def hook(session: Any, number: int, kind: int, tensor_id: int = 1, node: int = 0) -> None:
    request = hooks_pb2.RegisterHookRequest(hook=number, tensor=tensor_id, node=node, kind=kind)
    hook_commands.register_hook(session, request, None)


def backward(session: Any, result: Tensor) -> tuple[hooks_pb2.ResumeBackwardResponse, list[bool]]:
    """A backward of the result, up to its first hook or its end; and a list that gets True at the end."""
    answer, done = hooks_pb2.ResumeBackwardResponse(), []
    run = Backward([result])
    ended(pass_through(session, run, True, lambda _: done.append(bool(run.deliver())), answer))
    return answer, done


def resume(session: Any, **fields: Any) -> hooks_pb2.ResumeBackwardResponse:
    answer = hooks_pb2.ResumeBackwardResponse()
    ended(resume_backward(session, hooks_pb2.ResumeBackwardRequest(**fields), answer))
    return answer


def test_without_hooks_a_backward_goes_to_its_end(session: Any, result: Tensor) -> None:
    answer, done = backward(session, result)
    assert (done, answer.HasField("due")) == ([True], False)
    assert session.tensor(1).grad.array.tolist() == [3.0, 3.0]


def test_a_hook_is_told_with_its_gradient_and_its_answer_replaces_it(session: Any, result: Tensor) -> None:
    hook(session, 7, types_pb2.HOOK_KIND_TENSOR)
    answer, done = backward(session, result)
    due = answer.due
    assert (due.hook, due.kind, done) == (7, types_pb2.HOOK_KIND_TENSOR, [])
    assert session.tensor(due.gradients[0].id).array.tolist() == [3.0, 3.0]
    session.bind(50, tensor(np.array([10.0, 20.0])))
    assert not resume(session, backward=due.backward, replaces=True, gradients=[50]).HasField("due")
    assert done == [True]
    assert session.tensor(1).grad.array.tolist() == [10.0, 20.0]


def test_a_hook_that_replaces_nothing_leaves_the_gradient(session: Any, result: Tensor) -> None:
    hook(session, 7, types_pb2.HOOK_KIND_TENSOR)
    answer, _ = backward(session, result)
    resume(session, backward=answer.due.backward)
    assert session.tensor(1).grad.array.tolist() == [3.0, 3.0]


def test_an_abandoned_backward_waits_no_more_and_changed_nothing(session: Any, result: Tensor) -> None:
    hook(session, 7, types_pb2.HOOK_KIND_TENSOR)
    number = backward(session, result)[0].due.backward
    resume(session, backward=number, abandon=True)
    resume(session, backward=number, abandon=True)
    assert session.tensor(1).grad is None
    with pytest.raises(Refusal, match=f"backward {number} no longer waits") as refusal:
        resume(session, backward=number)
    assert (refusal.value.reason, refusal.value.metadata) == ("CANCELLED", {"backward": str(number)})


def test_a_backward_that_never_waited_and_a_quiet_answer_are_refused(session: Any, result: Tensor) -> None:
    with pytest.raises(Refusal, match="no backward 9 waits"):
        resume(session, backward=9)
    hook(session, 7, types_pb2.HOOK_KIND_TENSOR)
    number = backward(session, result)[0].due.backward
    with pytest.raises(Refusal, match="quiet"):
        ended(resume_backward(session, hooks_pb2.ResumeBackwardRequest(backward=number), None))
    resume(session, backward=number)  # it waits still


def test_a_removed_hook_is_not_run(session: Any, result: Tensor) -> None:
    hook(session, 7, types_pb2.HOOK_KIND_TENSOR)
    hook_commands.remove_hook(session, hooks_pb2.RemoveHookRequest(hook=7), None)
    hook_commands.remove_hook(session, hooks_pb2.RemoveHookRequest(hook=99), None)
    assert backward(session, result)[1] == [True]


@pytest.mark.parametrize("kind", [types_pb2.HOOK_KIND_BEFORE, types_pb2.HOOK_KIND_AFTER])
def test_a_hook_on_a_node_is_found_behind_the_tensor(session: Any, result: Tensor, kind: int) -> None:
    node = result.grad_fn.edges[0][0]
    hook(session, 7, kind, tensor_id=2, node=session.graph_walks.node_id(node))
    due = backward(session, result)[0].due
    assert (due.hook, due.kind) == (7, kind)


def test_nodes_are_found_by_number_or_by_the_tensor_itself(session: Any, result: Tensor) -> None:
    assert node_behind(session, result, 0) is result.grad_fn
    leaf = result.grad_fn.edges[0][0].edges[0][0]
    assert node_behind(session, result, session.graph_walks.node_id(leaf)) is leaf
    with pytest.raises(Refusal, match="no node 12345 is behind the tensor"):
        node_behind(session, result, 12345)
    with pytest.raises(Refusal, match="no node 0"):
        node_behind(session, tensor(np.ones(1)), 0)


def test_hook_numbers_are_new_and_kinds_known(session: Any, result: Tensor) -> None:
    hook(session, 7, types_pb2.HOOK_KIND_TENSOR)
    for number in (0, 7):
        with pytest.raises(Refusal, match=f"{number} is no number for a new hook"):
            hook(session, number, types_pb2.HOOK_KIND_TENSOR)
    with pytest.raises(Refusal, match="no kind of hook"):
        hook(session, 8, types_pb2.HOOK_KIND_UNPACK)


def test_a_session_has_no_more_hooks_than_tensors() -> None:
    with opened(max_session_tensors=2) as session:
        kept = [hook_commands.ask_for(session, number) for number in (1, 2)]
        with pytest.raises(Refusal, match="at most 2 hooks") as refusal:
            hook_commands.ask_for(session, 3)
        assert (refusal.value.reason, len(kept)) == ("TENSOR_LIMIT", 2)


def record(session: Any, **fields: Any) -> hooks_pb2.RecordFunctionResponse:
    answer = hooks_pb2.RecordFunctionResponse()
    hook_commands.record(session, hooks_pb2.RecordFunctionRequest(**fields), answer)
    return answer


def test_a_custom_functions_results_join_the_graph_and_its_formula_is_asked(session: Any) -> None:
    bound(session, 1, 2.0)
    out = bound(session, 3, 8.0, grad=False)
    (spec,) = record(session, name="Cube", hook=5, inputs=[1, 0], outputs=[3, 0]).outputs
    assert (spec.id, spec.grad_fn, spec.requires_grad) == (3, "Cube", True)
    due = backward(session, call("sum", (out,)))[0].due
    assert (due.hook, due.kind) == (5, types_pb2.HOOK_KIND_FUNCTION)


@pytest.mark.parametrize("name", ["", "x" * 201, "line\nbreak"])
def test_a_nodes_name_is_short_and_printable(session: Any, name: str) -> None:
    bound(session, 1, 2.0)
    bound(session, 3, 8.0, grad=False)
    with pytest.raises(Refusal, match="1 to 200 printable characters"):
        record(session, name=name, inputs=[1], outputs=[3])


def test_an_edge_gets_an_id_that_is_new(session: Any, result: Tensor) -> None:
    answer = hooks_pb2.NameEdgeResponse()
    hook_commands.name_edge(session, hooks_pb2.NameEdgeRequest(tensor=2, edge=30), answer)
    assert (answer.edge.id, answer.edge.grad_fn) == (30, "SumBackward0")
    with pytest.raises(Refusal) as refusal:
        hook_commands.name_edge(session, hooks_pb2.NameEdgeRequest(tensor=2, edge=30), answer)
    assert refusal.value.reason == "TENSOR_EXISTS"


def mark(session: Any, step: str, number: int = 4, outputs: tuple = ()) -> None:
    told = hooks_pb2.CheckpointMark.Value(f"CHECKPOINT_MARK_{step}")
    hook_commands.checkpoint(session, hooks_pb2.CheckpointRequest(hook=number, mark=told, outputs=outputs), None)


def test_a_checkpointed_region_is_asked_to_be_computed_again(session: Any) -> None:
    x = bound(session, 1, 1.0, 2.0)
    mark(session, "BEGIN")
    y = call("exp", (x,)) * x
    session.bind(2, y)
    mark(session, "END", outputs=(2,))
    answer, done = backward(session, call("sum", (y,)))
    assert (answer.due.hook, answer.due.kind, done) == (4, types_pb2.HOOK_KIND_CHECKPOINT, [])
    mark(session, "BEGIN_AGAIN")
    session.bind(3, call("exp", (x,)) * x)
    mark(session, "END_AGAIN", outputs=(3,))
    resume(session, backward=answer.due.backward)
    assert done == [True]
    expected = np.exp([1.0, 2.0]) * [2.0, 3.0]
    np.testing.assert_allclose(x.grad.array, expected)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (["END"], "checkpoint 4 has not begun"),
        (["BEGIN", "BEGIN"], "checkpoint 4 has begun already"),
        (["BEGIN_AGAIN"], "checkpoint 4 awaits no recomputation"),
        (["UNSPECIFIED"], "no checkpoint mark 0"),
    ],
)
def test_marks_out_of_turn_are_refused(session: Any, steps: list, says: str) -> None:
    for step in steps[:-1]:
        mark(session, step)
    with pytest.raises(Refusal, match=says) as refusal:
        mark(session, steps[-1])
    assert refusal.value.reason == "ARGUMENT_VALUE"


@pytest.mark.parametrize("limit", ["tensors", "backwards"])
def test_a_refused_hook_call_changes_no_gradient(
    session: Any, result: Tensor, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(session, 9, types_pb2.HOOK_KIND_ACCUMULATED)
    if limit == "tensors":
        session.max_tensors = len(session.store)
    else:
        monkeypatch.setattr(hook_table, "MAX_SUSPENDED", 0)
    with pytest.raises(Refusal, match="at most"):
        backward(session, result)
    assert session.tensor(1).grad is None
    assert not session.hooks.suspended
