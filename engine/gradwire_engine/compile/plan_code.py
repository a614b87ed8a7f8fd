"""The code of a plan: each instruction becomes calls on arrays, without arguments.

Views of fixed memory are computed when the code is made. An instruction without a kernel calls its op or formula.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.batch_norm import BatchNormCall
from gradwire_engine.compile.fusion.cuda_calls import CudaCall
from gradwire_engine.compile.fusion.fused import OPTIONS, FusedCall, check_equal, magnitude
from gradwire_engine.compile.kernels.registry import Kernel
from gradwire_engine.compile.plan_memory import PlanMemory
from gradwire_engine.compile.trace import Instr, NumRef, Ref, Reg, leaves
from gradwire_engine.core.context import CURRENT, PAUSE, Pause
from gradwire_engine.core.device import (
    CPU,
    allocation,
    host,
    is_whole,
    may_share_memory,
    module_for,
    row_major_copy,
)
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.op import Op
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


class PlanCode(PlanMemory):
    """A schedule with memory and the translation of its instructions.

    values: the array of each register, None outside of a run if the run makes it. numbers: of this run. code: the calls
    of a run, in order. pending: the exchange that a call has begun, for which the run waits.
    """

    values: list[Any]
    numbers: Array
    code: list[Code]
    pending: list[Iterator[None]]
    _number_arrays: dict[tuple[int, Any], Array]
    _dynamic: list[int]

    def _translate(self, instr: Instr, kernel: Kernel | None, static: set[int]) -> None:
        if instr.kind == "constant":
            self._constant(instr, static)
            return
        if instr.kind == "own" and self.device != CPU:
            self._own_on_gpu(instr, static)
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

    def _own_on_gpu(self, instr: Instr, static: set[int]) -> None:
        """Let a leaf take over its gradient's array, unless something else that is used later is in its memory."""
        given, own, values = int(instr.args[0]), instr.outs[0], self.values
        self._dynamic.append(own)
        place = next(place for place, each in enumerate(self.instrs) if each is instr)
        later = {number for each in self.instrs[place + 1 :] for number in each.reads()}
        alive = later.union(self.leaving, self.input_regs, self.read_grads.values())
        rivals = [number for number in alive if self.roots[number] & self.roots[given]]
        arrays = [values[number] for number in static if hasattr(values[number], "__cuda_array_interface__")]
        fixed = set(map(allocation, arrays))

        def take_over() -> None:
            array = values[given]
            memory = allocation(array)
            others = [values[number] for number in rivals if values[number] is not None]
            if is_whole(array) and memory not in fixed and memory not in map(allocation, others):
                values[own] = array
            else:
                values[own] = row_major_copy(array)

        self.code.append(take_over)

    def _resolved(self, instr: Instr, template: Any, static: set[int]) -> tuple[list[Any], bool]:
        """Values of an instruction's template, and whether all of them are the same in each run."""
        fixed = static.issuperset(instr.reads())
        return [_filled(item, self.values, self.numbers) for item in template], fixed

    def _number(self, place: int, dtype: Any) -> Array:
        """0-d array for a number; each run sets its value."""
        key = (place, dtype)
        if key not in self._number_arrays:
            self._number_arrays[key] = np.zeros((), dtype)
        return self._number_arrays[key]

    def _call_kernel(self, instr: Instr, kernel: Kernel, static: set[int]) -> None:
        writes = instr.kind in ("write", "update")
        target = instr.args[0] if writes else instr.outs[0]
        dtype = self.regs[target].dtype
        template = [self._number(item, dtype) if type(item) is NumRef else item for item in instr.args]
        arguments, fixed = self._resolved(instr, template, static)
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
            hasattr(array, "flags")
            and (array.shape, array.dtype) == (reg.shape, reg.dtype)
            and any(may_share_memory(array, self.values[read]) for read in instr.reads())
        )

    def _fitted(self, gradient: Any, number: int) -> Any:
        reg = self.regs[number]
        return fit(gradient, (reg.shape, reg.dtype))

    # Machine code.

    def _call_fused(self, instr: Instr, static: set[int]) -> None:
        call: FusedCall | BatchNormCall | CudaCall = instr.what
        values = self.values
        anew = [out for out in instr.outs if self.makes_anew(out)]
        if anew:
            self._dynamic.extend(anew)
            self.code.append(functools.partial(self._make_anew, anew, values, self.regs, self.device))
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

    @staticmethod
    def _make_anew(numbers: Sequence[int], values: list[Any], regs: Sequence[Reg], device: str) -> None:
        """Make new memory for fused results that leave the plan."""
        for number in numbers:
            values[number] = module_for(device).empty(regs[number].shape, regs[number].dtype)

    def _verification(self, call: FusedCall | BatchNormCall | CudaCall) -> Callable[[Code], None]:
        """Runs a fused call and what it replaces on copies, and compares. Raises EngineError: RUNTIME."""
        apart, group, values = copy.copy(self), call.group, self.values
        apart.values = copied = [None] * len(self.regs)
        codes = [apart._plain(instr) for instr in group.members]

        def verify(run: Code) -> None:
            for number in group.reads():
                copied[number] = values[number].copy() if number in group.targets else values[number]
            operands = magnitude(copied[number] for number in group.reads())
            for code in codes:
                code()
            made = {int(out) for instr in group.members for out in instr.outs if out >= 0}
            operands = max(operands, magnitude(copied[number] for number in made))
            # What the kernel overwrites is compared, so the interpreted values must not share its memory.
            expected = {number: host(row_major_copy(copied[number])) for number in (*group.targets, *group.outs)}
            run()
            for number, array in expected.items():
                check_equal(group, number, host(values[number]), array, operands)

        return verify

    # Ops and formulas.

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
                        values[number] = array if type(array) is np.ndarray else _as_array(array)
                else:
                    values[single] = result if type(result) is np.ndarray else _as_array(result)

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
            return lambda: values.__setitem__(outs[0], row_major_copy(values[args[0]]))
        if kind == "exchange":
            pending = self.pending

            def exchange() -> Pause:
                pending.append(what.begin(_filled(args[1], values, numbers)))
                return PAUSE

            return exchange
        if kind == "sum":
            return lambda: values.__setitem__(outs[0], values[args[0]] + values[args[1]])
        if kind == "accumulate":
            return lambda: np.add(values[args[0]], values[args[1]], out=values[args[0]])
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


def _may_show(instr: Instr) -> bool:
    """Whether an instruction returns views of its arguments, if their memory layout allows it."""
    if instr.kind == "op":
        return bool(instr.what.view)
    if instr.kind == "formula":
        return instr.what[0] in _VIEWS
    return instr.kind == "spread" and instr.what[0] in _SPREAD_VIEWS


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


def _as_array(result: Any) -> Any:
    """A scalar as a 0-d array; an array of a GPU as it is."""
    return result if hasattr(result, "__cuda_array_interface__") else np.asarray(result)


def _write(op: Op, args: tuple[Any, ...]) -> None:
    """Apply an in-place op to arrays."""
    if type(args[0]) is not np.ndarray:
        op.overwrite(args)
    elif op.writes_always and op.writer is not None:
        op.writer(np, *args)
    else:
        args[0][...] = op.compute(args)
