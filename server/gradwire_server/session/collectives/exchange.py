"""Exchange: one collective in which all ranks meet.

A rank writes its values into its memory (state/group_table.py) and tells the front that it has arrived. When all ranks
have, each one reads what it needs from the memory of the others. Nothing is written to a tensor before that. Each rank
combines the values in the order of ranks, so all get the same bits. Large all-reduces of one server's workers are
streamed (state/streamed_reduction.py).
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine import EngineError, Tensor
from gradwire_engine.core.device import host, selected, to_device
from gradwire_engine.core.dtypes import DType
from gradwire_engine.core.reduction import HostArray, check_reduction, reduce_into
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.session.collectives.kinds import (
    IN_PLACE,
    KINDS,
    OPS,
    REDUCING,
    ROOTED,
    WRITING_NOTHING,
    written_of,
)
from gradwire_server.session.collectives.meeting import answer_of, meet
from gradwire_server.session.collectives.operands import (
    COPIED,
    ExchangeScope,
    check_written,
    count_of,
    described,
    one_dtype,
)
from gradwire_server.session.collectives.received import note_received, room_to_log
from gradwire_server.session.state.gpu_exchange import GpuExchange
from gradwire_server.session.state.group_table import GroupTable, Membership
from gradwire_server.session.state.streamed_reduction import StreamedReduction, streams

_BLOCK = 1 << 17  # elements that are combined between two looks at the clock
_SPLIT = 1 << 16  # bytes from which ranks of several servers share the work of an all-reduce


class Exchange:
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
        with self._told_to_all():
            about = self._prepare()
            offer = between.offer(self.inputs, self.outputs, self.written())
            if offer is None:
                yield from self._write(about)
        met = yield from meet(self.groups, self.member, about, self.request.timeout_ms, offer, self._read_ahead)
        self.member.turn ^= 1
        if "offers" in met and not between.suits(met["offers"]):
            yield from self._meet_again(about, written=offer is None)
            met = {}
        try:
            if "offers" in met:
                begun = between.begin(met["offers"])
                try:
                    yield from answer_of(self.groups, begun)
                except BaseException:
                    between.note_changes()
                    raise
                between.finish()
            else:
                yield from self._fetch(self._needed())
                yield from self._take()
            if self.kind not in WRITING_NOTHING:
                note_received(self.groups, self.written(), self.room)
        except (EngineError, MemoryError) as error:  # some tensors may have changed: the ranks are apart from now on
            refusal = refusal_of(error, "Collective")
            refusal.in_step = False
            raise refusal from None

    def _meet_again(self, about: str, written: bool) -> Iterator[None]:
        """Give values by the host's memory after all, since not all ranks have a GPU of their own."""
        if not written:
            with self._told_to_all():
                yield from self._write(about)
        yield from meet(self.groups, self.member, f"{about}, by the host", self.request.timeout_ms)

    @contextmanager
    def _told_to_all(self) -> Iterator[None]:
        """Before the ranks meet: whatever fails is told to all of them, and refused. Raises Refusal."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - told to all ranks; the unforeseen is logged
            raise self._refused(error) from None

    def _refused(self, error: BaseException) -> Refusal:
        """Tell the other ranks why this one cannot take part; the refusal for this one."""
        if isinstance(error, EngineError) and error.reason.value == "CANCELLED":
            error = self.groups.cancel_token.refusal()
        refusal = refusal_of(error, "Collective") if isinstance(error, Exception) else Refusal("INTERNAL", "stopped")
        member = self.member
        member.begun += 1
        self.groups.require_channel().tell(
            self.groups.session, "fail", group=member.number, place=member.begun - 1, reason=refusal.reason,
            message=f"rank {member.rank} cannot take part in {KINDS[self.kind]}: {refusal.message}",
        )  # fmt: skip
        refusal.in_step = True
        return refusal

    def _prepare(self) -> str:
        """Check this rank's tensors; what all ranks must agree on. Raises Refusal, EngineError."""
        request, kind, member, scope = self.request, self.kind, self.member, self.scope
        name = KINDS[kind]
        if kind == pb.COLLECTIVE_KIND_BARRIER:
            return name
        if kind in REDUCING:
            if request.op not in OPS:
                raise Refusal("ARGUMENT_VALUE", f"there is no reduction {request.op}", argument="op")
            name = f"{name}({OPS[request.op]})"
        if kind in ROOTED:
            if request.peer >= member.size:
                message = f"the group has {member.size} ranks and no rank {request.peer}"
                raise Refusal("ARGUMENT_VALUE", message, argument="peer")
            name += f" with rank {request.peer}"
        self.inputs, self.outputs = scope.tensors(request.inputs), scope.tensors(request.outputs)
        self.dtype = one_dtype([*self.inputs, *self.outputs])
        if kind in REDUCING:
            check_reduction(OPS[request.op], self.dtype)
        check_written(self.outputs or self.inputs)
        self.room = room_to_log(self.groups, self.written())
        about = described(name, self._check_sizes())
        size = sum(end - begin for each in (self._needed(), self._reduced()) for _, begin, end in each)
        self.member.memory.admit_fetched(self.turn, size * self.dtype.itemsize)
        # A lost rank leaves the others' tensors half reduced, which no log could repeat.
        logged = self.groups.durability.log_notes is not None
        if kind == pb.COLLECTIVE_KIND_ALL_REDUCE and not logged:
            self.streams = streams(self.member, self.given * self.dtype.itemsize)
        return f"{about}, streamed" if self.streams else about

    def written(self) -> list[Tensor]:
        """The tensors that receive values."""
        found: list[Tensor] = written_of(self.request, self.member.rank, self.inputs, self.outputs)
        return found

    def _check_sizes(self) -> list[Tensor]:
        """Check the numbers of elements; the tensors whose shapes all ranks share. Raises Refusal: SHAPE."""
        kind, size, is_root = self.kind, self.member.size, self.member.rank == self.request.peer
        inputs, outputs = self.inputs, self.outputs
        given, taken = count_of(inputs), count_of(outputs)
        in_place = kind in IN_PLACE
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
                f"{KINDS[kind]} of {size} ranks: the inputs have {given} elements and the outputs {taken}, but they "
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
            name, timeout = OPS[self.request.op], self.request.timeout_ms
            self.streamed = StreamedReduction(self.groups, self.member, name, self.inputs, about, timeout)
            return
        room = self.member.memory.region(self.turn, self.given * self.dtype.itemsize).view(self.dtype)
        place = 0
        for each in self.inputs:
            values = host(each.array)
            flat = values.reshape(-1)  # a copy, if the values are not dense
            for begin in range(0, flat.size, COPIED):
                part = flat[begin : begin + COPIED]
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
            count = count_of(self.written())
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
            yield from answer_of(self.groups, self.groups.require_channel().ask(
                self.groups.session, "fetch", group=self.member.number, place=self.member.begun, turn=self.turn,
                parts=[(rank, begin * scale, end * scale) for rank, begin, end in wanted],
            ))  # fmt: skip

    def _reduce_parts(self) -> Iterator[None]:
        """Reduce this rank's part in its memory, and write the results of all parts to the tensors."""
        size, rank, name = self.member.size, self.member.rank, OPS[self.request.op]
        begin, end = self._part(rank)
        sources = [self._source(each, self.given) for each in range(size)]
        own = self.member.memory.region(self.turn, self.given * self.dtype.itemsize).view(self.dtype)
        for at in range(begin, end, _BLOCK):
            until = min(at + _BLOCK, end)
            reduced = np.empty(until - at, self.dtype)
            reduce_into(name, [each[at:until] for each in sources], reduced)
            own[at:until] = reduced  # no other rank reads its own values there
            yield from self._pause()
        yield from meet(self.groups, self.member, "all_reduce, second part", self.request.timeout_ms)
        yield from self._fetch(self._reduced())

        def fill(out: HostArray, first: int) -> Iterator[None]:
            for each in range(size):
                low, high = self._part(each)
                low, high = max(low, first), min(high, first + out.size)
                for at in range(low, high, COPIED):
                    until = min(at + COPIED, high)
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
            yield from self._copy(self.inputs, [self._source(peer, count_of(self.inputs))])
        elif kind == pb.COLLECTIVE_KIND_ALL_GATHER or (kind == pb.COLLECTIVE_KIND_GATHER and rank == peer):
            yield from self._copy(self.outputs, [self._source(each, self.given) for each in range(size)])
        elif kind == pb.COLLECTIVE_KIND_SCATTER:
            part = count_of(self.outputs)
            yield from self._copy(self.outputs, [self._source(peer, part * size)[rank * part : (rank + 1) * part]])
        elif kind == pb.COLLECTIVE_KIND_ALL_TO_ALL:
            part = self.given // size
            sources = [self._source(each, self.given)[rank * part : (rank + 1) * part] for each in range(size)]
            yield from self._copy(self.outputs, sources)

    def _reduce(self, targets: Sequence[Tensor], sources: Sequence[HostArray]) -> Iterator[None]:
        name = OPS[self.request.op]

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
                part = sources[source][at : min(size, at + out.size - done, at + COPIED)]
                out[done : done + part.size] = part
                done += part.size
                yield from self._pause()

        yield from self._fill(targets, fill)

    def _fill(self, targets: Sequence[Tensor], fill: Callable[[HostArray, int], Iterator[None]]) -> Iterator[None]:
        """Let `fill` write each target's values, which begin at an element of the whole, and note the change."""
        begin = 0
        indirect = [each for each in targets if not _is_dense(each.array)]
        # Made before any target is written.
        room = np.empty(max((count_of([each]) for each in indirect), default=0), self.dtype)
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
