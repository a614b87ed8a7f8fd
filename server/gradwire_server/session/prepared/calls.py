"""Calls of prepared ops: applies calls that are encoded as 8-byte words in one buffer.

So decoding is one conversion for all calls and a few lookups for each.
"""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from struct import unpack
from typing import Any, TypeAlias

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_engine import EngineError, Tensor
from gradwire_engine.autograd.repeated_step import Ran, Running
from gradwire_server.common.engine_errors import describe_operands
from gradwire_server.common.errors import Refusal
from gradwire_server.session.prepared.ops import Prepared, Words
from gradwire_server.session.prepared.steps import BACKWARD, CLEAR, CREATE, LONG, NAME, Commands, Known, Step
from gradwire_server.session.prepared.templates import Found
from gradwire_server.session.retry import retry_or_refuse
from gradwire_server.session.session import Session
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.tensor_commands import bind_results, create, detach_from_intermediates, is_plain
from gradwire_server.session.writers import Writer

MAX_PREPARED_BYTES = 256
_WORD = 8
_MOST_BEFORE = 256  # commands from a step's first calls to its backward
#: Yields in pauses, and returns how many commands have run.
Commanded: TypeAlias = Generator[None, None, int]


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
    prepared = session.issuer().prepared
    if request.number in prepared:
        session.templates.drop()
    prepared[request.number] = Prepared(request.op, session)


def find_step(
    session: Session, writer: Writer, commands: Sequence[service_pb2.Command], kinds: Sequence[str], first: int
) -> Step | None:
    """The step that begins with the calls of command `first`, before a backward; None if there is none."""
    steps = session.steps
    if steps is None or not session.repeat_room.is_open or _backward_of(commands, kinds, first) < 0:
        return None
    calls = commands[first].calls
    prepared = writer.prepared.get(int.from_bytes(calls.words[:_WORD], "little"))
    if prepared is None or not prepared.has_operands:
        return None  # it makes a tensor of nothing, as a step's first leaf
    if not steps.is_worth((calls.count, calls.words[:_WORD], len(calls.words))):
        return None
    found = collect(writer, commands, kinds, first)
    return None if found is None else steps.find(found)


def collect(
    writer: Writer, commands: Sequence[service_pb2.Command], kinds: Sequence[str], first: int = 0
) -> Commands | None:
    """The commands from `first` on that may be joined to a step; None without calls before a backward."""
    backward = _backward_of(commands, kinds, first)
    if backward < 0 or kinds[first] != "calls" or not is_joinable(commands[backward]):
        return None
    found = Commands(first)
    for at in range(first, backward):
        if kinds[at] == CLEAR:
            found.add(CLEAR, at, commands[at].set_grad.tensor)
        elif kinds[at] == CREATE:
            found.add(CREATE, at, commands[at].create.id)
        elif not _add_calls(writer, found, commands[at], at):
            return None
    if any(isinstance(kind, Prepared) and kind.call.in_place for kind in found.kinds):
        return None  # it may be the end of the step before
    found.add(BACKWARD, backward, commands[backward].backward.tensors[0])
    found.cut = True
    for at in range(backward + 1, len(commands)):
        command, kind = commands[at], kinds[at]
        if kind == "calls":
            count = len(found.kinds)
            if not _add_calls(writer, found, command, at):
                break
            added = [kind.call for kind in found.kinds[count:] if isinstance(kind, Prepared)]
            if any(call.op.views != "never" for call in added):
                found.drop(count)  # a view may be seen after the step
                found.cut = False
                break
            in_place = any(call.in_place for call in added)
            if _backward_of(commands, kinds, at) > 0 and not in_place:
                found.drop(count)
                found.cut = False
                break
        elif kind == NAME and not command.timeout_ms and command.quiet:
            found.add(NAME, at, command.grad.tensor, command.grad.id)
        elif _clears(command, kind):
            found.add(CLEAR, at, command.set_grad.tensor)
        else:
            found.cut = kind == "release"
            break
    return found


def _backward_of(commands: Sequence[service_pb2.Command], kinds: Sequence[str], at: int) -> int:
    """Where the backward is that follows a command, with nothing between that cannot belong to its step; else -1."""
    for place in range(at + 1, min(len(kinds), at + _MOST_BEFORE)):
        kind, command = kinds[place], commands[place]
        if kind == BACKWARD:
            return place
        if not (kind == "calls" or _clears(command, kind) or (kind == CREATE and _creates(command))):
            break
    return -1


def _creates(command: service_pb2.Command) -> bool:
    """Whether a command creates a tensor of bytes that it has, and can be taken back."""
    request = command.create
    return bool(command.quiet and not command.timeout_ms and request.id and request.WhichOneof("source") == "payload")


def _clears(command: service_pb2.Command, kind: str) -> bool:
    """Whether a command drops a gradient."""
    return kind == CLEAR and command.quiet and not command.timeout_ms and not command.set_grad.grad


def is_joinable(command: service_pb2.Command) -> bool:
    """Whether a backward may run with the calls before it, as one step."""
    return command.quiet and not command.timeout_ms and is_plain(command.backward)


