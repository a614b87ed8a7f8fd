"""Ops: a forward on arrays and a formula per differentiable input, declared once.

    @op(promote="float")
    def sigmoid(xp, input: Array): ...
    sigmoid.grad(input=lambda g, out: ...)

A formula's parameter names declare what is saved. An input's name saves its value; `<name>_meta` saves only its shape,
dtype and device; `<name>_rest` saves a list, but of the op's `described_items` only these. Another parameter's name
saves its argument; `out` (`out1`, ...) saves a result. The first parameter is the result's gradient: `g` for a single
one (or the first of several), `gs` for a tuple with zeros for missing gradients. A formula need not undo broadcasting
or promotion: backward does, by `fit`.

An op is polymorphic: on Tensors it records, on bare arrays it only computes. So the same formula serves first-order
backward at array speed and, on Tensors, derivatives of any order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.core.device import CPU, Array, cupy, device_of, module_of, selected, to_device
from gradwire_engine.core.dtypes import DType, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import Edge, Fit, Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import (
    Tensor,
    ViewOrigin,
    ViewStep,
    borrowed,
    edge_of,
    refresh,
    update_requires_grad,
)
from gradwire_engine.op.admission import admit, needed
from gradwire_engine.op.cost import LONG, alike
from gradwire_engine.op.declaration import OPS, Declaration
from gradwire_engine.op.halves import compute_half, half_of
from gradwire_engine.op.integer_bounds import applied
from gradwire_engine.op.rebase import OpView, by_route, rewrite
from gradwire_engine.op.refusals import (
    REFUSED,
    check_in_place,
    check_inference,
    check_no_overlap,
    check_overlap,
    check_result,
    check_writable,
    explain,
)  # fmt: skip
from gradwire_engine.op.saving import meta_of
from gradwire_engine.op.workload import check_cost, check_interrupt, estimate_backward, offload_op

_EXACT = 1 << 24  # integers below it are exact in float32
_CHEAP_SIZE = 1 << 16  # elements up to which the cost of an in-place op's formulas is not estimated


class _Applying(threading.local):
    """The arguments of the call in progress, where there is a GPU."""

    args: Any = None


_APPLYING = _Applying()


class Op(Declaration):
    """A primitive op: it computes and records according to its declaration. See the module's docstring."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute, and record if an argument is a Tensor that requires grad."""
        if kwargs or len(args) != self.arity:
            args = self.bind(args, kwargs)
        for place in self.tensor_positions:
            value = args[place]
            if type(value) is Tensor or (place == self.list_position and any(type(item) is Tensor for item in value)):
                return self.apply(args)
        if self.may_grow:  # in a formula, on arrays
            account = CURRENT.get().account
            if account.limit:
                account.admit(needed(self, list(args)))
        return self.compute(args)

    def compute(self, args: tuple[Any, ...], xp: Any = np) -> Any:
        """The forward alone, on bare arrays. xp: the arrays' module, if their device is current."""
        if xp is np and cupy() is not None:
            module, device = self._place(args)
            if module is not np:
                with selected(device):
                    return self.compute(args, module)
        try:
            if self.promotes:
                # Fast path: arrays of one dtype, float32 or float64, and floats need no promotion.
                if self.operand_positions is not None and xp is np:
                    one, other = args[self.operand_positions[0]], args[self.operand_positions[1]]
                    ordinary = type(one) is _ndarray and (one.dtype is _FLOAT32 or one.dtype is _FLOAT64)
                    if ordinary and (type(other) is float or (type(other) is _ndarray and other.dtype is one.dtype)):
                        return self.forward(np, *args)
                    if ordinary and type(other) is int and -_EXACT < other < _EXACT:
                        place = self.operand_positions[1]
                        return self.forward(np, *args[:place], float(other), *args[place + 1 :])
                common = None
                for place in self.single_positions:
                    value = args[place]
                    if type(value) is _ndarray:
                        dtype = value.dtype
                        if dtype is not common:
                            if common is not None or (dtype is not _FLOAT32 and dtype is not _FLOAT64):
                                common = None
                                break
                            common = dtype
                    elif common is None or not isinstance(value, float):
                        common = None
                        break
                if common is None and self.list_alone and not self.cast_positions and xp is np:
                    first = alike(args[self.list_position])
                    common = None if first is None else first.dtype
                if common is None:
                    if self.cast_positions:
                        args = self._cast_numbers(args)
                    given, args = args, self._promoted(args)
                    if self.unsupported_dtypes:
                        self._check_kind(args)
                    half = half_of(self, args)
                    if half is not None:
                        return compute_half(self, xp, given, args, half)
            else:
                if self.cast_positions:
                    args = self._cast_numbers(args)
                if self.unsupported_dtypes:
                    self._check_kind(args)
            if xp is not np:
                args = self._scalars(args)
            return self.forward(xp, *args)
        except REFUSED as error:
            raise explain(self, args, error) from error
        except EngineError as error:
            if error.reason is Reason.NOT_SUPPORTED and self.single_positions:
                self._refuse_sizes(args)
            raise

    def _cast_numbers(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Convert the numbers declared by `casts_numbers`. Raises EngineError: RUNTIME if one is out of range."""
        dtype = getattr(args[self.tensor_positions[0]], "dtype", None)
        if dtype is None:
            return args
        if self.promotes:
            given = (args[place] for place in self.tensor_positions)
            result = dtypes.result_type(*(value for value in given if value is not None))
            if result != dtype and dtypes.category(result) != dtypes.FLOAT:
                return args
            dtype = result
        changed = list(args)
        for place in self.cast_positions:
            if isinstance(args[place], int | float | complex):
                changed[place] = cast_number(args[place], dtype)
        return tuple(changed)

    def _check_kind(self, args: tuple[Any, ...]) -> None:
        refusal = self.unsupported_error(args)
        if refusal is not None:
            self._refuse_sizes(args)
            raise refusal

    def _refuse_sizes(self, args: tuple[Any, ...]) -> None:
        """Refuse sizes that do not broadcast; called before dtypes are refused. Raises EngineError: SHAPE."""
        if self.promotes:
            shapes = [args[place].shape for place in self.tensor_positions if hasattr(args[place], "shape")]
            try:
                np.broadcast_shapes(*shapes)
            except ValueError as error:
                raise explain(self, args, error) from error

    def _place(self, args: tuple[Any, ...]) -> tuple[Any, str]:
        """The arrays' module and device. Raises EngineError: DEVICE_MISMATCH; 0-d host arrays go with any device."""
        if self.from_devices is not None and self.from_devices(*args):
            return module_of(args[0]), device_of(args[0])
        xp: Any = np
        found: str | None = None
        for place in self.tensor_positions:
            value = args[place]
            for item in value if place == self.list_position else (value,):
                if not hasattr(item, "dtype"):
                    continue
                module = module_of(item)
                xp = module if module is not np else xp
                device = device_of(item)
                if item.ndim == 0 and device == CPU:
                    continue
                if found not in (None, device):
                    raise EngineError(
                        Reason.DEVICE_MISMATCH,
                        "Expected all tensors to be on the same device, but found at least two devices, "
                        f"{found} and {device}! ({self.name})",
                        op=self.name,
                    )
                found = device
        return xp, found or CPU

    def _to_common_device(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copy 0-d host tensors, and indices, to the GPU of the other tensors; the copy is recorded."""
        if self.moves_list and type(args[0]) is Tensor and args[0].device != CPU:
            indices = [self._moved(each, args[0].device) for each in args[self.list_position]]
            args = (*args[: self.list_position], indices, *args[self.list_position + 1 :])
        tensors = [args[place] for place in self.tensor_positions if type(args[place]) is Tensor]
        device = next((each.device for each in tensors if each.device != CPU), None)
        if device is None or len(tensors) < 2:
            return args
        host_scalars = {id(each) for each in tensors if each.device == CPU and not each.array.ndim}
        to_device = OPS["_to_device"]
        return tuple(to_device.apply((each, device)) if id(each) in host_scalars else each for each in args)

    @staticmethod
    def _moved(index: Any, device: str) -> Any:
        """An index, on the device if it was on the CPU."""
        if type(index) is Tensor:
            return index if index.device != CPU else OPS["_to_device"].apply((index, device))
        return to_device(index, device) if isinstance(index, np.ndarray) else index

    def _scalars(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replace 0-d host arrays by NumPy scalars, because CuPy accepts no NumPy arrays."""
        changed = list(args)
        for place in self.tensor_positions:
            if isinstance(args[place], np.ndarray) and not args[place].ndim:
                changed[place] = args[place][()]
        return tuple(changed)

    def apply(self, args: tuple[Any, ...]) -> Any:
        """The forward on Tensors, recorded if it must be. `args` is complete (see `bind`)."""
        if cupy() is not None and _APPLYING.args is not args:
            return self._beside_gpu(self._to_common_device(args), self.apply)
        arrays = list(args)
        track = False
        several, most = -1, 1
        context = CURRENT.get()
        for place in self.tensor_positions:
            value = args[place]
            if type(value) is Tensor:
                several += 1
                view = value.view
                if view is not None and view.seen != value.storage.history:
                    self._refresh_view(value, context)
                array = arrays[place] = value.array
                most *= array.size
                if value.requires_grad:
                    track = True
            elif place == self.list_position:
                several += len(value)
                arrays[place] = [item.array if type(item) is Tensor else item for item in value]
                for item in value:
                    if type(item) is Tensor:
                        if item.view is not None and item.view.seen != item.storage.history:
                            self._refresh_view(item, context)
                        track = track or item.requires_grad
        account = context.account
        if account.limit:
            if account.bytes > account.limit:
                account.admit(1)
            if most * self.widest > account.limit - account.bytes or self.may_grow or not most:
                admit(self, account, arrays)
        if several < 0 and self.needs_tensor:
            self._refuse("received an invalid combination of arguments: one must be a tensor, not all numbers")
        if account.pressed:
            check_interrupt(context)
        work = 0.0
        if most > self.cheap_size and not (
            self.linear_positions is not None and _is_small(arrays, self.linear_positions, self.cheap_size)
        ):
            work = check_cost(self, context, arrays)
        if context.tracer is not None:
            arrays = context.tracer.plain(arrays)
        result = self.compute(tuple(arrays)) if work < LONG else offload_op(self, context, tuple(arrays), work)
        track = track and context.grad_enabled and bool(self.formulas)
        if track and self.view and self._leaves_graph(args, result):
            track = False
        if type(result) is tuple or type(result) is list:
            many = self.wrap_many(args, result, track, context)
            if work and track:
                _set_work(many, estimate_backward(self, arrays))
            if context.duals.active:
                context.duals.applied(self, args, many)
            return many
        if type(result) is _ndarray and not self.view:
            made = Tensor(result, False, None, context)
        else:
            made = self.wrap(args, result, context)
            result = made.array
        if track and ((result.dtype is _FLOAT32 and self.flows_plainly) or self._propagates_gradient(result.dtype)):
            node = made.node = self.record(args, (made,))
            node.command = context.command.number
            numbers = context.nodes
            node.seq = seq = numbers.next  # NodeNumbers.take() without its call
            numbers.next = seq + 1
            made.requires_grad = True
            if work:
                node.work = estimate_backward(self, arrays)
        if context.tracer is not None:
            context.tracer.applied(self, args, made)
        if context.duals.active:
            context.duals.applied(self, args, made)
        return made

    def _beside_gpu(self, args: tuple[Any, ...], call: Callable[[tuple[Any, ...]], Any]) -> Any:
        """Call `apply` or `in_place` where there is a GPU: with operands of one device, and the integers' bounds."""
        before, _APPLYING.args = _APPLYING.args, args
        try:
            return applied(self, args, lambda: call(args))
        finally:
            _APPLYING.args = before

    def _propagates_gradient(self, dtype: DType) -> bool:
        """Whether gradients flow from a result of this dtype. Raises EngineError: RUNTIME where PyTorch refuses it."""
        if self.differentiable_outputs == ():
            return False
        if dtype.kind == "c" and not self.complex_grad:
            raise EngineError(
                Reason.RUNTIME,
                f"{self.name.lstrip('_')} does not support automatic differentiation for outputs with complex dtype.",
                op=self.name,
            )
        if not dtypes.is_differentiable(dtype) and not self.drops_grad:
            raise EngineError(Reason.RUNTIME, f"Autograd not support dtype: {dtypes.TITLES[dtype]}", op=self.name)
        return dtypes.is_differentiable(dtype)

    def _refresh_view(self, view: Tensor, context: Context) -> None:
        """Update a view's node if the op will be recorded, else only its flag."""
        if context.grad_enabled and self.formulas:
            refresh(view)
        else:
            update_requires_grad(view)

    def _leaves_graph(self, args: tuple[Any, ...], result: Any) -> bool:
        """Whether the results are views of an inference tensor, which have no history."""
        source = args[self.tensor_positions[0]]
        return bool(source.storage.inference) and (self.view != "maybe" or _shares_memory(result, source.array))

    def wrap(self, args: tuple[Any, ...], array: Any, context: Context) -> Tensor:
        """The tensor of a result, which may be a view of an argument; before it is recorded."""
        if type(array) is not np.ndarray and (isinstance(array, np.generic) or not hasattr(array, "data")):
            array = np.asarray(array)  # NumPy returns a scalar where CuPy returns an array
        if self.view == "unsafe":
            return Tensor(array, storage=borrowed(args[self.tensor_positions[0]].storage))
        if self.view:
            source = args[self.tensor_positions[0]]
            if self.view != "maybe" or _shares_memory(array, source.array):
                return self._wrap_view(args, source, array, context)
        return Tensor(array, False, None, context)

    def _wrap_view(self, args: tuple[Any, ...], source: Tensor, array: Array, context: Context) -> Tensor:
        made = Tensor(array, storage=source.storage)
        if source.storage.inference:
            return made  # it can never be part of a graph, so its base is not recorded
        held = source.view
        if held is None:
            base, before, origin, start = source, None, None, source.array
        else:
            base, before, origin, start = held.base, held.last, held.origin, held.source
        if not context.grad_enabled:
            origin = ViewOrigin.INFERENCE if context.inference else ViewOrigin.NO_GRAD
        elif self.view == "multiple":
            origin = ViewOrigin.MULTIPLE
        made.view = OpView(base, ViewStep(before, self, args[1:], source.array), origin, start, made.storage)
        made.requires_grad = base.requires_grad and dtypes.is_differentiable(array.dtype)
        return made

    def wrap_many(self, args: tuple[Any, ...], results: Any, track: bool, context: Context) -> Any:
        """The tensors of several results, recorded if `track`."""
        made = [self.wrap(args, array, context) for array in results]
        if track:
            allowed = self.differentiable_outputs
            for item in () if self.complex_grad else made:
                if item.dtype.kind == "c":
                    self._propagates_gradient(item.dtype)
            flows = [
                dtypes.is_differentiable(item.dtype) and (allowed is None or output in allowed)
                for output, item in enumerate(made)
            ]
            if any(flows):
                node = self.record(args, tuple(made))
                node.command = context.command.number
                node.seq = context.nodes.take()
                node.outputs = tuple(meta_of(item) if flow else None for item, flow in zip(made, flows, strict=True))
                for output, (item, flow) in enumerate(zip(made, flows, strict=True)):
                    if flow:
                        item.node, item.index, item.requires_grad = node, output, True
        if context.tracer is not None:
            context.tracer.applied(self, args, made)
        return type(results)(made)

    def record(
        self, args: tuple[Any, ...], outputs: tuple[Tensor, ...], override: dict[str, Saved] | None = None
    ) -> Node:
        """Make the node of this call: edges to the inputs' nodes, and the values that the needed formulas name.

        The caller sets its number.
        """
        if self.operand_positions is not None:
            return self._record_two(args, outputs, override, *self.operand_positions)
        edges: list[Edge | None] = []
        metas: list[Fit | None] = []
        needed = 0
        for bit, place in self.tensor_bits:
            value = args[place]
            if type(value) is Tensor and value.requires_grad:
                node, array = value.node, value.array
                edges.append(edge_of(value) if node is None else (node, value.index))
                metas.append((array.shape, array.dtype))
                needed |= bit
            elif place != self.list_position:
                edges.append(None)
                metas.append(None)
            else:
                for item in value:
                    if type(item) is Tensor and item.requires_grad:
                        node, array = item.node, item.array
                        edges.append(edge_of(item) if node is None else (node, item.index))
                        metas.append((array.shape, array.dtype))
                        needed |= bit
                    else:
                        edges.append(None)
                        metas.append(None)
        if self.gradient_ends is not None and self.gradient_ends(*args):
            needed = 0
        return self._node(args, outputs, override, needed, tuple(edges), tuple(metas))

    def _record_two(
        self, args: tuple[Any, ...], outputs: tuple[Tensor, ...], override: dict[str, Saved] | None, one: int, two: int
    ) -> Node:
        """Fast path of `record` for ops of two operands, such as arithmetic."""
        needed, edge, meta, second_edge, second_meta = 0, None, None, None, None
        first, second = args[one], args[two]
        if type(first) is Tensor and first.requires_grad:
            node, array = first.node, first.array
            edge = edge_of(first) if node is None else (node, first.index)
            meta, needed = (array.shape, array.dtype), 1
        if type(second) is Tensor and second.requires_grad:
            node, array = second.node, second.array
            second_edge = edge_of(second) if node is None else (node, second.index)
            second_meta = (array.shape, array.dtype)
            needed += 2
        return self._node(args, outputs, override, needed, (edge, second_edge), (meta, second_meta))

    def _node(
        self,
        args: tuple[Any, ...],
        outputs: tuple[Tensor, ...],
        override: dict[str, Saved] | None,
        needed: int,
        edges: tuple[Edge | None, ...],
        metas: tuple[Fit | None, ...],
    ) -> Node:
        plan = self.saving_plans.get(needed) or self.saving_plan(needed)
        saved = plan.save(args, outputs) if plan.names else ()
        if override:
            saved = tuple(override.get(name, value) for name, value in zip(plan.names, saved, strict=True))
        name = self.node_name
        if type(name) is not str:
            name = name(*args)  # type: ignore[operator]
        return Node(self, name, plan, saved, edges, metas, 0)

    def in_place(self, args: tuple[Any, ...]) -> Tensor:
        """Compute into the first argument (`add_`). Raises EngineError: LEAF_IN_PLACE and the op's own errors."""
        if cupy() is not None and _APPLYING.args is not args:
            return self._beside_gpu((args[0], *self._to_common_device(args)[1:]), self.in_place)  # type: ignore[no-any-return]
        target: Tensor = args[0]
        context = CURRENT.get()
        track = self._tracks_in_place(args, context)
        before = context.duals.before_change(self, args) if context.duals.active else None
        if track:
            check_in_place(target)
        if target.storage.inference:
            check_inference(context)
        if target.node is not None and target.view is not None and track:
            by_route(target)
        arrays = tuple(_array_of(value) for value in args)
        if context.tracer is not None:
            arrays = context.tracer.plain(arrays)
        if not self.writes_always:
            check_writable(target.array)
        if self.no_overlap and (self.no_overlap is True or self.no_overlap(*args)):
            check_no_overlap(target.array, args[1:])
        for value in args[1:] if self.promotes else ():
            if type(value) is Tensor and value.storage is target.storage:
                check_overlap(target.array, value.array)
        direct = self.writes_always or (
            self.writer is not None and fits_into(target.array, arrays, self.tensor_positions)
        )
        if not direct and context.account.limit:
            context.account.admit(needed(self, list(arrays)))  # the old values stay allocated until then
        result = None if direct else self._compute_checked(context, arrays)
        if not direct:
            check_result(self.name, target, result)
        override = None
        first = self.params[0].name
        if track and any(first in names for _, names in self.formulas.values()):
            kept = Tensor(target.array.copy(), target.requires_grad)
            kept.node, kept.index = target.node, target.index
            override = {first: Saved(kept, -1)}
        # Recorded before the change, so that edges and saved versions belong to the old value.
        node = self.record(args, (target,), override) if track and self.formulas else None
        try:
            if cupy() is not None:
                xp, device = self._place(arrays)
                with selected(device):
                    self._store(target.array, result, direct, xp, arrays)
            elif direct:
                self.writer(np, *arrays)  # type: ignore[misc]
            else:
                target.array[...] = result
        except REFUSED as error:
            raise explain(self, args, error) from error
        target.storage.changed()
        if node is not None:
            node.command = context.command.number
            node.seq = context.nodes.take()
            if max(getattr(value, "size", 1) for value in arrays) > max(self.cheap_size, _CHEAP_SIZE):
                node.work = estimate_backward(self, list(arrays))
            if self.name in NAMED_APART or (self.name in _COMPARING and type(args[1]) is Tensor):
                node.name = f"{node.name[:-1]}1"
            self._rewrite_history(target, node)
        if context.tracer is not None:
            context.tracer.wrote(self, args, node is not None)
        if before is not None:
            context.duals.after_change(self, before, target)
        return target

    def overwrite(self, arrays: tuple[Any, ...]) -> None:
        """The in-place op on arrays of a GPU, which is current: as `in_place` computes it, without its checks."""
        target = arrays[0]
        if self.writer is not None and (self.writes_always or fits_into(target, arrays, self.tensor_positions)):
            self.writer(self._place(arrays)[0], *arrays)
        else:
            target[...] = self.compute(arrays)

    def _compute_checked(self, context: Context, arrays: tuple[Any, ...]) -> Any:
        """The forward for an in-place op; see `apply`."""
        work = check_cost(self, context, list(arrays))
        return self.compute(arrays) if work < LONG else offload_op(self, context, arrays, work)

    def _rewrite_history(self, target: Tensor, node: Node) -> None:
        node.saved = tuple(
            Saved(target, 0) if kind == "output" else value
            for value, (kind, _) in zip(node.saved, node.saving_plan.getters, strict=True)
        )
        rewrite(target, node, 0)

    def _store(self, target: Array, result: Any, direct: bool, xp: Any, arrays: tuple[Any, ...]) -> None:
        """Write the result into the target, or compute it there."""
        if direct:
            self.writer(xp, *arrays)  # type: ignore[misc]
        else:
            target[...] = result

    def _tracks_in_place(self, args: tuple[Any, ...], context: Context) -> bool:
        """Whether to record; updates the nodes of views."""
        record = context.grad_enabled and dtypes.is_differentiable(args[0].dtype)
        track = False
        for place in self.tensor_positions:
            value = args[place]
            for item in value if place == self.list_position else (value,):
                if type(item) is Tensor:
                    if record and item.view is not None and item.view.seen != item.storage.history:
                        refresh(item)
                    track = track or item.requires_grad
        return record and track

    def _promotion(self, args: tuple[Any, ...]) -> str | None:
        return self.promotes(*args) if callable(self.promotes) else self.promotes

    def _promoted(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Cast the arrays to the common dtype. Numbers stay numbers if NumPy promotes them the same way."""
        values = []
        for place in self.tensor_positions:
            value = args[place]
            if place == self.list_position:
                values.extend(value)
            elif value is not None:
                values.append(value)
        if not values:
            return args  # an empty list, which the op refuses
        first = values[0]
        dtype: DType = first.dtype if hasattr(first, "dtype") else dtypes.of_number(first)
        float_kind = dtypes.category(dtype)
        for value in values[1:]:
            if hasattr(value, "dtype"):
                if value.dtype is not dtype and value.dtype != dtype:
                    break
            elif type(value) is not float or float_kind < dtypes.FLOAT:
                break
        else:
            if float_kind >= dtypes.FLOAT or self._promotion(args) == "same":
                return args
        if self.check is not None:
            self.check(*values)
        dtype = dtypes.result_type(*values)
        if dtypes.category(dtype) < dtypes.FLOAT and self._promotion(args) == "float":
            dtype = dtypes.default()
        changed = list(args)
        for place in self.tensor_positions:
            value = args[place]
            if place == self.list_position:
                changed[place] = [cast_array(item, dtype) for item in value]
            elif value is not None:
                changed[place] = cast_array(value, dtype)
        return tuple(changed)


# Ops whose node has another name in PyTorch in place; comparisons only if the other operand is a tensor.
NAMED_APART = frozenset(("acosh", "asinh", "atanh", "celu", "elu", "leaky_relu", "selu", "threshold"))
_COMPARING = frozenset(("eq", "ge", "gt", "le", "lt", "ne"))
_FLOATS = frozenset((dtypes.float32, dtypes.float64))
_FLOAT32, _FLOAT64 = dtypes.float32, dtypes.float64
_ndarray = np.ndarray


@overload
def op(function: Callable[..., Any], /) -> Op: ...
@overload
def op(**options: Any) -> Callable[[Callable[..., Any]], Op]: ...
def op(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare an op: `@op` or `@op(promote="float", ...)`; see Op."""
    return Op(function) if function is not None else lambda function: Op(function, **options)


def cast_array(value: Any, dtype: DType) -> Any:
    """Cast an array to a dtype, or a number to a scalar of it; complex to real drops the imaginary part."""
    if not hasattr(value, "dtype"):
        return np.asarray(value).astype(dtype)[()]
    if value.dtype == dtype:
        return value
    if value.dtype.kind == "c" and dtype.kind != "c" and dtype != dtypes.bool_:
        value = value.real
    return value.astype(dtype)


def _array_of(value: Any) -> Any:
    if type(value) is Tensor:
        return value.array
    return [_array_of(item) for item in value] if type(value) is list else value


def _shares_memory(array: Array, source: Array) -> bool:
    if array is source:
        return True
    if isinstance(array, np.ndarray):
        if not array.size:  # an empty array shares no memory, so its base decides
            return array.base is not None and (array.base is source or array.base is source.base)
        return np.may_share_memory(array, source) and array.base is not None
    xp: Any = module_of(array)
    return bool(xp.may_share_memory(array, source))


def _is_small(arrays: list[Any], places: tuple[int, int], cheap_size: int) -> bool:
    """Whether two operands have at most `cheap_size` elements, and the same shape or one of them a single element."""
    one, two = arrays[places[0]], arrays[places[1]]
    if type(one) is not _ndarray or type(two) is not _ndarray:
        return getattr(one, "size", 1) * getattr(two, "size", 1) <= cheap_size
    return one.size <= cheap_size and (one.shape == two.shape or two.size == 1)


def _set_work(made: Any, work: float) -> None:
    """Store the estimated operations of the formulas in the node of several results."""
    for item in made:
        if item.node is not None:
            item.node.work = work
            return


def fits_into(target: Array, arrays: tuple[Any, ...], places: tuple[int, ...]) -> bool:
    """Whether the result surely has the target's dtype and shape, so that it may be written directly."""
    shape, dtype = target.shape, target.dtype
    if dtype not in _FLOATS:
        return False
    for place in places:
        value = arrays[place]
        if isinstance(value, float):
            continue
        # A number has no dtype, and NumPy takes None for float64.
        if not hasattr(value, "dtype") or value.dtype != dtype or len(value.shape) > len(shape):
            return False
        if value.shape != shape and any(
            n not in (1, m) for n, m in zip(reversed(value.shape), reversed(shape), strict=False)
        ):
            return False
    return True
