"""Saved tensors: gives the client the values that nodes saved, to store outside (saved_tensors_hooks) or to inspect."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gradwire.v1 import hooks_pb2
from gradwire_engine import Tensor
from gradwire_engine.autograd.backward_pass import refuse_freed
from gradwire_engine.autograd.checkpoints import RegionStart
from gradwire_engine.autograd.saved_tensor_hooks import Packed, pack, pack_value, packable
from gradwire_engine.graph.graph import AccumulateGrad, FunctionNode, Node
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
_ALL = "saved_tensors"  # what a custom function saved


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
    given = session.tensors(request.outputs)
    values = packable(moments[number].first, given)
    session.check_room(len(values))
    if not values:
        del moments[number]
    for value in values:
        spec = answer.values.add()
        fill_spec(spec, value, session.bind(0, value))
        spec.same_as = _same_as(value, request.outputs, given)


def _same_as(value: Tensor, ids: Iterable[int], tensors: Iterable[Tensor]) -> int:
    """The id of the tensor that is the value: the same array of the same storage. 0 for none."""
    found = (one for one, each in zip(ids, tensors, strict=True) if each.array is value.array)
    return next(found, 0)


def saved_value(
    session: "Session", request: hooks_pb2.SavedValueRequest, answer: hooks_pb2.SavedValueResponse | None
) -> None:
    """Show a value that a node saved, and let the client keep it from now on if the request says so."""
    node = node_behind(session, session.tensor(request.tensor), request.node)
    if isinstance(node, AccumulateGrad):
        if answer is not None and request.name == _LEAF:
            answer.known = True
            session.check_room(1)
            _show(session, answer, node.variable)
        return
    name = _name_of(node, request.name)
    if name is None:
        return
    region = None if node.hooks is None else node.hooks.again
    if region is not None:
        if answer is not None:
            answer.known, answer.checkpoint = True, region.callback.number
            session.hooks.reading = region
        return
    if node.freed:
        refuse_freed(node)
    if not node.saved and name != _ALL:
        return
    value = list(node.saved) if name == _ALL else node.saved[node.saving_plan.names.index(name)]
    parts = value if isinstance(value, list) else [value]
    if all(part is None or isinstance(part, Saved | Packed) for part in parts):
        _tell(session, request, answer, node, name, parts, parts is value)
    held, session.hooks.reading = session.hooks.reading, None
    if held is not None and held.callback.number == request.recomputed:
        held.drop()


def _name_of(node: Any, name: str) -> str | None:
    """The name in a node's formulas of what PyTorch calls by a name; None if it saved no such value."""
    if name == _ALL:
        return name if isinstance(node, FunctionNode) else None
    names = node.saving_plan.names
    known = name if name in names else _NAMES.get(name, name)
    return known if known in names else None


def _tell(
    session: "Session",
    request: hooks_pb2.SavedValueRequest,
    answer: hooks_pb2.SavedValueResponse | None,
    node: Node,
    name: str,
    parts: list[Any],
    several: bool,
) -> None:
    """Pack a value as the request says, or answer with its tensors, or with the hooks that keep them."""
    if answer is not None:
        answer.known, answer.several = True, several
    if request.pack:
        pack_value(node, name, several, [ask_for(session, hook) if hook else None for hook in request.pack])
        return
    given = session.tensors(request.unpacked)
    asks: list[ExternalCallback] = [part.callback for part in parts if isinstance(part, Packed)]
    if len(given) != len(asks):
        if answer is not None:
            answer.hooks.extend([ask.number for ask in asks])
        return
    left = iter(given)
    tensors: list[Any] = []
    for part in parts:
        whole = part.unpacked(node, [next(left)]) if isinstance(part, Packed) else part
        tensors.append(None if whole is None else whole.tensor(node, name))
    session.check_room(len(tensors))
    for tensor in tensors if answer is not None else ():
        _show(session, answer, tensor)  # type: ignore[arg-type]


def _show(session: "Session", answer: hooks_pb2.SavedValueResponse, tensor: Tensor | None) -> None:
    """Describe a tensor under an id of its own: the client may be about to release the id that it has."""
    spec = answer.tensors.add()
    maker = None if tensor is None else tensor.grad_fn
    answer.nodes.append(0 if maker is None or isinstance(maker, AccumulateGrad) else session.graph_walks.node_id(maker))
    if tensor is not None:
        same_as = session.names.get(tensor, 0)
        fill_spec(spec, tensor, session.bind(0, tensor))
        spec.same_as = same_as
