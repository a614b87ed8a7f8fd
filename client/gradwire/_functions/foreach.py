"""torch._foreach_*: an op applied to each of a list of tensors, which optimizers call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

_UNARY = frozenset(
    {
        *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac"),
        *("lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin"),
        *("sinh", "sqrt", "tan", "tanh", "trunc"),
    }
)
_BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min"]
_POINTWISE = ["addcmul", "addcdiv"]
_PREFIX = "_foreach_"


def _per_tensor(given: Any, count: int) -> Sequence[Any]:
    """One value per tensor: of a list, or the same value for all. Raises RuntimeError for a list of another length."""
    if not isinstance(given, (list, tuple)):
        return [given] * count
    if len(given) != count:
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(given)}")
    return given


def _limit(name: str, tensor: Tensor, other: Any) -> Tensor:
    """Maximum or minimum with a tensor or a number."""
    if isinstance(other, Tensor):
        made: Tensor = ops.maximum(tensor, other) if name in ("maximum", "clamp_min") else ops.minimum(tensor, other)
        return made
    is_lower = name in ("maximum", "clamp_min")
    limited: Tensor = tensor.clamp(min=other) if is_lower else tensor.clamp(max=other)
    return limited


def _binary(name: str, tensor: Tensor, other: Any, alpha: Any) -> Tensor:
    if name in ("add", "sub"):
        made: Tensor = getattr(tensor, name)(other, alpha=alpha)
        return made
    if name in ("mul", "div"):
        scaled: Tensor = getattr(tensor, name)(other)
        return scaled
    return _limit(name, tensor, other)


def _results(name: str) -> Callable[..., Iterable[Tensor]] | None:
    """The function without its prefix and final underscore; None for an unknown name.

    It computes each result when it is asked for: in place, the ones before are written then. Tensors may share memory.
    """
    if name in _UNARY:
        return lambda tensors: (getattr(each, name)() for each in tensors)
    if name in _BINARY:

        def binary(tensors: Sequence[Tensor], other: Any, *, alpha: Any = 1) -> Iterable[Tensor]:
            others = _per_tensor(other, len(tensors))
            return (_binary(name, each, second, alpha) for each, second in zip(tensors, others, strict=True))

        return binary
    if name in _POINTWISE:

        def pointwise(
            tensors: Sequence[Tensor],
            first: Sequence[Tensor],
            second: Sequence[Tensor],
            value: Any = 1,
            scalars: Any = None,
        ) -> Iterable[Tensor]:
            numbers = value if scalars is None else scalars
            values = numbers.tolist() if isinstance(numbers, Tensor) and numbers.dim() else numbers
            lists = [_per_tensor(each, len(tensors)) for each in (first, second, values)]
            parts = zip(tensors, *lists, strict=True)
            return (getattr(a, name)(b, c, value=float(number)) for a, b, c, number in parts)

        return pointwise
    return _OTHERS.get(name)


def _lerp(tensors: Sequence[Tensor], ends: Sequence[Tensor], weight: Any) -> Iterable[Tensor]:
    others = [_per_tensor(each, len(tensors)) for each in (ends, weight)]
    return (ops.lerp(a, b, w) for a, b, w in zip(tensors, *others, strict=True))


def _pow(tensors: Any, exponent: Any) -> Iterable[Tensor]:
    if isinstance(tensors, (int, float)):
        return (ops.pow(tensors, each) for each in exponent)
    return (ops.pow(each, e) for each, e in zip(tensors, _per_tensor(exponent, len(tensors)), strict=True))


def _norm(tensors: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> Iterable[Tensor]:
    return (ops.linalg_vector_norm(each, ord, dtype=dtype) for each in tensors)


_OTHERS: dict[str, Callable[..., Iterable[Tensor]]] = {
    "lerp": _lerp,
    "pow": _pow,
    "norm": _norm,
    "max": lambda tensors: (each.max() for each in tensors),
    "clone": lambda tensors: (each.clone() for each in tensors),
    "copy": lambda tensors, sources, non_blocking=False: _per_tensor(sources, len(tensors)),
    "zero": lambda tensors: (ops.zeros_like(each) for each in tensors),
}


def grouped(tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False) -> dict[Any, Any]:
    """Lists of equal lengths, split by device and dtype of the first list's tensors.

    Each (device, dtype) has the parts of the lists, and with `with_indices` the places, else [].
    (torch.utils._foreach_utils._group_tensors_by_device_and_dtype)
    """
    places: dict[Any, list[int]] = {}
    for place, each in enumerate(tensorlistlist[0]):
        assert each is not None, "the first list has tensors only"
        places.setdefault((each.device, each.dtype), []).append(place)
    return {
        kind: ([[each[place] for place in chosen] for each in tensorlistlist], chosen if with_indices else [])
        for kind, chosen in places.items()
    }


def __getattr__(name: str) -> Any:
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    base = name.removeprefix(_PREFIX)
    function = _results(base.removesuffix("_"))
    if function is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    if not base.endswith("_"):

        def out_of_place(*args: Any, **kwargs: Any) -> list[Tensor]:
            return list(function(*args, **kwargs))

        out_of_place.__name__ = name
        return out_of_place

    def in_place(tensors: Sequence[Tensor], *args: Any, **kwargs: Any) -> None:
        for each, value in zip(tensors, function(tensors, *args, **kwargs), strict=True):
            each.copy_(value)

    in_place.__name__ = name
    return in_place
