"""Rules: which instructions can be fused, and the values that each computes, in the order of operations of its op.

A rule exists for float32 and float64. All array operands have the result's dtype, or are bool where the rule says so.
Whatever a rule does not name is not fused: other dtypes, other argument values, other layouts of dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradwire_engine.compile.fusion import functions
from gradwire_engine.compile.fusion.form import F8, Loop
from gradwire_engine.compile.trace import Instr, NumRef, Ref, Reg

_FLOATS = {np.dtype(np.float32): "f4", np.dtype(np.float64): "f8"}
_BOOL = np.dtype(np.bool_)
_INTEGERS_EXACT = 1 << 24
_SMALLEST = 2  # elements
# The engine's normal CDF (ops/elementwise/activation.py): 1 / 2 + tanh(x P(x**2)) / 2.
_LOGIT = (1.75627757e-09, -1.32266283e-07, 3.96477321e-06, -5.53063171e-05, -3.25947439e-05, 0.0363330844, 0.797884941)
_DENSITY_SCALE = 1 / math.sqrt(2 * math.pi)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


class Lowering(Protocol):
    """What a rule needs of the group that its instruction is in."""

    loop: Loop
    dtype: str
    length: int
    size: int

    def read(self, item: Any) -> int:
        """The value of a register or number."""


Lower = Callable[["Lowering", Sequence[Any]], "int | tuple[int, ...]"]


@dataclass(frozen=True)
class Rule:
    """How to fuse one op or formula.

    arity: how many arguments are read; the others are literals. allowed: whether the literals are supported.
    bools: positions of bool arrays. columns: positions, and places among the outs, with one value per row.
    by_rows: "dim": the literal behind the arguments is the last dimension; "last": the count of the last dimensions;
        "all": one row has all elements; "": elementwise.
    heavy: worth a kernel of its own.
    """

    lower: Lower
    arity: int
    allowed: Callable[[Sequence[Any]], bool] = lambda rest: not rest
    bools: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    column_outs: tuple[int, ...] = ()
    by_rows: str = ""
    heavy: bool = False
    dtypes: tuple[str, ...] = ("f4", "f8")
    optional: tuple[int, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether its values have the same bits as without machine code: correctly rounded operations, no sums."""
        return not self.heavy and not self.by_rows


@dataclass(frozen=True)
class Fusible:
    """An instruction that can be fused: its rule, its elements' shape and the length of its rows (0: any)."""

    rule: Rule
    shape: tuple[int, ...]
    length: int
    dtype: str


def _is_number(item: Any) -> bool:
    if type(item) is int:
        return abs(item) < _INTEGERS_EXACT
    return type(item) in (float, NumRef)


def fusible(instr: Instr, regs: Sequence[Reg]) -> Fusible | None:
    """How an instruction can be fused; None if it cannot."""
    rule = RULES.get(_name(instr))
    if rule is None or type(instr.args) not in (tuple, list) or any(out < 0 for out in instr.outs):
        return None
    args = instr.args
    writes = instr.kind in ("write", "accumulate")
    if len(args) < rule.arity or not (writes or instr.outs):
        return None
    if writes and type(args[0]) is not Ref:
        return None
    result = regs[args[0]] if writes else regs[instr.outs[0]]
    dtype = _FLOATS.get(result.dtype)
    if dtype is None or dtype not in rule.dtypes:
        return None
    shapes = []
    for place, item in enumerate(args[: rule.arity]):
        if type(item) is Ref:
            if regs[item].dtype != (_BOOL if place in rule.bools else result.dtype):
                return None
            if place not in rule.columns:
                shapes.append(regs[item].shape)
        elif not (_is_number(item) or (item is None and place in rule.optional)):
            return None
    if not shapes or not rule.allowed(args[rule.arity :]):
        return None
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        return None
    if math.prod(shape) < _SMALLEST or result.shape != (() if rule.by_rows == "all" else shape):
        return None
    length = _row_length(rule, args, shape)
    if length is None or not _columns_fit(rule, instr, regs, math.prod(shape), length, result.dtype):
        return None
    return Fusible(rule, shape, length, dtype)


def _row_length(rule: Rule, args: Sequence[Any], shape: tuple[int, ...]) -> int | None:
    """The length of a rule's rows; 0 for elementwise rules, None if the rows are not the trailing dimensions."""
    if rule.by_rows == "dim":
        dim = args[rule.arity]
        return shape[-1] if type(dim) is int and dim in (-1, len(shape) - 1) else None
    if rule.by_rows == "last":
        last = args[rule.arity]
        return math.prod(shape[-last:]) if type(last) is int and 0 < last <= len(shape) else None
    if rule.by_rows == "all":
        return math.prod(shape)
    return 0


