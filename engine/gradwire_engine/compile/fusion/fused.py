"""Fused plans: asks for the kernels of a plan's groups, and calls them with the plan's arrays.

`Fusion` belongs to one plan. Its kernels are built beside the running plan. After a number of runs that depends on the
plan alone, the plan is replaced by one whose groups are single instructions (plan.py). Depthwise convolutions and
batch normalization get kernels too. The run before that waits for
the kernels. So results do not depend on how long compiling takes. A group whose kernel failed stays as it was.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gradwire_engine.compile.fusion import cross_entropy
from gradwire_engine.compile.fusion.batch_norm import BatchNorm, BatchNormCall, batch_norms
from gradwire_engine.compile.fusion.depthwise import Depthwise, DepthwiseCall, Fallback, depthwise, loop_of
from gradwire_engine.compile.fusion.form import FULL, Loop, is_flat
from gradwire_engine.compile.fusion.grouping import Group, Index, equal_places, groups_of
from gradwire_engine.compile.fusion.kernel_cache import KERNELS, Kernel, Kernels, available
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.compile.kernels.registry import Kernel as PlanKernel
from gradwire_engine.compile.schedule import Schedule
from gradwire_engine.core.device import cupy, host
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.threads import POOL, SHARED

Array = Any
Mode = Literal["off", "on", "verify"]
# Estimated seconds of work, without matrix products, before a plan is replaced: about what compiling takes.
WORK_BEFORE = 0.25
# The kernels are asked for after a part of these runs: most programs of a few runs are not worth compiling.
_ASKED_PART = 4
_LEAST_RUNS = 3
_CALL_SECONDS, _ELEMENT_SECONDS = 1e-6, 1e-9
# Threads of a loop at most, and values of all their scratch rows.
_MOST_THREADS, _SCRATCH = 64, 1 << 17
# Verification: differences in units of the dtype's precision, of the value and of a tenth of the largest value.
_UNITS = 512.0
_ROUNDINGS = 4.0  # and differences in units of the operands' precision


@dataclass
class Options:
    """Whether plans of this process are fused, and with what kernels. A server sets the mode when it starts."""

    mode: Mode = "off"
    kernels: Kernels = KERNELS

    def fuses(self, on_gpu: bool = False) -> bool:
        """Whether new plans of this process are fused."""
        if on_gpu:
            return self.mode != "off" and hasattr(cupy(), "RawKernel")
        return self.mode != "off" and available() and not self.kernels.is_forked()


OPTIONS = Options()


def _steps_of(schedule: Schedule) -> Schedule:
    """What grouping reads of a plan. The kernels' thread must not hold the plan: it might free the plan's storages."""
    steps = Schedule.__new__(Schedule)
    for name in ("instrs", "kernels", "regs", "roots", "input_regs", "shared", "entry", "outputs", "final_grads"):
        setattr(steps, name, getattr(schedule, name))
    return steps


def replaced_after(schedule: Schedule) -> int:
    """Runs of a plan before it is replaced. The plan alone decides, so that each repetition computes the same."""
    seconds = 0.0
    for instr in schedule.instrs:
        made = [out for out in instr.outs if out >= 0] or instr.reads()[:1]
        seconds += _CALL_SECONDS + _ELEMENT_SECONDS * sum(math.prod(schedule.regs[number].shape) for number in made)
    return max(_LEAST_RUNS, math.ceil(WORK_BEFORE / max(seconds, _CALL_SECONDS)))


@dataclass
class Machine:
    """What of a plan is computed by kernels: groups of instructions; others by their places."""

    groups: list[tuple[Group, Kernel]] = field(default_factory=list)
    convolutions: list[tuple[int, Depthwise, Kernel]] = field(default_factory=list)
    norms: list[tuple[int, BatchNorm, dict[str, Kernel]]] = field(default_factory=list)
    losses: list[tuple[int, Kernel, Kernel]] = field(default_factory=list)

    def is_empty(self) -> bool:
        """Whether no kernel is ready."""
        return not (self.groups or self.convolutions or self.norms or self.losses)


class Fusion:
    """The kernels of a plan's groups, while they are built."""

    def __init__(self) -> None:
        self.runs = 0
        self.due = 0  # runs after which the plan is replaced; 0: not known yet
        self.ready = Machine()
        self._done: Future[None] = Future()
        self._asked = self._hurried = self._dropped = False
        self._job: Callable[[], None] | None = None
        self._watch: weakref.ref[Schedule] | None = None

    def began(self, schedule: Schedule) -> None:
        """Note a run; ask for the kernels when there were enough runs."""
        self.runs += 1
        self.due = self.due or replaced_after(schedule)
        if self._asked or self.runs < self.due // _ASKED_PART:
            return
        if self._job is None:
            self._watch = weakref.ref(schedule, self._note_dropped)
            steps = _steps_of(schedule)
            self._job = lambda: self._build(steps)
        self._asked = OPTIONS.kernels.later(self._job)

    def awaited(self) -> Future[None] | None:
        """The kernels' end, if this run must wait for it, since the next run uses them."""
        if not self._is_due() or self._done.done():
            return None
        if not self._hurried:
            self._hurried = True
            assert self._job is not None
            if not OPTIONS.kernels.hurry(self._job):
                self._done.set_result(None)
        return None if self._done.done() else self._done

    def refused(self) -> None:
        """Note that the run ended before its first step, so that its repetition is the same run."""
        self.runs -= 1

    def is_over(self) -> bool:
        """Whether the plan is replaced now; if no kernel is ready, it stays."""
        return self._is_due() and self._done.done()

    def _is_due(self) -> bool:
        return 0 < self.due <= self.runs

    def _note_dropped(self, _: object) -> None:
        self._dropped = True

    def _build(self, steps: Schedule) -> None:
        """Build the kernels, unless the plan is dropped meanwhile."""
        if self._done.done():
            return
        try:
            self.ready = self._built(steps)
        finally:
            self._done.set_result(None)

    def _built(self, steps: Schedule) -> Machine:
        return machine_of(steps, self._kernel)

    def _kernel(self, source: str) -> Kernel | None:
        """A loaded kernel; None if it failed or the plan is dropped."""
        kernel = None if self._dropped else OPTIONS.kernels.built(source)
        return None if kernel is None or kernel.entry is None else kernel


