"""Templates: the bytes of a step in a batch, with places for ids and numbers.

A loop sends the same bytes but for these. A template finds them without parsing a message. Its places are checked
once: bytes with other ids must parse to the same commands with those ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from struct import Struct, pack
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from gradwire.v1 import service_pb2
from gradwire_server.session.prepared.ops import Prepared
from gradwire_server.session.prepared.steps import CREATE, Commands, Known, Step, taking

#: Collects the commands of a step; None if they are not those of one.
Collect = Callable[[Sequence[service_pb2.Command], Sequence[str]], "Commands | None"]

STEP = "step"  # stands for the kind of a command
_COMMANDS = 0x32  # tag of RunRequest.commands
_WORD = 8
_FRESH = 1 << 51  # ids of the check
_MOST = 8  # templates of a session
_TRIES = 4  # at making one
_LONGEST = 1 << 16  # bytes of a template


class Template:
    """The bytes of a step. writer: whose prepared ops it calls; None once one of them was replaced.

    The bytes hold the numbers that the step's list takes for constants, so they are not those of a later list.
    """

    __slots__ = (
        "_begin", "_distinct", "_fixed", "_list", "_mask", "_numbers", "_values", "count", "known", "length", "writer",
    )  # fmt: skip

    def __init__(self, data: bytes, tokens: Sequence[tuple[int, str]], known: Known, count: int, writer: Any) -> None:
        """tokens: where ids ("Q") and numbers that may vary ("d") are."""
        self.known, self.count, self.length, self.writer = known, count, len(data), writer
        self._list = known.list
        ends = [0, *[at + _WORD for at, _ in tokens]]
        begins = [*[at for at, _ in tokens], len(data)]
        sizes = [begin - end for end, begin in zip(ends, begins, strict=True)]
        #: The bytes before the first place; a mask that keeps what is in no place; and all bytes under it.
        self._begin = data[: sizes[0]]
        self._mask = np.frombuffer((b"\0" * _WORD).join([b"\xff" * size for size in sizes]), np.uint8)
        self._fixed = (np.frombuffer(data, np.uint8) & self._mask).tobytes()
        kinds = [*[kind for _, kind in tokens], ""]
        self._values = Struct("<" + "".join(f"{size}x{kind}" for size, kind in zip(sizes, kinds, strict=True)))
        ids = [place for place, (_, kind) in enumerate(tokens) if kind == "Q"]
        self._numbers = taking([place for place, (_, kind) in enumerate(tokens) if kind == "d"])
        first: dict[int, int] = {}
        for place, each in zip(ids, known.pattern, strict=True):
            first.setdefault(each, place)
        #: The ids; where each place of a step has its id first; and where each id must be found among these.
        self._distinct = itemgetter(*ids), itemgetter(*first.values()), itemgetter(*known.pattern)

    def is_of(self, writer: Any) -> bool:
        """Whether it is of a writer's ops as they are now, and of the step's list."""
        return self.writer is writer and self.known.list is self._list

    def match(self, data: bytes, at: int) -> Found | None:
        """The step at a place of a batch's bytes; None if it is not there."""
        if at + self.length > len(data) or not data.startswith(self._begin, at):
            return None
        if self.writer is None or self.known.list is not self._list:
            return None
        if (np.frombuffer(data, np.uint8, self.length, at) & self._mask).tobytes() != self._fixed:
            return None
        values = self._values.unpack_from(data, at)
        ids, first, again = self._distinct
        places = first(values)
        if len(set(places)) < len(places) or again(places) != ids(values):
            return None
        return Found(self, places, self._numbers(values), data[at : at + self.length])


class Found:
    """A step that was found in a batch. ids: by place. numbers: those that may vary."""

    __slots__ = ("_data", "ids", "numbers", "template")

    def __init__(self, template: Template, ids: Sequence[int], numbers: Sequence[float], data: bytes) -> None:
        self.template, self.ids, self.numbers, self._data = template, ids, numbers, data

    @property
    def count(self) -> int:
        """How many seqs it takes."""
        return self.template.count

    def commands(self) -> list[service_pb2.Command]:
        """Its commands."""
        return list(service_pb2.RunRequest.FromString(self._data).commands)


