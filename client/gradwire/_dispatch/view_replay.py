"""Replay of views: a view of one base made again of another (Tensor._view_func).

While views are tracked, each keeps the calls that lead to it from its base, and they are called again. Another view is
made by its sizes, strides and offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple

from gradwire._base.errors import refuse
from gradwire._base.refused import refusal
from gradwire._proxy.handle import Handle, handles_in
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.call import _call

_TRACKED: ContextVar[bool] = ContextVar("gradwire_tracked_views", default=False)
_MARK = object()

#: By op the places of the arguments that PyTorch's call keeps as sizes, in its order.
_SIZES: dict[str, tuple[int, ...]] = {
    "as_strided": (0, 1, 2),
    "expand": (0,),
    "select": (1,),
    "split": (0,),
    "view": (0,),
    **dict.fromkeys(["T", "diagonal", "movedim", "permute", "squeeze", "swapdims", "t", "transpose"], ()),
    **dict.fromkeys(["slice_inverse", "unbind", "unfold", "unsqueeze", "view_as_complex", "view_as_real"], ()),
}


class Step(NamedTuple):
    """One call that makes a view. `place` is the view's among several results."""

    op: str
    args: tuple[Any, ...]
    kwargs: Sequence[tuple[str, Any]] = ()
    result: Any = None
    place: int = 0

    def compute(self, source: Any) -> Any:
        """Make the view of another tensor."""
        if self.op in _COMPOSED:
            return _COMPOSED[self.op](source, *self.args)
        return list(handles_in(_call(self.op, (source, *self.args), self.kwargs, self.result)))[self.place]

    def visited(self, sizes: Callable[[int], int] | None, tensors: Callable[[Any], Any] | None) -> Step:
        """The step with other sizes and tensors."""
        args = list(self.args)
        if sizes is not None:
            if self.op not in _SIZES or self.kwargs:
                raise refusal("Tensor._view_func", f"symint_visitor_fn does not see the sizes of a {self.op}")
            for place in _SIZES[self.op]:
                if place < len(args) and args[place] is not None:
                    args[place] = _mapped(sizes, args[place])
        if tensors is not None:
            args = [tensors(each) if isinstance(each, Handle) else each for each in args]
        return self._replace(args=tuple(args))


def _mapped(change: Callable[[int], int], value: Any) -> Any:
    return [change(each) for each in value] if isinstance(value, (list, tuple)) else change(value)


