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
    if not isinstance(value, gw.Tensor):
        value = value.to_dense()
    return gw.to_torch(value.detach().requires_grad_(False))


def results(name: str, theirs: Any, ours: Any, *, grads: bool, values: bool = True, precise: Any = None) -> None:
    """Raises Difference where the results of a call differ; `precise` are PyTorch's in more digits."""
    theirs, ours = tensors(theirs), tensors(ours)
    if len(theirs) != len(ours):
        raise Difference(f"{len(ours)} results instead of {len(theirs)}")
    exact = [None] * len(ours) if precise is None else tensors(precise)
    for place, (one, other, best) in enumerate(zip(theirs, ours, exact, strict=True)):
        _result(f"{name}[{place}]" if len(theirs) > 1 else name, one, other, grads, values, best)


def _result(name: str, theirs: Any, ours: Any, grads: bool, values: bool, precise: Any) -> None:
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
        _close(name, theirs.detach(), read(ours), precise)


def _plain(value: torch.Tensor) -> torch.Tensor:
    return (value if value.layout == torch.strided else value.to_dense()).resolve_conj().resolve_neg()


def _distance(value: torch.Tensor, precise: torch.Tensor) -> float:
    """Sum of the absolute differences, as PyTorch's tests of its references take it."""
    same = (value == precise) | (value.isnan() & precise.isnan())
    return float(torch.where(same, 0.0, (value.to(precise.dtype) - precise).abs()).sum())


def _close(name: str, theirs: torch.Tensor, ours: torch.Tensor, precise: Any = None) -> None:
    theirs = _plain(theirs)
    rtol, atol = default_tolerances(theirs, ours)
    allowed = {"rtol": max(rtol, _OWN["rtol"]), "atol": max(atol, _OWN["atol"])}
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_layout=False, check_stride=False, **allowed)
    except AssertionError as error:
        if isinstance(precise, torch.Tensor):
            best = _plain(precise.detach())
            if _distance(ours, best) <= _distance(theirs, best):
                return
        text = " ".join(str(error).split())
        raise Difference(f"{name}: {text[:160]}") from error


def gradients(name: str, theirs: list[Any], ours: list[Any], precise: list[Any] | None = None) -> None:
    """Raises Difference where gradients differ, None from zeros too; `precise` are PyTorch's in more digits."""
    exact = [None] * len(ours) if precise is None else precise
    for place, (one, other, best) in enumerate(zip(theirs, ours, exact, strict=True)):
        if (one is None) != (other is None):
            raise Difference(f"{name} of input {place}: {_kind(other)} instead of {_kind(one)}")
        if one is not None:
            results(f"{name} of input {place}", one, other, grads=False, precise=best)


def _kind(grad: Any) -> str:
    return "None" if grad is None else "a tensor"
