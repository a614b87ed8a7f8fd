"""Collectives: the handler of Collective, by which sessions of a group exchange values (collectives.proto).

A rank writes its values into its memory (state/group_table.py) and tells the front that it has arrived. Its session
then waits for a future, as for a store's answer, so its worker computes other sessions. When all ranks have arrived,
the front answers all of them, and each one reads what it needs from the memory of the others. Nothing is written to a
tensor before that. Each rank combines the values in the order of ranks, so all get the same bits. Large all-reduces of
one server's workers are streamed (state/streamed_reduction.py).
"""

import errno
import hashlib
import math
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import numpy as np

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine import EngineError, Tensor
from gradwire_engine.compile.trace import Exchange
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.device import host, is_writable, selected, to_device
from gradwire_engine.core.dtypes import DType, name_of
from gradwire_engine.core.reduction import HostArray, check_reduction, reduce_into
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.common.shared_files import location
from gradwire_server.session.scope import TensorScope
from gradwire_server.session.state.durability import Received
from gradwire_server.session.state.gpu_exchange import GpuExchange
from gradwire_server.session.state.group_table import (
    MAX_GROUPS,
    GroupTable,
    Membership,
    PeerMemory,
    RankMemory,
)
from gradwire_server.session.state.streamed_reduction import StreamedReduction, streams

MAX_RANKS = 1024
_MAX_NAME = 200
_MAX_SHOWN = 300  # characters of a collective's description in messages
_BLOCK = 1 << 17  # elements that are combined between two looks at the clock
_COPIED = 1 << 20  # elements that are copied between two looks at the clock
_SPLIT = 1 << 16  # bytes from which ranks of several servers share the work of an all-reduce
_MOST_LOGGED = 1 << 30  # bytes that the collectives of one call may receive, if the session has a log
_KINDS = {number: name.removeprefix("COLLECTIVE_KIND_").lower() for name, number in pb.CollectiveKind.items()}
_OPS = {number: name.removeprefix("REDUCE_OP_").lower() for name, number in pb.ReduceOp.items() if number}
_REDUCING = (
    pb.COLLECTIVE_KIND_ALL_REDUCE,
    pb.COLLECTIVE_KIND_REDUCE,
    pb.COLLECTIVE_KIND_REDUCE_SCATTER,
)
_ROOTED = (
    pb.COLLECTIVE_KIND_REDUCE,
    pb.COLLECTIVE_KIND_BROADCAST,
    pb.COLLECTIVE_KIND_GATHER,
    pb.COLLECTIVE_KIND_SCATTER,
)
_WRITING_NOTHING = (
    pb.COLLECTIVE_KIND_JOIN,
    pb.COLLECTIVE_KIND_LEAVE,
    pb.COLLECTIVE_KIND_BARRIER,
    pb.COLLECTIVE_KIND_SEND,
)
_IN_PLACE = (
    pb.COLLECTIVE_KIND_ALL_REDUCE,
    pb.COLLECTIVE_KIND_REDUCE,
    pb.COLLECTIVE_KIND_BROADCAST,
)
#: Which of their tensors receive values depends on the rank.
WRITING_BY_RANK = (pb.COLLECTIVE_KIND_REDUCE, pb.COLLECTIVE_KIND_BROADCAST)
Waiting = Generator[None, None, dict[str, Any]]


class ExchangeScope(Protocol):
    """What a collective needs of a session, of a program's step or of a plan."""

    groups: GroupTable

    def tensors(self, ids: Iterable[int], /) -> list[Tensor]:
        """The tensors of ids or slots. Raises Refusal."""


def collective(
    scope: ExchangeScope, request: pb.CollectiveRequest, answer: pb.CollectiveResponse | None
) -> Iterator[None]:
    """Join or leave a group, or exchange values with its ranks. Raises Refusal."""
    groups, kind = scope.groups, request.kind
    if groups.durability.replayed is not None:
        peer = _replay(scope, request, groups.durability.replayed)
        if answer is not None:
            answer.peer = peer
        return
    if kind == pb.COLLECTIVE_KIND_JOIN:
        yield from _join(groups, request)
        return
    if kind == pb.COLLECTIVE_KIND_LEAVE:
        _leave(groups, request.group)
        return
    if kind not in _KINDS or not kind:
        raise Refusal("ARGUMENT_VALUE", f"there is no collective {kind}", argument="kind")
    member = groups.find(request.group)
    member.in_use = True
    try:
        if kind == pb.COLLECTIVE_KIND_SEND:
            yield from _send(scope, member, request)
        elif kind == pb.COLLECTIVE_KIND_RECV:
            sender = yield from _receive(scope, member, request)
            if answer is not None:
                answer.peer = sender
        else:
            yield from _Exchange(scope, member, request).run()
    finally:
        member.in_use = False
        if member.broken is not None:
            member.close()