class Templates:
    """The templates of a session; the oldest are forgotten."""

    def __init__(self) -> None:
        self._held: list[Template] = []

    def split(self, data: bytes) -> tuple[bytes, list[tuple[int, Found]]]:
        """A batch's bytes without the steps that were found, and these, with the number of commands before each."""
        held = self._held
        if not held:
            return data, []
        found: list[tuple[int, Found]] = []
        rest: list[bytes] = []
        at = start = commands = 0
        try:
            while at < len(data):
                is_command = data[at] == _COMMANDS
                step = next(filter(None, [each.match(data, at) for each in held]), None) if is_command else None
                if step is None:
                    commands += is_command
                    at = _after(data, at)
                    continue
                found.append((commands, step))
                rest.append(data[start:at])
                at = start = at + step.template.length
        except IndexError:
            return data, []  # no message: parsing it tells
        rest.append(data[start:])
        return b"".join(rest), found

    def make(self, data: bytes, step: Step, collect: Collect, writer: Any) -> None:
        """Make the template of a step that has run in a batch."""
        known = step.known
        if known.template_tries >= _TRIES or CREATE in known.kinds:
            return
        known.template_tries += 1
        part = _commands_of(data, step.first, step.end)
        if not 0 < len(part) <= _LONGEST:
            return
        tokens = _tokens(part, step)
        if tokens is None or not _holds(part, tokens, step, collect):
            return
        known.template_tries = _TRIES
        self._held = [each for each in self._held if each.known is not known]
        self._held.append(Template(part, tokens, known, len(known.kinds), writer))
        del self._held[:-_MOST]

    def drop(self) -> None:
        """Forget all templates, also those of steps that were found and have not run."""
        for each in self._held:
            each.writer = None
            each.known.template_tries = 0
        self._held.clear()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends. Raises IndexError."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _after(data: bytes, at: int) -> int:
    """Where a field ends. Raises IndexError for what is no field."""
    tag, at = _varint(data, at)
    kind = tag & 7
    if kind == 0:
        at = _varint(data, at)[1]
    elif kind == 2:
        size, at = _varint(data, at)
        at += size
    elif kind in (1, 5):
        at += 8 if kind == 1 else 4
    else:
        raise IndexError
    if at > len(data):
        raise IndexError
    return at


def _commands_of(data: bytes, first: int, end: int) -> bytes:
    """The bytes of the commands `first` to `end`, if they lie one after another; else b""."""
    at = commands = start = 0
    while at < len(data):
        if data[at] == _COMMANDS:
            if commands == first:
                start = at
            commands += 1
        elif first < commands <= end:
            return b""
        at = _after(data, at)
        if commands == end + 1:
            return data[start:at]
    return b""


def _tokens(part: bytes, step: Step) -> list[tuple[int, str]] | None:
    """Where the ids and the numbers that may vary are, in order."""
    commands = step.commands
    ids, words, ops = iter(commands.ids), iter(enumerate(commands.words)), iter(commands.ops)
    varying, at = set(step.known.varying), 0
    found: list[tuple[int, str]] = []
    for kind in commands.kinds:
        for place in _order(kind):
            name = "Q" if place == "id" else ""
            if place == "number":
                number, value = next(words)
                name = "d" if number in varying else ""
            else:
                value = next(ids) if place == "id" else next(ops)
            at = part.find(pack("<Q", value), at)
            if at < 0:
                return None
            if name:
                found.append((at, name))
            at += _WORD
    return found


def _order(kind: Prepared | str) -> list[str]:
    """What a command's words are, in order."""
    if isinstance(kind, str):
        return ["id"] * (2 if kind == "grad" else 1)
    told = [(word, "id") for _, word in kind.tensors] + [(word, "number") for _, word in kind.numbers]
    return ["op", *[name for _, name in sorted(told)], *["id"] * kind.outputs]


def _holds(part: bytes, tokens: Sequence[tuple[int, str]], step: Step, collect: Collect) -> bool:
    """Whether the bytes with other ids and numbers in these places are the same commands with those."""
    changed = bytearray(part)
    pattern = iter(step.known.pattern)
    for number, (at, kind) in enumerate(tokens):
        value = pack("<Q", _FRESH + next(pattern)) if kind == "Q" else pack("<d", 1.5 + number)
        changed[at : at + _WORD] = value
    try:
        commands = list(service_pb2.RunRequest.FromString(bytes(changed)).commands)
    except DecodeError:
        return False
    found = collect(commands, [each.WhichOneof("command") or "" for each in commands])
    if found is None or found.kinds != step.commands.kinds or found.places[-1][0] != len(commands) - 1:
        return False
    if found.ids != [_FRESH + each for each in step.known.pattern]:
        return False
    numbers = [1.5 + number for number, (_, kind) in enumerate(tokens) if kind == "d"]
    if [found.numbers[place] for place in step.known.varying] != numbers:
        return False
    return all(found.words[at] == word for at, word in step.known.fixed)
