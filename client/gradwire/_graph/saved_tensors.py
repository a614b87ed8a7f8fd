"""Saved tensors of a node: reads the values that it saved for backward, and lets the client keep one of them.

A checkpoint that dropped a value is computed again for the answer. A value that hooks keep is unpacked by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.errors import GradwireError, GradwireTypeError, refuse, two_sessions
from gradwire._base.modes import no_grad
from gradwire._graph.hook_runner import HookArguments
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy
from gradwire.v1 import errors_pb2, hooks_pb2, service_pb2, types_pb2

if TYPE_CHECKING:
    from gradwire._graph.nodes import Node
    from gradwire._proxy.protocols import HookCallback, SessionProtocol

_FREED = (
    "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are "
    "freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved variables after calling backward."
)

_PACKED_ALREADY = (
    "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is "
    "allowed at a time."
)


def saved_value(node: Node, name: str) -> Any:
    """A node's saved value: a tensor, a tuple of tensors, or None if the name is unknown."""
    request = _request(node, name)
    answer = _ask(node, request)
    kept = _unpack(node, request, answer)
    answer = _ask(node, request) if kept else answer
    if not answer.known:
        return None
    tensors = [_known_or_new(node, spec) for spec in answer.tensors]
    for made, maker in zip(tensors, answer.nodes, strict=True):
        if made is not None and maker:
            made.__dict__["_node_id"] = (made._edge, maker)
    return tuple(tensors) if answer.several else tensors[0]


def raw_saved_value(node: Node, name: str) -> Any:
    """What stands for a node's saved value: one SavedTensor, a tuple of them, or None if the name is unknown."""
    try:
        answer = _ask(node, _request(node, name))
    except GradwireError as error:
        if error.reason != "GRAPH_FREED" or name == "saved_tensors":
            raise
        return SavedTensor._of(node, name, 0, 1)
    if not answer.known:
        return None
    _release(node, answer.tensors)
    count = len(answer.tensors) or len(answer.hooks)
    made = tuple([SavedTensor._of(node, name, place, count) for place in range(count)])
    return made if answer.several else made[0]


def unpacker(session: SessionProtocol, unpack: Callable[[Any], Any], packed: Any) -> HookCallback:
    """The hook by which the server asks for a value that the client keeps."""

    def run(hook_arguments: HookArguments) -> Sequence[Any]:
        value = unpack(packed)
        if not isinstance(value, Handle):
            raise GradwireTypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(value).__name__}"
            )
        if value._session is not session:
            raise two_sessions("unpack_hook", session, value._session)
        return (value,)

    return run


class SavedTensor:
    """A value that a node saved, whose hooks may be set (torch._C._autograd.SavedTensor)."""

    _node: Node
    _name: str
    _place: int
    _count: int

    def __init__(self) -> None:
        raise refuse("Trying to create a SavedTensor object from Python is forbidden.")

    @classmethod
    def _of(cls, node: Node, name: str, place: int, count: int) -> SavedTensor:
        made = object.__new__(cls)
        made._node, made._name, made._place, made._count = node, name, place, count
        return made

    def register_hooks(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any] | None = None) -> None:
        """Keep what `pack_hook` makes of the value; `unpack_hook` makes the value of it when it is needed.

        Raises RuntimeError if the value is None, was freed or has hooks, or if `pack_hook` changes it in place.
        """
        if not callable(pack_hook) or not callable(unpack_hook):
            raise GradwireTypeError(
                "register_hooks(): incompatible function arguments. It takes two functions, pack_hook and unpack_hook."
            )
        session = self._node._root._session
        request = _request(self._node, self._name)
        try:
            answer = _ask(self._node, request)
        except GradwireError as error:
            raise refuse(_FREED, errors_pb2.REASON_GRAPH_FREED) if error.reason == "GRAPH_FREED" else error from None
        if answer.hooks and self._count == 1:
            raise refuse(_PACKED_ALREADY)
        kept = _unpack(self._node, request, answer)
        answer = _ask(self._node, request) if kept else answer
        shown = answer.tensors[self._place]
        _release(self._node, [each for each in answer.tensors if each is not shown])
        if not shown.id:
            raise refuse("Calling register_hooks on a saved tensor with value None is forbidden")
        with no_grad():
            packed = pack_hook(_known_or_new(self._node, shown))
        number = next(session.ids)
        session.hooks[number] = unpacker(session, unpack_hook, packed)
        request.pack.extend([number if place == self._place else 0 for place in range(self._count)])
        try:
            session.wait(service_pb2.Command(saved_value=request))
        except BaseException:
            session.hooks.pop(number, None)
            raise


def _request(node: Node, name: str) -> hooks_pb2.SavedValueRequest:
    return hooks_pb2.SavedValueRequest(tensor=node._root._id, node=node._number(), name=name)


def _ask(node: Node, request: hooks_pb2.SavedValueRequest) -> hooks_pb2.SavedValueResponse:
    """The server's answer, after the checkpoint that dropped the value was computed again, if one did."""
    session = node._root._session
    answer = session.wait(service_pb2.Command(saved_value=request)).saved_value
    while answer.checkpoint:
        request.recomputed = answer.checkpoint
        session.hooks[answer.checkpoint](HookArguments((), (), None))
        answer = session.wait(service_pb2.Command(saved_value=request)).saved_value
    return answer


def _unpack(node: Node, request: hooks_pb2.SavedValueRequest, answer: hooks_pb2.SavedValueResponse) -> Sequence[Any]:
    """What the client keeps of a value, unpacked for the next request. It lives until the answer."""
    hooks = node._root._session.hooks
    kept = [each for hook in answer.hooks for each in hooks[hook](HookArguments((), (), None)) or ()]
    request.unpacked.extend([each._id for each in kept])
    return kept


def _release(node: Node, specs: Sequence[types_pb2.TensorSpec]) -> None:
    node._root._session.released.extend([each.id for each in specs if each.id])


def _known_or_new(node: Node, spec: types_pb2.TensorSpec) -> Any:
    session = node._root._session
    if not spec.id:
        return None
    known = session.watched.get(spec.same_as)
    if known is not None:
        session.released.append(spec.id)
        return known
    read = read_spec(spec)
    return new_proxy(session, spec.id, read, None if read.is_leaf else node._edge)