def slice_inverse(self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """What `src` shows, in the memory of `self`, which is a slice of it (torch.ops.aten.slice_inverse)."""
    made = _untracked(_inverse, self, src)
    if _TRACKED.get():
        _note(made, self, Step("slice_inverse", (src,)))
    return made


def _inverse(self: Any, src: Any) -> Any:
    return self.as_strided(src.size(), src.stride(), src.storage_offset())


def _by_geometry(source: Any, sizes: Any, strides: Any, offset: int, dtype: Any) -> Any:
    """The elements at these places of a tensor's memory. They count in the dtype that the view has."""
    if source.dtype is not dtype:
        source = source.as_strided((source.untyped_storage().nbytes() // source.itemsize,), (1,), 0).view(dtype)
    return source.as_strided(sizes, strides, offset)


_COMPOSED: dict[str, Callable[..., Any]] = {"slice_inverse": _inverse, "geometry": _by_geometry}


def _geometry(tensor: Any, base: Any, source: Any) -> Step:
    """The step that finds a view of `base` by its place in memory, in `source`, which may have another dtype."""
    place = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    if tensor.dtype is base.dtype:
        return Step("as_strided", place)
    if source.dtype is not base.dtype:
        raise refusal("Tensor._view_func", "the view has another dtype than its base, and the new base a third")
    return Step("geometry", (*place, tensor.dtype))


def _steps_to(tensor: Any) -> tuple[Step, ...]:
    """The calls that lead to a tensor from its base."""
    view = tensor.__dict__.get("_view")
    if view is None:
        return ()
    return view.steps or (_untracked(_geometry, tensor, view.base, view.base),)


def _note(made: Any, source: Any, step: Step) -> None:
    """Let the results that are views of `source` keep how they were made."""
    held = source.__dict__.get("_view")
    base = source if held is None else held.base
    views = [each.__dict__.get("_view") for each in handles_in(made)]
    steps = _steps_to(source) if any(view is not None and view is not held for view in views) else ()
    for place, view in enumerate(views):
        if view is not None and view is not held and view.base is base:
            view.steps, view.tracked = (*steps, step._replace(place=place)), True


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Call an op and note how its views are made; NotImplemented unless views are tracked."""
    if not _TRACKED.get() or not args or not isinstance(args[0], Handle):
        return NotImplemented
    made = _untracked(_call, op, args, kwargs, result)
    if op == "view_as":
        op, rest = "view", (tuple(args[1]._spec.shape),)
    else:
        rest = args[1:]
    if next(handles_in((rest, kwargs)), None) is None:  # an index of tensors makes no view
        _note(made, args[0], Step(op, rest, kwargs, result))
    return made


def _untracked(function: Callable[..., Any], *args: Any) -> Any:
    token = _TRACKED.set(False)
    try:
        return function(*args)
    finally:
        _TRACKED.reset(token)


def view_again(
    view: Any,
    new_base: Any,
    symint_visitor_fn: Callable[[int], int] | None,
    tensor_visitor_fn: Callable[[Any], Any] | None,
    checked: bool,
) -> Any:
    """The view of another base. None if the tensor is no view, or `checked` and the bases lie otherwise in memory."""
    held = view.__dict__.get("_view")
    if held is None or (checked and not _alike(held.base, new_base)):
        return None
    if not held.steps:
        return _geometry(view, held.base, new_base).compute(new_base)
    made = new_base
    for step in held.steps:
        made = step.visited(symint_visitor_fn, tensor_visitor_fn).compute(made)
    return made


def base_again(view: Any, new_view: Any) -> Any:
    """A base for another view: what the base shows, in the memory of the new view. None if the tensor is no view.

    Raises RuntimeError for a view that was made while views were not tracked, and outside of the new view's memory.
    """
    held = view.__dict__.get("_view")
    if held is None:
        return None
    if not held.tracked:
        raise refuse("No _rev_view_func() found")
    return _geometry(held.base, view, new_view).compute(new_view)


def _alike(one: Any, other: Any) -> bool:
    """Whether two tensors have the same geometry."""
    same = one.shape == other.shape and one.stride() == other.stride()
    same = same and (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
    held = [each.untyped_storage().nbytes() // each.itemsize for each in (one, other)]
    return bool(same and held[0] == held[1] and one.storage_offset() == other.storage_offset())


def is_view_replay_enabled() -> bool:
    """Whether views keep how they were made (torch.autograd.is_view_replay_enabled)."""
    return _TRACKED.get()


def set_view_replay_enabled(enabled: bool) -> None:
    """Let views keep how they were made from now on, in this thread or task."""
    if enabled and not _TRACKED.get():
        BATCHING.append(_MARK)
    elif not enabled and _TRACKED.get():
        BATCHING.remove(_MARK)
    _TRACKED.set(bool(enabled))


class force_original_view_tracking:
    """Whether views keep how they were made, from now on, in a block or a function.

    `Tensor._view_func` then calls that again (torch.autograd._force_original_view_tracking).
    """

    def __init__(self, mode: bool) -> None:
        self.prev = _TRACKED.get()
        self.mode = mode
        set_view_replay_enabled(mode)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its calls in such a block."""
        set_view_replay_enabled(self.prev)

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return called

    def __enter__(self) -> None:
        set_view_replay_enabled(self.mode)

    def __exit__(self, *exc: object) -> None:
        set_view_replay_enabled(self.prev)

    def clone(self) -> force_original_view_tracking:
        """Another one of the same mode."""
        return type(self)(self.mode)


DISPATCH.append(_dispatch)
