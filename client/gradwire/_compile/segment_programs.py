"""Programs of segments: makes a program of buffered commands, and finds its inputs in later commands like them.

Commands of the same memo entries have the same bytes, except for ids and floats, which are eight bytes wide. So a later
list of commands is compared with a program by its bytes: ids must be equal in the same places, floats that are
constants of the program must be equal, and the tensors that only the program holds must have been released.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire._compile.recorder import _ids, _name, _rename
from gradwire._proxy.memo import SegmentEntry, Spec
from gradwire._transport.wire import Value, make_template
from gradwire.v1 import programs_pb2, service_pb2
from gradwire.v1.command_facts import FACTS

if TYPE_CHECKING:
    from gradwire._proxy.memo import MemoEntry
    from gradwire._proxy.protocols import SessionProtocol

_FIELD = re.compile(r"(\d+)s|([Qd])")
# Doubles that stand for varying numbers while commands are parsed.
_STAND_IN = 1.8446744073e300


class Layout:
    """Where the ids and floats are in the bytes of a list of commands.

    `places` has for each value the command's index, the value's index and the offset in all bytes.
    """

    def __init__(
        self, size: int, commands: int, ids: list[tuple[int, int, int]], floats: list[tuple[int, int, int]]
    ) -> None:
        self.size = size
        self._commands = commands
        self.ids = ids
        self.floats = floats

    @staticmethod
    def of(items: Sequence[Any]) -> Layout | None:
        """The layout of buffered commands; None if one has no template yet."""
        start = 0
        found: dict[str, list[tuple[int, int, int]]] = {"Q": [], "d": []}
        for index, (data, entry, is_call) in enumerate(items):
            if entry.template is None:
                return None
            fields = _fields((entry.words if is_call else entry.template.pack).__self__.format)
            size, count = 0, 0
            for width, kind in fields:
                if kind and not (is_call and size == 0):  # the first word of a call is the prepared op's number
                    found[kind].append((index, count, start + size))
                    count += 1
                size += width
            if size != len(data):
                return None
            start += size
        return Layout(start, len(items), found["Q"], found["d"])

    def differing_floats(self, some: bytes, others: bytes) -> list[int]:
        """Indices of the floats that differ."""
        return [number for number, (_, _, at) in enumerate(self.floats) if some[at : at + 8] != others[at : at + 8]]

    def values(self, data: bytes) -> list[list[Value]]:
        """Values of each command, in order."""
        found: dict[tuple[int, int], Value] = {}
        for kind, places in (("<Q", self.ids), ("<d", self.floats)):
            found.update(((command, value), struct.unpack_from(kind, data, at)[0]) for command, value, at in places)
        values: list[list[Value]] = [[] for _ in range(self._commands)]
        for command, value in sorted(found):
            values[command].append(found[command, value])
        return values


def _fields(layout: str) -> list[tuple[int, str]]:
    return [(int(width), "") if width else (8, kind) for width, kind in _FIELD.findall(layout)]


class SegmentProgram:
    """A program of a segment: recognizes commands that it stands for, and makes the command that runs it."""

    def __init__(self, layout: Layout, steps: _Steps, data: bytes, varying: Sequence[int], kept: set[int]) -> None:
        self.data = steps.program.SerializeToString(deterministic=True)
        self.hash = hashlib.sha256(self.data).digest()
        self.count = len(steps.program.steps)
        self.runs = 0
        ids = [at for _, _, at in layout.ids]
        numbers = [layout.floats[number][2] for number in varying]
        slots: dict[int, int] = {}  # id -> its index among those in the bytes
        self._slot_of = np.array([slots.setdefault(each, len(slots)) for each in steps.ids_in_bytes], np.intp)
        first: dict[int, int] = {}
        for place, each in enumerate(steps.ids_in_bytes):
            first.setdefault(each, place)
        self._first = np.array(list(first.values()), np.intp)
        self._id_bytes = _byte_places(ids)
        self._number_bytes = _byte_places(numbers)
        constant = np.ones(layout.size, np.bool_)
        constant[self._id_bytes] = False
        constant[self._number_bytes] = False
        self._constant_places = np.flatnonzero(constant)
        self._constant = np.frombuffer(data, np.uint8)[self._constant_places]
        self._fixed = [(slots[each], each) for each in steps.fixed if each in slots]
        made = [each for each in steps.made if each in slots]
        self._inner = [slots[each] for each in made if each not in kept]
        self._inputs = [(slots.get(each), each) for each in steps.outside]
        self._outputs = [slots[each] for each in made if each in kept]
        self.entry = SegmentEntry(steps.entries, steps.by_step)
        self._template = make_template(self._build, self._values(range(1, len(slots) + 1), [0.5] * len(numbers)))

    @staticmethod
    def of(
        session: SessionProtocol,
        layout: Layout,
        items: Sequence[Any],
        data: bytes,
        varying: set[int],
        kept_places: set[int],
        released: set[int],
    ) -> SegmentProgram | None:
        """The program of these commands; None if no program can hold one of them.

        `varying` are the floats that become numbers of the program. `kept_places` are the indices among the ids of
        tensors that were not yet released; those of these commands are added.
        """
        order = sorted(varying)
        steps = _Steps(session)
        if not steps.read(layout, items, data, {number: place for place, number in enumerate(order)}):
            return None
        kept_places.update(
            place for place, each in enumerate(steps.ids_in_bytes) if each in steps.made and each not in released
        )
        kept = {each for place, each in enumerate(steps.ids_in_bytes) if place in kept_places and each in steps.made}
        steps.finish([each for each in steps.made if each in kept])
        limits = session.limits
        if len(steps.program.steps) > limits.max_program_steps:
            return None
        made = SegmentProgram(layout, steps, data, order, kept)
        return made if made._template is not None and len(made.data) <= limits.max_program_bytes else None

    def match(self, data: bytes, released: set[int]) -> tuple[list[int], list[float]] | None:
        """Ids of the slots and numbers for commands like the program's; None if they are others."""
        given = np.frombuffer(data, np.uint8)
        if not np.array_equal(given[self._constant_places], self._constant):
            return None
        places = given[self._id_bytes].view(np.uint64)
        slots = places[self._first]
        if not np.array_equal(slots[self._slot_of], places):
            return None
        ids: list[int] = slots.tolist()
        if len(set(ids)) != len(ids) or any(ids[slot] != each for slot, each in self._fixed):
            return None
        if any(ids[slot] not in released for slot in self._inner):
            return None
        return ids, given[self._number_bytes].view(np.float64).tolist()

    def inner(self, ids: Sequence[int]) -> list[int]:
        """Ids of the tensors that exist only within the program."""
        return [ids[slot] for slot in self._inner]

    def command(self, ids: Sequence[int], numbers: Sequence[float]) -> bytes:
        """The framed command that runs the program."""
        assert self._template is not None
        return self._template.fill(self._values(ids, numbers))

    def _values(self, ids: Sequence[int], numbers: Sequence[float]) -> list[Value]:
        inputs = [ids[slot] for slot, _ in self._inputs if slot is not None]
        return [*inputs, *numbers, *(ids[slot] for slot in self._outputs)]

    def _build(self, values: Sequence[Value]) -> service_pb2.Command:
        remaining = iter(values)
        request = programs_pb2.RunProgramRequest(hash=self.hash, repeat=1)
        request.inputs.extend([each if slot is None else int(next(remaining)) for slot, each in self._inputs])
        count = len(self._number_bytes) // 8
        request.numbers.extend(itertools.islice(remaining, count))
        request.outputs.extend([int(each) for each in remaining])
        return service_pb2.Command(run_program=request)


