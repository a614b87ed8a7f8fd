"""Refused names: stand-ins for what PyTorch has and gradwire cannot do. They can be imported; using them raises."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

from gradwire._base.errors import GradwireNotImplementedError

_CODE_UNIMPLEMENTED = 12


def refusal(path: str, why: str) -> GradwireNotImplementedError:
    """The error for the use of `torch.<path>`; `why` says what is missing, or what to use instead."""
    error = GradwireNotImplementedError(f"gradwire does not support torch.{path}: {why}")
    error.reason, error.code = "NOT_SUPPORTED", _CODE_UNIMPLEMENTED
    return error


class RefusedClass(ABCMeta):
    """Class of refused classes. Their constants exist, since programs have them as default arguments."""

    _path: str
    _why: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'", name=name)
        path = f"{cls._path}.{name}"
        return RefusedConstant(path) if name.isupper() else _refused_function(path, cls._why)

    def __getitem__(cls, item: Any) -> Any:
        """The class itself: annotations subscript it."""
        return cls


class RefusedConstant:
    """A constant of a refused class: comparable and printable only."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RefusedConstant) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"torch.{self.path}"


def _refused_function(path: str, why: str) -> Any:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise refusal(path, why)

    refused.__name__ = refused.__qualname__ = path.rpartition(".")[2]
    refused.__doc__ = f"Raises NotImplementedError: {why}"
    return refused


def refused(path: str, why: str) -> Any:
    """A stand-in for `torch.<path>`: a class if the name is capitalized, else a function. Using it raises.

    A class can be a base class, an annotation and an argument of isinstance; making an instance raises.
    """
    name = path.rpartition(".")[2]
    if not name.lstrip("_")[0].isupper():
        return _refused_function(path, why)

    def make(cls: Any, *args: Any, **kwargs: Any) -> Any:
        raise refusal(path, why)

    return RefusedClass(name, (), {"_path": path, "_why": why, "__new__": make, "__doc__": f"Refused: {why}"})
