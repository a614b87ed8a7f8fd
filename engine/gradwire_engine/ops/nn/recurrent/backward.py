"""Backpropagation through the steps of a recurrent layer, on arrays.

The steps are taken in blocks that fit the cache. For a block, the derivatives that do not depend on gradients are
computed at once (the factors). A step then only multiplies and adds, and multiplies by the recurrent weights. The
weights' gradients are products over the rows of a block. In complex numbers, derivatives multiply by conjugates, so all
saved values are conjugated first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from gradwire_engine.core.device import Array, module_of
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.graph.graph import Meta
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.base.basic import conj
from gradwire_engine.ops.base.loops import Loops, with_loop
from gradwire_engine.ops.nn.recurrent.step_loops import beside, columns, in_host_memory, step_loop
from gradwire_engine.ops.nn.recurrent.steps import Ints, Step, by_rows, extent, rows_of, steps_of, wide

BLOCK = 1 << 18  # elements of a block's gates
_OUTPUT = 4  # the place of the layer's output among a backward's arguments
_LSTM_TENSORS = 4  # without a projection

Arrays = Sequence[Any]  # arrays; None for a gradient that is missing


class _Sweep:
    """One layer's backward: the gradients that arrive, and those that are carried from step to step."""

    def __init__(self, gs: Arrays, tensors: Arrays, sizes: Ints, reverse: bool, output: Array, states: int) -> None:
        """tensors: sizes and dtype of the input's part, and the op's other tensors. states: 2 if there are cells."""
        self.xp = xp = module_of(gs[0])
        self.steps = steps_of(tensors[0], tensors[1], sizes, reverse)
        _, count = extent(self.steps)
        self.dtype = wide(output).dtype
        self.first, *self.others = [
            value if type(value) is Meta else conj(value.astype(self.dtype, copy=False)) for value in tensors[1:]
        ]
        self.lead = self.first.shape[:-2]
        self.output = conj(by_rows(wide(output), sizes, count))
        self.arriving = by_rows(wide(gs[0]), sizes, count)
        self.carried = [each.astype(self.dtype) for each in gs[1 : 1 + states]]
        self.given = xp.empty(tensors[0].shape, self.dtype)  # the gradient of the input's part
        self.given_rows = by_rows(self.given, sizes, count)
        self.weights: dict[str, Any] = {}  # gradients of weights, by name
        self.most = 0

    def blocks(self, gates: int) -> Iterator[tuple[list[Step], Step]]:
        """Blocks of steps with their rows, the last first. Its steps are in the order of forward."""
        most = BLOCK // max(1, gates * math.prod(self.lead))
        made: list[list[Step]] = []
        held = 0
        for step in self.steps:
            if not made or held + step[1] > most:
                made.append([])
                held = 0
            made[-1].append(step)
            held += step[1]
        self.most = max(extent(block)[1] for block in made)
        self.place = len(self.steps)
        for block in reversed(made):
            self.place -= len(block)
            yield block, extent(block)

    def backwards(self, block: Sequence[Step], base: int) -> Iterator[tuple[Step, Step]]:
        """The steps of a block, last first, each also with its rows counted in the block."""
        for step in reversed(block):
            pause()
            yield step, (step[0] - base, step[1])

    def empty(self, rows: int, width: int) -> Array:
        """New rows."""
        return self.xp.empty((*self.lead, rows, width), self.dtype)

    def previous(self, values: Array, first: Array, block: Sequence[Step], base: int) -> Array:
        """The state before each step of a block. values: the state after each step."""
        made = self.empty(extent(block)[1], values.shape[-1])
        inner = self._shift(made, values, block, base)
        for place, (start, count) in enumerate(block[:1] if inner else block, self.place):
            begin = start - base
            held = 0
            if place:
                before, rows = self.steps[place - 1]
                held = min(rows, count)
                made[..., begin : begin + held, :] = values[..., before : before + held, :]
            if held < count:  # backwards, shorter sequences begin later
                made[..., begin + held : begin + count, :] = first[..., held:count, :]
        return made

    def _shift(self, made: Array, values: Array, block: Sequence[Step], base: int) -> bool:
        """Write all rows but those of the first step, if all steps have as many rows; whether they have."""
        count, rows = block[0][1], made.shape[-2]
        if rows != count * len(block) or any(each != count for _, each in block):
            return False
        if block[0][0] == base:
            made[..., count:, :] = values[..., base : base + rows - count, :]
        else:
            made[..., : rows - count, :] = values[..., base + count : base + rows, :]
        return True

    def add(self, name: str, made: Array) -> None:
        """Add a block's part to a weight's gradient."""
        held = self.weights.get(name)
        if held is None:
            self.weights[name] = made
        else:
            held += made

    def add_product(self, name: str, gradients: Array, values: Array) -> None:
        """Add the product of a block's gradients and values to a weight's gradient."""
        self.add(name, matrix_product(self.xp, gradients.swapaxes(-1, -2), values))


