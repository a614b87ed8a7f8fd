"""Applying commands, alone or in a batch, on the compute thread: what all handlers have in common.

A command that fails becomes a refusal in its place and poisons the ids it was to give; the rest of the batch runs.
A request that was applied before is answered from memory.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_engine import EngineError, Reason, activate
from gradwire_server.commands import HANDLERS, MESSAGES, method_of, new_ids
from gradwire_server.errors import Refusal, refusal_of
from gradwire_server.limits import RESPONSE_BYTES
from gradwire_server.session import WRITER_SHIFT, Pending, Session, Writer


class OutOfOrder(Exception):
    """A batch came before the one that precedes it. `refusal` is what to say if that one never comes."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def run_unary(call: Pending) -> bytes:
    """Apply a command that came alone. Raises Refusal."""
    session = call.session
    which, request_type, response_type = MESSAGES[call.method]
    request: Any = request_type.FromString(call.raw)
    request_id = getattr(request, "request_id", "")
    if request_id:
        held = session.memory.find(request_id, call.method, call.raw)
        if held is not None:
            return held
    answer = response_type()
    session.inline_left = session.limits.max_inline_bytes
    session.brake.begin(call.ticket, call.deadline)
    session.command.number = 0
    refusal = None
    with _surroundings(session):
        try:
            session.transfers.settle()
            if session.brake.stopping():
                raise session.brake.refusal()
            HANDLERS[which](session, request, answer)
        except Exception as error:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
            refusal = _settle(session, which, request, answer, error)
    if refusal is not None:
        raise refusal
    response = answer.SerializeToString()
    if len(response) > session.limits.max_message_bytes:
        raise _too_large(len(response), session.limits.max_message_bytes)
    if request_id:
        session.memory.keep(request_id, call.method, call.raw, response)
    return response


def run_batch(call: Pending) -> bytes:
    """Apply a batch, or answer what of it was applied before. Raises Refusal, OutOfOrder."""
    session = call.session
    request = service_pb2.RunRequest.FromString(call.raw)
    writer = session.writer(request.writer)
    if request.epoch not in (0, session.epoch):
        raise Refusal(
            "EPOCH_MISMATCH", f"the session's epoch is {session.epoch}, not {request.epoch}", epoch=session.epoch
        )
    commands = request.commands
    limit = session.limits.max_batch_commands
    if len(commands) > limit:
        raise Refusal("MESSAGE_TOO_LARGE", f"a batch has at most {limit} commands, not {len(commands)}", limit=limit)
    first = request.first_seq
    call.writer, call.first_seq = request.writer, first
    _check_order(writer, first, len(commands))
    writer.recall.acknowledge(min(request.acknowledged_seq, writer.applied))
    response = service_pb2.RunResponse(epoch=session.epoch)
    repeated = min(max(writer.applied + 1 - first, 0), len(commands))
    earlier = writer.recall.results(first, first + repeated - 1) if repeated else []
    if repeated < len(commands):
        _run_commands(session, writer, call, commands[repeated:] if repeated else commands, response)
        response.applied_seq = writer.applied
        fresh = _fitting(response, session)
        writer.recall.keep(writer.applied, fresh)
        if not earlier:
            return fresh
        response = service_pb2.RunResponse.FromString(fresh)
    response.applied_seq = writer.applied
    if earlier:
        later = list(response.results)
        del response.results[:]
        response.results.extend(earlier + later)
    return response.SerializeToString()


def _check_order(writer: Writer, first: int, count: int) -> None:
    if not count:
        return
    if first < 1:
        raise Refusal("MALFORMED", "first_seq is 1 for a writer's first command", argument="first_seq")
    if first > writer.applied + 1:
        raise OutOfOrder(
            Refusal(
                "SEQUENCE_GAP",
                f"the batch begins with command {first}, but command {writer.applied + 1} has not arrived",
                first_seq=first,
                applied_seq=writer.applied,
            )
        )


def _run_commands(
    session: Session, writer: Writer, call: Pending, commands: Any, response: service_pb2.RunResponse
) -> None:
    results = response.results
    handlers = HANDLERS
    session.inline_left = min(RESPONSE_BYTES, session.limits.max_message_bytes) * 3 // 4
    brake = session.brake
    transfers = session.transfers
    brake.begin(call.ticket, writer=writer)
    seq = writer.applied
    origin, running = writer.number << WRITER_SHIFT, session.command
    with _surroundings(session):
        for command in commands:
            seq += 1
            brake.seq = seq
            running.number = origin | seq
            answer = result = request = None
            which = command.WhichOneof("command")
            try:
                if transfers.borrowed:
                    transfers.settle()
                if brake.cancel_ticket >= brake.ticket or writer.cancel_through >= seq:
                    raise brake.refusal()
                if which is None:
                    raise Refusal("MALFORMED", "the command is none that this server knows")
                request = getattr(command, which)
                if not command.quiet:
                    result = results.add(seq=seq)
                    answer = getattr(result, which)
                    answer.SetInParent()
                timeout = command.timeout_ms
                if timeout:
                    brake.limit(timeout)
                handlers[which](session, request, answer)
            except Exception as error:  # noqa: BLE001 - becomes this command's refusal; the unforeseen is logged
                refusal = _settle(session, which, request, answer, error)
                if refusal is not None:
                    refusal.fill((result or results.add(seq=seq)).error)
                    if which is not None:
                        session.poison_ids(new_ids(which, getattr(command, which)), refusal, seq, writer.number)
            if brake.deadline is not None:
                brake.limit(0)
            writer.applied = seq


def _settle(session: Session, which: str | None, request: Any, answer: Any, error: Exception) -> Refusal | None:
    """What to answer to a command that raised, or None if it went well at a second try.

    The refusal has no traceback: its frames would keep the command's tensors alive.
    """
    failed: Exception | None = error
    if which is not None and _scarce(error) and _make_room(session):
        if answer is not None:
            answer.Clear()
            answer.SetInParent()
        try:
            session.transfers.settle()
            HANDLERS[which](session, request, answer)
            failed = None
        except Exception as again:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
            failed = again
    if failed is None:
        return None
    if isinstance(failed, EngineError) and failed.reason is Reason.CANCELLED:
        refusal = session.brake.refusal()
    else:
        refusal = refusal_of(failed, method_of(which or "command"))
    failed = None  # or its traceback and this frame would hold each other
    refusal.__traceback__ = refusal.__context__ = refusal.__cause__ = None
    return refusal


def _scarce(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, EngineError) and error.reason is Reason.MEMORY_LIMIT)


def _make_room(session: Session) -> bool:
    """Collect the cycles that `create_graph` leaves; tells whether that gave bytes back."""
    held = session.account.bytes
    gc.collect()
    return session.account.bytes < held


@contextmanager
def _surroundings(session: Session) -> Iterator[None]:
    session.current = session.recording
    with activate(session.recording):
        yield


def _fitting(response: service_pb2.RunResponse, session: Session) -> bytes:
    """The response serialized; results that make it pass the message cap give way to refusals, largest first."""
    data = response.SerializeToString()
    limit = session.limits.max_message_bytes
    while len(data) > limit:
        largest = max(response.results, key=lambda result: result.ByteSize())
        seq = largest.seq
        _too_large(largest.ByteSize(), limit).fill(largest.error)
        largest.seq = seq
        data = response.SerializeToString()
    return data


def _too_large(size: int, limit: int) -> Refusal:
    return Refusal(
        "MESSAGE_TOO_LARGE",
        f"the command was applied, but its answer has {size} bytes and {limit} are the cap",
        limit=limit,
    )
