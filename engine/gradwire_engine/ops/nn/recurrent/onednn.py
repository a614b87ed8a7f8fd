"""A layer of an LSTM as one primitive of oneDNN (backends/onednn.py), for float32 in CPU memory.

The rows of a batch are divided by the shapes alone, and the parts of a weight's gradient are added in order. So results
do not depend on the number of threads. Forward keeps a workspace, which only the same library reads. Gradients of
gradients, and a workspace of another library, are computed by the ops of forward.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from gradwire_engine.backends.onednn import (
    BIAS,
    FIRST_CELL,
    FIRST_STATE,
    GRADIENT,
    LAST_CELL,
    LAST_STATE,
    RECURRENT,
    RESULT,
    SOURCE,
    WEIGHTS,
    WORKSPACE,
    Layout,
    Library,
    library,
)
from gradwire_engine.backends.operands import Operand, Prepared, address_of, whole
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import CPU, Array, device_of
from gradwire_engine.core.primitive_parts import PrimitiveParts
from gradwire_engine.graph.graph import Meta
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LONG, counted, flop
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import admit
from gradwire_engine.ops.linalg.matrix import linear, matmul, matrix_t
from gradwire_engine.ops.nn.recurrent.backward import lstm as arrays_gradients
from gradwire_engine.ops.nn.recurrent.forward import lstm as by_steps
from gradwire_engine.ops.nn.recurrent.recorded_backward import lstm as recorded_gradients
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.shape import reshape

_BIAS = 5  # the bias's place among the tensors
_ROWS, _PARTS = 8, 8  # fewest rows of a part, and most parts
_MARK = 4  # bytes after the workspaces: a checksum of what their content depends on
_CACHED = 64
_GATE = 12.0  # operations per gate, beside the products
_BYTE = np.dtype(np.uint8)


def _work(tensors: Sequence[Any], *rest: Any) -> float:
    input, recurrent = tensors[0], tensors[4]
    gates, width = recurrent.shape
    rows = input.shape[0] * input.shape[1]
    return float(rows * gates * ((input.shape[2] + width) * flop(dtypes.float32) + _GATE))


def fits(tensors: Sequence[Any]) -> bool:
    """Whether the library computes this layer. It cannot be interrupted, so not a layer that takes long."""
    for each in tensors:
        device = each.device if type(each) is Tensor else device_of(each)
        if device != CPU or each.dtype != dtypes.float32 or 0 in each.shape:
            return False
    return tensors[0].ndim == 3 and tensors[3].ndim == 2 and 3 * _work(tensors) < LONG and library() is not None


class _Part:
    """The layer for some rows of a batch."""

    def __init__(self, loaded: Library, rows: int, sizes: tuple[int, int, int, int], reverse: bool) -> None:
        """sizes: steps, rows of the batch, and the widths of input and state."""
        steps, batch, inner, width = sizes
        state = loaded.plain_layout((1, 1, rows, width))
        source, result = (
            loaded.plain_layout((steps, rows, length), (batch * length, length, 1)) for length in (inner, width)
        )
        layouts: dict[int, Layout] = {
            SOURCE: source, FIRST_STATE: state, FIRST_CELL: state,
            WEIGHTS: _weight_layout(loaded, inner, width), RECURRENT: _weight_layout(loaded, width, width),
            BIAS: loaded.plain_layout((1, 1, 4, width)),
        }  # fmt: skip
        given = [Operand(number, layout) for number, layout in layouts.items()]
        results = {RESULT: result, LAST_STATE: state, LAST_CELL: state}
        made = [Operand(number, layout, True) for number, layout in results.items()]
        forward, back = loaded.lstm(source, state, result, (inner, width), reverse)
        space = forward.layout(WORKSPACE)
        self.name, self.workspace = forward.name, whole(space.nbytes)
        self.forward = Prepared(loaded, forward, [*given, *made, Operand(WORKSPACE, space, True)])
        read = [*given, *(Operand(number, layout) for number, layout in results.items()), Operand(WORKSPACE, space)]
        arriving = [Operand(number + GRADIENT, layout) for number, layout in results.items()]
        leaving = [Operand(number + GRADIENT, layout, True) for number, layout in layouts.items()]
        self.back = Prepared(loaded, back, [*read, *arriving, *leaving])


def _weight_layout(loaded: Library, inner: int, width: int) -> Layout:
    """Weights (4 width, inner) with oneDNN's dimensions (1, 1, inner, 4, width)."""
    every = 4 * width * inner
    return loaded.plain_layout((1, 1, inner, 4, width), (every, every, 1, width * inner, inner))


