"""Calls of compiled functions: collects the tensors, which become inputs, and the key that distinguishes calls."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwire._base.dtypes import get_default_dtype
from gradwire._base.errors import GradwireValueError
from gradwire._base.modes import GRAD_ENABLED
from gradwire._compile.result_structure import map_tensors
from gradwire._compile.value_snapshots import PLAIN, plain
from gradwire._functions import saved_tensor_hooks
from gradwire._graph.anomaly import _STATE as ANOMALY
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import Spec
from gradwire._tensor import ops
from gradwire._tensor.batching import REGION

# Attributes that this package sets on tensors.
OURS = frozenset(("_view", "_owner", "_function_context", "_node_id"))


class FunctionCall:
    """One call.

    `key` finds its recordings. `roots` are the other objects that recordings depend on. `feeds` are the tensors.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        batch: int | None,
        sliced: Sequence[int | str] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        option: str | None = None,
    ) -> None:
        self.function = function
        self._option = option or f"batch_size={batch}"  # what slices arguments, for errors
        self.args = args
        self.kwargs = kwargs
        self.feeds: list[Handle] = []
        self.batch = batch
        self.sliced: list[int] = []
        self.roots: list[Any] = [function]
        #: The containers among the arguments; each call may pass new ones.
        self.containers: list[Any] = []
        self._parts: list[Any] = []
        named = None if batch is None else _Sliced(function, sliced)
        if named is not None and (unknown := named.unknown(len(args), kwargs)):
            given = ", ".join(map(repr, named.known)) or "unknown"
            raise GradwireValueError(
                f"compile({self._option}): sliced names {unknown}, which are no arguments; the parameters are {given}"
            )
        for place, value in enumerate(args):
            self._add(value, named is not None and named.has(place))
        for name, value in kwargs.items():
            self._parts.append(name)
            self._add(value, named is not None and named.has(name))
        if batch is not None and not self.sliced:
            raise GradwireValueError(f"compile({self._option}): the call has no tensor argument that is sliced")
        self.key = self._make_key()

    def _add(self, value: Any, sliced: bool) -> None:
        kind = type(value)
        if isinstance(value, Handle):
            self._add_tensor(value, sliced)
        elif kind in PLAIN:
            self._parts.append(plain(value))
        elif kind is list or kind is tuple:
            self._parts.append((kind, len(value)))
            self.containers.append(value)
            for item in value:
                self._add(item, sliced)
        elif kind is dict:
            self._parts.append((kind, len(value)))
            self.containers.append(value)
            for name, item in value.items():
                self._add(name, False)
                self._add(item, sliced)
        else:
            self._parts.append(kind)
            self.roots.append(value)

    def _add_tensor(self, value: Any, sliced: bool) -> None:
        spec: Spec = value._fresh()
        if sliced:
            self._check_sliced(spec)
            self.sliced.append(len(self.feeds))
        self.feeds.append(value)
        self._parts.append(type(value))
        if len(value.__dict__) > ("_view" in value.__dict__) and value.__dict__.keys() - OURS:
            self.roots.append(attributes_of(value))

    def _check_sliced(self, spec: Spec) -> None:
        assert self.batch is not None
        if not spec.shape or spec.shape[0] < self.batch:
            raise GradwireValueError(
                f"compile({self._option}): a sliced argument of shape {tuple(spec.shape)} has fewer rows"
            )
        if spec.requires_grad:
            raise GradwireValueError(f"compile({self._option}): a sliced argument may not require a gradient")

    def _make_key(self) -> tuple[Any, ...]:
        feeds, parts = self.feeds, self._parts
        for place, feed in enumerate(feeds):
            spec = feed._spec
            if place in self.sliced:
                parts.extend((spec.dtype, (self.batch, *spec.shape[1:]), spec.device_name, place))
            else:
                parts.extend((spec, feed._retained is None))
            if len(feeds) > 1 or "_view" in feed.__dict__:
                parts.append(self._relation(place, feed))
        return (tuple(parts), tuple(self.sliced), ambient_state())

    def _relation(self, place: int, feed: Handle) -> tuple[Any, ...]:
        """Positions of the arguments that are the same tensor, its view's base, or share its bytes."""
        feeds, storage = self.feeds, feed._storage
        view = feed.__dict__.get("_view")
        same = next(number for number, other in enumerate(feeds) if other._id == feed._id)
        base = None if view is None else next((n for n, other in enumerate(feeds) if other is view.base), -1)
        aliases = None if storage is None else next(n for n, other in enumerate(feeds) if other._storage is storage)
        return (same, base, None if aliases == place else aliases)

    def slices(self) -> int:
        """Number of slices that every sliced argument has."""
        return min(self.feeds[place]._spec.shape[0] // (self.batch or 1) for place in self.sliced)

    def arguments(self, repetition: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of one repetition, as (args, kwargs)."""
        if not self.sliced:
            return self.args, self.kwargs
        places = iter(range(len(self.feeds)))

        def cut(tensor: Any) -> Any:
            place = next(places)
            if place not in self.sliced:
                return tensor
            assert self.batch is not None
            return ops.narrow(tensor, 0, repetition * self.batch, self.batch)

        args, kwargs = map_tensors((self.args, self.kwargs), cut)
        return args, kwargs


def attributes_of(tensor: Handle) -> dict[str, Any]:
    """Attributes that the user set on a tensor."""
    return {name: held for name, held in tensor.__dict__.items() if name not in OURS}


def ambient_state() -> tuple[Any, ...]:
    """Modes and defaults that affect what commands do."""
    region = REGION.get()
    return (
        None if region is None else frozenset(region.chosen.items()),
        GRAD_ENABLED.get(),
        get_default_dtype(),
        ANOMALY.enabled,
        ANOMALY.check_nan,
        saved_tensor_hooks.CURRENT.get(),
        saved_tensor_hooks.DISABLED.get(),
    )


def is_transformed() -> bool:
    """Whether a transform of gradwire.func is active; such transforms pass substitute tensors to functions."""
    batched = sys.modules.get("gradwire.func._batched")
    derivatives = sys.modules.get("gradwire.func._derivatives")
    return (batched is not None and bool(batched.LEVELS.get())) or (
        derivatives is not None and derivatives._CURRENT.get() is not None
    )


class _Sliced:
    """The arguments that `sliced` names, by position or by the function's name for it; all, if it is None."""

    def __init__(self, function: Any, sliced: Sequence[int | str] | None) -> None:
        target = function if hasattr(function, "__code__") else getattr(function, "forward", function)
        code = getattr(target, "__code__", None)
        bound = inspect.ismethod(target)
        self.sliced = sliced
        self.positional: tuple[str, ...] = code.co_varnames[bound : code.co_argcount] if code else ()
        self.known: tuple[str, ...] = (
            code.co_varnames[bound : code.co_argcount + code.co_kwonlyargcount] if code else ()
        )

    def has(self, name: int | str) -> bool:
        """Whether an argument is named, given its position or its keyword."""
        sliced = self.sliced
        if sliced is None or name in sliced:
            return True
        if isinstance(name, str):
            return name in self.positional and self.positional.index(name) in sliced
        return name < len(self.positional) and self.positional[name] in sliced

    def unknown(self, count: int, keywords: Iterable[str]) -> list[int | str]:
        """What names no argument of a call with so many positional arguments, and no parameter of the function."""
        names = {*self.known, *keywords}
        most = max(count, len(self.positional))
        return [
            each for each in self.sliced or () if not (0 <= each < most if isinstance(each, int) else each in names)
        ]
