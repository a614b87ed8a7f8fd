"""Framing: how the commands of a batch are sent. Calls of prepared ops that follow each other are one command.

A buffered command is its bytes, its record, and what call it is: 0 for none, else `MemoEntry.call_kind`. Calls of
another kind are a command of their own, since a training step begins there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from gradwire._transport import wire


def _runs(calls: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """What follows each other and is alike: the kind of call, the first place and the last one plus 1."""
    start = 0
    for call, run in groupby(calls):
        end = start + len(list(run))
        yield call, start, end
        start = end


def framed_commands(data: Sequence[bytes], calls: Sequence[int]) -> list[bytes]:
    """The commands to send for buffered ones, whose bytes and kinds of calls these are."""
    commands: list[bytes] = []
    for call, start, end in _runs(calls):
        if call:
            commands.append(wire.calls_command(data[start:end]))
        else:
            commands += data[start:end]
    return commands


def places_of_others(calls: Sequence[int]) -> list[int]:
    """Places of the commands that are no calls of prepared ops."""
    return [place for call, start, end in _runs(calls) if not call for place in range(start, end)]
