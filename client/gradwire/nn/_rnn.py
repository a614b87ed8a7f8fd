"""Recurrent layers: RNN, LSTM and GRU over sequences, and their cells.

A layer is one op for each direction, which computes all steps: `lstm_layer`, `gru_layer` or `rnn_layer`. A cell
computes one step by ordinary ops.
"""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import gradwire.nn.functional as F
import gradwire.nn.init as init
from gradwire._base import dtypes
from gradwire._functions.create import empty, zeros
from gradwire._tensor import ops
from gradwire._tensor.batching import REGION
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter
from gradwire.nn.utils.rnn import PackedSequence

Device = dtypes.device | str | int | None
# A step's state: h, and for an LSTM also c.
State = tuple[Tensor, ...]
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _stepped(mode: str, given: Tensor, state: State, w_hh: Tensor, b_hh: Tensor | None, w_hr: Any = None) -> State:
    """One step: `given` is the input's part of the gates, (N, gates * H)."""
    recurrent = F.linear(state[0], w_hh, b_hh)
    if mode == "GRU":
        in_reset, in_update, in_new = given.chunk(3, -1)
        h_reset, h_update, h_new = recurrent.chunk(3, -1)
        update = (in_update + h_update).sigmoid()
        new = (in_new + (in_reset + h_reset).sigmoid() * h_new).tanh()
        return (new + update * (state[0] - new),)
    total = given + recurrent
    if mode == "LSTM":
        keep_in, forget, new, out = total.chunk(4, -1)
        cell = forget.sigmoid() * state[1] + keep_in.sigmoid() * new.tanh()
        hidden = out.sigmoid() * cell.tanh()
        return (hidden if w_hr is None else F.linear(hidden, w_hr), cell)
    return (total.tanh() if mode == "RNN_TANH" else F.relu(total),)