def _byte_places(offsets: Sequence[int]) -> Any:
    return (np.array(offsets, np.intp).reshape(-1, 1) + np.arange(8)).ravel()


class _Steps:
    """Steps of a program that is being made of commands."""

    def __init__(self, session: SessionProtocol) -> None:
        self._session = session
        self.program = programs_pb2.Program()
        self.entries: list[MemoEntry] = []
        #: Per step: the entry of its command.
        self.by_step: list[MemoEntry] = []
        #: Ids in the order of their places in the bytes.
        self.ids_in_bytes: list[int] = []
        #: Ids of outside tensors in the order of their first use, and of made ones.
        self.outside: dict[int, None] = {}
        self.made: dict[int, None] = {}
        #: Ids that the commands hold in constant bytes.
        self.fixed: dict[int, None] = {}
        self._inputs: dict[int, programs_pb2.ProgramInput] = {}
        self._slots: dict[int, int] = {}

    def read(self, layout: Layout, items: Sequence[Any], data: bytes, numbers: dict[int, int]) -> bool:
        """Read the commands; return whether a program can hold them all."""
        self.ids_in_bytes = [struct.unpack_from("<Q", data, at)[0] for _, _, at in layout.ids]
        stand_ins = {_STAND_IN * (1 + place / 4096): place for place in numbers.values()}
        by_place = {place: value for value, place in stand_ins.items()}
        commands = []
        in_order = layout.values(data)
        for number, place in numbers.items():
            index, value, _ = layout.floats[number]
            in_order[index][value] = by_place[place]
        for (_, entry, _), values in zip(items, in_order, strict=True):
            framed = entry.template.fill(values)
            commands.append(service_pb2.RunRequest.FromString(framed).commands[0])
            ids = [value for value in values if type(value) is int]
            if not self._add_uses(commands[-1], entry, ids):
                return False
        if any(each not in self._inputs for each in self.outside):
            return False
        for place, each in enumerate(self.outside):
            self._slots[each] = place + 1
            self.program.inputs.add().CopyFrom(self._inputs[each])
        self._next = itertools.count(len(self.outside) + 1)
        found: set[int] = set()
        for command, (_, entry, _) in zip(commands, items, strict=True):
            self.entries.append(entry)
            before = len(self.program.steps)
            self._add(command, stand_ins, found)
            self.by_step.extend([entry] * (len(self.program.steps) - before))
        self.program.numbers = len(numbers)
        return found == set(numbers.values())

    def finish(self, outputs: Sequence[int]) -> None:
        """Set the program's outputs."""
        self.program.outputs.extend([self._slots[each] for each in outputs])

    def _add_uses(self, command: service_pb2.Command, entry: MemoEntry, ids: Sequence[int]) -> bool:
        """Note a command's tensors; return whether a program can hold the command."""
        which = _name(command)
        facts = FACTS[which]
        request = getattr(command, which)
        if which == "run_program":
            inner = self._inner_program(request)
            if inner is None:
                return False
            specs = dict(zip(request.inputs, inner.inputs, strict=True))
        elif facts.is_step and which not in ("collective", "manual_seed", "create"):
            specs = {}
        else:
            return False
        pairs = _ids(request, facts.makes)
        made = {each for is_made, each in pairs if is_made}
        given = [each for each in ids if each not in made]
        shown = list(_specs(entry.key))
        if len(given) == len(shown) and not specs:
            specs = dict(zip(given, map(_as_input, shown), strict=True))
        for is_made, each in pairs:
            if is_made:
                self.made[each] = None
            elif each not in self.made:
                self.outside[each] = None
                if each in specs:
                    self._inputs.setdefault(each, specs[each])
        self.fixed.update((each, None) for _, each in pairs if each not in ids)
        return True

    def _inner_program(self, request: programs_pb2.RunProgramRequest) -> programs_pb2.Program | None:
        """The program that a command runs, if its steps can stand in another."""
        data = self._session.programs.get(request.hash)
        if data is None or request.repeat != 1 or request.sliced or request.stacked or request.named:
            return None
        inner = programs_pb2.Program.FromString(data)
        return None if inner.rules or len(request.inputs) != len(inner.inputs) else inner

    def _add(self, command: service_pb2.Command, stand_ins: dict[float, int], found: set[int]) -> None:
        which = _name(command)
        request = getattr(command, which)
        if which == "run_program":
            self._add_inner(request, stand_ins, found)
            return
        step = self.program.steps.add()
        getattr(step, which).CopyFrom(request)
        for argument in step.op.args if which == "op" else ():
            place = stand_ins.get(argument.float) if argument.HasField("float") else None
            if place is not None:
                argument.number = place
                found.add(place)
        _rename(getattr(step, which), self._slot)

    def _add_inner(self, request: programs_pb2.RunProgramRequest, stand_ins: dict[float, int], found: set[int]) -> None:
        """Add the steps of a program that the commands run."""
        inner = self._inner_program(request)
        assert inner is not None
        slots = {place + 1: self._slot(each) for place, each in enumerate(request.inputs)}

        def slot(old: int) -> int:
            if old and old not in slots:
                slots[old] = next(self._next)
            return slots[old] if old else 0

        for old in inner.steps:
            step = self.program.steps.add()
            step.CopyFrom(old)
            which = str(step.WhichOneof("step"))
            for argument in step.op.args if which == "op" else ():
                if argument.HasField("number"):
                    value = request.numbers[argument.number]
                    place = stand_ins.get(value)
                    if place is None:
                        argument.float = value
                    else:
                        argument.number = place
                        found.add(place)
            _rename(getattr(step, which), slot)
        for each, old_slot in zip(request.outputs, inner.outputs, strict=True):
            self._slots[each] = slots[old_slot]

    def _slot(self, tensor_id: int) -> int:
        if tensor_id and tensor_id not in self._slots:
            self._slots[tensor_id] = next(self._next)
        return self._slots[tensor_id] if tensor_id else 0


def _specs(key: Any) -> Iterator[Spec]:
    for each in key:
        if isinstance(each, Spec):
            yield each
        elif isinstance(each, tuple):
            yield from _specs(each)


def _as_input(spec: Spec) -> programs_pb2.ProgramInput:
    return programs_pb2.ProgramInput(
        dtype=spec.dtype.code,  # type: ignore[arg-type]
        shape=spec.shape,
        device="" if spec.device_name == "cpu" else spec.device_name,
        requires_grad=spec.requires_grad,
    )
