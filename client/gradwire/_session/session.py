"""A session: commands out in batches, answers back in order, and who waits for what.

A command enters `buffer` (appending is atomic, so that is all the common path does) and leaves in a batch, which
`Retransmission` brings to the server, once only. A few batches are under way at most, of as many bytes as the server
grants; who has more to send waits, which is the backpressure. A waiting command has a `Ticket`, whose owner flushes and
receives until the answer is in. A command that does not wait has the memo's `Entry`; if it is refused all the same,
the refusal is kept and raised at the next wait, naming the line it came from.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from sys import modules
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import find_place
from gradwire._base.errors import GradwireError, make_error
from gradwire._base.signals import Interrupted, deliver, guard, holding, interrupted, look, postpone
from gradwire._base.timeouts import PATIENCE, Alarm
from gradwire._proxy.handle import UNKNOWN
from gradwire._proxy.memo import MEMO_LIMIT, Entry
from gradwire._session.deferred_errors import DeferredErrors, Origin
from gradwire._session.entered import enter, leave
from gradwire._session.saving import Snapshot, restore_on, restored_tensors, save_session
from gradwire._transport import wire
from gradwire._transport.bulk import Bulk
from gradwire._transport.finalizer import ORPHANS, Finalizer
from gradwire._transport.retransmission import (
    MOST_FLIGHTS,
    PATIENCE_SECONDS,
    InFlightBatch,
    Retransmission,
    Timed,
    WaitOver,
)
from gradwire._transport.tracing import traceparent
from gradwire._transport.transport import LAST_WORD_SECONDS, LONGEST_NAP, PROTOCOL, Transport, client_name
from gradwire.v1 import commands_pb2, hooks_pb2, service_pb2
from gradwire.v1 import errors_pb2 as pb

if TYPE_CHECKING:
    from gradwire._proxy.protocols import Recorder, Runner
    from gradwire._session.summary import Summary

#: Commands after which a batch goes without being asked for.
BATCH_COMMANDS = 64
_BATCH_BYTES = 4 << 20
# The more batches are under way the more commands gather for the next, up to this many; then the client waits.
_MOST_WAITING = 1024
_MOST_RELEASES = 65_536
_LAST_PATIENCE_SECONDS = 3.0  # with a server that cannot be reached, when closing
# A release has eight bytes; a batch has this many besides its commands, at most.
_BATCH_HEAD = 64
# Commands that add to gradients.
_ADDING = ("backward", "resume_backward", "gradients", "run_program")
_NOTHING = service_pb2.RunResponse()
# What a call may bring along besides its words, where commands of another kind stand on its sides.
_CALLS_HEAD = 16
_IDS_PER_WRITER = 40


class Ticket:
    """A command whose issuer waits for the answer."""

    __slots__ = ("origin", "result")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.result: service_pb2.Result | None = None


def _find_room(frames: int = 30) -> None:
    """Raise RecursionError here, where nothing is lost by it, if the way out has not that many frames to go."""
    if frames:
        _find_room(frames - 1)


class Session:
    """A session on a server: what gradwire.connect() returns. Tensors hold the session they live in.

    As a context manager it is the session of new tensors inside the block. Closing it frees its tensors on
    the server; a session that nothing refers to any more closes itself.
    """

    def __init__(
        self,
        transport: Transport,
        embedded: Any = None,
        sync: bool = False,
        restore: str | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        guard()
        self._transport = transport
        self._embedded = embedded
        self.address = transport.address
        #: Whether every call waits (GRADWIRE_SYNC=1).
        self.every_call_waits = sync
        restored = None
        if restore is not None:
            restored = restore_on(transport, restore, client_name())
            answer = restored.session
        else:
            answer = transport.call(
                "OpenSession",
                service_pb2.OpenSessionRequest(min_protocol=PROTOCOL, max_protocol=PROTOCOL, client=client_name()),
                service_pb2.OpenSessionResponse,
            )
        self.session_id = answer.session_id
        self.limits = answer.limits
        self._bulk = Bulk(transport, answer)
        self.lease_seconds = max(answer.lease_ms, 1) / 1000
        self._expires_unix_ms = answer.expires_unix_ms

        self.memo: dict[tuple[object, ...], Entry] = {}
        #: What waits to be sent: bytes, who wants to know, and whether it is a call of a prepared op.
        self.buffer: deque[tuple[bytes, Ticket | Entry | None, bool]] = deque()
        self.released: deque[int] = deque()
        self._numbers = itertools.count(1)
        self.ids: Iterator[int] = itertools.count((answer.writer << _IDS_PER_WRITER) + 1)
        #: Bytes of large commands in the buffer; small ones are not counted.
        self.buffered_bytes = 0
        self._writer = answer.writer
        self._next_seq = 1
        self._cancelled = 0  # commands through this seq were meant to be stopped
        self._send_lock = threading.RLock()
        self._receive_lock = threading.RLock()
        self._late = DeferredErrors(answer.writer)
        #: Leaves that require grad and tensors that retain theirs, by id.
        self.watched: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        #: What backward may ask this client to run, by number, until the server says that nothing asks any more.
        self.hooks: dict[int, Runner] = {}
        #: What notes the commands of a function that is being compiled.
        self.recorder: Recorder | None = None
        #: What adds up the times of batches: gradwire.timings.
        self.timed: tuple[Timed, ...] = ()
        #: Hashes of the programs that the server keeps, the one that ran last as the last: it drops the first.
        self.programs: OrderedDict[bytes, None] = OrderedDict()
        self._unusable: GradwireError | None = None
        transport.hear_of_local(answer.local_stream)
        transport.patience = patience
        self._delivery = Retransmission(transport, answer, self._why_dead, patience)
        self._ending = Finalizer(transport, self.session_id, embedded)
        self._finalizer = weakref.finalize(self, ORPHANS.put, self._ending)
        self._finalizer.atexit = False
        self._restored = restored
        #: Of a session that gradwire.restore() opened: its tensors by the names that they were saved under.
        self.tensors: dict[str, Any] = {}

    def begin(self) -> None:
        """Open the stream. Where that fails the session ends as one that nothing refers to does."""
        while True:
            try:
                self._delivery.connect()
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

    def post(self, command: bytes, entry: Entry) -> None:
        """Send a framed, quiet command some time soon."""
        self.buffer.append((command, entry, False))
        if len(self.buffer) >= BATCH_COMMANDS:
            self.press()

    def post_op(self, entry: Entry, values: Sequence[wire.Value]) -> None:
        """Send an op that has succeeded before some time soon: as a call of a prepared op if it can be one."""
        if not entry.number and entry.template.op:
            self._prepare(entry)
        if entry.number:
            self.buffer.append((entry.words(entry.number, *values), entry, True))
            if len(self.buffer) >= BATCH_COMMANDS:
                self.press()
        else:
            self.post(entry.template.fill(values), entry)

    def _prepare(self, entry: Entry) -> None:
        """Give an op a number. It is not given to another ever: calls may be on their way to the buffer."""
        number = next(self._numbers)
        if number < self.limits.max_prepared:
            # Before the entry tells its number, so that no thread's call can come first.
            self.buffer.append((wire.prepare_command(number, entry.template.op), None, False))
            entry.number = number

    def press(self) -> None:
        """Send a batch, unless it should grow while others are under way."""
        waiting = len(self.buffer)
        if waiting >= _MOST_WAITING or waiting >= BATCH_COMMANDS << max(0, len(self._delivery.flights) - 1):
            self.flush()

    def urge(self) -> None:
        """What is buffered takes long to compute: send it soon, the sooner the less is under way."""
        if len(self.buffer) >= min(1 << len(self._delivery.flights), BATCH_COMMANDS):
            self.flush()

    def post_large(self, command: bytes, entry: Entry) -> None:
        """Send a framed, quiet command that carries many bytes."""
        self.buffered_bytes += len(command)
        self.post(command, entry)
        if self.buffered_bytes >= _BATCH_BYTES:
            self.flush()

    def remember(self, entry: Entry) -> None:
        """Let the next execution of a command that has succeeded go without waiting."""
        if not self.every_call_waits and self._unusable is None:
            if len(self.memo) >= MEMO_LIMIT:
                self.memo.clear()
            self.memo[entry.key] = entry

    def flush(self, until: float | None = None) -> None:
        """Send what is buffered; waits only while so much is under way already that there is no room.

        Raises WaitOver if that lasts beyond `until`, by time.monotonic(). Ends early for a signal that is held back.
        """
        look()
        if not self._take(self._send_lock, until):
            return
        try:
            while self.buffer or self.released:
                self._refuse_if_unusable()
                while not self._has_room():
                    self._receive(until=until)
                    if interrupted():
                        return
                self._delivery.push()
                if interrupted():
                    return
                _find_room()
                self._delivery.send(self._take_batch())
            self._delivery.see_off()
        finally:
            self._send_lock.release()

    def _has_room(self) -> bool:
        try:
            least = len(self.buffer[0][0])
        except IndexError:  # releases alone
            least = 8 * min(len(self.released), _MOST_RELEASES)
        return self._delivery.has_room(least + 2 * _BATCH_HEAD)

    def _take_batch(self) -> InFlightBatch:
        # A release must come after every use of its id. All that were buffered before the ids were counted go with
        # them, if they fit; else the releases go with a later batch.
        releases = len(self.released)
        waiting = len(self.buffer)
        most = min(self.limits.max_batch_commands or 1024, 4096) - 1
        most_bytes = self._delivery.batch_bytes(min(_BATCH_BYTES, self.limits.max_message_bytes or _BATCH_BYTES))
        commands: list[bytes] = []
        calls: list[bytes] = []
        records: list[Ticket | Entry | None] = []
        size = _BATCH_HEAD
        while self.buffer and len(records) < min(waiting, most):
            following = len(self.buffer[0][0]) + _CALLS_HEAD
            if records and size + following > most_bytes:
                break
            command, record, is_call = self.buffer.popleft()
            if is_call:
                calls.append(command)
            else:
                if calls:
                    commands.append(wire.calls_command(calls))
                    calls = []
                commands.append(command)
            records.append(record)
            size += following
        if calls:
            commands.append(wire.calls_command(calls))
        if len(records) == waiting and releases:
            fitting = min(releases, _MOST_RELEASES, (most_bytes - size) // 8 - _BATCH_HEAD)
            if fitting > 0:
                popleft = self.released.popleft
                commands.append(wire.release_command([popleft() for _ in range(fitting)]))
                records.append(None)
        self.buffered_bytes = max(0, self.buffered_bytes - size)
        first, self._next_seq = self._next_seq, self._next_seq + len(records)
        timed = self.timed
        request, size = wire.stream_batch(
            first,
            self._delivery.acknowledged,
            commands,
            bool(timed),
            traceparent() if "opentelemetry" in modules else "",
        )
        return InFlightBatch(first, records, request, size, timed)

    # Waiting.

    def wait(self, command: service_pb2.Command, outputs: tuple[int, ...] = ()) -> service_pb2.Result:
        """Send a command with all that is buffered and wait for its answer.

        `outputs` are the ids it gives to new tensors: they are released where the wait ends otherwise. Raises
        GradwireError: its own refusal, or one of an earlier command that did not wait.
        """
        self._refuse_if_unusable()
        recorder = self.recorder
        if recorder is not None:
            recorder.check(command)
        ticket = Ticket(Origin(*find_place()))
        patience = PATIENCE.get()
        if patience is None:
            data = command.SerializeToString()
        else:
            command.timeout_ms = max(1, int(patience * 1000))
            data = command.SerializeToString()
            command.ClearField("timeout_ms")
        try:
            self.buffered_bytes += len(data)
            self.buffer.append((wire.framed(data), ticket, False))
            if patience is None:
                self._await(ticket)
            else:
                with Alarm(patience, self._delivery.drop) as alarm:
                    self._await(ticket, alarm.until)
            assert ticket.result is not None
            self._raise_refusal(ticket.result)
        except BaseException as error:
            self._given_up(command, ticket, outputs, error)
            if isinstance(error, WaitOver):
                raise make_error(
                    pb.REASON_DEADLINE_EXCEEDED,
                    f"no answer within {patience} seconds, the limit set by gradwire.timeout",
                    4,
                ) from None
            raise
        if recorder is not None:
            recorder.note(command, ticket.result)
        return ticket.result

    def _await(self, ticket: Ticket, until: float | None = None) -> None:
        """Wait for an answer. What a handler raises meanwhile ends the wait, unless the command was done all the same.

        Then it is raised when the call is over, so that the client has noted what the server did.
        """
        while True:
            self.flush(until)
            while ticket.result is None and not interrupted():
                self._receive(ticket, until)
            if ticket.result is not None:
                return
            try:
                deliver()
            except BaseException as error:
                self._stop(ticket)
                if not self._was_done(ticket):
                    raise
                postpone(error)
                return

    def _was_done(self, ticket: Ticket) -> bool:
        """Whether a command was done that nobody waits for any more; waits a little for its answer to tell."""
        if self._withdraw(ticket):
            return False
        ends = time.monotonic() + LAST_WORD_SECONDS
        with contextlib.suppress(GradwireError, WaitOver), Alarm(LAST_WORD_SECONDS, self._delivery.drop), holding():
            while ticket.result is None and time.monotonic() < ends:
                self.flush(ends)
                self._receive(ticket, ends)
        return ticket.result is not None and not ticket.result.HasField("error")

    def _withdraw(self, ticket: Ticket) -> bool:
        """Take a command back that was not sent yet."""
        if self._send_lock.acquire(blocking=False):
            try:
                for place in range(len(self.buffer) - 1, -1, -1):
                    if self.buffer[place][1] is ticket:
                        del self.buffer[place]
                        return True
            finally:
                self._send_lock.release()
        return False

    def _given_up(
        self, command: service_pb2.Command, ticket: Ticket, outputs: tuple[int, ...], error: BaseException
    ) -> None:
        """Nobody will look at a command's answer: it was refused, or its wait has ended otherwise.

        It may have been done all the same: then what is raised is the refusal of an earlier one, which did not wait.
        """
        self.released.extend(outputs)
        result = ticket.result
        if result is not None and not result.HasField("error"):
            self._give_up_due(result)
        elif isinstance(error, GradwireError) and (result is not None or self._unusable is not None):
            return
        else:
            self._stop(ticket)
        if command.WhichOneof("command") in _ADDING:
            self._doubt_gradients(of_all=True)

    def _give_up_due(self, result: service_pb2.Result) -> None:
        """Give up a backward that waits for a hook which nobody will run."""
        for answer in (result.backward, result.gradients, result.resume_backward):
            if answer.HasField("due"):
                request = hooks_pb2.ResumeBackwardRequest(backward=answer.due.backward, abandon=True)
                self.abandon(service_pb2.Command(resume_backward=request))

    def _stop(self, ticket: Ticket) -> None:
        """Let the server not go on with a command that nobody waits for any more.

        Only if nothing else would be stopped with it: what did not wait has, as the program sees it, been done.
        """
        for flight in tuple(self._delivery.flights):
            for place, record in enumerate(flight.records):
                if record is ticket:
                    if flight.first + place > self._cancelled:
                        self._cancel(flight.first + place)
                    return
                if record is not None and not (type(record) is Ticket and record.result is not None):
                    return

    def abandon(self, command: service_pb2.Command) -> None:
        """Let the server drop what was to be gone on with; nobody waits for that."""
        command.quiet = True
        self.buffer.append((wire.framed(command.SerializeToString()), None, False))

    def cancel(self) -> None:
        """Stop what was sent and is not done; may be called from any thread.

        Calls that wait raise GradwireError with reason "CANCELLED"; of those that did not, none is done after the one
        that is stopped, and what needs their results is refused.
        """
        self._refuse_if_unusable()
        self._cancel(self._next_seq - 1)

    def _cancel(self, seq: int) -> None:
        self._cancelled = max(self._cancelled, seq)
        request = service_pb2.CancelRequest(session_id=self.session_id, writer=self._writer, through_seq=seq)
        self._transport.tell("Cancel", request)

    def _raise_refusal(self, result: service_pb2.Result) -> None:
        try:
            self._late.raise_first()
            if result.HasField("error"):
                raise self._late.explain(result.error)
        except GradwireError:
            self._refuse_if_unusable()  # closing cancels what runs, and is the reason to tell
            raise

    def sync(self) -> None:
        """Wait until everything issued so far is done. Raises GradwireError if any of it was refused."""
        self._refuse_if_unusable()
        self.flush()
        while interrupted():
            deliver()
            self.flush()
        while self._delivery.flights:
            self._receive()
            deliver()
        self._late.raise_first()

    def _receive(self, ticket: Ticket | None = None, until: float | None = None) -> None:
        """Wait for the oldest batch and hand out its answers; not if another thread has answered `ticket` meanwhile.

        A signal that is held back ends the wait. Raises WaitOver when that lasts beyond `until`, by time.monotonic(),
        and somebody drops the link.
        """
        if not self._take(self._receive_lock, until):
            return
        try:
            delivery = self._delivery
            if not delivery.flights:
                self._refuse_if_unusable()
                return
            if ticket is not None and ticket.result is not None:
                return
            try:
                answered, response = delivery.receive(until)
                *silent, last = answered
                for flight in silent:
                    self._hand_out(flight, _NOTHING)
                self._hand_out(last, response)
                delivery.settle(answered)
            except GradwireError as error:
                self._give_up(error)
                self._refuse_if_unusable()
            except Interrupted:
                return
            except BaseException:
                delivery.drop()
                raise
        finally:
            self._receive_lock.release()

    def _take(self, lock: threading.RLock, until: float | None) -> bool:
        """Take a lock; not where a signal is held back first. Raises WaitOver."""
        if lock.acquire(blocking=False):
            return True
        while not lock.acquire(timeout=LONGEST_NAP):
            if interrupted():
                return False
            if until is not None and time.monotonic() >= until:
                raise WaitOver
        return True

    def _hand_out(self, flight: InFlightBatch, response: service_pb2.RunResponse) -> None:
        self._late.remember(flight.first, [each.origin if type(each) is Ticket else each for each in flight.records])
        for result in response.results:
            place = result.seq - flight.first
            record = flight.records[place]
            if type(record) is Ticket:
                record.result = result
            elif result.HasField("error") and record is not None:
                assert isinstance(record, Entry)
                # The next execution there waits, so that it fails inside the call.
                self.memo.pop(record.key, None)
                if result.seq > self._cancelled or result.error.reason != pb.REASON_CANCELLED:
                    self._late.add(result.seq, record, result.error)
                if record.name == "backward":
                    self._doubt_gradients()
        for number in response.dropped_hooks:
            self.hooks.pop(number, None)
        for each in flight.timed:
            each.add(response.timings)
        for record in flight.records:
            if type(record) is Ticket and record.result is None:
                record.result = service_pb2.Result(
                    error=pb.Error(code=13, reason=pb.REASON_INTERNAL, message="the server did not answer a command")
                )

    def _doubt_gradients(self, of_all: bool = False) -> None:
        """How a backward went is not known: what it was to add to is the server's to say.

        Where it was refused those that have none still have none; `of_all` is for where it may have been done.
        """
        for owner in list(self.watched.values()):
            if of_all or owner._grad is not None:
                owner._grad = UNKNOWN

    # The session's own life.

    def _refuse_if_unusable(self) -> None:
        if self._unusable is not None:
            error = self._unusable
            raise copy.copy(error) from None

    def _why_dead(self) -> str | None:
        return None if self._embedded is None else self._embedded.why_dead()

    def _give_up(self, error: GradwireError) -> None:
        """Nothing can be sent any more: let every later use say why first, and nobody wait."""
        with self._receive_lock:
            self._unusable = self._unusable or error
            self.memo = {}
            self.buffer.clear()
            self.released.clear()
            self._delivery.clear()

    def forked(self) -> None:
        """In a forked child: the connection belongs to the parent."""
        self._finalizer.detach()
        self._send_lock = threading.RLock()
        self._receive_lock = threading.RLock()
        self._delivery.forked()
        self._give_up(
            make_error(
                pb.REASON_UNAVAILABLE,
                "this session was opened before os.fork() and belongs to the parent process; its tensors cannot be "
                "used in a forked child. Call gradwire.connect() there, or start the process with the 'spawn' method",
                14,
            )
        )
        if self._embedded is not None:
            self._embedded.forget()

    def tidy(self) -> None:
        """Send what has been left waiting, if that needs no wait. Called by the keeper thread."""
        if self._unusable is not None or not self._send_lock.acquire(blocking=False):
            return
        try:
            if self._delivery.connected and len(self._delivery.flights) < MOST_FLIGHTS and self._has_room():
                self.flush()
            self._delivery.acknowledge()
        finally:
            self._send_lock.release()

    def watch(self) -> None:
        """Ask a server that is silent whether it is there. Called by the keeper thread."""
        if self._unusable is None:
            self._delivery.watch()

    def renew_lease(self) -> None:
        """Tell the server that the session is still wanted."""
        if self._unusable is None:
            request = service_pb2.KeepAliveRequest(session_id=self.session_id)
            answer = self._transport.call("KeepAlive", request, service_pb2.KeepAliveResponse, waits=())
            self._expires_unix_ms = answer.expires_unix_ms

    @property
    def expires_at(self) -> datetime:
        """When the server forgets the session if it hears nothing more of this program, as it said last.

        By the server's clock, in UTC. While the program lives that moment is put off again and again: by a thread of
        the library three times in a lease (`lease_seconds`), and by every answer.
        """
        return datetime.fromtimestamp(self._expires_unix_ms / 1000, timezone.utc)

    def close(self) -> None:
        """End the session and free its tensors. Closing again does nothing.

        Waits for what was issued without waiting, and raises GradwireError if any of that was refused and nobody was
        told. A call that waits in another thread is ended instead, and tells that thread so.
        """
        if self._finalizer.detach() is None:
            return
        was_usable = self._unusable is None
        unobserved = None
        try:
            if was_usable:
                unobserved = self._last_refusal()
        finally:
            # Said first, so that other threads' calls say the same, whatever ends them.
            self._unusable = self._unusable or make_error(pb.REASON_UNAVAILABLE, "the session was closed", 14)
            try:
                self._ending.run()
            except GradwireError:
                if was_usable:
                    raise
            finally:
                # Closing the channel has woken whoever waits, so the locks are to be had.
                with self._send_lock:
                    self._give_up(self._unusable)
        if unobserved is not None:
            raise unobserved

    def _last_refusal(self) -> GradwireError | None:
        """Wait for what nobody waits for; the refusal among it, if any."""
        self._delivery.patience = _LAST_PATIENCE_SECONDS
        try:
            if not self._send_lock.acquire(blocking=False):
                return None  # another thread is about to wait
            try:
                while self._nobody_waits() and (self.buffer or self.released):
                    deliver()
                    self._refuse_if_unusable()
                    if self._has_room():
                        self.flush()
                    else:
                        self._receive()
            finally:
                self._send_lock.release()
            while self._nobody_waits() and self._delivery.flights:
                deliver()
                self._receive()
            self._late.raise_first()
        except GradwireError as error:
            return None if error.reason == "UNAVAILABLE" else error
        return None

    def _nobody_waits(self) -> bool:
        """Whether no other thread waits for one."""
        flights = tuple(self._delivery.flights)
        return not any(type(each) is Ticket and each.result is None for flight in flights for each in flight.records)

    def __enter__(self) -> Session:
        enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        leave()

    def save(
        self, name: str | None = None, tensors: Mapping[str, Any] | None = None, ttl: float | None = None
    ) -> Snapshot:
        """Store the session on the server as it is now: values, gradients, graph, random numbers.

        With a name it is a snapshot for gradwire.restore(), of `ttl` seconds if given; one of that name is replaced.
        `tensors` are those to find again there, by name. Without a name the server stores what it would come back to
        itself. Raises NotImplementedError where the server has no --state-dir, or while a backward waits for a hook,
        OSError if it cannot write, RuntimeError for more snapshots than allowed.
        """
        return save_session(self, name, tensors or {}, ttl)

    # What is asked of the server itself.

    def server_info(self) -> service_pb2.ServerInfoResponse:
        """What the server is and allows: version, devices, limits, libraries, and how much it holds now."""
        ORPHANS.end()
        return self._transport.call("ServerInfo", service_pb2.ServerInfoRequest(), service_pb2.ServerInfoResponse)

    def describe(self) -> commands_pb2.DescribeResponse:
        """How many tensors the session names and how many bytes they hold."""
        self.flush()  # the releases of dropped tensors, which would come after the question
        result = self.wait(service_pb2.Command(describe=commands_pb2.DescribeRequest()))
        return result.describe

    def summary(self) -> Summary:
        """The tensors that this program holds in the session, the bytes and graphs behind them, where each was made."""
        from gradwire._session.summary import summarize

        return summarize(self)

    def remember_lines(self, most: int = 1 << 20) -> None:
        """From now on note the program's line for each new tensor, for `summary()`; that of the newest `most`."""
        from gradwire._session.summary import track_ids

        track_ids(self, most)

    def made_at(self, number: int) -> str | None:
        """The line of this program that issued a command, by the server's number of it; None if it is not known."""
        return self._late.find(number)

    def upload(self, data: memoryview) -> str:
        """Bring a large tensor's bytes to the server; the answer is the transfer's id."""
        self._refuse_if_unusable()
        return self._bulk.upload(data)

    def download(self, transfer_id: str, into: memoryview) -> None:
        """Fetch a large tensor's bytes."""
        self._refuse_if_unusable()
        self._bulk.download(transfer_id, into)
