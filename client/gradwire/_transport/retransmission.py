"""Retransmission: applies each command exactly once, over links that may break.

The client keeps each batch until its answer arrives. After a broken link, the next link carries all unanswered batches
again, in order. The server answers repeated commands from its response cache, so each command applies once. The
server's credit limits the unanswered bytes. The next link may lead to another server of a cluster, where the session
continues.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from gradwire._base.errors import GradwireError, make_error
from gradwire._base.signals import Interrupted, interrupted
from gradwire._transport.link import Link, LinkBroken
from gradwire.v1 import errors_pb2 as pb
from gradwire.v1 import service_pb2

if TYPE_CHECKING:
    from gradwire._transport.transport import Transport

#: Seconds a session waits for a silent server, unless GRADWIRE_PATIENCE or connect(patience=) sets another value.
PATIENCE_SECONDS = 120.0
# A server may accept links and answer no batch, or no connection may carry the batch as a whole. The client gives up
# after this many times the patience, if as many links broke after their attach: one batch may compute for longer.
_MOST_PATIENCES = _LEAST_BROKEN_LINKS = 10
# A silent server gets a KeepAlive after patience / _PARTS, but at most _LONGEST_SILENCE, seconds. A link that lasts for
# patience / _PARTS has carried its batches: the server computes.
_PARTS, _LONGEST_SILENCE = 4, 10.0
#: Maximum number of in-flight batches.
MAX_IN_FLIGHT = 8
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.05, 2.0
# With several servers: the longest wait before the next link, how long a server may be silent before the next one is
# tried, how often it is asked meanwhile, and how many of these questions must be unanswered.
_LONGEST_BACKOFF_OF_SEVERAL, _SILENCE_OF_ONE, _BETWEEN_OF_SEVERAL, _LEAST_UNANSWERED = 0.5, 3.0, 1.0, 2
_SIGNAL_CHECK_SECONDS = 0.05  # seconds between checks for pending signals
_LEAST_FAILURES = 3  # failures before giving up, regardless of their duration
# The parent's links, kept alive in a forked child: their finalizers would wait for locks of threads it lacks.
_parent_links: list[object] = []


class WaitTimeout(Exception):
    """A wait exceeded its time limit."""


class TimingsReceiver(Protocol):
    """An object that gathers the timings of batches."""

    #: Whether it needs the time of each op.
    wants_ops: bool

    def add(self, response: service_pb2.RunResponse) -> None:
        """Add the timings of an answered batch."""


class InFlightBatch:
    """An in-flight batch: first seq, one record per command, request bytes, credit size, receivers of its timings.

    step_length: the commands of its last training step, as `StepEnds` counts them. waiters: the places of the records
    whose issuers wait.
    """

    __slots__ = ("first", "records", "request", "size", "step_length", "timed", "waiters")

    def __init__(
        self,
        first: int,
        records: list[Any],
        request: bytes,
        size: int,
        timed: tuple[TimingsReceiver, ...] = (),
        step_length: int = 0,
        waiters: Sequence[int] = (),
    ) -> None:
        self.first = first
        self.records = records
        self.request = request
        self.size = size
        self.timed = timed
        self.step_length = step_length
        self.waiters = waiters

    @property
    def last(self) -> int:
        """The last command's seq."""
        return self.first + len(self.records) - 1


