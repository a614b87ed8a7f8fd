"""Batches: applies commands, of a batch or of a unary call, on the compute thread.

A failed command becomes a refusal in its place, and its result ids become failed ids; the rest of the batch runs. A
repeated request is answered from the response cache. A batch yields between two commands when its turn is over, so it
does not block other sessions. An expensive command also yields between its steps.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import EncodeError

from gradwire.v1 import service_pb2
from gradwire_engine import REGISTRY, activate
from gradwire_server.common.errors import Refusal
from gradwire_server.common.futures import Steps, until_done
from gradwire_server.common.limits import RESPONSE_BYTES
from gradwire_server.common.timings import with_timings
from gradwire_server.session.arguments import NAMED_OPS
from gradwire_server.session.command_spec import CommandSpec
from gradwire_server.session.commands import BY_METHOD, COMMANDS
from gradwire_server.session.early_releases import last_uses, uses_of
from gradwire_server.session.prepared.calls import collect, find_step, run_calls, run_found, run_step
from gradwire_server.session.prepared.steps import Step
from gradwire_server.session.prepared.templates import STEP
from gradwire_server.session.retry import retry_in_steps, retry_or_refuse
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.session.writers import Writer

# Protobuf also raises EncodeError when memory is short.
_NO_MEMORY = (MemoryError, EncodeError)
_SHORT_MESSAGE = 100  # characters of a refusal's message
_DONE = object()  # all commands of a batch are applied


class OutOfOrder(Exception):
    """A batch arrived before its predecessor. `refusal` is the answer if the predecessor never arrives."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def run_unary(call: PendingCall) -> Generator[None, None, bytes]:
    """Apply the command of a unary call; an expensive command yields between its steps. Raises Refusal."""
    session = call.session
    spec = BY_METHOD[call.method]
    request: Any = spec.request.FromString(call.raw)
    request_id = getattr(request, "request_id", "")
    if request_id:
        held = session.response_cache.find(request_id, call.method, call.raw)
        if held is not None:
            return held
    answer = spec.response()
    session.unary_commands += 1
    session.expect_repeats(True)
    session.inline_left = session.limits.max_inline_bytes
    session.cancel_token.begin_call(call.ticket, call.deadline)
    session.command.number = 0
    session.durability.uncommitted = True

    def execute() -> Iterator[None] | None:
        answer.Clear()
        return _apply(session, spec, request, answer)

    if session.activity.watched is not None:
        session.choose_watch()
    steps = refusal = None
    times = session.activity.op_times
    if times is not None:
        times.begin(spec.name, _known_op(spec.name, request))
    with _engine_context(session):
        try:
            if session.cancel_token.stopping():
                raise session.cancel_token.refusal()
            steps = execute()
        except Exception as error:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
            refusal = retry_or_refuse(session, call.method, error, execute)
    if steps is not None:
        steps = _run_steps(session, spec, steps, execute)
        while True:
            try:
                with _engine_context(session):
                    next(steps)
            except StopIteration as done:
                refusal = done.value
                break
            yield
    if times is not None:
        times.rest()
    if session.usage.meter is not None:
        session.usage.meter.applied(spec.name, request, refusal)
    if refusal is not None:
        session.durability.uncommitted = False
        if spec.refused is not None:
            spec.refused(session, request, refusal)
        raise refusal
    response = _serialized_answer(session, answer)
    if request_id:
        session.response_cache.keep(request_id, call.method, call.raw, response)
    session.durability.uncommitted = False
    return response


def _serialized_answer(session: Session, answer: Any) -> bytes:
    """Serialize an applied command's answer. Raises Refusal: MESSAGE_TOO_LARGE, MEMORY_LIMIT, with `applied` set."""
    limit = session.limits.max_message_bytes
    try:
        response = serialized(answer)
    except _NO_MEMORY:
        refusal = _no_memory_refusal()
    else:
        if len(response) <= limit:
            return response
        refusal = _too_large_refusal(len(response), limit)
    refusal.applied, session.durability.uncommitted = True, False
    raise refusal


def serialized(message: Any) -> bytes:
    """Serialize a message. Raises MemoryError, EncodeError."""
    return message.SerializeToString()  # type: ignore[no-any-return]


