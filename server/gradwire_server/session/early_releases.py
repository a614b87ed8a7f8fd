"""Early releases: when a batch's last command releases ids, each tensor is released after the batch's last use of it.

A client sends the ids that it no longer needs at the end of a batch, so the batch's intermediate results would stay
until then. Released early, their memory is used again while it is in the processor's cache.
"""

from __future__ import annotations

from struct import unpack
from typing import Any

_WORD = 8
_LEAST = 8  # commands of a batch from which the search is worth its time


def last_uses(commands: Any) -> dict[int, list[int]]:
    """The ids of a batch's last command, by the index of the command after which they may be released.

    Empty unless the last command is a quiet release. An id is never released before a command whose uses of tensors
    are not known here, or whose answer may tell of tensors.
    """
    final = len(commands) - 1
    if final < _LEAST:
        return {}
    release = commands[final]
    if not release.quiet or not release.HasField("release"):
        return {}
    last: dict[int, int] = {}
    barrier = -1
    for index in range(final):
        command = commands[index]
        which = command.WhichOneof("command")
        if which == "calls":
            words = command.calls.words
            # Numbers of ops and floats are taken for ids, too: an id that they resemble is released later.
            last.update(dict.fromkeys(unpack(f"<{len(words) // _WORD}Q", words[: len(words) // _WORD * _WORD]), index))
        elif not command.quiet:
            barrier = index
        elif which == "grad":
            request = command.grad
            last[request.tensor] = last[request.id] = index
        elif which == "set_grad":
            request = command.set_grad
            last[request.tensor] = last[request.grad] = index
        elif which == "backward":
            request = command.backward
            last.update(dict.fromkeys((*request.tensors, *request.gradients, *request.inputs), index))
        else:
            barrier = index
    found: dict[int, list[int]] = {}
    for each in release.release.tensors:
        index = max(last.get(each, final), barrier)
        if index < final:
            found.setdefault(index, []).append(each)
    return found
