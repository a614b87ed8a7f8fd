"""Recurrent layers: one layer of an LSTM, GRU or RNN in one direction is one op."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor, edge_of
from gradwire_engine.op.composite import composite
from gradwire_engine.ops.base.checks import ints
from gradwire_engine.ops.linalg.matrix import linear, matmul, matrix_t
from gradwire_engine.ops.nn.recurrent import by_steps, onednn
from gradwire_engine.ops.nn.recurrent.forward import gru, lstm, rnn
from gradwire_engine.ops.nn.recurrent.steps import Ints
from gradwire_engine.ops.shape.shape import reshape


def _refuse(message: str, *given: Any) -> EngineError:
    return EngineError(Reason.SHAPE, message, shapes=[list(each.shape) for each in given])


def _check(name: str, input: Any, state: Any, weights: Sequence[Any], others: Sequence[tuple[Any, Ints]], sizes: Ints,
           gates: int) -> None:  # fmt: skip
    """Check the sizes of a layer's arguments. others: further tensors, with the sizes that they shall have.

    Raises EngineError: SHAPE, RUNTIME, NOT_SUPPORTED.
    """
    inward, recurrent = weights
    lead = tuple(inward.shape[:-2])
    rank = len(lead) + (2 if sizes else 3)
    if inward.ndim < 2 or recurrent.ndim != inward.ndim or input.ndim != rank or state.ndim != len(lead) + 2:
        raise _refuse(f"{name}: the numbers of dimensions do not fit", input, state, *weights)
    rows, width = inward.shape[-2], state.shape[-1]
    wanted = [
        (inward, (*lead, rows, input.shape[-1])),
        (recurrent, (*lead, rows, width)),
        (state, (*lead, state.shape[-2] if sizes else input.shape[-2], width)),
        (input, (*lead, *input.shape[len(lead) :])),
        *others,
    ]
    for value, shape in wanted:
        if value is not None and tuple(value.shape) != tuple(shape):
            raise _refuse(f"{name}: expected sizes {list(shape)}, got {list(value.shape)}", value)
    if rows % gates:
        raise _refuse(f"{name}: {rows} rows of weights cannot be divided into {gates} gates", inward)
    if sizes:
        falls = all(one >= other > 0 for one, other in pairwise(sizes))
        if not falls or sizes[0] != state.shape[-2] or sum(sizes) != input.shape[-2]:
            raise _refuse(f"{name}: the batch sizes of a packed sequence do not fit its data and state", input, state)
    elif not input.shape[-3]:
        raise EngineError(Reason.RUNTIME, "Expected sequence length to be larger than 0 in RNN", op=name)


def _check_dtype(name: str, input: Any, rectifies: bool = False) -> None:
    """Refuse what PyTorch has no sigmoid, tanh or relu for. Raises EngineError: RUNTIME, NOT_SUPPORTED."""
    category = dtypes.category(input.dtype)
    if category == dtypes.INT and not rectifies:
        title = dtypes.TITLES[input.dtype]
        message = f"result type Float can't be cast to the desired output type {title}"
        raise EngineError(Reason.RUNTIME, message, op=name)
    if category == dtypes.COMPLEX and rectifies:
        raise EngineError(Reason.NOT_SUPPORTED, "clamp is not supported for complex types", op=name)


def _given(input: Any, weight: Any, bias: Any, sizes: Ints) -> Any:
    """The input's part of the gates of all steps."""
    lead = weight.ndim - 2
    if not lead:
        return linear(input, weight, bias)
    if not sizes:  # one matrix for each layer
        rows = reshape(input, (*input.shape[:lead], input.shape[lead] * input.shape[lead + 1], input.shape[-1]))
        made = reshape(matmul(rows, matrix_t(weight)), (*input.shape[:-1], weight.shape[-2]))
    else:
        made = matmul(input, matrix_t(weight))
    if bias is None:
        return made
    return made + reshape(bias, (*bias.shape[:-1], *(1,) * (made.ndim - bias.ndim), bias.shape[-1]))


def _tracks(tensors: Sequence[Any]) -> bool:
    """Whether a node is recorded for these operands."""
    return CURRENT.get().grad_enabled and any(type(each) is Tensor and edge_of(each) is not None for each in tensors)


def _both(bias_ih: Any, bias_hh: Any) -> Any:
    return bias_ih + bias_hh if bias_ih is not None and bias_hh is not None else bias_hh if bias_ih is None else bias_ih


def _by_steps(given: Any, sizes: Ints) -> bool:
    """Whether the steps are ops of a trace, because its plan fuses them."""
    tracer = CURRENT.get().tracer
    return tracer is not None and tracer.fuses and given.ndim == (2 if sizes else 3)


def _beside(weight: Any, *shape: int) -> Ints:
    """These sizes, after the batch of layers."""
    return (*weight.shape[:-2], *shape)


