"""Backpropagation through the steps of a recurrent layer by ops on Tensors, for create_graph.

It computes what backward.py computes on arrays. Gates and cells are results of the layer's node, so gradients of any
order reach what they depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradwire_engine.graph.graph import Meta
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.base.basic import cast, conj
from gradwire_engine.ops.elementwise.unary import tanh
from gradwire_engine.ops.linalg.matrix import matmul, matrix_t
from gradwire_engine.ops.nn.recurrent.steps import Ints, Step, by_rows, steps_of, wide
from gradwire_engine.ops.reduce.reduce import sum as total
from gradwire_engine.ops.shape.join import cat
from gradwire_engine.ops.shape.shape import narrow, reshape

Tensors = Sequence[Any]  # Tensors; None for a gradient that is missing


def _rows(value: Any, step: Step) -> Any:
    return narrow(value, -2, *step)


def _top(value: Any, count: int) -> Any:
    return value if value.shape[-2] == count else narrow(value, -2, 0, count)


def _columns(values: Any, count: int) -> list[Any]:
    """The gates: `count` parts of the last dimension."""
    width = values.shape[-1] // count
    return [narrow(values, -1, start * width, width) for start in range(count)]


def _cast(value: Any, dtype: Any) -> Any:
    return value if value.dtype == dtype else cast(value, dtype)


def _slope(sigmoid: Any) -> Any:
    return sigmoid * (1 - sigmoid)


class _Sweep:
    """One layer's backward: the gradients that arrive, and those that are carried from step to step."""

    def __init__(self, gs: Tensors, tensors: Tensors, sizes: Ints, reverse: bool, output: Any, states: int) -> None:
        """tensors: sizes and dtype of the input's part, and the op's other tensors. states: 2 if there are cells."""
        self.meta, self.reverse = tensors[0], reverse
        self.steps = steps_of(self.meta, tensors[1], sizes, reverse)
        count = sum(rows for _, rows in self.steps)
        wider = wide(output)
        self.first, *self.others = [
            value if type(value) is Meta else conj(_cast(value, wider.dtype)) for value in tensors[1:]
        ]
        self.output = conj(by_rows(wider, sizes, count))
        self.arriving = by_rows(wide(gs[0]), sizes, count)
        self.carried = [wide(each) for each in gs[1 : 1 + states]]

    def backwards(self) -> Iterator[tuple[Step, list[Any]]]:
        """The steps, last first, with the gradients of the states after each; of h together with the output's."""
        for step in reversed(self.steps):
            pause()
            arrived = [_top(each, step[1]) for each in self.carried]
            arrived[0] = arrived[0] + _rows(self.arriving, step)
            yield step, arrived

    def carry(self, *gradients: Any) -> None:
        """Keep the gradients of the states before a step; those of rows that the step lacks stay."""
        for place, (held, new) in enumerate(zip(self.carried, gradients, strict=True)):
            count, missing = new.shape[-2], held.shape[-2] - new.shape[-2]
            self.carried[place] = cat([new, narrow(held, -2, count, missing)], -2) if missing else new

    def previous(self, values: Any, first: Any) -> Any:
        """The state before each step, as rows. values: the state after each step."""
        groups = []
        for place, (_, count) in enumerate(self.steps):
            start, held = self.steps[place - 1] if place else (0, 0)
            group = [_rows(values, (start, min(held, count)))] if place else []
            if held < count:  # backwards, shorter sequences begin later
                group.append(_rows(first, (held, count - held)))
            groups.append(group)
        return cat([part for group in (groups[::-1] if self.reverse else groups) for part in group], -2)

    def joined(self, parts: Sequence[Any]) -> Any:
        """What `backwards` gave step by step, as rows."""
        return cat(list(parts if self.reverse else parts[::-1]), -2)

    def given(self, gradient: Any) -> Any:
        """The gradient of the input's part, in its shape."""
        return reshape(gradient, self.meta.shape)


def _weight_gradient(gradients: Any, values: Any) -> Any:
    return matmul(matrix_t(gradients), values)