class _Layer:
    """A layer of fixed sizes: its parts, and where each one's rows begin."""

    def __init__(self, loaded: Library, sizes: tuple[int, int, int, int], reverse: bool) -> None:
        _, rows, inner, width = sizes
        count = max(1, min(_PARTS, rows // _ROWS))
        bounds = [rows * number // count for number in range(count + 1)]
        made: dict[int, _Part] = {}
        for begin, end in pairwise(bounds):
            if end - begin not in made:
                made[end - begin] = _Part(loaded, end - begin, sizes, reverse)
        self.parts = [made[end - begin] for begin, end in pairwise(bounds)]
        self.forward = PrimitiveParts([part.forward for part in self.parts])
        self.back = PrimitiveParts([part.back for part in self.parts])
        self.spaces = np.cumsum([0, *(part.workspace for part in self.parts)]).tolist()
        # Bytes from the first part's operands to those of each part.
        given, wide = (np.outer(4 * np.array(bounds[:-1]), widths) for widths in ((inner, width, width), (width,) * 3))
        shared, space = np.zeros_like(wide), np.array(self.spaces[:-1])[:, None]
        self._forward_steps = np.concatenate([given, shared, wide, space], 1)
        self._back_steps = np.concatenate([self._forward_steps, wide, given, shared], 1)
        what = f"{loaded.fingerprint} {self.parts[0].name} {sizes}"
        self.mark = np.frombuffer(zlib.crc32(what.encode()).to_bytes(_MARK, "little"), np.uint8)

    def workspace(self) -> Array:
        """New memory for what forward keeps, with its mark."""
        space = np.empty(self.spaces[-1] + _MARK, np.uint8)
        space[-_MARK:] = self.mark
        return space

    def reads(self, workspace: Array) -> bool:
        """Whether this library made the workspace."""
        wanted = self.spaces[-1] + _MARK
        return workspace.size == wanted and bool((workspace[-_MARK:] == self.mark).all())

    def compute(self, arrays: Sequence[Array]) -> None:
        """Forward. arrays: input, h, c, weights, bias, output, last h and c, and the workspace; all are row-major."""
        self.forward.run(self._forward_steps + _addresses(arrays))

    def compute_back(self, arrays: Sequence[Array], weights: Sequence[Array]) -> None:
        """The gradients. arrays: those of `compute`, the gradients of output, h and c, and the input's, h's and c's.

        weights: the weights' and bias's gradients. The parts are added in order.
        """
        begins = np.cumsum([0, *(each.size for each in weights)])
        partial = np.empty((len(self.parts) - 1, int(begins[-1])), np.float32)  # of all parts but the first
        places = self._back_steps + _addresses([*arrays, *weights])
        rows = np.arange(len(partial))[:, None] * begins[-1]
        places[1:, -len(weights) :] = address_of(partial) + 4 * (rows + begins[:-1])
        self.back.run(places)
        for part in partial:
            for begin, each in zip(begins.tolist(), weights, strict=False):
                each += part[begin : begin + each.size].reshape(each.shape)


def _addresses(arrays: Sequence[Array]) -> Array:
    return np.array([address_of(each) for each in arrays], np.int64)


def _layer(tensors: Sequence[Array], reverse: bool) -> _Layer | None:
    """The layer for these operands; None without the library."""
    steps, rows, inner = tensors[0].shape
    return _cached((steps, rows, inner, tensors[4].shape[1]), bool(reverse))


@lru_cache(_CACHED)
def _cached(sizes: tuple[int, int, int, int], reverse: bool) -> _Layer | None:
    loaded = library()
    return None if loaded is None else _Layer(loaded, sizes, reverse)


def _weights(tensors: Sequence[Array]) -> list[Array]:
    """Row-major weights, and the bias or zeros: the library has no layer without one."""
    bias = tensors[_BIAS] if len(tensors) > _BIAS else np.zeros(tensors[4].shape[0], np.float32)
    return [np.ascontiguousarray(each) for each in (*tensors[3:_BIAS], bias)]


def _size(tensors: Sequence[Any], reverse: bool, keep: bool) -> int:
    """Bytes of the results, and of the workspace even if it is not returned."""
    input, state = tensors[0], tensors[1]
    layer = _layer(tensors, reverse)
    elements = input.shape[0] * state.size + 2 * state.size
    return int(4 * elements + (0 if layer is None else layer.spaces[-1] + _MARK))


@op(
    name="_lstm_layer",
    in_place=False,
    node="MkldnnRnnLayerBackward0",
    outputs=("output", "h_n", "c_n", "workspace"),
    unfilled_outputs=(3,),
    cost=counted(_work, 3.0),
)
def lstm(xp: Any, tensors: list[Array], reverse: bool, keep: bool) -> Any:
    """All steps of a layer of long short-term memory in one direction, where `fits` holds.

    tensors: input (t, n, i), h (n, h), c (n, h), weights (4 h, i) and (4 h, h), and a bias (4 h) if there is one.
    keep: whether to return the workspace for backward.
    """
    layer = _layer(tensors, reverse)
    if layer is None:  # recorded where the library was installed
        given = linear(tensors[0], tensors[3], tensors[_BIAS] if len(tensors) > _BIAS else None)
        made = by_steps([given, tensors[1], tensors[2], tensors[4]], (), reverse, False)
        return (*made[:3], np.empty(0, np.uint8))
    admit((layer.forward.room(),), _BYTE)
    given = [np.ascontiguousarray(each) for each in tensors[:3]]
    weights = _weights(tensors)
    output = np.empty((*given[0].shape[:2], given[1].shape[1]), np.float32)
    last, cell = np.empty_like(output[0]), np.empty_like(output[0])
    space = layer.workspace()
    layer.compute([*given, *weights, output, last, cell, space])
    return output, last, cell, space if keep else np.empty(0, np.uint8)


lstm.sized_by(_size)


def _gradients(gs: Sequence[Any], tensors: Sequence[Any], reverse: bool, *results: Any) -> Any:
    """Gradients of `lstm`'s tensors. gs: of its results; of the workspace None."""
    if type(gs[0]) is not Tensor:
        layer = _layer(tensors, reverse) if type(gs[0]) is np.ndarray else None
        if layer is not None and layer.reads(results[3]):
            return _by_workspace(layer, gs, tensors, results)
    return _by_steps(gs, tensors, reverse)


def _by_workspace(layer: _Layer, gs: Sequence[Array], tensors: Sequence[Array], results: Sequence[Array]) -> Any:
    weights = _weights(tensors)
    found = [np.empty_like(each) for each in weights]
    admit((layer.back.room() + (len(layer.parts) - 1) * sum(each.nbytes for each in weights),), _BYTE)
    given = [np.ascontiguousarray(each) for each in tensors[:3]]
    made, arriving = ([np.ascontiguousarray(each) for each in arrays[:3]] for arrays in (results, gs))
    space = np.ascontiguousarray(results[3])
    outputs = [np.empty_like(each) for each in given]
    layer.compute_back([*given, *weights, *made, space, *arriving, *outputs], found)
    return [*outputs, *found][: len(tensors)]


def _by_steps(gs: Sequence[Any], tensors: Sequence[Any], reverse: bool) -> Any:
    """The gradients by the ops of each part, on arrays or Tensors: gates and cells are computed again."""
    input, state, cell, weight, recurrent, *bias = tensors
    given = linear(input, weight, bias[0] if bias else None)
    output, _, _, gates, cells = by_steps([given, state, cell, recurrent], (), reverse, True)
    way: Any = recorded_gradients if type(gs[0]) is Tensor else arrays_gradients
    meta = Meta(given.shape, given.dtype, given.device) if type(given) is Tensor else given
    of_given, *others = way([*gs[:3], None, None], [meta, state, cell, recurrent], (), reverse, output, gates, cells)
    rows = reshape(of_given, (-1, of_given.shape[-1]))
    of_weight = matmul(matrix_t(rows), reshape(input, (-1, input.shape[-1])))
    of_bias = [total(rows, 0)] if bias else []
    return [matmul(of_given, weight), others[0], others[1], of_weight, others[2], *of_bias]


lstm.grad(
    tensors=lambda gs, tensors, reverse, out0, out1, out2, out3: _gradients(
        gs, tensors, reverse, out0, out1, out2, out3
    )
)
