"""Saved tensors: gives the client the values that nodes saved, to store outside (saved_tensors_hooks) or to inspect."""

from typing import TYPE_CHECKING, Any

from gradwire.v1 import hooks_pb2, types_pb2
from gradwire_engine import Tensor
from gradwire_engine.autograd.backward_pass import refuse_freed
from gradwire_engine.autograd.checkpoints import RegionStart
from gradwire_engine.autograd.saved_tensor_hooks import Packed, pack, packable
from gradwire_engine.graph.graph import AccumulateGrad
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_engine.graph.saved import Saved
from gradwire_server.common.errors import Refusal
from gradwire_server.session.hook_commands import ask_for, node_behind
from gradwire_server.session.specs import fill_spec
from gradwire_server.session.state.hook_table import MAX_SUSPENDED

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

_NAMES = {"self": "input", "result": "out"}  # our formulas' names by PyTorch's names
_LEAF = "variable"  # what an AccumulateGrad node has


def pack_saved(
    session: "Session", request: hooks_pb2.PackSavedRequest, answer: hooks_pb2.PackSavedResponse | None
) -> None:
    """Begin packing an op, show the values its nodes saved, or replace them by the client's packed objects."""
    moments, number, step = session.hooks.moments, request.number, request.step
    if step == hooks_pb2.PACK_STEP_BEGIN:
        if not number or number in moments:
            raise Refusal("ARGUMENT_VALUE", f"{number} is no number for packing", argument="number")
        if len(moments) >= MAX_SUSPENDED:
            raise Refusal("TENSOR_LIMIT", f"at most {MAX_SUSPENDED} ops are packed at once", limit=MAX_SUSPENDED)
        moments[number] = RegionStart(session.grad_context.generator, keeps_random=False)
        return
    if step not in (hooks_pb2.PACK_STEP_SHOW, hooks_pb2.PACK_STEP_KEEP):
        raise Refusal("ARGUMENT_VALUE", f"there is no step {step} of packing", argument="step")
    if step == hooks_pb2.PACK_STEP_KEEP and not request.hooks:
        moments.pop(number, None)
        return
    if number not in moments:
        raise Refusal("ARGUMENT_VALUE", f"packing {number} has not begun", argument="number")
    if step == hooks_pb2.PACK_STEP_KEEP:
        outputs = session.tensors(request.outputs)
        pack(moments[number].first, outputs, [ask_for(session, hook) for hook in request.hooks])
        del moments[number]  # last: a refused command changes nothing
        return
    if answer is None:
        raise Refusal("ARGUMENT_VALUE", "a quiet command shows nothing", argument="quiet")
    values = packable(moments[number].first, session.tensors(request.outputs))
    session.check_room(len(values))
    if not values:
        del moments[number]
    for value in values:
        fill_spec(answer.values.add(), value, session.bind(0, value))


def saved_value(
    session: "Session", request: hooks_pb2.SavedValueRequest, answer: hooks_pb2.SavedValueResponse | None
) -> None:
    """Show a value that a node saved."""
    node = node_behind(session, session.tensor(request.tensor), request.node)
    given = session.tensors(request.unpacked)
    if isinstance(node, AccumulateGrad):
        if answer is not None and request.name == _LEAF:
            answer.known = True
            session.check_room(1)
            _show(session, answer.tensors.add(), node.variable)
        return
    names = node.saving_plan.names
    name = request.name if request.name in names else _NAMES.get(request.name, request.name)
    if answer is None or name not in names:
        return
    if node.freed:
        refuse_freed(node)
    if not node.saved:
        return
    value = node.saved[names.index(name)]
    parts = value if isinstance(value, list) else [value]
    if not all(isinstance(part, Saved | Packed) for part in parts):
        return
    answer.known, answer.several = True, parts is value
    asks: list[ExternalCallback] = [part.callback for part in parts if isinstance(part, Packed)]
    if len(given) != len(asks):
        answer.hooks.extend([ask.number for ask in asks])
        return
    left = iter(given)
    tensors: list[Any] = []
    for part in parts:
        whole: Saved = part.unpacked(node, [next(left)]) if isinstance(part, Packed) else part
        tensors.append(whole.tensor(node, name))
    session.check_room(len(tensors))
    for tensor in tensors:
        _show(session, answer.tensors.add(), tensor)


def _show(session: "Session", spec: types_pb2.TensorSpec, tensor: Tensor) -> None:
    """Describe a tensor under an id of its own: the client may be about to release the id that it has."""
    same_as = session.names.get(tensor, 0)
    fill_spec(spec, tensor, session.bind(0, tensor))
    spec.same_as = same_as
