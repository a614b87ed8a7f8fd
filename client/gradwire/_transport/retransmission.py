"""Retransmission: applies each command exactly once, over links that may break.

The client keeps each batch until its answer arrives. After a broken link, the next link carries all unanswered batches
again, in order. The server answers repeated commands from its response cache, so each command applies once. The
server's credit limits the unanswered bytes.
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
# Multiples of the patience after which a server that accepts links but answers no batch is given up.
_FUTILE = 10
# A silent server gets a KeepAlive after patience / _PARTS, but at most _LONGEST_SILENCE, seconds.
_PARTS, _LONGEST_SILENCE = 4, 10.0
#: Maximum number of in-flight batches.
MOST_FLIGHTS = 8
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_LONGEST_NAP = 0.05  # seconds between checks for pending signals
_LEAST_FAILURES = 3  # failures before giving up, regardless of their duration
# Links of the parent, kept in a forked child: finalizing one would wait for a lock of a thread the child lacks.
_of_the_parent: list[object] = []


class WaitOver(Exception):
    """A wait exceeded its time limit."""


class Timed(Protocol):
    """An object that sums the timings of batches."""

    def add(self, told: service_pb2.Timings) -> None:
        """Add the timings of an answered batch."""


class InFlightBatch:
    """An in-flight batch: first seq, one record per command, request bytes, credit size, receivers of its timings."""

    __slots__ = ("first", "records", "request", "size", "timed")

    def __init__(
        self, first: int, records: list[Any], request: bytes, size: int, timed: tuple[Timed, ...] = ()
    ) -> None:
        self.first = first
        self.records = records
        self.request = request
        self.size = size
        self.timed = timed

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
        why_dead: Callable[[], str | None],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._transport = transport
        self._session_id = opened.session_id
        self._writer = opened.writer
        self._epoch = opened.epoch
        self._why_dead = why_dead
        self.flights: deque[InFlightBatch] = deque()
        #: The seq of the last answered command. `_told` is the last one that the server was told of.
        self.acknowledged = 0
        self._told = 0
        self._link: Link | None = None
        self._attempts = 0
        self._credit = 0
        # Makes appending and sending a batch atomic for the thread that opens the next link.
        self._lock = threading.Lock()
        #: Seconds the server may be silent.
        self.patience = patience
        # time.monotonic() of the last answer of any kind, of the last answer to a batch, and of the start of the last
        # wait for one. `_failures` counts the failures since the last answer.
        self._heard = self._settled = self._awaited = time.monotonic()
        self._failing_since: float | None = None
        self._failures = 0
        self._wait = _FIRST_WAIT
        self._opening = False
        self._asked = 0.0
        self._asks = 0  # since the last answer
        self._hopeless: GradwireError | None = None

    def connect(self) -> None:
        """Open a link if there is none. Raises GradwireError."""
        if self._link is None:
            self._open()

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes may be sent now."""
        return not self.flights or (len(self.flights) < MOST_FLIGHTS and self._credit >= size)

    def batch_bytes(self, most: int) -> int:
        """The maximum bytes of the next batch: the credit, at most `most`."""
        return min(most, self._credit)

    def send(self, flight: InFlightBatch) -> None:
        """Send a batch. Without a link, the next link sends it."""
        with self._lock:
            if not self.flights:
                self._awaited = time.monotonic()
            self.flights.append(flight)
            self._credit -= flight.size
            self._told = self.acknowledged
            if self._link is not None:
                self._link.send(flight.request)

    def push(self) -> None:
        """Wait until the earlier batches have left, so the next batch need not queue."""
        self._off(Link.push)

    def see_off(self) -> None:
        """Wait until all batches will be sent even if no thread waits for their answers."""
        self._off(Link.see_off)

    def _off(self, wait: Callable[[Link], None]) -> None:
        link = self._link
        if link is not None:
            try:
                wait(link)
            except BaseException:
                self.drop()
                raise

    def receive(self, until: float | None = None) -> tuple[list[InFlightBatch], service_pb2.RunResponse]:
        """Wait for the next answer. It covers one or several of the oldest batches, and reports on the last one only.

        Call `settle` after handing out the answers. If that fails, call `drop`: the next link repeats the answer.

        `until` is a time.monotonic() value, checked whenever the link is dropped. Raises WaitOver after `until`,
        Interrupted for a pending signal, and GradwireError if the session is lost.
        """
        while True:
            if until is not None and time.monotonic() >= until:
                raise WaitOver
            if interrupted():
                raise Interrupted
            link = self._link or self._open()
            try:
                message = link.receive_batch()
            except LinkBroken as broken:
                self._lost(broken.error)
                continue
            answered = list(islice(self.flights, message.batches or 1))
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

    def settle(self, answered: Sequence[InFlightBatch]) -> None:
        """Remove the oldest batches, whose answers have been handed out."""
        for flight in answered:
            self.flights.popleft()
            self.acknowledged = flight.last
        self._heard = self._settled = time.monotonic()
        self._failing_since = None

    def acknowledge(self) -> None:
        """Acknowledge the answers received, unless a batch has done so. The server then forgets them."""
        with self._lock:
            if self._link is not None and self._told < self.acknowledged:
                self._told = self.acknowledged
                self._link.acknowledge(self._told)

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
        self.flights.clear()

    def forked(self) -> None:
        """Leave the link to the parent, in a forked child."""
        if self._link is not None:
            self._link.forked()
            _of_the_parent.append(self._link)
        self._link = None
        self._lock = threading.Lock()
        self.clear()

    def watch(self) -> None:
        """Send a KeepAlive to a silent server, and give it up after the patience. Called by the keeper thread.

        A stream alone cannot distinguish a computing server from a stopped one.
        """
        now = time.monotonic()
        silent = now - max(self._heard, self._awaited)
        if self._hopeless is not None or not (self.flights or self._opening):
            return
        between = min(_LONGEST_SILENCE, self.patience / _PARTS)
        if self._heard >= self._asked:
            self._asks = 0
        if silent > self.patience and self._asks >= _LEAST_FAILURES:  # otherwise this process may have been suspended
            self._hopeless = self._given_up(silent, "it does not answer")
            self.drop()
            self._transport.drop_link()
        elif silent > between and now - self._asked > between:
            self._asked = now
            self._asks += 1
            request = service_pb2.KeepAliveRequest(session_id=self._session_id)
            self._transport.ask("KeepAlive", request, self.patience, self._answered)

    def _answered(self) -> None:
        self._heard = time.monotonic()

    def _given_up(self, seconds: float, why: str) -> GradwireError:
        message = (
            f"gave up after {seconds:.0f} seconds without an answer of the server at {self._transport.address} "
            f"(GRADWIRE_PATIENCE, or connect(patience=), is {self.patience:g}): {why}"
        )
        return make_error(pb.REASON_UNAVAILABLE, message, 14, {"address": self._transport.address})

    def _open(self) -> Link:
        if not self.flights:
            self._awaited = time.monotonic()
        self._opening = True
        try:
            return self._attached()
        finally:
            self._opening = False

    def _attached(self) -> Link:
        while True:
            link = self._transport.open_link()
            self._attempts += 1
            try:
                response = link.attach(self._session_id, self._writer, self._attempts, self._epoch, self.acknowledged)
            except LinkBroken as broken:
                self._lost(broken.error)
                if interrupted():
                    raise Interrupted from None
                continue
            except GradwireError as error:
                raise self._gone(error) from None
            except BaseException:
                link.drop()
                raise
            self._answered()
            if response.attached.applied_seq < self.acknowledged:
                raise self._gone(make_error(pb.REASON_EPOCH_MISMATCH, "it has lost commands that it had answered", 9))
            if self._transport.hear_of_local(response.attached.local_stream):
                continue  # the next attempt uses the local stream
            with self._lock:
                self._link = link
                self._credit = response.credit_bytes - sum(flight.size for flight in self.flights)
                for flight in self.flights:
                    link.send(flight.request)
            return link

    def _gone(self, error: GradwireError) -> GradwireError:
        """The error for a reachable server that has lost the session."""
        if error.reason not in ("SESSION_NOT_FOUND", "EPOCH_MISMATCH"):
            return error
        message = (
            f"the server at {self._transport.address} no longer has this session, as after a restart, and its tensors "
            f"are lost ({error}). gradwire.connect() opens another"
        )
        reason = pb.Reason.Value(f"REASON_{error.reason}")
        return make_error(reason, message, error.code, error.metadata)

    def _lost(self, error: GradwireError) -> None:
        """Drop the broken link and wait before the next one. Raises GradwireError after the patience."""
        self.drop()
        if self._transport.closed:
            raise self._transport.closed_error()
        if (dead := self._why_dead()) is not None:
            raise make_error(pb.REASON_UNAVAILABLE, dead, 14)
        if self._hopeless is not None:
            raise self._hopeless
        now = time.monotonic()
        if self._failing_since is None or self._heard > self._failing_since:
            self._failures, self._wait = 0, _FIRST_WAIT
            self._failing_since = now
        self._failures += 1
        failing = now - max(self._failing_since, self._heard, self._awaited)
        futile = now - max(self._settled, self._awaited)
        if self._failures >= _LEAST_FAILURES and (failing > self.patience or futile > _FUTILE * self.patience):
            raise self._given_up(max(failing, futile), str(error))
        ends = now + self._wait * random.uniform(0.7, 1.3)
        while (left := ends - time.monotonic()) > 0 and not interrupted() and not self._transport.closed:
            self._transport.pause(min(left, _LONGEST_NAP))
        self._wait = min(2 * self._wait, _LONGEST_WAIT)


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
