"""Depthwise convolutions in machine code: each channel with a kernel of its own, stride 1, two dimensions.

As matrix products they have one row each, and their columns are many times the image. A loop over an image's padded
rows, as one vector per channel, reads the image at one offset per kernel element. The vector also passes the padding
between two rows: what it computes there is not used.

The gradient of the input is the same loop, of the padded gradient and the reversed kernel. That of the weight is a sum
of products per kernel element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.form import CYCLE, SHIFTED, Loop
from gradwire_engine.compile.fusion.kernel_cache import Kernel
from gradwire_engine.compile.trace import Instr, Ref, Reg
from gradwire_engine.core.threads import POOL

Array = Any
Fallback = Callable[[Sequence[Any]], Array]
_CODES = {np.dtype(np.float32): "f4", np.dtype(np.float64): "f8"}
_MOST_TAPS = 128
_LEAST = 2048  # elements of an image's result: of smaller ones, the calls per image take longer
_FORWARD, _INPUT, _WEIGHT = "_convolution", "_convolution.grad.input", "_convolution.grad.weight"


@dataclass(frozen=True)
class Depthwise:
    """A depthwise convolution of an instruction: what it computes, and its sizes.

    size: of the array that is padded and read at offsets. kernel, dilation and padding: per dimension.
    """

    what: str
    dtype: str
    images: int
    channels: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    biased: bool

    @property
    def padded(self) -> tuple[int, ...]:
        """Sizes with padding."""
        return tuple(length + 2 * pad for length, pad in zip(self.size, self.padding, strict=True))

    @property
    def output(self) -> tuple[int, ...]:
        """Sizes of the result, or of the gradient for that of the weight."""
        reach = (gap * (k - 1) for gap, k in zip(self.dilation, self.kernel, strict=True))
        return tuple(length - far for length, far in zip(self.padded, reach, strict=True))

    @property
    def length(self) -> int:
        """Elements of the vector from the first to the last output, with the padding between its rows."""
        return (self.output[0] - 1) * self.padded[1] + self.output[1]


def depthwise(instr: Instr, regs: Sequence[Reg]) -> Depthwise | None:
    """The depthwise convolution that an instruction computes; None if it is another one."""
    name = f"{instr.what[0]}.grad.{instr.what[1]}" if instr.kind == "formula" else getattr(instr.what, "name", "")
    if name not in (_FORWARD, _INPUT, _WEIGHT) or type(instr.args) not in (tuple, list) or len(instr.args) != 7:
        return None
    stride, padding, dilation, groups = instr.args[3:]
    places = {_FORWARD: (0, 1), _INPUT: (0, 2), _WEIGHT: (1, 0)}[name]
    given = [instr.args[place] for place in places]
    out = regs[instr.outs[0]]
    bias = instr.args[2] if name == _FORWARD else None
    if any(type(item) is not Ref for item in given) or not (bias is None or type(bias) is Ref):
        return None
    arrays = [regs[item] for item in (*given, *([] if bias is None else [bias]))]
    if out.dtype not in _CODES or any(reg.dtype != out.dtype for reg in arrays):
        return None
    data, other = arrays[0].shape, arrays[1].shape
    kernel = out.shape if name == _WEIGHT else other
    if len(data) != 4 or len(kernel) != 4 or kernel[:2] != (groups, 1) or data[1] != groups:
        return None
    if tuple(stride) != (1, 1) or math.prod(kernel[2:]) > _MOST_TAPS or 0 in (*data, *kernel):
        return None
    pads = tuple(padding)
    if name == _INPUT:
        pads = tuple(gap * (k - 1) - pad for gap, k, pad in zip(dilation, kernel[2:], padding, strict=True))
    made = Depthwise(
        name, _CODES[out.dtype], data[0], data[1], tuple(data[2:]), tuple(kernel[2:]), tuple(dilation), pads,
        bias is not None,
    )  # fmt: skip
    outputs = other if name == _WEIGHT else out.shape
    if made.channels * made.length < _LEAST:
        return None
    fits = min(pads) >= 0 and outputs == (data[0], groups, *made.output)
    return made if fits and (name != _INPUT or math.prod(made.output) <= 2 * math.prod(made.size)) else None


def loop_of(conv: Depthwise) -> Loop:
    """The loop over the channels of an image; for the weight's gradient, of one row of the kernel."""
    loop, width = Loop(), conv.padded[1]
    columns = [place * conv.dilation[1] for place in range(conv.kernel[1])]
    image = loop.operand(conv.dtype, SHIFTED, math.prod(conv.padded))
    if conv.what == _WEIGHT:
        gradient = loop.operand(conv.dtype, SHIFTED, conv.output[0] * width)
        sums = loop.operand(conv.dtype, CYCLE, math.prod(conv.kernel))
        for tap, offset in enumerate(columns):
            product = loop.binary("mul", loop.load(gradient), loop.load(image, offset))
            loop.store(sums, loop.reduce("sum", product), tap)
        return loop
    weight = loop.operand(conv.dtype, CYCLE, math.prod(conv.kernel))
    result = loop.operand(conv.dtype, SHIFTED, conv.output[0] * width)
    lines = []
    for line in range(conv.kernel[0]):
        start = line * conv.dilation[0] * width
        taps = [
            loop.binary("mul", loop.load(image, start + offset), loop.load(weight, line * conv.kernel[1] + tap))
            for tap, offset in enumerate(columns)
        ]
        lines.append(_sum(loop, taps))
    total = _sum(loop, lines)
    if conv.biased:
        total = loop.binary("add", total, loop.load(loop.operand(conv.dtype, CYCLE, 1)))
    loop.store(result, total)
    return loop


