"""Packing as any client meets it: over unary calls, what is refused, and through storage."""

import grpc
import numpy as np
import pytest

import gradwire_engine as engine
from gradwire.v1 import commands_pb2, hooks_pb2, types_pb2
from gradwire_engine.autograd.saved_tensor_hooks import holds_packed, pack
from gradwire_engine.core.context import CURRENT
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback
from tests.parity.test_stored import session, through_storage
from tests.server.harness import Id, running
from tests.steps import through

BEGIN, SHOW, KEEP = (
    hooks_pb2.PACK_STEP_BEGIN,
    hooks_pb2.PACK_STEP_SHOW,
    hooks_pb2.PACK_STEP_KEEP,
)


def test_what_an_op_saved_is_kept_by_the_client_over_unary_calls():
    with running() as server:
        one = server.open()

        def step(which: int, **fields: list[int]) -> hooks_pb2.PackSavedResponse:
            return one.stub.PackSaved(hooks_pb2.PackSavedRequest(session_id=one.id, number=9, step=which, **fields))

        leaf = one.create([1.0, 2.0], requires_grad=True)
        step(BEGIN)
        product = one.op("mul", Id(leaf), 3.0).id
        squared = one.op("mul", Id(product), Id(product)).id
        shown = step(SHOW, outputs=[squared]).values
        assert [each.requires_grad for each in shown] == [False, False]
        step(KEEP, outputs=[squared], hooks=[71, 72])
        total = one.op("sum", Id(squared)).id
        answer = one.stub.Backward(commands_pb2.BackwardRequest(session_id=one.id, tensors=[total], answers_hooks=True))
        asked = []
        due = answer.due
        while due.hook:
            asked.append((due.hook, due.kind))
            answer = one.stub.ResumeBackward(
                hooks_pb2.ResumeBackwardRequest(
                    session_id=one.id, backward=due.backward, replaces=True, gradients=[shown[due.hook - 71].id]
                )
            )
            due = answer.due
        assert asked == [(71, types_pb2.HOOK_KIND_UNPACK), (72, types_pb2.HOOK_KIND_UNPACK)]
        assert one.grad(leaf).tolist() == [18.0, 36.0]


def test_what_makes_no_sense_is_refused():
    with running() as server:
        one = server.open()
        leaf = one.create([1.0, 2.0], requires_grad=True)
        squared = one.op("mul", Id(leaf), Id(leaf)).id

        def refused(match: str, **fields: object) -> None:
            with pytest.raises(grpc.RpcError, match=match) as caught:
                one.stub.PackSaved(hooks_pb2.PackSavedRequest(session_id=one.id, **fields))
            assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)

        refused("no number for packing", step=BEGIN)
        refused("there is no step 0", number=5)
        refused("has not begun", number=5, step=SHOW)
        refused("has not begun", number=5, step=KEEP, hooks=[6])
        one.stub.PackSaved(hooks_pb2.PackSavedRequest(session_id=one.id, number=5, step=BEGIN))
        refused("no number for packing", number=5, step=BEGIN)
        refused("pack hook is modifying", number=5, step=KEEP, outputs=[squared], hooks=[6])
        request = hooks_pb2.SavedValueRequest(session_id=one.id, tensor=squared, name="self")
        shown = one.stub.SavedValue(request).tensors[0]
        assert shown.same_as == leaf != shown.id
        request.name = "nothing"
        assert not one.stub.SavedValue(request).known


def test_packed_values_are_stored_as_such():
    with session() as old, session() as new:
        leaf = engine.tensor(np.array([1.0, 2.0]), requires_grad=True)
        first = CURRENT.get().nodes.take()
        made = engine.REGISTRY["exp"](engine.REGISTRY["mul"](leaf, leaf))
        asks = [ExternalCallback(number, []) for number in (1, 2, 3)]
        pack(first, [made], asks)
        for number, ask in enumerate(asks, 1):
            old.hooks.asks[number] = ask
        root = engine.REGISTRY["sum"](made)
        old.bind(5, leaf)
        old.bind(6, root)
        through_storage(old, new)
        root = new.store[6]
        node = root.grad_fn.edges[0][0]
        assert holds_packed(node.saved)
        run = engine.Backward([root])
        due = through(run.advance())
        asked = []
        while due is not None:
            assert due.when is CallbackKind.UNPACK
            asked.append(due.number)
            value = np.exp([1.0, 4.0]) if due.number == 3 else np.array([1.0, 2.0])
            due = through(run.advance([engine.tensor(value)]))
        run.deliver()
        assert asked == [3, 1, 2]
        np.testing.assert_array_equal(new.store[5].grad.array, np.exp([1.0, 4.0]) * [2.0, 4.0])
