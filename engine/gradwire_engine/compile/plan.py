"""Plans: a schedule (schedule.py) compiled to calls that can be repeated without tensors, nodes or new memory.

Compiled once: results get memory that is reused after the last use of its contents, and views are computed in advance.
A run is then a list of calls. A plan is valid for inputs as traced: row-major, with the same gradients present and the
same memory shared.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.batch_norm import BatchNormCall
from gradwire_engine.compile.fusion.depthwise import Depthwise
from gradwire_engine.compile.fusion.fused import (
    OPTIONS,
    FusedCall,
    Fusion,
    Machine,
    check_equal,
    convolution_kernel,
    norm_call,
)
from gradwire_engine.compile.fusion.kernel_cache import Kernel as LoadedKernel
from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.schedule import Output, Schedule
from gradwire_engine.compile.trace import Instr, NumRef, Ref, Reg, has_history, leaves
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT, PAUSE, Account, Context, Interrupt, NodeNumbers, Pause
from gradwire_engine.core.device import is_writable
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.op import Op
from gradwire_engine.op.refusals import REFUSED
from gradwire_engine.ops.base.basic import fit

Array = Any
Code = Callable[[], Any]
# Formulas that return a view of the gradient, if its memory layout allows it.
_VIEWS = frozenset(
    (
        "_transposed",
        "_fold",
        "_unsafe_view",
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "transpose",
        "t",
        "permute",
        "sum",
    )
)
# Ops of a list whose formulas return views of the gradient.
_SPREAD_VIEWS = frozenset(("stack", "cat"))
# Maximum bytes of an input that is copied to a fixed buffer, because each run passes another array.
_COPIED = 16 << 20


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


class Plan(Schedule):
    """A schedule with memory and calls that can be repeated. See the module's docstring."""

    def __init__(self, tracer: Tracer, outputs: Sequence[Tensor], numbers: int, account: Account) -> None:
        """Compile a trace. Raises NotPlannable, and EngineError: MEMORY_LIMIT."""
        super().__init__(tracer, outputs)
        self.numbers = np.zeros(numbers, np.float64)
        self.pattern = _pattern(tracer.inputs)
        self.fusion: Fusion | None = Fusion() if OPTIONS.fuses() else None
        self._prepare(account)

    def _prepare(self, account: Account) -> None:
        """Assign memory; make the run's state. Raises EngineError: MEMORY_LIMIT."""
        self._number_arrays: dict[tuple[int, Any], Array] = {}
        self.memory: dict[int, Array] = {}
        self.scratch: dict[int, Array] = {}
        self.copied: dict[int, Array] = {}
        self.bytes = 0
        self._allocate(account)
        self.storage = Storage(self.bytes, account)
        self.copies = Storage(0, account)  # of operands that kernels read as copies
        self.dynamic_bytes = self._dynamic_bytes()
        self.values: list[Any] = [None] * len(self.regs)
        self.bound: list[Any] = []
        self.held: list[Storage] = []  # storages of the bound arrays, so that their bytes stay counted
        self.code: list[Code] = []
        self.steps: list[int] = []  # step of the program, for each call of `code`
        self.failed_step: int | None = None
        self.interrupt_check = _InterruptCheck()
        self._dynamic: list[int] = []

    # Fusion.

    def fastest(self, account: Account) -> Plan:
        """This plan, or after a number of runs that the plan decides, one of the same run that calls kernels."""
        fusion = self.fusion
        if fusion is None or not fusion.is_over():
            return self
        self.fusion = None
        if fusion.ready.is_empty():
            return self
        try:
            return self._fused(fusion.ready, account)
        except EngineError as error:
            if error.reason is not Reason.MEMORY_LIMIT:
                raise
            return self  # no memory for a second plan

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
        for place, norm, kernels in machine.norms:
            replaced[place] = made._called(norm_call(norm, kernels))
        for group, loaded in machine.groups:
            replaced.update(dict.fromkeys(group.places))
            replaced[group.places[0]] = made._called(FusedCall(group, loaded))
        pairs: list[tuple[Instr, Kernel | None]] = []
        for place, pair in enumerate(zip(self.instrs, self.kernels, strict=True)):
            other = replaced.get(place, pair)
            if other is not None:
                pairs.append(other)
        made.instrs, made.kernels = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        made.last = made._find_last_uses()
        made._prepare(account)
        return made

    def _called(self, call: FusedCall | BatchNormCall) -> tuple[Instr, Kernel]:
        """The instruction of a call, whose results have their own memory."""
        group = call.group
        self.roots.update((out, frozenset((out,))) for out in group.outs)
        args = tuple(map(Ref, group.reads()))
        return Instr("fused", call, args, group.outs, group.members[0].step), Kernel(call)

    def _convolution(self, instr: Instr, conv: Depthwise, loaded: LoadedKernel) -> Kernel:
        reg, what = self.regs[instr.outs[0]], instr.what
        wanted = (reg.shape, reg.dtype)
        if instr.kind == "op":
            return convolution_kernel(conv, loaded, lambda args: what.compute(tuple(args)))
        return convolution_kernel(conv, loaded, lambda args: fit(what[2](*args), wanted))

    def _call_fused(self, instr: Instr, static: set[int]) -> None:
        call: FusedCall | BatchNormCall = instr.what
        values = self.values
        verify = self._verification(call) if OPTIONS.mode == "verify" else None
        if all(int(number) in static for number in (*instr.reads(), *instr.outs)):
            call.bind(values, static, self._number)
            self.code.append(call if verify is None else lambda: verify(call))
            return

        dynamic = {int(number) for number in instr.reads() if int(number) not in static}
        call.bind(values, static, self._number)

        def bound() -> None:
            call.bind_again(values, dynamic)
            if verify is None:
                call()
            else:
                verify(call)

        self.code.append(bound)

    def _verification(self, call: FusedCall | BatchNormCall) -> Callable[[Code], None]:
        """Runs a fused call and what it replaces on copies, and compares. Raises EngineError: RUNTIME."""
        apart, group, values = copy.copy(self), call.group, self.values
        apart.values = copied = [None] * len(self.regs)
        codes = [apart._plain(instr) for instr in group.members]

        def verify(run: Code) -> None:
            for number in group.reads():
                copied[number] = values[number].copy() if number in group.targets else values[number]
            for code in codes:
                code()
            # What the kernel overwrites is compared, so the interpreted values must not share its memory.
            expected = {number: np.array(copied[number]) for number in (*group.targets, *group.outs)}
            run()
            for number, array in expected.items():
                check_equal(group, number, values[number], array)

        return verify

    # Memory.

    def _allocate(self, account: Account) -> None:
        """Assign memory to each kernel's result, reusing memory whose last use is this or an earlier instruction.

        Raises EngineError: MEMORY_LIMIT, before an allocation that would exceed the limit.
        """
        free: dict[tuple[int, Any], list[Array]] = {}
        holder: dict[int, Array] = {}  # root register -> flat memory
        self.bytes = sum(instr.what.nbytes for instr in self.instrs if instr.kind == "constant")
        for place, (instr, kernel) in enumerate(zip(self.instrs, self.kernels, strict=True)):
            dying = {root for number in instr.reads() for root in self.roots[number] if self.last[root] == place}
            if instr.kind == "fused":
                self.bytes += instr.what.nbytes
                account.admit(self.bytes)
                for out in instr.outs:
                    holder[out] = self._fresh(self.regs[out], free, account)
                    self.memory[out] = holder[out].reshape(self.regs[out].shape)
                dying.update(out for out in instr.outs if self.last[out] == place)
            elif kernel is not None and instr.kind != "write":
                self.bytes += kernel.nbytes
                account.admit(self.bytes)
                out = instr.outs[0]
                reg = self.regs[out]
                flat = self._taken(instr, kernel, reg, dying, holder)
                if flat is None:
                    flat = self._fresh(reg, free, account)
                holder[out] = flat
                shaped = flat.reshape(reg.shape[::-1]).T if kernel.transposed else flat.reshape(reg.shape)
                self.memory[out] = shaped
                if self.last[out] == place:
                    dying.add(out)
            elif kernel is not None and kernel.scratch and not kernel.splits(self._size(instr)):
                reg = self.regs[instr.args[0]]
                flat = self._fresh(reg, free, account)
                self.scratch[id(instr)] = flat.reshape(reg.shape)
                free.setdefault((flat.size, flat.dtype), []).append(flat)
            for root in dying:
                flat = holder.pop(root, None)
                if flat is not None:
                    free.setdefault((flat.size, flat.dtype), []).append(flat)

    def _size(self, instr: Instr) -> int:
        size = 1
        for length in self.regs[instr.args[0]].shape:
            size *= length
        return size

    def _taken(self, instr: Instr, kernel: Kernel, reg: Reg, dying: set[int], holder: dict[int, Array]) -> Array | None:
        for position in kernel.takes:
            given = instr.args[position]
            if type(given) is not Ref or int(given) not in dying or int(given) not in holder:
                continue
            old = self.regs[given]
            # Another view of this memory, say transposed, would be read after it is overwritten; the same view is safe.
            shown = any(self.roots[other] & self.roots[int(given)] for other in instr.reads() if other != given)
            lone = not shown and self.roots[int(given)] == frozenset((int(given),))
            if lone and old.shape == reg.shape and old.dtype == reg.dtype and not self._is_transposed(int(given)):
                dying.discard(int(given))
                return holder.pop(int(given))
        return None

    def _is_transposed(self, number: int) -> bool:
        return not self.memory[number].flags.c_contiguous

    def _fresh(self, reg: Reg, free: dict[tuple[int, Any], list[Array]], account: Account) -> Array:
        size = int(np.prod(reg.shape, dtype=np.int64))
        waiting = free.get((size, reg.dtype))
        if waiting:
            return waiting.pop()
        self.bytes += size * reg.dtype.itemsize
        account.admit(self.bytes)
        return _aligned(size, reg.dtype)

    def _dynamic_bytes(self) -> int:
        made = [out for instr, kernel in zip(self.instrs, self.kernels, strict=True) if kernel is None
                for out in instr.outs if out >= 0]  # fmt: skip
        split = [instr.args[0] for instr, kernel in zip(self.instrs, self.kernels, strict=True)
                 if kernel is not None and instr.kind == "write" and kernel.scratch
                 and kernel.splits(self._size(instr))]  # fmt: skip
        return sum(map(self._nbytes, made)) + max(map(self._nbytes, split), default=0)

    def _nbytes(self, number: int) -> int:
        reg = self.regs[number]
        return int(np.prod(reg.shape, dtype=np.int64)) * int(reg.dtype.itemsize)

    # Binding.

    def fits(self, inputs: Sequence[Tensor]) -> bool:
        """Whether these inputs match the traced ones: gradients present, row-major layout, and shared memory."""
        entry = self.entry
        for place, tensor in enumerate(inputs):
            grad = tensor.grad
            if (grad is not None) is not (place in entry) or has_history(tensor):
                return False
            if not tensor.array.flags.c_contiguous or not is_writable(tensor.array):
                return False
            if grad is not None and (grad.node is not None or not grad.array.flags.c_contiguous):
                return False
        return _pattern(inputs) == self.pattern

    def input_shape(self, place: int) -> tuple[int, ...]:
        """The shape of an input, for which the plan was made."""
        shape: tuple[int, ...] = self.regs[self.input_regs[place]].shape
        return shape

    def _bind(self, arrays: list[Any]) -> None:
        """Bind these arrays to the inputs' registers and generate the code again."""
        values = self.values
        for place, number in enumerate(self._bound_regs()):
            buffer = self.copied.get(place)
            values[number] = arrays[place] if buffer is None else buffer
        self.bound = arrays
        self.code = []
        self._dynamic = []
        static = set(self._bound_regs())
        for number, memory in self.memory.items():
            values[number] = memory
            static.add(number)
        self.steps = []
        checked = 0
        for instr, kernel in zip(self.instrs, self.kernels, strict=True):
            self._translate(instr, kernel, static)
            if self._is_long(instr) or len(self.code) >= checked + _CALLS_BETWEEN_CHECKS:
                self.code.append(self.interrupt_check)
                checked = len(self.code)
            self.steps.extend([instr.step] * (len(self.code) - len(self.steps)))
        self._count_copies()

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
        numbers = (*instr.reads(), *(out for out in instr.outs if out >= 0))
        return any(math.prod(self.regs[number].shape) >= _LONG for number in numbers)

    def _bound_regs(self) -> list[int]:
        return [*self.input_regs, *self.read_grads.values()]

    def _take(self, arrays: list[Any]) -> None:
        """Bind the arrays of this run; an input whose array changed is copied to a fixed buffer from then on."""
        again = not self.bound
        for place, (array, bound) in enumerate(zip(arrays, self.bound, strict=False)):
            if array is not bound and place not in self.copied:
                again = True
                if self._may_copy(place, array):
                    self.copied[place] = np.empty_like(array)
        if again:
            self._bind(arrays)
        for place, buffer in self.copied.items():
            np.copyto(buffer, arrays[place])

    def _may_copy(self, place: int, array: Array) -> bool:
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

    # Code.

    def _translate(self, instr: Instr, kernel: Kernel | None, static: set[int]) -> None:
        if instr.kind == "constant":
            self._constant(instr, static)
            return
        if instr.kind == "fused":
            self._call_fused(instr, static)
            return
        if kernel is not None:
            self._call_kernel(instr, kernel, static)
            return
        if self._precompute_view(instr, static):
            return
        self._dynamic.extend(out for out in instr.outs if out >= 0)
        code = self._plain(instr)
        if instr.default is not None and not any(self.regs[read].dtype.kind in "fc" for read in instr.reads()):
            code = functools.partial(_with_default, instr.default, code)
        self.code.append(code)

    def _constant(self, instr: Instr, static: set[int]) -> None:
        number = instr.outs[0]
        kept = any(number in self.roots[out] for out in self._made())
        if self.writes_to(number) or kept:
            values, what = self.values, instr.what
            self.code.append(lambda: values.__setitem__(number, what.copy()))
            self._dynamic.append(number)
        else:
            self.values[number] = instr.what
            static.add(number)

    def _resolved(self, template: Any, static: set[int]) -> tuple[list[Any], bool]:
        """Values of a template, and whether all of them are the same in each run."""
        fixed = all(int(item) in static for item in leaves(template) if type(item) is Ref)
        return [_filled(item, self.values, self.numbers) for item in template], fixed

    def _number(self, place: int, dtype: Any) -> Array:
        """0-d array for a number; each run sets its value."""
        key = (place, dtype)
        if key not in self._number_arrays:
            self._number_arrays[key] = np.zeros((), dtype)
        return self._number_arrays[key]

    def _call_kernel(self, instr: Instr, kernel: Kernel, static: set[int]) -> None:
        writes = instr.kind == "write"
        target = instr.args[0] if writes else instr.outs[0]
        dtype = self.regs[target].dtype
        template = [self._number(item, dtype) if type(item) is NumRef else item for item in instr.args]
        arguments, fixed = self._resolved(template, static)
        run = kernel.run
        if not fixed:
            values, out = self.values, self.scratch.get(id(instr)) if writes else self.memory[target]
            if writes and kernel.scratch and out is None:
                out = np.empty(self.regs[target].shape, dtype)
            refs = [(place, int(item)) for place, item in enumerate(instr.args) if type(item) is Ref]
            lists = [(place, item) for place, item in enumerate(instr.args) if type(item) in (list, tuple)]

            def call() -> None:
                given = list(arguments)
                for place, number in refs:
                    given[place] = values[number]
                for place, items in lists:
                    given[place] = _filled(items, values, None)
                run(out, *given)

            self.code.append(call)
        elif writes and kernel.splits(self._size(instr)) and self._is_flat(arguments) and self._is_disjoint(instr):
            self.code.extend(kernel.in_blocks(arguments))
        elif writes:
            out = self.scratch.get(id(instr))
            if kernel.scratch and out is None:  # large enough for blocks, but its operands are not flat and apart
                shape = self.regs[target].shape
                self.code.append(lambda: run(np.empty(shape, dtype), *arguments))
            else:
                self.code.append(functools.partial(run, out, *arguments))
        else:
            self.code.append(functools.partial(run, self.memory[target], *arguments))

    def _is_disjoint(self, instr: Instr) -> bool:
        """Whether the target shares no memory with the other operands."""
        target, *others = instr.reads()
        return not any(self.roots[target] & self.roots[other] for other in others)

    def _is_flat(self, arguments: Sequence[Any]) -> bool:
        size = arguments[0].size
        return all(
            not getattr(item, "ndim", 0) or (item.size == size and item.flags.c_contiguous) for item in arguments
        )

    def _precompute_view(self, instr: Instr, static: set[int]) -> bool:
        """Compute a view of fixed memory now, instead of in each run; return whether that was possible."""
        if not _may_show(instr) or not all(int(read) in static for read in instr.reads()):
            return False
        if any(type(item) is NumRef for item in leaves(instr.args)):
            return False
        args = _filled(instr.args, self.values, self.numbers)
        if instr.kind == "op":
            made = instr.what.compute(args)
        elif instr.kind == "formula":
            made = self._fitted(instr.what[2](*args), instr.outs[0])
        else:
            made = instr.what[1](*args)
        shown = made if type(made) in (tuple, list) else (made,)
        if len(shown) != len(instr.outs):
            return False
        pairs = [pair for pair in zip(instr.outs, shown, strict=True) if pair[0] >= 0]
        if not all(self._is_view(each, number, instr) for number, each in pairs):
            return False
        for number, each in pairs:
            self.values[number] = each
            static.add(number)
        return True

    def _is_view(self, array: Any, number: int, instr: Instr) -> bool:
        """Whether an array has the register's shape and dtype and shares memory with an argument."""
        reg = self.regs[number]
        return (
            type(array) is np.ndarray
            and (array.shape, array.dtype) == (reg.shape, reg.dtype)
            and any(np.may_share_memory(array, self.values[read]) for read in instr.reads())
        )

    def _fitted(self, gradient: Any, number: int) -> Any:
        reg = self.regs[number]
        return fit(gradient, (reg.shape, reg.dtype))

    def _plain(self, instr: Instr) -> Code:
        """Code of an instruction without a kernel: it calls the op or formula."""
        values, numbers, args, outs, what = self.values, self.numbers, instr.args, instr.outs, instr.what
        kind = instr.kind
        if kind == "op":
            single = outs[0]

            def op() -> None:
                result = what.compute(_filled(args, values, numbers))
                if type(result) in (tuple, list):
                    for number, array in zip(outs, result, strict=True):
                        values[number] = np.asarray(array)
                else:
                    values[single] = np.asarray(result)

            return op
        if kind == "formula":
            number, formula = outs[0], what[2]
            wanted = (self.regs[number].shape, self.regs[number].dtype)

            def propagate() -> None:
                values[number] = fit(formula(*_filled(args, values, numbers)), wanted)

            return propagate
        if kind == "spread":
            return self._plain_spread(instr)
        if kind == "loss":
            return self._loss(instr)
        if kind == "call":

            def call() -> None:
                result = what.apply(_filled(args, values, numbers, Tensor))
                results = result if type(result) in (tuple, list) else [result]
                for number, tensor in zip(outs, results, strict=True):
                    values[number] = tensor.array

            return call
        if kind == "own":
            return lambda: values.__setitem__(outs[0], np.array(values[args[0]], order="C"))
        if kind == "sum":
            return lambda: values.__setitem__(outs[0], values[args[0]] + values[args[1]])
        if kind == "accumulate":
            return lambda: np.add(values[args[0]], values[args[1]], values[args[0]])
        return lambda: _write(what, _filled(args, values, numbers))

    def _loss(self, instr: Instr) -> Code:
        state, op = instr.what
        values, numbers, args, number = self.values, self.numbers, instr.args, instr.outs[0]
        logs, target = args[:2]

        def loss() -> None:
            values[number] = state.forward(
                values[logs], values[target], lambda: np.asarray(op.compute(_filled(args, values, numbers)))
            )

        return loss

    def _plain_spread(self, instr: Instr) -> Code:
        _, formula, single = instr.what
        values, numbers, args = self.values, self.numbers, instr.args
        wanted = [(out, (self.regs[out].shape, self.regs[out].dtype)) if out >= 0 else None for out in instr.outs]

        def spread() -> None:
            result = formula(*_filled(args, values, numbers))
            for part, place in zip((result,) if single else result, wanted, strict=True):
                if place is not None:
                    values[place[0]] = fit(part, place[1])

        return spread

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
        self._take(arrays)
        self.held = [tensor.storage for tensor in inputs]
        if numbers:
            self.numbers[:] = numbers
            for (place, _), array in self._number_arrays.items():
                array[()] = numbers[place]
        remaining = iter(self.code)
        self.failed_step = None
        try:
            for call in remaining:
                if call() is PAUSE:
                    yield
                    self.interrupt_check.check()
            return self._finish(inputs, context.nodes)
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
            tensor.grad = Tensor(np.array(self.values[number], order="C"))

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
            tensor = storages[number] = Tensor(np.array(self.values[number], order="C"), output.requires_grad)
            tensor.storage.version = tensor.storage.history = output.version
        else:  # a detached tensor on the same memory
            tensor = Tensor(first.array, output.requires_grad, first.storage)
        if output.freed_node is not None:
            tensor.node = output.freed_node.node(first_node)
        return tensor


