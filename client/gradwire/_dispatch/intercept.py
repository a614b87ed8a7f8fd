"""From a call of a gradwire op to the calls of ATen's ops that active modes see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire._base.refused import refusal
from gradwire._base.wiring import wired
from gradwire._dispatch import modes
from gradwire._dispatch.calls import aten, shown
from gradwire._dispatch.kernels import kernel_parameters
from gradwire._dispatch.overloads import Choice, choose
from gradwire._dispatch.rules import RULES
from gradwire._functions import saved_tensor_hooks
from gradwire._proxy.results import pack_results
from gradwire._tensor.batching import (
    CUSTOM_OPS,
    DERIVATIVES,
    DISPATCH,
    FLAGS,
    LIFTS,
    MADE,
    OUTS,
    READS,
    REGION,
    RESHAPES,
)
from gradwire._tensor.call import OPS, _call, _parameters, _without_defaults
from gradwire._tensor.warnings import warn_once

_UNSEEN = "Dispatch modes do not see the ops of backward: the server computes them. Counts of ops or FLOPs miss them."
# What the library asks for on its own: no op of the user's.
_HIDDEN = frozenset(
    ["check_all", "dual_primal", "dual_tangent", "exit_dual_level", "resolve_conj", "take_geometry", "take_geometry_"]
)


class OpCall:
    """One call of an op: its name, and what computes it with no mode active."""

    def __init__(self, op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> None:
        self.op, self._result = op, result
        self._args = tuple([_plain(each) for each in args])
        self._kwargs = [(name, _plain(each)) for name, each in kwargs]

    def compute(self) -> Any:
        """Compute the op."""
        return _call(self.op, self._args, self._kwargs, self._result)

    def shown(self, full: str, args: tuple[Any, ...], kwargs: dict[str, Any], own: bool = True) -> Any:
        """Show an overload with exactly these arguments. own: whether it is the whole op."""
        name, _, overload = full.partition(".")
        return shown(name, Choice(overload, args, kwargs), self.compute if own else None)

    def named(self) -> list[tuple[str, Any]]:
        """The arguments by name."""
        names = _parameters(self.op)[0]
        return [*zip(names, self._args, strict=False), *self._kwargs]

    def as_one(self) -> Any:
        """Show the op as the one of ATen that has its name."""
        defaults = _defaults(self.op)
        name = self.op.replace(".", "_")
        choice = choose(name, self.named(), defaults)
        if choice is None:
            args, kwargs = _without_defaults(self.op, self._args, self._kwargs)
            choice = Choice("default", *self._for_kernel(name, tuple(args), dict(kwargs)))
        return shown(name, choice, self.compute)

    def _for_kernel(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments of an op without a schema here: by name from where its kernel has another order."""
        names, given = _parameters(self.op)[0], kernel_parameters(name)
        if len(names) < len(args) or not given or any(each not in given for each in names[1 : len(args)]):
            return args, kwargs
        same = 1
        while same < len(args) and same < len(given) and names[same] == given[same]:
            same += 1
        return args[:same], {**dict(zip(names[same:], args[same:], strict=False)), **kwargs}


def _plain(value: Any) -> Any:
    """An argument as modes see it: a number of NumPy is Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _defaults(op: str) -> dict[str, Any]:
    known: Any = OPS[0].DEFAULTS
    found: dict[str, Any] = known.get(op) or known.get(op.removesuffix("_"), {})
    return found


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Call an op through the active modes; NotImplemented if there are none."""
    if not modes.MODES.get() or op in _HIDDEN:
        return NotImplemented
    if REGION.get() is not None:
        cast = wired("call_with_casts")(op, args, kwargs, result)
        if cast is not NotImplemented:
            return cast
    call = OpCall(op, args, kwargs, result)
    rule: Callable[..., Any] | None = RULES.get(op)
    made = NotImplemented if rule is None else rule(call, **dict(call.named()))
    if made is NotImplemented:
        made = call.as_one()
    if result is not None and type(made) in (tuple, list):
        return pack_results(op, tuple(made), result)
    return made


def _custom_op(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Callable[[], Any]) -> Any:
    """Call an op of torch.library through the active modes."""
    if not modes.MODES.get() and not modes.is_shown(overload, args, kwargs):
        return NotImplemented
    return modes.called(overload, args, kwargs, compute)


def _read(source: Any) -> Any:
    return aten("_local_scalar_dense.default", source) if modes.MODES.get() else NotImplemented


def _lift(made: Any) -> Any:
    return aten("lift_fresh.default", made) if modes.MODES.get() else made


def _differentiated(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A derivative, which the server computes: only modes that trace see it, as one call."""
    active = modes.MODES.get()
    if not active:
        return NotImplemented
    if any(getattr(each, "_records", False) for each in active):
        raise refusal("func.functionalize", "no derivative inside of a functionalized function")
    tracing = getattr(active[-1], "_trace_derivative", None)
    if tracing is None:
        warn_once(_UNSEEN)
        return NotImplemented
    with modes.only(()):
        return tracing(function, args)


def _flagged(tensor: Any, flag: bool) -> None:
    """Let modes that trace see a leaf."""
    for mode in modes.MODES.get():
        if getattr(mode, "_records", False) and flag:
            raise refusal("func.functionalize", "no derivative, and no leaf for one, in a functionalized function")
        tracing = getattr(mode, "_trace_flag", None)
        if tracing is not None:
            tracing(tensor, flag)


def _reshaped(tensor: Any, name: str, args: tuple[Any, ...], compute: Callable[[], Any] | None) -> Any:
    """A change of a tensor's sizes in place, which is an op; other memory for it is none, and is refused."""
    if not modes.MODES.get():
        return NotImplemented
    if compute is None:
        raise refusal("utils._python_dispatch.TorchDispatchMode", f"no Tensor.{name} in a dispatch mode")
    given = [each for each in args if each is not None]
    form = {"transpose_": "default", "squeeze_": "default" if not given else "dim"}.get(name, "default")
    if form == "dim" and not isinstance(given[0], int):
        form = "dims"
    return aten(f"{name}.{form}", tensor, *given, compute=compute)


def _written(target: Any, made: Any, compute: Callable[[], Any]) -> bool:
    """A result for an `out=` tensor, which functionalization takes as the tensor's value."""
    active = modes.MODES.get()
    writing = getattr(active[-1], "write_out", None) if active else None
    if writing is None:
        return False
    with modes.only(active[:-1]):
        return bool(writing(target, made, compute))


def _noted(tensor: Any) -> None:
    """Let modes that trace know a tensor that is a constant."""
    for mode in modes.MODES.get():
        noting = getattr(mode, "_note_constant", None)
        if noting is not None:
            noting(tensor)


CUSTOM_OPS.append(_custom_op)
DERIVATIVES.append(_differentiated)
FLAGS.append(_flagged)
MADE.append(_noted)
OUTS.append(_written)
RESHAPES.append(_reshaped)
READS.append(_read)
LIFTS.append(_lift)
DISPATCH.insert(DISPATCH.index(saved_tensor_hooks._dispatch), _dispatch)
modes.SHOWING.append(_dispatch)