class RNNBase(Module):
    """What RNN, LSTM and GRU share: weights by layer and direction, and the walk over them. See torch.nn.RNNBase.

    Takes padded batches and packed sequences. Raises ValueError and TypeError for arguments out of range, and for
    inputs of another rank; RuntimeError for inputs and states of other sizes.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        _check_sizes(input_size, hidden_size, num_layers, dropout, proj_size, mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows, out = _GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * self._directions
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    held = Parameter(empty(*shape, device=device, dtype=dtype))
                    self.register_parameter(f"{name}_{suffix}", held)
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> list[str]:
        return [f"l{layer}", f"l{layer}_reverse"][: self._directions]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        names += ["weight_hr"] if self.proj_size else []
        return [
            [getattr(self, f"{name}_{suffix}") for name in names]
            for layer in range(self.num_layers)
            for suffix in self._suffixes(layer)
        ]

    @property
    def _flat_weights(self) -> list[Any]:
        # The weights that a forward uses, as PyTorch's attribute of this name: also those that pruning computed.
        return [weight for weights in self.all_weights for weight in weights]

    def reset_parameters(self) -> None:
        """Draw new values, all uniform within 1 / sqrt(hidden_size) of zero."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: PyTorch lays the weights end to end for cuDNN."""

    def _run(self, input: Any, states: Sequence[Tensor] | None) -> tuple[Any, State]:
        """The outputs, and the last state of each layer and direction."""
        name = type(self).__name__
        if isinstance(input, PackedSequence):
            return self._run_packed(input, states)
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}: the input must be a tensor or a PackedSequence, not {type(input).__name__}")
        if input.ndim not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.ndim}D tensor instead")
        batched = input.ndim == 3
        sequence = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            sequence = sequence.transpose(0, 1)
        first = self._first_state(sequence, states, batched)
        outputs, lasts = self._walk(sequence, first)
        if batched and self.batch_first:
            outputs = outputs.transpose(0, 1)
        if not batched:
            outputs, lasts = outputs.squeeze(1), tuple(last.squeeze(1) for last in lasts)
        return outputs, lasts

    def _run_packed(self, input: PackedSequence, states: Sequence[Tensor] | None) -> tuple[PackedSequence, State]:
        sizes, order, back = input.sizes, input.sorted_indices, input.unsorted_indices
        if input.data.ndim != 2:
            raise ValueError(
                f"{type(self).__name__}: Expected the data of a packed sequence to be 2D, got {input.data.ndim}D"
            )
        if states is not None and order is not None:
            states = [state.index_select(1, order) for state in states]
        # One step of as many rows as the batch has stands for the shape.
        first = self._first_state(input.data[: sizes[0]].unsqueeze(0), states, True)
        outputs, lasts = self._walk(input.data, first, sizes)
        if back is not None:
            lasts = tuple(last.index_select(1, back) for last in lasts)
        return input.with_data(outputs), lasts

    def _first_state(self, sequence: Tensor, states: Sequence[Tensor] | None, batched: bool) -> State:
        weight: Any = self.weight_ih_l0  # may be computed: pruned, or parametrized
        region = REGION.get()
        casts = region is not None and any(region.chosen.values())
        if sequence.dtype is not weight.dtype and not casts:
            raise ValueError(
                f"RNN input dtype ({sequence.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({sequence.dtype})"
            )
        if sequence.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {sequence.shape[-1]}"
            )
        count = self.num_layers * self._directions
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 2 if self.mode == "LSTM" else 1]
        if states is None:
            made = (
                zeros(count, sequence.shape[1], width, dtype=sequence.dtype, device=weight.device) for width in widths
            )
            return tuple(made)
        rank = 3 if batched else 2
        for state in states:
            if state.ndim != rank:
                kind = "batched 3-D" if batched else "unbatched 2-D"
                raise RuntimeError(f"For {kind} input, hx should also be {rank}-D but got {state.ndim}-D tensor")
        held = tuple(state if batched else state.unsqueeze(1) for state in states)
        for letter, state, width in zip("hc", held, widths, strict=False):
            wanted = (count, sequence.shape[1], width)
            if tuple(state.shape) != wanted:
                what = f"Expected hidden[{'hc'.index(letter)}] size" if self.mode == "LSTM" else "Expected hidden size"
                raise RuntimeError(f"{what} {wanted}, got {list(state.shape)}")
        return held

    def _walk(self, sequence: Tensor, first: State, sizes: Sequence[int] = ()) -> tuple[Tensor, State]:
        """All layers over (L, N, in), or over packed data (total, in) with these sizes of its steps."""
        given, lasts = sequence, []
        for layer in range(self.num_layers):
            sides = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                place = layer * self._directions + direction
                state = tuple(held[place] for held in first)
                outputs, last = self._one_way(given, state, suffix, direction == 1, sizes)
                sides.append(outputs)
                lasts.append(last)
            given = sides[0] if len(sides) == 1 else ops.cat(sides, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                given = F.dropout(given, self.dropout)
        return given, tuple(ops.stack([last[part] for last in lasts]) for part in range(len(first)))

    def _one_way(
        self, sequence: Tensor, state: State, suffix: str, backwards: bool, sizes: Sequence[int]
    ) -> tuple[Tensor, State]:
        held: dict[str, Any] = {
            name: getattr(self, f"{name}_{suffix}", None)
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        }
        w_ih, w_hh = held["weight_ih"], held["weight_hh"]
        b_ih, b_hh, h = held["bias_ih"], held["bias_hh"], state[0]
        if self.mode == "LSTM":
            w_hr = held["weight_hr"]
            made = ops.lstm_layer(sequence, h, state[1], w_ih, w_hh, b_ih, b_hh, w_hr, sizes, backwards)
        elif self.mode == "GRU":
            made = ops.gru_layer(sequence, h, w_ih, w_hh, b_ih, b_hh, sizes, backwards)
        else:
            nonlinearity = self.mode.removeprefix("RNN_").lower()
            made = ops.rnn_layer(sequence, h, w_ih, w_hh, b_ih, b_hh, sizes, backwards, nonlinearity)
        return made[0], tuple(made[1:])

    def _expects(self) -> str:
        first = "N, L" if self.batch_first else "L, N"
        return f"({first}, {self.input_size}) or (L, {self.input_size})"

    def extra_repr(self) -> str:
        """As PyTorch prints it: the sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
            ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


def _check_sizes(input_size: Any, hidden_size: Any, num_layers: int, dropout: Any, proj_size: int, mode: str) -> None:
    if not isinstance(dropout, numbers.Real) or isinstance(dropout, bool) or not 0 <= float(dropout) <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if float(dropout) > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=5,
        )
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if proj_size and mode != "LSTM":
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu: (L, N, in) to (L, N, out) and the last h.

    Like torch.nn.RNN; `nonlinearity` is "tanh" or "relu".
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        self_mode = "RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU"
        super().__init__(self_mode, input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """See the class."""
        outputs, last = self._run(input, None if hx is None else (hx,))
        return outputs, last[0]


class GRU(RNNBase):
    """Gated recurrent units: (L, N, in) to (L, N, out) and the last h. Like torch.nn.GRU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """See the class."""
        outputs, last = self._run(input, None if hx is None else (hx,))
        return outputs, last[0]


class LSTM(RNNBase):
    """Long short-term memory: (L, N, in) to (L, N, out) and the last (h, c). Like torch.nn.LSTM."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        """See the class."""
        outputs, last = self._run(input, hx)
        return outputs, (last[0], last[1])


class RNNCellBase(Module):
    """Base of the cells. See torch.nn.RNNCellBase."""

    _mode = ""
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values, all uniform within 1 / sqrt(hidden_size) of zero."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _cell(self, mode: str, input: Tensor, states: Sequence[Tensor] | None) -> State:
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for place, state in enumerate(states or ()):
            if state.ndim not in (1, 2):
                what = f"hx[{place}]" if mode == "LSTM" else "hidden"
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {state.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        for place, state in enumerate(states or ()):
            if input.ndim == 2 and state.shape[0] != input.shape[0]:
                raise RuntimeError(
                    f"Input batch size {input.shape[0]} doesn't match hidden{place} batch size {state.shape[0]}"
                )
            if state.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden{place} has inconsistent hidden_size: got {state.shape[-1]}, expected {self.hidden_size}"
                )
        batched = input.ndim == 2
        given = input if batched else input.unsqueeze(0)
        if states is None:
            none = zeros(given.shape[0], self.hidden_size, dtype=input.dtype, device=input.device)
            held: State = (none, none) if mode == "LSTM" else (none,)
        else:
            held = tuple(state if batched else state.unsqueeze(0) for state in states)
        gates = F.linear(given, self.weight_ih, self.bias_ih)
        made = _stepped(mode, gates, held, self.weight_hh, self.bias_hh)
        return made if batched else tuple(state.squeeze(0) for state in made)

    def _expects(self) -> str:
        return f"(N, {self.input_size}) or ({self.input_size})"

    def extra_repr(self) -> str:
        """As PyTorch prints it."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """One step of an RNN: (N, in) and h to h. Like torch.nn.RNNCell."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """See the class. Raises RuntimeError for an unknown nonlinearity."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._cell(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,))[0]


class GRUCell(RNNCellBase):
    """One step of a GRU: (N, in) and h to h. Like torch.nn.GRUCell."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """See the class."""
        return self._cell("GRU", input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (N, in) and (h, c) to (h, c). Like torch.nn.LSTMCell."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """See the class."""
        hidden, cell = self._cell("LSTM", input, hx)
        return hidden, cell
