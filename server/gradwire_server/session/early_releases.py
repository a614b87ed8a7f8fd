"""Early releases: when a batch's last command releases ids, each tensor is released after the batch's last use of it.

A client sends the ids that it no longer needs at the end of a batch, so the batch's intermediate results would stay
until then. Released early, their memory is used again while it is in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack
from typing import Any

from gradwire_server.session.prepared.steps import BACKWARD
from gradwire_server.session.prepared.templates import STEP

_WORD = 8
_LEAST = 8  # commands of a batch without a backward, from which the search is worth its time


def last_uses(commands: Sequence[Any], kinds: Sequence[str]) -> dict[int, list[int]]:
    """The ids of a batch's last command, by the index of the command after which they may be released.

    kinds: which command each of them is.
    Empty unless the last command is a quiet release. An id is never released before a command whose uses of tensors
    are not known here, or whose answer may tell of tensors that it does not name.
    """
    final = len(commands) - 1
    if final < _LEAST and STEP not in kinds and BACKWARD not in kinds:
        return {}
    release = commands[final]
    if kinds[final] != "release" or not release.quiet:
        return {}
    return uses_of(commands[:final], kinds, set(release.release.tensors))


def uses_of(commands: Sequence[Any], kinds: Sequence[str], waiting: set[int]) -> dict[int, list[int]]:
    """As `last_uses`, for these ids and all of these commands. A step that was found is one of them."""
    found: dict[int, list[int]] = {}
    barrier = final = len(commands)
    for index in range(final - 1, -1, -1):
        command, which = commands[index], kinds[index]
        used: Sequence[int] = ()
        if which == STEP:
            used = command.ids
        elif which == "calls":
            words = command.calls.words
            # Numbers of ops and floats are taken for ids, too: an id that they resemble is released later.
            used = unpack(f"<{len(words) // _WORD}Q", words[: len(words) // _WORD * _WORD])
        elif command.quiet and which == "grad":
            used = command.grad.tensor, command.grad.id
        elif command.quiet and which == "run_program":  # its steps know no other ids
            run = command.run_program
            used = *run.inputs, *run.outputs, *[each.id for each in run.named]
        elif command.quiet and which == "create":
            used = (command.create.id,)
        elif command.quiet and which == "set_grad":
            used = command.set_grad.tensor, command.set_grad.grad
        elif command.quiet and which == "backward":
            request = command.backward
            used = *request.tensors, *request.gradients, *request.inputs
        elif which == "read":
            used = (command.read.tensor,)
        elif barrier == final:
            barrier = index  # the last command before which, and with which, nothing is released
        last = waiting.intersection(used)
        if last:
            waiting -= last
            # A step may have a thousand ids, and puts them in a set.
            found.setdefault(index if barrier == final else barrier, []).extend(last if which == STEP else sorted(last))
            if not waiting:
                break
    return found
