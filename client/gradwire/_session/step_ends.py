"""Step ends: where a batch of commands may be cut so that no training step lies in two batches.

The server computes a step faster if one batch has all of it: the calls before a backward, the backward, and what
follows until the next step's calls. So when a backward is buffered, all but it and the calls before it may be sent.

The server cannot begin a step before its commands arrive. A short step is sent soon, but a long one had better be sent
in parts, unless it takes the server little time as a whole. That is tried, and the server's answers tell it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from struct import pack, unpack
from time import monotonic
from typing import Any

from gradwire.v1 import service_pb2

#: Commands of a step, up to which a batch waits for its end in any case.
LONGEST = 64
_MOST_COMMANDS = 1023  # of a step that a server may compute at once
_MOST = 256  # beginnings of steps that are noted
_MOST_LENGTHS = 8  # of long steps, for which it is known whether to wait
#: Seconds per command of a step above which it is not worth the wait. The list saves the server 5 to 10 µs of each, and
#: the wait costs what client and server might do at the same time: as much.
_WORTH = 20e-6
#: Seconds per command of a step, as the client sees it, above which it is not tried: such commands take long.
_SLOW = 60e-6
_TRIED = 10  # long steps in a row that are tried: the server makes a step's list when it has come 4 to 7 times
_UNTRIED = 128  # steps until it is tried again; twice as many after each trial in vain
#: The first bytes of commands: their tags, of fields below 16 with a length.
_CREATE, _SET_GRAD = (
    service_pb2.Command.DESCRIPTOR.fields_by_name[name].number << 3 | 2 for name in ("create", "set_grad")
)


class LongSteps:
    """Whether batches wait for the end of long steps, by the number of a step's commands."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[int, _LongStep] = OrderedDict()

    def waits(self, length: int, seconds: float = 0.0) -> bool:
        """Note a step, and what it took; whether the next one of this length is kept until its end."""
        if length > _MOST_COMMANDS:
            return False
        known = self._known.pop(length, None)  # another thread may forget it meanwhile
        self._known[length] = known or _LongStep()
        if known is None:
            if len(self._known) > _MOST_LENGTHS:
                self._known.popitem(last=False)
            return False
        if known.rests:
            known.rests -= 1
            return False
        if not known.waited and not known.is_kept and seconds > length * _SLOW:
            return False
        known.waited += 1
        if known.waited <= _TRIED:
            return True
        known.is_kept = False
        known.waited, known.rests, known.pause = 0, known.pause, 2 * known.pause
        return False

    def computed(self, length: int, seconds: float) -> None:
        """Note that the server computed a step at once. If it took so little time, the next ones are kept, too."""
        known = self._known.get(length)
        if known is not None and seconds <= length * _WORTH:
            known.is_kept, known.waited, known.rests, known.pause = True, 0, 0, _UNTRIED


class _LongStep:
    """What is known of steps of one length.

    is_kept: whether they are kept since the server computes them at once. waited: steps that were kept since it last
    did. rests: steps until it is tried again.
    """

    __slots__ = ("is_kept", "pause", "rests", "waited")

    def __init__(self) -> None:
        self.is_kept = False
        self.waited, self.rests, self.pause = 0, 0, _UNTRIED


class StepEnds:
    """Notes where the training steps among a session's commands begin, by positions."""

    __slots__ = ("_began", "_last", "_long_steps", "_near", "_starts", "computed", "length")

    def __init__(self) -> None:
        self._last = 0  # the position after the last backward
        self._began = 0.0  # when that was noted, if the step was long
        self._near = 0  # commands after it among which the next backward is expected; 0 if they are too many
        self._starts: deque[int] = deque(maxlen=_MOST)
        self.length = 0  # commands from one backward to the next
        self._long_steps = LongSteps()
        self.computed = self._long_steps.computed

    def note(self, buffer: deque[Any], position: int) -> int:
        """Note a backward, the last command before a position; return how many commands of its step wait.

        0 if no backward lies so near before it that both belong to a loop.
        """
        self.length = length = position - self._last
        self._last = position
        if length <= LONGEST:
            self._near = 2 * length
        else:
            began, self._began = self._began, monotonic()
            waits = self._long_steps.waits(length, self._began - began)
            self._near = max(length, 2 * LONGEST + 1) if waits else 0
        if not self._near:
            self._starts.clear()
            return 0
        begun = _commands_at_end(buffer) + 1
        self._starts.append(position - begun)
        return begun

    def near(self, position: int) -> int:
        """The number of commands before which a backward is expected: the last steps were short, or computed at once.

        0 if it is not expected soon.
        """
        return max(0, self._last + self._near + 1 - position)

    def waits_for_long(self) -> bool:
        """Whether the batch waits for the end of a long step."""
        return self._near > 2 * LONGEST

    def are_far(self) -> bool:
        """Whether the last steps were long, or there are none."""
        return not self._near

    def last_start(self, first: int, end: int) -> int:
        """The last position from `first` to `end` at which a step begins; `end` if none is known behind `first`."""
        behind = [each for each in self._starts.copy() if each > first]  # another thread may note one meanwhile
        return max([each for each in behind if each <= end], default=end)


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
    """The ids that waiting commands do not contain, and those that they may contain. An id has eight bytes in each.

    A call has nothing but words of eight bytes, so the ids of a long step are not looked for one by one.
    """
    calls = b"".join([data for data, _, call in items if call])
    others = b"".join([data for data, _, call in items if not call])
    words = set(unpack(f"<{len(calls) // 8}Q", calls))
    free: list[int] = []
    held: list[int] = []
    for each in ids:
        (held if each in words or pack("<Q", each) in others else free).append(each)
    return free, held
