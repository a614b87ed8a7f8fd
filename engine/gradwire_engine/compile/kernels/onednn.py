"""Kernels for convolutions in plans: oneDNN writes into the plan's memory.

They are the convolutions that the ops run eagerly (ops/nn/convolution/onednn.py), so both compute the same bits. A plan
holds its convolutions, also when later shapes evict them from the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire_engine.compile.kernels.registry import Choice, Kernel, kernel
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.core import dtypes
from gradwire_engine.ops.nn.convolution.onednn import prepared
from gradwire_engine.ops.nn.convolution.parts import Kind

Array = Any
_MADE = -1


def _convolution(kind: Kind, places: tuple[int, int, int], window: int = 3, bias: int = 0) -> Choice:
    """Kernel of a convolution.

    places: of the source, the weight and the result among the arguments; _MADE for what is computed. window: place of
    the stride; padding, dilation and groups follow. bias: place of the bias; 0 if there is none.
    """

    def choose(instr: Instr, regs: Sequence[Reg]) -> Kernel | None:
        args = instr.args
        operands = [args[place] for place in places if place != _MADE]
        biased = bool(bias) and args[bias] is not None
        if biased:
            operands.append(args[bias])
        if any(type(item) is not Ref for item in operands):
            return None
        reads = [regs[instr.outs[0]], *[regs[item] for item in operands]]
        if any(reg.dtype != dtypes.float32 for reg in reads):
            return None
        source, weight, result = (reads[0].shape if place == _MADE else regs[args[place]].shape for place in places)
        stride, padding, dilation, groups = args[window : window + 4]
        made = prepared(kind, source, weight, result, stride, padding, dilation, groups, biased)
        if made is None:
            return None

        def run(out: Array, *given: Any) -> None:
            source, weight, result = (None if place == _MADE else given[place] for place in places)
            made(source, weight, result, given[bias] if biased else None, out)

        return Kernel(run)

    return choose


def _unbiased(choice: Choice) -> Choice:
    """The kernel if argument 2, a bias, is None."""
    return lambda instr, regs: choice(instr, regs) if instr.args[2] is None else None


_KERNELS: dict[str, Choice] = {
    "_convolution": _convolution("forward", (0, 1, _MADE), bias=2),
    "_convolution.grad.input": _convolution("source", (_MADE, 2, 0)),
    "_convolution.grad.weight": _convolution("weights", (1, _MADE, 0)),
    "_convolution_transpose": _unbiased(_convolution("source", (_MADE, 1, 0))),
    "_convolution_transpose.grad.input": _convolution("forward", (0, 1, _MADE), window=2),
    "_convolution_transpose.grad.weight": _convolution("weights", (0, _MADE, 1)),
}
for _name, _choice in _KERNELS.items():
    kernel("numpy", _name)(_choice)
