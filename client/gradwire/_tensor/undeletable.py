"""Undeletable: attributes of a tensor that a program may not delete, without a `__delattr__` of the class.

A class with a `__delattr__` in Python sets its attributes ten times as slowly, and each new tensor has nine.
"""

from __future__ import annotations

from typing import Any

from gradwire._base.errors import refuse


class Undeletable:
    """An attribute that lies in a tensor's `__dict__`, if it was set. Deleting it raises RuntimeError."""

    __slots__ = ("_name", "_why")

    def __init__(self, why: str) -> None:
        self._why = why

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, tensor: Any, owner: type[Any] | None = None) -> Any:
        if tensor is None:
            return self
        try:
            return tensor.__dict__[self._name]
        except KeyError:
            raise AttributeError(f"'{type(tensor).__name__}' object has no attribute '{self._name}'") from None

    def __set__(self, tensor: Any, value: Any) -> None:
        tensor.__dict__[self._name] = value

    def __delete__(self, tensor: Any) -> None:
        raise refuse(self._why)
