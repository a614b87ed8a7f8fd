"""Snapshot encoder: `SnapshotEncoder` turns a session into a SessionState and a list of memories.

An object gets a number at its first reference and is queued for its description, so a deep graph needs no recursion.
Tensors' bytes are not copied, so they must be written before the session's next command. The walk yields periodically,
so other sessions can compute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gradwire.v1 import snapshots_pb2 as pb
from gradwire_engine.autograd.checkpoints import Region
from gradwire_engine.autograd.saved_tensor_hooks import Packed, holds_packed
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import device_of
from gradwire_engine.graph.graph import AccumulateGrad, FunctionNode, Meta, Node
from gradwire_engine.graph.hooks import ExternalCallback, Hooks
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import EdgeTensor, Storage, Tensor, ViewOf, ViewStep
from gradwire_engine.op.rebase import ViewRoute
from gradwire_engine.op.strides import owner_of
from gradwire_server.common.errors import Refusal
from gradwire_server.session.state.transfers import Upload

if TYPE_CHECKING:
    from gradwire_server.session.session import Session

_BATCH = 200  # objects described between two yields
KINDS = "biufc"  # NumPy dtype kinds that can be stored, besides tensors' dtypes
_INTEGERS = range(-(1 << 63), 1 << 63)
AnyNode: TypeAlias = "Node | AccumulateGrad"


class Numbers:
    """Numbers of objects by identity, from 1. Keeps numbered objects alive, so identities stay unique."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self.objects: list[Any] = []

    def of(self, thing: Any) -> tuple[int, bool]:
        """An object's number, and whether it is new; 0 for None."""
        if thing is None:
            return 0, False
        number = self._known.get(id(thing))
        if number is not None:
            return number, False
        self.objects.append(thing)
        self._known[id(thing)] = number = len(self.objects)
        return number, True

    def known(self, thing: Any) -> int:
        """An object's number, 0 if it has none."""
        return self._known.get(id(thing), 0)


