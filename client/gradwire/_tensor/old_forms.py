"""Old forms: calls in PyTorch's former order of arguments, and `scatter(reduce=)`."""

from __future__ import annotations

from typing import Any

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._proxy.handle import Handle
from gradwire._tensor.call import _call
from gradwire._tensor.out import _into
from gradwire._tensor.warnings import warn_once

_FACTOR = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}
_REDUCTIONS = ("add", "multiply")


def _factor_first(name: str, args: tuple[Any, ...], out: Any = None) -> Any:
    """An op with its factors before the tensors that they multiply: add(input, alpha, other).

    addmm and its like have `beta` before the input, or behind it for methods, and `alpha` before the matrices or not.
    """
    tensors, numbers = _divided(name.rstrip("_"), args)
    named = _FACTOR.get(name.rstrip("_"))
    if named is None:
        keys = ("beta", "alpha")[: len(numbers)]
        count = 3
    else:
        keys = (named,)
        count = 2 if named == "alpha" else 3
    if len(tensors) != count or len(keys) != len(numbers):
        raise GradwireTypeError(f"{name}() received an invalid combination of arguments")
    warn_once(
        f"This overload of {name} is deprecated. Give the factors by name, behind the tensors: {', '.join(keys)}."
    )
    made = _call(name, tuple(tensors), tuple(zip(keys, numbers, strict=True)))
    return made if out is None else _into(name, out, made, tuple(tensors))


def _divided(op: str, args: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """The tensors of a call, and its factors. A number behind the factors of add and sub is an operand."""
    if op in ("add", "sub"):
        return [args[0], *args[2:]], [args[1]]
    tensors = [each for each in args if isinstance(each, Handle)]
    return tensors, [each for each in args if not isinstance(each, Handle)]


def _scatter_reduced(name: str, input: Any, dim: int, index: Any, src: Any, value: Any, reduce: str) -> Any:
    """`scatter` with `reduce`: "add" or "multiply" the values to the elements at the indices."""
    if reduce not in _REDUCTIONS:
        raise refuse("reduce argument must be either add or multiply.")
    given = src if value is None else value
    if not isinstance(given, Handle):
        given = _call("full_like", (index, given), (("dtype", input.dtype),))
    suffix = "_" if name.endswith("_") else ""
    if reduce == "add":
        return _call(f"scatter_add{suffix}", (input, dim, index, given))
    return _call(f"scatter_reduce{suffix}", (input, dim, index, given, "prod"), (("include_self", True),))
