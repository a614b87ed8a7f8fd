"""Early stop: a checkpoint is computed again up to the last op that may save a value for backward.

The first call counts the ops, and notes the last that may save something. The second call ends behind it. The server
compares what was made, and refuses if a value is missing: then the function is called again as a whole.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from gradwire._dispatch import modes
from gradwire._functions import saved_tensor_hooks
from gradwire._graph.hook_runner import LAST_AGAIN
from gradwire._proxy.handle import Handle, handles_in
from gradwire._tensor.batching import DISPATCH, FUNCTIONS
from gradwire._tensor.call import _call

#: Ops of which no node saves a tensor.
SAVES_NOTHING = frozenset(
    [
        "add",
        "cat",
        "chunk",
        "clone",
        "expand",
        "flatten",
        "mean",
        "movedim",
        "neg",
        "permute",
        "reshape",
        "select",
        "split",
        "squeeze",
        "stack",
        "sub",
        "sum",
        "swapaxes",
        "swapdims",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
    ]
)


def _scales(op: str, args: Sequence[Any]) -> bool:
    """Whether an op multiplies a tensor by a number, of which nothing is saved."""
    return op in ("div", "mul") and len(args) > 1 and isinstance(args[1], (int, float))


class StoppedEarly(Exception):
    """All that backward needs is computed again. `live` are the tensors that lead to it."""

    def __init__(self, live: list[Handle]) -> None:
        self.live = live


class Progress:
    """The ops of a region: how many were called, and behind which the second call ends."""

    def __init__(self) -> None:
        self.count = 0
        self.last = -1
        #: Whether the ops do not tell all that was recorded: a function of its own, another checkpoint.
        self.unclear = False
        self._stop = -1
        self._made: list[weakref.ref[Handle]] = []

    def may_stop(self, seen: bool) -> bool:
        """Whether something is left to leave out. seen: whether modes see the ops, which may miss the last one."""
        return not self.unclear and self.last < self.count - (0 if seen else 1)

    def counting(self) -> AbstractContextManager[None]:
        """The first call."""
        return _active(self)

    def stopping(self) -> AbstractContextManager[None]:
        """The second call: raises StoppedEarly behind the last op that may save."""
        again = Progress()
        again._stop = self.last
        return _active(again)

    def call(self, op: str, args: Any, kwargs: Any, result: Any) -> Any:
        """Call an op and count it."""
        number = self.count
        self.count += 1
        again = LAST_AGAIN.get()
        token = LAST_AGAIN.set(op if again is not None and number == self._stop else again)
        try:
            made = _call(op, args, kwargs, result)
        finally:
            LAST_AGAIN.reset(token)
        found = [each for each in handles_in(made) if each._spec.requires_grad]
        if self._stop < 0:
            if found and op not in SAVES_NOTHING and not _scales(op, args):
                self.last = number
            return made
        self._made.extend(map(weakref.ref, found))
        if number >= self._stop:
            alive = (each() for each in self._made)
            raise StoppedEarly([each for each in alive if each is not None and each._spec.requires_grad])
        return made


_ACTIVE: ContextVar[Progress | None] = ContextVar("gradwire_early_stop", default=None)


@contextmanager
def _active(progress: Progress | None) -> Iterator[None]:
    token = _ACTIVE.set(progress)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def not_counting() -> AbstractContextManager[None]:
    """What belongs to no call of a region: its second call as a whole, within a backward."""
    return _active(None)


def note_unclear(*call: Any) -> Any:
    """Note that the ops of the region do not tell what it records. NotImplemented, as a rule of functions answers."""
    progress = _ACTIVE.get()
    if progress is not None:
        progress.unclear = True
    return NotImplemented


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Count an op of a region; NotImplemented outside, and for what an op calls itself."""
    progress = _ACTIVE.get()
    if progress is None:
        return NotImplemented
    with _active(None):
        return progress.call(op, args, kwargs, result)


# Before modes: what they call is no op of the region.
DISPATCH.insert(min(map(DISPATCH.index, (*modes.SHOWING, saved_tensor_hooks._dispatch))), _dispatch)
FUNCTIONS.append(note_unclear)