class SnapshotEncoder:
    """Describes a session. `state` is the result; `memories` own the bytes, in the order of `state.memories`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.state = pb.SessionState()
        self.memories: list[Any] = []
        self.client_nodes = 0
        self._memory_numbers: dict[tuple[str, int, int], int] = {}
        self._arrays = Numbers()
        self._storages = Numbers()
        self._tensors = Numbers()
        self._steps = Numbers()
        self._nodes = Numbers()
        self._asks = Numbers()
        self._regions = Numbers()
        self._waiting: deque[tuple[Any, Any]] = deque()
        self._retained: list[tuple[pb.StoredNode, dict[int, Any]]] = []
        self._end = 0
        self._where = "the session"

    def steps(self) -> Iterator[None]:
        """Describe the session; yields periodically. Raises Refusal: NOT_SUPPORTED, naming what cannot be stored."""
        session, state = self.session, self.state
        if session.hooks.suspended:
            raise Refusal(
                "NOT_SUPPORTED",
                "a backward of this session waits for its client to run a hook; save the session after that backward",
                later="1",
            )
        if session.grad_context.duals.active:
            raise Refusal(
                "NOT_SUPPORTED",
                "a level of forward-mode differentiation is open in this session; save the session after that level",
                later="1",
            )
        self._describe_session()
        for tensor_id, tensor in session.store.items():
            first = session.names[tensor] == tensor_id
            state.names.add(id=tensor_id, tensor=self._tensor(tensor), first=first)
            if len(self._waiting) > _BATCH:
                yield from self._describe_waiting()
        self._describe_tables()
        yield from self._describe_waiting()
        # Last, so a tensor or node that is only retained or numbered is not stored.
        for message, retained in self._retained:
            for output, reference in retained.items():
                number = self._tensors.known(reference())
                if number:
                    message.retained.add(output=output, tensor=number)
        for node, number in session.graph_walks.leaf_ids.items():
            if known := self._nodes.known(node):
                state.leaf_numbers.add(node=known, number=number)
        self._describe_regions()
        state.next_node_seq = session.grad_context.nodes.next

    def _describe_waiting(self) -> Iterator[None]:
        done = 0
        while self._waiting:
            describe, thing = self._waiting.popleft()
            describe(thing)
            done += 1
            if done % _BATCH == 0:
                yield

    # The session's tables.

    def _describe_session(self) -> None:
        session, state = self.session, self.state
        state.epoch = session.epoch
        state.next_id = session.next_id
        state.transfer_seed = session.transfers.seed
        state.downloads_begun = session.transfers.begun_downloads
        state.generator = session.grad_context.generator.get_state()
        state.has_unary = session.unary_commands > 0
        state.next_backward = session.hooks.next_number
        state.next_leaf_number = session.graph_walks.next_number
        for writer in session.writers.values():
            stored = state.writers.add(
                number=writer.number, applied_seq=writer.applied, answers_start=writer.responses.start,
                dropped_hooks=writer.dropped.numbers,
            )  # fmt: skip
            for last, response in writer.responses.held:
                stored.answers.add(last_seq=last, response=response)
            for number, prepared in writer.prepared.items():
                stored.prepared.add(number=number, op=prepared.raw)
        for request_id, (method, digest, response) in session.response_cache.held.items():
            state.answers.add(request_id=request_id, method=method, request_digest=digest, response=response)
        for tensor_id, failure in session.failed_ids.items():
            state.failures.add(
                id=tensor_id, seq=failure.seq, writer=failure.writer, reason=failure.reason, message=failure.message
            )
        state.programs.extend(program.raw for program in session.programs.values())

    def _describe_tables(self) -> None:
        """Describe open checkpoints, complete uploads and unfinished downloads."""
        session, state = self.session, self.state
        for number, moment in session.hooks.moments.items():
            state.moments.add(
                number=number, first=moment.first, outer=moment.outer or b"", generator=moment.random or b"",
                keeps_random=moment.outer is not None,
            )  # fmt: skip
        for transfer_id, held in list(session.transfers.held.items()):
            if isinstance(held, Upload):
                if held.received == held.total:
                    array = self._array(held.buffer)
                    state.transfers.add(transfer_id=transfer_id, array=array, request_id=held.request_id, upload=True)
            elif not held.finished:
                state.transfers.add(transfer_id=transfer_id, array=self._array(np.frombuffer(held.whole(), np.uint8)))

    def _describe_regions(self) -> None:
        for region in self._regions.objects:
            message = self.state.regions.add(ask=self._ask(region.callback), generator=region.random or b"")
            saving = set(region.saving)
            for place, ((name, saved), waiting) in enumerate(zip(region.kinds, region.nodes, strict=True)):
                made = message.nodes.add(name=name, saves=place in saving)
                if region.offsets:
                    made.offset = region.offsets[place] + 1
                    made.behind.extend(0 if each is None else each + 1 for each in region.behind[place])
                for shape, dtype in saved:
                    made.saved.append(_meta(shape, dtype))
                made.nodes.extend(number for each in waiting if (number := self._nodes.known(each())))

    # Numbers of objects; new objects are queued for description.

    def _tensor(self, tensor: Tensor | None) -> int:
        return self._number(self._tensors, tensor, self._describe_tensor)

    def _node(self, node: AnyNode | None) -> int:
        return self._number(self._nodes, node, self._describe_node)

    def _storage(self, storage: Storage | None) -> int:
        return self._number(self._storages, storage, self._describe_storage)

    def _step(self, step: ViewStep | None) -> int:
        return self._number(self._steps, step, self._describe_step)

    def _number(self, numbers: Numbers, thing: Any, describe: Any) -> int:
        number, new = numbers.of(thing)
        if new:
            self._waiting.append((describe, thing))
        return number

    def _ask(self, ask: ExternalCallback | None) -> int:
        number, new = self._asks.of(ask)
        if new:
            assert ask is not None
            self.state.asks.append(ask.number)
        return number

    def _region(self, region: Region | None) -> int:
        return self._regions.of(region)[0]

    def _array(self, array: Any) -> int:
        number, new = self._arrays.of(array)
        if not new:
            return number
        if isinstance(array, np.generic):
            array = np.asarray(array)
        message = self.state.arrays.add(dtype=_dtype_name(array.dtype), shape=array.shape, strides=array.strides)
        if isinstance(array, np.ndarray):
            owner = owner_of(array)
            start, size = owner.__array_interface__["data"][0], owner.nbytes
            message.offset = array.__array_interface__["data"][0] - start if array.size else 0
            message.read_only = not array.flags.writeable
            message.owner = owner is array
        else:
            owner = array.data.mem
            start, size = owner.ptr, owner.size
            message.offset = array.data.ptr - start
        message.memory = self._memory(owner, start, size, device_of(array))
        return number

    def _memory(self, owner: Any, start: int, size: int, device: str) -> int:
        number = self._memory_numbers.get((device, start, size)) if size else None
        if number is None:
            self.memories.append(owner)
            message = self.state.memories.add(bytes=size, offset=self._end, device=device)
            self._end += size
            if isinstance(owner, np.ndarray) and owner.flags.c_contiguous and _is_stored(owner.dtype):
                message.dtype = _dtype_name(owner.dtype)
                message.shape.extend(owner.shape)
            self._memory_numbers[device, start, size] = number = len(self.memories)
        return number

    # Descriptions.

    def _describe_storage(self, storage: Storage) -> None:
        self.state.storages.add(
            bytes=storage.nbytes, version=storage.version, history=storage.history,
            owner=self._storage(storage.owner), inference=storage.inference,
        )  # fmt: skip

    def _describe_step(self, step: ViewStep) -> None:
        message = self.state.steps.add(before=self._step(step.before), op=step.op.name)
        message.input.CopyFrom(_meta(step.shape, step.dtype))
        self._where = f"a view made by {step.op.name}"
        self._values(message.args, step.args)

    def _describe_tensor(self, tensor: Tensor) -> None:
        message = self.state.tensors.add(
            array=self._array(tensor.array), storage=self._storage(tensor.storage), requires_grad=tensor.requires_grad,
            node=self._node(tensor.node), output=tensor.index,
        )  # fmt: skip
        message.edge = isinstance(tensor, EdgeTensor)
        view: ViewOf | None = tensor.view
        if view is not None:
            held = message.view
            held.base, held.step = self._tensor(view.base), self._step(view.last)
            held.origin = "" if view.origin is None else view.origin.value
            held.flagged, held.version, held.seen = view.flagged, view.version, view.seen
            held.written = view.written
            held.left_behind = view.source is not view.base.array
        state = tensor.state
        if state is not None:
            message.has_state, message.retains_grad = True, state.retains_grad
            message.grad = self._tensor(state.grad)
            message.accumulator = self._node(None if state.accumulator is None else state.accumulator())
            if state.hooks:
                self._hooks(message.hooks, state.hooks)

    def _describe_node(self, node: AnyNode) -> None:
        message = self.state.nodes.add()
        self._where = node.name
        if node.hooks is not None and (node.hooks or (isinstance(node, Node) and holds_packed(node.saved))):
            self.client_nodes += 1
            self._hooks(message.hooks, node.hooks)
        if isinstance(node, AccumulateGrad):
            message.leaf = self._tensor(node.variable)
            return
        message.op, message.name, message.seq = node.op.name, node.name, node.seq
        message.freed, message.command, message.work = node.freed, node.command, node.work
        message.needed = next(bits for bits, plan in node.op.saving_plans.items() if plan is node.saving_plan)
        message.saved_names.extend(node.saving_plan.names)
        self._values(message.saved, node.saved)
        for edge, meta in zip(node.edges, node.metas, strict=True):
            stored = message.edges.add()
            if edge is not None:
                stored.node, stored.output = self._node(edge[0]), edge[1]
            if meta is not None:
                stored.meta.CopyFrom(_meta(*meta))
        if node.outputs is not None:
            message.has_outputs = True
            for output in node.outputs:
                message.outputs.append(pb.StoredMeta() if output is None else _meta_of(output))
        if node.retained:
            self._retained.append((message, node.retained))
        if isinstance(node, FunctionNode):
            message.function.differentiable.extend(node.differentiable)
            message.function.materializes = node.materializes

    def _hooks(self, message: pb.StoredHooks, hooks: Hooks) -> None:
        for output, asks in hooks.tensor.items():
            message.tensor.add(output=output, asks=[self._ask(ask) for ask in asks])
        message.before.extend(self._ask(ask) for ask in hooks.before)
        message.after.extend(self._ask(ask) for ask in hooks.after)
        message.accumulated.extend(self._ask(ask) for ask in hooks.accumulated)
        message.formula = self._ask(hooks.formula)
        message.region = self._region(hooks.again)
        message.SetInParent()

    # Values.

    def _values(self, into: Any, values: Any) -> None:
        for value in values:
            self._value(into.add(), value)

    def _value(self, message: pb.StoredValue, value: Any) -> None:
        if value is None or value is Ellipsis:
            message.none = value is None
        elif type(value) is Saved:
            self._saved(message.saved, value)
        elif type(value) is Meta:
            message.meta.CopyFrom(_meta_of(value))
        elif isinstance(value, Tensor):
            message.tensor = self._tensor(value)
        elif isinstance(value, (bool, int, float, complex, str, bytes)) and not isinstance(value, np.generic):
            _plain(message, value)
        elif isinstance(value, (tuple, list)):
            into = message.tuple if isinstance(value, tuple) else message.list
            into.SetInParent()
            self._values(into.values, value)
        elif isinstance(value, slice):
            self._values(message.slice.values, (value.start, value.stop, value.step))
        elif isinstance(value, np.dtype):
            message.dtype = _dtype_name(value)
        elif isinstance(value, np.generic):
            message.scalar = self._array(np.asarray(value))
        elif isinstance(value, ViewRoute):
            message.route.device = value.device
            message.route.steps.extend(self._step(step) for step in value.steps)
            self._value(message.route.geometry, value.geometry)
        elif hasattr(value, "dtype") and hasattr(value, "strides"):
            message.array = self._array(value)
        elif type(value) is Packed:
            held = message.packed
            held.ask, held.output, held.requires_grad = self._ask(value.callback), value.output, value.requires_grad
            held.meta.CopyFrom(_meta(value.shape, value.dtype, value.device))
            held.node, held.index = self._node(value.node), value.index
        else:
            raise Refusal(
                "NOT_SUPPORTED",
                f"{self._where} holds a {type(value).__name__}, which cannot be stored",
                node=self._where,
            )

    def _saved(self, message: pb.StoredSaved, value: Saved) -> None:
        message.array, message.storage = self._array(value.array), self._storage(value.storage)
        message.version, message.output = value.version, value.output
        message.requires_grad = value.requires_grad
        message.node, message.index = self._node(value.node), value.index
        message.leaf = self._tensor(value.leaf)


def _plain(message: pb.StoredValue, value: Any) -> None:
    if isinstance(value, bool):
        message.boolean = value
    elif isinstance(value, int):
        if value in _INTEGERS:
            message.integer = value
        else:
            message.large = str(value)
    elif isinstance(value, float):
        message.number = value
    elif isinstance(value, complex):
        message.complex.real, message.complex.imag = value.real, value.imag
    elif isinstance(value, str):
        message.text = value
    else:
        message.data = value


def _meta(shape: Any, dtype: Any, device: str = "") -> pb.StoredMeta:
    return pb.StoredMeta(shape=shape, dtype=_dtype_name(dtype), device=device)


def _meta_of(meta: Meta) -> pb.StoredMeta:
    return _meta(meta.shape, meta.dtype, meta.device)


def _is_stored(dtype: Any) -> bool:
    """Whether arrays of a dtype can be stored. An array's memory may have been allocated with another dtype."""
    return dtype in dtypes.NAMES or dtype.kind in KINDS


def _dtype_name(dtype: Any) -> str:
    if not _is_stored(dtype):
        raise Refusal("NOT_SUPPORTED", f"elements of type {dtype} cannot be stored")
    return dtypes.NAMES.get(dtype) or str(dtype.str)
