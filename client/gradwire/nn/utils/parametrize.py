"""Parametrizations (torch.nn.utils.parametrize): a parameter as a function of others.

A module with a parametrized tensor gets a new class, whose property of that name computes the tensor: the trained
tensors are in `module.parametrizations[name]`.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
from collections.abc import Iterator, Sequence
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
    "transfer_parametrizations_and_params",
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
        dtype, shape = original.dtype, original.shape
        inverse = _inverted(held, original)
        self.is_tensor = isinstance(inverse, Tensor)
        if isinstance(inverse, Tensor):
            self.ntensors = 1
            if inverse.dtype is not dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype. "
                    f"original.dtype: {dtype}, right_inverse(original).dtype: {inverse.dtype}"
                )
            # The same tensor, so an optimizer that holds it can continue.
            original.data = inverse.detach()
            _register(self, "original", original)
        elif isinstance(inverse, Sequence):
            self.ntensors = len(inverse)
            for place, each in enumerate(inverse):
                if not isinstance(each, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {place} of the sequence with type {type(each).__name__}."
                    )
                kept = Parameter(each, original.requires_grad) if isinstance(original, Parameter) else each
                _register(self, f"original{place}", kept.requires_grad_(original.requires_grad))
        else:
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(inverse).__name__}"
            )
        if not unsafe:
            with no_grad():
                _check_kept(self(), "", dtype, shape)

    def _originals(self) -> list[Tensor]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{place}") for place in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the tensor becomes `value`. Raises RuntimeError without a right_inverse."""
        with no_grad():
            found = _inverted(list(self), value, strict=True)
            originals = self._originals()
            made = self._listed(found)
            for place, (original, each) in enumerate(zip(originals, made, strict=True)):
                if not isinstance(each, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a sequence of tensors. "
                        f"Got element {place} of type {type(each).__name__}."
                    )
                if original.dtype is not each.dtype:
                    name = "original" if self.is_tensor else f"original{place}"
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {each.dtype} while `{name}` has dtype "
                        f"{original.dtype}"
                    )
                original.data = each.detach().clone()

    def _listed(self, found: Any) -> list[Any]:
        """What the inverses returned, as many as there are originals."""
        if self.is_tensor:
            if not isinstance(found, Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(found).__name__}")
            return [found]
        if not isinstance(found, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(found).__name__}.")
        if len(found) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                f"Got a sequence of length {len(found)}."
            )
        return list(found)

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
            try:
                found = each.right_inverse(found)
            except NotImplementedError:
                # As if it had none: what is registered becomes the original.
                if strict:
                    raise
    return found


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _check_kept(made: Any, name: str, dtype: Any, shape: Any) -> None:
    """Refuse what a parametrization made, unless it is a tensor of this dtype and shape."""
    if not isinstance(made, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
    for what, before, after in (("dtype", dtype, made.dtype), ("shape", shape, made.shape)):
        if before != after:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor{name}, unless the `unsafe` "
                f"flag is enabled. unparametrized {what}: {before}, parametrized {what}: {after}"
            )


def _check_next(parametrization: Any, name: str, value: Any) -> None:
    """Refuse a further parametrization that does not keep dtype and shape, forward and back."""
    made = parametrization(value)
    _check_kept(made, f" {name}", value.dtype, value.shape)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(made)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    for what, before, after in (("dtype", value.dtype, back.dtype), ("shape", value.shape, back.shape)):
        if before != after:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}, "
                f"unless the `unsafe` flag is enabled. module.{name}.{what}: {before}, returned {what}: {after}"
            )


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
    methods = {"__parametrized__": base, "__deepcopy__": _copied, "__getstate__": _unpickled}
    made = type(f"Parametrized{base.__name__}", (base,), methods)
    made.__module__ = base.__module__
    object.__setattr__(module, "__class__", made)
    module.parametrizations = ModuleDict()


def _unpickled(self: Module) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(): their class has no importable "
        "name."
    )


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
            with no_grad():
                _check_next(parametrization, tensor_name, held())
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
    kept = originals[0]
    if held.is_tensor:
        # The same tensor, so an optimizer that holds it can continue.
        kept.data = value
    else:
        kept = Parameter(value, kept.requires_grad) if isinstance(kept, Parameter) else value
    _register(module, tensor_name, kept)
    if not is_parametrized(module):
        del module.parametrizations
        object.__setattr__(module, "__class__", type_before_parametrizations(module))
    return module


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Parametrize the other module's tensors as this one's, or one of them, by the same modules and originals.

    A tensor that the other module has not becomes its parameter. Returns it.
    """
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        source = from_module.parametrizations[name]
        for each in source:
            register_parametrization(to_module, name, each)
        target = to_module.parametrizations[name]
        for key in ("original",) if source.is_tensor else [f"original{place}" for place in range(source.ntensors)]:
            setattr(target, key, getattr(source, key))
    return to_module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before it was parametrized."""
    kind: type = getattr(type(module), "__parametrized__", type(module))
    return kind
