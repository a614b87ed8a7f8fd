"""Parametrizations (torch.nn.utils.parametrize): a parameter as a function of others.

A module with a parametrized tensor gets a new class, whose property of that name computes the tensor: the trained
tensors are in `module.parametrizations[name]`.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
from collections.abc import Iterator
from typing import Any

from gradwire._base.modes import no_grad
from gradwire._tensor.tensor import Tensor
from gradwire.nn._containers import ModuleDict, ModuleList
from gradwire.nn._module import Module
from gradwire.nn._parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]

# Values computed inside of cached(), by module and name; None outside of it.
_cache: contextvars.ContextVar[dict[tuple[int, str], Any] | None] = contextvars.ContextVar("cache", default=None)


@contextlib.contextmanager
def cached() -> Iterator[None]:
    """A block in which each parametrized tensor is computed once; like torch.nn.utils.parametrize.cached."""
    if _cache.get() is not None:
        yield
        return
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


class ParametrizationList(ModuleList):
    """Modules applied in turn to `original` (or `original0`, `original1`, …) when the tensor is read.

    Raises ValueError if a `right_inverse` returns another shape or dtype than the tensor's, unless `unsafe`.
    """

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False) -> None:
        held = list(modules)
        if not held:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(held)
        self.unsafe = unsafe
        inverse = _inverted(held, original)
        self.is_tensor = isinstance(inverse, Tensor)
        if isinstance(inverse, Tensor):
            self.ntensors = 1
            self._hold("original", inverse, original)
        else:
            if not isinstance(inverse, (tuple, list)) or not all(isinstance(each, Tensor) for each in inverse):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got {type(inverse).__name__}"
                )
            self.ntensors = len(inverse)
            for place, each in enumerate(inverse):
                self._hold(f"original{place}", each, original)
        if not unsafe:
            self._check(original)

    def _hold(self, name: str, value: Tensor, original: Tensor) -> None:
        if isinstance(original, Parameter):
            self.register_parameter(name, Parameter(value, original.requires_grad))
        else:
            self.register_buffer(name, value)

    def _check(self, original: Tensor) -> None:
        with no_grad():
            made = self()
        if not isinstance(made, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
        if made.dtype is not original.dtype:
            raise ValueError(
                "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is "
                f"enabled. original.dtype: {original.dtype}, parametrized dtype: {made.dtype}"
            )
        if made.shape != original.shape:
            raise ValueError(
                "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is "
                f"enabled. original.shape: {original.shape}, parametrized shape: {made.shape}"
            )

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{place}") for place in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the tensor becomes `value`. Raises RuntimeError without a right_inverse."""
        with no_grad():
            found = _inverted(list(self), value, strict=True)
            made = [found] if isinstance(found, Tensor) else list(found)
            originals = self._originals()
            if len(made) != len(originals):
                raise ValueError(f"'right_inverse' must return {len(originals)} tensors. Got {len(made)}.")
            for original, each in zip(originals, made, strict=True):
                if original.dtype is not each.dtype:
                    raise ValueError(
                        f"'right_inverse' may not change the dtype of the original: {original.dtype}, got {each.dtype}"
                    )
                original.data = each.detach().clone()

    def forward(self) -> Any:
        """The tensor."""
        first, *others = list(self)
        made = first(*self._originals())
        for each in others:
            made = each(made)
        return made


def _inverted(modules: list[Any], value: Tensor, strict: bool = False) -> Any:
    """The originals from which the parametrizations make `value`; the value itself where they cannot say."""
    found: Any = value.detach() if not strict else value
    for each in reversed(modules):
        if not hasattr(each, "right_inverse"):
            if strict:
                raise RuntimeError(
                    f"parametrization {type(each).__name__} does not implement right_inverse, so its tensor cannot be "
                    "set"
                )
            continue
        with no_grad():
            found = each.right_inverse(found)
    return found


def _property(name: str) -> property:
    def read(self: Module) -> Any:
        cache = _cache.get()
        if cache is None:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in cache:
            cache[key] = self.parametrizations[name]()
        return cache[key]

    def write(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _own_class(module: Module) -> None:
    """Give a module a new class that can have properties."""
    base = type(module)
    made = type(f"Parametrized{base.__name__}", (base,), {"__parametrized__": base, "__deepcopy__": _copied})
    made.__module__ = base.__module__
    object.__setattr__(module, "__class__", made)
    module.parametrizations = ModuleDict()


def _copied(self: Module, memo: dict[int, Any]) -> Module:
    """A copy with a new class, so removing a parametrization of one keeps the other's."""
    kind = type(self)
    made: Any = kind.__new__(type(kind.__name__, kind.__bases__, dict(kind.__dict__)))
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return made


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let `module.<tensor_name>` be what `parametrization` makes of it, after those that are registered already.

    Its `right_inverse(value)`, if it has one, returns the first originals and makes the tensor assignable. Raises
    ValueError for a name that is neither parameter nor buffer, and unless `unsafe` where shape or dtype would change.
    Like torch.nn.utils.parametrize.register_parametrization.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        held = module.parametrizations[tensor_name]
        if not unsafe:
            before, after = (module_value(held), None)
            with no_grad():
                after = parametrization(before)
            if not isinstance(after, Tensor) or after.shape != before.shape or after.dtype is not before.dtype:
                raise ValueError(
                    "A parametrization may not change the dtype or shape of the tensor, unless the `unsafe` flag is "
                    f"enabled. before: {before.dtype} {tuple(before.shape)}, after: {_described(after)}"
                )
            if hasattr(parametrization, "right_inverse"):
                back = parametrization.right_inverse(after)
                if not isinstance(back, Tensor) or back.shape != before.shape:
                    raise ValueError(f"parametrization.right_inverse must return a tensor. Got {_described(back)}")
        held.append(parametrization)
        held.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module!r}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    original = getattr(module, tensor_name)
    made = ParametrizationList([parametrization], original, unsafe)
    if not is_parametrized(module):
        _own_class(module)
    delattr(module, tensor_name)
    module.parametrizations[tensor_name] = made
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def module_value(held: ParametrizationList) -> Tensor:
    """The present value of a parametrized tensor, outside of any graph."""
    with no_grad():
        value: Tensor = held()
    return value


def _described(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrized tensors, or one of that name."""
    held = module.__dict__.get("_modules", {}).get("parametrizations")
    if not isinstance(held, ModuleDict) or not hasattr(type(module), "__parametrized__"):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor a plain one again: with its present value, or with its original's.

    Raises ValueError for a tensor that is not parametrized, or that has several originals and would not remain
    parametrized.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module!r} does not have a parametrization on {tensor_name}")
    held = module.parametrizations[tensor_name]
    originals = held._originals()
    if leave_parametrized:
        value = module_value(held).clone()
    elif held.is_tensor:
        value = originals[0].detach()
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(originals[0], Parameter):
        if held.is_tensor:
            # The same leaf, so an optimizer that holds it can continue.
            originals[0].data = value
            module.register_parameter(tensor_name, originals[0])
        else:
            module.register_parameter(tensor_name, Parameter(value, originals[0].requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    if not is_parametrized(module):
        del module.parametrizations
        object.__setattr__(module, "__class__", type_before_parametrizations(module))
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before it was parametrized."""
    kind: type = getattr(type(module), "__parametrized__", type(module))
    return kind
