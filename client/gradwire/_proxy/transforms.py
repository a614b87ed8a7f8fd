"""Transforms of functions under way (gradwire.func), and what a function inside of one may not do."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import GRAD_ENABLED
from gradwire._proxy.handle import Handle

#: The innermost transform of this thread.
TRANSFORM: ContextVar[Transform | None] = ContextVar("gradwire_transform", default=None)
_INSIDE = (
    "You are attempting to call Tensor.{name}(){also} inside of a function being transformed by a functorch transform. "
    "This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or "
    "call {name}() outside of a function being transformed instead."
)


class Transform:
    """One call of a transform: a vmap, or a derivative, which knows the tensors its function may change in place.

    depth: 1 for the outermost.
    """

    def __init__(self, differentiates: bool, forward: bool = False) -> None:
        """forward: whether a derivative is one in forward mode."""
        self.forward = forward
        #: Whether grad mode was on around it.
        self.recorded = bool(GRAD_ENABLED.get())
        self.outer = TRANSFORM.get()
        self.depth: int = 1 if self.outer is None else self.outer.depth + 1
        self.differentiates = differentiates
        # Per session the id from which on tensors were made inside.
        self._first_ids: dict[Any, int] = {}
        self._given: set[int] = set()

    def admit(self, values: Iterable[Any]) -> None:
        """Take the function's arguments: it may change them. `values` are its tensors and anything else."""
        for each in values:
            if isinstance(each, Handle):
                plain = unbatched(each)
                self._given.add(plain._id)
                if plain._session not in self._first_ids:
                    self._first_ids[plain._session] = next(plain._session.ids)

    def owns(self, tensor: Handle) -> bool:
        """Whether the tensor was made inside, or is an argument."""
        first = self._first_ids.get(tensor._session)
        return first is None or tensor._id >= first or tensor._id in self._given

    def __enter__(self) -> Transform:
        self._token = TRANSFORM.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        TRANSFORM.reset(self._token)


def unbatched(tensor: Any) -> Any:
    """The tensor with all samples, for one of a vmap."""
    while "_value" in tensor.__dict__:
        tensor = tensor.__dict__["_value"]
    return tensor


def depths_inside(tensor: Handle, below: float, above: int = 0) -> list[int]:
    """The depths, between two, of the derivatives inside of which a tensor was made, or whose argument it is."""
    found = []
    inside = TRANSFORM.get()
    while inside is not None:
        if above < inside.depth < below and inside.differentiates and inside.owns(tensor):
            found.append(inside.depth)
        inside = inside.outer
    return found


def check_not_captured(op: str, target: Handle) -> None:
    """Raise RuntimeError for an in-place change of a tensor that the innermost derivative's function was not given."""
    inside = TRANSFORM.get()
    while inside is not None and not inside.differentiates:
        inside = inside.outer
    if inside is not None and not inside.owns(unbatched(target)):
        name = "copy_" if op == "setitem_" else op
        raise refuse(
            "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation "
            f"(aten::{name}) that would mutate a captured Tensor. This is not supported; please rewrite the function "
            "being transformed to explicitly accept the mutated Tensor(s) as inputs."
        )


def refuse_inside(name: str) -> None:
    """Raise RuntimeError for a method that a function under a transform may not call."""
    if TRANSFORM.get() is not None:
        also = " (or perhaps using torch.autograd.functional.* APIs)" if name == "requires_grad_" else ""
        raise refuse(_INSIDE.format(name=name, also=also))
