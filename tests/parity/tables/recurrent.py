"""Recurrent layers in one direction, compared with PyTorch's functions for whole networks."""

from collections.abc import Callable
from typing import Any

from tests.parity.harness import case, in_dtype, refuses, s, t, torch


def whole_network(name: str, states: int) -> Callable[..., Any]:
    """PyTorch's function as one of ours. For the reverse direction: the second half of a bidirectional network."""

    def call(input: Any, *given: Any, batch_sizes: Any = (), reverse: bool = False, weight_hr: Any = None) -> Any:
        first, weights = given[:states], [each for each in given[states:] if each is not None]
        biased, count = len(weights) > 2, 2 if reverse else 1
        weights += [] if weight_hr is None else [weight_hr]
        held = [torch.stack([each] * count) for each in first]
        state = tuple(held) if states == 2 else held[0]
        options = (state, weights * count, biased, 1, 0.0, True, reverse)
        function = getattr(torch, name)
        if batch_sizes:
            output, *last = function(input, torch.tensor(batch_sizes), *options)
        else:
            output, *last = function(input, *options, False)
        width = output.shape[-1] // count
        return (output[..., -width:], *[each[-1] for each in last])

    return call


def layer(gates: int, states: int, hidden: int = 3, width: int = 2, rows: int = 2, projected: int = 0) -> list[Any]:
    """First state and weights of a layer."""
    out = projected or hidden
    first = [t(rows, out), *([t(rows, hidden)] if states == 2 else [])]
    return [*first, t(gates * hidden, width), t(gates * hidden, out)]


def biases(gates: int, hidden: int = 3) -> list[Any]:
    """Both biases."""
    return [t(gates * hidden), t(gates * hidden)]


PACKED = {"batch_sizes": (3, 2, 2, 1)}


def cases(op: str, name: str, gates: int, states: int, **options: Any) -> None:
    """Samples of one kind of layer."""
    case(
        op,
        s(t(4, 2, 2), *layer(gates, states), *biases(gates), **options),
        s(t(4, 2, 2), *layer(gates, states), **options),
        s(t(3, 2, 2, layout="F"), *layer(gates, states), *biases(gates), reverse=True, **options),
        s(t(8, 2), *layer(gates, states, rows=3), *biases(gates), **PACKED, **options),
        s(t(8, 2), *layer(gates, states, rows=3), *biases(gates), **PACKED, reverse=True, **options),
        s(t(2, 0, 2), *layer(gates, states, rows=0), **options),
        s(t(1, 2, 2), *layer(gates, states), **options),
        torch=whole_network(name, states),
        node=False,
        tolerance=4.0,
    )


cases("lstm_layer", "lstm", 4, 2)
cases("gru_layer", "gru", 3, 1)
cases("rnn_layer", "rnn_tanh", 1, 1)
case(
    "lstm_layer",
    s(t(3, 2, 2), *layer(4, 2, projected=2), *biases(4), weight_hr=t(2, 3)),
    s(t(8, 2), *layer(4, 2, rows=3, projected=2), *biases(4), weight_hr=t(2, 3), **PACKED, reverse=True),
    torch=whole_network("lstm", 2),
    node=False,
    half=False,
)


def _rectified(*args: Any, nonlinearity: str, **named: Any) -> Any:
    assert nonlinearity == "relu"
    return whole_network("rnn_relu", 1)(*args, **named)


case(
    "rnn_layer",
    s(t(3, 2, 2), *layer(1, 1), *biases(1), nonlinearity="relu"),
    s(t(8, 2), *layer(1, 1, rows=3), **PACKED, reverse=True, nonlinearity="relu"),
    torch=_rectified,
    node=False,
    half=False,  # PyTorch rounds after each op, here without the bound that tanh gives
)
for _op, _name, _gates, _states in (
    ("lstm_layer", "lstm", 4, 2),
    ("gru_layer", "gru", 3, 1),
    ("rnn_layer", "rnn_tanh", 1, 1),
):
    case(
        _op,
        in_dtype("complex128", *[t(*each.shape, dtype="complex128") for each in (t(3, 2, 2), *layer(_gates, _states))]),
        torch=whole_network(_name, _states),
        node=False,
        half=False,
    )

REFUSALS = [
    refuses(
        "rnn_layer",
        RuntimeError,
        "Expected sequence length to be larger than 0 in RNN",
        t(0, 2, 2),
        *layer(1, 1),
        torch=whole_network("rnn_tanh", 1),
    )
]
