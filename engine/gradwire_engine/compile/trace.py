"""The trace: registers and instructions of one recorded run, and the rules by which instructions are added.

A register stands for an array of the run. An instruction computes registers from registers, numbers and constants.
Tracing (tracing.py) adds the instructions of ops, symbolic_backward.py those of a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import CPU, beside, device_of, may_share_memory, module_for, selected
from gradwire_engine.graph.graph import Meta
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor


class Num(float):
    """A number that may change from run to run; `place` is its index."""

    place: int

    @classmethod
    def at(cls, place: int, value: float) -> Num:
        """Make the number with this index and its value in this run."""
        made = cls(value)
        made.place = place
        return made


def plain(values: Iterable[Any]) -> tuple[Any, ...]:
    """Replace Num by float: NumPy treats a float as weakly typed beside float32, but not a subclass of float."""
    return tuple([float(value) if type(value) is Num else value for value in values])


class NumRef(int):
    """Index of a number in a template."""


class Ref(int):
    """Register of an array in a template."""


class Reg:
    """An array of the run. `roots`: registers whose memory it may share, including its own."""

    __slots__ = ("dtype", "fresh", "roots", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any, roots: frozenset[int], fresh: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.roots = roots
        self.fresh = fresh  # whether it surely has its own memory, row-major


@dataclass(frozen=True)
class Exchange:
    """A step that exchanges values with other sessions, and waits for them.

    begin: takes the arrays that it reads or writes; what it returns is done when exhausted. equals: whether all
    sessions then have equal values, and may have to compute equal ones of them. fits: whether it writes what it wrote
    when it was traced.
    """

    begin: Callable[[Sequence[Any]], Iterator[None]]
    equals: bool
    fits: Callable[[], bool] = lambda: True


class Instr:
    """One instruction: `kind` and `what` define how to compute the registers `outs` from the template `args`."""

    __slots__ = ("_read", "_reads", "args", "default", "kind", "outs", "step", "what")

    def __init__(self, kind: str, what: Any, args: Any, outs: tuple[int, ...], step: int = 0) -> None:
        self.kind = kind
        self.what = what
        self.args = args
        self.outs = outs
        self.step = step  # step of the program, for error messages
        self.default: Any = None  # the default dtype during the instruction, if not float32
        self._read: Any = None  # the arguments of which `_reads` has the registers
        self._reads: tuple[int, ...] = ()

    def reads(self) -> tuple[int, ...]:
        """Registers among the arguments, which are replaced as a whole."""
        if self._read is not self.args:
            self._read, self._reads = self.args, tuple(_registers(self.args))
        return self._reads

    def changes(self) -> list[int]:
        """Registers that it changes in place. A composite ("call") may also change what it reads."""
        if self.kind in ("write", "accumulate", "update"):
            return [int(self.args[0])] if type(self.args[0]) is Ref else []
        return [int(item) for item in self.args[0]] if self.kind == "exchange" else []

    def __repr__(self) -> str:
        return f"{self.outs} = {self.kind} {self.what} {self.args}"


def _registers(value: Any) -> list[int]:
    """The registers among the items of nested lists and tuples."""
    found: list[int] = []
    for item in value if type(value) in (list, tuple) else (value,):
        if type(item) is Ref:
            found.append(int(item))
        elif type(item) in (list, tuple):
            found += _registers(item)
    return found


def leaves(value: Any) -> Iterable[Any]:
    """The items of nested lists and tuples."""
    if type(value) in (list, tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


class Trace:
    """One recorded run. `failed` has the reason if the run cannot be planned."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.step = 0
        #: Where the run's arrays are. A run on a GPU may also have inputs in host memory, which no instruction reads,
        #: and constants there.
        self.device = CPU
        self.hosted: set[int] = set()
        self.regs: list[Reg] = []
        self.instrs: list[Instr] = []
        self.arrays: list[Any] = []  # by register, None if unknown; kept, so that ids stay unique
        self._by_id: dict[int, int] = {}
        self._kept: list[Any] = []
        #: Registers of changed gradients, or None, by the tensor's id.
        self.grads: dict[int, int | None] = {}
        #: Changes of gradients in order: the step, the tensor's id, and the register or None.
        self.grad_history: list[tuple[int, int, int | None]] = []
        self.changes: dict[int, int] = {}  # number of in-place changes, by root register

    def fail(self, why: str) -> None:
        """End the trace; the first reason is kept."""
        if self.failed is None:
            self.failed = why

    def is_here(self, array: Any) -> bool:
        """Whether an array is on the run's device: an array of NumPy's itself, or one of the GPU."""
        if self.device == CPU:
            return type(array) is np.ndarray
        return hasattr(array, "__cuda_array_interface__") and device_of(array) == self.device

    # Registers.

    def _known(self, array: Any, over: Iterable[int] = ()) -> int:
        """The array's register; a new register if it has none."""
        number = self._by_id.get(id(array))
        if number is None:
            number = self._new(array.shape, array.dtype, over, bool(array.flags.c_contiguous))
            self.arrays[number] = array
            self._by_id[id(array)] = number
        return number

    def _new(self, shape: tuple[int, ...], dtype: Any, over: Iterable[int], fresh: bool) -> int:
        number = len(self.regs)
        roots = frozenset((number,)).union(*[self.regs[other].roots for other in over])
        self.regs.append(Reg(shape, dtype, roots, fresh and len(roots) == 1))
        self.arrays.append(None)
        return number

    def operand(self, value: Any) -> Any:
        """Convert a value to its form in a template."""
        kind = type(value)
        if kind is Tensor:
            return self._ref(value.array)
        if kind is np.ndarray or (self.device != CPU and hasattr(value, "__cuda_array_interface__")):
            return self._ref(value) if id(value) in self._by_id else Ref(self.constant(_copy(value)))
        if kind is Saved:
            return self._ref((value if value.leaf is None else value.leaf).array)
        if kind is Num:
            return NumRef(value.place)
        if kind is list or kind is tuple:
            return kind([self.operand(item) for item in value])
        if isinstance(value, (np.ndarray, np.generic)) or (hasattr(value, "__array_interface__") and kind is not Meta):
            self.fail("an array that no op made")
        return value

    def _ref(self, array: Any) -> Any:
        number = self._by_id.get(id(array))
        if number is None:
            self.fail("an array that no op made")
            return None
        if number in self.hosted:
            self.fail("an operand that is in host memory")
        return Ref(number)

    # Instructions.

    def _append(self, instr: Instr) -> None:
        instr.step = self.step
        default = CURRENT.get().default_dtype
        if default != dtypes.float32:
            instr.default = default
        self.instrs.append(instr)

    def _emit(self, kind: str, what: Any, template: Any, results: Sequence[Any]) -> None:
        if self.failed is not None:
            return
        if not all(map(self.is_here, results)):
            self.fail("a result that is on another device")
            return
        reads = _registers(template)
        outs = []
        for array in results:
            if id(array) in self._by_id:
                # The op returned an argument itself; a new register would be a second name of one array.
                self.fail("an op that returns its argument")
                return
            over = [number for number in reads if self._may_share(array, number)]
            outs.append(self._known(array, over))
        self._append(Instr(kind, what, template, tuple(outs)))

    def _may_share(self, array: Any, number: int) -> bool:
        other = self.arrays[number]
        return other is None or may_share_memory(array, other)

    def _count_change(self, target: Any) -> None:
        if type(target) is Ref:
            for root in self.regs[target].roots:
                self.changes[root] = self.changes.get(root, 0) + 1

    def created(self, tensor: Tensor) -> None:
        """Record a leaf made from constants of the program."""
        self._emit("constant", _copy(tensor.array), (), [tensor.array])

    # Backward.

    def ref(self, number: int) -> Ref:
        """The form of a register in a template."""
        return Ref(number)

    def register(self, array: Any) -> int | None:
        """The array's register; ends the trace and returns None if no op made it."""
        found = self._ref(array)
        return None if found is None else int(found)

    def constant(self, array: Any) -> int:
        """Register for an array that is the same in each run."""
        number = self._new(array.shape, array.dtype, (), True)
        if device_of(array) != self.device:
            self.hosted.add(number)
        self._append(Instr("constant", array, (), (number,)))
        return number

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> int:
        """Register for zeros on the run's device."""
        with selected(self.device):
            return self.constant(module_for(self.device).zeros(shape, dtype))

    def sum(self, one: int, other: int) -> int:
        """Record the sum of two gradients that arrive at the same edge."""
        reg, second = self.regs[one], self.regs[other]
        if reg.shape != second.shape or reg.dtype != second.dtype:
            self.fail("gradients of two kinds are added")
        total = self._new(reg.shape, reg.dtype, (), True)
        self._append(Instr("sum", None, (Ref(one), Ref(other)), (total,)))
        return total

    def formula(self, what: Any, args: Any, meta: Any) -> int:
        """Record a formula whose result is fitted to an input's shape and dtype."""
        reads = [int(item) for item in leaves(args) if type(item) is Ref]
        number = self._new(meta[0], meta[1], reads, False)
        self._append(Instr("formula", what, args, (number,)))
        return number

    def spread(self, what: Any, args: Any, metas: Sequence[Any]) -> tuple[int, ...]:
        """Record a formula with several results, for an op's list; -1 for results that are not needed."""
        reads = [int(item) for item in leaves(args) if type(item) is Ref]
        outs = tuple([-1 if meta is None else self._new(meta[0], meta[1], reads, False) for meta in metas])
        self._append(Instr("spread", what, args, outs))
        return outs

    def own(self, number: int, array: Any) -> None:
        """Record that a tensor took over a register's array, or a copy of it; `array` is the result."""
        own = self._new(self.regs[number].shape, self.regs[number].dtype, (), True)
        self._append(Instr("own", None, (Ref(number),), (own,)))
        self.name(array, own)

    def accumulate(self, held: Tensor, number: int) -> None:
        """Record the in-place addition of a gradient to an existing one."""
        target = self.register(held.array)
        if target is not None:
            self._append(Instr("accumulate", None, (Ref(target), Ref(number)), ()))
            self._count_change(Ref(target))

    def name(self, array: Any, number: int) -> None:
        """Bind an array to the register that it corresponds to."""
        if not self.is_here(array):
            self.fail("a gradient that is on another device")
            return
        self._by_id[id(array)] = number
        self.arrays[number] = array
        self._kept.append(array)

    def grad_changed(self, tensor: Tensor) -> None:
        """Record that a tensor's gradient was set, accumulated or cleared."""
        self._kept.append(tensor)
        grad = tensor.grad
        self._kept.append(grad)
        self.grads[id(tensor)] = number = None if grad is None else self.register(grad.array)
        self.grad_history.append((self.step, id(tensor), number))

    def contains_number(self, values: Any) -> bool:
        """Whether a Num is among the values; Python code that computes with it gives other results in each run."""
        return any(type(value) is Num for value in leaves(values))


def has_history(tensor: Tensor) -> bool:
    """Whether a tensor depends on a graph: it has a node, or is a view that requires grad."""
    return tensor.node is not None or (tensor.view is not None and tensor.requires_grad)


def _copy(array: Any) -> Any:
    """A copy on the array's device; CuPy's own method makes it on the current one."""
    with beside(array):
        return array.copy()
