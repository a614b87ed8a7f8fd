"""HigherOrderOperator: an op in Python with a rule for each transform and kind of device (torch._ops)."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from gradwire._base.errors import GradwireNotImplementedError, GradwireTypeError, refuse
from gradwire._base.modes import is_grad_enabled
from gradwire._tensor.tensor import Tensor
from gradwire.func._interpreters import TransformType, peek_interpreter_stack
from gradwire.func._pytree import flatten

_F = TypeVar("_F", bound=Callable[..., Any])

# Whether calls go below the autograd layer.
_BELOW: ContextVar[bool] = ContextVar("gradwire_below_autograd", default=False)


@contextmanager
def below_autograd() -> Iterator[None]:
    """Context in which calls skip the rules of autograd (torch._C._AutoDispatchBelowAutograd)."""
    token = _BELOW.set(True)
    try:
        yield
    finally:
        _BELOW.reset(token)


class HigherOrderOperator(abc.ABC):
    """An op whose rules are Python functions. Subclasses define `__call__`, which calls this one's.

    A call under a transform runs the rule of the innermost, which calls the op again outside of it. Without one it
    runs the rule of the operands' device.
    """

    def __init__(self, name: str, *, cacheable: bool = False, supports_training_input_mutation: bool = False) -> None:
        """name: shown in messages. The other arguments have no effect, as nothing is compiled ahead."""
        if type(self) is HigherOrderOperator:
            raise refuse("Direct instantiation of HigherOrderOperator is not allowed. Please subclass it.")
        self._name = self.__name__ = name
        self._rules: dict[Any, Callable[..., Any]] = {}
        self._skipped: set[str] = set()

    def __str__(self) -> str:
        return self._name

    def name(self) -> str:
        """The op's name."""
        return self._name

    def py_impl(self, k: Any) -> Callable[[_F], _F]:
        """Decorate the rule for a transform (TransformType) or a layer (DispatchKey). Raises RuntimeError for two."""

        def register(function: _F) -> _F:
            if k in self._rules:
                raise refuse(f"Trying to override a python impl for {k} on operator {self._name}")
            self._rules[k] = function
            return function

        if not isinstance(k, (TransformType, str)):
            raise GradwireTypeError(
                f"gradwire runs rules of transforms and devices; {self._name} has one for {k}, which nothing calls"
            )
        return register

    def py_autograd_impl(self, fn: _F) -> _F:
        """Register the rule for calls that are recorded; others go below the autograd layer."""

        def record(*args: Any, **kwargs: Any) -> Any:
            tensors = [each for each in flatten([args, kwargs])[0] if isinstance(each, Tensor)]
            if is_grad_enabled() and any(each.requires_grad for each in tensors):
                return fn(*args, **kwargs)
            with below_autograd():
                return self(*args, **kwargs)

        self.py_impl("Autograd")(record)
        return fn

    def fallthrough(self, dispatch_key: str) -> None:
        """Let calls pass over a layer."""
        self._skipped.add(dispatch_key)

    @abc.abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the rule. Raises NotImplementedError where there is none, KeyError for a transform without."""
        interpreter = peek_interpreter_stack()
        if interpreter is not None:
            return self._rules[interpreter.key()](interpreter, *args, **kwargs)
        tensors = [each for each in flatten([args, kwargs])[0] if isinstance(each, Tensor)]
        device = "CUDA" if any(each.device.type == "cuda" for each in tensors) else "CPU"
        above = () if _BELOW.get() or "Autograd" in self._skipped else self._above(device)
        wanted = above or (device, "CompositeExplicitAutograd", "CompositeImplicitAutograd")
        for layer in wanted:
            if layer in self._rules:
                return self._rules[layer](*args, **kwargs)
        raise GradwireNotImplementedError(
            f"could not find kernel for HigherOrderOperator {self._name} at dispatch key {wanted[0]} (resolved from "
            f"{wanted[0]})"
        )

    def _above(self, device: str) -> tuple[str, ...]:
        """The layers of autograd in order; a device's own rule counts before one that is for every layer."""
        plain = device in self._rules or "CompositeExplicitAutograd" in self._rules
        return (f"Autograd{device}", *(() if plain else ("CompositeImplicitAutograd",)), "Autograd")