def lstm(gs: Tensors, tensors: Tensors, sizes: Ints, reverse: bool, output: Any, gates: Any, cells: Any) -> Any:
    """Gradients of _lstm's tensors. gs: of its results; of gates and cells None if they are missing."""
    run = _Sweep(gs, tensors, sizes, reverse, output, 2)
    first_cell, weight, *projection = run.others
    gates, cells = conj(gates), conj(cells)
    inward, forget, new, outward = _columns(gates, 4)
    wound, rising = tanh(cells), 1 - new * new
    before = run.previous(cells, first_cell)
    slopes = [_slope(inward), _slope(forget), _slope(outward)]
    factors = cat([new * slopes[0], before * slopes[1], inward * rising, wound * slopes[2]], -1)
    to_cell = outward * (1 - wound * wound)
    extra = None if gs[3] is None else gs[3] * cat([slopes[0], slopes[1], rising, slopes[2]], -1)
    made, projected = [], []
    for step, (state, cell) in run.backwards():
        projected.append(state)
        if projection:
            state = matmul(state, projection[0])
        cell = cell + state * _rows(to_cell, step)
        if gs[4] is not None:
            cell = cell + _rows(gs[4], step)
        gradient = cat([cell, cell, cell, state], -1) * _rows(factors, step)
        if extra is not None:
            gradient = gradient + _rows(extra, step)
        made.append(gradient)
        run.carry(matmul(gradient, weight), cell * _rows(forget, step))
    whole = run.joined(made)
    last = [_weight_gradient(run.joined(projected), outward * wound)] if projection else []
    of_weight = _weight_gradient(whole, run.previous(run.output, run.first))
    return [run.given(whole), *run.carried, of_weight, *last]


def gru(gs: Tensors, tensors: Tensors, sizes: Ints, reverse: bool, output: Any, gates: Any) -> Any:
    """Gradients of _gru's tensors. gs: of its results; of the gates None if they are missing."""
    run = _Sweep(gs, tensors, sizes, reverse, output, 1)
    weight, *bias = run.others
    reset, update, new, recurrent = _columns(conj(gates), 4)
    before = run.previous(run.output, run.first)
    rising = 1 - new * new
    to_new, by_reset = (1 - update) * rising, recurrent * _slope(reset)
    # Of the reset and update gate, the new gate's recurrent part, and the new gate.
    factors = cat([to_new * by_reset, (before - new) * _slope(update), to_new * reset, to_new], -1)
    extra = None
    if gs[2] is not None:
        to = _columns(gs[2], 4)
        of_new = to[2] * rising
        extra = cat(
            [to[0] * _slope(reset) + of_new * by_reset, to[1] * _slope(update), of_new * reset + to[3], of_new], -1
        )
    made = []
    for step, (state,) in run.backwards():
        gradient = cat([state, state, state, state], -1) * _rows(factors, step)
        if extra is not None:
            gradient = gradient + _rows(extra, step)
        made.append(gradient)
        of_gates = narrow(gradient, -1, 0, 3 * state.shape[-1])
        run.carry(matmul(of_gates, weight) + state * _rows(update, step))
    gradients = _columns(run.joined(made), 4)
    of_recurrent = cat(gradients[:3], -1)
    last = [total(of_recurrent, -2)] if bias else []
    given = run.given(cat([gradients[0], gradients[1], gradients[3]], -1))
    return [given, *run.carried, _weight_gradient(of_recurrent, before), *last]


def rnn(gs: Tensors, tensors: Tensors, sizes: Ints, reverse: bool, rectifies: bool, output: Any) -> Any:
    """Gradients of _rnn's tensors. gs: of its results."""
    run = _Sweep(gs, tensors, sizes, reverse, output, 1)
    weight = run.others[0]
    factors = cast(run.output > 0, run.output.dtype) if rectifies else 1 - run.output * run.output
    made = []
    for step, (state,) in run.backwards():
        made.append(state * _rows(factors, step))
        run.carry(matmul(made[-1], weight))
    whole = run.joined(made)
    return [run.given(whole), *run.carried, _weight_gradient(whole, run.previous(run.output, run.first))]