def _columns_fit(rule: Rule, instr: Instr, regs: Sequence[Reg], size: int, length: int, dtype: Any) -> bool:
    columns = [instr.args[place] for place in rule.columns]
    if any(type(item) is not Ref for item in columns):
        return False
    given = [int(item) for item in columns] + [instr.outs[place] for place in rule.column_outs]
    whole = [out for place, out in enumerate(instr.outs) if place not in rule.column_outs]
    shape = regs[whole[0]].shape if whole else None
    return all(regs[number].dtype == dtype and math.prod(regs[number].shape) * length == size for number in given) and (
        all(regs[number].shape == shape for number in whole)
    )


def _name(instr: Instr) -> str:
    if instr.kind == "op":
        return str(instr.what.name)
    if instr.kind == "formula":
        return f"{instr.what[0]}.grad.{instr.what[1]}"
    if instr.kind == "write":
        return f"{instr.what.name}_"
    return {"sum": "gradient_sum", "accumulate": "accumulate"}.get(instr.kind, "")


# Elementwise.


def _calls(op: str, swapped: bool = False) -> Lower:
    def lower(to: Lowering, args: Sequence[Any]) -> int:
        one, other = to.read(args[0]), to.read(args[1])
        return to.loop.binary(op, other, one) if swapped else to.loop.binary(op, one, other)

    return lower


def _unary(function: Callable[[Loop, int], int]) -> Lower:
    return lambda to, args: function(to.loop, to.read(args[0]))


def _scaled(op: str) -> Lower:
    """input + alpha * other."""

    def lower(to: Lowering, args: Sequence[Any]) -> int:
        one, other = to.read(args[0]), to.read(args[1])
        if not (type(args[2]) in (int, float) and args[2] == 1):
            other = to.loop.binary("mul", other, to.read(args[2]))
        return to.loop.binary(op, one, other)

    return lower


def _times_negative(to: Lowering, args: Sequence[Any]) -> int:
    """-alpha * g."""
    g = to.read(args[0])
    return to.loop.unary("neg", g if args[1] == 1 and type(args[1]) is not NumRef else _mul(to, g, to.read(args[1])))


def _mul(to: Lowering, *factors: int) -> int:
    made = factors[0]
    for factor in factors[1:]:
        made = to.loop.binary("mul", made, factor)
    return made


def _number(to: Lowering, value: float) -> int:
    return to.loop.const(value, to.dtype)


def _relu(to: Lowering, args: Sequence[Any]) -> int:
    x, zero = to.read(args[0]), _number(to, 0)
    positive = to.loop.select(to.loop.compare("gt", x, zero), x, zero)
    return to.loop.select(to.loop.compare("ne", x, x), x, positive)


def _relu_grad(to: Lowering, args: Sequence[Any]) -> int:
    g, zero = to.read(args[0]), _number(to, 0)
    return to.loop.select(to.loop.compare("ne", to.read(args[1]), zero), g, zero)


def _tanh_slope(to: Lowering, args: Sequence[Any]) -> int:
    g, y = to.read(args[0]), to.read(args[1])
    return _mul(to, g, to.loop.binary("sub", _number(to, 1), _mul(to, y, y)))


def _tanh_bend(to: Lowering, args: Sequence[Any]) -> int:
    h, g, y = map(to.read, args[:3])
    return _mul(to, h, g, y, _number(to, -2))


def _sigmoid_slope(to: Lowering, args: Sequence[Any]) -> int:
    g, y = to.read(args[0]), to.read(args[1])
    return _mul(to, g, _mul(to, to.loop.binary("sub", _number(to, 1), y), y))


def _square_slope(to: Lowering, args: Sequence[Any]) -> int:
    return _mul(to, to.read(args[0]), _mul(to, to.read(args[1]), _number(to, 2)))


def _sqrt_slope(to: Lowering, args: Sequence[Any]) -> int:
    return to.loop.binary("div", to.read(args[0]), _mul(to, _number(to, 2), to.read(args[1])))


def _where(to: Lowering, args: Sequence[Any]) -> int:
    return to.loop.select(to.read(args[0]), to.read(args[1]), to.read(args[2]))


