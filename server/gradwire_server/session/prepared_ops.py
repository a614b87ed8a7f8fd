"""Prepared ops and their calls: an op's message is decoded once, and a repeat is its number and what fills its places.

A loop of small ops costs what its decoding costs. A call is a few words that lie in one buffer with its neighbours',
so that reading them is one conversion for all and a few lookups for each.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from gradwire.v1 import commands_pb2, types_pb2
from gradwire_engine import Tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session.arguments import call_of, read_index
from gradwire_server.session.commands import apply_op, bind_results, check_in_place
from gradwire_server.session.retry import settle
from gradwire_server.session.session import Session, Writer

MAX_PREPARED_BYTES = 256
_WORD = 8
Words: TypeAlias = list[int]


class Prepared:
    """An op with places to fill: tensors and doubles by where they go and which word of the call they are."""

    __slots__ = ("call", "context", "indices", "lists", "numbers", "outputs", "raw", "tensors", "values", "width")

    def __init__(self, request: commands_pb2.OpRequest, session: Session) -> None:
        """Raises Refusal: OP_UNKNOWN, ARGUMENT_TYPE, MALFORMED, ARGUMENT_VALUE; EngineError: OP_UNKNOWN."""
        self.call = call = call_of(request.op)
        self.raw = request.SerializeToString()
        self.context = session.context(request.grad_mode, request.default_dtype)
        self.values: list[Any] = list(call.defaults)
        self.tensors: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int]] = []
        self.lists: list[tuple[int, int, int]] = []
        self.indices: list[tuple[int, tuple[Any, ...], list[tuple[int, int]]]] = []
        self.width = 1
        for place, argument in zip(call.places(request.args), request.args, strict=True):
            self._place(place, argument, session)
        self.outputs = len(request.outputs)
        self.width += self.outputs
        call.check_complete(self.values)
        if call.in_place:
            check_in_place(call, request.outputs, bool(self.tensors) and self.tensors[0][0] == 0)

    def _place(self, place: int, argument: types_pb2.Argument, session: Session) -> None:
        kind = argument.WhichOneof("kind")
        read = self.call.reader(place, argument)
        self.values[place] = None  # to be filled
        if kind == "tensor":
            self.tensors.append((place, self._take(1)))
        elif kind == "float":
            self.numbers.append((place, self._take(1)))
        elif kind == "tensors":
            count = len(argument.tensors.ids)
            self.lists.append((place, self._take(count), count))
        elif kind == "index":
            self._place_index(place, argument, session)
        else:
            self.values[place] = read(argument, session)

    def _place_index(self, place: int, argument: types_pb2.Argument, session: Session) -> None:
        constant = types_pb2.Argument()
        constant.index.CopyFrom(argument.index)
        holes: list[tuple[int, int]] = []
        for number, item in enumerate(constant.index.items):
            if item.WhichOneof("item") == "tensor":
                item.new_axis = True
                holes.append((number, self._take(1)))
        self.indices.append((place, read_index(constant, session), holes))

    def _take(self, count: int) -> int:
        first = self.width
        self.width += count
        return first

    def new_ids(self, ids: Words, at: int) -> Words:
        """The ids of the results of the call that begins at word `at`."""
        end = at + self.width
        return ids[end - self.outputs : end]

    def arguments(self, session: Session, ids: Words, numbers: list[float], at: int) -> tuple[Any, ...]:
        """The op's arguments for the call that begins at word `at`. Raises Refusal: TENSOR_NOT_FOUND and its kin."""
        values = self.values.copy()
        store = session.store
        for place, word in self.tensors:
            tensor_id = ids[at + word]
            found = store.get(tensor_id)
            values[place] = session.tensor(tensor_id) if found is None else found
        for place, word in self.numbers:
            values[place] = numbers[at + word]
        if self.lists:
            for place, word, count in self.lists:
                values[place] = session.tensors(ids[at + word : at + word + count])
        if self.indices:
            for place, items, holes in self.indices:
                filled = list(items)
                for number, word in holes:
                    filled[number] = session.tensor(ids[at + word])
                values[place] = tuple(filled)
        return tuple(values)


