"""From a command's answer to proxies: new ones, changed ones, stale ones."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from gradwire._ghost import Edge, Leaf, unknown_node
from gradwire._handle import Family, Handle
from gradwire._memo import Spec, read_spec
from gradwire.v1 import commands_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._session import Session

#: The class of new proxies, which registers itself: Tensor is built upon this module.
TENSOR_CLASS: list[type[Any]] = [Handle]


def new_proxy(session: Session, tensor_id: int, spec: Spec, edge: Edge | None = None) -> Any:
    """The proxy of a tensor. A leaf that requires grad gets its edge here."""
    made = object.__new__(TENSOR_CLASS[0])
    made._id = tensor_id
    made._session = session
    made._spec = spec
    made._grad = None
    made._retained = None
    made._family = None
    made._epoch = 0
    made._edge = edge
    if edge is None and spec.requires_grad:
        if spec.is_leaf:
            watch_leaf(made)
        else:
            made._edge = unknown_node()
    return made


def watch_leaf(leaf: Handle) -> None:
    """Give a leaf that requires grad its edge, and let the session find it by its id."""
    leaf._edge = Leaf(leaf)
    leaf._session.watched[leaf._id] = leaf


def new_result(session: Session, tensor_id: int, spec: Spec, edges: Sequence[Edge], args: Sequence[Any]) -> Any:
    """The proxy of an op's result: its node has the inputs' edges, and a view joins its base's family."""
    recorded = spec.requires_grad and not spec.is_leaf
    made = new_proxy(session, tensor_id, spec, list(edges) if recorded else None)
    if spec.is_view:
        base = next((value for value in args if isinstance(value, Handle)), None)
        if base is not None:
            if base._family is None:
                base._family = Family()
            made._family = base._family
            made._epoch = base._epoch = base._family.epoch
    return made


def change(target: Handle, spec: Spec, edges: list[Edge], recorded: bool) -> None:
    """Update a proxy after an in-place op; where it was recorded, its history is a new one and its views' too."""
    target._spec = spec
    if not recorded or not edges or spec.is_leaf:
        return
    retained = target._retained
    if retained is not None:
        if isinstance(target._edge, list) and retained in target._edge:
            target._edge.remove(retained)
        edges.append(retained)
    target._edge = edges
    family = target._family
    if family is not None:
        family.epoch += 1
        target._epoch = family.epoch


def refresh(stale: Handle) -> None:
    """Ask what a tensor is since an in-place op on a relative has rewritten its history."""
    request = commands_pb2.DescribeRequest(tensors=[stale._id])
    answer = stale._session.wait(service_pb2.Command(describe=request)).describe.tensors[0]
    assert stale._family is not None
    stale._spec = read_spec(answer)
    stale._epoch = stale._family.epoch
    if not stale._spec.is_leaf:
        stale._edge = unknown_node()
    elif stale._spec.requires_grad and not isinstance(stale._edge, Leaf):
        watch_leaf(stale)


@cache
def return_type(op: str, names: tuple[str, ...]) -> type[Any]:
    """The named tuple of an op with several results: torch.return_types.max."""
    made: type[Any] = namedtuple(op, names)  # type: ignore[misc]

    def shown(self: Any) -> str:
        parts = ",\n".join(f"{name}={value!r}" for name, value in zip(names, self, strict=True))
        return f"torch.return_types.{op}(\n{parts})"

    made.__repr__ = shown  # type: ignore[method-assign]
    return made


def arrange(op: str, made: tuple[Any, ...], result: Any) -> Any:
    """The results in the form that the op answers in: one tensor, a bool, a tuple, a named tuple."""
    if result is None:
        return made[0]
    if result == "bool":
        return bool(made[0].item())
    if result == "tuple":
        return made
    if len(made) == 1:
        return made[0]
    if len(made) < len(result):  # only some were asked for: unique(return_counts=True)
        return made
    return return_type(op, tuple(result))(*made)
