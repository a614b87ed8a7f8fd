"""The loops of eager ops: their operands, and the values that they compute, by the rules of fused plans where possible.

A loop's name is what an op asks for (ops/base/loops.py). Row lengths are operands, so one loop serves all shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradwire_engine.compile.eager import normal, recurrent
from gradwire_engine.compile.fusion import batch_norm, functions, rules
from gradwire_engine.compile.fusion.form import COLUMN, F4, F8, SCALAR, TILE, WHOLE, Loop

# How a letter of a form's operands is indexed; "n" is the row's length, in double precision.
_INDICES = {"w": WHOLE, "t": TILE, "c": COLUMN, "s": SCALAR, "n": SCALAR}


class _Given(int):
    """An operand of a form, where a rule expects an argument or a literal."""


class _FormLoop(Loop):
    """A loop whose literals may be operands."""

    def const(self, number: Any, dtype: str) -> int:
        """A constant, or what an operand holds."""
        return self.load(int(number)) if type(number) is _Given else super().const(number, dtype)


class _Lowering:
    """What a rule needs of the loop that is built."""

    def __init__(self, loop: Loop, dtype: str, length: int) -> None:
        self.loop, self.dtype, self.length, self.size = loop, dtype, length, length

    def read(self, item: Any) -> int:
        """The value of an operand."""
        return self.loop.load(int(item))


Lower = Callable[[Any, Sequence[Any]], "int | tuple[int, ...]"]


@dataclass(frozen=True)
class Form:
    """A loop's operands, a letter each, and its values. lower: gets a lowering and the operands that it reads.

    in_place: whether the first operand is overwritten.
    """

    reads: str
    writes: str
    lower: Lower
    dtypes: tuple[str, ...] = (F4, F8)
    in_place: bool = False

    def loop(self, dtype: str) -> Loop:
        """The loop for a dtype."""
        loop = _FormLoop()
        given = [_Given(loop.operand(F8 if letter == "n" else dtype, _INDICES[letter])) for letter in self.reads]
        lengths = [each for each, letter in zip(given, self.reads, strict=True) if letter == "n"]
        made = self.lower(_Lowering(loop, dtype, lengths[0] if lengths else 0), given)
        values = made if isinstance(made, tuple) else (made,)
        if self.in_place:
            loop.store(given[0], values[0])
        for letter, value in zip(self.writes, values[self.in_place :], strict=True):
            loop.store(loop.operand(dtype, _INDICES[letter]), value)
        return loop


def _rule(name: str, *literals: Any) -> Lower:
    """The values of a fused plan's rule."""
    return lambda to, given: rules.RULES[name].lower(to, [*given, *literals])


def _number(to: Any, value: float) -> int:
    return int(to.loop.const(value, to.dtype))


def _mul(to: Any, *factors: int) -> int:
    return functools.reduce(lambda one, other: int(to.loop.binary("mul", one, other)), factors)


def _tanh_inner(to: Any, x: int) -> tuple[int, int]:
    """1 + tanh(inner) of gelu's approximation, as 2 / (1 + exp(-2 inner)), and the square of x."""
    square = _mul(to, x, x)
    cubic = to.loop.binary(
        "add", _mul(to, square, _number(to, rules._TANH_CUBE * rules._TANH_SCALE)), _number(to, rules._TANH_SCALE)
    )
    share = functions.exp(to.loop, _mul(to, _mul(to, cubic, x), _number(to, -2)))
    return to.loop.binary("div", _number(to, 2), to.loop.binary("add", share, _number(to, 1))), square


def _gelu_tanh(to: Any, given: Sequence[Any]) -> int:
    x = to.read(given[0])
    return _mul(to, _tanh_inner(to, x)[0], _mul(to, x, _number(to, 0.5)))


def _gelu_tanh_grad(to: Any, given: Sequence[Any]) -> int:
    """g / 2 * (y + x * y * (2 - y) * inner'), where y is 1 + tanh(inner)."""
    g, x = to.read(given[0]), to.read(given[1])
    y, square = _tanh_inner(to, x)
    inner_slope = to.loop.binary(
        "add", _mul(to, square, _number(to, 3 * rules._TANH_CUBE * rules._TANH_SCALE)), _number(to, rules._TANH_SCALE)
    )
    bent = _mul(to, y, to.loop.binary("sub", _number(to, 2), y), inner_slope, x)
    return _mul(to, to.loop.binary("add", y, bent), _mul(to, g, _number(to, 0.5)))


def _softplus(to: Any, given: Sequence[Any]) -> int:
    """log(1 + exp(x * beta)) / beta, x itself where x * beta > threshold. given: x, beta, threshold."""
    x, beta, threshold = map(to.read, given)
    scaled = _mul(to, x, beta)
    above = to.loop.compare("gt", scaled, threshold)
    soft = functions.log1p(to.loop, functions.exp(to.loop, to.loop.select(above, threshold, scaled)))
    return int(to.loop.select(above, x, to.loop.binary("div", soft, beta)))


