"""What can be seen of a tensor, and how what is seen of two of them differs, by class."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

import gradwire
from gradwire._session.deferred_errors import CallSite
from gradwire._session.outbox import Waiter
from gradwire._tensor import values
from gradwire._transport import wire
from gradwire.v1 import commands_pb2, service_pb2

#: Relative tolerance by dtype: a program's roundings add up.
TOLERANCE = {
    "float64": 1e-6, "complex128": 1e-6, "float32": 2e-3, "complex64": 2e-3, "float16": 3e-2, "bfloat16": 1e-1
}  # fmt: skip
#: The classes of differences, worst first.
CLASSES = ("value", "gradient", "flag", "silent", "dtype", "shape", "version", "name", "warning", "loud", "kind")


def numbers(tensor: Any) -> np.ndarray:
    """The values as an array, wide enough for NumPy."""
    if isinstance(tensor, gradwire.Tensor):
        return values.read_array(tensor)
    with torch.no_grad():
        plain = torch.Tensor.detach(tensor).resolve_conj().resolve_neg()
        if plain._is_zerotensor():
            plain = torch.zeros_like(plain)
        if plain.dtype is torch.bfloat16:
            plain = plain.float()
        elif plain.dtype is torch.complex32:
            plain = plain.to(torch.complex64)
        return plain.clone().numpy()  # a tensor whose memory NumPy has seen can no longer be resized


@contextlib.contextmanager
def fetched(tensors: Iterable[gradwire.Tensor]) -> Iterator[None]:
    """Answer reads and descriptions of these tensors from one batch of commands, while nothing changes them."""
    tensors = list(tensors)
    if not tensors:
        yield
        return
    session: Any = tensors[0]._session
    known: dict[bytes, service_pb2.Result] = {}
    wait, here = session.wait, CallSite(fetched.__wrapped__.__code__, 0)  # type: ignore[attr-defined]
    waiters = []
    for each in tensors:
        for command in (
            service_pb2.Command(read=commands_pb2.ReadRequest(tensor=each._id)),
            service_pb2.Command(describe=commands_pb2.DescribeRequest(tensors=[each._id])),
        ):
            data, waiter = command.SerializeToString(), Waiter(here)
            session.buffer.append((wire.framed(data), waiter, False))
            waiters.append((data, waiter))
    session._await(waiters[-1][1])
    for data, waiter in waiters:
        session._await(waiter)
        if not waiter.result.HasField("error"):
            known[data] = waiter.result

    def answered(command: service_pb2.Command, *rest: Any) -> service_pb2.Result:
        return known.get(command.SerializeToString()) or wait(command, *rest)

    session.wait = answered
    try:
        yield
    finally:
        del session.wait


def look(tensor: Any) -> dict[str, Any]:
    """The values, flags, and gradient of a tensor of either library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen: dict[str, Any] = {
            "values": numbers(tensor),
            "dtype": str(tensor.dtype).removeprefix("torch.").removeprefix("gradwire."),
            "shape": tuple(tensor.shape),
            "stride": [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]
            if tensor.numel()
            else None,
            "contiguous": tensor.is_contiguous(),
            "requires_grad": tensor.requires_grad,
            "inference": tensor.is_inference(),
        }
        for name in ("is_leaf", "retains_grad", "output_nr", "_version", "grad_fn", "_base"):
            try:
                found = getattr(tensor, name)
            except RuntimeError:
                found = "refused"
            if name == "grad_fn" and found not in (None, "refused"):
                found = found.name()
            seen[name] = ("a view" if found is not None else None) if name == "_base" else found
        grad = tensor.grad if seen["is_leaf"] is True or seen["retains_grad"] is True else None
        seen["grad"] = None if grad is None else numbers(grad)
        if grad is not None:
            seen["grad_dtype"] = str(grad.dtype).rpartition(".")[2]
            seen["grad_requires"] = grad.requires_grad
        return seen


def close(mine: np.ndarray, its: np.ndarray, dtype: str, coarsest: float) -> bool:
    """Whether values agree within what rounding explains, nan with nan."""
    if mine.shape != its.shape:
        return False
    if its.dtype.kind not in "fc":
        return bool(np.array_equal(mine, its))
    tolerance = max(TOLERANCE.get(dtype, 0.0), coarsest)
    finite = np.abs(its[np.isfinite(its)])
    around = tolerance * (1e-3 + float(min(finite.max(initial=0.0), 1e3)))
    with np.errstate(all="ignore"):
        return bool(np.isclose(mine, its, rtol=tolerance, atol=around, equal_nan=True).all())


_FIELDS = {
    "shape": "shape", "stride": "shape", "contiguous": "shape", "dtype": "dtype", "requires_grad": "flag",
    "is_leaf": "flag", "retains_grad": "flag", "output_nr": "flag", "inference": "flag", "_base": "flag",
    "_version": "version", "grad_dtype": "gradient", "grad_requires": "gradient",
}  # fmt: skip


def differ(mine: dict[str, Any], its: dict[str, Any], coarsest: float) -> list[tuple[str, str]]:
    """The differences between what is seen of two tensors: pairs of class and text."""
    found = []
    for field, kind in _FIELDS.items():
        one, other = mine.get(field), its.get(field)
        if one != other:
            found.append((kind, f"{field} {one}, PyTorch has {other}"))
    one, other = mine["grad_fn"], its["grad_fn"]
    if (one is None) != (other is None) or ("refused" in (one, other) and one != other):
        found.append(("flag", f"grad_fn {one}, PyTorch has {other}"))
    elif one != other:
        found.append(("name", f"grad_fn {one}, PyTorch has {other}"))
    if not close(mine["values"], its["values"], its["dtype"], coarsest):
        found.append(("value", f"values {mine['values'].tolist()}, PyTorch has {its['values'].tolist()}"))
    one, other = mine["grad"], its["grad"]
    if (one is None) != (other is None):
        found.append(("gradient", f"grad {one}, PyTorch has {other}"))
    elif one is not None and not close(one, other, its.get("grad_dtype", ""), coarsest):
        found.append(("gradient", f"grad {one.tolist()}, PyTorch has {other.tolist()}"))
    return found


def _plain(value: Any) -> Any:
    """The number that a text consists of, as numpy() prints one; other values as they are."""
    with contextlib.suppress(ValueError):
        return float(value) if isinstance(value, str) else value
    return value


def differ_plain(mine: Any, its: Any, coarsest: float) -> list[tuple[str, str]]:
    """The differences between results that are no tensors."""
    if isinstance(its, list) and isinstance(mine, list) and len(mine) == len(its):
        return [one for pair in zip(mine, its, strict=True) for one in differ_plain(*pair, coarsest)]
    mine, its = _plain(mine), _plain(its)
    if isinstance(its, float | complex) and isinstance(mine, type(its)):
        if close(np.asarray(mine), np.asarray(its), "float64", coarsest):
            return []
    elif type(mine) is type(its) and mine == its:
        return []
    return [("value", f"{mine!r}, PyTorch has {its!r}")]
