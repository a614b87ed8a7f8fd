"""Workers of a data-parallel step: sessions beside the caller's, which form a group with it.

Rank 0 is the caller's session; it has the program's tensors. Each other session has copies of those that the step uses.
Commands to them do not wait: collectives end only when every rank has its command.
"""

from __future__ import annotations

import contextlib
import contextvars
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gradwire._base import dtypes
from gradwire._base.call_site import find_call_site
from gradwire._base.errors import GradwireError, make_error
from gradwire._base.modes import no_grad
from gradwire._functions.create import empty
from gradwire._functions.random import initial_seed, manual_seed
from gradwire._graph import commands
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import MemoEntry
from gradwire._proxy.results import share_storage
from gradwire._session.sessions import open_beside
from gradwire._transport.opening import Placing
from gradwire._transport.wire import framed
from gradwire.v1 import collectives_pb2 as pb
from gradwire.v1 import errors_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._session.session import Session

# Seconds without any answer after which a worker counts as lost. A computing server still answers.
_PATIENCE_SECONDS = 15.0
# Milliseconds that ranks wait for each other: the default of torch.distributed. A lost rank ends the wait earlier.
TIMEOUT_MS = 30 * 60 * 1000


class Workers:
    """`count` sessions, of which the first is the caller's. They form a group, `group`."""

    def __init__(self, session: Session, count: int) -> None:
        self.group = f"data_parallel/{uuid.uuid4().hex}"
        self.sessions = [session]
        self._copies: list[dict[int, Any]] = [{} for _ in range(count)]
        self._marks: dict[int, tuple[Any, ...]] = {}
        self._writes = -1
        try:
            placing = Placing(gang=self.group, gang_size=count - 1)
            for _ in range(1, count):
                self.sessions.append(open_beside(session, _PATIENCE_SECONDS, placing))
            self._join()
        except BaseException:
            self.close()
            raise
        # A compiled function may be dropped while the caller's commands exchange values with the other sessions.
        weakref.finalize(self, _keep, weakref.ref(session), tuple(self.sessions[1:])).atexit = False
        site = find_call_site()
        self._entries = [MemoEntry((self.group, rank), "data_parallel", site, None, ()) for rank in range(count)]

    def _join(self) -> None:
        self._seeding = self.sessions[0].seeding
        with self.sessions[0]:
            seed = initial_seed()

        def join(rank: int) -> None:
            session = self.sessions[rank]
            request = pb.CollectiveRequest(
                kind=pb.COLLECTIVE_KIND_JOIN, group=self.group, rank=rank, size=len(self.sessions),
                timeout_ms=TIMEOUT_MS,
            )  # fmt: skip
            session.wait(service_pb2.Command(collective=request))
            if rank:
                self._seed(rank, seed)

        self.on_all(join)

    def _seed(self, rank: int, seed: int) -> None:
        """Seed another worker, so that it draws other numbers than rank 0 after the same seed."""
        with self.sessions[rank]:
            manual_seed((seed + rank) % (1 << 63), algorithm=self._seeding[1] if self._seeding else "mt19937")

    def follow_seed(self) -> None:
        """Seed the other workers if the caller's session was seeded since."""
        seeding = self.sessions[0].seeding
        if seeding is not None and seeding is not self._seeding:
            self._seeding = seeding
            for rank in range(1, len(self.sessions)):
                with self.naming(rank):
                    self._seed(rank, seeding[0])

    def on_all(self, work: Callable[[int], Any]) -> list[Any]:
        """The results of `work` for each rank, called at the same time, since ranks wait for each other.

        The first error ends the other sessions, so that no rank waits for one that failed, and is raised.
        """
        errors: list[BaseException] = []

        def tried(rank: int) -> Any:
            try:
                with self.naming(rank):
                    return work(rank)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
                self.close()
                return None

        count = len(self.sessions)
        with ThreadPoolExecutor(count) as pool:
            others = [pool.submit(contextvars.copy_context().run, tried, rank) for rank in range(1, count)]
            found = [tried(0), *(each.result() for each in others)]
        if errors:
            raise errors[0]
        return found

    @contextlib.contextmanager
    def naming(self, rank: int) -> Iterator[None]:
        """Let errors of another session than the caller's name the worker."""
        try:
            yield
        except GradwireError as error:
            if not rank:
                raise
            reason = errors_pb2.Reason.Value(f"REASON_{error.reason}")
            message = f"worker {rank} of a data-parallel step, at {self.sessions[rank].address}: {error}"
            raise make_error(reason, message, error.code, error.metadata) from error

    def post(self, rank: int, command: service_pb2.Command) -> None:
        """Issue a command at a rank without waiting. A refusal is told by `check`, or by the caller's next wait."""
        session = self.sessions[rank]
        command.quiet = True
        session.draws.begin()
        session.post_large(framed(command.SerializeToString()), self._entries[rank])

    def exchange(
        self, rank: int, kind: pb.CollectiveKind, inputs: Sequence[int] = (), outputs: Sequence[int] = (), **fields: Any
    ) -> None:
        """Let a rank take part in a collective. The tensors are named by their ids in the rank's session."""
        request = pb.CollectiveRequest(
            kind=kind, group=self.group, timeout_ms=TIMEOUT_MS, inputs=inputs, outputs=outputs, **fields
        )
        self.post(rank, service_pb2.Command(collective=request))

    def check(self) -> None:
        """Raise the error of a command that `post` issued earlier, if the server has refused one."""
        for rank, session in enumerate(self.sessions):
            with self.naming(rank):
                if not self._entries[rank].refused:
                    session.raise_if_unusable()
                    continue
                session.sync()
                raise make_error(errors_pb2.REASON_GROUP_BROKEN, "an earlier data-parallel step was refused", 10)

    # Copies of the caller's tensors.

    def copy_of(self, rank: int, tensor: Handle) -> Any:
        """The rank's copy of a tensor that `replicate` was given."""
        return self._copies[rank][tensor._id] if rank else tensor

    def replicate(self, tensors: Sequence[Any]) -> None:
        """Give the other ranks copies of these tensors' values."""
        for each in tensors:
            share_storage(each, each)  # counts its changes from now on
        for rank in range(1, len(self.sessions)):
            held = self._copies[rank]
            with self.naming(rank), self.sessions[rank], no_grad():
                for each in tensors:
                    if each._id not in held:
                        held[each._id] = self.empty_like(rank, each)
        for each in tensors:
            self.spread(each, [self.copy_of(rank, each)._id for rank in range(len(self.sessions))])
        self.flush()
        self.note(tensors)

    def empty_like(self, rank: int, tensor: Any, rows: int | None = None) -> Any:
        """A tensor at a rank like one of the caller's, with other values, and as many rows as given."""
        spec = tensor._fresh()
        shape = spec.shape if rows is None else (rows, *spec.shape[1:])
        with self.sessions[rank]:
            grad = rows is None and spec.requires_grad
            return empty(tuple(shape), dtype=spec.dtype, device=spec.device_name, requires_grad=grad)

    def spread(self, tensor: Any, copies: Sequence[int]) -> None:
        """Write a tensor of rank 0 to those of the other ranks with these ids."""
        for rank, each in enumerate(copies):
            self.exchange(rank, pb.COLLECTIVE_KIND_BROADCAST, [each if rank else tensor._id], peer=0)

    def flush(self) -> None:
        """Send what was issued. Rank 0 comes last, since the others need its commands and it may have to wait."""
        for rank in range(len(self.sessions) - 1, -1, -1):
            with self.naming(rank):
                self.sessions[rank].flush()

    def note(self, tensors: Sequence[Any]) -> None:
        """Note that the ranks' copies are equal now."""
        self._writes = self.sessions[0].untracked_writes
        for each in tensors:
            self._marks[each._id] = _mark(each)

    def apart(self, tensors: Sequence[Any]) -> list[Any]:
        """Those of the tensors that were changed since `note`, otherwise than by a data-parallel step."""
        if self._writes != self.sessions[0].untracked_writes:
            return list(tensors)
        return [each for each in tensors if self._marks.get(each._id) != _mark(each)]

    def set_gradient_none(self, rank: int, tensor: Handle) -> None:
        """Remove the gradient of a rank's copy."""
        with self.naming(rank):
            commands.set_grad(self.copy_of(rank, tensor), None)

    def differing(self, tensors: Sequence[Any]) -> list[Any]:
        """Those of the tensors that some rank's copy does not equal, bit for bit. Waits."""

        def compare(rank: int) -> list[bool]:
            same = []
            with self.sessions[rank], no_grad():
                for each in tensors:
                    mine = self.copy_of(rank, each).detach()
                    first = mine.clone() if rank else mine
                    self.exchange(rank, pb.COLLECTIVE_KIND_BROADCAST, [first._id], peer=0)
                    self.sessions[rank].flush()
                    same.append(not rank or _same_bits(mine, first))
            return same

        found = self.on_all(compare)
        return [each for each, same in zip(tensors, zip(*found, strict=True), strict=True) if not all(same)]

    def close(self) -> None:
        """End the other sessions, and so the group."""
        for each in self.sessions[1:]:
            with contextlib.suppress(GradwireError):
                each.cancel()  # closing waits for the commands before it, which may wait for other ranks
            with contextlib.suppress(GradwireError):
                each.close()


def _keep(session: weakref.ref[Session], others: tuple[Session, ...]) -> None:
    """Let sessions end only when a session's commands are answered. The garbage collector may call this anywhere."""
    if (found := session()) is not None:
        found.keep_until_answered(others)


def _mark(tensor: Handle) -> tuple[Any, ...]:
    storage = tensor._storage
    return (storage, None if storage is None else storage.changes, tensor._spec.requires_grad, tensor._spec.shape)


def _same_bits(one: Any, other: Any) -> bool:
    if not one.numel():
        return True
    flat, its = (each.contiguous().reshape(-1).view(dtype=dtypes.uint8) for each in (one, other))
    return bool((flat == its).all())