def _softplus_grad(to: Any, given: Sequence[Any]) -> int:
    g, x, beta, threshold = map(to.read, given)
    scaled = _mul(to, x, beta)
    above = to.loop.compare("gt", scaled, threshold)
    return int(to.loop.select(above, g, _mul(to, g, functions.sigmoid(to.loop, scaled))))


# erf and erfc in single precision, by the Cephes library: x T(x**2) near 0; else exp(-x**2) / x P(1 / x**2).
_ERF_NEAR = (
    7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2, 1.128358514861418e-1,
    -3.761262582423300e-1, 1.128379165726710,
)  # fmt: skip
_ERFC_MIDDLE = (
    2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1, 6.210004621745983e-1,
    -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1,
)  # fmt: skip


def _erf(to: Any, given: Sequence[Any]) -> int:
    """erf of float32 values. Beyond 4, where it rounds to 1, the tail is that at 4."""
    x, loop = to.read(given[0]), to.loop
    one, most = _number(to, 1), _number(to, 4)
    size = loop.unary("abs", x)
    near = _mul(to, functions.polynomial(loop, _mul(to, x, x), _ERF_NEAR), x)
    capped = loop.select(loop.compare("gt", size, most), most, size)
    inverse = loop.binary("div", one, loop.select(loop.compare("lt", capped, one), one, capped))
    tail = functions.polynomial(loop, _mul(to, inverse, inverse), _ERFC_MIDDLE)
    share = functions.exp(loop, loop.unary("neg", _mul(to, capped, capped)))
    far = loop.binary("sub", one, _mul(to, share, inverse, tail))
    far = loop.select(loop.compare("lt", x, _number(to, 0)), loop.unary("neg", far), far)
    return int(loop.select(loop.compare("gt", size, one), far, near))


def _erf_grad(to: Any, given: Sequence[Any]) -> int:
    g, x = to.read(given[0]), to.read(given[1])
    share = functions.exp(to.loop, to.loop.unary("neg", _mul(to, x, x)))
    return _mul(to, g, _mul(to, share, _number(to, 1.1283791670955126)))


def _layer_norm(weighted: bool, biased: bool) -> Form:
    """Output, means and scales. Reads rows, weight, bias, row length, eps."""

    def lower(to: Any, given: Sequence[Any]) -> Any:
        weight, bias = given[1] if weighted else None, given[1 + weighted] if biased else None
        return rules.RULES["_layer_norm"].lower(to, [given[0], weight, bias, None, given[-1]])

    return Form("w" + "t" * (weighted + biased) + "ns", "wcc", lower)


def _layer_norm_grad(weighted: bool) -> Form:
    """The input's gradient. Reads g, rows, weight, means, scales, row length."""

    def lower(to: Any, given: Sequence[Any]) -> Any:
        weight = given[2] if weighted else None
        return rules.RULES["_layer_norm.grad.input"].lower(to, [given[0], given[1], weight, *given[-3:-1]])

    return Form("ww" + "t" * weighted + "ccn", "w", lower)


FORMS: dict[str, Form] = {
    "gelu": Form("w", "w", _rule("gelu", "none"), (F4,)),
    "gelu_backward": Form("ww", "w", _rule("gelu.grad.input", "none"), (F4,)),
    "gelu_tanh": Form("w", "w", _gelu_tanh),
    "gelu_tanh_backward": Form("ww", "w", _gelu_tanh_grad),
    "silu": Form("w", "w", _rule("silu")),
    "silu_backward": Form("ww", "w", _rule("silu.grad.input")),
    "sigmoid": Form("w", "w", _rule("sigmoid")),
    "sigmoid_backward": Form("ww", "w", _rule("sigmoid.grad.input")),
    "tanh": Form("w", "w", _rule("tanh")),
    "exp": Form("w", "w", _rule("exp")),
    "log": Form("w", "w", _rule("log")),
    "tanh_backward": Form("ww", "w", _rule("tanh.grad.input")),
    "relu": Form("w", "w", _rule("relu")),
    "relu_backward": Form("ww", "w", _rule("relu.grad.input")),
    "softplus": Form("wss", "w", _softplus),
    "softplus_backward": Form("wwss", "w", _softplus_grad),
    "erf": Form("w", "w", _erf, (F4,)),
    "erf_backward": Form("ww", "w", _erf_grad, (F4,)),
    "softmax": Form("w", "w", _rule("softmax")),
    "softmax_backward": Form("ww", "w", _rule("softmax.grad.input")),
    "log_softmax": Form("w", "w", _rule("log_softmax")),
    "log_softmax_backward": Form("ww", "w", _rule("log_softmax.grad.input")),
    **{
        f"layer_norm{'_weight' * weighted}{'_bias' * biased}": _layer_norm(weighted, biased)
        for weighted in (False, True)
        for biased in (False, True)
    },
    "layer_norm_backward": _layer_norm_grad(False),
    "layer_norm_backward_weight": _layer_norm_grad(True),
    "bce_with_logits": Form("ww", "c", _rule("_bce_with_logits", None, None, "sum")),
    "bce_with_logits_backward": Form("wws", "w", lambda to, given: _bce_grad(to, given)),
    "mse_backward": Form("wws", "w", lambda to, given: _mse_grad(to, given)),
}


