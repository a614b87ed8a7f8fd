"""Read ahead: asks for the value of a loss just before its backward, if the program is likely to read it afterwards.

Then the answer does not wait for the backward and the optimizer's step: the server computes them while the client
issues the next step. Neither changes the loss, which is the result of an op, and whose memory no other tensor had.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gradwire._base.timeouts import TIMEOUT
from gradwire._proxy.shadow_graph import OpNode
from gradwire._tensor.known_values.known import Known
from gradwire.v1 import commands_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.handle import Handle


class ReadAhead(Known):
    """A value that was asked for before its backward."""

    __slots__ = ("_answer", "_found", "_session", "_tensor_id")

    def __init__(self, tensor: Handle, answer: Callable[[], Any]) -> None:
        """answer: waits for the value."""
        super().__init__(tensor)
        self._session, self._tensor_id = tensor._session, tensor._id
        self._answer: Callable[[], Any] | None = answer
        self._found: Any = None

    def uncounted(self, tensor: Handle) -> int:
        """As in `Known`. Backward and optimizers write to gradients and leaves, which have other memory."""
        return tensor._session.untracked_writes + tensor._session.hidden_writes

    def value(self) -> Any:
        """The value. Raises GradwireError as the read of a tensor does."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self._session.root_reads.read(self._tensor_id)
            self._found = answer()
        return self._found


def differentiating(root: Handle, value_of: Callable[[Any, Any], Any]) -> None:
    """Ask for the value of a root of backward, if it is likely to be read; called before the backward is sent.

    value_of: makes an array of a session's answer to a read.
    """
    session = root._session
    reads = session.root_reads
    reads.differentiated(root._id)
    if not reads.are_expected() or not _is_alone(root) or session.every_call_waits or TIMEOUT.get() is not None:
        return
    if session.recorder is not None or session.segments is not None or session.others_may_write:
        return
    reads.begun()
    answer = session.issue(service_pb2.Command(read=commands_pb2.ReadRequest(tensor=root._id)))
    root._known = ReadAhead(root, lambda: value_of(session, answer().read).item())
    session.flush()


def _is_alone(root: Handle) -> bool:
    """Whether a tensor is one number, the result of an op, and no other tensor was ever on its memory."""
    spec = root._spec
    return (
        root._storage is None
        and root._known is None
        and not root._received
        and type(root._edge) in (list, OpNode)  # else only the server knows where it is from
        and "_view" not in root.__dict__
        and not (spec.inference or spec.tangents or spec.is_leaf)
        and math.prod(spec.shape) == 1
    )