def run_batch(call: PendingCall) -> Steps[bytes]:
    """Apply a batch, except commands applied before, whose results are repeated. Yields when the session's turn ends.

    Raises Refusal, OutOfOrder.
    """
    session = call.session
    raw, steps = session.templates.split(call.raw)
    request = service_pb2.RunRequest.FromString(raw)
    writer = session.writer(request.writer)
    if request.epoch not in (0, session.epoch):
        raise Refusal(
            "EPOCH_MISMATCH", f"the session's epoch is {session.epoch}, not {request.epoch}", epoch=session.epoch
        )
    commands: list[Any] = list(request.commands)
    kinds = _kinds(commands)
    if steps:
        for before, step in reversed(steps):
            commands.insert(before, step)
            kinds.insert(before, STEP)
    call.size = count = _seqs_of(commands, kinds)
    limit = session.limits.max_batch_commands
    if count > limit:
        raise Refusal("MESSAGE_TOO_LARGE", f"a batch has at most {limit} commands, not {count}", limit=limit)
    acknowledged = request.acknowledged_seq
    if acknowledged > writer.applied:
        raise Refusal(
            "EPOCH_MISMATCH",
            f"the session was rolled back to command {writer.applied} when it was restored, and the client has answers "
            f"through {acknowledged}",
            applied_seq=writer.applied,
        )
    first = request.first_seq
    _check_order(writer, first, count)
    writer.responses.acknowledge(acknowledged)
    writer.dropped.acknowledge(acknowledged)
    session.expect_repeats(not request.recorded)
    response = service_pb2.RunResponse(epoch=session.epoch)
    repeated = 0 if first > writer.applied else min(writer.applied + 1 - first, count)
    earlier = writer.responses.results(first, first + repeated - 1) if repeated else []
    if repeated < count:
        if session.durability.files is not None and (noted := session.durability.files.use()) is not None:
            yield from until_done(noted)
        session.durability.uncommitted = True  # until the call is over (runtime.py)
        if request.op_times:
            trace = session.begin_trace()
            try:
                yield from _run_commands(session, writer, call, commands, kinds, repeated, response)
            finally:
                session.end_trace(trace)
            for kind, name, seconds, calls in trace.items():
                response.op_times.add(kind=kind, name=name, seconds=seconds, calls=calls)
        else:
            if session.activity.watched is not None:
                session.choose_watch()
            yield from _run_commands(session, writer, call, commands, kinds, repeated, response)
        response.applied_seq = writer.applied
        response.durable_seq = writer.durable if session.durability.log_notes is None else writer.applied
        if session.joined is not None:
            response.joined.commands, response.joined.seconds = session.joined
        if writer.dropped.numbers:
            response.dropped_hooks.extend(writer.dropped.report(writer.applied))
        serializing = time.monotonic()
        fresh = _serialize_within_cap(response, session)
        writer.responses.keep(writer.applied, fresh)
        if not earlier:
            return with_timings(call, fresh, serializing) if request.timings else fresh
        response = service_pb2.RunResponse.FromString(fresh)
    response.applied_seq = writer.applied
    response.durable_seq = writer.durable if session.durability.log_notes is None else writer.applied
    if earlier:
        later = list(response.results)
        del response.results[:]
        response.results.extend(earlier + later)
    serializing = time.monotonic()
    answer = response.SerializeToString()
    return with_timings(call, answer, serializing) if request.timings else answer


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


def _kinds(commands: Sequence[service_pb2.Command]) -> list[str]:
    return [command.WhichOneof("command") or "" for command in commands]


def _seqs_of(commands: Sequence[Any], kinds: Sequence[str]) -> int:
    """Number of seqs that commands and found steps take."""
    count = len(kinds)
    for command, kind in zip(commands, kinds, strict=True):
        if kind == "calls" or kind == STEP:
            count += _seq_count(command, kind) - 1
    return count


def _seq_count(command: Any, kind: str) -> int:
    """Number of seqs that a command takes, or a step that was found."""
    if kind == STEP:
        return command.count  # type: ignore[no-any-return]
    return command.calls.count if kind == "calls" else 1


def _run_commands(
    session: Session,
    writer: Writer,
    call: PendingCall,
    commands: Sequence[service_pb2.Command],
    kinds: Sequence[str],
    repeated: int,
    response: service_pb2.RunResponse,
) -> Iterator[None]:
    """Apply the commands except the first `repeated`, which were applied before.

    Between turns only other sessions compute. The session's cancel token and counters remain valid; its context must
    be activated again.
    """
    session.inline_left = min(RESPONSE_BYTES, session.limits.max_message_bytes) * 3 // 4
    session.joined = None
    session.cancel_token.begin_call(call.ticket, writer=writer.number)
    unused = {} if repeated else last_uses(commands, kinds)
    raw = b"" if STEP in kinds else call.raw
    steps = _command_steps(session, writer, commands, kinds, repeated, response.results, unused, raw)
    while True:
        with _engine_context(session):
            if next(steps, _DONE) is _DONE:
                return
        yield


