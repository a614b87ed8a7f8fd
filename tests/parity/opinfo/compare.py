"""Whether gradwire's results are PyTorch's: values, dtypes, shapes, `requires_grad`."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._comparison import default_tolerances

import gradwire as gw

#: Relative and absolute tolerance of an operator's own, where PyTorch's tests of it have some.
_OWN: dict[str, float] = {"rtol": 0.0, "atol": 0.0}


class Difference(Exception):
    """What differs."""


def tolerate(op: Any, dtype: torch.dtype) -> None:
    """Use the tolerances that PyTorch's tests of an operator have for a dtype, beside the ordinary ones."""
    found = [(0.0, 0.0)]
    for one in op.decorators:
        for override in getattr(one, "decorators", [one]):
            given = getattr(override, "d", {}).get(dtype) if isinstance(getattr(override, "d", None), dict) else None
            if given is not None:
                found.append(given if isinstance(given, tuple) else (given, 0.0))
    _OWN.update(atol=max(atol for atol, _ in found), rtol=max(rtol for _, rtol in found))


def tensors(value: Any) -> list[Any]:
    """The tensors and numbers of a result, in order."""
    if isinstance(value, list | tuple):
        return [one for item in value for one in tensors(item)]
    if isinstance(value, dict):
        return [one for item in value.values() for one in tensors(item)]
    return [value]


def read(value: Any) -> torch.Tensor:
    """A tensor of gradwire's as one of PyTorch's; a sparse one as a dense one."""
    if getattr(value, "is_sparse", False):
        value = value.to_dense()
    return gw.to_torch(value.detach().requires_grad_(False))


def results(name: str, theirs: Any, ours: Any, *, grads: bool, values: bool = True) -> None:
    """Raises Difference where the results of a call differ."""
    theirs, ours = tensors(theirs), tensors(ours)
    if len(theirs) != len(ours):
        raise Difference(f"{len(ours)} results instead of {len(theirs)}")
    for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        _result(f"{name}[{place}]" if len(theirs) > 1 else name, one, other, grads, values)


def _result(name: str, theirs: Any, ours: Any, grads: bool, values: bool) -> None:
    if not isinstance(theirs, torch.Tensor):
        if isinstance(theirs, torch.dtype | torch.device | torch.layout):
            theirs, ours = str(theirs), str(ours).replace("gradwire.", "torch.")
        if type(theirs) is not type(ours) and not (theirs == ours):
            raise Difference(f"{name}: {ours!r} instead of {theirs!r}")
        if theirs != ours and not (theirs != theirs and ours != ours):
            _close(name, torch.tensor(theirs), torch.tensor(ours))
        return
    if ours is None or not hasattr(ours, "shape"):
        raise Difference(f"{name}: {type(ours).__name__} instead of a tensor")
    if tuple(theirs.shape) != tuple(ours.shape):
        raise Difference(f"{name}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
    if str(theirs.dtype).removeprefix("torch.") != ours.dtype.name:
        raise Difference(f"{name}: dtype {ours.dtype} instead of {theirs.dtype}")
    if grads and theirs.requires_grad != ours.requires_grad:
        raise Difference(f"{name}: requires_grad {ours.requires_grad}")
    if values:
        _close(name, theirs.detach(), read(ours))


def _close(name: str, theirs: torch.Tensor, ours: torch.Tensor) -> None:
    theirs = (theirs if theirs.layout == torch.strided else theirs.to_dense()).resolve_conj().resolve_neg()
    rtol, atol = default_tolerances(theirs, ours)
    allowed = {"rtol": max(rtol, _OWN["rtol"]), "atol": max(atol, _OWN["atol"])}
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_layout=False, check_stride=False, **allowed)
    except AssertionError as error:
        text = " ".join(str(error).split())
        raise Difference(f"{name}: {text[:160]}") from error


def gradients(name: str, theirs: list[Any], ours: list[Any]) -> None:
    """Raises Difference where gradients differ, None from zeros too."""
    for place, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        if (one is None) != (other is None):
            raise Difference(f"{name} of input {place}: {_kind(other)} instead of {_kind(one)}")
        if one is not None:
            results(f"{name} of input {place}", one, other, grads=False)


def _kind(grad: Any) -> str:
    return "None" if grad is None else "a tensor"