def machine_of(steps: Schedule, built: Callable[[str], Kernel | None]) -> Machine:
    """The kernels of a plan; `built` gives the loaded kernel of a source, or None."""
    made = Machine()
    equal = equal_places(steps)
    groups, norms = groups_of(steps), batch_norms(steps)
    if any(place in equal for place, _ in norms):
        norms = []
    for group in groups:
        kernel = built(printed(group.loop, group.length))
        if kernel is not None:
            made.groups.append((group, kernel))
    for place, instr in enumerate(steps.instrs):
        if instr.kind == "loss":
            pair = [built(source) for source in cross_entropy.sources(steps.regs[instr.args[0]].dtype.char)]
            if pair[0] is not None and pair[1] is not None:
                made.losses.append((place, pair[0], pair[1]))
        may_be = steps.kernels[place] is None and place not in equal
        conv = depthwise(instr, steps.regs) if may_be else None
        kernel = None if conv is None else built(printed(loop_of(conv)))
        if conv is not None and kernel is not None:
            made.convolutions.append((place, conv, kernel))
    for place, norm in norms:
        kernels = {name: built(printed(loop)) for name, loop in norm.loops().items()}
        whole = {name: kernel for name, kernel in kernels.items() if kernel is not None}
        if len(whole) < len(kernels):
            made.norms = []  # one computes sums for others, so all are kernels or none
            break
        made.norms.append((place, norm, whole))
    return made


def work(loop: Loop, elements: int) -> int:
    """Operations on elements of a loop."""
    return elements * sum(value.scope == FULL for value in loop.values)


