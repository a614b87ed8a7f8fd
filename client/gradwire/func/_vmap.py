"""vmap: a function of one sample as a function of a batch of them (torch.func.vmap)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

from gradwire._base.errors import GradwireValueError, refuse
from gradwire._tensor.batching import BATCHING, DISPATCH, FUNCTIONS
from gradwire._tensor.ops import cat
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import LEVELS, BatchedTensor, Level, spread
from gradwire.func._dispatch import dispatch
from gradwire.func._function_rule import function_rule
from gradwire.func._pytree import Structure, flatten, rebuild

# Whether a new level is that of `map_anything`.
_ANYTHING: ContextVar[bool] = ContextVar("gradwire_map_anything", default=False)
_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that maps `func` over a dimension of its arguments, all samples together (torch.func.vmap).

    `in_dims` is the dimension of each argument, None for one that all samples share. `out_dims` is the dimension's
    position in the results. Both are one for all, or nested like the arguments and results. `randomness`: random ops
    are refused ("error"), or draw for each sample ("different") or once for all ("same"). `chunk_size` is how many
    samples are computed at a time. Keyword arguments are shared. Raises ValueError for dimensions that do not fit,
    RuntimeError for an op that has no batching rule, naming it.
    """
    if randomness not in _RANDOMNESS:
        raise refuse(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size < 1:
        raise GradwireValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten(args)
        dims = _dims(in_dims, args, structure, leaves)
        size = _size(dims, leaves)
        step = size if chunk_size is None else chunk_size
        if step >= size:
            return _run(func, leaves, dims, structure, size, randomness, out_dims, kwargs)
        parts = []
        for start in range(0, size, step):
            count = min(step, size - start)
            part = [v if dim is None else v.narrow(dim, start, count) for v, dim in zip(leaves, dims, strict=True)]
            parts.append(_run(func, part, dims, structure, count, randomness, out_dims, kwargs))
        return _joined(parts, out_dims)

    return mapped


def map_anything(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """As `vmap`, for functions that transforms refuse, too: custom functions run on all samples without a rule.

    It is no transform of functions for them (torch._vmap_internals._vmap).
    """
    inner = vmap(func, in_dims, out_dims)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        token = _ANYTHING.set(True)
        try:
            return inner(*args, **kwargs)
        finally:
            _ANYTHING.reset(token)

    return mapped


def _run(
    func: Callable[..., Any],
    values: list[Any],
    dims: list[int | None],
    structure: Structure,
    size: int,
    randomness: str,
    out_dims: Any,
    kwargs: dict[str, Any],
) -> Any:
    outer = LEVELS.get()
    level = Level(len(outer) + 1, size, randomness, maps_functions=_ANYTHING.get())
    entered = [v if dim is None else _enter(v, dim, level) for v, dim in zip(values, dims, strict=True)]
    token, ordinary = LEVELS.set((*outer, level)), _ANYTHING.set(False)
    BATCHING.append(level)
    try:
        with nullcontext() if level.maps_functions else level.transform:
            answer = func(*rebuild(structure, entered), **kwargs)
        found, form = flatten(answer)
        places = _prefix("out_dims", out_dims, form)
        return rebuild(form, [_leave(each, place, level) for each, place in zip(found, places, strict=True)])
    finally:
        BATCHING.remove(level)  # another thread's may be the last
        _ANYTHING.reset(ordinary)
        LEVELS.reset(token)


def _enter(given: Tensor, dim: int, level: Level) -> BatchedTensor:
    """An argument as the function sees it: one sample, with the samples in a dimension of what was given."""
    return BatchedTensor(given.movedim(dim, 0), level, (given, dim)) if dim else BatchedTensor(given, level)


def _leave(found: Any, place: Any, level: Level) -> Any:
    """One result outside the level, with the batch at `out_dims`."""
    if not isinstance(found, Tensor):
        raise GradwireValueError(f"vmap(f, ...): `f` must only return Tensors, got type {type(found)}.")
    batched = isinstance(found, BatchedTensor) and found._level is level
    if place is None:
        if batched:
            raise GradwireValueError("vmap: out_dims is None for an answer that differs from sample to sample")
        return found
    value = spread(found, level)
    if not -value.dim() <= place < value.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-value.dim()}, {value.dim() - 1}], but got {place})"
        )
    return value.movedim(0, place) if place % value.dim() else value


def _joined(parts: list[Any], out_dims: Any) -> Any:
    columns = [flatten(part) for part in parts]
    form = columns[0][1]
    places = _prefix("out_dims", out_dims, form)
    joined = [
        found[0] if place is None else cat(list(found), place)
        for place, found in zip(places, zip(*[leaves for leaves, _ in columns], strict=True), strict=True)
    ]
    return rebuild(form, joined)


def _dims(in_dims: Any, args: tuple[Any, ...], structure: Structure, leaves: list[Any]) -> list[int | None]:
    """Per leaf the dimension to map over, from the front, or None. Raises ValueError."""
    if not args:
        raise GradwireValueError(
            "vmap(f)(): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    given = tuple(in_dims) if isinstance(in_dims, list) else in_dims
    dims: list[int | None] = []
    for dim, leaf in zip(_prefix("in_dims", given, structure), leaves, strict=True):
        if dim is None:
            dims.append(None)
            continue
        if not isinstance(dim, int):
            raise GradwireValueError(
                f"vmap: Got in_dim={dim} for an input but in_dim must be either an integer or None."
            )
        if not isinstance(leaf, Tensor):
            raise GradwireValueError(
                f"vmap: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -leaf.dim() <= dim < leaf.dim():
            raise GradwireValueError(
                f"vmap: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()} so "
                f"expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
            )
        dims.append(dim % leaf.dim())
    return dims


def _size(dims: list[int | None], leaves: list[Any]) -> int:
    sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise GradwireValueError("vmap: at least one Tensor must be mapped over, but all in_dims are None.")
    if len(set(sizes)) > 1:
        raise GradwireValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
            "mapped dimension"
        )
    if not sizes[0]:
        raise refuse("vmap: the mapped dimension has no elements")
    return int(sizes[0])


def _prefix(name: str, given: Any, structure: Structure) -> list[Any]:
    """The entries given for a nested value, one per leaf: a number or None stands for all below it."""
    if given is None or isinstance(given, int):
        return [given] * structure.leaves
    fits = isinstance(given, dict) == bool(structure.kind is not None and issubclass(structure.kind, dict))
    if structure.kind is None or not fits or len(given) != len(structure.children):
        if name == "out_dims" and structure.kind is None and isinstance(given, tuple) and len(given) == 1:
            return [given[0]]
        raise GradwireValueError(f"vmap: {name} is not compatible with the structure of the {name[:-5]}puts: {given!r}")
    parts = [given[key] for key in structure.keys] if isinstance(given, dict) else list(given)
    entries = []
    for part, child in zip(parts, structure.children, strict=True):
        entries.extend(_prefix(name, part, child))
    return entries


DISPATCH.insert(0, dispatch)
FUNCTIONS.append(function_rule)
