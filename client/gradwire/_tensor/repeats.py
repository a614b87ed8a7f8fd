"""Repeats: the short way of a call that the memo knows and that makes one plain new tensor.

With small tensors the client's own time counts. So an operator that comes again makes its key and its bytes at once,
without lists of arguments, and leaves every other case to `_call`.
"""

from __future__ import annotations

from sys import _getframe
from typing import TYPE_CHECKING, Any

from gradwire._base import dtypes
from gradwire._base.modes import GRAD_ENABLED
from gradwire._proxy.handle import Handle
from gradwire._proxy.results import TENSOR_CLASS, refresh
from gradwire._proxy.shadow_graph import OpNode
from gradwire._tensor.arguments import MOST_HALF
from gradwire._tensor.batching import BATCHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradwire._proxy.memo import MemoEntry
    from gradwire._proxy.protocols import SessionProtocol
    from gradwire._transport.wire import Value

_new = object.__new__
_grad_enabled = GRAD_ENABLED.get


def repeated(op: str, first: Any, second: Any) -> Any:
    """Apply an operator that takes a tensor and a tensor or number, as before on this line; None if `_call` must do it.

    Key and values are those of `_call`, where a whole number beside a floating tensor is a float, too.
    """
    if BATCHING or dtypes._default_dtype is not dtypes.float32:
        return None
    storage = first._storage
    if storage is not None and storage.changes != first._changes_seen:
        refresh(first)
    session = first._session
    spec = first._spec
    edge = first._edge
    kind: Any = type(second)
    edges: tuple[Any, ...]
    if kind is float or (kind is int and spec.dtype.is_floating_point):
        if not -MOST_HALF <= second <= MOST_HALF:
            return None
        kind, value = float, second if kind is float else float(second)
        edges = () if edge is None else (edge,)
    elif isinstance(second, Handle):
        storage = second._storage
        if storage is not None and storage.changes != second._changes_seen:
            refresh(second)
        if second._session is not session:
            return None
        kind, value = second._spec, second._id
        other = second._edge
        edges = (edge,) if other is None else (other,) if edge is None else (edge, other)
    else:
        return None
    frame = _getframe(2)
    # No key has a line of this package: there `_call` looks for the program's.
    entry = session.memo.get((op, _grad_enabled(), id(frame.f_code), frame.f_lasti, spec, kind))
    if entry is None or not entry.quick:
        return None
    number, operand = next(session.ids), first._id
    made = plain_result(session, entry, number, edges, (operand, value))
    buffer = session.buffer
    buffer.append((entry.words(entry.number, operand, value, number), entry, entry.call_kind))
    if len(buffer) >= session.check_at:
        session.flush_if_full()
    return made


def plain_result(
    session: SessionProtocol, entry: MemoEntry, number: int, edges: Sequence[Any], values: Sequence[Value]
) -> Any:
    """The proxy of the result of a `plain` entry, with an id of the session.

    It is made before the command is sent, so its id is released if Ctrl-C interrupts.
    """
    made = _new(TENSOR_CLASS[0])
    made._id = number
    made._session = session
    made._spec = spec = entry.specs[0]
    made._grad = None
    made._retained = None
    made._storage = None
    made._known = None
    made._received = False
    if not spec.requires_grad:
        made._edge = None
    elif entry.structural:
        node = made._edge = OpNode(edges)
        node.entry, node.order, node.values = entry, number, values
    else:
        made._edge = list(edges)
    return made