def _where_grad(place: int) -> Lower:
    def lower(to: Lowering, args: Sequence[Any]) -> int:
        g, zero = to.read(args[0]), _number(to, 0)
        pair = (g, zero) if place == 1 else (zero, g)
        return to.loop.select(to.read(args[1]), *pair)

    return lower


def _doubled_cdf(to: Lowering, x: int) -> int:
    """1 + tanh(z) as 2 / (1 + exp(-2 z)), which is quicker and loses nothing where tanh is near -1."""
    inner = _mul(to, functions.polynomial(to.loop, _mul(to, x, x), _LOGIT), x)
    share = functions.exp(to.loop, _mul(to, inner, _number(to, -2)))
    return to.loop.binary("div", _number(to, 2), to.loop.binary("add", share, _number(to, 1)))


def _gelu(to: Lowering, args: Sequence[Any]) -> int:
    x = to.read(args[0])
    return _mul(to, _doubled_cdf(to, x), _mul(to, x, _number(to, 0.5)))


def _gelu_grad(to: Lowering, args: Sequence[Any]) -> int:
    g, x = to.read(args[0]), to.read(args[1])
    density = functions.exp(to.loop, _mul(to, _mul(to, x, x), _number(to, -0.5)))
    bent = _mul(to, density, _number(to, 2 * _DENSITY_SCALE), x)
    return _mul(to, to.loop.binary("add", _doubled_cdf(to, x), bent), _mul(to, g, _number(to, 0.5)))


def _silu(to: Lowering, args: Sequence[Any]) -> int:
    x = to.read(args[0])
    return _mul(to, x, functions.sigmoid(to.loop, x))


def _silu_grad(to: Lowering, args: Sequence[Any]) -> int:
    g, x, one = to.read(args[0]), to.read(args[1]), _number(to, 1)
    gate = functions.sigmoid(to.loop, x)
    slope = to.loop.binary("add", _mul(to, x, to.loop.binary("sub", one, gate)), one)
    return _mul(to, g, _mul(to, gate, slope))


def _logits_grad(to: Lowering, args: Sequence[Any]) -> int:
    g, x, target = _spread(to, args[0], args[5]), to.read(args[1]), to.read(args[2])
    return _mul(to, to.loop.binary("sub", functions.sigmoid(to.loop, x), target), g)


def _squared_grad(to: Lowering, args: Sequence[Any]) -> int:
    """(input - target) * (2 g), of a mean 2 g / size."""
    difference = to.loop.binary("sub", to.read(args[1]), to.read(args[2]))
    return _mul(to, difference, _mul(to, _spread(to, args[0], args[3]), _number(to, 2)))


def _spread(to: Lowering, g: Any, reduction: str) -> int:
    """The gradient of each loss, of the gradient of their sum or mean."""
    given = to.read(g)
    return to.loop.binary("div", given, _number(to, to.size)) if reduction == "mean" else given


def _addcmul(to: Lowering, args: Sequence[Any]) -> int:
    product = _mul(to, to.read(args[1]), to.read(args[2]), to.read(args[3]))
    return to.loop.binary("add", to.read(args[0]), product)


def _addcdiv(to: Lowering, args: Sequence[Any]) -> int:
    quotient = to.loop.binary("div", to.read(args[1]), to.read(args[2]))
    return to.loop.binary("add", to.read(args[0]), _mul(to, quotient, to.read(args[3])))


# By rows. Sums are computed in double precision.


def _sum(to: Lowering, value: int) -> int:
    """The sum of a row, in double precision."""
    return to.loop.reduce("sum", to.loop.cast(value, F8))


def _mean(to: Lowering, value: int) -> int:
    return to.loop.binary("div", _sum(to, value), to.loop.const(to.length, F8))


def _back(to: Lowering, value: int) -> int:
    return to.loop.cast(value, to.dtype)


def _shifted(to: Lowering, x: int) -> int:
    return to.loop.binary("sub", x, to.loop.reduce("max", x))


def _total(to: Lowering, value: int, reduction: str) -> int:
    """The sum or mean of all elements."""
    return _back(to, _sum(to, value) if reduction == "sum" else _mean(to, value))


def _whole(reduction: str) -> Lower:
    return lambda to, args: _total(to, to.read(args[0]), reduction)


def _squared_loss(to: Lowering, args: Sequence[Any]) -> int:
    difference = to.loop.binary("sub", to.read(args[0]), to.read(args[1]))
    return _total(to, _mul(to, difference, difference), args[2])