def _command_steps(
    session: Session,
    writer: Writer,
    commands: Sequence[Any],
    kinds: Sequence[str],
    repeated: int,
    results: Any,
    unused: Mapping[int, Sequence[int]],
    raw: bytes = b"",
) -> Iterator[None]:
    """Apply commands except the first `repeated`. unused: ids by the command after which they are released.

    raw: the batch, for templates of its steps; empty if the commands are not all of it.
    """
    cancel_token, schedule, clock = session.cancel_token, session.schedule, time.monotonic
    times = session.activity.op_times
    final = len(commands) - 1
    noted: Step | None = None
    begun: Step | None = None  # of which not all calls before the backward have run
    late = session.kept_ids  # released when they have, or when memory is short
    late.clear()  # what an ended batch has left
    for number, (command, kind) in enumerate(zip(commands, kinds, strict=True)):
        if repeated:
            span = _seq_count(command, kind)
            if span <= repeated:
                repeated -= span
                continue
        if clock() >= schedule.turn_ends:  # never after the last command, whose answer is ready
            yield None
        if kind == STEP:
            done = repeated or (yield from run_found(session, writer, command, unused.get(number, ())))
            if done < command.count:
                parts = command.commands()
                of_parts = uses_of(parts, _kinds(parts), set(unused.get(number, ())))
                yield from _command_steps(session, writer, parts, _kinds(parts), done, results, of_parts)
            repeated = 0
            continue
        timeout = command.timeout_ms
        if timeout:
            cancel_token.set_timeout(timeout)
        if times is not None and kind != "calls":
            times.begin(kind, _known_op(kind, command.op))
        if kind == "calls":
            step = None
            if not repeated and begun is None:
                step = begun = find_step(session, writer, commands, kinds, number)
            if step is not None and (done := (yield from run_step(session, writer, step, commands, unused))):
                begun = None
                if raw and done == len(step.known.kinds):
                    session.templates.make(raw, step, partial(collect, writer), writer)
                repeated = done - command.calls.count
                continue
            keeps = bool(late)
            yield from run_calls(session, writer, command.calls, repeated, results)
            repeated = 0
            if keeps and not late:
                begun = None  # a call has had to release them
            if begun is not None and number == begun.last_calls:
                if (yield from begun.note(session)):
                    noted = begun
                begun = None
        elif kind == "release" and number == final and results and command.quiet:
            # Deferred until the answer is sent: the client waits for the answer, but not for the release.
            session.deferred_releases = command.release.tensors
            writer.applied += 1
        else:
            steps = _run_command(session, writer, command, COMMANDS.get(kind), results)
            if steps is not None:
                yield from steps
        if timeout:
            cancel_token.set_timeout(0)
        if noted is not None and number == noted.end:
            noted.confirm(session)
            noted = None
        if begun is not None and begun.is_due and not begun.has_room(session):
            begun = None
        if begun is not None and begun.is_due:
            late += unused.get(number, ())
        elif number in unused or late:
            session.release_all([*late, *unused.get(number, ())])
            late.clear()
    if times is not None:
        times.rest()


def _known_op(which: str, request: Any) -> str:
    """The registry's name of a command's op; empty for another command or op."""
    name: str = request.op if which == "op" else ""
    return name if name in NAMED_OPS or name.removesuffix("_") in REGISTRY else ""


def _apply(session: Session, spec: CommandSpec | None, request: Any, answer: Any) -> Iterator[None] | None:
    """Run a command's handler. Raises Refusal: MALFORMED if the command is unknown, and those of the handler."""
    if spec is None:
        raise Refusal("MALFORMED", "this server does not know the command")
    if session.transfers.borrowed and not spec.facts.read_only:
        session.transfers.copy_borrowed()  # downloads send a tensor's own bytes: copy them before they change
    return spec.handler(session, request, answer)


def _apply_again(session: Session, spec: CommandSpec | None, request: Any, answer: Any) -> Iterator[None] | None:
    """Run a command's handler a second time, without what the first has answered. Raises Refusal as `_apply`."""
    if answer is not None:
        answer.Clear()
        answer.SetInParent()
    return _apply(session, spec, request, answer)


