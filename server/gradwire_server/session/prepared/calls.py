"""Calls of prepared ops: applies calls that are encoded as 8-byte words in one buffer.

So decoding is one conversion for all calls and a few lookups for each.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from struct import unpack
from typing import Any

from gradwire.v1 import commands_pb2
from gradwire_engine import EngineError, Tensor
from gradwire_server.common.engine_errors import describe_operands
from gradwire_server.common.errors import Refusal
from gradwire_server.session.prepared.ops import Prepared, Words
from gradwire_server.session.retry import retry_or_refuse
from gradwire_server.session.session import Session
from gradwire_server.session.tensor_commands import apply_op, bind_results, detach_from_intermediates
from gradwire_server.session.writers import Writer

MAX_PREPARED_BYTES = 256
_WORD = 8


def prepare(session: Session, request: commands_pb2.Prepare, answer: commands_pb2.PrepareResponse | None) -> None:
    """Register an op under a number. Raises Refusal: ARGUMENT_VALUE and those of the op's arguments."""
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
    session.issuer().prepared[request.number] = Prepared(request.op, session)


def run_calls(
    session: Session, writer: Writer, calls: commands_pb2.Calls, repeated: int, results: Any
) -> Iterator[None]:
    """Apply the calls except the first `repeated`, which were applied before. Only refused calls get a result.

    Yields when the session's turn is over. If the words cannot be parsed, all calls are refused and none is applied.
    """
    times = session.activity.op_times
    if times is not None:
        times.rest()
    first = writer.applied - repeated + 1
    ids: Words = ()
    try:
        ids, numbers, plan = _read(writer, calls)
    except Refusal as refusal:
        for seq in range(writer.applied + 1, first + calls.count):
            refusal.fill(results.add(seq=seq).error)
            session.activity.log("calls", "", refusal)
            if session.durability.log_notes is not None:
                session.durability.log_notes.refused(session, seq, refusal)
            writer.applied = seq
        return
    if session.usage.meter is not None:
        session.usage.meter.called([prepared.call.name for prepared, _ in plan[repeated:]])
    cancel_token, running, schedule = session.cancel_token, session.command, session.schedule
    clock = time.monotonic if times is None else times.ticking([each.call.name for each, _ in plan[repeated:]])
    origin = writer.command_number(0)
    for seq, (prepared, at) in enumerate(plan[repeated:], writer.applied + 1):
        if clock() >= schedule.turn_ends:
            yield
        cancel_token.seq = seq
        running.number = origin | seq
        try:
            if cancel_token.cancel_ticket >= cancel_token.ticket or (
                cancel_token.cancelled_through and cancel_token.cancelled()
            ):
                raise cancel_token.refusal()
            _run(session, prepared, ids, numbers, at)
        except Exception as error:  # noqa: BLE001 - becomes this call's refusal; the unforeseen is logged
            again = partial(_run, session, prepared, ids, numbers, at)
            refused = retry_or_refuse(session, "Op", error, again)
            if refused is not None:
                refused.fill(results.add(seq=seq).error)
                session.activity.log("op", prepared.call.name, refused)
                if session.usage.meter is not None:
                    session.usage.meter.refused(prepared.call.name, refused)
                if session.durability.log_notes is not None:
                    session.durability.log_notes.refused(session, seq, refused)
                session.failed_ids.add(prepared.new_ids(ids, at), refused, seq, writer.number, session.store)
        writer.applied = seq


def _read(writer: Writer, calls: commands_pb2.Calls) -> tuple[Words, Sequence[float], list[tuple[Prepared, int]]]:
    """Parse the words as ids and as doubles, and find where each call begins. Raises Refusal: MALFORMED."""
    data, table, has_numbers = calls.words, writer.prepared, False
    if len(data) % _WORD:
        raise Refusal("MALFORMED", f"calls come in words of {_WORD} bytes; {len(data)} bytes are no such words")
    ids: Words = unpack(f"<{len(data) // _WORD}Q", data)
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
        has_numbers = has_numbers or bool(prepared.numbers)
    if at != end:
        raise Refusal("MALFORMED", f"{calls.count} calls of these ops have {at} words, not {end}")
    return ids, unpack(f"<{len(data) // _WORD}d", data) if has_numbers else (), plan


def _run(session: Session, prepared: Prepared, ids: Words, numbers: Sequence[float], at: int) -> None:
    if session.transfers.borrowed:
        session.transfers.copy_borrowed()
    arguments = prepared.arguments(session, ids, numbers, at)
    call = prepared.call
    if prepared.context is not session.current:
        session.enter(prepared.context)
    try:
        repeated = prepared.repeated
        if call.in_place:
            if repeated is None or repeated(arguments, prepared.context) is None:
                prepared.apply(arguments)
        elif prepared.outputs == 1:
            tensor_id = ids[at + prepared.width - 1]
            session.check_new(tensor_id)
            result = None if repeated is None else repeated(arguments, prepared.context)
            if result is None:
                result = prepared.apply(arguments)
            if type(result) is Tensor:
                if result.view is not None:
                    detach_from_intermediates(session, arguments, (result,))
                session.bind(tensor_id, result)
            else:
                bind_results(session, call, arguments, result, (tensor_id,), None)
        else:
            apply_op(session, call, arguments, prepared.new_ids(ids, at), None)
    except EngineError as error:
        describe_operands(error, call.name, arguments)
        raise