def _bce_grad(to: Any, given: Sequence[Any]) -> int:
    """(sigmoid(x) - target) * share."""
    x, target, share = map(to.read, given)
    return _mul(to, to.loop.binary("sub", functions.sigmoid(to.loop, x), target), share)


def _mse_grad(to: Any, given: Sequence[Any]) -> int:
    """(input - target) * share."""
    x, target, share = map(to.read, given)
    return _mul(to, to.loop.binary("sub", x, target), share)


#: Loops of batch normalization, as the part of the name after "batch_norm_", and whether a bias is added.
BATCH_NORM = {
    "total": ("total", False),
    "squares": ("squares", False),
    "apply": ("apply", False),
    "apply_bias": ("apply", True),
    "dots": ("dots", False),
    "slope": ("slope", False),
}


def loop_of(name: str, dtype: str) -> Loop | None:
    """A loop by its name; None if there is none for a dtype."""
    if name == "normal":
        return normal.loop() if dtype == F4 else None
    part = name.removeprefix("batch_norm_")
    if part in BATCH_NORM and name != part:
        return batch_norm.loop_of(BATCH_NORM[part][0], dtype, BATCH_NORM[part][1])
    if name in recurrent.STEPS:
        return recurrent.loop_of(name, dtype)
    form = FORMS[name]
    return form.loop(dtype) if dtype in form.dtypes else None


# On GPUs only. Rows may lie across the operands: a channel of all images, a column of a matrix.


def _channel_norm(weighted: bool, biased: bool) -> Form:
    """Output, means, scales and variances. Reads rows, weight and bias per row, row length, eps."""

    def lower(to: Any, given: Sequence[Any]) -> Any:
        x, one = to.read(given[0]), _number(to, 1)
        centre = rules._back(to, rules._mean(to, x))
        normal = to.loop.binary("sub", x, centre)
        variance = rules._back(to, rules._mean(to, _mul(to, normal, normal)))
        scale = to.loop.binary("div", one, to.loop.unary("sqrt", to.loop.binary("add", variance, to.read(given[-1]))))
        made = _mul(to, normal, _mul(to, scale, to.read(given[1])) if weighted else scale)
        if biased:
            made = to.loop.binary("add", made, to.read(given[1 + weighted]))
        return made, centre, scale, variance

    return Form("w" + "c" * (weighted + biased) + "ns", "wccc", lower)


def _channel_norm_grad(weighted: bool) -> Form:
    """The input's gradient. Reads g, rows, weight per row, means, scales, row length."""
    form = _layer_norm_grad(weighted)
    return Form(form.reads.replace("t", "c"), form.writes, form.lower)


def _row_sum(to: Any, given: Sequence[Any]) -> int:
    return rules._back(to, rules._sum(to, to.read(given[0])))


def _row_dots(to: Any, given: Sequence[Any]) -> int:
    """The sum of g * (x - centre) * scale along a row."""
    g, x, centre, scale = map(to.read, given)
    normal = _mul(to, to.loop.binary("sub", x, centre), scale)
    return rules._back(to, rules._sum(to, _mul(to, to.loop.cast(g, F8), to.loop.cast(normal, F8))))


def _running(to: Any, given: Sequence[Any]) -> int:
    """running * kept + fresh * share."""
    running, fresh, kept, share = map(to.read, given)
    return int(to.loop.binary("add", _mul(to, running, kept), _mul(to, fresh, share)))


_GPU_FORMS: dict[str, Form] = {
    **{
        f"channel_norm{'_weight' * weighted}{'_bias' * biased}": _channel_norm(weighted, biased)
        for weighted in (False, True)
        for biased in (False, True)
    },
    "channel_norm_backward": _channel_norm_grad(False),
    "channel_norm_backward_weight": _channel_norm_grad(True),
    "row_sum": Form("w", "c", _row_sum),
    "channel_dots": Form("wwcc", "c", _row_dots),
    "column_dots": Form("wwtt", "c", _row_dots),
    "running": Form("wwss", "w", _running),
    "add_scaled_": Form("wws", "", _rule("add"), in_place=True),
    "addcmul": Form("wwws", "w", _rule("addcmul_")),
    "addcdiv": Form("wwws", "w", _rule("addcdiv_")),
}


def gpu_loop_of(name: str, dtype: str) -> Loop | None:
    """A loop of a GPU by its name; None if there is none for a dtype."""
    form = _GPU_FORMS.get(name) or FORMS.get(name)
    return form.loop(dtype) if form is not None and dtype in form.dtypes else None
