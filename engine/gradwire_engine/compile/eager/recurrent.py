"""The loops of a recurrent layer's steps: a row per sequence, gates beside each other. Operands are strided rows.

ops/nn/recurrent/ runs them, one call per step, and multiplies by the recurrent weights between the calls. A loop's
first result overwrites what it reads last: the values that are carried from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradwire_engine.compile.fusion import functions
from gradwire_engine.compile.fusion.form import STRIDED, Loop

Values = Sequence[int]


class _Formula:
    """Arithmetic on a loop's values."""

    def __init__(self, loop: Loop, dtype: str) -> None:
        self.loop, self.dtype = loop, dtype

    def add(self, one: int, other: int) -> int:
        return self.loop.binary("add", one, other)

    def sub(self, one: int, other: int) -> int:
        return self.loop.binary("sub", one, other)

    def mul(self, one: int, *factors: int) -> int:
        for factor in factors:
            one = self.loop.binary("mul", one, factor)
        return one

    def rest(self, value: int) -> int:
        """1 - value."""
        return self.sub(self.loop.const(1, self.dtype), value)

    def sigmoid(self, value: int) -> int:
        return functions.sigmoid(self.loop, value)

    def tanh(self, value: int) -> int:
        return functions.tanh(self.loop, value)

    def slope(self, sigmoid: int) -> int:
        """The derivative of a sigmoid, from its value."""
        return self.mul(self.rest(sigmoid), sigmoid)

    def bend(self, tanh: int) -> int:
        """The derivative of tanh, from its value."""
        return self.rest(self.mul(tanh, tanh))


def _lstm(to: _Formula, read: Values) -> Values:
    """Cells; gates, cells, and hidden states twice. Reads the gates' recurrent and input part, and cells before."""
    inward, forget, new, out = (to.add(one, other) for one, other in zip(read[:4], read[4:8], strict=True))
    inward, forget, new, out = to.sigmoid(inward), to.sigmoid(forget), to.tanh(new), to.sigmoid(out)
    cell = to.add(to.mul(read[8], forget), to.mul(inward, new))
    hidden = to.mul(to.tanh(cell), out)
    return cell, inward, forget, new, out, cell, hidden, hidden


def _lstm_backward(to: _Formula, read: Values) -> Values:
    """Gradients of the cells before, and of what the gates are made of.

    Reads gates, cells, cells before, and gradients: of the hidden states, and of the cells.
    """
    inward, forget, new, out, cell, before, carried, arriving, of_cell = read
    whole, wound = to.add(carried, arriving), to.tanh(cell)
    of_cell = to.add(of_cell, to.mul(whole, to.mul(to.bend(wound), out)))
    return (
        to.mul(of_cell, forget),
        to.mul(of_cell, to.mul(to.slope(inward), new)),
        to.mul(of_cell, to.mul(to.slope(forget), before)),
        to.mul(of_cell, to.mul(to.bend(new), inward)),
        to.mul(whole, to.mul(to.slope(out), wound)),
    )


def _gru(to: _Formula, read: Values) -> Values:
    """States; gates, the new gate's recurrent part, states again. Reads the gates' two parts, and states before."""
    reset, update = (to.sigmoid(to.add(read[place], read[3 + place])) for place in (0, 1))
    new = to.tanh(to.add(to.mul(reset, read[2]), read[5]))
    state = to.add(to.mul(to.sub(read[6], new), update), new)
    return state, reset, update, new, read[2], state


def _gru_backward(to: _Formula, read: Values) -> Values:
    """Gradients of states before, and of what the gates are made of: reset, update, the new gate's recurrent part, new.

    Reads gates, the new gate's recurrent part, states before, and gradients of states. The first result lacks what
    arrives through the recurrent weights.
    """
    reset, update, new, recurrent, before, arriving, carried = read
    whole = to.add(carried, arriving)
    of_new = to.mul(to.bend(new), to.rest(update))
    return (
        to.mul(whole, update),
        to.mul(whole, to.mul(to.slope(reset), of_new, recurrent)),
        to.mul(whole, to.mul(to.slope(update), to.sub(before, new))),
        to.mul(whole, to.mul(of_new, reset)),
        to.mul(whole, of_new),
    )


@dataclass(frozen=True)
class _Step:
    """How many operands a loop reads, and its results."""

    reads: int
    formula: Callable[[_Formula, Values], Values]


STEPS = {
    "lstm_step": _Step(9, _lstm),
    "lstm_step_backward": _Step(9, _lstm_backward),
    "gru_step": _Step(7, _gru),
    "gru_step_backward": _Step(7, _gru_backward),
}


def loop_of(name: str, dtype: str) -> Loop:
    """The loop of a step."""
    step, loop = STEPS[name], Loop()
    operands = [loop.operand(dtype, STRIDED) for _ in range(step.reads)]
    updated, *others = step.formula(_Formula(loop, dtype), [loop.load(each) for each in operands])
    loop.store(operands[-1], updated)
    for value in others:
        loop.store(loop.operand(dtype, STRIDED), value)
    return loop
