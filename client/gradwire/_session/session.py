"""Session: sends commands in batches, and hands out the answers in order.

A command waits in the `Outbox`; the common path only appends to its `buffer`, which is atomic. It leaves in a batch,
which `Retransmission` delivers exactly once. A few batches are in flight at most, within the credit that the server
grants. Further senders wait, which is the backpressure. A waiting command has a `Waiter`; its thread flushes and
receives until the answer arrives. A deferred command has a `MemoEntry`. If it is refused, the error is raised at the
next wait and names the line that issued the command.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from sys import modules
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import find_call_site
from gradwire._base.errors import GradwireError, make_error, refuse
from gradwire._base.signals import (
    Interrupted,
    defer_exception,
    deferring_signals,
    deliver,
    interrupted,
    wrap_handlers,
    wrap_new_handlers,
)
from gradwire._base.timeouts import TIMEOUT, Alarm
from gradwire._proxy.draw_order import DrawOrder
from gradwire._proxy.handle import UNKNOWN
from gradwire._proxy.memo import MEMO_LIMIT, MemoEntry, Model
from gradwire._proxy.root_reads import RootReads
from gradwire._proxy.shadow_graph import HookHolders
from gradwire._session.deferred_errors import WRITER_SHIFT, CallSite, DeferredErrors
from gradwire._session.entered import enter, leave
from gradwire._session.module_calls import ModuleCall, Owner, attribute, new_log
from gradwire._session.outbox import BATCH_BYTES, Outbox, Waiter
from gradwire._session.saving import Snapshot, restored_tensors, save_session
from gradwire._transport import wire
from gradwire._transport.bulk import Bulk
from gradwire._transport.finalizer import ORPHANS, Finalizer
from gradwire._transport.opening import ANYWHERE, Placing, open_session, restore_session
from gradwire._transport.retransmission import (
    MAX_IN_FLIGHT,
    PATIENCE_SECONDS,
    InFlightBatch,
    Retransmission,
    TimingsReceiver,
    WaitTimeout,
)
from gradwire._transport.tracing import traceparent
from gradwire._transport.transport import OUTCOME_WAIT_SECONDS, SIGNAL_CHECK_SECONDS, Transport
from gradwire.v1 import commands_pb2, hooks_pb2, service_pb2
from gradwire.v1 import errors_pb2 as pb
from gradwire.v1.command_facts import FACTS

if TYPE_CHECKING:
    from gradwire._proxy.protocols import HookCallback, RecorderProtocol, SegmentsProtocol
    from gradwire._session.summary import Summary

#: Buffered commands that trigger a batch.
BATCH_COMMANDS = 64
#: The same while no batch is in flight: the server has nothing to do.
EARLY_COMMANDS = 16
# With more batches in flight, more commands are buffered for the next. At this number the client flushes, and may wait.
_MOST_WAITING = 1024
# Most commands that a segment of a compiled function holds back.
_MOST_IN_SEGMENT = 1024
_CLOSE_PATIENCE_SECONDS = 3.0  # for an unreachable server, in `close`
# Commands whose answer may name a hook to run.
_SUSPENDING = tuple(name for name, facts in FACTS.items() if facts.may_suspend)
_NOTHING = service_pb2.RunResponse()
_IDS_PER_WRITER = 40  # of a server that does not tell first_id


def _check_stack_room(frames: int = 30) -> None:
    """Raise RecursionError here, before any state changes, if fewer than `frames` stack frames are left."""
    if frames:
        _check_stack_room(frames - 1)


def _runs() -> str | None:
    """Tell why the server's process has ended, of a server that this process did not start: it is not known."""
    return None


