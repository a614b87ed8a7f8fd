"""Recorded run: runs a function while its commands are recorded, with its leaves' gradients reset to not yet read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from gradwire._compile.recorder import KnownAnswers, Recorder
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.results import note_accumulated, unnamed_gradient
from gradwire._tensor.batching import without_casts

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_here = threading.local()
#: Held while a function is recorded, so one is recorded at a time.
RECORDING = threading.RLock()


def is_recording() -> bool:
    """Whether this thread is recording a function."""
    return getattr(_here, "recording", False)


def run_recorded(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    session: SessionProtocol,
    recorder: Recorder,
    settles: bool = True,
) -> Any:
    """Call the function and record its commands; all are answered when it returns, or with `settles=False` all sent.

    A command waits for its answer, but not an op that has had one in this call, or in an earlier one if the recorder
    has that call's answers.
    """
    memo, waits = session.memo, session.every_call_waits
    session.memo, session.every_call_waits = {}, True
    if waits:
        recorder.known = None
    elif recorder.known is None:
        recorder.known = KnownAnswers(session)
    session.recorder = recorder
    _here.recording = True
    try:
        with session, without_casts():
            answer = function(*args, **kwargs)
        if recorder.pipelined and settles:
            session.sync()
        elif recorder.pipelined:
            session.flush()
        return answer
    finally:
        _here.recording = False
        session.recorder = None
        session.every_call_waits = waits
        if session._unusable is None:
            session.memo = memo


class LeafGradients:
    """Gradients of a session's leaves around a recorded call.

    Inside the call the gradients have no proxies, so the program itself requests the gradients it uses. After the
    call, gradients that are still the same tensors get their proxies back. `known` are the ids of tensors that the
    function may hold.
    """

    def __init__(self, session: SessionProtocol, known: Collection[int] = ()) -> None:
        self.before: dict[int, tuple[Handle, Any]] = {}
        #: Ids of gradients that a function may reach by another way than through their tensors.
        self.shared: set[int] = set()
        for leaf in list(session.watched.values()):
            if leaf._grad is UNKNOWN:
                _ = leaf.grad
            self.before[leaf._id] = (leaf, leaf._grad)
            if not isinstance(leaf._grad, Handle):
                continue
            if leaf._grad._id in known:  # every way to reach the gradient must give the same object
                self.shared.add(leaf._grad._id)
            else:
                leaf._grad = unnamed_gradient(leaf, leaf._grad)

    def leave(self, recorder: Recorder) -> None:
        """Restore the proxies of gradients that the call did not replace."""
        replaced = {
            command.set_grad.tensor for command in recorder.commands if command.WhichOneof("command") == "set_grad"
        }
        differentiated = recorder.differentiates()
        # Such a backward makes new gradients, as each backward does of non-leaves, whatever was read of them since.
        records = any(command.backward.create_graph for command in recorder.commands)
        for tensor_id, (leaf, grad) in self.before.items():
            if isinstance(grad, Handle) and tensor_id not in replaced and leaf._grad is not None:
                is_unknown = leaf._grad is UNKNOWN and unnamed_gradient(leaf, grad) is not UNKNOWN
                is_new = records or (differentiated and not leaf._spec.is_leaf)
                leaf._grad = UNKNOWN if is_new or is_unknown else grad
                if differentiated:
                    note_accumulated(grad)

    def kept(self) -> set[int]:
        """Ids of leaves that have the same gradient after the call as before."""
        before = self.before.items()
        return {tensor_id for tensor_id, (leaf, grad) in before if isinstance(grad, Handle) and leaf._grad is grad}