def _may_show(instr: Instr) -> bool:
    """Whether an instruction returns views of its arguments, if their memory layout allows it."""
    if instr.kind == "op":
        return bool(instr.what.view)
    if instr.kind == "formula":
        return instr.what[0] in _VIEWS
    return instr.kind == "spread" and instr.what[0] in _SPREAD_VIEWS


def _pattern(inputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Which inputs and gradients share memory: for each, the index of the first tensor with the same storage."""
    first: dict[int, int] = {}
    held = [*inputs, *[one.grad for one in inputs if one.grad is not None]]
    return tuple([first.setdefault(id(one.storage.owner or one.storage), place) for place, one in enumerate(held)])


def _aligned(size: int, dtype: Any) -> Array:
    """Allocate uninitialized memory aligned to a cache line (64 bytes)."""
    raw = np.empty(size * dtype.itemsize + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size * dtype.itemsize].view(dtype)


def _filled(value: Any, values: list[Any], numbers: Array, wrap: Any = None) -> Any:
    """Fill a template with arrays, each passed through `wrap` if given, and numbers."""
    kind = type(value)
    if kind is Ref:
        return values[value] if wrap is None else wrap(values[value])
    if kind is NumRef:
        return float(numbers[value])
    if kind is tuple or kind is list:
        return kind([_filled(item, values, numbers, wrap) for item in value])
    return value


def _with_default(dtype: Any, code: Code) -> None:
    """Run code with this default dtype."""
    token = CURRENT.set(replace(CURRENT.get(), default_dtype=dtype))
    try:
        code()
    finally:
        CURRENT.reset(token)


def _write(op: Op, args: tuple[Any, ...]) -> None:
    """Apply an in-place op to arrays."""
    if op.writes_always and op.writer is not None:
        op.writer(np, *args)
    else:
        args[0][...] = op.compute(args)