@composite(outputs=("output", "h_n", "c_n"))
def lstm_layer(
    input: Array,
    h_0: Array,
    c_0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    weight_hr: Array | None = None,
    batch_sizes: Ints = (),
    reverse: bool = False,
) -> Any:
    """One layer of torch.nn.LSTM in one direction: the outputs of all steps, and the last h and c.

    input: (t, n, i); or the data of a packed sequence (rows, i), with the rows of each step in batch_sizes, which do
    not increase. h_0: (n, p); c_0: (n, h). weight_ih: (4 h, i); weight_hh: (4 h, p); biases: (4 h,); weight_hr: (p, h),
    if p is not h. All may have the same batch dimensions before these.
    Raises EngineError: SHAPE, RUNTIME, NOT_SUPPORTED.
    """
    sizes = tuple(ints(batch_sizes))
    rows, width = weight_ih.shape[-2] if weight_ih.ndim > 1 else 0, h_0.shape[-1] if h_0.ndim else 0
    if c_0.ndim < 2:
        raise _refuse("lstm_layer: the numbers of dimensions do not fit", c_0)
    others = [
        (c_0, (*h_0.shape[:-1], rows // 4)),
        (bias_ih, _beside(weight_ih, rows)),
        (bias_hh, _beside(weight_ih, rows)),
        (weight_hr, _beside(weight_ih, width, rows // 4)),
    ]
    _check("lstm_layer", input, h_0, (weight_ih, weight_hh), others, sizes, 4)
    _check_dtype("lstm_layer", input)
    if weight_hr is None and width != rows // 4:
        raise _refuse("lstm_layer: without weight_hr, h has the size of c", h_0, c_0)
    bias = _both(bias_ih, bias_hh)
    if not sizes and weight_hr is None:
        tensors = [input, h_0, c_0, weight_ih, weight_hh, *([] if bias is None else [bias])]
        if onednn.fits(tensors):
            return onednn.lstm(tensors, reverse, _tracks(tensors))[:3]
    given = _given(input, weight_ih, bias, sizes)
    if _by_steps(given, sizes):
        return by_steps.run(by_steps.lstm_cell(weight_hh, weight_hr), given, (h_0, c_0), sizes, reverse)
    tensors = [given, h_0, c_0, weight_hh, *([] if weight_hr is None else [weight_hr])]
    return lstm(tensors, sizes, reverse, _tracks(tensors))[:3]


@composite(outputs=("output", "h_n"))
def gru_layer(
    input: Array,
    h_0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    batch_sizes: Ints = (),
    reverse: bool = False,
) -> Any:
    """One layer of torch.nn.GRU in one direction: the outputs of all steps, and the last h.

    input, h_0, batch_sizes: as in lstm_layer. weight_ih: (3 h, i); weight_hh: (3 h, h); biases: (3 h,).
    Raises EngineError: SHAPE, RUNTIME, NOT_SUPPORTED.
    """
    sizes = tuple(ints(batch_sizes))
    rows = weight_ih.shape[-2] if weight_ih.ndim > 1 else 0
    others = [(bias, _beside(weight_ih, rows)) for bias in (bias_ih, bias_hh)]
    others.append((h_0, (*h_0.shape[:-1], rows // 3)))
    _check("gru_layer", input, h_0, (weight_ih, weight_hh), others, sizes, 3)
    _check_dtype("gru_layer", input)
    given = _given(input, weight_ih, bias_ih, sizes)
    if _by_steps(given, sizes):
        return by_steps.run(by_steps.gru_cell(weight_hh, bias_hh), given, (h_0,), sizes, reverse)
    tensors = [given, h_0, weight_hh, *([] if bias_hh is None else [bias_hh])]
    return gru(tensors, sizes, reverse, _tracks(tensors))[:2]


@composite(outputs=("output", "h_n"))
def rnn_layer(
    input: Array,
    h_0: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    batch_sizes: Ints = (),
    reverse: bool = False,
    nonlinearity: Literal["tanh", "relu"] = "tanh",
) -> Any:
    """One layer of torch.nn.RNN in one direction: the outputs of all steps, and the last h.

    input, h_0, batch_sizes: as in lstm_layer. weight_ih: (h, i); weight_hh: (h, h); biases: (h,).
    Raises EngineError: SHAPE, RUNTIME, NOT_SUPPORTED; ARGUMENT_VALUE for another nonlinearity.
    """
    if nonlinearity not in ("tanh", "relu"):
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
        )
    sizes = tuple(ints(batch_sizes))
    rows = weight_ih.shape[-2] if weight_ih.ndim > 1 else 0
    others = [(bias, _beside(weight_ih, rows)) for bias in (bias_ih, bias_hh)]
    others.append((h_0, (*h_0.shape[:-1], rows)))
    _check("rnn_layer", input, h_0, (weight_ih, weight_hh), others, sizes, 1)
    rectifies = nonlinearity == "relu"
    _check_dtype("rnn_layer", input, rectifies)
    given = _given(input, weight_ih, _both(bias_ih, bias_hh), sizes)
    if _by_steps(given, sizes):
        return by_steps.run(by_steps.rnn_cell(weight_hh, rectifies), given, (h_0,), sizes, reverse)
    return rnn([given, h_0, weight_hh], sizes, reverse, rectifies)