def trace_collective(tracer: Tracer, scope: TensorScope, request: pb.CollectiveRequest) -> None:
    """Tell the tracer of a plan about a collective. The plan exchanges its arrays in the same way."""
    groups, kind = scope.groups, request.kind
    slots = (*request.inputs, *request.outputs)
    rank = groups.rank_in(request.group)
    written: Sequence[int] = ()
    if kind not in _WRITING_NOTHING:
        written = _written(request, rank, request.inputs, request.outputs)

    def begin(arrays: Sequence[Any]) -> Iterator[None]:
        return collective(_PlanScope(groups, dict(zip(slots, map(Tensor, arrays), strict=True))), request, None)

    exchange = Exchange(
        begin, kind == pb.COLLECTIVE_KIND_ALL_REDUCE, lambda: groups.rank_in(request.group) in (rank, None)
    )
    tracer.exchanged(scope.tensors(slots), scope.tensors(written), exchange)


def _written(request: pb.CollectiveRequest, rank: int | None, inputs: Any, outputs: Any) -> Any:
    """Those of a collective's tensors that receive values at a rank."""
    if request.kind in WRITING_BY_RANK:
        is_root = rank == request.peer
        return inputs if is_root is (request.kind == pb.COLLECTIVE_KIND_REDUCE) else []
    return inputs if request.kind in _IN_PLACE else outputs


class _PlanScope:
    """The arrays of a plan as tensors, by slot."""

    def __init__(self, groups: GroupTable, held: dict[int, Tensor]) -> None:
        self.groups = groups
        self._held = held

    def tensors(self, slots: Iterable[int], /) -> list[Tensor]:
        """The tensors of slots."""
        return [self._held[slot] for slot in slots]


def left_out(groups: GroupTable, request: pb.CollectiveRequest, refusal: Refusal) -> None:
    """Break the group of a collective that was refused before it took part, or whose program ended before it."""
    if not refusal.in_step:
        groups.skipped(request.group, refusal.message)


def _replay(scope: ExchangeScope, request: pb.CollectiveRequest, recorded: deque[Received]) -> int:
    """Write the values that the log has for a collective; the rank that sent them. The session is in no group then."""
    if request.kind in _WRITING_NOTHING:
        return 0
    if not recorded:
        raise Refusal("GROUP_BROKEN", "the log lacks what a collective gave this session")
    what = recorded.popleft()
    if what.values is not None:
        targets = scope.tensors(request.outputs or request.inputs)
        values, begin = np.frombuffer(what.values, _one_dtype(targets)), 0
        for target in targets:
            count = math.prod(target.shape)
            _put(target, values[begin : begin + count])
            begin += count
    return what.peer


def _put(target: Tensor, values: HostArray) -> None:
    with selected(target.device):
        target.array[...] = to_device(values.reshape(target.shape), target.device)
    target.storage.changed()


def _room_to_log(groups: GroupTable, targets: Sequence[Tensor]) -> HostArray | None:
    """Memory for the values that targets will receive, made before any is written; None without a log.

    Raises Refusal, EngineError: MEMORY_LIMIT; MemoryError.
    """
    notes = groups.durability.log_notes
    if notes is None:
        return None
    size = sum(math.prod(each.shape) * each.dtype.itemsize for each in targets)
    held = notes.received_bytes + size
    if held > _MOST_LOGGED:
        raise Refusal("MEMORY_LIMIT", f"the collectives of one logged call receive at most {_MOST_LOGGED} bytes")
    groups.account.admit(held)
    return np.empty(size, np.uint8)


