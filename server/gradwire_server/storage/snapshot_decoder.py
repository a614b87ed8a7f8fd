"""Snapshot decoder: `SnapshotDecoder` fills an empty session from a SessionState and its memories.

All objects are first created empty, then linked, so their order does not matter. The names of a node's saved values
are compared with this server's registry: a graph of changed ops is refused, naming the op.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gradwire.v1 import commands_pb2
from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine.autograd.checkpoints import Region, RegionStart
from gradwire_engine.autograd.saved_tensor_hooks import Packed
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import CPU, canonical, cupy, device_of, selected
from gradwire_engine.graph.graph import AccumulateGrad, FunctionNode, Meta, Node
from gradwire_engine.graph.hooks import CallbackKind, ExternalCallback, Hooks
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import EdgeTensor, GradState, InferenceStorage, Storage, Tensor, ViewOrigin, ViewStep
from gradwire_engine.op.declaration import OPS, Declaration
from gradwire_engine.op.rebase import OpView, ViewRoute
from gradwire_server.common.errors import Refusal
from gradwire_server.session.prepared.ops import Prepared
from gradwire_server.session.programs import Program
from gradwire_server.session.state.failures import Failure
from gradwire_server.session.state.transfers import Download, Upload
from gradwire_server.storage.snapshot_encoder import KINDS

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

_BATCH = 200
T = TypeVar("T")


def reserve(memory: pb.StoredMemory) -> Any:
    """Allocate a memory: an array of its stored dtype and shape, or uint8. Raises Refusal: DEVICE_UNAVAILABLE."""
    if memory.device not in ("", CPU):
        module: Any = cupy()
        with selected(canonical(memory.device)):
            return module.empty(memory.bytes, np.uint8)
    if memory.dtype:
        return np.empty(tuple(memory.shape), _dtype(memory.dtype))
    return np.empty(memory.bytes, np.uint8)


class SnapshotDecoder:
    """Fills `session` from `state`; `memories` were allocated by `reserve` and hold their bytes."""

    def __init__(self, session: Session, state: pb.SessionState, memories: Sequence[Any]) -> None:
        self.session = session
        self.state = state
        self.memories = memories
        account = session.account
        self.arrays = [self._array(each) for each in state.arrays]
        self.storages = [_storage(each, account) for each in state.storages]
        self.tensors: list[Tensor] = [_empty_tensor(each.edge) for each in state.tensors]
        self.steps = [ViewStep.__new__(ViewStep) for _ in state.steps]
        self.nodes: list[Any] = [_empty_node(each) for each in state.nodes]
        self.asks = [ExternalCallback(number, session.dropped_hook_queue(number)) for number in state.asks]
        self.regions = [Region.__new__(Region) for _ in state.regions]

    def fill(self) -> Iterator[None]:
        """Fill the session; yields periodically. Raises Refusal: SNAPSHOT_DAMAGED, and refusals of programs and ops."""
        state, session = self.state, self.session
        for storage, described in zip(self.storages, state.storages, strict=True):
            owner = self._of(self.storages, described.owner)
            if owner is not None:
                storage.borrow(owner)
        for step, held in zip(self.steps, state.steps, strict=True):
            step.before = self._of(self.steps, held.before)
            step.op = _op(held.op)
            step.args = self._tuple(held.args)
            step.shape, step.dtype = tuple(held.input.shape), _dtype(held.input.dtype)
        for region, stored in zip(self.regions, state.regions, strict=True):
            self._region(region, stored)
        yield from _paced(self.tensors, state.tensors, self._tensor)
        yield from _paced(self.nodes, state.nodes, self._node)
        for node, made in zip(self.nodes, state.nodes, strict=True):
            for kept in made.retained:
                node.retain(kept.output, self.tensors[kept.tensor - 1])
        self._session()
        highest = max((made.seq for made in state.nodes), default=-1)
        session.grad_context.nodes.next = max(state.next_node_seq, highest + 1)
        for number, ask in zip(state.asks, self.asks, strict=True):
            session.hooks.asks[number] = ask
        for region in self.regions:
            session.hooks.regions[region.callback.number] = region

    # Objects.

    def _array(self, stored: pb.StoredArray) -> Any:
        owner = self.memories[stored.memory - 1]
        shape, dtype = tuple(stored.shape), _dtype(stored.dtype)
        if device_of(owner) != CPU:
            module: Any = cupy()
            pointer = module.cuda.MemoryPointer(owner.data.mem, stored.offset)
            return module.ndarray(shape, dtype, pointer, tuple(stored.strides))
        if stored.owner and owner.dtype == dtype and owner.shape == shape:
            made = owner
        elif 0 in shape:
            made = np.ndarray(shape, dtype, strides=tuple(stored.strides))
        else:
            made = np.ndarray(shape, dtype, owner, stored.offset, tuple(stored.strides))
        if stored.read_only:
            made.flags.writeable = False
        return made

    @staticmethod
    def _of(things: Sequence[T], number: int) -> T | None:
        return things[number - 1] if number else None

    def _tensor(self, tensor: Tensor, stored: pb.StoredTensor) -> None:
        tensor.array, tensor.storage = self.arrays[stored.array - 1], self.storages[stored.storage - 1]
        tensor.requires_grad = stored.requires_grad
        tensor.node, tensor.index = self._of(self.nodes, stored.node), stored.output
        tensor.view = tensor.state = None
        if stored.HasField("view"):
            tensor.view = view = OpView.__new__(OpView)
            held = stored.view
            view.base, view.last = self.tensors[held.base - 1], self.steps[held.step - 1]
            view.origin = ViewOrigin(held.origin) if held.origin else None
            view.flagged, view.version, view.seen = held.flagged, held.version, held.seen
            view.written = held.written
            # The base's array by number, since the base itself may not be filled yet.
            of_base = self.arrays[self.state.tensors[held.base - 1].array - 1]
            view.source = None if held.left_behind else of_base
        if stored.has_state:
            tensor.state = state = GradState()
            state.grad, state.retains_grad = self._of(self.tensors, stored.grad), stored.retains_grad
            node = self._of(self.nodes, stored.accumulator)
            state.accumulator = None if node is None else weakref.ref(node)
            if stored.HasField("hooks"):
                state.hooks = self._hooks(stored.hooks)

    def _node(self, node: Any, stored: pb.StoredNode) -> None:
        node.hooks = self._hooks(stored.hooks) if stored.HasField("hooks") else None
        if stored.leaf:
            node.variable = self.tensors[stored.leaf - 1]
            return
        op = _op(stored.op)
        node.op, node.name, node.saving_plan = op, stored.name, op.saving_plan(stored.needed)
        if node.saving_plan.names != list(stored.saved_names):
            raise Refusal(
                "SNAPSHOT_DAMAGED",
                f"a {stored.name} saved {', '.join(stored.saved_names) or 'nothing'}, but in this server's version "
                f"its formulas need {', '.join(node.saving_plan.names) or 'nothing'}",
            )
        node.saved = self._tuple(stored.saved)
        node.edges = tuple((self.nodes[edge.node - 1], edge.output) if edge.node else None for edge in stored.edges)
        node.metas = tuple(_shaped(edge.meta) for edge in stored.edges)
        node.seq, node.freed, node.command, node.work = stored.seq, stored.freed, stored.command, stored.work
        node.outputs = None
        if stored.has_outputs:
            node.outputs = tuple(_meta(each) if each.dtype else None for each in stored.outputs)
        node.retained = node.part = None
        if isinstance(node, FunctionNode):
            node.differentiable = tuple(stored.function.differentiable)
            node.materializes = stored.function.materializes

    def _hooks(self, stored: pb.StoredHooks) -> Hooks:
        hooks = Hooks()
        for each in stored.tensor:
            for number in each.asks:
                hooks.add(CallbackKind.TENSOR, self.asks[number - 1], each.output)
        for when, numbers in (
            (CallbackKind.BEFORE, stored.before),
            (CallbackKind.AFTER, stored.after),
            (CallbackKind.ACCUMULATED, stored.accumulated),
        ):
            for number in numbers:
                hooks.add(when, self.asks[number - 1])
        hooks.formula = self._of(self.asks, stored.formula)
        hooks.again = self._of(self.regions, stored.region)
        return hooks

    def _region(self, region: Region, stored: pb.StoredRegion) -> None:
        region.callback = self.asks[stored.ask - 1]
        region.random = stored.generator or None
        region.kinds = [
            (each.name, [(tuple(meta.shape), _dtype(meta.dtype)) for meta in each.saved]) for each in stored.nodes
        ]
        region.nodes = [[weakref.ref(self.nodes[number - 1]) for number in each.nodes] for each in stored.nodes]
        # Regions of earlier versions have no numbers, and are recomputed as a whole.
        region.saving = [place for place, each in enumerate(stored.nodes) if each.saves]
        region.offsets = [each.offset - 1 for each in stored.nodes if each.offset]
        region.behind = [[number - 1 if number else None for number in each.behind] for each in stored.nodes]

    # Values.

    def _tuple(self, values: Any) -> tuple[Any, ...]:
        return tuple([self._value(each) for each in values])

    def _value(self, stored: pb.StoredValue) -> Any:
        kind = stored.WhichOneof("kind")
        if kind == "saved":
            return self._saved(stored.saved)
        if kind == "none":
            return None if stored.none else Ellipsis
        if kind in ("boolean", "integer", "number", "text", "data"):
            return getattr(stored, kind)
        if kind == "array":
            return self.arrays[stored.array - 1]
        if kind == "tensor":
            return self.tensors[stored.tensor - 1]
        if kind == "tuple":
            return self._tuple(stored.tuple.values)
        if kind == "list":
            return list(self._tuple(stored.list.values))
        return self._rare(kind, stored)

    def _rare(self, kind: str | None, stored: pb.StoredValue) -> Any:
        if kind == "meta":
            return _meta(stored.meta)
        if kind == "slice":
            return slice(*self._tuple(stored.slice.values))
        if kind == "dtype":
            return _dtype(stored.dtype)
        if kind == "scalar":
            return self.arrays[stored.scalar - 1][()]
        if kind == "large":
            return int(stored.large)
        if kind == "packed":
            return self._packed(stored.packed)
        if kind == "complex":
            return complex(stored.complex.real, stored.complex.imag)
        if kind == "route":
            route = ViewRoute.__new__(ViewRoute)
            route.device = stored.route.device
            route.steps = [self.steps[number - 1] for number in stored.route.steps]
            route.geometry = self._value(stored.route.geometry)
            return route
        raise Refusal("SNAPSHOT_DAMAGED", "a node holds a value that this server does not know")

    def _packed(self, stored: pb.StoredPacked) -> Packed:
        made, meta = Packed.__new__(Packed), _meta(stored.meta)
        made.callback = self.asks[stored.ask - 1]
        made.shape, made.dtype, made.device = meta.shape, meta.dtype, meta.device
        made.output, made.requires_grad = stored.output, stored.requires_grad
        made.node, made.index = self._of(self.nodes, stored.node), stored.index
        return made

    def _saved(self, stored: pb.StoredSaved) -> Saved:
        made = Saved.__new__(Saved)
        made.array, made.storage = self.arrays[stored.array - 1], self.storages[stored.storage - 1]
        made.version, made.output, made.requires_grad = stored.version, stored.output, stored.requires_grad
        made.node, made.index = self._of(self.nodes, stored.node), stored.index
        made.leaf = self._of(self.tensors, stored.leaf)
        made.tangents = None  # a session with tangents is not stored
        return made

    # The session's tables.

    def _session(self) -> None:
        session, state = self.session, self.state
        session.epoch, session.next_id = state.epoch, state.next_id
        session.unary_commands = int(state.has_unary)
        session.grad_context.generator.set_state(state.generator)
        session.transfers.seed, session.transfers.begun_downloads = state.transfer_seed, state.downloads_begun
        session.hooks.next_number = max(1, state.next_backward)
        session.graph_walks.next_number = max(1, state.next_leaf_number)
        for leaf in state.leaf_numbers:
            session.graph_walks.leaf_ids[self.nodes[leaf.node - 1]] = leaf.number
        for failure in state.failures:
            session.failed_ids[failure.id] = Failure(failure.seq, failure.writer, failure.reason, failure.message)
        for raw in state.programs:
            session.programs[_hash(raw)] = Program(raw, session)
        for answer in state.answers:
            session.response_cache.put(answer.request_id, answer.method, answer.request_digest, answer.response)
        self._names()
        self._writers()
        for begun in state.moments:
            session.hooks.moments[begun.number] = self._moment(begun)
        for transfer in state.transfers:
            self._transfer(transfer)

    def _names(self) -> None:
        session = self.session
        for name in self.state.names:
            tensor = self.tensors[name.tensor - 1]
            session.store[name.id] = tensor
            if name.first:
                session.names[tensor] = name.id
        for name in self.state.names:
            tensor = self.tensors[name.tensor - 1]
            if not name.first:
                session.aliases.setdefault(tensor, {session.names[tensor]}).add(name.id)

    def _writers(self) -> None:
        session = self.session
        for stored in self.state.writers:
            if stored.number not in session.writers:
                session.attach(stored.number)
            writer = session.writers[stored.number]
            writer.applied = writer.durable = stored.applied_seq
            writer.responses.start = stored.answers_start
            for answer in stored.answers:
                writer.responses.held.append((answer.last_seq, answer.response))
                writer.responses.all_writers.bytes += len(answer.response)
            for prepared in stored.prepared:
                request = commands_pb2.OpRequest.FromString(prepared.op)
                writer.prepared[prepared.number] = Prepared(request, session)
            writer.dropped.numbers.extend(stored.dropped_hooks)

    def _moment(self, stored: pb.StoredMoment) -> RegionStart:
        moment = RegionStart.__new__(RegionStart)
        moment.generator = self.session.grad_context.generator
        moment.first = stored.first
        moment.outer = stored.outer if stored.keeps_random else None
        moment.random = stored.generator or None
        return moment

    def _transfer(self, stored: pb.StoredTransfer) -> None:
        transfers, array = self.session.transfers, self.arrays[stored.array - 1]
        if stored.upload:
            transfers.put(stored.transfer_id, Upload.received_already(array, stored.request_id))
        else:
            transfers.put(stored.transfer_id, Download(array.data))


def _paced(things: Sequence[T], stored: Sequence[Any], fill: Callable[[T, Any], None]) -> Iterator[None]:
    for index, (thing, each) in enumerate(zip(things, stored, strict=True), 1):
        fill(thing, each)
        if index % _BATCH == 0:
            yield


def _storage(stored: pb.StoredStorage, account: Any) -> Storage:
    made = (InferenceStorage if stored.inference else Storage)(stored.bytes, account)
    made.version, made.history = stored.version, stored.history
    return made


def _empty_tensor(edge: bool) -> Tensor:
    kind = EdgeTensor if edge else Tensor
    return kind.__new__(kind)


def _empty_node(stored: pb.StoredNode) -> Any:
    if stored.leaf:
        return AccumulateGrad.__new__(AccumulateGrad)
    kind = FunctionNode if stored.HasField("function") else Node
    return kind.__new__(kind)


def _op(name: str) -> Declaration:
    found = OPS.get(name)
    if found is None:
        raise Refusal("SNAPSHOT_DAMAGED", f"its graph has an op {name!r}, which this version of the server has not")
    return found


def _dtype(name: str) -> Any:
    known = dtypes.BY_NAME.get(name)
    if known is not None:
        return known
    if name[1:2] not in KINDS or not name[2:].isdecimal() or len(name) > 4:
        raise Refusal("SNAPSHOT_DAMAGED", f"it has an element type {name!r}, which this server does not know")
    return np.dtype(name)


def _meta(stored: pb.StoredMeta) -> Meta:
    return Meta(tuple(stored.shape), _dtype(stored.dtype), stored.device)


def _shaped(stored: pb.StoredMeta) -> Any:
    return (tuple(stored.shape), _dtype(stored.dtype)) if stored.dtype else None


def _hash(raw: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(raw).digest()
