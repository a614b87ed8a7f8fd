"""Forward-mode differentiation: tensors with tangents (torch.autograd.forward_ad).

Inside `dual_level()`, `make_dual(x, v)` gives x the tangent v. Every op on such a dual tensor also computes the
tangents of its results, on the server. `unpack_dual` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from gradwire._base.errors import GradwireValueError, refuse
from gradwire._base.modes import is_inference_mode_enabled
from gradwire._proxy.dual_levels import DUAL_LEVELS, DualLevel
from gradwire._proxy.results import share_storage
from gradwire._proxy.transforms import unbatched
from gradwire._tensor import ops
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.call import _call
from gradwire._tensor.in_place import writes_in_place
from gradwire._tensor.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """The parts of a dual tensor. tangent: None if it has none at the level."""

    primal: Any
    tangent: Any


def enter_dual_level() -> int:
    """Open a level of forward-mode differentiation and return its number. Raises RuntimeError inside another level."""
    if DUAL_LEVELS.get():
        raise refuse("Nested forward mode AD is not supported at the moment")
    return push_level().depth - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: every tangent at it is dropped. Raises RuntimeError if the last one opened is another."""
    levels = DUAL_LEVELS.get()
    if not levels and level is None:
        raise refuse("Dual level must be a positive number.")
    if not levels or (level is not None and level != levels[-1].depth - 1):
        raise refuse(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    pop_level(levels[-1])


class dual_level:
    """Context manager: a level of forward-mode differentiation, closed at its end. Levels do not nest."""

    def __enter__(self) -> int:
        self._level = enter_dual_level()
        return self._level

    def __exit__(self, *exc: object) -> None:
        exit_dual_level(level=self._level)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of a tensor with a tangent of its shape: what is computed from it has tangents, too.

    `tensor` and `tangent` are floating or complex. Raises RuntimeError outside of a level, for another shape, and for a
    tensor that has a tangent at this level; ValueError for integers.
    """
    opened = _level(level)
    if opened is None:
        raise refuse(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, each in (("primal", tensor), ("tangent", tangent)):
        if not (each.is_floating_point() or each.is_complex()):
            raise GradwireValueError(f"Expected {name} to be floating point or complex, but got: {each.dtype}")
    if is_inference_mode_enabled():
        return tensor
    return dual_of(opened, tensor, tangent)


def dual_of(level: DualLevel, tensor: Tensor, tangent: Tensor) -> Tensor:
    """A view of a tensor with a tangent at a level. `unpack_dual` gives the very tangent back if both lie alike."""
    alike = _laid_out_alike(tensor, tangent)
    made = dual_at(level, tensor, tangent if alike else tangent.clone())
    if alike:
        made.__dict__["_given_tangent"] = (level, tangent, _changes(made))
    return made


def given_tangent(level: DualLevel, tensor: Tensor) -> Tensor:
    """A tensor's tangent at a level: the very tensor that it was given, unless that has become another since."""
    of_level, tangent, changes = tensor.__dict__.get("_given_tangent", (None, None, 0))
    if of_level is not level or (tangent.requires_grad and changes != _changes(tensor)):
        return tangent_at(level, tensor)
    return tangent  # type: ignore[no-any-return]


def _laid_out_alike(tensor: Tensor, tangent: Tensor) -> bool:
    """Whether a tangent has a tensor's strides, and as much memory unless one is batched. PyTorch copies others.

    It copies one of which another conjugation or negation is pending, too.
    """
    if tangent._spec.strides != tensor._spec.strides:
        return False
    if tangent.is_conj() is not tensor.is_conj() or tangent.is_neg() is not tensor.is_neg():
        return False
    batched = any(unbatched(each) is not each for each in (tensor, tangent))
    return batched or tangent.storage().size() == tensor.storage().size()


def _changes(tensor: Tensor) -> int:
    """How often a tensor's memory was changed in place."""
    return 0 if tensor._storage is None else tensor._storage.changes


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its tangent, and the tangent; None if it has none, and outside of a level.

    The tangent is the very tensor that `make_dual` got, which changes in place as the dual does. One that requires grad
    is another tensor after such a change.
    """
    opened = _level(level)
    if opened is None or not has_tangent(opened, tensor):
        return UnpackedDualTensor(tensor, None)
    tangent = given_tangent(opened, tensor)
    primal = primal_at(opened, tensor)
    if unbatched(tensor) is tensor and primal._storage is None:
        share_storage(primal, tensor)
    return UnpackedDualTensor(primal, tangent)


def _level(number: int | None) -> DualLevel | None:
    levels = DUAL_LEVELS.get()
    if number is None:
        return levels[-1] if levels else None
    return next((each for each in levels if each.depth - 1 == number), None)


# Without tangents: PyTorch's forward grad mode.

# Ops that read or make tangents.
_OF_LEVELS = frozenset({"make_dual", "dual_tangent", "dual_primal", "exit_dual_level"})
_ENABLED: ContextVar[bool] = ContextVar("gradwire_fwd_grad_enabled", default=True)


def _is_fwd_grad_enabled() -> bool:
    """Whether ops on tensors with tangents compute tangents in this thread."""
    return _ENABLED.get()


def set_fwd_grad_enabled(enabled: bool) -> None:
    """Whether ops compute tangents in this thread, from now on (torch._C._set_fwd_grad_enabled)."""
    if enabled != _ENABLED.get():
        _ENABLED.set(enabled)
        BATCHING.remove(_is_fwd_grad_enabled) if enabled else BATCHING.append(_is_fwd_grad_enabled)


class _set_fwd_grad_enabled:
    """Sets whether ops compute tangents, from now on or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self.prev = _is_fwd_grad_enabled()
        set_fwd_grad_enabled(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        set_fwd_grad_enabled(self.prev)


def _without_tangents(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """The op on its operands' primals, where ops compute no tangents; NotImplemented for other calls."""
    levels = DUAL_LEVELS.get()
    if _ENABLED.get() or not levels or op in _OF_LEVELS:
        return NotImplemented
    primals = [_primals_of(levels, each) for each in args]
    named = [(name, _primals_of(levels, each)) for name, each in kwargs]
    given = [*args, *(each for _, each in kwargs)]
    if all(one is other for one, other in zip([*primals, *(each for _, each in named)], given, strict=True)):
        return NotImplemented
    made = _call(op, tuple(primals), named, result)
    return args[0] if writes_in_place(op) else made


def _primals_of(levels: Sequence[DualLevel], value: Any) -> Any:
    """A value with tensors without tangents: the same object if it has none."""
    if isinstance(value, (tuple, list)):
        made = [_primals_of(levels, each) for each in value]
        return value if all(one is other for one, other in zip(made, value, strict=True)) else type(value)(made)
    if isinstance(value, Tensor):
        for level in levels:
            value = primal_at(level, value) if has_tangent(level, value) else value
    return value


# Levels for transforms (gradwire.func), which nest.


def push_level(nests: bool = False) -> DualLevel:
    """Open a level inside those that are open in this thread. nests: whether it may have others inside."""
    levels = DUAL_LEVELS.get()
    made = DualLevel(len(levels) + 1, nests)
    DUAL_LEVELS.set((*levels, made))
    return made


def pop_level(level: DualLevel) -> None:
    """Close a level and those inside of it."""
    levels = DUAL_LEVELS.get()
    place = levels.index(level)
    DUAL_LEVELS.set(levels[:place])
    for each in reversed(levels[place:]):
        for token in each.tokens.values():
            ops.exit_dual_level(token)
        each.tokens.clear()
        each.forget()


class transform_level:
    """Context manager: the level of a transform, which may be inside those of others.

    Raises RuntimeError inside `dual_level`.
    """

    def __enter__(self) -> DualLevel:
        if any(not each.nests for each in DUAL_LEVELS.get()):
            raise refuse("Nested forward mode AD is not supported at the moment")
        self._enabled = _set_fwd_grad_enabled(True)
        self._level = push_level(nests=True)
        return self._level

    def __exit__(self, *exc: object) -> None:
        pop_level(self._level)
        self._enabled.__exit__()


def dual_at(level: DualLevel, tensor: Tensor, tangent: Tensor) -> Tensor:
    """A view of a tensor with a tangent at a level."""
    return ops.make_dual(tensor, tangent, _token(level, tensor), level.depth)


def has_tangent(level: DualLevel, tensor: Tensor) -> bool:
    """Whether a tensor has a tangent at a level."""
    return any(depth == level.depth for depth, _ in tensor._fresh().tangents)


def tangent_at(level: DualLevel, tensor: Tensor) -> Tensor:
    """A tensor's tangent at a level."""
    made = ops.dual_tangent(tensor, _token(level, tensor))
    value, source = unbatched(made), unbatched(tensor)
    if value._spec.requires_grad and not value._spec.is_leaf:
        edges = [*source.__dict__.get("_tangent_edges", ())]
        value._edge = edges if source._edge is None else [source._edge, *edges]
    return made


def primal_at(level: DualLevel, tensor: Tensor) -> Tensor:
    """A view of a tensor without its tangent at a level."""
    return ops.dual_primal(tensor, _token(level, tensor))


def _token(level: DualLevel, tensor: Tensor) -> Tensor:
    """The tensor that stands for a level in the tensor's session."""
    session = tensor._session
    token = level.tokens.get(session)
    if token is None:
        token = level.tokens[session] = ops.new_zeros(unbatched(tensor), ())
    return token


def __getattr__(name: str) -> Any:
    """`_current_level`, which libraries read: the number of the level that is open, -1 outside of any."""
    if name != "_current_level":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
    levels = DUAL_LEVELS.get()
    return levels[-1].depth - 1 if levels else -1


DISPATCH.append(_without_tangents)
