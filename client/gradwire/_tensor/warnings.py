"""Warnings: gives PyTorch's warnings for op calls, derived from shapes, dtypes and arguments at the first call.

A warning for every call is stored in the op's memo entry, so calls that never warn cost nothing.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import INTERNAL
from gradwire._base.errors import GradwireTypeError
from gradwire._proxy.handle import Handle

if TYPE_CHECKING:
    from gradwire._proxy.memo import Spec

#: Texts of the once-per-process warnings already given.
WARNED_ONCE: set[str] = set()
_warn_always = False

_FREEDOM = (
    "{}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
    "divided by output numel)."
)
_OBSERVATIONS = "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations."
_IMAGINARY = "Casting complex values to real discards the imaginary part"
_BETA = "index_reduce() is in beta and the API may change at any time."
_INDEXING = "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument."
_SPREADS = ("var", "std", "var_mean", "std_mean")
_CASTS = ("to", "copy_", "setitem_", "fill_")
_PUTS = ("index_put", "index_put_")
#: Of an index by bytes.
BYTES = "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."
#: Ops that may warn.
WARNING_OPS = frozenset((*_SPREADS, *_CASTS, *_PUTS, "cov", "index_reduce", "meshgrid"))


def warn(text: str) -> None:
    """Warn at the current line of the user's program."""
    frame, level = sys._getframe(1), 2
    while INTERNAL[frame.f_code.co_filename] and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def set_warn_always(b: bool, /) -> None:
    """Whether warnings that are given once per process are given each time (torch.set_warn_always)."""
    global _warn_always
    if not isinstance(b, bool):
        raise GradwireTypeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """Whether `set_warn_always` is in force (torch.is_warn_always_enabled)."""
    return _warn_always


def warn_once(text: str) -> None:
    """Warn unless this text was given before in this process."""
    if _warn_always or text not in WARNED_ONCE:
        WARNED_ONCE.add(text)
        warn(text)


def warning_of(op: str, named: dict[str, Any], specs: Sequence[Spec]) -> str:
    """Text of the warning for each such call, or "". Once-per-process warnings are given here."""
    if op in _SPREADS or op == "cov":
        return _of_freedom(op, named, specs)
    if op in _PUTS:
        return BYTES if any(index._spec.dtype.name == "uint8" for index in named["indices"]) else ""
    if op == "index_reduce":
        warn_once(_BETA)
    elif op == "meshgrid":
        if named.get("indexing") is None:
            warn_once(_INDEXING)
    elif op in _CASTS:
        given = named.get("value", named.get("src", named.get("input")))
        made = specs[0].dtype
        if (
            isinstance(given, Handle)
            and 0 not in given._spec.shape
            and given._spec.dtype.is_complex
            and not (made.is_complex or made.name == "bool")
        ):
            warn_once(_IMAGINARY)
    return ""


def _of_freedom(op: str, named: dict[str, Any], specs: Sequence[Spec]) -> str:
    shape = named["input"]._spec.shape
    correction = named.get("correction")
    if correction is None:
        correction = 0 if named.get("unbiased") is False else 1
    if op == "cov":
        weighted = named.get("fweights") is not None or named.get("aweights") is not None
        observations = shape[-1] if shape else 1
        return _OBSERVATIONS if not weighted and observations <= correction else ""
    made = math.prod(specs[0].shape)
    return _FREEDOM.format(op) if (math.prod(shape) / made if made else 0) <= correction else ""
