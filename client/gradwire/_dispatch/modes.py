"""The stack of active dispatch modes, and the call of one ATen op through them.

Each mode runs with only the outer modes active, and so does the op when the mode calls it. As in PyTorch, a mode stands
below autograd: what it computes besides the op is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gradwire._base.modes import GRAD_ENABLED
from gradwire._base.refused import refusal
from gradwire._proxy.handle import Handle, handles_in
from gradwire._tensor.batching import BATCHING, REGION, restored

#: Active modes of this thread or task, the innermost last.
MODES: ContextVar[tuple[Any, ...]] = ContextVar("gradwire_dispatch_modes", default=())
#: The function of DISPATCH that shows ops to modes, once it is there.
SHOWING: list[Callable[..., Any]] = []
_FRAME: ContextVar[_Frame | None] = ContextVar("gradwire_dispatch_frame", default=None)
_REPLACED = (
    "a mode returned another tensor than func(*args, **kwargs) made, for a result that requires a gradient; the "
    "server differentiates only what the op computed. Use torch.no_grad(), or return what func made"
)

Compute = Callable[[], Any]


class _Frame:
    """One op that modes are shown: what computes it from these arguments, and what that made.

    grad: the grad mode of the caller, in which the op is recorded.
    """

    __slots__ = ("args", "compute", "func", "grad", "has_run", "kwargs", "made", "records")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Compute) -> None:
        self.func, self.args, self.kwargs, self.compute = func, args, kwargs, compute
        self.grad = GRAD_ENABLED.get()
        self.made: list[Handle] = []
        self.has_run = False
        self.records = False  # whether a mode of the library's own computes it in other ops, which are recorded

    def is_for(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call is that of this op with the arguments that the mode was given."""
        return func is self.func and _same(args, self.args) and _same(kwargs, self.kwargs)

    def run(self) -> Any:
        """Compute the op as its caller would, with no mode active."""
        token = GRAD_ENABLED.set(self.grad)
        try:
            found = self.compute()
        finally:
            GRAD_ENABLED.reset(token)
        self.has_run = True
        self.made.extend(handles_in(found))
        return found

    def check(self, found: Any) -> None:
        """Refuse a result that would need a derivative of what the mode did."""
        if (
            self.records
            or not self.grad
            or not any(each._spec.requires_grad for each in handles_in((self.args, self.kwargs)))
        ):
            return
        if self.has_run and not any(each._spec.requires_grad for each in self.made):
            return
        known = {id(each) for each in self.made}
        if self.has_run and self.func._qualname.endswith("_"):
            known.update(id(each) for each in handles_in(self.args[:1]))
        for each in handles_in(found):
            if id(each) not in known and (each._spec.dtype.is_floating_point or each._spec.dtype.is_complex):
                raise refusal("utils._python_dispatch.TorchDispatchMode", _REPLACED)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    return one is other or (not isinstance(one, Handle) and type(one) is type(other) and bool(one == other))


def enter(mode: Any) -> None:
    """Make a mode the innermost one."""
    MODES.set((*MODES.get(), mode))
    BATCHING.append(mode)


def leave() -> Any:
    """Take the innermost mode away, and return it."""
    *rest, mode = MODES.get()
    MODES.set(tuple(rest))
    for place in range(len(BATCHING) - 1, -1, -1):
        if BATCHING[place] is mode:
            del BATCHING[place]
            break
    return mode


@contextmanager
def only(modes: tuple[Any, ...]) -> Iterator[None]:
    """Inside, these modes are active."""
    token = MODES.set(modes)
    try:
        yield
    finally:
        MODES.reset(token)


@contextmanager
def _recording(flag: Any, frame: _Frame | None) -> Iterator[None]:
    """The grad mode and the frame of a mode's or an op's own calls."""
    mode, token = GRAD_ENABLED.set(flag), _FRAME.set(frame)
    try:
        yield
    finally:
        _FRAME.reset(token)
        GRAD_ENABLED.reset(mode)


def show(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Compute) -> Any:
    """Call an op through the active modes. `compute` computes it from these arguments, with no mode active."""
    frame = _Frame(func, args, kwargs, compute)
    found = _through(frame, func, args, kwargs)
    frame.check(found)
    return found


def is_shown_any() -> bool:
    """Whether a mode runs, to which an op is shown."""
    return _FRAME.get() is not None


def is_shown(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is that of the op that a mode is shown, with the arguments that the mode was given."""
    frame = _FRAME.get()
    return frame is not None and frame.is_for(func, args, kwargs)


def called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Compute) -> Any:
    """Call an op that user code called by its overload: in a mode, for the next outer one."""
    frame = _FRAME.get()
    if frame is None or not frame.is_for(func, args, kwargs):
        return show(func, args, kwargs, compute) if MODES.get() else compute()
    return _through(frame, func, args, kwargs)


def _through(frame: _Frame, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    modes = MODES.get()
    if not modes:
        with _recording(frame.grad, None), _without_casts():
            return frame.run()
    off: Any = False if GRAD_ENABLED.get() else GRAD_ENABLED.get()
    if getattr(modes[-1], "_records", False):
        off, frame.records = frame.grad, True
    with only(modes[:-1]), _recording(off, frame):
        found = modes[-1].__torch_dispatch__(func, (), args, kwargs)
    if found is NotImplemented:
        raise TypeError(
            f"Multiple dispatch failed for '{func}'; all __torch_dispatch__ handlers returned NotImplemented"
        )
    return found


@contextmanager
def _without_casts() -> Iterator[None]:
    """What modes are shown is cast already."""
    if REGION.get() is None:
        yield
    else:
        with restored(None):
            yield