def prepare(session: Session, writer: Writer, request: commands_pb2.Prepare) -> None:
    """Keep an op under a number. Raises Refusal: ARGUMENT_VALUE and those of the op's arguments."""
    limit = session.limits.max_prepared
    if request.number >= limit:
        raise Refusal(
            "ARGUMENT_VALUE", f"prepared ops have numbers below {limit}, not {request.number}", argument="number"
        )
    size = request.op.ByteSize()
    if size > MAX_PREPARED_BYTES:
        raise Refusal(
            "ARGUMENT_VALUE", f"a prepared op has at most {MAX_PREPARED_BYTES} bytes, not {size}; send it as it is"
        )
    writer.prepared[request.number] = Prepared(request.op, session)


def run_calls(
    session: Session, writer: Writer, calls: commands_pb2.Calls, repeated: int, results: Any
) -> Iterator[None]:
    """Apply the calls but for the first `repeated`, which were applied before. Those refused get a result.

    Yields when the session's turn is over.

    Calls that cannot be told apart are refused together, and none is applied.
    """
    first = writer.applied - repeated + 1
    ids: Words = []
    try:
        ids, numbers, plan = _read(writer, calls)
    except Refusal as refusal:
        for seq in range(writer.applied + 1, first + calls.count):
            refusal.fill(results.add(seq=seq).error)
            if session.notes is not None:
                session.notes.refused(session, seq, refusal)
            writer.applied = seq
        return
    if session.meter is not None:
        session.meter.called([prepared.call.name for prepared, _ in plan[repeated:]])
    brake, running, clock = session.brake, session.command, time.monotonic
    origin = writer.command_number(0)
    for seq, (prepared, at) in enumerate(plan[repeated:], writer.applied + 1):
        if clock() >= session.turn_ends:
            yield
        brake.seq = seq
        running.number = origin | seq
        try:
            if brake.cancel_ticket >= brake.ticket or (brake.through and brake.cancelled()):
                raise brake.refusal()
            _run(session, prepared, ids, numbers, at)
        except Exception as error:  # noqa: BLE001 - becomes this call's refusal; the unforeseen is logged
            again = partial(_run, session, prepared, ids, numbers, at)
            refused = settle(session, "Op", error, again)
            if refused is not None:
                refused.fill(results.add(seq=seq).error)
                if session.meter is not None:
                    session.meter.refused(prepared.call.name, refused)
                if session.notes is not None:
                    session.notes.refused(session, seq, refused)
                session.poison_ids(prepared.new_ids(ids, at), refused, seq, writer.number)
        writer.applied = seq


def _read(writer: Writer, calls: commands_pb2.Calls) -> tuple[Words, list[float], list[tuple[Prepared, int]]]:
    """The words as ids and as numbers, and where each call begins. Raises Refusal: MALFORMED."""
    data, table = calls.words, writer.prepared
    if len(data) % _WORD:
        raise Refusal("MALFORMED", f"calls come in words of {_WORD} bytes; {len(data)} bytes are no such words")
    ids: Words = np.frombuffer(data, "<u8").tolist()
    end, at = len(ids), 0
    plan: list[tuple[Prepared, int]] = []
    for _ in range(calls.count):
        if at >= end:
            raise Refusal("MALFORMED", f"there are {len(plan)} calls, not {calls.count}")
        prepared = table.get(ids[at])
        if prepared is None:
            raise Refusal("MALFORMED", f"no op was prepared as number {ids[at]}")
        plan.append((prepared, at))
        at += prepared.width
    if at != end:
        raise Refusal("MALFORMED", f"{calls.count} calls of these ops have {at} words, not {end}")
    return ids, np.frombuffer(data, "<f8").tolist(), plan


def _run(session: Session, prepared: Prepared, ids: Words, numbers: list[float], at: int) -> None:
    if session.transfers.borrowed:
        session.transfers.settle()
    arguments = prepared.arguments(session, ids, numbers, at)
    call = prepared.call
    if prepared.context is not session.current:
        session.enter(prepared.context)
    if call.in_place:
        call.apply(arguments)
    elif prepared.outputs == 1:
        tensor_id = ids[at + prepared.width - 1]
        session.check_new(tensor_id)
        result = call.apply(arguments)
        if type(result) is Tensor:
            session.bind(tensor_id, result)
        else:
            bind_results(session, call, arguments, result, (tensor_id,), None)
    else:
        apply_op(session, call, arguments, prepared.new_ids(ids, at), None)
