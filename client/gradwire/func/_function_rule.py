"""The batching rule of custom functions that define one: their static method `vmap` gets the values of all samples."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from gradwire._base.errors import GradwireNotImplementedError, refuse
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.function import Function, is_internal
from gradwire.func._batched import LEVELS, BatchedTensor, Level, innermost, is_batched
from gradwire.func._generated_rule import call_on_samples
from gradwire.func._pytree import Structure, flatten, rebuild, tree_map


class VmapInfo(NamedTuple):
    """What `Function.vmap` is told of the map."""

    batch_size: int
    randomness: str


def function_rule(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results for all samples by the function's own rule; NotImplemented without one or without a batch.

    Raises RuntimeError for an answer that is no pair of a result and its dimensions, or beside generate_vmap_rule.
    """
    level = innermost(flatten(args)[0])
    if level is None:
        return NotImplemented
    anything = level.maps_functions or function.generate_vmap_rule or is_internal(function)
    if function.vmap is Function.vmap and anything:
        return call_on_samples(function, _complete(function, args, kwargs), level)
    if function.vmap is Function.vmap:
        raise refuse(
            f"You tried to vmap over {function.__name__}, but it does not have vmap support. Please override and "
            "implement the vmap staticmethod or set generate_vmap_rule=True. For more details, please see "
            "https://pytorch.org/docs/main/notes/extending.func.html"
        )
    if any(isinstance(each, Tensor) for each in flatten(list(kwargs.values()))[0]):
        raise GradwireNotImplementedError(
            "Run vmap on autograd.Function with kwarg-only Tensor args. Please do not pass kwarg-only Tensors to "
            f"autograd.Function. Got: {kwargs}"
        )
    if function.generate_vmap_rule:
        raise refuse(
            f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an overridden "
            "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to "
            "avoid ambiguity."
        )
    dims = tree_map(lambda each: each.samples[1] if is_batched(each, level) else None, args)
    values = tree_map(lambda each: each.samples[0] if is_batched(each, level) else each, args)
    info = VmapInfo(level.size, level.randomness)
    outer = LEVELS.get()
    token = LEVELS.set(outer[: outer.index(level)])
    try:
        answer = function.vmap(info, dims, *values, **kwargs)
    finally:
        LEVELS.reset(token)
    if not isinstance(answer, tuple) or len(answer) != 2:
        got = f"{len(answer)} returns" if isinstance(answer, tuple) else f"a {type(answer)}"
        raise refuse(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
            f"compatible with the output. Got {got} instead"
        )
    found, form = flatten(answer[0])
    places = _out_dims(function.__name__, answer[1], form)
    return rebuild(form, [_of_samples(each, place, level) for each, place in zip(found, places, strict=True)])


def _complete(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments with their defaults, as functions with `setup_context` get them."""
    if function.setup_context is Function.setup_context:
        return args
    bound = inspect.signature(function.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args


def _out_dims(name: str, given: Any, form: Structure) -> list[Any]:
    """A result's dimension of samples per leaf; one entry stands for all of a container."""
    if given is None or isinstance(given, int):
        return [given] * form.leaves
    items = list(given.values()) if isinstance(given, dict) else list(given)
    fits = form.kind is not None and issubclass(form.kind, type(given)) and len(items) == len(form.children)
    if not fits:
        raise refuse(
            f"The autograd.Function {name}'s vmap staticmethod returned an incompatible (output, out_dims) tuple: "
            f"out_dims is {given}, and its structure is not that of the output"
        )
    return [place for part, child in zip(items, form.children, strict=True) for place in _out_dims(name, part, child)]


def _of_samples(value: Any, place: int | None, level: Level) -> Any:
    return value if place is None else BatchedTensor(value.movedim(place, 0) if place else value, level)
