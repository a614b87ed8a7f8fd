"""Exactly once: the batches under way, over links that may break.

A batch is kept until its answer is here. When a link breaks the next one carries all of them again, in their order;
the server answers from memory what it had applied, so each command applies once however often it was sent. What is
kept is capped by the credit that the server grants.
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

#: How long a session waits for a server that does not answer any more, unless GRADWIRE_PATIENCE or connect() says.
PATIENCE_SECONDS = 120.0
# A server that takes links, but answers no batch in so many times that time, will not.
_FUTILE = 10
# A server is asked whether it is there after this part of the patience, or so many seconds, of silence.
_PARTS, _LONGEST_SILENCE = 4, 10.0
#: Batches under way at most.
MOST_FLIGHTS = 8
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_LONGEST_NAP = 0.05  # until somebody looks for a signal that is held back
_LEAST_FAILURES = 3  # however long each of them took
# Links of the parent, in a forked child: to finalize one there would wait for a lock of a thread that is not there.
_of_the_parent: list[object] = []


class WaitOver(Exception):
    """A wait has lasted as long as it may."""


class Timed(Protocol):
    """Something that adds up the times of batches."""

    def add(self, told: service_pb2.Timings) -> None:
        """Another batch was answered."""


class InFlightBatch:
    """A batch under way: its first command's seq, who wants which answer, its bytes, and who wants its times."""

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
        #: The last command whose answer is here, and the last of which the server was told so.
        self.acknowledged = 0
        self._told = 0
        self._link: Link | None = None
        self._attempts = 0
        self._credit = 0
        # A batch joins the flights and goes out in one step, as seen by the thread that opens the next link.
        self._lock = threading.Lock()
        #: Seconds that the server may leave us without any answer.
        self.patience = patience
        # By time.monotonic(): the server's last answer of whatever kind and that to a batch, the last time that a wait
        # for one began, and the failures since there was one.
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
        """Whether a batch of so many bytes may go."""
        return not self.flights or (len(self.flights) < MOST_FLIGHTS and self._credit >= size)

    def batch_bytes(self, most: int) -> int:
        """How many bytes the next batch may have, up to `most`."""
        return min(most, self._credit)

    def send(self, flight: InFlightBatch) -> None:
        """Send a batch; while there is no link it waits for the next."""
        with self._lock:
            if not self.flights:
                self._awaited = time.monotonic()
            self.flights.append(flight)
            self._credit -= flight.size
            self._told = self.acknowledged
            if self._link is not None:
                self._link.send(flight.request)

    def push(self) -> None:
        """Wait until the batches before are off, so that the next need not wait in line."""
        self._off(Link.push)

    def see_off(self) -> None:
        """Wait until all batches are on a way that they go to its end though nobody waits for their answers."""
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
        """Wait for the oldest batch's answer, or that of the oldest few, which tells of the last of them alone.

        To be followed by `settle`. Raises GradwireError when all is lost.

        Whoever drops the link ends the wait, with WaitOver if `until`, by time.monotonic(), is over; a signal that is
        held back ends it with Interrupted. Where what follows fails, `drop` must be called: the answer comes again.
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
        """The answers of these batches, the oldest, have been handed out."""
        for flight in answered:
            self.flights.popleft()
            self.acknowledged = flight.last
        self._heard = self._settled = time.monotonic()
        self._failing_since = None

    def acknowledge(self) -> None:
        """Let the server forget the answers that are here, if no batch has told it."""
        with self._lock:
            if self._link is not None and self._told < self.acknowledged:
                self._told = self.acknowledged
                self._link.acknowledge(self._told)

    @property
    def connected(self) -> bool:
        """Whether there is a link that is not known to be broken."""
        link = self._link
        return link is not None and link.alive

    def drop(self) -> None:
        """Give the link up; the next wait opens another."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.drop()

    def clear(self) -> None:
        """Forget all batches."""
        self.flights.clear()

    def forked(self) -> None:
        """In a forked child: leave the link to the parent."""
        if self._link is not None:
            self._link.forked()
            _of_the_parent.append(self._link)
        self._link = None
        self._lock = threading.Lock()
        self.clear()

    def watch(self) -> None:
        """Called by another thread now and then: a server that is silent is asked, and given up after the patience.

        A stream alone does not tell one that computes from one that was stopped.
        """
        now = time.monotonic()
        silent = now - max(self._heard, self._awaited)
        if self._hopeless is not None or not (self.flights or self._opening):
            return
        between = min(_LONGEST_SILENCE, self.patience / _PARTS)
        if self._heard >= self._asked:
            self._asks = 0
        if silent > self.patience and self._asks >= _LEAST_FAILURES:  # else this process may have been stopped
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
                continue  # the next one goes there
            with self._lock:
                self._link = link
                self._credit = response.credit_bytes - sum(flight.size for flight in self.flights)
                for flight in self.flights:
                    link.send(flight.request)
            return link

    def _gone(self, error: GradwireError) -> GradwireError:
        """What to say where the server can be reached but will not go on with the session."""
        if error.reason not in ("SESSION_NOT_FOUND", "EPOCH_MISMATCH"):
            return error
        message = (
            f"the server at {self._transport.address} no longer has this session, as after a restart, and its tensors "
            f"are lost ({error}). gradwire.connect() opens another"
        )
        reason = pb.Reason.Value(f"REASON_{error.reason}")
        return make_error(reason, message, error.code, error.metadata)

    def _lost(self, error: GradwireError) -> None:
        """The link broke: wait a little before the next one. Raises GradwireError when that was tried long enough."""
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
    """The seconds that are given, else those of GRADWIRE_PATIENCE. Raises ValueError."""
    text = os.environ.get("GRADWIRE_PATIENCE") or PATIENCE_SECONDS
    what = "GRADWIRE_PATIENCE" if given is None else "patience"
    try:
        seconds = float(text if given is None else given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not seconds > 0:
        raise ValueError(f"{what} is a positive number of seconds, not {text if given is None else given!r}")
    return seconds