class Retransmission:
    """The batches of one writer. One thread at a time sends, and one receives."""

    def __init__(
        self,
        transport: Transport,
        opened: service_pb2.OpenSessionResponse,
        exit_reason: Callable[[], str | None],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._transport = transport
        self._session_id = opened.session_id
        self._writer = opened.writer
        self._epoch = opened.epoch
        self._exit_reason = exit_reason
        self.in_flight: deque[InFlightBatch] = deque()
        #: The seq of the last answered command. `_sent_acknowledgement` is the last seq acknowledged to the server.
        self.acknowledged = 0
        self._sent_acknowledgement = 0
        self._link: Link | None = None
        self._attempts = 0
        self._credit = 0
        # Makes appending and sending a batch atomic for the thread that opens the next link.
        self._lock = threading.Lock()
        #: Seconds the server may be silent.
        self.patience = patience
        # time.monotonic() of the last answer of any kind, and of the start of the last wait for an answer to a batch.
        # `_failures` counts the failures since the last answer.
        self._last_message_at = self._wait_began_at = time.monotonic()
        self._failing_since: float | None = None
        self._failures = 0
        # The links in a row that attached and broke without an answer to a batch, and when the first of them broke.
        self._broken_links = 0
        self._first_broken_at = self._attached_at = self._last_message_at
        self._backoff = _FIRST_BACKOFF
        self._opening = False
        self._last_keepalive_at = 0.0
        self._unanswered_keepalives = 0  # since the last answer
        # With several servers: when the one in use became so, and the questions that it did not answer.
        self._moved_at = self._last_message_at
        self._unanswered_here = 0
        self._fatal_error: GradwireError | None = None

    def connect(self) -> None:
        """Open a link if there is none. Raises GradwireError."""
        if self._link is None:
            self._open()

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes may be sent now."""
        return not self.in_flight or (len(self.in_flight) < MAX_IN_FLIGHT and self._credit >= size)

    def batch_bytes(self, most: int) -> int:
        """The maximum bytes of the next batch: the credit, at most `most`."""
        return min(most, self._credit)

    def send(self, batch: InFlightBatch) -> None:
        """Send a batch. Without a link, the next link sends it."""
        with self._lock:
            if not self.in_flight:
                self._wait_began_at, self._broken_links = time.monotonic(), 0
            self.in_flight.append(batch)
            self._credit -= batch.size
            self._sent_acknowledgement = self.acknowledged
            if self._link is not None:
                self._link.send(batch.request)

    def wait_sent(self) -> None:
        """Wait until the earlier batches have left, so the next batch need not queue."""
        self._drop_on_error(Link.wait_sent)

    def finish_sending(self) -> None:
        """Wait until all batches will be sent even if no thread waits for their answers."""
        self._drop_on_error(Link.finish_sending)

    def _drop_on_error(self, wait: Callable[[Link], None]) -> None:
        link = self._link
        if link is not None:
            try:
                wait(link)
            except BaseException:
                self.drop()
                raise

    def receive(self, until: float | None = None) -> tuple[list[InFlightBatch], service_pb2.RunResponse]:
        """Wait for the next answer. It covers one or several of the oldest batches, and reports on the last one only.

        Call `remove_answered` after the answers are delivered. If that fails, call `drop`: the next link repeats them.

        `until` is a time.monotonic() value, checked whenever the link is dropped. Raises WaitTimeout after `until`,
        Interrupted for a pending signal, and GradwireError if the session is lost.
        """
        while True:
            if until is not None and time.monotonic() >= until:
                raise WaitTimeout
            if interrupted():
                raise Interrupted
            link = self._link or self._open()
            try:
                message = link.receive_batch()
            except LinkBroken as broken:
                self._count_broken(broken.error)
                self._retry_after_break(broken.error, link.address)
                continue
            except GradwireError as error:
                if error.reason != "SESSION_MOVED":
                    raise
                self._count_broken(error)
                self._retry_after_break(error, link.address)
                continue
            answered = list(islice(self.in_flight.copy(), message.batches or 1))  # another thread may send meanwhile
            response = message.batch
            if response.applied_seq < answered[-1].last:
                raise make_error(
                    pb.REASON_INTERNAL,
                    f"the server answered commands through {response.applied_seq} in place of {answered[-1].last}",
                    13,
                )
            with self._lock:
                self._credit += message.credit_bytes
            return answered, response

    def has_answer(self) -> bool:
        """Whether `receive` would find an answer without waiting for the server to compute."""
        link = self._link
        return link is not None and bool(self.in_flight) and link.has_answer()

    def remove_answered(self, answered: Sequence[InFlightBatch]) -> None:
        """Remove the oldest batches, whose answers have been handed out."""
        for batch in answered:
            self.in_flight.popleft()
            self.acknowledged = batch.last
        self._last_message_at = time.monotonic()
        self._failing_since, self._broken_links = None, 0

    def acknowledge(self) -> None:
        """Acknowledge the answers received, unless a batch has done so. The server then forgets them."""
        with self._lock:
            if self._link is not None and self._sent_acknowledgement < self.acknowledged:
                self._sent_acknowledgement = self.acknowledged
                self._link.acknowledge(self._sent_acknowledgement)

    @property
    def connected(self) -> bool:
        """Whether a link is open and not known to be broken."""
        link = self._link
        return link is not None and link.alive

    def drop(self) -> None:
        """Drop the link. The next wait opens another."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.drop()

    def clear(self) -> None:
        """Forget all batches."""
        self.in_flight.clear()

    def after_fork_in_child(self) -> None:
        """Leave the link to the parent, in a forked child."""
        if self._link is not None:
            self._link.after_fork_in_child()
            _parent_links.append(self._link)
        self._link = None
        self._lock = threading.Lock()
        self.clear()

    def send_keepalive_if_silent(self) -> None:
        """Send a KeepAlive to a silent server, and give it up after the patience. Called by the maintenance thread.

        A stream alone cannot distinguish a computing server from a stopped one.
        """
        now = time.monotonic()
        silent = now - max(self._last_message_at, self._wait_began_at)
        if self._fatal_error is not None or not (self.in_flight or self._opening):
            return
        several = self._transport.servers.several
        between = min(_BETWEEN_OF_SEVERAL if several else _LONGEST_SILENCE, self.patience / _PARTS)
        if self._last_message_at >= self._last_keepalive_at:
            self._unanswered_keepalives = self._unanswered_here = 0
        if (
            silent > self.patience and self._unanswered_keepalives >= _LEAST_FAILURES
        ):  # otherwise this process may have been suspended
            self._fatal_error = self._timed_out(silent, "it does not answer")
            self.drop()
            self._transport.drop_link()
        elif silent > between and now - self._last_keepalive_at > between:
            self._last_keepalive_at = now
            self._unanswered_keepalives += 1
            self._unanswered_here += 1
            request = service_pb2.KeepAliveRequest(session_id=self._session_id)
            self._transport.call_in_background("KeepAlive", request, self.patience, self._note_message)
        unanswered, silent_here = self._unanswered_here, min(silent, now - self._moved_at)
        if several and unanswered > _LEAST_UNANSWERED and silent_here > _SILENCE_OF_ONE:
            self._leave_silent(silent)

    def _leave_silent(self, silent: float) -> None:
        """Try the next server. The thread that waits for the silent one opens the next link."""
        address = self._transport.address
        message = f"it has been silent for {silent:.1f} seconds"
        self._leave(address, make_error(pb.REASON_UNAVAILABLE, message, 14, {"address": address}))
        self.drop()
        self._transport.drop_link()

    def _leave(self, address: str, error: GradwireError) -> None:
        self._transport.leave(address, error)
        self._moved_at, self._unanswered_here = time.monotonic(), 0

    def _note_message(self) -> None:
        self._last_message_at = time.monotonic()

    def _timed_out(self, seconds: float, why: str) -> GradwireError:
        message = (
            f"gave up after {seconds:.0f} seconds without an answer of the server at {self._transport.address} "
            f"(GRADWIRE_PATIENCE, or connect(patience=), is {self.patience:g}): {why}"
        )
        return make_error(pb.REASON_UNAVAILABLE, message, 14, {"address": self._transport.address})

    def _open(self) -> Link:
        if not self.in_flight:
            self._wait_began_at = time.monotonic()
        self._opening = True
        try:
            return self._attach()
        finally:
            self._opening = False

    def _attach(self) -> Link:
        while True:
            link = self._transport.open_link()
            self._attempts += 1
            try:
                response = link.attach(self._session_id, self._writer, self._attempts, self._epoch, self.acknowledged)
            except (LinkBroken, GradwireError) as found:
                error = found.error if isinstance(found, LinkBroken) else found
                if isinstance(found, GradwireError) and found.reason != "SESSION_MOVED":
                    raise self._session_lost(found) from None
                self._retry_after_break(error, link.address)
                if interrupted():
                    raise Interrupted from None
                continue
            except BaseException:
                link.drop()
                raise
            self._note_message()
            self._attached_at = time.monotonic()
            if response.attached.applied_seq < self.acknowledged:
                raise self._session_lost(
                    make_error(pb.REASON_EPOCH_MISMATCH, "it has lost commands that it had answered", 9)
                )
            if self._transport.set_local_stream(response.attached.local_stream):
                continue  # the next attempt uses the local stream
            with self._lock:
                self._link = link
                self._credit = response.credit_bytes - sum(batch.size for batch in self.in_flight)
                for batch in self.in_flight:
                    link.send(batch.request)
            return link

    def _session_lost(self, error: GradwireError) -> GradwireError:
        """The error for a reachable server that has lost the session."""
        if error.reason not in ("SESSION_NOT_FOUND", "EPOCH_MISMATCH"):
            return error
        message = (
            f"the server at {self._transport.address} no longer has this session, as after a restart, and its tensors "
            f"are lost ({error}). gradwire.connect() opens another"
        )
        reason = pb.Reason.Value(f"REASON_{error.reason}")
        return make_error(reason, message, error.code, error.metadata)

    def _count_broken(self, error: GradwireError) -> None:
        """Count a link that broke after its attach. Raises GradwireError if none seems to carry the oldest batch."""
        now = time.monotonic()
        if not self.in_flight or now - self._attached_at > self.patience / _PARTS:
            self._broken_links = 0
            return
        if self._broken_links == 0:
            self._first_broken_at = now
        self._broken_links += 1
        futile = now - self._first_broken_at
        if self._broken_links >= _LEAST_BROKEN_LINKS and futile > _MOST_PATIENCES * self.patience:
            size = len(self.in_flight[0].request)
            unanswered = f"{self._broken_links} connections broke before a batch of {size:,} bytes was answered"
            self.drop()
            raise self._timed_out(futile, f"{unanswered}: {error}")

    def _retry_after_break(self, error: GradwireError, address: str) -> None:
        """Drop the broken link to `address` and wait before the next one. Raises GradwireError after the patience.

        The next link may lead to another server. The second failure tells that a server, not a connection, is gone.
        """
        self.drop()
        if self._transport.closed:
            raise self._transport.closed_error()
        if (dead := self._exit_reason()) is not None:
            raise make_error(pb.REASON_UNAVAILABLE, dead, 14)
        if self._fatal_error is not None:
            raise self._fatal_error
        now = time.monotonic()
        if self._failing_since is None or self._last_message_at > self._failing_since:
            self._failures, self._backoff = 0, _FIRST_BACKOFF
            self._failing_since = now
        self._failures += 1
        failing = now - max(self._failing_since, self._last_message_at, self._wait_began_at)
        if self._failures >= _LEAST_FAILURES and failing > self.patience:
            raise self._timed_out(failing, str(error))
        if self._failures > 1 or error.reason == "SESSION_MOVED":
            self._leave(address, error)
        ends = now + self._backoff * random.uniform(0.7, 1.3)
        while (left := ends - time.monotonic()) > 0 and not interrupted() and not self._transport.closed:
            self._transport.sleep(min(left, _SIGNAL_CHECK_SECONDS))
        longest = _LONGEST_BACKOFF_OF_SEVERAL if self._transport.servers.several else _LONGEST_BACKOFF
        self._backoff = min(2 * self._backoff, longest)


def patience_of(given: float | None) -> float:
    """The given seconds, else GRADWIRE_PATIENCE, else 120. Raises ValueError unless positive."""
    text = os.environ.get("GRADWIRE_PATIENCE") or PATIENCE_SECONDS
    what = "GRADWIRE_PATIENCE" if given is None else "patience"
    try:
        seconds = float(text if given is None else given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds > 0:
        raise ValueError(f"{what} is a positive number of seconds, not {text if given is None else given!r}")
    return seconds