def _note(groups: GroupTable, targets: Sequence[Tensor], room: HostArray | None, peer: int = 0) -> None:
    """Note for the log what was written to the targets."""
    notes = groups.durability.log_notes
    if notes is None or room is None:
        return
    begin = 0
    for each in targets:
        values = host(each.array)
        room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)[...] = values
        begin += values.nbytes
    notes.received(Received(room.data if targets else None, peer))


def _check_name(name: str) -> None:
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise Refusal("ARGUMENT_VALUE", f"a group's name has 1 to {_MAX_NAME} printable characters", argument="group")


def _join(groups: GroupTable, request: pb.CollectiveRequest) -> Iterator[None]:
    channel = groups.require_channel()
    _check_name(request.group)
    if not 0 < request.size <= MAX_RANKS:
        raise Refusal("ARGUMENT_VALUE", f"a group has 1 to {MAX_RANKS} ranks, not {request.size}", argument="size")
    if request.rank >= request.size:
        message = f"rank {request.rank} is not below the group's size of {request.size}"
        raise Refusal("ARGUMENT_VALUE", message, argument="rank")
    former = groups.joined.get(request.group)
    if former is not None and former.broken is None:
        message = f"this session is rank {former.rank} of group {request.group!r} already"
        raise Refusal("ARGUMENT_VALUE", message, argument="group")
    if former is not None:
        former.close()
        del groups.joined[request.group]
    if len(groups.joined) >= MAX_GROUPS:
        raise Refusal("ARGUMENT_VALUE", f"a session is in at most {MAX_GROUPS} groups", argument="group")
    try:
        memory = RankMemory(groups.account)
    except OSError as error:
        raise Refusal("MEMORY_LIMIT", f"no group can be joined: {_no_file(error)}") from None
    peers: list[PeerMemory] = []
    try:
        formed = yield from _answer(groups, channel.ask(
            groups.session, "join", group=request.group, rank=request.rank, size=request.size,
            file=location(memory.fd), timeout=request.timeout_ms, grace=request.grace_ms,
        ))  # fmt: skip
        member = Membership(request.group, formed["group"], request.rank, request.size, memory)
        groups.joined[request.group] = member
        try:
            for where in formed["files"]:
                peers.append(PeerMemory(where))  # noqa: PERF401 - those opened are closed if one fails
        except OSError as error:
            raise Refusal("GROUP_BROKEN", f"another rank's memory cannot be opened: {_no_file(error)}") from None
        member.peers, member.nodes = peers, formed.get("nodes", [])
        member.processes = [where[0] for where in formed["files"]]
        # No rank may end before all have opened its memory.
        yield from _met(groups, member, "join", request.timeout_ms)
    except BaseException:
        groups.joined.pop(request.group, None)
        channel.tell(groups.session, "withdraw", group=request.group)
        memory.close()
        for peer in peers:
            peer.close()
        raise


