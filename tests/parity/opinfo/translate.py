"""PyTorch's values and functions as gradwire's: tensors, dtypes, and Python functions that name `torch`."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

import gradwire as gw

_ROOTS = (
    "", "nn.functional", "linalg", "special", "fft", "sparse", "signal.windows", "masked", "autograd", "nn.utils.rnn",
    "nn", "functional", "_C._nn",
)  # fmt: skip
_TESTS = ("torch.testing._internal", "torch.testing._utils")


class Missing(Exception):
    """gradwire has no such name."""


def attribute(root: Any, path: str) -> Any:
    """An attribute by a dotted path."""
    return functools.reduce(getattr, path.split("."), root) if path else root


def _paths() -> dict[int, str]:
    """Public paths of PyTorch's functions and modules by identity."""
    found: dict[int, str] = {}
    for root in _ROOTS:
        module = attribute(torch, root)
        found.setdefault(id(module), root)
        for name in sorted(dir(module), key=lambda name: name.startswith("_")):
            value = getattr(module, name, None)
            if callable(value) and name[:1] + name[-1:] != "__":
                found.setdefault(id(value), f"{root}.{name}" if root else name)
    for name in dir(torch.Tensor):
        found.setdefault(id(getattr(torch.Tensor, name)), f"Tensor.{name}")
    return found


_PATHS = _paths()


def named(path: str) -> Any:
    """gradwire's value of this path."""
    try:
        return attribute(gw, path)
    except (AttributeError, NotImplementedError) as error:
        raise Missing(path) from error


def _tensor(value: torch.Tensor) -> Any:
    """A leaf with the same values, strides, dtype and `requires_grad`."""
    plain = value.detach().resolve_conj().resolve_neg()
    if isinstance(value, torch.nn.Parameter):
        return gw.nn.Parameter(gw.from_torch(plain.contiguous()), requires_grad=value.requires_grad)
    if plain.layout == torch.sparse_csr:
        parts = (plain.crow_indices(), plain.col_indices(), plain.values())
        made = gw.sparse_csr_tensor(*(gw.from_torch(part) for part in parts), tuple(plain.shape))
        return made.requires_grad_(value.requires_grad)
    if plain.layout != torch.strided:
        dense = gw.from_torch(plain.to_dense().contiguous())
        return dense.to_sparse()
    memory = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())
    if (plain.is_contiguous() and memory.numel() == plain.numel()) or not plain.numel():
        made = gw.from_torch(plain)
    else:
        made = gw.from_torch(memory).as_strided(tuple(plain.shape), plain.stride(), plain.storage_offset()).detach()
    return made.requires_grad_(value.requires_grad)


class Translator:
    """Translates the values of one call: a tensor that occurs twice is one tensor."""

    def __init__(self) -> None:
        self.tensors: dict[int, Any] = {}

    def value(self, given: Any) -> Any:
        """gradwire's counterpart of any value that a sample has."""
        if isinstance(given, torch.Tensor):
            if id(given) not in self.tensors:
                self.tensors[id(given)] = _tensor(given)
            return self.tensors[id(given)]
        if isinstance(given, torch.Size):
            return gw.Size(given)
        if isinstance(given, tuple) and hasattr(given, "_fields"):
            return given
        if isinstance(given, list | tuple):
            return type(given)([self.value(item) for item in given])
        if isinstance(given, dict):
            return {name: self.value(item) for name, item in given.items()}
        if isinstance(given, slice):
            return slice(self.value(given.start), self.value(given.stop), self.value(given.step))
        if isinstance(given, torch.dtype | torch.layout | torch.memory_format):
            return named(str(given).removeprefix("torch."))
        if isinstance(given, torch.device):
            return gw.device(str(given))
        if isinstance(given, torch.Generator):
            return gw.Generator().manual_seed(given.initial_seed())
        return function(given) if callable(given) else given


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Any:
    yield


_REPLACED = {"freeze_rng_state": _nothing}


def function(given: Any) -> Any:
    """gradwire's counterpart of a function or module."""
    if id(given) in _PATHS:
        return named(_PATHS[id(given)])
    if isinstance(given, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return named(f"ops.{str(given).replace('::', '.')}")
    if isinstance(given, functools.partial):
        values = Translator()
        return functools.partial(function(given.func), *values.value(given.args), **values.value(given.keywords))
    if isinstance(given, types.FunctionType) and given.__module__.startswith(_TESTS):
        return _rewritten(given)
    if isinstance(given, types.ModuleType) and given.__name__.split(".")[0] == "torch":
        return named(given.__name__.partition(".")[2])
    if isinstance(given, torch.nn.Module):
        return _module(given)
    home = (getattr(given, "__module__", None) or "").split(".")[0]
    if home == "torch" and hasattr(type(given), "__get__") | isinstance(given, type):
        return named(f"{given.__module__}.{given.__qualname__}".partition(".")[2])
    return given


def _module(given: torch.nn.Module) -> Any:
    """A module without parameters, with the same options."""
    made = named(f"nn.{type(given).__name__}")()
    for name in given.__constants__:
        setattr(made, name, getattr(given, name))
    return made


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


@functools.cache
def _rewritten(given: types.FunctionType) -> Callable[..., Any]:
    """A function of PyTorch's tests with gradwire's modules and functions under the names it uses."""
    places = dict(given.__globals__)
    values = Translator()
    for name in _names(given.__code__) & set(places):
        if name in _REPLACED:
            places[name] = _REPLACED[name]
        elif places[name] is not given:
            places[name] = _global(places[name], values)
    cells = tuple(types.CellType(_global(cell.cell_contents, values)) for cell in given.__closure__ or ())
    made = types.FunctionType(given.__code__, places, given.__name__, None, cells)
    made.__defaults__ = values.value(given.__defaults__)
    made.__kwdefaults__ = values.value(given.__kwdefaults__)
    return made


def _global(value: Any, values: Translator) -> Any:
    try:
        return function(value) if callable(value) or isinstance(value, types.ModuleType) else values.value(value)
    except Missing as error:
        return _Absent(str(error))


class _Absent:
    """What gradwire lacks: the first use says so."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> Any:
        raise Missing(f"{self.path}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise Missing(self.path)
