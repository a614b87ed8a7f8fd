"""Plans: a schedule (schedule.py) compiled to calls that can be repeated without tensors, nodes or new memory.

Compiled once: the results get memory (plan_memory.py), and the instructions become calls (plan_code.py). A run binds
its inputs, makes the calls and returns the outputs. A plan is valid for inputs as traced: row-major, with the same
gradients present and the same memory shared at the same offsets.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import weakref
from collections.abc import Generator, Iterator, Sequence
from time import monotonic
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion import biases
from gradwire_engine.compile.fusion.batch_norm import BatchNormCall
from gradwire_engine.compile.fusion.cross_entropy import LossKernels
from gradwire_engine.compile.fusion.cuda_calls import CudaCall, cuda_groups, in_rows, instruction
from gradwire_engine.compile.fusion.depthwise import Depthwise
from gradwire_engine.compile.fusion.fused import (
    OPTIONS,
    FusedCall,
    Fusion,
    Machine,
    convolution_kernel,
    norm_call,
)
from gradwire_engine.compile.fusion.kernel_cache import Kernel as LoadedKernel
from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.plan_code import Code
from gradwire_engine.compile.plan_graph import PlanGraph
from gradwire_engine.compile.schedule import Output
from gradwire_engine.compile.trace import Exchange, Instr, has_history
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import PAUSE, Account, Context, Interrupt, NodeNumbers, Pause
from gradwire_engine.core.device import (
    CPU,
    address,
    allocation,
    duplicate,
    is_whole,
    is_writable,
    selected,
    several,
)
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.threads import POOL
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.refusals import REFUSED
from gradwire_engine.ops.base.basic import fit

Array = Any
# Maximum bytes of an input that is copied to a fixed buffer, because each run passes another array.
_COPIED = 16 << 20
# Maximum bytes of all gradients that are copied likewise: binding takes longer than copying them.
_COPIED_GRADIENTS = 4 << 20
# The interrupt is checked after each instruction on an array of _LONG elements, and every _CALLS_BETWEEN_CHECKS calls.
_LONG = 1 << 16
_CALLS_BETWEEN_CHECKS = 64


class _InterruptCheck:
    """A call of a plan that checks the interrupt: it pauses the run, or ends it if the client cancelled."""

    __slots__ = ("interrupt",)

    def __init__(self) -> None:
        self.interrupt: Interrupt | None = None

    def __call__(self) -> Pause | None:
        """Return PAUSE if the run shall pause for other sessions. Raises EngineError: CANCELLED."""
        interrupt = self.interrupt
        if interrupt is None or monotonic() < interrupt.at:
            return None
        self.check()
        return PAUSE if interrupt.pauses() else None

    def check(self) -> None:
        """Check for cancellation. Raises EngineError: CANCELLED."""
        if self.interrupt is not None and self.interrupt.stopping():
            raise EngineError(Reason.CANCELLED, "the program was cancelled")


class Plan(PlanGraph):
    """A schedule with memory and calls that can be repeated. See the module's docstring."""

    def __init__(self, tracer: Tracer, outputs: Sequence[Tensor], numbers: int, account: Account) -> None:
        """Compile a trace. Raises NotPlannable, and EngineError: MEMORY_LIMIT."""
        super().__init__(tracer, outputs)
        self.numbers = np.zeros(numbers, np.float64)
        self.pattern = _pattern(tracer.inputs)
        self.offsets = _offsets(tracer.inputs, self.pattern)
        #: The arrays of the traced run. Those that differ in the first run of the plan will differ in others, too.
        bound = self._bound_regs() if self.device == CPU else []
        self._traced = [weakref.ref(tracer.arrays[number]) for number in bound]
        self.fusion: Fusion | None = Fusion() if self.device == CPU and OPTIONS.fuses() else None
        self._awaits_cuda = self.device != CPU  # whether its kernels are still to be made
        if self._awaits_cuda:
            self.uncaptured = "its kernels are still to be made"
        self._prepare(account)

    def _prepare(self, account: Account) -> None:
        """Assign memory; make the run's state. Raises EngineError: MEMORY_LIMIT."""
        self._number_arrays: dict[tuple[int, Any], Array] = {}
        self._long = {number for number, reg in enumerate(self.regs) if math.prod(reg.shape) >= _LONG}
        self.leaving = frozenset((*self._made(), *(end for end in self.final_grads.values() if end is not None)))
        self.memory: dict[int, Array] = {}
        self.scratch: dict[int, Array] = {}
        self.copied: dict[int, Array] = {}
        self.bytes = 0
        self._allocate(account)
        self.moving: set[int] = set()  # places of inputs on a GPU whose arrays differ from run to run
        self.storage = Storage(self.bytes, account)
        self.copies = Storage(0, account)  # of operands that kernels read as copies
        self._gradient_copies = Storage(0, account)
        self.dynamic_bytes = self._dynamic_bytes()
        self.values: list[Any] = [None] * len(self.regs)
        self.bound: list[Any] = []
        self.held: list[Storage] = []  # storages of the bound arrays, so that their bytes stay counted
        self.code: list[Code] = []
        self.pending: list[Iterator[None]] = []
        self.exchanges: list[Exchange] = [instr.what for instr in self.instrs if instr.kind == "exchange"]
        self.steps: list[int] = []  # step of the program, for each call of `code`
        self.failed_step: int | None = None
        self._kept: set[int] = set()
        self._given_away: set[int] = set()
        self.interrupt_check = _InterruptCheck()
        self._dynamic: list[int] = []

    # Fusion.

    def fastest(self, account: Account) -> Plan:
        """This plan, or after a number of runs that the plan decides, one of the same run that calls kernels.

        On a GPU at once: CuPy compiles a kernel when it is first launched.
        """
        fusion = self.fusion
        if not self._awaits_cuda and (fusion is None or not fusion.is_over()):
            return self
        self.fusion, self._awaits_cuda = None, False
        try:
            if fusion is None:
                return self._with_cuda_kernels(account)
            return self if fusion.ready.is_empty() else self._fused(fusion.ready, account)
        except EngineError as error:
            if error.reason is not Reason.MEMORY_LIMIT:
                raise
            self.uncaptured = "there is no memory for its kernels"
            return self

    def _await_kernels(self, fusion: Fusion) -> Generator[None, None, None]:
        """Wait for the kernels in the last run without them. Raises EngineError: CANCELLED."""
        try:
            while (awaited := fusion.awaited()) is not None:
                (self.interrupt_check.interrupt or Interrupt()).wait_for(awaited)
                yield
                self.interrupt_check.check()
        except BaseException:
            fusion.refused()
            raise

    def _fused(self, machine: Machine, account: Account) -> Plan:
        """A plan whose groups are single instructions, each at the place of its first member."""
        made = copy.copy(self)
        made.roots = dict(self.roots)
        replaced: dict[int, tuple[Instr, Kernel] | None] = {}
        for place, conv, loaded in machine.convolutions:
            instr = self.instrs[place]
            made.roots[instr.outs[0]] = frozenset(instr.outs)
            replaced[place] = (instr, self._convolution(instr, conv, loaded))
        for place, pick, scatter in machine.losses:
            self.instrs[place].what[0].use(functools.partial(LossKernels, pick, scatter))
        for place, norm, kernels in machine.norms:
            replaced[place] = made._called(norm_call(norm, kernels))
        for group, loaded in machine.groups:
            replaced.update(dict.fromkeys(group.places))
            replaced[group.places[0]] = made._called(FusedCall(group, loaded))
        made._adopt(self._with(replaced), account)
        return made

    def _with(self, replaced: dict[int, tuple[Instr, Kernel] | None]) -> list[tuple[Instr, Kernel | None]]:
        """The instructions, with those at some places replaced or removed."""
        pairs: list[tuple[Instr, Kernel | None]] = []
        for place, pair in enumerate(zip(self.instrs, self.kernels, strict=True)):
            other = replaced.get(place, pair)
            if other is not None:
                pairs.append(other)
        return pairs

    def _adopt(self, pairs: Sequence[tuple[Instr, Kernel | None]], account: Account) -> None:
        """Take over these instructions. Raises EngineError: MEMORY_LIMIT."""
        self.instrs, self.kernels = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.last = self._find_last_uses()
        self._prepare(account)

    def _with_cuda_kernels(self, account: Account) -> Plan:
        """A plan whose groups are kernels of the GPU."""
        made = copy.copy(self)
        made.roots, made.regs = dict(self.roots), list(self.regs)
        split = biases.split(self.instrs, made.regs, made.roots, self.leaving)
        pairs = zip(self.instrs, self.kernels, strict=True)
        parts = [
            (part, None if place in split else kernel)
            for place, (instr, kernel) in enumerate(pairs)
            for part in split.get(place, (instr,))
        ]
        made.instrs, made.kernels = [part[0] for part in parts], [part[1] for part in parts]
        replaced: dict[int, tuple[Instr, Kernel] | None] = {}
        for group in cuda_groups(made):
            replaced.update(dict.fromkeys(group.places))
            replaced[group.places[0]] = made._called(CudaCall([group]))
        with selected(self.device):
            made._adopt(in_rows(made._with(replaced), made.roots), account)
            made.uncaptured = made.may_capture()
        return made

    def _called(self, call: FusedCall | BatchNormCall | CudaCall) -> tuple[Instr, Kernel]:
        """The instruction of a call, whose results have their own memory."""
        self.roots.update((out, frozenset((out,))) for out in call.group.outs)
        return instruction(call)

    def _convolution(self, instr: Instr, conv: Depthwise, loaded: LoadedKernel) -> Kernel:
        reg, what = self.regs[instr.outs[0]], instr.what
        wanted = (reg.shape, reg.dtype)
        if instr.kind == "op":
            return convolution_kernel(conv, loaded, lambda args: what.compute(tuple(args)))
        return convolution_kernel(conv, loaded, lambda args: fit(what[2](*args), wanted))

    # Binding.

    def fits(self, inputs: Sequence[Tensor]) -> bool:
        """Whether these inputs match the traced ones: gradients present, row-major layout, and shared memory."""
        entry = self.entry
        if self.exchanges and not all(exchange.fits() for exchange in self.exchanges):
            return False
        if not entry and self._are_bound(inputs):
            return True
        for place, tensor in enumerate(inputs):
            grad = tensor.grad
            if (grad is not None) is not (place in entry) or has_history(tensor):
                return False
            if not tensor.array.flags.c_contiguous or not is_writable(tensor.array):
                return False
            if grad is not None and (grad.node is not None or not grad.array.flags.c_contiguous):
                return False
        return _pattern(inputs) == self.pattern and _offsets(inputs, self.pattern) == self.offsets

    def _are_bound(self, inputs: Sequence[Tensor]) -> bool:
        """Whether the arrays of these inputs are those of the last run, and no input has a gradient or a history.

        Their layout and the memory that they share are then the same: an array's never change.
        """
        if len(self.bound) != len(inputs):
            return False
        for tensor, array, storage in zip(inputs, self.bound, self.held, strict=True):
            if tensor.array is not array or tensor.storage is not storage:
                return False
            if tensor.node is not None or tensor.view is not None or tensor.grad is not None:
                return False
        return True

    def input_shape(self, place: int) -> tuple[int, ...]:
        """The shape of an input, for which the plan was made."""
        shape: tuple[int, ...] = self.regs[self.input_regs[place]].shape
        return shape

    def bind(self, arrays: list[Any]) -> None:
        """Bind these arrays to the inputs' registers and generate the code again."""
        values = self.values
        bound = self._bound_regs()
        for place, number in enumerate(bound):
            buffer = self.copied.get(place)
            values[number] = arrays[place] if buffer is None else buffer
        first = len(self.input_regs)
        self.bound = [
            None if place in self.moving or (place >= first and place in self.copied) else array
            for place, array in enumerate(arrays)
        ]
        self.code = []
        self._dynamic = [bound[place] for place in self.moving if place not in self.copied]
        static = set(bound).difference(self._dynamic)
        for number, memory in self.memory.items():
            values[number] = memory
            static.add(number)
        self.steps = []
        checked = 0
        for instr, kernel in zip(self.instrs, self.kernels, strict=True):
            begun = len(self.code)
            self._translate(instr, kernel, static)
            if self.device != CPU and several():
                self.code[begun:] = [self._on_device(call) for call in self.code[begun:]]
            if self._is_long(instr) or len(self.code) >= checked + _CALLS_BETWEEN_CHECKS:
                self.code.append(self.interrupt_check)
                checked = len(self.code)
            self.steps.extend([instr.step] * (len(self.code) - len(self.steps)))
        self._count_copies()

    def _on_device(self, call: Code) -> Code:
        """A call with the plan's GPU selected."""
        device = self.device

        def there() -> Any:
            with selected(device):
                return call()

        return there

    def _count_copies(self) -> None:
        """Count the copies that kernels keep of operands. Raises EngineError: MEMORY_LIMIT."""
        account = self.storage.account
        self.copies = Storage(0, account)
        total = sum(instr.what.copied for instr in self.instrs if instr.kind == "fused")
        if total:
            account.admit(total)
            self.copies = Storage(total, account)

    def _is_long(self, instr: Instr) -> bool:
        """Whether an instruction is expensive enough to check the interrupt after it."""
        long = self._long
        return not (long.isdisjoint(instr.reads()) and long.isdisjoint(instr.outs))

    def _bound_regs(self) -> list[int]:
        return [*self.input_regs, *self.read_grads.values()]

    def _take(self, arrays: list[Any]) -> None:
        """Bind the arrays of this run; an input whose array changed is copied to a fixed buffer from then on.

        On a GPU it is looked up in each run from then on.
        """
        if self.device != CPU:
            with selected(self.device):
                self._take_on_gpu(arrays)
            return
        again = not self.bound
        before = self.bound or [array() for array in self._traced]
        for place, (array, bound) in enumerate(zip(arrays, before, strict=True)):
            if array is not bound and place not in self.copied:
                again = True
                if self.may_copy(place, array):
                    self.copied[place] = np.empty_like(array)
        if again:
            self._copy_gradients(arrays, before)
            self.bind(arrays)
        for place, buffer in self.copied.items():
            np.copyto(buffer, arrays[place])

    def _take_on_gpu(self, arrays: list[Any]) -> None:
        pairs = enumerate(zip(arrays, self.bound, strict=False))
        changed = {place for place, (array, bound) in pairs if array is not bound and place not in self.moving}
        if self.graph is not None and changed:
            changed = self.moved_inputs(arrays, changed)
        self.has_moved = bool(changed) or not self.bound
        if self.has_moved:
            if self.graph is None:
                self.moving |= changed
            else:
                self.fix_inputs(arrays, changed)
            self.bind(arrays)
        self.copy_inputs(arrays)
        numbers = self._bound_regs()
        for place in self.moving.difference(self.copied):
            self.values[numbers[place]] = arrays[place]

    def _copy_gradients(self, arrays: list[Any], before: list[Any]) -> None:
        """From now on, copy the gradients whose arrays changed to fixed buffers, if that spares binding them."""
        first = len(self.input_regs)
        moved = [place for place in range(first, len(before)) if arrays[place] is not before[place]]
        moved = [place for place in moved if place not in self.copied]
        total = sum(arrays[place].nbytes for place in moved)
        if not total or total > _COPIED_GRADIENTS or not all(self._may_copy_gradient(place - first) for place in moved):
            return
        try:
            self.storage.account.admit(total)
        except EngineError:  # short of memory: they are bound
            return
        self._gradient_copies = Storage(total + self._gradient_copies.nbytes, self.storage.account)
        self.copied.update((place, np.empty_like(arrays[place])) for place in moved)

    def _may_copy_gradient(self, which: int) -> bool:
        """Whether a run only reads a gradient, which shares its memory with no other tensor. which: of `read_grads`."""
        place, number = list(self.read_grads.items())[which]
        position = len(self.input_regs) + sum(each < place for each in self.entry)
        if self.grad_changes.get(place) or self.pattern.count(self.pattern[position]) > 1:
            return False
        if any(instr.kind == "call" and number in instr.reads() for instr in self.instrs):
            return False  # a composite may change its arguments
        kept = [final for final in self.final_grads.values() if final is not None]
        return not any(number in self.roots[out] for out in kept)

    def may_copy(self, place: int, array: Array) -> bool:
        """Whether an input may be copied before each run instead of bound: the run neither writes nor keeps it."""
        if place >= len(self.input_regs) or place in self.changes or array.nbytes > _COPIED:
            return False
        number = self.input_regs[place]
        if self.pattern.count(self.pattern[place]) > 1:
            return False
        floating = self.regs[number].dtype.kind in "fc"
        if floating and any(instr.kind == "call" and number in instr.reads() for instr in self.instrs):
            return False  # a composite may update statistics in its arguments
        kept = [final for final in self.final_grads.values() if final is not None]
        return not any(number in self.roots[out] for out in kept)

    # Running.

    def run(
        self, inputs: Sequence[Tensor], numbers: Sequence[float], context: Context
    ) -> Generator[None, None, list[Tensor]]:
        """Run once and return the outputs. Yields in pauses, in which neither plan nor inputs may be used or changed.

        `inputs` must fit. Raises EngineError: those of the ops, MEMORY_LIMIT, CANCELLED.
        """
        self.interrupt_check.interrupt = context.interrupt
        if self.fusion is not None:
            self.fusion.began(self)
            if self.fusion.awaited() is not None:
                yield from self._await_kernels(self.fusion)
        if self.interrupt_check() is not None:
            yield
            self.interrupt_check.check()
        if self.dynamic_bytes:
            context.account.admit(self.dynamic_bytes)
        arrays = [tensor.array for tensor in inputs]
        if self.read_grads:
            arrays += [inputs[place].grad.array for place in self.read_grads]  # type: ignore[union-attr]
        self.held = [tensor.storage for tensor in inputs]
        self._take(arrays)
        if numbers:
            self.numbers[:] = numbers
            for (place, _), array in self._number_arrays.items():
                array[()] = numbers[place]
        self.failed_step = None
        if self.device != CPU:
            with selected(self.device):
                self.way = self.choose_way(inputs, arrays)
        remaining = iter(self.code)
        self._kept, self._given_away = set(), set()
        try:
            if self.way != "calls":
                with selected(self.device):
                    self.launch() if self.way == "graph" else self.run_in_arena(remaining)
            else:
                for call in remaining:
                    if call() is PAUSE:
                        yield from self.pending.pop() if self.pending else (None,)
                        self.interrupt_check.check()
            made = self._finish(inputs, context.nodes)
            if self.way == "arena":
                with selected(self.device):
                    self.keep_arena(arrays)
            return made
        except Exception as error:
            done = len(self.code) - operator.length_hint(remaining)
            self.failed_step = self.steps[done - 1] if done else None
            self._abort(inputs)
            if isinstance(error, MemoryError) or not isinstance(error, REFUSED):
                raise
            raise EngineError(Reason.RUNTIME, f"a step of the program: {error}") from error
        finally:
            for place, count in self.changes.items():
                for _ in range(count):
                    inputs[place].storage.changed()
            for number in self._dynamic:
                self.values[number] = None

    def _abort(self, inputs: Sequence[Tensor]) -> None:
        """After a failure, set the gradients that earlier steps had brought to their final values.

        The others keep their values from before the run, because the plan does not keep intermediate ones.
        """
        self._note_grad_changes(inputs)
        failed = 0 if self.failed_step is None else self.failed_step
        reached = {place: number for step, place, number in self.grad_history if step < failed}
        for place, number in reached.items():
            if number == self.final_grads[place]:
                self._set_gradient(inputs[place], place, number)

    def _note_grad_changes(self, inputs: Sequence[Tensor]) -> None:
        for place, count in self.grad_changes.items():
            held = inputs[place].grad
            for _ in range(count if held is not None else 0):
                held.storage.changed()  # type: ignore[union-attr]

    def _set_gradient(self, tensor: Tensor, place: int, number: int | None) -> None:
        if number is None:
            if tensor.state is not None:
                tensor.state.grad = None
        elif number != self.entry.get(place):
            tensor.grad = Tensor(self._leaving_array(number))

    def _leaving_array(self, number: int) -> Array:
        """A result's array: on a GPU the run's own, if nothing else uses its memory; else a copy."""
        array = self.values[number]
        if self.device != CPU:
            memory = allocation(array)
            if self.way == "calls" and is_whole(array) and memory not in self._kept_memory():
                self._given_away.add(memory)
                return array
            with selected(self.device):
                return duplicate(array)
        return POOL.row_major_copy(array)

    def _kept_memory(self) -> set[int]:
        """Addresses of memory on the GPU that outlives the run, or that left the plan in this run."""
        if not self._kept:
            dynamic = set(self._dynamic) - {self._bound_regs()[place] for place in self.moving}
            arrays = [array for number, array in enumerate(self.values) if number not in dynamic]
            self._kept.update(allocation(array) for array in arrays if hasattr(array, "__cuda_array_interface__"))
            self._kept.add(0)
        return self._kept | self._given_away

    def _finish(self, inputs: Sequence[Tensor], numbers: NodeNumbers) -> list[Tensor]:
        first = numbers.next
        numbers.next = first + self.nodes_made  # as many as step by step, so that later nodes get the same numbers
        self._note_grad_changes(inputs)
        for place, number in self.final_grads.items():
            self._set_gradient(inputs[place], place, number)
        made: list[Tensor] = []
        storages: dict[int, Tensor] = {}
        for output in self.outputs:
            made.append(self._make_output(inputs, output, made, storages, first))
        for tensor, output in zip(made, self.outputs, strict=True):
            if output.grad is not None:
                tensor.grad = made[output.grad]
            if output.retains:
                tensor.grad_state().retains_grad = True
        return made[: self.output_count]

    def _make_output(
        self,
        inputs: Sequence[Tensor],
        output: Output,
        made: Sequence[Tensor],
        storages: dict[int, Tensor],
        first_node: int,
    ) -> Tensor:
        number = output.number
        if output.kind == "input":
            return inputs[number]
        if output.kind == "grad":
            grad = inputs[number].grad
            assert grad is not None
            return grad
        if output.which < len(made):
            return made[output.which]
        first = storages.get(number)
        if first is None:
            tensor = storages[number] = Tensor(self._leaving_array(number), output.requires_grad)
            tensor.storage.version = tensor.storage.history = output.version
        else:  # a detached tensor on the same memory
            tensor = Tensor(first.array, output.requires_grad, first.storage)
        if output.freed_node is not None:
            tensor.node = output.freed_node.node(first_node)
        return tensor


def _held(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs and their gradients."""
    return [*inputs, *[one.grad for one in inputs if one.grad is not None]]


def _pattern(inputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Which inputs and gradients share memory: for each, the index of the first tensor with the same storage."""
    first: dict[int, int] = {}
    return tuple(
        [first.setdefault(id(one.storage.owner or one.storage), place) for place, one in enumerate(_held(inputs))]
    )


def _offsets(inputs: Sequence[Tensor], pattern: Sequence[int]) -> list[int]:
    """Where tensors of shared memory begin, in bytes from the first of them: so they overlap as traced, or do not."""
    shared = [(place, first) for place, first in enumerate(pattern) if first != place]
    held = _held(inputs) if shared else []
    return [address(held[place].array) - address(held[first].array) for place, first in shared]
