"""Step ends: where a batch of commands may be cut so that no training step lies in two batches.

The server computes a step faster if one batch has all of it: the calls before a backward, the backward, and what
follows until the next step's calls. So when a backward is buffered, all but it and the calls before it may be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from struct import pack
from typing import Any

from gradwire.v1 import service_pb2

#: Commands of a step, up to which a batch waits for its end.
LONGEST = 64
_MOST = 256  # beginnings of steps that are noted
#: The first bytes of commands: their tags, of fields below 16 with a length.
_CREATE, _SET_GRAD = (
    service_pb2.Command.DESCRIPTOR.fields_by_name[name].number << 3 | 2 for name in ("create", "set_grad")
)


class StepEnds:
    """Notes where the training steps among a session's commands begin, by positions."""

    __slots__ = ("_last", "_starts", "_step")

    def __init__(self) -> None:
        self._last = 0  # the position after the last backward
        self._step = 0  # commands from one backward to the next; 0 if they are too many
        self._starts: deque[int] = deque(maxlen=_MOST)

    def note(self, buffer: deque[Any], position: int) -> int:
        """Note a backward, the last command before a position; return how many commands of its step wait.

        0 if no backward lies so near before it that both belong to a loop.
        """
        length = position - self._last
        self._last, self._step = position, length if length <= LONGEST else 0
        if not self._step:
            self._starts.clear()
            return 0
        begun = _commands_at_end(buffer) + 1
        self._starts.append(position - begun)
        return begun

    def is_near(self, position: int) -> bool:
        """Whether a backward may be expected soon, since the last steps were short."""
        return bool(self._step) and position - self._last <= 2 * self._step

    def are_far(self) -> bool:
        """Whether the last steps were long, or there are none."""
        return not self._step

    def last_start(self, first: int, end: int) -> int:
        """The last position from `first` to `end` at which a step begins; `end` if none is known behind `first`."""
        starts = self._starts
        while starts and starts[0] <= first:
            starts.popleft()
        return max([each for each in starts if each <= end], default=end)


def _commands_at_end(buffer: deque[Any]) -> int:
    """Calls before the last command, which is a backward, and what lies between and may belong to the step.

    That are gradients that are dropped just before the backward, and tensors that are created between the calls.
    """
    count, found, dropped = -1, 0, True
    try:
        for data, _, is_call in reversed(buffer):
            if count >= 0 and not is_call:
                kind = _kind(data)
                if kind != _CREATE and not (dropped and kind == _SET_GRAD):
                    break
                dropped = dropped and kind == _SET_GRAD
            count += 1
            if is_call:
                found, dropped = count, False
    except RuntimeError:  # another thread has appended
        return 0
    return found


def _kind(framed: bytes) -> int:
    """The first byte of a framed command: the tag of its kind."""
    at = 1
    while framed[at] & 0x80:  # the length of the command
        at += 1
    return framed[at + 1]


def unused(ids: Sequence[int], items: Collection[Any]) -> tuple[list[int], list[int]]:
    """The ids that waiting commands do not contain, and those that they may contain. An id has eight bytes in each."""
    data = b"".join([item[0] for item in items])
    free: list[int] = []
    held: list[int] = []
    for each in ids:
        (held if pack("<Q", each) in data else free).append(each)
    return free, held
