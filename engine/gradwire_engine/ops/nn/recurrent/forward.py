"""The recurrent part of a layer as ops: all steps in one direction, on arrays.

The input's part of the gates is one product over all steps, so it is given. The ops save the gates. Their formula is
backpropagation through time: backward.py on arrays, recorded_backward.py on Tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradwire_engine.ops.nn.recurrent.backward as backward
import gradwire_engine.ops.nn.recurrent.recorded_backward as recorded_backward
from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.cost import LONG, LOOP, counted, flop
from gradwire_engine.op.op import op
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.base.loops import Loops, with_loop
from gradwire_engine.ops.nn.recurrent.step_loops import beside, in_host_memory, step_loop
from gradwire_engine.ops.nn.recurrent.steps import Ints, by_rows, steps_of, wide

_WORK = 12.0  # operations per gate of a step


def _apply_sigmoid(xp: Any, values: Array) -> None:
    xp.negative(values, out=values)
    xp.exp(values, out=values)
    values += 1
    xp.reciprocal(values, out=values)


class _Forward:
    """Arrays of one call: the input's part as rows, the output, and the gates if they are kept."""

    def __init__(self, xp: Any, tensors: Sequence[Array], sizes: Ints, reverse: bool, kept: int) -> None:
        """kept: values per row and element of the state that are saved; 0 for none."""
        self.xp = xp
        self.dtype = tensors[0].dtype
        self.steps = steps_of(tensors[0], tensors[1], sizes, reverse)
        given, self.first, *self.others = [wide(value) for value in tensors]
        self.lead, count = self.first.shape[:-2], sum(rows for _, rows in self.steps)
        self.given = by_rows(given, sizes, count)
        self.state = self.first.copy()
        self.result = xp.empty((*given.shape[:-1], self.state.shape[-1]), given.dtype)
        self.output = by_rows(self.result, sizes, count)
        self.most = max(rows for _, rows in self.steps)
        self.gates = self.empty(count if kept else 0, kept)

    def empty(self, rows: int, width: int) -> Array:
        """New rows."""
        return self.xp.empty((*self.lead, rows, width), self.given.dtype)

    def results(self, *others: Array) -> tuple[Array, ...]:
        """The output in the input's shape, and the last states."""
        return tuple([each.astype(self.dtype, copy=False) for each in (self.result, self.state, *others)])


def _sequences_node(tensors: Sequence[Any], sizes: Ints, *rest: Any) -> str:
    return "CatBackward0" if sizes else "StackBackward0"


def _lstm_node(tensors: Sequence[Any], sizes: Ints, *rest: Any) -> str:
    """PyTorch's node: in float32 oneDNN computes the layer."""
    by_steps = bool(sizes) or tensors[0].dtype != dtypes.float32
    return _sequences_node(tensors, sizes) if by_steps else "MkldnnRnnLayerBackward0"


def _work(tensors: Sequence[Any], sizes: Ints, *rest: Any) -> float:
    """Operations of all steps, or of what is computed between two pauses if all steps take long."""
    given, state = tensors[0], tensors[1]
    gates, rows = given.shape[-1], given.size // max(1, given.shape[-1])
    each = gates * (state.shape[-1] * flop(state.dtype) + _WORK)
    steps = len(sizes) or given.shape[-3]
    step = (sizes[0] if sizes else state.shape[-2]) * each + LOOP
    return float(min(rows * each + steps * LOOP, max(step, LONG - 1.0)))


def _work_back(*args: Any) -> float:
    return min(3.0 * _work(*args), max(LONG - 1.0, _work(*args)))


_COST = counted(_work, _work_back)


def _sizes_of(saved: int) -> Any:
    """Function for `sized_by`: the output, the last states, and `saved` values per element of the state."""

    def sizes(tensors: Sequence[Any], steps: Ints, reverse: bool, keep: bool) -> int:
        given, states = tensors[0], tensors[1 : 3 if saved == _LSTM_SAVED else 2]
        rows = given.size // max(1, given.shape[-1])
        elements = rows * (states[0].shape[-1] + keep * saved * states[-1].shape[-1])
        return int(max(4, given.itemsize) * (elements + sum(each.size for each in states)))

    return sizes


_LSTM_SAVED, _GRU_SAVED = 5, 4  # values per element of the state: gates and cells