class Session:
    """A session on a server, as returned by gradwire.connect(). Tensors hold a reference to their session.

    As a context manager it is the session of new tensors inside the block. Closing it frees its tensors on
    the server. An unreferenced session closes itself.
    """

    def __init__(
        self,
        transport: Transport,
        embedded: Any = None,
        sync: bool = False,
        restore: str | None = None,
        patience: float = PATIENCE_SECONDS,
        placing: Placing = ANYWHERE,
    ) -> None:
        wrap_handlers()
        self._transport = transport
        self._embedded = embedded
        #: Whether every call waits (GRADWIRE_SYNC=1).
        self.every_call_waits = sync
        restored = None
        if restore is not None:
            restored = restore_session(transport, restore, placing.device_type)
            answer = restored.session
        else:
            answer = open_session(transport, placing)
        self._session_id = answer.session_id
        self.limits = answer.limits
        self._bulk = Bulk(transport, answer)
        self.lease_seconds = max(answer.lease_ms, 1) / 1000
        self._expires_unix_ms = answer.expires_unix_ms

        #: Number of changes that no tensor's storage counts: by programs, and by `tensor.data = …`.
        self.untracked_writes = 0
        #: Number of commands that may have written to tensors without such a count: runs of programs.
        self.hidden_writes = 0
        #: Number of those that may have written to floating tensors alone: backward and steps of optimizers.
        self.float_writes = 0
        #: Number of in-place changes of any tensor, for tensors whose memory others may share uncounted.
        self.in_place_writes = 0
        #: Whether tensors may share memory without a common storage state: after x.data = y and x.set_(y), or restored.
        self.shares_memory = restored is not None
        #: Whether another client may work in the session, which the program has asked for its id.
        self.others_may_write = False
        self.draws = DrawOrder()
        self.root_reads = RootReads()
        #: Seed and algorithm of the last manual_seed(); a new object for each. None before.
        self.seeding: tuple[int, str] | None = None
        self.memo: dict[tuple[object, ...], MemoEntry] = {}
        #: Number of nodes in the memo's keys: structures of graphs whose derivatives are known.
        self.remembered_nodes = 0
        #: Tensors that changed their description without an op, and the next id then (`graph_structure`).
        self.redescribed: dict[int, int] = {}
        #: Nodes before this id may have saved any such tensor.
        self.redescribed_any = 0
        #: What is known of calls that differ in numbers and sizes from those in the memo; None: a refused one.
        self.models: dict[tuple[object, ...], Model | None] = {}
        self._outbox = Outbox()
        #: Its commands and released ids, to which others append.
        self.buffer, self.released = self._outbox.commands, self._outbox.released
        self._numbers = itertools.count(1)
        self.ids: Iterator[int] = itertools.count(answer.first_id or (answer.writer << _IDS_PER_WRITER) + 1)
        #: Number of buffered commands at which `flush_if_full` is called next.
        self.check_at = EARLY_COMMANDS
        self._writer = answer.writer
        self._cancelled = 0  # commands through this seq were cancelled
        self._send_lock = threading.RLock()
        self._sending_thread = self._receiving_thread = 0  # those inside `_send_batch` and `_receive`
        self._receive_lock = threading.RLock()
        self._deferred_errors = DeferredErrors(answer.writer)
        self._module_calls = new_log()
        #: Leaves that require grad and tensors that retain their gradient, by id.
        self.watched: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        #: Callbacks of backward by number, until the server drops their hooks.
        self.hooks: dict[int, HookCallback] = {}
        self.hook_holders = HookHolders()
        #: Records the commands of a function that is being compiled.
        self.recorder: RecorderProtocol | None = None
        #: Replaces the commands of a compiled function that is being called by programs.
        self.segments: SegmentsProtocol | None = None
        self._step_ends = self._outbox.step_ends
        self._kept: deque[tuple[int, object]] = deque()  # what lives until a command is answered, with its seq
        #: Receivers of batch timings: gradwire.timings.
        self.timed: tuple[TimingsReceiver, ...] = ()
        #: The programs in the server's cache by hash, least recently run first: the server drops the first. The value
        #: is the program's bytes, or None if only the server has them.
        self.programs: OrderedDict[bytes, bytes | None] = OrderedDict()
        self._unusable: GradwireError | None = None
        transport.set_local_stream(answer.local_stream)
        transport.patience = patience
        # A method of this session here would make a cycle. Then it would end only when garbage is collected.
        exit_reason = _runs if embedded is None else embedded.exit_reason
        self._retransmission = Retransmission(transport, answer, exit_reason, patience)
        self._session_finalizer = Finalizer(transport, self._session_id, embedded)
        self._finalizer = weakref.finalize(self, ORPHANS.put, self._session_finalizer)
        self._finalizer.atexit = False
        self._restored = restored
        #: The named tensors of a session opened by gradwire.restore(); empty for others.
        self.tensors: dict[str, Any] = {}

    @property
    def session_id(self) -> str:
        """The id by which other clients work in this session. From now on each value is read from the server."""
        self.others_may_write = self.draws.apart = True
        return self._session_id

    @property
    def address(self) -> str:
        """The address of the server that has the session. In a cluster it may change."""
        return self._transport.address

    def begin(self) -> None:
        """Open the stream. If it fails, the session ends like an unreferenced one."""
        while True:
            try:
                self._retransmission.connect()
                break
            except Interrupted:
                deliver()
        if self._restored is not None:
            self.tensors = restored_tensors(self, self._restored)
            self._restored = None

    def __repr__(self) -> str:
        state = "" if self._unusable is None else f", {self._unusable}"
        return f"<gradwire.Session at {self.address}{state}>"

    # Sending.

    def post(self, command: bytes, entry: MemoEntry) -> None:
        """Buffer a framed, quiet command."""
        self.buffer.append((command, entry, 0))
        if len(self.buffer) >= self.check_at:
            self.flush_if_full()

    def post_op(self, entry: MemoEntry, values: Sequence[wire.Value]) -> None:
        """Buffer an op that succeeded before, as a call of a prepared op if possible."""
        template = entry.template or entry.make_template()
        if not entry.number and template.op:
            self._prepare(entry, template.op)
        if entry.number:
            self.buffer.append((entry.words(entry.number, *values), entry, entry.call_kind))
            if len(self.buffer) >= self.check_at:
                self.flush_if_full()
        else:
            self.post(template.fill(values), entry)

    def _prepare(self, entry: MemoEntry, op: bytes) -> None:
        """Prepare an op under a new number. Numbers are never reused, because other threads may be adding calls."""
        number = next(self._numbers)
        if number < self.limits.max_prepared:
            # Buffered before the entry gets its number, so no thread's call can precede it.
            self.buffer.append((wire.prepare_command(number, op), None, 0))
            entry.number = number
            entry.quick = entry.plain and not entry.fixed

    def flush_if_full(self) -> None:
        """Send a batch, unless it should grow: while others are in flight, or until a training step ends."""
        waiting = len(self.buffer)
        self.check_at = waiting + EARLY_COMMANDS
        if self.segments is not None and waiting < _MOST_IN_SEGMENT:
            return
        if near := self._step_ends.near(self.position()):
            self.check_at = waiting + max(near, EARLY_COMMANDS)
            return
        if self._step_ends.are_far():
            self._take_arrived()
        is_idle = not self._retransmission.in_flight
        if waiting >= (EARLY_COMMANDS if is_idle else self._enough()):
            self.flush()

    def begin_backward(self) -> None:
        """Note that a backward is about to be sent: gradients accumulate in place."""
        self.float_writes += 1
        if self.draws.in_backward:
            self.draws.begin()

    def end_step(self) -> None:
        """Send whole training steps, if enough wait; called when a backward was buffered."""
        begun = self._step_ends.note(self.buffer, self.position())
        self.check_at = len(self.buffer) + EARLY_COMMANDS  # the next step may be another
        if not begun or self.segments is not None or self.recorder is not None:
            return
        if self._step_ends.waits_for_long():
            self._take_arrived()
        least = self._enough() if self._retransmission.in_flight else begun + 1
        if len(self.buffer) >= least:
            self.flush(begun=begun)

    def _enough(self) -> int:
        """Number of commands that are sent, which grows with the batches in flight."""
        return min(_MOST_WAITING, BATCH_COMMANDS << max(0, len(self._retransmission.in_flight) - 1))

    def flush_early(self) -> None:
        """Send slow commands early: the fewer batches are in flight, the smaller the batch."""
        if self.segments is None and len(self.buffer) >= min(1 << len(self._retransmission.in_flight), BATCH_COMMANDS):
            self.flush()

    def post_large(self, command: bytes, entry: MemoEntry) -> None:
        """Buffer a framed, quiet command with many bytes."""
        self._outbox.large_bytes += len(command)
        self.post(command, entry)
        if self._outbox.large_bytes >= BATCH_BYTES:
            self.flush()

    def remember(self, entry: MemoEntry) -> None:
        """Store an entry in the memo, so the next execution of its command is deferred."""
        if not self.every_call_waits and self._unusable is None:
            if len(self.memo) >= MEMO_LIMIT:
                self.memo.clear()
            self.memo[entry.key] = entry

    def remember_model(self, model: Model) -> None:
        """Store a model, so calls with other numbers and sizes than the first are deferred."""
        if not self.every_call_waits and self._unusable is None:
            if len(self.models) >= MEMO_LIMIT:
                self.models.clear()
            self.models[model.key] = model

    def flush(self, until: float | None = None, begun: int = 0) -> None:
        """Send all buffered commands. Wait only for room among the in-flight batches.

        begun: the last commands, which may wait for others. A pending signal ends the wait. Raises WaitTimeout if the
        wait lasts beyond `until`, a time.monotonic() value.
        """
        wrap_new_handlers()
        if self._in_finalizer():
            return  # they are sent next
        if not self._acquire(self._send_lock, until):
            return
        try:
            if self.segments is not None:
                self.segments.close()
            end = self.position() - begun if begun else None
            while (self.buffer or self.released) if end is None else self._outbox.taken < end:
                self.raise_if_unusable()
                while not self._has_room():
                    self._receive(until=until)
                    if interrupted():
                        return
                self._retransmission.wait_sent()
                if interrupted():
                    return
                _check_stack_room()
                self._send_batch(end)
            self._retransmission.finish_sending()
        finally:
            self._send_lock.release()

    def replace_buffered(self, first: int, replace: Callable[[Sequence[Any]], Sequence[Any]]) -> int:
        """Let `replace` change the commands buffered from position `first` on, unless some of them were sent.

        Returns the position of the next command.
        """
        with self._send_lock:
            if self._outbox.replace(first, replace):
                self.check_at = len(self.buffer) + EARLY_COMMANDS
            return self.position()

    def position(self) -> int:
        """The number of commands that were ever buffered: the next command's position."""
        return self._outbox.position()

    def drop_released(self, ids: Sequence[int]) -> None:
        """Forget the releases of ids that the server never gets to know."""
        self._outbox.forget_released(ids)

    def note_program(self, name: bytes, data: bytes | None) -> None:
        """Note that the server has a program. It then drops those over the limit."""
        self.programs[name] = data
        while len(self.programs) > self.limits.max_programs:
            self.programs.popitem(last=False)

    def _has_room(self) -> bool:
        return self._retransmission.has_room(self._outbox.least_bytes())

    def _send_batch(self, end: int | None) -> None:
        """Send the next commands as a batch. If none can be made of them, they are lost: the session is unusable then.

        Python may run any finalizer meanwhile. Its commands are of a later batch.
        """
        self._sending_thread = threading.get_ident()
        try:
            self._retransmission.send(self._take_batch(end))
        except BaseException as error:
            message = f"no batch could be made of the commands: {error!r}"
            self._make_unusable(make_error(pb.REASON_INTERNAL, message, 13))
            if isinstance(error, Exception):
                self.raise_if_unusable()
            raise
        finally:
            self._sending_thread = 0

    def _in_finalizer(self) -> bool:
        """Whether this thread is sending or receiving already: Python runs a finalizer in it."""
        return threading.get_ident() in (self._sending_thread, self._receiving_thread)

    def _refuse_in_finalizer(self) -> None:
        """Raise RuntimeError in such a finalizer, which no answer can reach."""
        if self._in_finalizer():
            raise refuse(
                "a finalizer (__del__), or a signal handler after three seconds of waiting, asks for a value while its "
                "thread sends the session's commands or receives answers. It may issue commands, but read no values"
            )

    def _take_batch(self, end: int | None = None) -> InFlightBatch:
        """The next commands as a batch; those from position `end` on are left."""
        recorder = self.recorder  # read once: the maintenance thread may send while a recording ends
        most_bytes = self._retransmission.batch_bytes(min(BATCH_BYTES, self.limits.max_message_bytes or BATCH_BYTES))
        taken = self._outbox.take(most_bytes, self.limits.max_batch_commands or 1024, end)
        self.check_at = len(self.buffer) + EARLY_COMMANDS
        timed = self.timed
        request, size = wire.stream_batch(
            taken.first,
            self._retransmission.acknowledged,
            taken.commands,
            bool(timed),
            traceparent() if "opentelemetry" in modules else "",
            bool(timed) and any(each.wants_ops for each in timed),
            recorded=recorder is not None and recorder.becomes_program,
        )
        return InFlightBatch(taken.first, taken.records, request, size, timed, self._step_ends.length, taken.waiters)

    # Waiting.

    def wait(
        self,
        command: service_pb2.Command,
        outputs: tuple[int, ...] = (),
        meanwhile: Callable[[], object] | None = None,
    ) -> service_pb2.Result:
        """Send a command after all buffered ones, and wait for its answer.

        `outputs` are the ids of its new tensors, released if the wait fails. `meanwhile` is called while the server
        computes. Raises GradwireError: the refusal of this command, or a deferred error.
        """
        self.raise_if_unusable()
        recorder = self.recorder
        if recorder is not None:
            recorder.check(command)
        self.draws.begin_command(command)
        waiter = Waiter(CallSite(*find_call_site()))
        timeout = TIMEOUT.get()
        if timeout is None:
            data = command.SerializeToString()
        else:
            command.timeout_ms = max(1, int(timeout * 1000))
            data = command.SerializeToString()
            command.ClearField("timeout_ms")
        try:
            self._outbox.append_counted(data, waiter)
            if meanwhile is not None:
                if timeout is None:
                    self.flush()
                meanwhile()
            if timeout is None:
                self._await(waiter)
            else:
                with Alarm(timeout, self._retransmission.drop) as alarm:
                    self._await(waiter, alarm.until)
            assert waiter.result is not None
            self._raise_refusal(waiter.result)
        except BaseException as error:
            self._clean_up_wait(command, waiter, outputs, error)
            if isinstance(error, WaitTimeout):
                raise make_error(
                    pb.REASON_DEADLINE_EXCEEDED,
                    f"no answer within {timeout} seconds, the limit set by gradwire.timeout",
                    4,
                ) from None
            raise
        if recorder is not None:
            recorder.add_command(command, waiter.result)
        return waiter.result

    def post_recorded(self, command: service_pb2.Command, entry: MemoEntry) -> None:
        """Record a command whose answer is known, and buffer it. Raises GradwireError as `wait` does, but not its
        refusal.
        """
        self.raise_if_unusable()
        assert self.recorder is not None
        self.recorder.check(command)
        command.quiet = True
        data = command.SerializeToString()  # before the recorder puts numbers of the program into it
        self.recorder.add_command(command, None)
        self.post_large(wire.framed(data), entry)

    def issue(self, command: service_pb2.Command) -> Callable[[], service_pb2.Result]:
        """Send a command after all buffered ones; return the function that waits for its answer.

        The function raises GradwireError as `wait` does. It must be called: no one else reports a refusal.
        """
        if self.recorder is not None or self.every_call_waits or TIMEOUT.get() is not None:
            result = self.wait(command)
            return lambda: result
        self.raise_if_unusable()
        self.draws.begin_command(command)
        waiter = Waiter(CallSite(*find_call_site()))
        data = command.SerializeToString()
        self._outbox.append_counted(data, waiter)

        def answer() -> service_pb2.Result:
            self.raise_if_unusable()
            if waiter.result is None:
                self._await(waiter)
            assert waiter.result is not None
            self._raise_refusal(waiter.result)
            return waiter.result

        return answer

    def _await(self, waiter: Waiter, until: float | None = None) -> None:
        """Wait for an answer. An exception of a signal handler ends the wait, unless the command was executed.

        In that case the exception is raised after the call, so the client's state matches the server's.
        """
        self._refuse_in_finalizer()
        while True:
            self.flush(until)
            while waiter.result is None and not interrupted():
                self._receive(waiter, until)
            if waiter.result is not None:
                return
            try:
                deliver()
            except BaseException as error:
                self._cancel_unanswered(waiter)
                if not self._was_executed(waiter):
                    raise
                defer_exception(error)
                return

    def _was_executed(self, waiter: Waiter) -> bool:
        """Whether an interrupted command was executed. Waits up to OUTCOME_WAIT_SECONDS for its answer."""
        if self._remove_unsent(waiter):
            return False
        ends = time.monotonic() + OUTCOME_WAIT_SECONDS
        with (
            contextlib.suppress(GradwireError, WaitTimeout),
            Alarm(OUTCOME_WAIT_SECONDS, self._retransmission.drop),
            deferring_signals(),
        ):
            while waiter.result is None and time.monotonic() < ends:
                self.flush(ends)
                self._receive(waiter, ends)
        return waiter.result is not None and not waiter.result.HasField("error")

    def _remove_unsent(self, waiter: Waiter) -> bool:
        """Remove an unsent command from the buffer; return whether that succeeded."""
        if self._send_lock.acquire(blocking=False):
            try:
                return self._outbox.remove(waiter)
            finally:
                self._send_lock.release()
        return False

    def _clean_up_wait(
        self, command: service_pb2.Command, waiter: Waiter, outputs: tuple[int, ...], error: BaseException
    ) -> None:
        """Clean up after a failed wait: release the outputs, and stop the command unless it was answered.

        The command may have succeeded. Then `error` is the deferred error of an earlier command.
        """
        self.released.extend(outputs)
        result = waiter.result
        if result is not None and not result.HasField("error"):
            self._abandon_suspended(result)
        elif isinstance(error, GradwireError) and (result is not None or self._unusable is not None):
            return
        else:
            self._cancel_unanswered(waiter)
        if FACTS[command.WhichOneof("command") or ""].differentiates:
            self._mark_gradients_unknown(of_all=True)

    def _abandon_suspended(self, result: service_pb2.Result) -> None:
        """Abandon a backward that is suspended at a hook."""
        for name in _SUSPENDING:
            answer = getattr(result, name)
            if answer.HasField("due"):
                request = hooks_pb2.ResumeBackwardRequest(backward=answer.due.backward, abandon=True)
                self.abandon(service_pb2.Command(resume_backward=request))

    def _cancel_unanswered(self, waiter: Waiter) -> None:
        """Cancel a sent command after its wait ended.

        The command is not cancelled if an earlier command would be cancelled too: to the program, deferred commands are
        done.
        """
        for batch in tuple(self._retransmission.in_flight):
            for index, record in enumerate(batch.records):
                if record is waiter:
                    if batch.first + index > self._cancelled:
                        self._cancel(batch.first + index)
                    return
                if record is not None and not (type(record) is Waiter and record.result is not None):
                    return

    def abandon(self, command: service_pb2.Command) -> None:
        """Buffer a quiet command that abandons a suspended backward."""
        command.quiet = True
        self.buffer.append((wire.framed(command.SerializeToString()), None, 0))

    def cancel(self) -> None:
        """Cancel all commands that were sent and are not done. Any thread may call this.

        Waiting calls raise GradwireError with reason "CANCELLED". Deferred commands after the stopped one are not
        executed, and commands that need their results are refused.
        """
        self.raise_if_unusable()
        self._cancel(self._outbox.next_seq - 1)

    def _cancel(self, seq: int) -> None:
        self._cancelled = max(self._cancelled, seq)
        self.draws.undone()
        request = service_pb2.CancelRequest(session_id=self._session_id, writer=self._writer, through_seq=seq)
        self._transport.notify("Cancel", request)

    def _raise_refusal(self, result: service_pb2.Result) -> None:
        try:
            self._deferred_errors.raise_first()
            if result.HasField("error"):
                raise self._deferred_errors.explain(result.error)
        except GradwireError:
            self.raise_if_unusable()  # if `close` cancelled the command, report the close
            raise

    def sync(self) -> None:
        """Wait until all issued commands are done. Raises GradwireError if one of them was refused."""
        self._refuse_in_finalizer()
        self.raise_if_unusable()
        self.flush()
        while interrupted():
            deliver()
            self.flush()
        while self._retransmission.in_flight:
            self._receive()
            deliver()
        self._deferred_errors.raise_first()

    def _receive(self, waiter: Waiter | None = None, until: float | None = None) -> None:
        """Wait for the oldest batch and hand out its answers. Return at once if `waiter` has its answer.

        A pending signal ends the wait. Raises WaitTimeout after `until`, a time.monotonic() value. The time is checked
        when the link is dropped.
        """
        if not self._acquire(self._receive_lock, until):
            return
        before, self._receiving_thread = self._receiving_thread, threading.get_ident()
        try:
            retransmission = self._retransmission
            if not retransmission.in_flight:
                self.raise_if_unusable()
                return
            if waiter is not None and waiter.result is not None:
                return
            try:
                answered, response = retransmission.receive(until)
                *silent, last = answered
                for batch in silent:
                    self._deliver_answers(batch, _NOTHING)
                self._deliver_answers(last, response)
                retransmission.remove_answered(answered)
            except GradwireError as error:
                self._make_unusable(error)
                self.raise_if_unusable()
            except Interrupted:
                return
            except BaseException:
                retransmission.drop()
                raise
        finally:
            self._receiving_thread = before
            self._receive_lock.release()

    def _take_arrived(self) -> None:
        """Hand out answers that have arrived, so that `_enough` knows whether the server has nothing to do."""
        if self._in_finalizer() or not self._receive_lock.acquire(blocking=False):
            return
        self._receiving_thread = threading.get_ident()
        try:
            while not interrupted() and self._retransmission.has_answer():
                self._receive()  # returns without the answer if a signal is pending
        finally:
            self._receiving_thread = 0
            self._receive_lock.release()

    def _acquire(self, lock: threading.RLock, until: float | None) -> bool:
        """Acquire a lock. Returns False for a pending signal. Raises WaitTimeout after `until`."""
        if lock.acquire(blocking=False):
            return True
        while not lock.acquire(timeout=SIGNAL_CHECK_SECONDS):
            if interrupted():
                return False
            if until is not None and time.monotonic() >= until:
                raise WaitTimeout
        return True

    def _deliver_answers(self, batch: InFlightBatch, response: service_pb2.RunResponse) -> None:
        sites = batch.records.copy()
        for place in batch.waiters:
            sites[place] = sites[place].call_site
        self._deferred_errors.add_call_sites(batch.first, sites)
        for result in response.results:
            index = result.seq - batch.first
            record = batch.records[index]
            if type(record) is Waiter:
                record.result = result
            elif result.HasField("error") and record is not None:
                self.draws.undone()
                assert isinstance(record, MemoEntry)
                for part in record.parts:
                    # Without the entry the next execution waits, so an error is raised in the call itself.
                    self.memo.pop(part.key, None)
                    part.refused = True
                    self.models[part.key if part.model is None else part.model.key] = None
                if result.seq > self._cancelled or result.error.reason != pb.REASON_CANCELLED:
                    step = result.error.metadata.get("step")
                    part = record.part_at(None if step is None else int(step))
                    self._deferred_errors.add(result.seq, part, result.error)
                if record.name == "register_program":
                    self.programs.clear()  # which of them the server has is not known now
                if any(part.name == "backward" for part in record.parts):
                    self._mark_gradients_unknown()
        if response.HasField("joined"):
            self._step_ends.computed(batch.step_length, response.joined.seconds)
        for number in response.dropped_hooks:
            self.hooks.pop(number, None)
        for each in batch.timed:
            each.add(response)
        for place in batch.waiters:
            waiter = batch.records[place]
            if waiter.result is None:
                waiter.result = service_pb2.Result(
                    error=pb.Error(code=13, reason=pb.REASON_INTERNAL, message="the server did not answer a command")
                )

    def _mark_gradients_unknown(self, of_all: bool = False) -> None:
        """Mark gradients as UNKNOWN after a backward with unknown outcome.

        After a refused backward, tensors without a gradient still have none. `of_all` marks these too, for a backward
        that may have been executed.
        """
        for owner in list(self.watched.values()):
            if of_all or owner._grad is not None:
                owner._grad = UNKNOWN

    # The session's lifetime.

    def raise_if_unusable(self) -> None:
        """Raise the error that made the session unusable, if there was one."""
        if self._unusable is not None:
            error = self._unusable
            raise copy.copy(error) from None

    def _make_unusable(self, error: GradwireError) -> None:
        """Make the session unusable: later uses raise `error`, and all waits end."""
        with self._receive_lock:
            self._unusable = self._unusable or error
            self.memo = {}
            self.models = {}
            self._outbox.clear()
            self._retransmission.clear()

    def after_fork_in_child(self) -> None:
        """Make the session unusable in a forked child: the connection belongs to the parent."""
        self._finalizer.detach()
        self._send_lock = threading.RLock()
        self._sending_thread = 0
        self._receive_lock = threading.RLock()
        self._retransmission.after_fork_in_child()
        self._make_unusable(
            make_error(
                pb.REASON_UNAVAILABLE,
                "this session was opened before os.fork() and belongs to the parent process; its tensors cannot be "
                "used in a forked child. Call gradwire.connect() there, or start the process with the 'spawn' method",
                14,
            )
        )
        if self._embedded is not None:
            self._embedded.forget()

    def flush_without_waiting(self) -> None:
        """Send buffered commands if that needs no wait. Called by the maintenance thread."""
        if self._unusable is not None or self.segments is not None or not self._send_lock.acquire(blocking=False):
            return
        try:
            if (
                self._retransmission.connected
                and len(self._retransmission.in_flight) < MAX_IN_FLIGHT
                and self._has_room()
            ):
                self.flush()
            self._retransmission.acknowledge()
        finally:
            self._send_lock.release()

    def send_keepalive_if_silent(self) -> None:
        """Send a KeepAlive to a silent server. Called by the maintenance thread."""
        if self._unusable is None:
            self._retransmission.send_keepalive_if_silent()

    def renew_lease(self) -> None:
        """Renew the session's lease on the server."""
        if self._unusable is None:
            request = service_pb2.KeepAliveRequest(session_id=self._session_id)
            answer = self._transport.call("KeepAlive", request, service_pb2.KeepAliveResponse, waits=())
            self._expires_unix_ms = answer.expires_unix_ms

    @property
    def expires_at(self) -> datetime:
        """The time when the lease ends without further traffic, as last reported by the server.

        In UTC, by the server's clock. While the program runs, the maintenance thread renews the lease three times per
        `lease_seconds`. Every answer renews it too.
        """
        return datetime.fromtimestamp(self._expires_unix_ms / 1000, timezone.utc)

    def close(self) -> None:
        """End the session and free its tensors. Closing again does nothing.

        Waits for deferred commands, and raises GradwireError if one of them was refused and not reported. If a call in
        another thread is waiting, `close` ends that call with an error instead.
        """
        if self._finalizer.detach() is None:
            return
        was_usable = self._unusable is None
        unobserved = None
        try:
            if was_usable:
                unobserved = self._last_refusal()
        finally:
            # Set first, so the calls of other threads report the close, however they end.
            self._unusable = self._unusable or make_error(pb.REASON_UNAVAILABLE, "the session was closed", 14)
            try:
                self._session_finalizer.run()
            except GradwireError:
                if was_usable:
                    raise
            finally:
                # Closing the channel woke the waiting threads, so they release the locks.
                with self._send_lock:
                    self._make_unusable(self._unusable)
        if unobserved is not None:
            raise unobserved

    def _last_refusal(self) -> GradwireError | None:
        """Drain the deferred commands; return their first refusal, or None."""
        self._retransmission.patience = _CLOSE_PATIENCE_SECONDS
        try:
            if not self._send_lock.acquire(blocking=False):
                return None  # another thread is about to wait
            try:
                while self._no_thread_waits() and (self.buffer or self.released):
                    deliver()
                    self.raise_if_unusable()
                    if self._has_room():
                        self.flush()
                    else:
                        self._receive()
            finally:
                self._send_lock.release()
            while self._no_thread_waits() and self._retransmission.in_flight:
                deliver()
                self._receive()
            self._deferred_errors.raise_first()
        except GradwireError as error:
            return None if error.reason == "UNAVAILABLE" else error
        return None

    def _no_thread_waits(self) -> bool:
        """Whether no thread waits for an in-flight command."""
        in_flight = tuple(self._retransmission.in_flight)
        return not any(type(each) is Waiter and each.result is None for batch in in_flight for each in batch.records)

    def __enter__(self) -> Session:
        enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        leave(self)

    def save(
        self, name: str | None = None, tensors: Mapping[str, Any] | None = None, ttl: float | None = None
    ) -> Snapshot:
        """Store the session on the server: values, gradients, graph, random generator.

        With a name this creates or replaces a snapshot for gradwire.restore(), kept for `ttl` seconds if given.
        `tensors` maps names to the tensors that the restored session gives back. Without a name the server stores the
        state that it would itself recover from.

        Raises NotImplementedError if the server has no --state-dir, or while a backward waits for a hook. Raises
        OSError if the server cannot write, and RuntimeError above the limit of snapshots.
        """
        return save_session(self, name, tensors or {}, ttl)

    # Requests about the server.

    def server_info(self) -> service_pb2.ServerInfoResponse:
        """The server's version, devices, limits, libraries, and current usage."""
        ORPHANS.end()
        return self._transport.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse)

    def _ops_hash(self) -> str:
        """The hash of the server's ops."""
        request = service_pb2.ListOpsRequest(prefix=" ")  # of no op
        answer: service_pb2.ListOpsResponse = self._transport.call("ListOps", request, service_pb2.ListOpsResponse)
        return answer.hash

    def describe(self) -> commands_pb2.DescribeResponse:
        """The number of tensors with an id in the session, and the bytes they hold."""
        self.flush()  # releases of dropped tensors must precede the request
        result = self.wait(service_pb2.Command(describe=commands_pb2.DescribeRequest()))
        return result.describe

    # What issued its commands: lines and modules of the program.

    def summary(self) -> Summary:
        """A table of the program's tensors in the session: bytes, graph, and the line that made each."""
        from gradwire._session.summary import summarize

        return summarize(self)

    def remember_lines(self, most: int = 1 << 20) -> None:
        """Record the program's line of each new tensor for `summary()`. Keeps the newest `most` lines."""
        from gradwire._session.summary import track_ids

        track_ids(self, most)

    def made_at(self, number: int) -> str | None:
        """The line of the program that issued a command, by the command's number on the server; None if unknown."""
        return self._deferred_errors.find(number)

    def next_command(self) -> int:
        """The number that the next command of this writer gets, unless a release comes first."""
        return self._outbox.next_number()

    def keep_until_answered(self, what: object) -> None:
        """Keep an object alive until the commands issued so far are answered."""
        self._kept.append((self.next_command(), what))  # the last command's number, if releases come before it

    def drop_answered(self) -> None:
        """Drop what is kept for commands that are answered. Called by the maintenance thread."""
        if not self._kept or not self._send_lock.acquire(blocking=False):
            return
        try:
            idle = self._unusable is not None or not (self.buffer or self._retransmission.in_flight)
            while self._kept and (idle or self._kept[0][0] <= self._retransmission.acknowledged):
                self._kept.popleft()
        finally:
            self._send_lock.release()

    def note_module_call(self, first: int, owner: Owner | None, kind: str) -> None:
        """Note that a call of a module or a compiled function issued the commands from `first` on."""
        end = self._outbox.next_number()
        if end > first and self.segments is None:
            self._module_calls.append((first, end, threading.get_ident(), owner, kind))

    def module_calls(self, numbers: Sequence[int]) -> tuple[tuple[ModuleCall, ...], dict[int, int]]:
        """The calls of modules that issued commands, and the index of the innermost by the command's number.

        A command is left out if no call is known: it was issued outside of modules, by another writer, or long ago.
        """
        log = list(self._module_calls)
        of_mine = {
            number & ((1 << WRITER_SHIFT) - 1): number for number in numbers if number >> WRITER_SHIFT == self._writer
        }
        calls, inner = attribute(log, of_mine)
        return calls, {of_mine[seq]: index for seq, index in inner.items()}

    # Large tensors.

    def upload(self, data: memoryview) -> str:
        """Upload a large tensor's bytes; return the transfer's id."""
        self.raise_if_unusable()
        return self._bulk.upload(data)

    def download(self, transfer_id: str, into: memoryview) -> None:
        """Download a large tensor's bytes into a buffer."""
        self.raise_if_unusable()
        self._bulk.download(transfer_id, into)
