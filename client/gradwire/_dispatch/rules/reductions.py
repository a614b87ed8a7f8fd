"""Rules of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._dispatch.calls import aten
from gradwire._proxy.handle import Handle

Tensor = Any


def _dims(dim: Any) -> Any:
    return None if dim is None else [dim] if isinstance(dim, int) else list(dim)


def _variance(
    call: Any, input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> Any:
    """Variances with a correction, which is 1 unless given: named only with dimensions."""
    form = f"{call.op}.correction"
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    options: dict[str, Any] = {}
    if correction is not None:
        options["correction"] = correction
    elif unbiased is not None:
        options["correction"] = 1 if unbiased else 0
    elif dim is not None:
        options["correction"] = 1
    return aten(form, input, _dims(dim), keepdim=keepdim, **options, compute=call.compute)


def _norm(call: Any, input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if p == "nuc" or (isinstance(dim, (tuple, list)) and len(dim) > 1 and p not in ("fro", None, 2)):
        return NotImplemented
    order = 2 if p in ("fro", None) else p
    return aten("linalg_vector_norm.default", input, order, _dims(dim), keepdim, dtype=dtype, compute=call.compute)


def _vector_norm(call: Any, x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return aten("linalg_vector_norm.default", x, ord, _dims(dim), keepdim, dtype=dtype, compute=call.compute)


def _linalg_norm(
    call: Any, A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    if ord is not None:
        return NotImplemented
    return call.shown(
        "linalg_vector_norm.default", (A, 2.0, *_rest(dim, keepdim)), {} if dtype is None else {"dtype": dtype}
    )


def _rest(dim: Any, keepdim: bool) -> tuple[Any, ...]:
    if keepdim:
        return _dims(dim), True
    return () if dim is None else (_dims(dim),)


def _matrix_norm(
    call: Any, A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Any:
    if ord != "fro":
        return NotImplemented
    dims = [each % A.ndim for each in dim]
    return aten("linalg_vector_norm.default", A, 2, dims, keepdim, dtype=dtype, compute=call.compute)


def _extreme(call: Any, input: Tensor, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
    second = other if other is not None else dim
    if isinstance(second, Handle):
        name = "maximum" if call.op == "max" else "minimum"
        return aten(f"{name}.default", input, second, compute=call.compute)
    if dim is None:
        return aten(f"{call.op}.default", input, compute=call.compute)
    return aten(f"{call.op}.dim", input, dim, keepdim, compute=call.compute)


def _any(call: Any, input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None and not keepdim:
        return aten(f"{call.op}.default", input, compute=call.compute)
    form = "dim" if isinstance(dim, int) else "dims"
    return aten(f"{call.op}.{form}", input, dim, keepdim, compute=call.compute)


def _dimmed(call: Any, input: Tensor, dim: Any, keepdim: bool = False) -> Any:
    return aten(f"{call.op}.default", input, _dims(dim), keepdim, compute=call.compute)


def _mean(call: Any, input: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """A mean or sum: over all elements without dimensions."""
    named = {} if dtype is None else {"dtype": dtype}
    if dim is None and not keepdim:
        return aten(f"{call.op}.default", input, **named, compute=call.compute)
    form = "dim" if call.op == "mean" else "dim_IntList"
    return aten(f"{call.op}.{form}", input, _dims(dim), keepdim, **named, compute=call.compute)


RULES: dict[str, Callable[..., Any]] = {
    "all": _any,
    "any": _any,
    "linalg.matrix_norm": _matrix_norm,
    "linalg.norm": _linalg_norm,
    "linalg.vector_norm": _vector_norm,
    "logsumexp": _dimmed,
    "max": _extreme,
    "mean": _mean,
    "min": _extreme,
    "norm": _norm,
    "std": _variance,
    "std_mean": _variance,
    "sum": _mean,
    "var": _variance,
    "var_mean": _variance,
}
