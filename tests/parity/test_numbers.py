"""Python numbers that become elements, or factors of them: what a dtype cannot take is refused, as in PyTorch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

import gradwire_engine as engine  # noqa: E402
from gradwire_engine.core import dtypes  # noqa: E402
from gradwire_engine.core.errors import EngineError  # noqa: E402

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")
VALUES = (
    True, 0, -1, 1, 127, 128, 255, 256, -128, -129, 300, -300, 32768, -32769, 2**31, -(2**31) - 1, 2**62, -(2**63),
    -1.5, -0.5, 0.5, 1.9, 255.5, 127.5, 300.7, -128.5, 1e5, 1e20, 1e39, math.inf, -math.inf, math.nan,
)  # fmt: skip
MASK, PLACE = np.array([True, False, True]), np.array([1])


def _both(name: str, *places: Any, **named: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The call on either side; "x" stands for the tensor, "v" for the number, arrays for tensors of them."""

    def ours(x: Any, v: Any) -> Any:
        fill = lambda one: x if one is X else v if one is V else engine.tensor(one) if hasattr(one, "dtype") else one  # noqa: E731
        return engine.call(name, [fill(one) for one in places], {key: fill(one) for key, one in named.items()})

    def theirs(x: Any, v: Any) -> Any:
        fill = lambda one: x if one is X else v if one is V else torch.tensor(one) if hasattr(one, "dtype") else one  # noqa: E731
        function = getattr(torch, name, None) or getattr(torch.nn.functional, name, None) or getattr(torch.Tensor, name)
        return function(*map(fill, places), **{key: fill(one) for key, one in named.items()})

    return ours, theirs


X, V = object(), object()
CALLS = {
    "fill_": _both("fill_", X, V),
    "full_like": _both("full_like", X, V),
    "masked_fill": _both("masked_fill", X, MASK, V),
    "masked_fill_": _both("masked_fill_", X, MASK, V),
    "index_fill": _both("index_fill", X, 0, PLACE, V),
    "index_fill_": _both("index_fill_", X, 0, PLACE, V),
    "scatter": _both("scatter", X, 0, PLACE, V),
    "threshold": _both("threshold", X, 0, V),
    "add": _both("add", X, V),
    "alpha": _both("add", X, X, alpha=V),
    "mul": _both("mul", X, V),
    "addcmul": _both("addcmul", X, X, X, value=V),
    "clamp": _both("clamp", X, min=V),
    "pow": _both("pow", X, V),
    "lt": _both("lt", X, V),
    "item": (
        lambda x, v: engine.call("setitem_", [x, (1,), v]),
        lambda x, v: torch.Tensor.__setitem__(x, 1, v) or x,
    ),
    "masked item": (
        lambda x, v: engine.call("setitem_", [x, (engine.tensor(MASK),), v]),
        lambda x, v: torch.Tensor.__setitem__(x, torch.tensor(MASK), v) or x,
    ),
}
# By call: in which dtypes which kind of difference is left, and why.
_WIDE = "computed in PyTorch's wider type, and infinite here where that is"
KNOWN: dict[str, tuple[tuple[str, ...], str]] = {
    "item": (("float16", "bfloat16", "float32", "complex64"), "refused, infinite in PyTorch"),
    "masked item": (("float16", "bfloat16", "float32", "complex64"), "refused, infinite in PyTorch"),
    "alpha": (("bool", "float16", "bfloat16", "float32", "complex64"), _WIDE + "; of bools a number counts as whole"),
    "add": (("complex64",), "PyTorch adds a complex infinity, whose imaginary part is nan"),
    "mul": (("float16", "complex64"), _WIDE),
    "addcmul": (("float16", "bfloat16", "float32", "complex64"), _WIDE),
    "clamp": (("bool", "uint8", "int8", "int16", "int32", "int64", "float32"), "a bound beyond float32 is infinite"),
    "pow": (("bool", "float16", "bfloat16", "float32", "complex64"), "an exponent beyond the dtype is infinite"),
}


@pytest.mark.parametrize("name", CALLS)
def test_numbers_that_do_not_fit_a_dtype_are_refused_as_pytorch_does(name: str) -> None:
    """Whether it answers, the dtype, and the values; never a number that wrapped where PyTorch refuses it."""
    ours, theirs = CALLS[name]
    different = []
    for dtype in DTYPES:
        for value in VALUES:
            what = _difference(ours, theirs, dtype, value)
            if what and dtype not in KNOWN.get(name, ((), ""))[0]:
                different.append(f"{dtype} {value!r}: {what}")
    assert not different, "\n".join(different)


def _difference(ours: Callable[..., Any], theirs: Callable[..., Any], dtype: str, value: Any) -> str:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            its = theirs(torch.tensor([1, 0, 1]).to(getattr(torch, dtype)), value)
        except (RuntimeError, TypeError, IndexError) as error:
            its = error
        try:
            mine = ours(engine.tensor(np.array([1, 0, 1]).astype(dtypes.BY_NAME[dtype])), value)
        except EngineError as error:
            return "" if isinstance(its, Exception) else f"refused: {error}"
        if isinstance(its, Exception):
            return f"answered, PyTorch raises {its}"
        if str(its.dtype) != f"torch.{dtypes.name_of(mine.dtype)}":
            return f"{dtypes.name_of(mine.dtype)}, PyTorch has {its.dtype}"
        wide = torch.complex128 if its.dtype.is_complex else torch.float64 if its.dtype.is_floating_point else its.dtype
        one, other = mine.array, its.to(wide).numpy()
        one = one if one.dtype.kind in "iub" else one.astype(other.dtype)
        same = np.isclose(one, other, rtol=1e-2 if "16" in dtype else 1e-5, equal_nan=True)
        return "" if same.all() else f"{one.tolist()}, PyTorch has {other.tolist()}"
