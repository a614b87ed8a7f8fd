"""Rules of ops that make tensors: PyTorch names the device, and that the memory is not pinned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base import dtypes
from gradwire._dispatch.calls import aten

Tensor = Any


def _options(dtype: Any, device: Any, always: bool) -> dict[str, Any]:
    """Keyword arguments of a creation. `always`: whether the device is named if it was not given."""
    made: dict[str, Any] = {}
    if dtype is not None:
        made["dtype"] = dtypes.as_dtype(dtype)
    if device is not None or always:
        made["device"] = dtypes.device(device) if device is not None else dtypes.device(dtypes.default_device_name())
    made["pin_memory"] = False
    return made


def _made(full: str, *arguments: str) -> Callable[..., Any]:
    """The rule of a creation with these arguments."""

    def rule(call: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **given: Any) -> Any:
        values = [list(given[each]) if each == "size" else given[each] for each in arguments]
        return _flagged(aten(full, *values, **_options(dtype, device, True), compute=call.compute), requires_grad)

    return rule


def _flagged(made: Tensor, requires_grad: bool) -> Any:
    """The tensor as a leaf, as the caller asked for: also if a mode made another one."""
    return made.requires_grad_() if requires_grad and not made.requires_grad else made


def _arange(
    call: Any,
    start: Any,
    end: Any = None,
    step: Any = 1,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    options = _options(dtype, device, True)
    if end is None or (start == 0 and step == 1):
        made = aten("arange.default", start if end is None else end, **options, compute=call.compute)
    elif step == 1:
        made = aten("arange.start", start, end, **options, compute=call.compute)
    else:
        made = aten("arange.start_step", start, end, step, **options, compute=call.compute)
    return _flagged(made, requires_grad)


def _randint(
    call: Any, low: int, high: Any, size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    options = _options(dtype, device, True)
    if low == 0:
        return aten("randint.default", high, list(size), **options, compute=call.compute)
    return aten("randint.low", low, high, list(size), **options, compute=call.compute)


def _eye(call: Any, n: int, m: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    full, sizes = ("eye.default", (n,)) if m is None else ("eye.m", (n, m))
    return _flagged(aten(full, *sizes, **_options(dtype, device, True), compute=call.compute), requires_grad)


def _like(full: str) -> Callable[..., Any]:
    def rule(
        call: Any,
        input: Tensor,
        fill_value: Any = None,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Any:
        values = () if fill_value is None else (fill_value,)
        made = aten(full, input, *values, **_options(dtype, device, False), compute=call.compute)
        return _flagged(made, requires_grad)

    return rule


def _new(full: str) -> Callable[..., Any]:
    def rule(
        call: Any,
        input: Tensor,
        size: Any,
        fill_value: Any = None,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Any:
        values = () if fill_value is None else (fill_value,)
        made = aten(full, input, list(size), *values, **_options(dtype, device, False), compute=call.compute)
        return _flagged(made, requires_grad)

    return rule


def _to(
    call: Any, input: Tensor, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False
) -> Any:
    wanted = input.dtype if dtype is None else dtypes.as_dtype(dtype)
    moved = device is not None and dtypes.device(device) != input.device
    if wanted is input.dtype and not moved and not copy:
        return input
    options: dict[str, Any] = {}
    if dtype is not None:
        options["dtype"] = wanted
    if device is not None:
        options["device"] = dtypes.device(device)
    return aten("_to_copy.default", input, **options, compute=call.compute)


def _type_as(call: Any, input: Tensor, other: Tensor) -> Any:
    if other.dtype is input.dtype and other.device == input.device:
        return input
    options = {"dtype": other.dtype, "layout": other.layout, "device": other.device}
    return aten("_to_copy.default", input, **options, compute=call.compute)


def _triangle(call: Any, row: int, col: int, offset: int = 0, dtype: Any = None, device: Any = None) -> Any:
    options = _options(dtype, device, True)
    return aten(f"{call.op}.default", row, col, offset, **options, compute=call.compute)


def _bernoulli(call: Any, input: Tensor, p: Any = None) -> Any:
    if p is None:
        return aten("bernoulli.default", input, compute=call.compute)
    return aten("bernoulli.p", input, p, compute=call.compute)


def _bernoulli_in_place(call: Any, input: Tensor, p: Any = 0.5) -> Any:
    form = "float" if isinstance(p, (int, float)) else "Tensor"
    return aten(f"bernoulli_.{form}", input, p, compute=call.compute)


def _normal(call: Any, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
    if size is not None:
        return NotImplemented
    kinds = ["float" if isinstance(each, (int, float)) else "Tensor" for each in (mean, std)]
    return aten(f"normal.{kinds[0]}_{kinds[1]}", mean, std, compute=call.compute)


RULES: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_in_place,
    "empty": _made("empty.memory_format", "size"),
    "empty_like": _like("empty_like.default"),
    "eye": _eye,
    "full": _made("full.default", "size", "fill_value"),
    "full_like": _like("full_like.default"),
    "linspace": _made("linspace.default", "start", "end", "steps"),
    "logspace": _made("logspace.default", "start", "end", "steps"),
    "new_empty": _new("new_empty.default"),
    "new_full": _new("new_full.default"),
    "new_ones": _new("new_ones.default"),
    "new_zeros": _new("new_zeros.default"),
    "normal": _normal,
    "ones": _made("ones.default", "size"),
    "ones_like": _like("ones_like.default"),
    "rand": _made("rand.default", "size"),
    "rand_like": _like("rand_like.default"),
    "randint": _randint,
    "randn": _made("randn.default", "size"),
    "randn_like": _like("randn_like.default"),
    "randperm": _made("randperm.default", "n"),
    "to": _to,
    "tril_indices": _triangle,
    "triu_indices": _triangle,
    "type_as": _type_as,
    "zeros": _made("zeros.default", "size"),
    "zeros_like": _like("zeros_like.default"),
}
