"""Tracing: records one run of a program as a linear list of instructions on arrays.

While a context has a tracer, every primitive op reports its arguments and results to it. A backward reports its
formulas (symbolic_backward.py). A computation that depends on more than shapes, or makes graph nodes that outlive the
run, ends the trace. Then `failed` has the reason, and the program continues to run op by op.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire_engine.autograd.backward_pass import BackwardPass
from gradwire_engine.compile.symbolic_backward import BackwardTracer, SymbolicBackward
from gradwire_engine.compile.trace import Exchange, Instr, Trace, has_history, plain
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import CPU, address, is_writable, may_share_memory
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.op import Op

# Composites whose result depends only on shapes and numbers. Results up to _KEPT_BYTES are kept as constants.
_KEPT_BYTES = 1 << 18
_SAME_EACH_TIME = frozenset(
    ("zeros", "ones", "full", "arange", "linspace", "eye", "zeros_like", "ones_like", "full_like")
)  # fmt: skip


class ArrayMemory:
    """Registers by the memory of their arrays. Finds those over an array without a comparison with each."""

    def __init__(self) -> None:
        # Disjoint spans of memory in order: where each begins and ends, and the arrays in it with their registers.
        self._begins: list[int] = []
        self._spans: list[tuple[int, list[tuple[Any, int]]]] = []
        self._others: list[tuple[Any, int]] = []  # arrays that are not row-major

    def _span(self, array: Any) -> tuple[int, int, int, int]:
        """Where a row-major array begins and ends, and which spans it meets."""
        begin = address(array)
        end = begin + int(array.nbytes)
        last = bisect_left(self._begins, end)
        first = bisect_left(self._begins, begin)
        if first and self._spans[first - 1][0] > begin:
            first -= 1
        return begin, end, first, max(first, last)

    def registers_over(self, array: Any) -> list[int]:
        """Registers whose arrays may share memory with an array."""
        found = self._others
        if not array.flags.c_contiguous:
            found = found + [each for _, held in self._spans for each in held]
        elif array.nbytes:
            _, _, first, last = self._span(array)
            found = found + [each for _, held in self._spans[first:last] for each in held]
        return [number for other, number in found if may_share_memory(array, other)]

    def add(self, array: Any, number: int) -> None:
        """Add an array."""
        if not array.flags.c_contiguous:
            self._others.append((array, number))
        elif array.nbytes:
            begin, end, first, last = self._span(array)
            met = self._spans[first:last]
            begin = min([begin, *self._begins[first:last]])
            held = [each for _, held in met for each in held]
            self._begins[first:last] = [begin]
            self._spans[first:last] = [(max([end, *(end for end, _ in met)]), [*held, (array, number)])]


class Tracer(Trace):
    """Records one run on these inputs."""

    def __init__(self, inputs: Sequence[Tensor], fuses: bool = False, shared: bool = False) -> None:
        """fuses: whether the plan will compile groups of instructions to kernels; on a GPU there are no other plans.

        shared: whether the session exchanges values with others, which may change equal tensors by equal programs.
        """
        super().__init__()
        self.inputs = list(inputs)
        self.device = next((tensor.device for tensor in self.inputs if tensor.device != CPU), CPU)
        #: Backend of the kernels (kernels/registry.py).
        self.backend = "numpy" if self.device == CPU else "cupy"
        self.fuses = fuses and self.device == CPU
        self.shared = shared
        if self.device != CPU and not fuses:
            self.fail("its inputs are on a GPU, and kernels are off")
        self._numbers = CURRENT.get().nodes
        self.first_node = self._numbers.next  # number of the run's first node
        self.input_regs: list[int] = []
        #: Registers of the inputs' gradients at the start, by input's index.
        self.entry: dict[int, int] = {}
        self._memory = ArrayMemory()  # of the inputs and their gradients
        for place, tensor in enumerate(self.inputs):
            self._bind(place, tensor)

    plain = staticmethod(plain)

    def _bind(self, place: int, tensor: Tensor) -> None:
        if has_history(tensor):
            self.fail("an input has a history, or is a view that requires a gradient")
            return
        if not self.is_here(tensor.array) and type(tensor.array) is not np.ndarray:
            self.fail("inputs are on several GPUs, or no plain arrays")
            return
        if not tensor.array.flags.c_contiguous or not is_writable(tensor.array):
            self.fail("an input is not row-major")
        number = self._known(tensor.array, self._memory.registers_over(tensor.array))
        self._memory.add(tensor.array, number)
        self.input_regs.append(number)
        if tensor.device != self.device:
            self.hosted.add(number)
        if tensor.grad is not None:
            grad = tensor.grad.array
            if tensor.grad.node is not None or not grad.flags.c_contiguous:
                self.fail("a gradient has a history")
                return
            if not self.is_here(grad):
                self.fail("a gradient is on another device")
                return
            self.entry[place] = number = self._known(grad, self._memory.registers_over(grad))
            self._memory.add(grad, number)

    @property
    def nodes_made(self) -> int:
        """Node numbers that the run has taken."""
        return self._numbers.next - self.first_node

    # Reports of ops.

    def applied(self, op: Op, args: tuple[Any, ...], made: Any) -> None:
        """Record an op's call and its results."""
        if self.failed is not None:
            return
        flag = op.data_dependent
        if flag(*args) if callable(flag) else flag:
            self.fail(f"{op.name}: shapes follow from values")
        template = self.operand(args)
        results = made if type(made) in (list, tuple) else [made]
        self._emit("op", op, template, [tensor.array for tensor in results])

    def wrote(self, op: Op, args: tuple[Any, ...], recorded: bool) -> None:
        """Record an in-place change of an op's first argument."""
        if self.failed is not None:
            return
        if recorded:
            self.fail(f"{op.name}_ is recorded")
            return
        template = self.operand(args)
        self._append(Instr("write", op, template, ()))
        self._count_change(template[0])

    def exchanged(self, tensors: Sequence[Tensor], written: Sequence[Tensor], exchange: Exchange) -> None:
        """Record an exchange with other sessions that reads or writes `tensors`, some of them in place."""
        template = self.operand(list(written)), self.operand(list(tensors))
        if self.failed is not None:
            return
        self._append(Instr("exchange", exchange, template, ()))
        for target in template[0]:
            self._count_change(target)

    def mark(self) -> tuple[int, dict[int, int], str | None]:
        """The position in the trace, for `record_composite`."""
        return len(self.instrs), dict(self._by_id), self.failed

    def record_composite(
        self,
        mark: tuple[int, dict[int, int], str | None],
        op: Composite,
        args: tuple[Any, ...],
        results: Sequence[Tensor],
    ) -> None:
        """Record a composite's call: keep its parts' instructions if they are complete, else record the whole call."""
        tracked = any(has_history(tensor) for tensor in results)
        stands = self.failed is None and not op.reads_values and not self.contains_number(args)
        if stands and all(id(tensor.array) in self._by_id for tensor in results):
            return
        if tracked:
            self.fail(f"{op.name} reads values")
        else:
            count, self._by_id, self.failed = mark
            del self.instrs[count:]
        if self.failed is not None:
            return
        flag = op.data_dependent
        if flag(*args) if callable(flag) else flag:
            self.fail(f"{op.name}: shapes follow from values")
        first = results[0].array
        if op.name in _SAME_EACH_TIME and not self.contains_number(args) and first.nbytes <= _KEPT_BYTES:
            self.created(results[0])
        else:
            self._emit("call", op, self.operand(args), [tensor.array for tensor in results])
        self._kept.append(results)

    # Backward.

    def observe(
        self,
        traced: BackwardPass,
        roots: Sequence[tuple[Any, Any]],
        counts: dict[Any, int],
        wanted: set[Any] | None,
        needed: set[Any] | None,
    ) -> BackwardTracer | None:
        """The tracer of a backward pass that is about to begin; None if the trace has ended."""
        if self.failed is not None:
            return None
        if not traced.create_graph:
            return SymbolicBackward(self, traced, roots, counts, wanted, needed)
        made = BackwardTracer(self, traced, counts)
        made.refuse_value_reads(counts if needed is None else needed)
        return made

    def requires_grad_set(self, tensor: Tensor, requires_grad: bool) -> None:
        """Called before a leaf's requires_grad is set; ends the trace if an input's flag changes."""
        if tensor.requires_grad is not requires_grad and any(tensor is given for given in self.inputs):
            self.fail("an input's requires_grad changes")

    def register_of(self, tensor: Tensor) -> int | None:
        """The register of a tensor's array, or None."""
        return self._by_id.get(id(tensor.array))