def _side_by_side(values: Array, width: int) -> Array:
    """Rows of several gates as (..., rows, gates, width); a view."""
    return values.reshape((*values.shape[:-1], values.shape[-1] // width, width))


def _slope_into(xp: Any, sigmoid: Array, out: Array) -> None:
    """The derivative of a sigmoid, from its value."""
    xp.subtract(1, sigmoid, out=out)
    out *= sigmoid


def _lstm_by_loop(
    loops: Loops, gs: Arrays, tensors: Arrays, sizes: Ints, reverse: bool, output: Array, gates: Array, cells: Array
) -> Any:
    """What `lstm` returns, by a loop. None if none fits: with a projection, or gradients of what is saved."""
    if not in_host_memory(output) or len(tensors) > _LSTM_TENSORS or gs[3] is not None or gs[4] is not None:
        return None
    run = _Sweep(gs, tensors, sizes, reverse, output, 2)
    first_cell, weight = run.others
    width = first_cell.shape[-1]
    state, cell = run.carried
    for block, rows in run.blocks(4 * width):
        made = rows_of(run.given_rows, rows)
        read = [*beside(rows_of(gates, rows), width, True), (rows_of(cells, rows), True)]
        read += [(run.previous(cells, first_cell, block, rows[0]), True), (state, False)]
        read += [(run.xp.ascontiguousarray(rows_of(run.arriving, rows)), True), (cell, False)]
        loop = step_loop(loops, "lstm_step_backward", width, [*read, *beside(made, width, True)])
        if loop is None:
            return None
        for _, place in run.backwards(block, rows[0]):
            loop.run(*place)
            matrix_product(run.xp, rows_of(made, place), weight, out=state[: place[1]])
        run.add_product("weight", made, run.previous(run.output, run.first, block, rows[0]))
    return [run.given, *run.carried, *run.weights.values()]


@with_loop(_lstm_by_loop, _OUTPUT)
def lstm(gs: Arrays, tensors: Arrays, sizes: Ints, reverse: bool, output: Array, gates: Array, cells: Array) -> Any:
    """Gradients of _lstm's tensors. gs: of its results; of gates and cells None if they are missing."""
    run = _Sweep(gs, tensors, sizes, reverse, output, 2)
    xp, (first_cell, weight, *projection) = run.xp, run.others
    width = first_cell.shape[-1]
    gates, cells = conj(gates), conj(cells)
    hidden_gradient, cell_gradient = run.carried
    for block, rows in run.blocks(4 * width):
        held = rows_of(gates, rows)
        factors, to_cell, hidden = _lstm_factors(run, held, rows_of(cells, rows))
        factors[..., width : 2 * width] *= run.previous(cells, first_cell, block, rows[0])
        forget, scratch = held[..., width : 2 * width], run.empty(run.most, width)
        projected = run.empty(rows[1], output.shape[-1]) if projection else None
        extra = None if gs[3] is None else rows_of(gs[3], rows) * _lstm_slopes(xp, held, width)
        for step, place in run.backwards(block, rows[0]):
            state, cell = hidden_gradient[..., : step[1], :], cell_gradient[..., : step[1], :]
            state += rows_of(run.arriving, step)
            whole = state
            if projected is not None:
                rows_of(projected, place)[...] = state
                whole = matrix_product(xp, state, projection[0])
            part = scratch[..., : step[1], :]
            cell += xp.multiply(whole, rows_of(to_cell, place), out=part)
            if gs[4] is not None:
                cell += rows_of(gs[4], step)
            made, by = rows_of(run.given_rows, step), rows_of(factors, place)
            three, by_three = _side_by_side(made, width)[..., :3, :], _side_by_side(by, width)[..., :3, :]
            xp.multiply(cell[..., None, :], by_three, out=three)
            xp.multiply(whole, by[..., 3 * width :], out=made[..., 3 * width :])
            if extra is not None:
                made += rows_of(extra, place)
            cell *= rows_of(forget, place)
            matrix_product(xp, made, weight, out=state)
        made = rows_of(run.given_rows, rows)
        run.add_product("weight", made, run.previous(run.output, run.first, block, rows[0]))
        if projected is not None:
            run.add_product("projection", projected, hidden)
    return [run.given, *run.carried, *run.weights.values()]


def _lstm_factors(run: _Sweep, gates: Array, cells: Array) -> tuple[Array, Array, Array]:
    """Derivatives of a block: of c, and for the output gate of h, by what gates are made of; of h by c. And h itself.

    The forget gate's lacks the previous c as a factor.
    """
    xp, width = run.xp, cells.shape[-1]
    inward, _, new, out = columns(gates, width)
    factors = run.empty(gates.shape[-2], 4 * width)
    of_inward, _, of_new, of_out = columns(factors, width)
    wound = xp.tanh(cells)
    _slope_into(xp, gates[..., : 2 * width], factors[..., : 2 * width])
    of_inward *= new
    xp.multiply(new, new, out=of_new)
    xp.subtract(1, of_new, out=of_new)
    of_new *= inward
    _slope_into(xp, out, of_out)
    of_out *= wound
    to_cell = xp.multiply(wound, wound)
    xp.subtract(1, to_cell, out=to_cell)
    to_cell *= out
    wound *= out
    return factors, to_cell, wound


def _lstm_slopes(xp: Any, gates: Array, width: int) -> Array:
    """Derivatives of the gates by what they are made of."""
    made = gates * (1 - gates)
    new = gates[..., 2 * width : 3 * width]
    made[..., 2 * width : 3 * width] = 1 - new * new
    return made


def _gru_by_loop(
    loops: Loops, gs: Arrays, tensors: Arrays, sizes: Ints, reverse: bool, output: Array, gates: Array
) -> Any:
    """What `gru` returns, by a loop. None if none fits: with gradients of what is saved."""
    if not in_host_memory(output) or gs[2] is not None:
        return None
    run = _Sweep(gs, tensors, sizes, reverse, output, 1)
    weight, width, (carried,) = run.others[0], run.first.shape[-1], run.carried
    for block, rows in run.blocks(4 * width):
        before = run.previous(run.output, run.first, block, rows[0])
        gradients, product = run.empty(rows[1], 4 * width), run.empty(run.most, width)
        read = [
            *beside(rows_of(gates, rows), width, True),
            (before, True),
            (run.xp.ascontiguousarray(rows_of(run.arriving, rows)), True),
        ]
        loop = step_loop(loops, "gru_step_backward", width, [*read, (carried, False), *beside(gradients, width, True)])
        if loop is None:
            return None
        for _, place in run.backwards(block, rows[0]):
            loop.run(*place)
            part = product[: place[1]]
            matrix_product(run.xp, rows_of(gradients, place)[:, : 3 * width], weight, out=part)
            carried[: place[1]] += part
        _add_gru_block(run, gradients, before, rows)
    return [run.given, *run.carried, *run.weights.values()]


@with_loop(_gru_by_loop, _OUTPUT)
def gru(gs: Arrays, tensors: Arrays, sizes: Ints, reverse: bool, output: Array, gates: Array) -> Any:
    """Gradients of _gru's tensors. gs: of its results; of the gates None if they are missing."""
    run = _Sweep(gs, tensors, sizes, reverse, output, 1)
    xp, weight = run.xp, run.others[0]
    width = run.first.shape[-1]
    gates = conj(gates)
    (carried,) = run.carried
    for block, rows in run.blocks(4 * width):
        held = rows_of(gates, rows)
        before = run.previous(run.output, run.first, block, rows[0])
        factors = _gru_factors(run, held, before)
        extra = None if gs[2] is None else _gru_extra(run, held, rows_of(gs[2], rows))
        # The gradients of the reset and update gate, of the new gate's recurrent part, and of the new gate.
        gradients, product = run.empty(rows[1], 4 * width), run.empty(run.most, width)
        for step, place in run.backwards(block, rows[0]):
            state, part = carried[..., : step[1], :], product[..., : step[1], :]
            state += rows_of(run.arriving, step)
            made, by = rows_of(gradients, place), rows_of(factors, place)
            xp.multiply(state[..., None, :], _side_by_side(by, width), out=_side_by_side(made, width))
            if extra is not None:
                made += rows_of(extra, place)
            matrix_product(xp, made[..., : 3 * width], weight, out=part)
            state *= rows_of(held, place)[..., width : 2 * width]
            state += part
        _add_gru_block(run, gradients, before, rows)
    return [run.given, *run.carried, *run.weights.values()]


def _add_gru_block(run: _Sweep, gradients: Array, before: Array, rows: Step) -> None:
    """Add a block's part to the gradients of weight and bias, and write that of the input's part."""
    width = before.shape[-1]
    recurrent, whole = gradients[..., : 3 * width], rows_of(run.given_rows, rows)
    run.add_product("weight", recurrent, before)
    if len(run.others) > 1:
        run.add("bias", recurrent.sum(-2))
    whole[..., : 2 * width] = gradients[..., : 2 * width]
    whole[..., 2 * width :] = gradients[..., 3 * width :]


def _gru_factors(run: _Sweep, gates: Array, before: Array) -> Array:
    """Derivatives of h by what the gates of a block are made of."""
    xp, width = run.xp, before.shape[-1]
    reset, update, new, recurrent = columns(gates, width)
    factors = run.empty(gates.shape[-2], 4 * width)
    of_reset, of_update, of_recurrent, of_new = columns(factors, width)
    _slope_into(xp, gates[..., : 2 * width], factors[..., : 2 * width])
    xp.multiply(new, new, out=of_new)
    xp.subtract(1, of_new, out=of_new)
    of_new *= 1 - update
    xp.multiply(of_new, reset, out=of_recurrent)
    of_reset *= of_new
    of_reset *= recurrent
    of_update *= before - new
    return factors


def _gru_extra(run: _Sweep, gates: Array, given: Array) -> Array:
    """What gradients of the saved gates add to those of what they are made of."""
    width = gates.shape[-1] // 4
    reset, update, new, recurrent = columns(gates, width)
    to_reset, to_update, to_new, to_recurrent = columns(given, width)
    of_new = to_new * (1 - new * new)
    parts = [
        (of_new * recurrent + to_reset) * reset * (1 - reset),
        to_update * update * (1 - update),
        of_new * reset + to_recurrent,
        of_new,
    ]
    return run.xp.concatenate(parts, -1)


def rnn(gs: Arrays, tensors: Arrays, sizes: Ints, reverse: bool, rectifies: bool, output: Array) -> Any:
    """Gradients of _rnn's tensors. gs: of its results."""
    run = _Sweep(gs, tensors, sizes, reverse, output, 1)
    xp, weight = run.xp, run.others[0]
    (carried,) = run.carried
    for block, rows in run.blocks(weight.shape[-1]):
        held = rows_of(run.output, rows)
        factors = (held > 0).astype(run.dtype) if rectifies else 1 - held * held
        for step, place in run.backwards(block, rows[0]):
            state, made = carried[..., : step[1], :], rows_of(run.given_rows, step)
            state += rows_of(run.arriving, step)
            xp.multiply(state, rows_of(factors, place), out=made)
            matrix_product(xp, made, weight, out=state)
        made = rows_of(run.given_rows, rows)
        run.add_product("weight", made, run.previous(run.output, run.first, block, rows[0]))
    return [run.given, *run.carried, *run.weights.values()]
