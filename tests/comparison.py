"""Comparison of two libraries' results: tensors as plain data, floats within single precision."""

import math
from typing import Any


def plain(value: Any) -> Any:
    """A result as plain data that can be compared: tensors as values, dtype and flags."""
    if hasattr(value, "grad_fn") and hasattr(value, "tolist"):
        name = None if value.grad_fn is None else value.grad_fn.name()
        return {
            "values": value.tolist(),
            "dtype": repr(value.dtype),
            "shape": repr(value.shape),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "grad_fn": name,
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return repr(value)


def alike(one: Any, other: Any) -> bool:
    """Whether plain data is equal, floats within single precision."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other