def _no_file(error: OSError) -> str:
    """Why a file cannot be opened, and what to do about it."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"the server's process has {limit} open files, its limit. A rank needs one for each rank of its groups: "
            "leave groups, or start the server with a higher limit (ulimit -n)"
        )
    return str(error)


def _leave(groups: GroupTable, name: str) -> None:
    member = groups.joined.pop(name, None)
    if member is None:
        raise Refusal("GROUP_BROKEN", f"this session is in no group {name[:_MAX_NAME]!r}")
    member.close()
    groups.require_channel().tell(groups.session, "leave", group=member.number)


def _answer(groups: GroupTable, future: Future[Any]) -> Waiting:
    """Wait for an answer of the front, while other sessions compute. Raises Refusal: also if the command is stopped."""
    token = groups.cancel_token
    while not future.done():
        if token.closed or token.stopping():
            raise token.refusal()
        token.wait_for(future)
        yield
    answered: dict[str, Any] = future.result()
    return answered


def _met(
    groups: GroupTable,
    member: Membership,
    about: str,
    timeout: int,
    offer: Any = None,
    meanwhile: Callable[[], None] | None = None,
) -> Waiting:
    """Wait until all ranks have arrived; the offers of all of them. Raises Refusal, in step with the other ranks."""
    channel = groups.require_channel()
    offered = {} if offer is None else {"offer": offer}
    future = channel.ask(
        groups.session, "arrive", group=member.number, place=member.begun, about=about, timeout=timeout, **offered
    )  # fmt: skip
    member.begun += 1
    if meanwhile is not None:
        meanwhile()
    try:
        return (yield from _answer(groups, future))
    except Refusal as refusal:
        if not future.done():  # this rank's command was stopped
            why = f"the command of rank {member.rank} was stopped: {refusal.message}"
            member.broken = member.broken or Refusal("GROUP_BROKEN", why, rank=member.rank)
            channel.tell(groups.session, "abandon", group=member.number, why=why)
        refusal.in_step = True
        raise
    except GeneratorExit:
        channel.tell(groups.session, "abandon", group=member.number, why=f"the session of rank {member.rank} ended")
        raise


def _described(name: str, tensors: Sequence[Tensor]) -> str:
    """What all ranks must agree on, in at most _MAX_SHOWN characters and a hash."""
    dtypes = " and ".join(sorted({name_of(each.dtype) for each in tensors}))
    text = f"{name} of {dtypes} {', '.join(str(list(each.shape)) for each in tensors)}" if tensors else name
    if len(text) > _MAX_SHOWN:
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        text = f"{text[:_MAX_SHOWN]}… ({len(tensors)} tensors, {digest})"
    return text


def _one_dtype(tensors: Sequence[Tensor]) -> DType:
    found = {each.dtype for each in tensors}
    if len(found) != 1:
        names = ", ".join(sorted(map(name_of, found))) or "none"
        raise Refusal("DTYPE", f"a collective's tensors have one dtype, not {names}")
    return tensors[0].dtype


def _check_written(tensors: Sequence[Tensor]) -> None:
    for each in tensors:
        array = each.array
        overlaps = any(size > 1 and not stride for size, stride in zip(array.shape, array.strides, strict=True))
        if overlaps or not is_writable(array):
            raise Refusal(
                "RUNTIME",
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation.",
            )


def _count(tensors: Sequence[Tensor]) -> int:
    return sum(math.prod(each.shape) for each in tensors)


class _Exchange:
    """One collective in which all ranks meet. What it refuses before, it refuses on all ranks."""

    def __init__(self, scope: ExchangeScope, member: Membership, request: pb.CollectiveRequest) -> None:
        self.scope = scope
        self.groups: GroupTable = scope.groups
        self.member = member
        self.request = request
        self.kind = request.kind
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.dtype: DType = np.dtype(np.uint8)
        self.given = 0  # elements that this rank gives
        self.turn = 0
        self.room: HostArray | None = None  # for the log
        self.streams = False  # whether values pass through rings
        self.streamed: StreamedReduction | None = None

    def run(self) -> Iterator[None]:
        """Give values, meet the other ranks, take values. Raises Refusal."""
        try:
            yield from self._exchanged()
        finally:
            if self.streamed is not None:
                self.streamed.end()

    def _exchanged(self) -> Iterator[None]:
        self.turn = self.member.turn
        between = GpuExchange(self.groups, self.member, self.request)
        try:
            about = self._prepare()
            offer = between.offer(self.inputs, self.outputs, self.written())
            if offer is None:
                yield from self._write(about)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - told to all ranks; the unforeseen is logged
            refusal = self._refused(error)
            raise refusal from None
        met = yield from _met(self.groups, self.member, about, self.request.timeout_ms, offer, self._read_ahead)
        self.member.turn ^= 1
        if "offers" in met and not between.suits(met["offers"]):
            yield from self._meet_again(about, written=offer is None)
            met = {}
        try:
            if "offers" in met:
                begun = between.begin(met["offers"])
                try:
                    yield from _answer(self.groups, begun)
                except BaseException:
                    between.note_changes()
                    raise
                between.finish()
            else:
                yield from self._fetch(self._needed())
                yield from self._take()
            if self.kind not in _WRITING_NOTHING:
                _note(self.groups, self.written(), self.room)
        except (EngineError, MemoryError) as error:  # some tensors may have changed: the ranks are apart from now on
            refusal = refusal_of(error, "Collective")
            refusal.in_step = False
            raise refusal from None

    def _meet_again(self, about: str, written: bool) -> Iterator[None]:
        """Give values by the host's memory after all, since not all ranks have a GPU of their own."""
        if not written:
            try:
                yield from self._write(about)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - told to all ranks; the unforeseen is logged
                refusal = self._refused(error)
                raise refusal from None
        yield from _met(self.groups, self.member, f"{about}, by the host", self.request.timeout_ms)

    def _refused(self, error: BaseException) -> Refusal:
        """Tell the other ranks why this one cannot take part; the refusal for this one."""
        if isinstance(error, EngineError) and error.reason.value == "CANCELLED":
            error = self.groups.cancel_token.refusal()
        refusal = refusal_of(error, "Collective") if isinstance(error, Exception) else Refusal("INTERNAL", "stopped")
        member = self.member
        member.begun += 1
        self.groups.require_channel().tell(
            self.groups.session, "fail", group=member.number, place=member.begun - 1, reason=refusal.reason,
            message=f"rank {member.rank} cannot take part in {_KINDS[self.kind]}: {refusal.message}",
        )  # fmt: skip
        refusal.in_step = True
        return refusal

    def _prepare(self) -> str:
        """Check this rank's tensors; what all ranks must agree on. Raises Refusal, EngineError."""
        request, kind, member, scope = self.request, self.kind, self.member, self.scope
        name = _KINDS[kind]
        if kind == pb.COLLECTIVE_KIND_BARRIER:
            return name
        if kind in _REDUCING:
            if request.op not in _OPS:
                raise Refusal("ARGUMENT_VALUE", f"there is no reduction {request.op}", argument="op")
            name = f"{name}({_OPS[request.op]})"
        if kind in _ROOTED:
            if request.peer >= member.size:
                message = f"the group has {member.size} ranks and no rank {request.peer}"
                raise Refusal("ARGUMENT_VALUE", message, argument="peer")
            name += f" with rank {request.peer}"
        self.inputs, self.outputs = scope.tensors(request.inputs), scope.tensors(request.outputs)
        self.dtype = _one_dtype([*self.inputs, *self.outputs])
        if kind in _REDUCING:
            check_reduction(_OPS[request.op], self.dtype)
        _check_written(self.outputs or self.inputs)
        self.room = _room_to_log(self.groups, self.written())
        about = _described(name, self._check_sizes())
        size = sum(end - begin for each in (self._needed(), self._reduced()) for _, begin, end in each)
        self.member.memory.admit_fetched(self.turn, size * self.dtype.itemsize)
        # A lost rank leaves the others' tensors half reduced, which no log could repeat.
        logged = self.groups.durability.log_notes is not None
        if kind == pb.COLLECTIVE_KIND_ALL_REDUCE and not logged:
            self.streams = streams(self.member, self.given * self.dtype.itemsize)
        return f"{about}, streamed" if self.streams else about

    def written(self) -> list[Tensor]:
        """The tensors that receive values."""
        found: list[Tensor] = _written(self.request, self.member.rank, self.inputs, self.outputs)
        return found

    def _check_sizes(self) -> list[Tensor]:
        """Check the numbers of elements; the tensors whose shapes all ranks share. Raises Refusal: SHAPE."""
        kind, size, is_root = self.kind, self.member.size, self.member.rank == self.request.peer
        inputs, outputs = self.inputs, self.outputs
        given, taken = _count(inputs), _count(outputs)
        in_place = kind in _IN_PLACE
        shared, wanted = inputs, (given, 0)
        if kind == pb.COLLECTIVE_KIND_ALL_GATHER:
            wanted = (given, given * size)
        elif kind == pb.COLLECTIVE_KIND_GATHER:
            wanted = (given, given * size if is_root else 0)
        elif kind == pb.COLLECTIVE_KIND_REDUCE_SCATTER:
            wanted = (taken * size, taken)
        elif kind == pb.COLLECTIVE_KIND_SCATTER:
            shared, wanted = outputs, (taken * size if is_root else 0, taken)
        elif kind == pb.COLLECTIVE_KIND_ALL_TO_ALL:
            wanted = (taken, taken)
            if given % size:
                raise Refusal("SHAPE", f"{given} elements cannot be cut into {size} equal parts")
        if (given, taken) != wanted or (in_place and outputs):
            raise Refusal(
                "SHAPE",
                f"{_KINDS[kind]} of {size} ranks: the inputs have {given} elements and the outputs {taken}, but they "
                f"must have {wanted[0]} and {wanted[1]}",
            )
        self.given = given
        if kind == pb.COLLECTIVE_KIND_BROADCAST and not is_root:
            self.given = 0
        return shared

    def _write(self, about: str) -> Iterator[None]:
        """Copy this rank's values into its memory, or the first of them if they are streamed."""
        if not self.given:
            return
        if self.streams:
            name, timeout = _OPS[self.request.op], self.request.timeout_ms
            self.streamed = StreamedReduction(self.groups, self.member, name, self.inputs, about, timeout)
            return
        room = self.member.memory.region(self.turn, self.given * self.dtype.itemsize).view(self.dtype)
        place = 0
        for each in self.inputs:
            values = host(each.array)
            flat = values.reshape(-1)  # a copy, if the values are not dense
            for begin in range(0, flat.size, _COPIED):
                part = flat[begin : begin + _COPIED]
                room[place : place + part.size] = part
                place += part.size
                yield from self._pause()

    def _read_ahead(self) -> None:
        if self.streamed is not None:
            self.streamed.read_ahead()

    def _splits(self) -> bool:
        """Whether each rank reduces one part of an all-reduce, and takes the other parts' results.

        So a rank's server receives less than twice the bytes of the tensors for it, whatever the number of ranks. The
        values are still combined in the order of ranks.
        """
        return (
            self.kind == pb.COLLECTIVE_KIND_ALL_REDUCE
            and len(set(self.member.nodes)) > 1
            and self.given * self.dtype.itemsize >= _SPLIT
        )

    def _part(self, rank: int) -> tuple[int, int]:
        """The elements that a rank reduces, where ranks share the work."""
        return self.given * rank // self.member.size, self.given * (rank + 1) // self.member.size

    def _needed(self) -> list[tuple[int, int, int]]:
        """Ranks of other servers, and the first and last element of their values that this rank reads."""
        if not self.member.nodes:
            return []
        kind, size, rank, peer = self.kind, self.member.size, self.member.rank, self.request.peer
        others = [each for each in range(size) if self.member.is_remote(each)]
        if not others or (kind in (pb.COLLECTIVE_KIND_REDUCE, pb.COLLECTIVE_KIND_GATHER) and rank != peer):
            return []
        begin, end = 0, self.given
        if kind in (pb.COLLECTIVE_KIND_BROADCAST, pb.COLLECTIVE_KIND_SCATTER):
            others = [each for each in others if each == peer]
            count = _count(self.written())
            begin = rank * count if kind == pb.COLLECTIVE_KIND_SCATTER else 0
            end = begin + count
        elif self._splits():
            begin, end = self._part(rank)
        elif kind in (pb.COLLECTIVE_KIND_REDUCE_SCATTER, pb.COLLECTIVE_KIND_ALL_TO_ALL):
            begin, end = rank * (self.given // size), (rank + 1) * (self.given // size)
        return [(each, begin, end) for each in others if end > begin]

    def _reduced(self) -> list[tuple[int, int, int]]:
        """The same of the parts that ranks of other servers reduce."""
        ranks = range(self.member.size) if self._splits() else ()
        return [(each, *self._part(each)) for each in ranks if self.member.is_remote(each)]

    def _fetch(self, wanted: Sequence[tuple[int, int, int]]) -> Iterator[None]:
        """Let the front copy values of other servers' ranks. Raises Refusal."""
        if wanted:
            scale = self.dtype.itemsize
            yield from _answer(self.groups, self.groups.require_channel().ask(
                self.groups.session, "fetch", group=self.member.number, place=self.member.begun, turn=self.turn,
                parts=[(rank, begin * scale, end * scale) for rank, begin, end in wanted],
            ))  # fmt: skip

    def _reduce_parts(self) -> Iterator[None]:
        """Reduce this rank's part in its memory, and write the results of all parts to the tensors."""
        size, rank, name = self.member.size, self.member.rank, _OPS[self.request.op]
        begin, end = self._part(rank)
        sources = [self._source(each, self.given) for each in range(size)]
        own = self.member.memory.region(self.turn, self.given * self.dtype.itemsize).view(self.dtype)
        for at in range(begin, end, _BLOCK):
            until = min(at + _BLOCK, end)
            reduced = np.empty(until - at, self.dtype)
            reduce_into(name, [each[at:until] for each in sources], reduced)
            own[at:until] = reduced  # no other rank reads its own values there
            yield from self._pause()
        yield from _met(self.groups, self.member, "all_reduce, second part", self.request.timeout_ms)
        yield from self._fetch(self._reduced())

        def fill(out: HostArray, first: int) -> Iterator[None]:
            for each in range(size):
                low, high = self._part(each)
                low, high = max(low, first), min(high, first + out.size)
                for at in range(low, high, _COPIED):
                    until = min(at + _COPIED, high)
                    out[at - first : until - first] = sources[each][at:until]
                    yield from self._pause()

        yield from self._fill(self.inputs, fill)

    def _pause(self) -> Iterator[None]:
        if time.monotonic() >= self.groups.cancel_token.at:
            yield

    def _source(self, rank: int, count: int) -> HostArray:
        """The first `count` values that a rank gave."""
        return self.member.peers[rank].region(self.turn, count * self.dtype.itemsize).view(self.dtype)

    def _take(self) -> Iterator[None]:
        """Write what this rank receives. Stops for nothing but the session's end: other ranks do the same."""
        kind, size, rank, peer = self.kind, self.member.size, self.member.rank, self.request.peer
        if self.streamed is not None:
            yield from self.streamed.run()
        elif self._splits():
            yield from self._reduce_parts()
        elif kind == pb.COLLECTIVE_KIND_ALL_REDUCE or (kind == pb.COLLECTIVE_KIND_REDUCE and rank == peer):
            yield from self._reduce(self.inputs, [self._source(each, self.given) for each in range(size)])
        elif kind == pb.COLLECTIVE_KIND_REDUCE_SCATTER:
            part = self.given // size
            sources = [self._source(each, self.given)[rank * part : (rank + 1) * part] for each in range(size)]
            yield from self._reduce(self.outputs, sources)
        elif kind == pb.COLLECTIVE_KIND_BROADCAST and rank != peer:
            yield from self._copy(self.inputs, [self._source(peer, _count(self.inputs))])
        elif kind == pb.COLLECTIVE_KIND_ALL_GATHER or (kind == pb.COLLECTIVE_KIND_GATHER and rank == peer):
            yield from self._copy(self.outputs, [self._source(each, self.given) for each in range(size)])
        elif kind == pb.COLLECTIVE_KIND_SCATTER:
            part = _count(self.outputs)
            yield from self._copy(self.outputs, [self._source(peer, part * size)[rank * part : (rank + 1) * part]])
        elif kind == pb.COLLECTIVE_KIND_ALL_TO_ALL:
            part = self.given // size
            sources = [self._source(each, self.given)[rank * part : (rank + 1) * part] for each in range(size)]
            yield from self._copy(self.outputs, sources)

    def _reduce(self, targets: Sequence[Tensor], sources: Sequence[HostArray]) -> Iterator[None]:
        name = _OPS[self.request.op]

        def fill(out: HostArray, begin: int) -> Iterator[None]:
            for at in range(0, out.size, _BLOCK):
                part = out[at : at + _BLOCK]
                reduce_into(name, [each[begin + at : begin + at + part.size] for each in sources], part)
                yield from self._pause()

        yield from self._fill(targets, fill)

    def _copy(self, targets: Sequence[Tensor], sources: Sequence[HostArray]) -> Iterator[None]:
        size = sources[0].size

        def fill(out: HostArray, begin: int) -> Iterator[None]:
            done = 0
            while done < out.size:
                source, at = divmod(begin + done, size)
                part = sources[source][at : min(size, at + out.size - done, at + _COPIED)]
                out[done : done + part.size] = part
                done += part.size
                yield from self._pause()

        yield from self._fill(targets, fill)

    def _fill(self, targets: Sequence[Tensor], fill: Callable[[HostArray, int], Iterator[None]]) -> Iterator[None]:
        """Let `fill` write each target's values, which begin at an element of the whole, and note the change."""
        begin = 0
        indirect = [each for each in targets if not _is_dense(each.array)]
        room = np.empty(max(map(_count, ([each] for each in indirect)), default=0), self.dtype)  # before any is written
        for target in targets:
            array = target.array
            count = math.prod(array.shape)
            if _is_dense(array):
                yield from fill(array.reshape(-1), begin)
            else:
                made = room[:count]
                yield from fill(made, begin)
                with selected(target.device):
                    array[...] = to_device(made.reshape(array.shape), target.device)
            target.storage.changed()
            begin += count


def _is_dense(array: Any) -> bool:
    return type(array) is np.ndarray and array.flags.c_contiguous


def _other_rank(member: Membership, rank: int) -> None:
    if rank >= member.size or rank == member.rank:
        raise Refusal(
            "ARGUMENT_VALUE",
            f"rank {member.rank} of {member.size} can exchange a message with each other rank, not with rank {rank}",
            argument="peer",
        )


def _send(scope: ExchangeScope, member: Membership, request: pb.CollectiveRequest) -> Iterator[None]:
    """Send values to a rank, whose worker copies them at once."""
    _other_rank(member, request.peer)
    tensors = scope.tensors(request.inputs)
    dtype = _one_dtype(tensors)
    groups = scope.groups
    size = _count(tensors) * dtype.itemsize
    groups.account.admit(size)
    try:
        fd = os.memfd_create("gradwire-message", os.MFD_CLOEXEC)
    except OSError as error:
        raise Refusal("MEMORY_LIMIT", f"the message cannot be sent: {_no_file(error)}") from None
    try:
        for each in tensors:
            data = np.ascontiguousarray(host(each.array)).reshape(-1).view(np.uint8).data
            while data:
                data = data[os.write(fd, data[: _COPIED * 4]) :]
                if time.monotonic() >= groups.cancel_token.at:
                    yield
        yield from _answer(groups, groups.require_channel().ask(
            groups.session, "send", group=member.number, to=request.peer, timeout=request.timeout_ms,
            message={
                "sender": member.rank, "tag": request.tag, "about": _described("", tensors).strip(), "size": size,
                "file": location(fd),
            },
        ))  # fmt: skip
    finally:
        os.close(fd)


def _receive(scope: ExchangeScope, member: Membership, request: pb.CollectiveRequest) -> Generator[None, None, int]:
    """Wait for a message and write its values; return the rank that sent it. Raises Refusal: COLLECTIVE_MISMATCH."""
    sender = None if request.any_peer else request.peer
    if sender is not None:
        _other_rank(member, sender)
    tensors = scope.tensors(request.outputs)
    dtype = _one_dtype(tensors)
    _check_written(tensors)
    groups = scope.groups
    room = _room_to_log(groups, tensors)
    message = member.pop(sender, request.tag)
    if message is None:
        message = yield from _awaited(groups, member, sender, request)
    about = _described("", tensors).strip()
    if message.data.nbytes != _count(tensors) * dtype.itemsize or message.about.split()[1] != about.split()[1]:
        refusal = Refusal(
            "COLLECTIVE_MISMATCH",
            f"rank {message.sender} sent a message {message.about}, but rank {member.rank} receives one {about}",
        )
        refusal.in_step = True  # the group is whole: the sender does not wait for this rank
        raise refusal
    values, begin = message.data.view(dtype), 0
    for target in tensors:
        count = math.prod(target.shape)
        _put(target, values[begin : begin + count])
        begin += count
    _note(groups, tensors, room, message.sender)
    return message.sender


def _awaited(
    groups: GroupTable, member: Membership, sender: int | None, request: pb.CollectiveRequest
) -> Generator[None, None, Any]:
    """Wait until a message is there. The front tells if the time is over."""
    channel = groups.require_channel()
    limit: Future[Any] | None = None
    if request.timeout_ms:
        limit = channel.ask(groups.session, "wait", group=member.number, timeout=request.timeout_ms)
    while True:
        if member.broken is not None:
            raise member.broken.copy()
        arrived: Future[Any] = Future()
        member.receiving = arrived
        if limit is not None:
            limit.add_done_callback(partial(_pass_on, arrived))
        try:
            yield from _answer(groups, arrived)
        finally:
            member.receiving = None
        message = member.pop(sender, request.tag)
        if message is not None:
            if limit is not None:
                channel.tell(groups.session, "waited", group=member.number)
            return message


def _pass_on(waiting: Future[Any], done: Future[Any]) -> None:
    if not waiting.done():
        waiting.set_exception(done.exception() or Refusal("DEADLINE_EXCEEDED", "no message came in time"))
