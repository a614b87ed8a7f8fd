"""Functionalization: shows outer modes a function's ops without in-place changes, and if asked without views.

The function computes on copies of its inputs, as it is written. Beside each of its tensors stands a value that only
ops without side effects made. Tensors that share memory share the value of the first of them, the base: a change of a
view changes that value by the view's inverse, and each other view is made anew when it is read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradwire._base.modes import no_grad
from gradwire._base.refused import refusal
from gradwire._dispatch import modes
from gradwire._dispatch.calls import aten
from gradwire._dispatch.inverses import INVERSES
from gradwire._dispatch.kernels import VIEWS
from gradwire._dispatch.schemas import schema_of
from gradwire._proxy.handle import Handle, handles_in

# In-place ops that draw numbers, whose forms that make a new tensor have other names.
_DRAWS = {"normal_": "normal_functional", "bernoulli_": "bernoulli"}
# In-place ops that change a tensor's sizes: views of it.
_RESHAPES = frozenset(["as_strided_", "squeeze_", "t_", "transpose_", "unsqueeze_"])


class _Base:
    """Memory that several tensors share: its present value, and how many times it was changed."""

    def __init__(self, value: Any) -> None:
        self.value, self.changes = value, 0


class _View:
    """One step from a tensor to a view of it: the op, and which of its results."""

    def __init__(self, name: str, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any], place: int | None):
        self.name, self.overload, self.args, self.kwargs, self.place = name, overload, args, kwargs, place

    def of(self, value: Any, copies: bool) -> Any:
        """The view of a value, or its copy."""
        made = _view(self.name, self.overload, value, self.args, self.kwargs, copies)
        return made if self.place is None else made[self.place]

    def inverse(self, base: Any, value: Any, copies: bool) -> Any:
        """The base whose view is `value`."""
        found = INVERSES.get(self.name)
        if found is None:
            raise refusal("func.functionalize", f"no inverse of the view {self.name} is known here")
        return found(base, value, self, copies)


def _view(name: str, overload: str, value: Any, args: Any, kwargs: Any, copies: bool) -> Any:
    return aten(f"{name}_copy.{overload}" if copies else f"{name}.{overload}", value, *args, **kwargs)


class _State:
    """What stands for one tensor: its value, its base, and the views from the base to it."""

    def __init__(self, base: _Base, views: tuple[_View, ...], value: Any) -> None:
        self.base, self.views, self.value = base, views, value
        self.seen = 0  # changes of the base that the value has

    def read(self, copies: bool) -> Any:
        """The value, made anew if the base has changed since."""
        if self.seen != self.base.changes:
            made = self.base.value
            for each in self.views:
                made = each.of(made, copies)
            self.value, self.seen = made, self.base.changes
        return self.value

    def write(self, value: Any, copies: bool) -> None:
        """Replace the value, and the base's by it."""
        self.value = value
        self.base.changes += 1
        bases = [self.base.value]
        for each in self.views[:-1]:
            bases.append(each.of(bases[-1], copies))
        for each, base in zip(reversed(self.views), reversed(bases), strict=False):
            value = each.inverse(base, value, copies)
        self.base.value = value
        self.read(copies)


