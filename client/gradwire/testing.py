"""Comparing results (torch.testing)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._functions.create import as_tensor, randint
from gradwire._functions.random import default_generator
from gradwire._functions.stored_values import StoredValues
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

# Relative and absolute tolerances by dtype, as PyTorch's; integers and bools must be equal.
_TOLERANCES: dict[dtypes.dtype, tuple[float, float]] = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise AssertionError unless the values are close: tensors, arrays, numbers, or nested in lists and dicts.

    Tolerances are by default those of the dtype. Raises ValueError for only one of `rtol` and `atol`.
    """
    options = (rtol, atol, equal_nan, check_device, check_dtype, check_stride, check_layout)
    problem = _difference(actual, expected, "", options)
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


def _difference(actual: Any, expected: Any, place: str, options: tuple[Any, ...]) -> str:
    """What differs, "" if nothing does."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            return f"The keys of the mappings do not match{place}: {sorted(actual)} and {sorted(expected)}"
        pairs = [(key, actual[key], expected[key]) for key in actual]
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return f"The length of the sequences do not match: {len(actual)} != {len(expected)}{place}"
        pairs = [(at, *each) for at, each in enumerate(zip(actual, expected, strict=True))]
    elif actual is None or expected is None:
        return "" if actual is expected else f"None mismatch: {actual} is not {expected}{place}"
    else:
        return _of_leaves(actual, expected, place, options)
    found = (_difference(left, right, f"{place}[{key!r}]", options) for key, left, right in pairs)
    return next(filter(None, found), "")


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _of_leaves(actual: Any, expected: Any, place: str, options: tuple[Any, ...]) -> str:
    rtol, atol, equal_nan, check_device, check_dtype, check_stride, _ = options
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be specified or both be unspecified, but got {rtol=} and {atol=}")
    where = f" at {place}" if place else ""
    if any(isinstance(each, StoredValues) for each in (actual, expected)):
        return _of_sparse(actual, expected, place, options)
    left, right = as_tensor(actual).detach(), as_tensor(expected).detach()
    are_numbers = not (isinstance(actual, (Tensor, np.ndarray)) or isinstance(expected, (Tensor, np.ndarray)))
    if left.shape != right.shape:
        return f"The values for attribute 'shape' do not match{where}: {left.shape} != {right.shape}."
    if check_device and left.device != right.device:
        return f"The values for attribute 'device' do not match{where}: {left.device} != {right.device}."
    if check_dtype and not are_numbers and left.dtype is not right.dtype:
        return f"The values for attribute 'dtype' do not match{where}: {left.dtype} != {right.dtype}."
    if check_stride and left.stride() != right.stride():
        return f"The values for attribute 'stride()' do not match{where}: {left.stride()} != {right.stride()}."
    default = max(_TOLERANCES.get(left.dtype, (0.0, 0.0)), _TOLERANCES.get(right.dtype, (0.0, 0.0)))
    relative, absolute = default if rtol is None else (rtol, atol)
    common = dtypes.complex128 if left.is_complex() or right.is_complex() else dtypes.float64
    if not (left.is_floating_point() or left.is_complex() or right.is_floating_point() or right.is_complex()):
        common = dtypes.int64
    left, right = left.cpu().to(common), right.cpu().to(common)
    close = ops.isclose(left, right, rtol=relative, atol=absolute, equal_nan=equal_nan)
    wrong = int(close.numel() - close.sum().item())
    if not wrong:
        return ""
    kind = "Scalars" if are_numbers or not left.shape else "Tensor-likes"
    largest = (left - right).abs().max().item()
    return (
        f"{kind} are not close{where}!\n\nMismatched elements: {wrong} / {left.numel()}\n"
        f"Greatest absolute difference: {largest} (up to {absolute} allowed, and up to {relative} relative)"
    )


def _of_sparse(actual: Any, expected: Any, place: str, options: tuple[Any, ...]) -> str:
    """What differs, where a tensor is sparse: as in PyTorch the stored elements, or all if the layouts may differ."""
    where = f" at {place}" if place else ""
    left: Any = as_tensor(actual)
    right: Any = as_tensor(expected)
    if left.shape != right.shape:
        return f"The values for attribute 'shape' do not match{where}: {left.shape} != {right.shape}."
    if left.layout is not right.layout:
        if options[-1]:
            return f"The values for attribute 'layout' do not match{where}: {left.layout} != {right.layout}."
        return _of_leaves(left.to_dense(), right.to_dense(), place, options)
    one, other = left.detach(), right.detach()
    if one.is_sparse and one.is_coalesced() is not other.is_coalesced():
        one, other = one.coalesce(), other.coalesce()
    if one._nnz() != other._nnz():
        kind = "COO" if one.is_sparse else str(one.layout)[-3:].upper()
        return (
            f"The number of specified values in sparse {kind} tensors does not match{where}: "
            f"{one._nnz()} != {other._nnz()}"
        )
    pairs = zip((*one.places(), one._v), (*other.places(), other._v), strict=True)
    return next(filter(None, (_of_leaves(first, second, place, options) for first, second in pairs)), "")


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, **options: Any
) -> None:
    """The same as `assert_close`, without a check of dtypes and devices; nan equals nan."""
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_device=False, check_dtype=False, **options
    )


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A tensor of random numbers between `low` and `high` (torch.testing.make_tensor)."""
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    is_real = dtype.is_floating_point or dtype.is_complex
    least = (-9 if is_real or dtype.is_signed else 0) if low is None else low
    most = (9 if is_real else 10) if high is None else high
    with default_generator.used():
        if dtype is dtypes.bool_:
            made = randint(0, 2, sizes, device=device).to(dtype)
        elif is_real:
            made = (ops.zeros(sizes, device=device).uniform_(least, most)).to(dtype)
        else:
            made = randint(int(least), int(most), sizes, device=device).to(dtype)
    result: Tensor = made
    return result.requires_grad_() if requires_grad else result
