"""Kernel registry: the kernels of a plan's instructions, by backend and op.

A backend is the array module of a plan's arrays: "numpy" or "cupy". A kernel is chosen when a plan is made, from shapes
and dtypes. It writes an instruction's result into existing memory. The result equals that of the op or formula, up to
rounding. An instruction without a kernel calls the op or formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gradwire_engine.compile.trace import Instr, Reg

Array = Any
Call = Callable[[], Any]
# A large in-place op is split if it has at least this many blocks.
_BLOCKS = 4
# Name of the sum of two gradients, which is no op.
GRADIENT_SUM = "gradient_sum"


class Kernel:
    """`run(out, *arguments)`: writes an instruction's result into `out`, or its first argument for an in-place op."""

    __slots__ = ("added", "block", "nbytes", "run", "scratch", "takes", "transposed")

    def __init__(
        self,
        run: Callable[..., Any],
        takes: Sequence[int] = (),
        scratch: bool = False,
        transposed: bool = False,
        block: int = 0,
        nbytes: int = 0,
        added: Callable[[bool], Callable[..., None]] | None = None,
    ) -> None:
        """Make a kernel.

        takes: indices of arguments whose memory the result may reuse at their last use.
        scratch: whether `out` is temporary memory of the target's size, for an in-place op.
        transposed: whether the result is column-major.
        block: elements per call of a large in-place op, which is split; 0 if it is not.
        nbytes: bytes of temporary memory that it holds, if they are many.
        added: makes `add(target, alpha, *arguments)`, which adds alpha times the result, or if True its transpose, to
        another array instead.
        """
        self.run = run
        self.takes = tuple(takes)
        self.scratch = scratch
        self.transposed = transposed
        self.block = block
        self.nbytes = nbytes
        self.added = added

    def splits(self, size: int) -> bool:
        """Whether an in-place op on this many elements is split into blocks."""
        return 0 < self.block * _BLOCKS <= size

    def in_blocks(self, arguments: Sequence[Any]) -> list[Call]:
        """Calls of an in-place op, one per block. All arrays must have the target's size and be row-major."""
        size, block = arguments[0].size, self.block
        cuts = [
            [item.reshape(-1)[begin : begin + block] if getattr(item, "ndim", 0) else item for item in arguments]
            for begin in range(0, size, block)
        ]
        scratch = np.empty(min(size, block), arguments[0].dtype)
        return [_bound(self.run, scratch[: cut[0].size], cut) for cut in cuts]


def _bound(run: Callable[..., Any], out: Array, arguments: Sequence[Any]) -> Call:
    return lambda: run(out, *arguments)


#: Returns the kernel of an instruction, whose registers are given, or None.
Choice = Callable[[Instr, Sequence[Reg]], "Kernel | None"]


class TargetIndexing(Protocol):
    """What machine code does for a cross entropy: it reads and changes rows at their targets."""

    def pick(self, logs: Array, target: Array) -> bool | None:
        """Fill positions and picked values; whether all targets are classes. None if a layout is not supported."""

    def scatter(self, out: Array, share: Any) -> bool:
        """Subtract 1 at the positions, multiply by a number; False with nothing changed for another layout."""


class CrossEntropy(Protocol):
    """nll_loss of log_softmax, and the gradient of both in one step."""

    def forward(self, logs: Array, target: Array, fallback: Call) -> Any:
        """Mean of minus the log-probabilities at the targets; `fallback` computes it by the op."""

    def use(self, make: Callable[[Array, Array], TargetIndexing]) -> None:
        """Compute by kernels with the same bits, which are made for positions and picked values."""

    def backward(self, out: Array, g: Array, logs: Array, fallback: Call) -> None:
        """Write (softmax - onehot(target)) * g / count into `out`; `fallback` computes it by the formulas."""


_CHOICES: dict[tuple[str, str], Choice] = {}
_CROSS_ENTROPIES: dict[str, Callable[[tuple[int, ...], Any], CrossEntropy]] = {}


def kernel(backend: str, op: str) -> Callable[[Choice], Choice]:
    """Register the function that chooses an op's kernel on a backend.

    op: "tanh" is the op, "tanh.grad.input" its formula for the gradient of `input`, "tanh_" its in-place form.
    Raises ValueError if the op has a kernel already.
    """

    def register(choice: Choice) -> Choice:
        if (backend, op) in _CHOICES:
            raise ValueError(f"{op} has a kernel of {backend} already")
        _CHOICES[backend, op] = choice
        return choice

    return register


def cross_entropy(backend: str, make: Callable[[tuple[int, ...], Any], CrossEntropy]) -> None:
    """Register a backend's class for cross entropy, which is made from the log-probabilities' shape and dtype."""
    _CROSS_ENTROPIES[backend] = make


def cross_entropy_of(backend: str) -> Callable[[tuple[int, ...], Any], CrossEntropy] | None:
    """A backend's class for cross entropy; None if it has none."""
    return _CROSS_ENTROPIES.get(backend)


def lookup(backend: str, op: str) -> Choice | None:
    """The function that chooses an op's kernel on a backend; None if there is none. See `kernel`."""
    return _CHOICES.get((backend, op))


def choose(backend: str, instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
    """The kernel of an instruction on a backend; None if there is none."""
    op = _op_of(instr)
    choice = None if op is None else lookup(backend, op)
    return None if choice is None else choice(instr, regs)


def _op_of(instr: Instr) -> str | None:
    """The name under which an instruction's kernel is registered; None if it can have none."""
    if instr.kind == "op" and len(instr.outs) == 1:
        return str(instr.what.name)
    if instr.kind == "formula":
        return f"{instr.what[0]}.grad.{instr.what[1]}"
    if instr.kind == "write":
        return f"{instr.what.name}_"
    return GRADIENT_SUM if instr.kind == "sum" else None
