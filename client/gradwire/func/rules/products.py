"""Batching rules of products of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._base.dtypes import get_default_dtype
from gradwire._base.errors import refuse
from gradwire._tensor.call import _call
from gradwire.func._batched import UnmappableError, is_batched, spread, value_at
from gradwire.func.rules.calls import OpCall, padded, rule, shifted


@rule("cdist linalg.solve cross linalg.cross")
def broadcast_pairs(call: OpCall) -> Any:
    """Two operands with leading dimensions that broadcast."""
    one, other = call.args[:2]
    if call.base == "linalg.solve" and other.dim() == 1:
        call.args[1] = other.unsqueeze(-1)
        return call.run().squeeze(-1)
    ndim = max(one.dim(), other.dim())
    if "cross" in call.base:
        dim = call.get("dim", None if call.base == "cross" else -1)
        if dim is None:
            dim = next((place for place, size in enumerate(one.shape) if size == 3), -1)
        call.set("dim", shifted(dim, ndim) - ndim - 1)
    if "cross" in call.base:
        call.args[:2] = [spread(each, call.level) for each in (one, other)]
    else:
        call.args[:2] = [padded(each, ndim, call.level) for each in (one, other)]
    return call.wrap(call.run())


@rule("matmul")
def matmul(call: OpCall) -> Any:
    level = call.level
    one, other = call.args
    if not one.dim() or not other.dim():
        raise refuse("both arguments to matmul need to be at least 1D")
    shared = not is_batched(other, level)
    if shared and (other.dim() == 2 or (other.dim() == 1 and one.dim() > 1)):
        return call.wrap(_call("matmul", (value_at(one, level), other)))
    if not is_batched(one, level) and one.dim() == 2 and other.dim() == 1:
        return call.wrap(_call("matmul", (value_at(other, level), _call("mT", (one,)))))
    left = one.unsqueeze(0) if one.dim() == 1 else one
    right = other.unsqueeze(-1) if other.dim() == 1 else other
    ndim = max(left.dim(), right.dim())
    answer = call.wrap(_call("matmul", (padded(left, ndim, level), padded(right, ndim, level))))
    if other.dim() == 1:
        answer = answer.squeeze(-1)
    return answer.squeeze(-1 if other.dim() == 1 else -2) if one.dim() == 1 else answer


@rule("mm mv bmm dot inner outer vdot linear addmm addmv baddbmm addr linalg.vecdot")
def products(call: OpCall) -> Any:
    """In terms of matmul and elementwise ops."""
    return _PRODUCTS[call.base](*call.args, **call.kwargs)


def _matrices(name: str, *counts: int) -> Callable[[Any, Any], Any]:
    def product(one: Any, other: Any) -> Any:
        if (one.dim(), other.dim()) != counts:
            raise refuse(f"{name}: expected {counts[0]}D and {counts[1]}D tensors, got {one.dim()}D and {other.dim()}D")
        return _call("matmul", (one, other))

    return product


def _outer(one: Any, other: Any) -> Any:
    return one.unsqueeze(-1) * other


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    made = _call("matmul", (input, _call("mT", (weight,)) if weight.dim() == 2 else weight))
    return made if bias is None else made + bias


def _plus(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def added(input: Any, one: Any, other: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        made = product(one, other)
        return (input if beta == 1 else input * beta) + (made if alpha == 1 else made * alpha)

    return added


def _inner(one: Any, other: Any) -> Any:
    return (
        _call("matmul", (one, _call("mT", (other,)) if other.dim() > 1 else other))
        if one.dim() and other.dim()
        else one * other
    )


_PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": _matrices("mm", 2, 2),
    "mv": _matrices("mv", 2, 1),
    "bmm": _matrices("bmm", 3, 3),
    "dot": _matrices("dot", 1, 1),
    "vdot": lambda one, other: _matrices("vdot", 1, 1)(one.conj(), other),
    "inner": _inner,
    "outer": _outer,
    "linear": _linear,
    "addmm": _plus(_matrices("addmm", 2, 2)),
    "addmv": _plus(_matrices("addmv", 2, 1)),
    "baddbmm": _plus(_matrices("baddbmm", 3, 3)),
    "addr": _plus(_outer),
    "linalg.vecdot": lambda one, other, dim=-1: (one.conj() * other).sum(dim),
}


@rule("einsum")
def einsum(call: OpCall) -> Any:
    """Add a letter for the batch, in batched operands and in the result."""
    equation, operands = call.args[0], call.args[1]
    given, arrow, out = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    letters = given.replace(",", "").replace(".", "")
    if not arrow:
        out = ("..." if "..." in given else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    batch = next(c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in given + out)
    parts = [batch + part if is_batched(each, call.level) else part for part, each in zip(parts, operands, strict=True)]
    values = [value_at(each, call.level) for each in operands]
    return call.wrap(_call("einsum", (f"{','.join(parts)}->{batch}{out}", values)))


@rule("tensordot")
def tensordot(call: OpCall) -> Any:
    """As einsum: summed dimensions share a letter. `dims`: a number, or both lists one after the other."""
    one, other, dims = call.args[0], call.args[1], call.get("dims", 2)
    if isinstance(dims, int):
        dims = (*range(one.dim() - dims, one.dim()), *range(dims))
    half = len(dims) // 2
    left = [chr(97 + place) for place in range(one.dim())]
    right = [chr(97 + one.dim() + place) for place in range(other.dim())]
    for first, second in zip(dims[:half], dims[half:], strict=True):
        right[second] = left[first]
    out = [c for c in left if c not in right] + [c for c in right if c not in left]
    return _call("einsum", (f"{''.join(left)},{''.join(right)}->{''.join(out)}", (one, other)))


@rule("cov")
def cov(call: OpCall) -> Any:
    """Covariances of each sample's rows. Weights are read by the server, so they are refused."""
    if call.get("fweights") is not None or call.get("aweights") is not None:
        raise UnmappableError("vmap: there is no batching rule for cov with weights. Call it outside of vmap.")
    tensor: Any = call.args[0]
    if tensor.dim() > 2:
        raise refuse(
            f"cov(): expected input to have two or fewer dimensions but got an input with {tensor.dim()} dimensions"
        )
    rows = tensor if tensor.dim() == 2 else tensor.reshape((1, -1))
    if not (rows.is_floating_point() or rows.is_complex()):
        rows = rows.to(get_default_dtype())
    centred = rows - rows.mean(1, keepdim=True)
    made = centred.matmul(centred.mT.conj() if rows.is_complex() else centred.mT)
    return (made / float(max(rows.shape[1] - call.get("correction", 1), 0))).squeeze()