def _run_command(
    session: Session, writer: Writer, command: service_pb2.Command, spec: CommandSpec | None, results: Any
) -> Iterator[None] | None:
    """Apply a command, or refuse an unknown one, which has no spec.

    Returns the steps of an expensive command, which is applied once they are exhausted.
    """
    seq = writer.applied + 1
    cancel_token = session.cancel_token
    cancel_token.seq = seq
    session.command.number = writer.command_number(seq)
    answer = result = request = refusal = steps = None
    try:
        stopped = cancel_token.cancel_ticket >= cancel_token.ticket or (
            cancel_token.cancelled_through and cancel_token.cancelled()
        )
        if stopped and (spec is None or spec.cancellable) and not cancel_token.repeats(_keeps_effects(spec)):
            raise cancel_token.refusal()
        if spec is not None:
            request = getattr(command, spec.name)
            if not command.quiet:
                result = results.add(seq=seq)
                answer = getattr(result, spec.name)
                answer.SetInParent()
        steps = _apply(session, spec, request, answer)
    except Exception as error:  # noqa: BLE001 - becomes this command's refusal; the unforeseen is logged
        again = partial(_apply_again, session, spec, request, answer)
        refusal = retry_or_refuse(session, spec.facts.method if spec is not None else "Command", error, again)
    if steps is not None and spec is not None:
        again = partial(_apply_again, session, spec, request, answer)
        return _run_command_steps(session, writer, command, spec, results, result, steps, again)
    if refusal is not None:
        _record_refusal(session, writer, command, spec, results, result, refusal)
    writer.applied = seq
    if session.usage.meter is not None:
        which = "" if spec is None else spec.name
        session.usage.meter.applied(which, getattr(command, which, None), refusal)  # also if it never began
    return None


def _keeps_effects(spec: CommandSpec | None) -> bool:
    return spec is not None and spec.refusal_keeps_effects


def _run_command_steps(
    session: Session,
    writer: Writer,
    command: service_pb2.Command,
    spec: CommandSpec,
    results: Any,
    result: service_pb2.Result | None,
    steps: Iterator[None],
    again: Callable[[], Iterator[None] | None],
) -> Iterator[None]:
    refusal = yield from _run_steps(session, spec, steps, again)
    if refusal is not None:
        _record_refusal(session, writer, command, spec, results, result, refusal)
    writer.applied += 1
    if session.usage.meter is not None:
        session.usage.meter.applied(spec.name, getattr(command, spec.name), refusal)


def _run_steps(
    session: Session, spec: CommandSpec, steps: Iterator[None], again: Callable[[], Iterator[None] | None]
) -> Generator[None, None, Refusal | None]:
    """Take a command's steps; return its refusal if any step fails, else None."""
    try:
        yield from steps
    except Exception as error:  # noqa: BLE001 - becomes the command's refusal; the unforeseen is logged
        return (yield from retry_in_steps(session, spec.facts.method, error, again))
    return None


def _record_refusal(
    session: Session,
    writer: Writer,
    command: service_pb2.Command,
    spec: CommandSpec | None,
    results: Any,
    result: Any,
    refusal: Refusal,
) -> None:
    """Answer a command with its refusal, log it, and note the command's result ids as failed."""
    seq = writer.applied + 1
    refusal.fill((result or results.add(seq=seq)).error)
    which = "" if spec is None else spec.name
    session.activity.log(which, _known_op(which, command.op), refusal)
    if session.durability.log_notes is not None:
        session.durability.log_notes.refused(session, seq, refusal)
    if spec is not None:
        if spec.refused is not None:
            spec.refused(session, getattr(command, spec.name), refusal)
        ids = spec.new_ids(getattr(command, spec.name))
        session.failed_ids.add(ids, refusal, seq, writer.number, session.store)


def _engine_context(session: Session) -> activate:
    session.current = session.grad_context
    return activate(session.grad_context)


def _serialize_within_cap(response: service_pb2.RunResponse, session: Session) -> bytes:
    """Serialize a response; over the message cap or without memory, replace results with refusals, largest first.

    Raises MemoryError if memory is too short even for the refusals.
    """
    limit = session.limits.max_message_bytes
    for _ in range(len(response.results) + 1):
        try:
            data = serialized(response)
        except _NO_MEMORY:
            data = b""
        else:
            if len(data) <= limit:
                return data
        left = [result for result in response.results if not result.HasField("error")]
        if not left:
            return _serialize_shortened(response)
        largest = max(left, key=lambda result: result.ByteSize())
        seq = largest.seq
        (_too_large_refusal(largest.ByteSize(), limit) if data else _no_memory_refusal()).fill(largest.error)
        largest.seq = seq
    return _serialize_shortened(response)


def _serialize_shortened(response: service_pb2.RunResponse) -> bytes:
    """Serialize a response that has only refusals, with shortened messages and no metadata."""
    for result in response.results:
        result.error.metadata.clear()
        result.error.message = result.error.message[:_SHORT_MESSAGE]
    return serialized(response)


def _no_memory_refusal() -> Refusal:
    return Refusal("MEMORY_LIMIT", "the command was applied, but there is no memory for its answer")


def _too_large_refusal(size: int, limit: int) -> Refusal:
    return Refusal(
        "MESSAGE_TOO_LARGE",
        f"the command was applied, but its answer has {size} bytes and {limit} are the cap",
        limit=limit,
    )
