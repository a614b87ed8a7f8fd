"""Module calls: which commands of a session each call of a module issued, so that a drawn graph can fold by module.

A call is noted with the numbers of the first command and of the command after its last. Numbers are sent in the order
of issue, so calls nest as their numbers do. The log is bounded and keeps the newest calls. It holds no module
alive.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

#: A step of a large model has some thousand calls; a noted call takes about 200 bytes.
MOST_CALLS = 1 << 14


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module: its path in the outermost module ("layers.3.norm1", "" for the outermost) and its class.

    A call of a compiled function has no path and the function's name as its class: its modules are not called again.
    `parent` is the index of the call that it was made in; -1 for none.
    """

    path: str
    kind: str
    parent: int


#: The module that holds another, weakly, and the name it holds it under.
Owner = tuple[weakref.ref[Any], str]
#: First command, command after the last, thread, owner of the module, name of its class.
Noted = tuple[int, int, int, Owner | None, str]


def new_log() -> deque[Noted]:
    """An empty log of calls, in the order in which they ended."""
    return deque(maxlen=MOST_CALLS)


def attribute(log: Iterable[Noted], seqs: Iterable[int]) -> tuple[tuple[ModuleCall, ...], dict[int, int]]:
    """The calls that issued the commands, callers before callees, and the index of the innermost call by command.

    A command is in no call where calls of several threads overlap: then its thread is unknown.
    """
    wanted = sorted(set(seqs))
    inner: dict[int, int] = {}
    torn: set[int] = set()
    threads: dict[int, list[Noted]] = {}
    for each in log:
        threads.setdefault(each[2], []).append(each)
    calls: list[ModuleCall] = []
    for noted in threads.values():
        # A caller ends after its callees, so of equal ranges the later one encloses the earlier.
        noted.reverse()
        noted.sort(key=lambda each: (each[0], -each[1]))
        mine = _of_one_thread(noted, wanted, calls)
        torn.update(seq for seq in mine if seq in inner)
        inner.update(mine)
    for seq in torn:
        del inner[seq]
    return _only_used(calls, inner)


def _of_one_thread(noted: list[Noted], wanted: list[int], calls: list[ModuleCall]) -> dict[int, int]:
    """Add a thread's calls to `calls`; return the index of the innermost call by command."""
    found: dict[int, int] = {}
    around: list[tuple[int, int]] = []  # (command after the last, index) of the calls that a command is in
    following = 0
    for seq in wanted:
        while following < len(noted) and noted[following][0] <= seq:
            start, end, _, owner, kind = noted[following]
            following += 1
            while around and around[-1][0] <= start:
                around.pop()
            parent = around[-1][1] if around else -1
            path = path_of(owner, calls[parent].path if around else "")
            calls.append(ModuleCall(path, kind, parent))
            around.append((end, len(calls) - 1))
        while around and around[-1][0] <= seq:
            around.pop()
        if around:
            found[seq] = around[-1][1]
    return found


def path_of(owner: Owner | None, caller: str | None = None) -> str:
    """The path of names from the outermost living module down; below `caller`, if given, where an owner is gone."""
    names: list[str] = []
    seen: set[int] = set()
    while owner is not None:
        module = owner[0]()
        if module is None:
            if caller is not None:
                names.extend([owner[1], caller] if caller else [owner[1]])
            break
        if id(module) in seen:  # modules that hold each other
            break
        seen.add(id(module))
        names.append(owner[1])
        owner = module._owner
    return ".".join(reversed(names))


def _only_used(calls: list[ModuleCall], inner: dict[int, int]) -> tuple[tuple[ModuleCall, ...], dict[int, int]]:
    used: set[int] = set()
    for index in inner.values():
        while index >= 0 and index not in used:
            used.add(index)
            index = calls[index].parent
    place = {-1: -1} | {old: new for new, old in enumerate(sorted(used))}
    kept = tuple(replace(calls[old], parent=place[calls[old].parent]) for old in sorted(used))
    return kept, {seq: place[index] for seq, index in inner.items()}
