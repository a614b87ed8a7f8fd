"""A recurrent layer as ops of each step, for plans: their machine code computes a step's gates in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire_engine.ops.elementwise.activation import relu
from gradwire_engine.ops.elementwise.unary import sigmoid, tanh
from gradwire_engine.ops.linalg.matrix import linear
from gradwire_engine.ops.nn.recurrent.steps import Ints
from gradwire_engine.ops.shape.join import cat, stack
from gradwire_engine.ops.shape.shape import chunk, narrow, split, unbind

# A step's state: h, and for an LSTM also c.
State = tuple[Any, ...]
# Computes a step from the input's part of the gates and the state before.
Cell = Callable[[Any, State], State]


def lstm_cell(weight: Any, projection: Any) -> Cell:
    """A step of an LSTM. projection: weights of h, or None."""

    def step(given: Any, state: State) -> State:
        inward, forget, new, out = chunk(given + linear(state[0], weight), 4, -1)
        cell = sigmoid(forget) * state[1] + sigmoid(inward) * tanh(new)
        hidden = sigmoid(out) * tanh(cell)
        return (hidden if projection is None else linear(hidden, projection), cell)

    return step


def gru_cell(weight: Any, bias: Any) -> Cell:
    """A step of a GRU."""

    def step(given: Any, state: State) -> State:
        in_reset, in_update, in_new = chunk(given, 3, -1)
        h_reset, h_update, h_new = chunk(linear(state[0], weight, bias), 3, -1)
        update = sigmoid(in_update + h_update)
        new = tanh(in_new + sigmoid(in_reset + h_reset) * h_new)
        return (new + update * (state[0] - new),)

    return step


def rnn_cell(weight: Any, rectifies: bool) -> Cell:
    """A step of an RNN."""

    def step(given: Any, state: State) -> State:
        total = given + linear(state[0], weight)
        return (relu(total) if rectifies else tanh(total),)

    return step


def run(cell: Cell, given: Any, first: State, sizes: Ints, reverse: bool) -> tuple[Any, ...]:
    """The outputs of all steps and the last states."""
    steps = list(split(given, list(sizes), 0) if sizes else unbind(given, 0))
    outputs: list[Any] = []
    if sizes:
        state = _run_packed(cell, steps[::-1] if reverse else steps, first, outputs)
    else:
        state = first
        for each in reversed(steps) if reverse else steps:
            state = cell(each, state)
            outputs.append(state[0])
    joined = outputs[::-1] if reverse else outputs
    return (cat(joined, 0) if sizes else stack(joined, 0), *state)


def _run_packed(cell: Cell, steps: Sequence[Any], first: State, outputs: list[Any]) -> State:
    """Steps with fewer and fewer sequences; backwards, the shorter ones begin later."""
    count = steps[0].shape[0]
    state, ended = tuple(narrow(part, 0, 0, count) for part in first), []
    for given in steps:
        size = given.shape[0]
        if size < count:
            ended.append(tuple(narrow(part, 0, size, count - size) for part in state))
            state = tuple(narrow(part, 0, 0, size) for part in state)
        elif size > count:
            begun = [narrow(part, 0, count, size - count) for part in first]
            state = tuple(cat([part, other], 0) for part, other in zip(state, begun, strict=True))
        count = size
        state = cell(given, state)
        outputs.append(state[0])
    # The longest sequences come first, and end last.
    parts = zip(state, *reversed(ended), strict=True)
    return tuple(cat(list(part), 0) for part in parts) if ended else state