def _logits_loss(to: Lowering, args: Sequence[Any]) -> int:
    """(1 - target) * x + log(1 + exp(-x)), without overflow."""
    x, target, zero = to.read(args[0]), to.read(args[1]), _number(to, 0)
    negative = to.loop.unary("neg", x)
    share = functions.exp(to.loop, to.loop.unary("neg", to.loop.unary("abs", x)))
    above = to.loop.select(to.loop.compare("gt", negative, zero), negative, zero)
    softened = to.loop.binary("add", functions.log1p(to.loop, share), above)
    rest = _mul(to, to.loop.binary("sub", _number(to, 1), target), x)
    return _total(to, to.loop.binary("add", rest, softened), args[4])


def _softmax(to: Lowering, args: Sequence[Any]) -> int:
    share = functions.exp(to.loop, _shifted(to, to.read(args[0])))
    return to.loop.binary("div", share, _back(to, _sum(to, share)))


def _log_softmax(to: Lowering, args: Sequence[Any]) -> int:
    shifted = _shifted(to, to.read(args[0]))
    total = _sum(to, functions.exp(to.loop, shifted))
    return to.loop.binary("sub", shifted, _back(to, functions.log(to.loop, total)))


def _softmax_grad(to: Lowering, args: Sequence[Any]) -> int:
    g, y = to.read(args[0]), to.read(args[1])
    along = _sum(to, _mul(to, to.loop.cast(g, F8), to.loop.cast(y, F8)))
    return _mul(to, to.loop.binary("sub", g, _back(to, along)), y)


def _log_softmax_grad(to: Lowering, args: Sequence[Any]) -> int:
    g, y = to.read(args[0]), to.read(args[1])
    share = _mul(to, functions.exp(to.loop, y), _back(to, _sum(to, g)))
    return to.loop.binary("sub", g, share)


def _layer_norm(to: Lowering, args: Sequence[Any]) -> tuple[int, ...]:
    x = to.read(args[0])
    centre = _back(to, _mean(to, x))
    normal = to.loop.binary("sub", x, centre)
    eps = to.loop.cast(_number(to, args[4]), F8)
    # Squares in the result's dtype, as in the op: where they overflow, the rows are zero and not normalized.
    variance = to.loop.binary("add", _mean(to, _mul(to, normal, normal)), eps)
    scale = _back(to, to.loop.binary("div", to.loop.const(1, F8), to.loop.unary("sqrt", variance)))
    made = _mul(to, normal, scale)
    if args[1] is not None:
        made = _mul(to, made, to.read(args[1]))
    if args[2] is not None:
        made = to.loop.binary("add", made, to.read(args[2]))
    return made, centre, scale


def _layer_norm_grad(to: Lowering, args: Sequence[Any]) -> int:
    """(slope - mean(slope) - normal * mean(slope * normal)) * scale, where slope is g * weight."""
    g, x, centre, scale = (to.read(args[place]) for place in (0, 1, 3, 4))
    slope = g if args[2] is None else _mul(to, g, to.read(args[2]))
    normal = _mul(to, to.loop.binary("sub", x, centre), scale)
    added = _back(to, _mean(to, slope))
    along = _back(to, _mean(to, _mul(to, to.loop.cast(slope, F8), to.loop.cast(normal, F8))))
    made = to.loop.binary("sub", to.loop.binary("sub", slope, added), _mul(to, normal, along))
    return _mul(to, made, scale)


def _is_one(rest: Sequence[Any]) -> bool:
    return len(rest) == 1 and type(rest[0]) is int and rest[0] == 1


def _is(*literals: Any) -> Callable[[Sequence[Any]], bool]:
    return lambda rest: (
        len(rest) == len(literals)
        and all(type(item) is type(literal) and item == literal for item, literal in zip(rest, literals, strict=True))
    )


def _rows(rest: Sequence[Any]) -> bool:
    return len(rest) == 1 or (len(rest) == 2 and rest[1] is None)


def _reduces(unset: int) -> Callable[[Sequence[Any]], bool]:
    """Whether so many arguments are None, and then the reduction is a sum or mean."""
    return lambda rest: (
        len(rest) == unset + 1 and all(item is None for item in rest[:-1]) and rest[-1] in ("sum", "mean")
    )


