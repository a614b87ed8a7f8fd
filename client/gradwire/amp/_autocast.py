"""autocast: inside a region, products compute in a smaller dtype, and what needs precision in float32 (torch.autocast).

The client casts an op's tensors before it sends the op. The casts are ops of the graph, so gradients of float32 weights
are float32.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradwire import cuda
from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import is_grad_enabled
from gradwire._proxy.handle import Handle
from gradwire._tensor.batching import BATCHING, DISPATCH, REGION, Region, restored
from gradwire._tensor.call import _call
from gradwire.amp._precision import HIGH, LOW, WIDEST, WITH_DTYPE
from gradwire.amp._rules import IN_PARTS, RULES

_DEFAULTS = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16, "mps": dtypes.float16, "xpu": dtypes.float16}
AUTOCAST_KINDS = ("cpu", "cuda", "mps", "xpu", "mtia", "hpu", "xla", "ipu", "maia", "privateuseone")


class autocast:
    """A region, or with brackets a decorator, where ops choose their precision (torch.autocast).

    Matrix products and convolutions compute in `dtype`, losses and decompositions in float32, other ops as usual. Only
    tensors of the region's kind of device are cast, and float64 never is. A weight is cast once in the outermost
    region, unless `cache_enabled` is False. A dtype that the device cannot take disables the region, with a warning.
    Raises RuntimeError for an unknown kind of device.
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in AUTOCAST_KINDS:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = _named(device_type) or dtypes.bfloat16 if dtype is None else dtype
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled) and _available(device_type, self.fast_dtype)
        self._tokens: list[Any] = []

    def __enter__(self) -> autocast:
        outer = REGION.get()
        chosen, named = ({}, {}) if outer is None else (outer.chosen, outer.named)
        chosen = {**chosen, self.device: self.fast_dtype if self._enabled else None}
        named = {**named, self.device: self.fast_dtype}
        self._tokens.append(REGION.set(Region(chosen, named, self._cache_enabled, outer)))
        BATCHING.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        BATCHING.remove(self)
        REGION.reset(self._tokens.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return called


def _available(device_type: str, dtype: Any) -> bool:
    """Whether ops of a kind of device can compute in a dtype; warns if not."""
    if device_type == "cpu":
        if dtype in (dtypes.bfloat16, dtypes.float16):
            return True
        why = (
            "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
            "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently."
        )
    elif device_type == "cuda" and cuda.is_available():
        return True
    else:
        why = f"{device_type.upper()} is not available. Disabling autocast."
    warnings.warn(why, UserWarning, stacklevel=3)
    return False


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on for a kind of device, without one for "cuda" (torch.is_autocast_enabled)."""
    region = REGION.get()
    return region is not None and region.chosen.get("cuda" if device_type is None else device_type) is not None


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype that autocast casts to on a kind of device, also where it is off (torch.get_autocast_dtype)."""
    found = _named(device_type)
    if found is None:
        raise refuse(f"unsupported autocast device_type '{device_type}'")
    return found


def _named(device_type: str) -> Any:
    """The dtype that a region names for a kind of device, or its default; None for a kind that has neither."""
    region = REGION.get()
    default = _DEFAULTS.get(device_type)
    return default if region is None else region.named.get(device_type, default)


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the processor, by its old name."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> Any:
    """The dtype that autocast casts to on the processor, by its old name."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> Any:
    """The dtype that autocast casts to on a GPU, by its old name."""
    return get_autocast_dtype("cuda")


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept inside a region (torch.is_autocast_cache_enabled)."""
    region = REGION.get()
    return region is None or region.caches


def is_autocast_available(device_type: str) -> bool:
    """Whether ops of a kind of device can be cast (torch.amp.is_autocast_available)."""
    return device_type == "cpu" or (device_type == "cuda" and cuda.is_available())


def clear_autocast_cache() -> None:
    """Forget the casts of weights that the region keeps (torch.clear_autocast_cache)."""
    region = REGION.get()
    if region is not None:
        region.casts.clear()


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = "cuda", cast_inputs: Any = None
) -> Callable[..., Any]:
    """Decorate a Function's forward: `backward` with custom_bwd runs in the same region (torch.amp.custom_fwd).

    With `cast_inputs`, floating-point tensors of the region's device are cast, and autocast is off inside.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = get_autocast_dtype(device_type)
        if cast_inputs is None or not is_autocast_enabled(device_type):
            ctx._fwd_used_autocast = is_autocast_enabled(device_type)
            return fwd(ctx, *args, **kwargs)
        ctx._fwd_used_autocast = False
        return with_casts(functools.partial(fwd, ctx), device_type, cast_inputs, args, kwargs)

    return decorated


def with_casts(
    function: Callable[..., Any], device_type: str, target: dtypes.dtype, args: Any, kwargs: Mapping[str, Any]
) -> Any:
    """Call a function on tensors cast to a dtype, with autocast off for their kind of device."""

    def cast(value: Any) -> Any:
        return _map(lambda each: _cast(each, target, device_type, None), value)

    with autocast(device_type, enabled=False):
        return function(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cuda") -> Callable[..., Any]:
    """Decorate a Function's backward, which runs in the region that its forward ran in (torch.amp.custom_bwd)."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        used = ctx._fwd_used_autocast
        with autocast(device_type, enabled=used, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return decorated


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Call an op with cast tensors; NotImplemented if none needs a cast."""
    region = REGION.get()
    if region is None:
        return NotImplemented
    if op in IN_PARTS:
        made = _in_parts(op, args, kwargs, result, region)
        if made is not NotImplemented:
            return made
    given: Any = args, tuple(value for _, value in kwargs)
    made = given
    for kind, low in region.chosen.items():
        target = None if low is None else _target(op, kind, low, made)
        if target is not None:
            keep = region if region.caches and target is low else None
            made = _map(functools.partial(_cast, target=target, kind=kind, keep=keep), made)
    if made is given:
        return NotImplemented
    named = [(name, value) for (name, _), value in zip(kwargs, made[1], strict=True)]
    return _call(op, made[0], named, result)


def _in_parts(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any, region: Region) -> Any:
    """Call an op whose parts compute in different dtypes. NotImplemented if autocast is off there, or for one part."""
    low = region.chosen.get(args[0].device.type) if isinstance(args[0], Handle) else None  # type: ignore[attr-defined]
    if low is None:
        return NotImplemented
    if op != "linalg.matrix_power":
        with restored(None):
            made = _call(op, args, kwargs, result)
        return _cast(made, low, made.device.type, None)
    if not isinstance(args[1], int) or args[1] >= 0:
        return NotImplemented
    return _call(op, (_call("linalg.inv", args[:1]), -args[1]), kwargs, result)


def _target(op: str, kind: str, low: dtypes.dtype, given: tuple[Any, ...]) -> dtypes.dtype | None:
    """The dtype that an op computes in on a kind of device; None for the tensors' own."""
    if op in LOW[kind]:
        return low
    if op in RULES[kind]:
        return RULES[kind][op](given[0], low)
    if op in HIGH[kind]:
        given_dtype = (
            kind == "cuda" and op in WITH_DTYPE and any(isinstance(each, dtypes.dtype) for each in _leaves(given))
        )
        return None if given_dtype else dtypes.float32
    if op in WIDEST[kind]:
        found = {each._spec.dtype for each in _leaves(given) if _may_cast(each, kind)}
        return dtypes.float32 if dtypes.float32 in found and len(found) > 1 else None
    return None


def _may_cast(value: Any, kind: str) -> bool:
    """Whether a value is a tensor that autocast casts."""
    if not isinstance(value, Handle):
        return False
    spec = value._spec
    return spec.dtype.is_floating_point and spec.dtype is not dtypes.float64 and value.device.type == kind  # type: ignore[attr-defined]


def _cast(value: Any, target: dtypes.dtype, kind: str, keep: Region | None) -> Any:
    """A tensor in another dtype. keep: the region that keeps the casts of float32 weights."""
    if not _may_cast(value, kind) or value._spec.dtype is target:
        return value
    spec = value._spec
    if keep is None or not (spec.requires_grad and spec.is_leaf and not spec.is_view and is_grad_enabled()):
        return value.to(target)
    key = (id(value), target)
    kept = keep.casts.get(key)
    if kept is None or kept[0]() is not value:
        kept = keep.casts[key] = (weakref.ref(value), value.to(target))
    return kept[1]


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """A value with its tensors replaced, also those in tuples and lists: the same object if none was."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        made = [_map(function, each) for each in value]
        return value if all(one is other for one, other in zip(made, value, strict=True)) else type(value)(made)
    return function(value) if isinstance(value, Handle) else value


def _leaves(value: Any) -> Iterator[Any]:
    """The values in nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


#: For dispatch modes, which see the casts.
call_with_casts = _dispatch
DISPATCH.append(_dispatch)