def _lstm_step(xp: Any, gates: Array, given: Array, cell: Array, hidden: Array) -> None:
    """One step: gates, of which the recurrent part is given, and cells in place; hidden states are written."""
    width = cell.shape[-1]
    gates += given
    _apply_sigmoid(xp, gates[..., : 2 * width])
    new, out = gates[..., 2 * width : 3 * width], gates[..., 3 * width :]
    xp.tanh(new, out=new)
    _apply_sigmoid(xp, out)
    cell *= gates[..., width : 2 * width]
    xp.multiply(gates[..., :width], new, out=hidden)
    cell += hidden
    xp.tanh(cell, out=hidden)
    hidden *= out


def _lstm(
    loops: Loops | None, xp: Any, tensors: list[Array], sizes: Ints, reverse: bool, keep: bool
) -> tuple[Array, ...] | None:
    """What `lstm` returns. With `loops`, by one of them; None if none fits."""
    if loops is not None and not in_host_memory(tensors[0]):
        return None
    width = tensors[2].shape[-1]
    run = _Forward(xp, tensors, sizes, reverse, 4 * width if keep else 0)
    cell, weight, *projection = run.others
    cell, turned = cell.copy(), weight.swapaxes(-1, -2)
    gates = run.gates if keep else run.empty(run.most, 4 * width)
    cells = run.empty(run.output.shape[-2] if keep else run.most, width)
    hidden, loop, product = run.empty(run.most, width), None, gates
    if loops is not None:
        product = run.empty(run.most, 4 * width)
        read = [*beside(product, width, False), *beside(run.given, width, True), (cell, False)]
        made = [(hidden, False)] * 2 if projection else [(run.output, True), (run.state, False)]
        loop = step_loop(loops, "lstm_step", width, [*read, *beside(gates, width, keep), (cells, keep), *made])
        if loop is None:
            return None
    for start, count in run.steps:
        pause()
        held = slice(start, start + count) if keep else slice(count)
        state = hidden[..., :count, :]
        if loop is not None:
            matrix_product(xp, run.state[..., :count, :], turned, out=product[..., :count, :])
            loop.run(start, count)
        else:
            matrix_product(xp, run.state[..., :count, :], turned, out=gates[..., held, :])
            _lstm_step(xp, gates[..., held, :], run.given[..., start : start + count, :], cell[..., :count, :], state)
            if keep:
                cells[..., held, :] = cell[..., :count, :]
        if projection:
            state = matrix_product(xp, state, projection[0].swapaxes(-1, -2))
        if loop is None or projection:
            run.output[..., start : start + count, :] = state
            run.state[..., :count, :] = state
    return (*run.results(cell), run.gates, cells if keep else cells[..., :0, :])


@op(
    name="_lstm",
    promote="same",
    in_place=False,
    node=_lstm_node,
    outputs=("output", "h_n", "c_n", "gates", "cells"),
    unfilled_outputs=(3, 4),
    described_items=(0,),
    cost=_COST,
)
@with_loop(_lstm)
def lstm(xp: Any, tensors: list[Array], sizes: Ints, reverse: bool, keep: bool) -> Any:
    """All steps of a layer of long short-term memory in one direction.

    tensors: the input's part of the gates (t, n, 4 h) or (rows, 4 h); h (n, p); c (n, h); recurrent weights (4 h, p);
    and weights of a projection (p, h) if there is one. keep: whether to return the gates and cells for backward.
    """
    return _lstm(None, xp, tensors, sizes, reverse, keep)


def _gru_step(xp: Any, product: Array, given: Array, gates: Array, state: Array) -> None:
    """One step: gates and the new gate's recurrent part are written; states change in place."""
    width = state.shape[-1]
    both, new = gates[..., : 2 * width], gates[..., 2 * width : 3 * width]
    xp.add(product[..., : 2 * width], given[..., : 2 * width], out=both)
    _apply_sigmoid(xp, both)
    gates[..., 3 * width :] = product[..., 2 * width :]
    xp.multiply(gates[..., :width], product[..., 2 * width :], out=new)
    new += given[..., 2 * width :]
    xp.tanh(new, out=new)
    state -= new
    state *= gates[..., width : 2 * width]
    state += new