class FunctionalMode:
    """The mode in which a function's own tensors are copies. It records what the outer modes show."""

    _records = True

    def __init__(self, copies: bool) -> None:
        self._copies = copies
        # By a tensor's object: a reference to it, and its state.
        self._states: dict[int, tuple[weakref.ref[Any], _State]] = {}
        self._kept: list[Any] = []

    def wrap(self, value: Any) -> Any:
        """The function's own tensor for a value, with the value as its state."""
        with modes.only(()), no_grad():
            made = value.detach().clone()
        self._note(made, _State(_Base(value), (), value))
        return made

    def _note(self, tensor: Any, state: _State) -> None:
        self._states[id(tensor)] = weakref.ref(tensor), state
        self._kept.append(tensor)

    def state_of(self, tensor: Any) -> _State | None:
        """What stands for a tensor; None for one from outside."""
        found = self._states.get(id(tensor))
        return None if found is None or found[0]() is not tensor else found[1]

    def unwrap(self, value: Any) -> Any:
        """Arguments with the values that stand for the tensors in them."""
        if isinstance(value, Handle):
            state = self.state_of(value)
            return value if state is None else state.read(self._copies)
        if isinstance(value, (tuple, list)):
            made = [self.unwrap(each) for each in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, dict):
            return {key: self.unwrap(each) for key, each in value.items()}
        return value

    def _wrapped(self, made: Any) -> Any:
        if isinstance(made, Handle):
            return self.wrap(made)
        if isinstance(made, (tuple, list)):
            parts = [self._wrapped(each) for each in made]
            return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name, overload = func._qualname.removeprefix("aten::"), func._overloadname
        tracked = [each for each in handles_in((args, kwargs)) if self.state_of(each) is not None]
        _check_writes(name, args, kwargs)
        if name in VIEWS and tracked and args and args[0] is tracked[0]:
            return self._viewed(func, name, overload, args, kwargs)
        if name.endswith("_") and not name.endswith("__"):
            return self._changed(func, name, overload, args, kwargs)
        return self._wrapped(func(*self.unwrap(tuple(args)), **self.unwrap(kwargs)))

    def _viewed(self, func: Any, name: str, overload: str, args: Any, kwargs: Any) -> Any:
        """A view of one of the function's tensors: of its copy, and of the value."""
        state = self.state_of(args[0])
        assert state is not None
        # As in PyTorch, of a value that may be out of date: what reads the view makes it anew.
        value = _view(name, overload, state.value, args[1:], kwargs, self._copies)
        with modes.only(()), no_grad():
            made = func(*args, **kwargs)
        several = isinstance(made, (tuple, list))
        for place, (each, one) in enumerate(zip(made, value, strict=True) if several else [(made, value)]):
            step = _View(name, overload, tuple(args[1:]), kwargs, place if several else None)
            self._note(each, _State(state.base, (*state.views, step), one))
        return made

    def _changed(self, func: Any, name: str, overload: str, args: Any, kwargs: Any) -> Any:
        """An in-place change: a new value for the tensor, and the change of the function's copy."""
        target = args[0]
        state = self.state_of(target)
        if state is None:
            raise refusal("func.functionalize", "no in-place change of a tensor that the function was not given")
        if name in _RESHAPES:
            step = _View(name[:-1], overload, tuple(args[1:]), kwargs, None)
            value = step.of(state.read(self._copies), self._copies)
            self._write_copy(func, args, kwargs)
            fresh = _State(state.base, (*state.views, step), value)
            fresh.seen = state.base.changes
            self._note(target, fresh)
            return target
        value = self._new_value(name, overload, self.unwrap(tuple(args)), self.unwrap(kwargs))
        with modes.only(()), no_grad():
            if tuple(value.shape) != tuple(target.shape):
                target.resize_(tuple(value.shape))
            target.copy_(value)
        state.write(value, self._copies)
        return target

    def _write_copy(self, func: Any, args: Any, kwargs: Any) -> None:
        with modes.only(()), no_grad():
            func(*args, **kwargs)

    def _new_value(self, name: str, overload: str, args: Any, kwargs: Any) -> Any:
        plain = _DRAWS.get(name, name[:-1])
        if name == "bernoulli_" and overload == "float":
            overload = "p"
        if schema_of(plain, overload) is None:
            raise refusal("func.functionalize", f"aten.{name}.{overload} has no form without an in-place change here")
        return aten(f"{plain}.{overload}", *args, **kwargs)

    def write_out(self, target: Any, made: Any, compute: Callable[[], Any]) -> bool:
        """Let a result be an `out=` tensor's new value. Returns False for a tensor from outside."""
        state, source = self.state_of(target), self.state_of(made)
        if state is None or source is None or target.dtype is not made.dtype:
            return False
        with modes.only(()):
            compute()
        state.write(source.read(self._copies), self._copies)
        return True


def _check_writes(name: str, args: Any, kwargs: Any) -> None:
    """Refuse a normalization that changes running statistics: no in-place op, it changes arguments all the same."""
    if name == "native_batch_norm":
        written = args[3:5] if args[5] else ()
    elif name in ("batch_norm", "instance_norm"):
        written = kwargs.get("running_mean"), kwargs.get("running_var")
    else:
        written = ()
    if any(isinstance(each, Handle) for each in written):
        raise refusal("func.functionalize", f"no changes of running statistics by {name}")


@contextmanager
def _active(mode: FunctionalMode) -> Iterator[None]:
    modes.enter(mode)
    try:
        yield
    finally:
        modes.leave()


def functional_call(func: Callable[..., Any], args: Any, kwargs: Any, copies: bool) -> Any:
    """Call a function in the mode. Inputs that it changed are changed at the end, by a copy."""
    mode = FunctionalMode(copies)
    inputs: list[tuple[Any, Any]] = []

    def wrap(value: Any) -> Any:
        if isinstance(value, Handle):
            made = mode.wrap(value)
            inputs.append((value, made))
            return made
        if isinstance(value, (tuple, list)):
            parts = [wrap(each) for each in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if isinstance(value, dict):
            return {key: wrap(each) for key, each in value.items()}
        return value

    given, named = wrap(tuple(args)), wrap(dict(kwargs))
    with _active(mode):
        made = func(*given, **named)
    result = mode.unwrap(made)
    for value, own in inputs:
        state = mode.state_of(own)
        if state is not None and state.base.changes:
            _give_back(value, state.read(copies))
    return result


def _give_back(target: Any, value: Any) -> None:
    if tuple(target.shape) != tuple(value.shape):
        target = aten("resize_.default", target, list(value.shape))
    aten("copy_.default", target, value)
