"""Convolutions of float32 arrays by oneDNN (backends/onednn.py): which ones, and in what memory.

oneDNN computes on blocks of channels, so arrays are reordered before and after. Parts of a convolution (parts.py) run
in several threads. The shapes alone decide the parts, and the parts of a weight's gradient are added in order. So
results do not depend on the number of threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire_engine.backends.onednn import (
    BIAS,
    FROM,
    RESULT,
    RESULT_GRADIENT,
    SOURCE,
    SOURCE_GRADIENT,
    TO,
    WEIGHTS,
    WEIGHTS_GRADIENT,
    Call,
    Layout,
    Library,
    Memory,
    library,
)
from gradwire_engine.backends.operands import ALIGNED, Operand, Prepared, address_of, aligned_in, whole
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.primitive_parts import PrimitiveParts
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.nn.convolution.parts import Kind, Shape, cut

# Multiply-adds from which oneDNN's own products of columns ("gemm") are slower than NumPy's, and those with few
# channels, which oneDNN fills up to blocks of eight.
_LARGE, _FEW = 1 << 21, 4
# Columns of a depthwise kernel up to which oneDNN computes its gradient without columns of the image.
_NARROW = 3
_CACHED = 256
_BYTE = np.dtype(np.uint8)
_ARGUMENTS: dict[Kind, tuple[int, int, int]] = {
    "forward": (SOURCE, WEIGHTS, RESULT),
    "source": (SOURCE_GRADIENT, WEIGHTS, RESULT_GRADIENT),
    "weights": (SOURCE, WEIGHTS_GRADIENT, RESULT_GRADIENT),
}
_WRITTEN: dict[Kind, int] = {"forward": 2, "source": 0, "weights": 1}


def forward(
    input: Array, weight: Array, bias: Array | None, output: Shape, stride: Any, padding: Any, dilation: Any,
    groups: int,
) -> Array | None:  # fmt: skip
    """The convolution of (n, c, *size) with (o, c / groups, *kernel), of spatial size `output`; None: use NumPy."""
    if not _fits(input, weight, bias):
        return None
    shape = (input.shape[0], weight.shape[0], *output)
    made = prepared("forward", input.shape, weight.shape, shape, stride, padding, dilation, groups, bias is not None)
    return None if made is None else made(input, weight, None, bias)


def source_gradient(
    grad: Array, weight: Array, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array | None:
    """The transpose of `forward`: (n, o, *output) to (n, c, *size); None: use NumPy."""
    if not _fits(grad, weight, None):
        return None
    shape = (grad.shape[0], groups * weight.shape[1], *size)
    made = prepared("source", shape, weight.shape, grad.shape, stride, padding, dilation, groups, False)
    return None if made is None else made(None, weight, grad)


def weight_gradient(
    input: Array, grad: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array | None:
    """The gradient of `forward`'s weight: (n, c, *size) with (n, o, *output) to (o, c / groups, *kernel)."""
    if not _fits(input, grad, None):
        return None
    shape = (grad.shape[1], input.shape[1] // groups, *kernel)
    made = prepared("weights", input.shape, shape, grad.shape, stride, padding, dilation, groups, False)
    if made is not None:
        return made(input, None, grad)
    depthwise = len(kernel) == 2 and shape[:2] == (groups, 1) and kernel[1] > _NARROW and max(dilation) == 1
    return _by_columns(input, grad, shape, stride, padding) if depthwise else None


def _by_columns(input: Array, grad: Array, shape: Shape, stride: Shape, padding: Shape) -> Array | None:
    """The gradient of a depthwise weight, some columns of the kernel at a time.

    oneDNN computes narrow kernels ten times as fast as wide ones (AVX2), which it multiplies by columns.
    """
    (images, channels, height, length), (step, pad) = input.shape, (stride[1], padding[1])
    reach = (grad.shape[3] - 1) * step
    parts = []
    for first in range(0, shape[3], _NARROW):
        width = min(_NARROW, shape[3] - first)
        source = images, channels, height, reach + width
        piece = (*shape[:3], width)
        made = prepared("weights", source, piece, grad.shape, stride, (padding[0], 0), (1, 1), channels, False)
        if made is None:
            return None
        parts.append((first, width, made))
    wide = max(length + 2 * pad, reach + shape[3])
    admit((images, channels, height, wide), input.dtype)
    padded = np.zeros((images, channels, height, wide), input.dtype)
    padded[..., pad : pad + length] = input
    result = np.empty(shape, input.dtype)
    for first, width, made in parts:
        result[..., first : first + width] = made(padded[..., first : first + reach + width], None, grad)
    return result


def _fits(one: Array, other: Array, bias: Array | None) -> bool:
    wanted = dtypes.float32
    if one.dtype != wanted or other.dtype != wanted or not (bias is None or bias.dtype == wanted):
        return False
    return library() is not None


def prepared(
    kind: Kind, source: Shape, weight: Shape, result: Shape, stride: Any, padding: Any, dilation: Any, groups: int,
    biased: bool,
) -> Convolution | None:  # fmt: skip
    """The convolution of float32 arrays of these shapes; None: use NumPy."""
    if library() is None:
        return None
    return _convolution(kind, source, weight, result, tuple(stride), tuple(padding), tuple(dilation), groups, biased)


@lru_cache(_CACHED)
def _convolution(
    kind: Kind, source: Shape, weight: Shape, result: Shape, stride: Shape, padding: Shape, dilation: Shape,
    groups: int, biased: bool,
) -> Convolution | None:  # fmt: skip
    """The convolution of these shapes; None where NumPy is faster, or where only NumPy computes it."""
    loaded = library()
    if loaded is None or 0 in (*source, *weight, *result) or math.prod(weight[2:]) == 1:
        return None  # one kernel element: a matrix product, without columns and reorders
    reached = tuple(
        (size + 2 * pad - gap * (k - 1) - 1) // step + 1
        for size, pad, gap, k, step in zip(source[2:], padding, dilation, weight[2:], stride, strict=True)
    )
    products = math.prod(result) * math.prod(weight[1:])
    if reached != result[2:] or (kind == "source" and groups == 1 and weight[1] < _FEW and products >= _LARGE):
        return None
    try:
        made = Convolution(loaded, kind, source, weight, result, (stride, padding, dilation), groups, biased)
    except LookupError:
        return None
    slow = products >= _LARGE and "gemm" in made.name
    return None if slow or made.name.startswith("ref") else made


class _Part:
    """A part of a convolution: some images, or some channels."""

    def __init__(
        self, loaded: Library, kind: Kind, shapes: Sequence[Shape], plain: Sequence[Layout | None],
        window: Sequence[Shape], biased: bool, chosen: Layout | None = None,
    ) -> None:  # fmt: skip
        """Make the primitives. Raises LookupError.

        plain: layouts of source, weight and result in the caller's arrays; None: the primitive's. chosen: the weight's
        layout for the primitive, if another part chose one.
        """
        source, weight, result = (loaded.open_layout(shape) for shape in shapes)
        bias = loaded.plain_layout(shapes[2][1:2]) if biased else None
        made = loaded.convolution(kind, source, chosen or weight, bias, result, *window)
        if made is None:
            raise LookupError
        self.primitive = made
        numbers, written = _ARGUMENTS[kind], _WRITTEN[kind]
        self.weights = made.layout(numbers[1])
        operands = [
            Operand(number, layout or made.layout(number), place == written)
            for place, (layout, number) in enumerate(zip(plain, numbers, strict=True))
        ]
        self.prepared = Prepared(loaded, made, [*operands, *([] if bias is None else [Operand(BIAS, bias)])])


class Convolution:
    """A convolution, or its gradient by the source or by the weights, of fixed shapes.

    name: of oneDNN's implementation. Parts of images have one reordered weight, or one each of its gradient.
    """

    def __init__(
        self, loaded: Library, kind: Kind, source: Shape, weight: Shape, result: Shape, window: Sequence[Shape],
        groups: int, biased: bool,
    ) -> None:  # fmt: skip
        """Make the primitives; `window` is stride, padding and dilation. Raises LookupError without implementation."""
        self.library, self.kind, self.shapes = loaded, kind, (source, weight, result)
        divided = cut(kind, source, weight, result, groups)
        self._shares = divided.by == "images" and divided.count > 1

        def part(images: int, chosen: Layout | None) -> _Part:
            shapes = [(images, *divided.shapes[0][1:]), divided.shapes[1], (images, *divided.shapes[2][1:])]
            share = groups // divided.count if divided.by == "channels" else groups
            plain = [
                loaded.plain_layout(shape, _strides(full)) for shape, full in zip(shapes, self.shapes, strict=True)
            ]
            if groups > 1:
                shapes[1] = (share, shapes[1][0] // share, *shapes[1][1:])
                plain[1] = loaded.plain_layout(shapes[1])
            given = [plain[0], None if self._shares else plain[1], plain[2]]
            return _Part(loaded, kind, shapes, given, window, biased, chosen)

        images = divided.shapes[0][0]
        first = part(images, None)
        self.name, self._weights = first.primitive.name, first.weights
        parts = [first.prepared] * divided.count
        if divided.by == "images" and source[0] % images:
            parts[-1] = part(source[0] % images, first.weights).prepared
        self._parts = PrimitiveParts(parts)
        #: Bytes from the first part's operands to those of each part: source, weight, result and bias.
        self._offsets = np.outer(np.arange(divided.count), 4 * np.array(divided.steps[: 4 if biased else 3]))
        self._room_nbytes, self._reorder = 0, None
        if not self._shares:
            return
        grouped = weight if groups == 1 else (groups, weight[0] // groups, *weight[1:])
        plain, chosen = loaded.plain_layout(grouped), first.weights
        pair = (chosen, plain) if kind == "weights" else (plain, chosen)
        reorder = loaded.reorder(*pair)
        if reorder is not None:
            self._ends = Memory(loaded, pair[0]), Memory(loaded, pair[1])
            self._reorder = Call(loaded, reorder, {FROM: self._ends[0], TO: self._ends[1]})
            self._lock = threading.Lock()
        if kind == "weights":
            self._partial = whole(chosen.nbytes)
            self._offsets[:, 1] = np.arange(divided.count) * self._partial
            self._room_nbytes = divided.count * self._partial
        elif reorder is not None:
            self._room_nbytes = whole(chosen.nbytes)

    def __call__(
        self, source: Array | None, weight: Array | None, result: Array | None, bias: Array | None = None,
        out: Array | None = None,
    ) -> Array:  # fmt: skip
        """Compute the operand that is None: into `out`, which is row-major, or a new array.

        Raises EngineError: MEMORY_LIMIT.
        """
        given = [each for each in (source, weight, result, bias) if each is not None]
        nbytes = sum(each.nbytes for each in given if not each.flags.c_contiguous)  # they are copied
        nbytes += self._room_nbytes + self._parts.room()
        if out is None:
            nbytes += 4 * math.prod(self.shapes[_WRITTEN[self.kind]])
        admit((nbytes,), _BYTE)
        if out is None:
            out = np.empty(self.shapes[_WRITTEN[self.kind]], np.float32)
        arrays = [out if each is None else np.ascontiguousarray(each) for each in (source, weight, result)]
        addresses = [address_of(array) for array in arrays]
        shift = None if bias is None else np.ascontiguousarray(bias)
        if self._room_nbytes:
            room = np.empty(self._room_nbytes + ALIGNED, np.uint8)
            plain, addresses[1] = addresses[1], aligned_in(room)
            if self.kind != "weights":
                self._copy(plain, addresses[1])
        if shift is not None:
            addresses.append(address_of(shift))
        self._parts.run(np.add(self._offsets, addresses))
        if self._room_nbytes and self.kind == "weights":
            self._add(room, addresses[1], out)
        return out

    def _add(self, room: Array, address: int, out: Array) -> None:
        """Add the parts of the weight's gradient in order, into the row-major `out`."""
        count, nbytes = len(self._parts), self._partial
        begin = address - address_of(room)
        parts = room[begin : begin + count * nbytes].reshape(count, nbytes)[:, : self._weights.nbytes].view(np.float32)
        for part in parts[1:]:
            parts[0] += part
        if self._reorder is None:
            out.reshape(-1)[...] = parts[0]
        else:
            self._copy(address, address_of(out))

    def _copy(self, given: int, wanted: int) -> None:
        """Reorder the weight that the parts share, or its gradient."""
        if self._reorder is None:
            raise AssertionError("the weight has one layout")
        self.library.use_one_thread()
        with self._lock:  # one thread at a time sets the addresses
            for memory, address in zip(self._ends, (given, wanted), strict=True):
                memory.point(address)
            self._reorder()


def _strides(shape: Shape) -> Shape:
    """Strides of a row-major array, in elements."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