def _sum(loop: Loop, values: Sequence[int]) -> int:
    made = values[0]
    for value in values[1:]:
        made = loop.binary("add", made, value)
    return made


class DepthwiseCall:
    """Computes a depthwise convolution image by image: `run(out, *arguments)`, as a plan's kernel."""

    def __init__(
        self, conv: Depthwise, kernel: Kernel, fallback: Fallback, threads: Callable[[], int] = lambda: 1
    ) -> None:
        """Use a loaded kernel of `loop_of(conv)`; `fallback` computes the instruction of its arguments."""
        assert kernel.entry is not None
        self._threads = threads
        self.conv, self.kernel, self.entry, self.fallback = conv, kernel, kernel.entry, fallback
        dtype = np.dtype(conv.dtype)
        self.image = np.zeros((conv.channels, *conv.padded), dtype)  # its padding stays zero
        self.wide = np.zeros((conv.channels, conv.output[0], conv.padded[1]), dtype)
        down, right = conv.padding
        self.inner = self.image[:, down : down + conv.size[0], right : right + conv.size[1]]
        self.shown = self.wide[:, :, : conv.output[1]]
        self.sums = np.zeros((conv.channels, *conv.kernel), dtype)
        self.table = np.zeros(9, np.int64)
        self.table[0] = conv.length

    @property
    def nbytes(self) -> int:
        """Bytes of temporary memory."""
        return int(self.image.nbytes + self.wide.nbytes + self.sums.nbytes)

    def run(self, out: Array, *args: Any) -> None:
        """Compute the instruction of these arguments into `out`."""
        if self.conv.what == _WEIGHT:
            self._weigh(out, args)
        elif self.conv.what == _INPUT and not np.isfinite(args[2]).all():
            out[...] = self.fallback(args)  # the padding times infinity would be nan
        else:
            weight = args[1] if self.conv.what == _FORWARD else args[2][:, :, ::-1, ::-1]
            self._correlate(out, args[0], weight, args[2] if self.conv.biased else None)

    def _correlate(self, out: Array, data: Array, weight: Array, bias: Array | None) -> None:
        weight = np.ascontiguousarray(weight)
        operands = [(self.image, 0), (weight, self.conv.channels), (self.wide, 0)]
        if bias is not None:
            bias = np.ascontiguousarray(bias)
            operands.append((bias, self.conv.channels))
        self._set(operands)
        for image, made in zip(data, out, strict=True):
            np.copyto(self.inner, image)
            self._loop()
            np.copyto(made, self.shown)

    def _weigh(self, out: Array, args: Sequence[Any]) -> None:
        conv = self.conv
        self._set([(self.image, 0), (self.wide, 0), (self.sums, conv.channels)])
        read, written = self.table[1], self.table[5]
        down = conv.dilation[0] * conv.padded[1] * self.image.itemsize
        along = conv.kernel[1] * self.image.itemsize
        total = np.zeros(self.sums.shape, np.float64)
        for gradient, image in zip(args[0], args[1], strict=True):
            np.copyto(self.inner, image)
            np.copyto(self.shown, gradient)  # between its rows it stays zero
            for line in range(conv.kernel[0]):
                self.table[1], self.table[5] = read + line * down, written + line * along
                self._loop()
            total += self.sums
        if np.isfinite(total).all():
            np.copyto(out, total.reshape(out.shape), casting="same_kind")
        else:
            out[...] = self.fallback(args)  # the zeros between the rows times infinity would be nan

    def _loop(self) -> None:
        POOL.run(self.entry, self.conv.channels, [None] * self._threads(), self.table.ctypes.data)

    def _set(self, operands: Sequence[tuple[Array, int]]) -> None:
        for place, (array, count) in enumerate(operands):
            self.table[1 + 2 * place], self.table[2 + 2 * place] = array.ctypes.data, count