_EXP = Rule(_unary(functions.exp), 1, heavy=True)
RULES: dict[str, Rule] = {
    "add": Rule(_scaled("add"), 3),
    "sub": Rule(_scaled("sub"), 3),
    "mul": Rule(_calls("mul"), 2),
    "div": Rule(_calls("div"), 2, _is(None)),
    "neg": Rule(_unary(lambda loop, x: loop.unary("neg", x)), 1),
    "exp": _EXP,
    "tanh": Rule(_unary(functions.tanh), 1, heavy=True),
    "log": Rule(_unary(functions.log), 1, heavy=True),
    "sqrt": Rule(_unary(lambda loop, x: loop.unary("sqrt", x)), 1),
    "square": Rule(_unary(lambda loop, x: loop.binary("mul", x, x)), 1),
    "sigmoid": Rule(_unary(functions.sigmoid), 1, heavy=True),
    "silu": Rule(_silu, 1, heavy=True),
    "relu": Rule(_relu, 1),
    "gelu": Rule(_gelu, 1, _is("none"), heavy=True, dtypes=("f4",)),
    "where": Rule(_where, 3, bools=(0,), heavy=True),
    "softmax": Rule(_softmax, 1, _rows, by_rows="dim", heavy=True),
    "log_softmax": Rule(_log_softmax, 1, _rows, by_rows="dim", heavy=True),
    "_layer_norm": Rule(
        _layer_norm, 3, lambda rest: len(rest) == 2 and type(rest[1]) is float, column_outs=(1, 2), by_rows="last",
        heavy=True, optional=(1, 2),
    ),
    "sum": Rule(_whole("sum"), 1, _is(None, False, None), column_outs=(0,), by_rows="all"),
    "mean": Rule(_whole("mean"), 1, _is(None, False, None), column_outs=(0,), by_rows="all"),
    "_mse_loss": Rule(_squared_loss, 2, _reduces(0), column_outs=(0,), by_rows="all", heavy=True),
    "_bce_with_logits": Rule(_logits_loss, 2, _reduces(2), column_outs=(0,), by_rows="all", heavy=True),
    "_tanh_backward": Rule(_tanh_slope, 2),
    "_sigmoid_backward": Rule(_sigmoid_slope, 2),
    # Formulas of gradients.
    "sub.grad.other": Rule(_times_negative, 2),
    "mul.grad.input": Rule(_calls("mul"), 2),
    "mul.grad.other": Rule(_calls("mul"), 2),
    "div.grad.input": Rule(_calls("div"), 2, _is(None)),
    "neg.grad.input": Rule(_unary(lambda loop, x: loop.unary("neg", x)), 1),
    "exp.grad.input": Rule(_calls("mul"), 2),
    "log.grad.input": Rule(_calls("div"), 2),
    "sqrt.grad.input": Rule(_sqrt_slope, 2),
    "square.grad.input": Rule(_square_slope, 2),
    "tanh.grad.input": Rule(_tanh_slope, 2),
    "_tanh_backward.grad.g": Rule(_tanh_slope, 2),
    "_tanh_backward.grad.out": Rule(_tanh_bend, 3),
    "sigmoid.grad.input": Rule(_sigmoid_slope, 2),
    "_sigmoid_backward.grad.g": Rule(_sigmoid_slope, 2),
    "silu.grad.input": Rule(_silu_grad, 2, heavy=True),
    "relu.grad.input": Rule(_relu_grad, 2, heavy=True),
    "gelu.grad.input": Rule(_gelu_grad, 2, _is("none"), heavy=True, dtypes=("f4",)),
    "where.grad.input": Rule(_where_grad(1), 2, bools=(1,)),
    "where.grad.other": Rule(_where_grad(2), 2, bools=(1,)),
    "softmax.grad.input": Rule(_softmax_grad, 2, _rows, by_rows="dim", heavy=True),
    "log_softmax.grad.input": Rule(_log_softmax_grad, 2, _rows, by_rows="dim", heavy=True),
    "_layer_norm.grad.input": Rule(
        _layer_norm_grad, 5, lambda rest: len(rest) == 2, columns=(3, 4), by_rows="last", heavy=True, optional=(2,),
    ),
    "_bce_with_logits.grad.input": Rule(_logits_grad, 3, _reduces(2), heavy=True),
    "_mse_loss.grad.input": Rule(_squared_grad, 3, _reduces(0), heavy=True),
    "gradient_sum": Rule(_calls("add"), 2),
    # In-place ops.
    "accumulate": Rule(_calls("add"), 2),
    "add_": Rule(_scaled("add"), 3),
    "sub_": Rule(_scaled("sub"), 3),
    "mul_": Rule(_calls("mul"), 2),
    "addcmul_": Rule(_addcmul, 4),
    "addcdiv_": Rule(_addcdiv, 4),
}  # fmt: skip