def _lanes(group: Group, kept: int) -> int:
    """Threads that a group's rows may be divided among; each needs a scratch row of so many values."""
    rows = group.rows * group.length if is_flat(group.loop) else group.rows
    return max(1, min(_MOST_THREADS, rows, _SCRATCH // kept if kept else _MOST_THREADS))


class FusedCall:
    """A call of a group's kernel on arrays, which are bound once."""

    def __init__(self, group: Group, kernel: Kernel) -> None:
        assert kernel.entry is not None
        self.group, self.kernel, self.entry = group, kernel, kernel.entry
        self._end = group.rows * group.length if is_flat(group.loop) else group.rows
        self._written = [operand.written for operand in group.loop.operands]
        kept = len(group.loop.kept()) * group.length
        self._work = work(group.loop, group.rows * group.length)
        self._lanes = _lanes(group, kept) if self._work >= SHARED else 1
        self._scratch = np.empty((self._lanes, kept), np.float64)
        self._held: list[Array] = [None] * len(group.operands)
        self._copies: dict[int, tuple[Array, Array]] = {}
        self._dynamic: set[int] = set()  # places of operands that each run binds
        self._targets: list[Array] = []
        self._table = np.zeros(1 + 2 * len(group.operands), np.int64)
        self._table[0] = group.length

    @property
    def nbytes(self) -> int:
        """Bytes of temporary memory."""
        return int(self._scratch.nbytes)

    @property
    def copied(self) -> int:
        """Bytes of the copies of operands that are bound, or may be in a run."""
        return sum(self._nbytes(place) for place in self._copies.keys() | self._dynamic)

    def _nbytes(self, place: int) -> int:
        what = self.group.operands[place]
        return math.prod(what.shape) * int(what.dtype.itemsize) if type(what) is Index else 0

    def bind(self, values: Sequence[Array], static: Container[int], number: Callable[[int, Any], Array]) -> None:
        """Set the arrays of the registers in `static`, and the numbers.

        number: gives the 0-d array of a number of the run, by its place and dtype. It is not kept: it refers to the
        plan, which refers to this call, and a cycle would keep the plan's memory until garbage is collected.
        """
        self._copies = {}
        self._dynamic = set()
        self._targets = [
            values[what.register]
            for what, written in zip(self.group.operands, self._written, strict=True)
            if written and type(what) is Index
        ]
        for place, what in enumerate(self.group.operands):
            if not isinstance(what, Index):
                self._set(place, number(*what))
            elif what.register in static:
                self._set_register(place, what, values)
            elif not self._written[place]:
                self._dynamic.add(place)
        self._address, self._addresses = self._table.ctypes.data, [lane.ctypes.data for lane in self._scratch]

    def bind_again(self, values: Sequence[Array], dynamic: Container[int]) -> None:
        """Set the arrays of the registers in `dynamic`."""
        for place, what in enumerate(self.group.operands):
            if type(what) is Index and what.register in dynamic:
                self._set_register(place, what, values)

    def _set_register(self, place: int, what: Index, values: Sequence[Array]) -> None:
        """Set an array. What is not row-major, or shares memory with a result, is copied before each call."""
        array = np.asarray(values[what.register])  # an op may have answered a scalar
        if array.shape != what.shape or array.dtype != what.dtype:
            raise RuntimeError(f"register {what.register} is not what was traced")
        self._table[2 + 2 * place] = what.count
        known = self._copies.pop(place, None)
        if not self._written[place]:
            shared = any(np.may_share_memory(array, target) for target in self._targets)
            if shared or not array.flags.c_contiguous:
                copy = np.empty(array.shape, array.dtype) if known is None else known[0]
                self._copies[place] = copy, array
                array = copy
        elif not array.flags.c_contiguous:
            raise RuntimeError(f"register {what.register} is not row-major")
        self._set(place, array)

    def _set(self, place: int, array: Array) -> None:
        self._held[place] = array
        self._table[1 + 2 * place] = array.__array_interface__["data"][0]

    def __call__(self) -> None:
        """Run the kernel."""
        for copy, array in self._copies.values():
            np.copyto(copy, array)
        threads = POOL.lanes(self._work, self._lanes)
        if threads > 1:
            POOL.run(self.entry, self._end, self._addresses[:threads], self._address)
        else:
            self.entry(0, self._end, self._addresses[0], self._address)


def magnitude(values: Iterable[Any]) -> float:
    """The largest finite absolute value of float arrays; 0 if there is none."""
    largest = 0.0
    for value in values:
        array = np.asarray(host(value))
        if array.dtype.kind == "f":
            largest = max(largest, float(np.abs(array[np.isfinite(array)]).max(initial=0)))
    return largest


def check_equal(group: Group | BatchNorm, number: int, fused: Array, expected: Array, operands: float = 0.0) -> None:
    """Compare a fused result with the interpreted one. Raises EngineError: RUNTIME. operands: see `check_near`."""
    names = ", ".join(str(getattr(instr.what, "name", instr.kind)) for instr in group.members)
    check_near(
        f"the fused kernel of {names} computed another value than its ops, in register {number}",
        fused,
        expected,
        operands,
    )


def check_near(what: str, fused: Array, expected: Array, operands: float = 0.0) -> None:
    """Compare a kernel's result with the expected one. Raises EngineError: RUNTIME if rounding does not explain it.

    operands: their largest absolute value, and that of results in between. A difference of large values is small, but
    its rounding is that of the large ones.
    """
    wanted = np.asarray(expected, fused.dtype).reshape(fused.shape)
    with np.errstate(all="ignore"):
        finite = np.isfinite(wanted)
        largest = np.abs(wanted[finite]).max(initial=0)
        unit = _UNITS * np.finfo(fused.dtype).eps
        rounding = _ROUNDINGS * np.finfo(fused.dtype).eps * operands
        near = np.abs(fused - wanted) <= unit * (np.abs(wanted) + largest / 10) + rounding
        same = np.where(finite, near, (fused == wanted) | (np.isnan(fused) & np.isnan(wanted)))
    if not same.all():
        raise EngineError(Reason.RUNTIME, f"{what}: {fused[~same][0]!r} instead of {wanted[~same][0]!r}")


def norm_call(norm: BatchNorm, kernels: dict[str, Kernel]) -> BatchNormCall:
    """A call of batch normalization, in threads if it is large."""
    rows = norm.images * norm.channels
    operations = max((work(loop, rows * norm.length) for loop in norm.loops().values()), default=0)
    return BatchNormCall(norm, kernels, lambda: POOL.lanes(operations, min(rows, _MOST_THREADS)))


def convolution_kernel(conv: Depthwise, loaded: Kernel, fallback: Fallback) -> PlanKernel:
    """The kernel of a plan's instruction that is a depthwise convolution."""
    operations = work(loop_of(conv), conv.channels * conv.length)
    call = DepthwiseCall(conv, loaded, fallback, lambda: POOL.lanes(operations, min(conv.channels, _MOST_THREADS)))
    if OPTIONS.mode != "verify":
        return PlanKernel(call.run, nbytes=call.nbytes)

    def verified(out: Array, *args: Any) -> None:
        call.run(out, *args)
        check_near(f"the fused kernel of {conv.what} computed another value than its op", out, fallback(args))

    return PlanKernel(verified, nbytes=call.nbytes)
