"""Tangents of custom functions: `jvp` computes them, as `backward` computes gradients (torch.autograd.Function)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import is_grad_enabled
from gradwire._functions.create import zeros_like
from gradwire._proxy.dual_levels import DUAL_LEVELS, DualLevel
from gradwire._proxy.handle import Handle
from gradwire._proxy.transforms import unbatched
from gradwire.autograd.forward_ad import dual_at, dual_of, given_tangent, has_tangent, primal_at


def level_of(values: Sequence[Any]) -> DualLevel | None:
    """The innermost open level at which one of the arguments has a tangent."""
    for level in reversed(DUAL_LEVELS.get()):
        if any(isinstance(each, Handle) and has_tangent(level, each) for each in values):  # type: ignore[arg-type]
            return level
    return None


def with_tangents(function: Any, level: DualLevel, args: Sequence[Any], call: Callable[..., Any]) -> Any:
    """Call a custom function on arguments with tangents at a level, and give its results theirs.

    `call` applies it to arguments without these, and returns the result and the context. Raises what `jvp` raises;
    RuntimeError for tangents of another number, class or shape, and for an input changed in place without its tangent.
    """
    dual = [isinstance(each, Handle) and has_tangent(level, each) for each in args]  # type: ignore[arg-type]
    primals = [primal_at(level, each) if is_dual else each for each, is_dual in zip(args, dual, strict=True)]
    result, ctx, saved = call(tuple(primals))
    if ctx is None:
        raise refuse(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            "override the setup_context staticmethod."
        )
    given: list[Any] = []
    for each, is_dual, primal in zip(args, dual, primals, strict=True):
        if is_dual:
            given.append(given_tangent(level, each))
        elif isinstance(each, Handle) and ctx.materialize_grads and _differentiable(each):
            given.append(zeros_like(primal))
        else:
            given.append(None)
    ctx._saved = saved
    versions = [_version(each) for each in given]
    try:
        made = function.jvp(ctx, *given)
    finally:
        ctx._saved = None
    several = isinstance(result, tuple)
    results = list(result) if several else [result]
    tangents = list(made) if isinstance(made, tuple) else [made]
    if len(tangents) != len(results):
        raise refuse(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(results)} but got "
            f"{len(tangents)})"
        )
    for place, (each, tangent) in enumerate(zip(results, tangents, strict=True)):
        _check_tangent(place, each, tangent, ctx, args, list(zip(primals, given, strict=True)))
        changed = [at for at, primal in enumerate(primals) if ctx._changed_inputs and primal is each]
        if changed and tangent is not None:
            results[place] = _changed_input(
                level,
                args[changed[0]],
                dual[changed[0]],
                each,
                tangent,
                [given[at] for at in changed if _version(given[at]) != versions[at]],
            )
        else:
            results[place] = _dual_result(level, place, each, tangent)
    answer = tuple(results) if several else results[0]
    function._note_tangents(ctx, level, args, answer)
    return answer


def _check_tangent(
    place: int, result: Any, tangent: Any, ctx: Any, args: Sequence[Any], inputs: Sequence[tuple[Any, Any]]
) -> None:
    """Refuse a tangent of a result that has none, and one that is not the same view as its result.

    `inputs` are the arguments without tangents, each with its tangent.
    """
    if tangent is None or not isinstance(result, Handle):
        return
    if place in ctx._constant_places or not _differentiable(result):
        raise refuse(
            f"Function's jvp returned a gradient at position {place}, but  the corresponding forward output is not a "
            "differentiable Tensor.You should return None at that position instead."
        )
    if not isinstance(tangent, Handle) or any("_value" in each.__dict__ for each in (result, tangent)):
        return
    shown = [(arg, one, other) for arg, (one, other) in zip(args, inputs, strict=True) if isinstance(one, Handle)]
    seen = next((each for each in shown if result is not each[1] and _base(result) is _base(each[1])), None)
    if seen is None or not result._spec.is_view:
        return
    if not tangent._spec.is_view:
        raise refuse(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
    argument, _, direction = seen
    if isinstance(direction, Handle) and _base(tangent) is not _base(direction):
        which = "given grad input" if "_given_tangent" in argument.__dict__ else "same base as the given grad input"
        raise refuse(f"A custom Function is returning a view but the jvp is not returning a view of the {which}.")


def _base(tensor: Any) -> Any:
    """The tensor whose memory a view shows; the tensor itself if it is none."""
    view = tensor.__dict__.get("_view")
    return tensor if view is None else view.base


def _version(tensor: Any) -> int:
    """How often a tensor was changed in place; 0 for none."""
    return 0 if tensor is None else int(unbatched(tensor)._version)


def _changed_input(
    level: DualLevel, argument: Any, is_dual: bool, primal: Any, tangent: Any, given: Sequence[Any]
) -> Any:
    """The argument itself, whose value and tangent were changed in place. `given` are its tangents that were.

    Both are views of the argument's where reverse mode takes no part. Elsewhere they have new histories: a copy brings
    these to the argument, whose values it leaves as they are.
    """
    if not any(tangent is each for each in given):
        raise refuse(
            "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
            "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
        )
    if not is_dual or (is_grad_enabled() and (argument._spec.requires_grad or tangent._spec.requires_grad)):
        argument.copy_(dual_at(level, primal.clone(), tangent.clone()))
    return argument


def _dual_result(level: DualLevel, place: int, result: Any, tangent: Any) -> Any:
    if tangent is None or not isinstance(result, Handle) or not _differentiable(result):
        return result
    if not isinstance(tangent, Handle):
        raise refuse(f"expected Variable or None (got {type(tangent).__name__}) for grad output {place}.")
    if tangent._spec.shape != result._spec.shape:
        raise refuse(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(result._spec.shape)} while the given forward gradient is of size "
            f"{list(tangent._spec.shape)}."
        )
    return dual_of(level, result, tangent)  # type: ignore[arg-type]


def _differentiable(tensor: Handle) -> bool:
    return bool(tensor._spec.dtype.is_floating_point or tensor._spec.dtype.is_complex)