def _add_calls(writer: Writer, found: Commands, command: service_pb2.Command, at: int) -> bool:
    if command.timeout_ms:
        return False
    try:
        ids, numbers, plan = _read(writer, command.calls)
    except Refusal:
        return False  # `run_calls` answers it
    return found.add_calls(plan, ids, numbers, at)


def run_step(
    session: Session,
    writer: Writer,
    step: Step,
    commands: Sequence[service_pb2.Command],
    released: Mapping[int, Sequence[int]],
) -> Commanded:
    """Run a step; how many of its commands have run, 0 with nothing changed. Yields in pauses.

    commands: of the batch. released: ids by the command after which they are released.
    """
    numbers, created = step.numbers, [commands[each].create for each in step.created]
    if numbers is None or (created and not _create_all(session, writer, created)):
        return 0
    at = [each for each in range(step.first, step.end + 1) if each in released]
    gone = list(chain(*map(released.get, at)))  # type: ignore[arg-type]
    done = yield from _run_known(session, writer, step.known, step.ids, numbers, gone)
    if created and not done:
        session.release_all([each.id for each in created])
    return done


def _create_all(session: Session, writer: Writer, requests: Sequence[commands_pb2.CreateRequest]) -> bool:
    """Create the tensors of a step before its calls; False, with nothing changed, if that fails."""
    if not _may_join(session, writer):
        return False
    made: list[int] = []
    try:
        for each in requests:
            create(session, each, None)
            made.append(each.id)
    except Exception:  # noqa: BLE001 - the command raises it again
        session.release_all(made)
        return False
    return True


def run_found(session: Session, writer: Writer, found: Found, released: Sequence[int]) -> Commanded:
    """Run a step that was found by its bytes, as `run_step`.

    released: ids that are released when it has run.
    """
    template = found.template
    if not template.is_of(writer):
        return 0
    return (yield from _run_known(session, writer, template.known, found.ids, found.numbers, released))


def _run_known(
    session: Session,
    writer: Writer,
    known: Known,
    ids: Sequence[int],
    numbers: Sequence[float],
    released: Sequence[int],
) -> Commanded:
    if session.steps is None or not _may_join(session, writer):
        return 0
    gone = set(released)
    first = writer.command_number(writer.applied + 1)
    times: list[float] = []
    running = known.run(session, ids, numbers, gone, first)
    ran = yield from (_timed(running, times) if known.calls > LONG else running)
    if ran is None:
        return 0
    session.steps.has_run()
    done = known.calls + 1 + ran.done
    whole = done == len(known.kinds)
    # Where a command failed, the batch's last command releases what is not needed any more.
    known.bind(session, ids, ran, gone, whole)
    _count(session, writer, known.kinds[:done])
    if whole:
        gone.difference_update(known.named(ids))
        session.release_all(gone)
        if times:
            session.joined = done, sum(times)
    return done


def _timed(running: Running, times: list[float]) -> Running:
    """The same; adds the processor time of each part to `times`, without that of other sessions in pauses."""
    while True:
        began = time.thread_time()
        try:
            next(running)
        except StopIteration as done:
            ran: Ran | None = done.value
            return ran
        finally:
            times.append(time.thread_time() - began)
        yield


def _may_join(session: Session, writer: Writer) -> bool:
    """Whether a session's commands may run as a step: none is timed, cancelled, in a hook, or failed."""
    token = session.cancel_token
    if session.hooks.suspended:
        return False  # a gradient that is cleared in a hook concerns the backward that waits for it
    if session.activity.op_times is not None or session.activity.watched is not None or session.failed_ids:
        return False
    if token.cancel_ticket >= token.ticket or token.deadline is not None or type(token) is not CancelToken:
        return False  # a replay follows the log command by command
    if token.cancelled_through and token.cancelled_through.get(writer.number, -1) > writer.applied:
        return False
    if session.transfers.borrowed:
        try:
            session.transfers.copy_borrowed()
        except MemoryError:
            return False  # a call is refused for it
    return True


def _count(session: Session, writer: Writer, kinds: Sequence[Prepared | str]) -> None:
    """Note that commands were applied."""
    writer.applied += len(kinds)
    session.cancel_token.seq = writer.applied
    session.command.number = writer.command_number(writer.applied)
    meter = session.usage.meter
    if meter is not None:
        meter.called([each.call.name for each in kinds if isinstance(each, Prepared)])
        for each in kinds:
            if isinstance(each, str):
                meter.applied(each, None, None)


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
        repeats = prepared.repeats
        likely = repeats.last.following
        if prepared.outputs == 1:
            session.check_new(ids[at + prepared.width - 1])
        elif not call.in_place:
            session.check_all_new(prepared.new_ids(ids, at))
        result: Any = likely.call(arguments, prepared.context)
        if result is None:
            result = prepared.apply(arguments)
        else:
            repeats.last = likely
        if call.in_place:
            return
        if type(result) is Tensor and prepared.outputs == 1:
            view = result.view
            if view is not None and view.base not in session.names:
                detach_from_intermediates(session, arguments, (result,))
            session.bind(ids[at + prepared.width - 1], result)
        else:
            results = (result,) if type(result) is Tensor else result
            bind_results(session, call, arguments, results, prepared.new_ids(ids, at), None)
    except EngineError as error:
        describe_operands(error, call.name, arguments)
        raise