def _gru(
    loops: Loops | None, xp: Any, tensors: list[Array], sizes: Ints, reverse: bool, keep: bool
) -> tuple[Array, ...] | None:
    """What `gru` returns. With `loops`, by one of them; None if none fits."""
    if loops is not None and not in_host_memory(tensors[0]):
        return None
    width = tensors[1].shape[-1]
    run = _Forward(xp, tensors, sizes, reverse, 4 * width if keep else 0)
    weight, *bias = run.others
    turned, added = weight.swapaxes(-1, -2), [each[..., None, :] for each in bias]
    gates, product, loop = run.gates if keep else run.empty(run.most, 4 * width), run.empty(run.most, 3 * width), None
    if loops is not None:
        read = [*beside(product, width, False), *beside(run.given, width, True), (run.state, False)]
        loop = step_loop(loops, "gru_step", width, [*read, *beside(gates, width, keep), (run.output, True)])
        if loop is None:
            return None
    for start, count in run.steps:
        pause()
        part, state = product[..., :count, :], run.state[..., :count, :]
        matrix_product(xp, state, turned, out=part)
        for each in added:
            part += each
        if loop is not None:
            loop.run(start, count)
            continue
        held, rows = slice(start, start + count) if keep else slice(count), slice(start, start + count)
        _gru_step(xp, part, run.given[..., rows, :], gates[..., held, :], state)
        run.output[..., rows, :] = state
    return (*run.results(), run.gates)


@op(
    name="_gru",
    promote="same",
    in_place=False,
    node=_sequences_node,
    outputs=("output", "h_n", "gates"),
    unfilled_outputs=(2,),
    described_items=(0, 3),
    cost=_COST,
)
@with_loop(_gru)
def gru(xp: Any, tensors: list[Array], sizes: Ints, reverse: bool, keep: bool) -> Any:
    """All steps of a layer of gated recurrent units in one direction.

    tensors: the input's part of the gates (t, n, 3 h) or (rows, 3 h); h (n, h); recurrent weights (3 h, h); and their
    bias (3 h) if there is one. keep: whether to return reset, update and new gate, and the new one's recurrent part.
    """
    return _gru(None, xp, tensors, sizes, reverse, keep)


@op(
    name="_rnn",
    promote="same",
    in_place=False,
    node=_sequences_node,
    outputs=("output", "h_n"),
    described_items=(0,),
    cost=_COST,
)
def rnn(xp: Any, tensors: list[Array], sizes: Ints, reverse: bool, rectifies: bool) -> Any:
    """All steps of a layer of h = tanh(given + weights h), or relu, in one direction.

    tensors: the input's part (t, n, h) or (rows, h); h (n, h); recurrent weights (h, h).
    """
    run = _Forward(xp, tensors, sizes, reverse, 0)
    turned = run.others[0].swapaxes(-1, -2)
    for start, count in run.steps:
        pause()
        rows = slice(start, start + count)
        made = run.output[..., rows, :]
        matrix_product(xp, run.state[..., :count, :], turned, out=made)
        made += run.given[..., rows, :]
        if rectifies:
            xp.maximum(made, 0, out=made)
        else:
            xp.tanh(made, out=made)
        run.state[..., :count, :] = made
    return run.results()


lstm.by_loops("lstm_step", "lstm_step_backward")
gru.by_loops("gru_step", "gru_step_backward")
lstm.sized_by(_sizes_of(_LSTM_SAVED))
gru.sized_by(_sizes_of(_GRU_SAVED))
rnn.sized_by(lambda tensors, *rest: _sizes_of(0)(tensors, (), False, False))


for _op in (lstm, gru, rnn):
    _op.works_in(widens=True)


def _way(gs: Sequence[Any]) -> Any:
    """The module that computes a backward for these gradients."""
    return recorded_backward if type(gs[0]) is Tensor else backward


lstm.grad(
    tensors=lambda gs, tensors_rest, sizes, reverse, out0, out3, out4: _way(gs).lstm(
        gs, tensors_rest, sizes, reverse, out0, out3, out4
    )
)
gru.grad(
    tensors=lambda gs, tensors_rest, sizes, reverse, out0, out2: _way(gs).gru(
        gs, tensors_rest, sizes, reverse, out0, out2
    )
)
rnn.grad(
    tensors=lambda gs, tensors_rest, sizes, reverse, rectifies, out0: _way(gs).rnn(
        gs, tensors_rest, sizes, reverse, rectifies, out0
    )
)
