"""Undeletable: attributes of a tensor that a program may not delete, without a `__delattr__` of the class.

A class with a `__delattr__` in Python sets its attributes ten times as slowly, and each new tensor has nine.
"""

from __future__ import annotations

from typing import Any

from gradwire._base.errors import refuse


def undeletable(name: str, why: str) -> Any:
    """The property of an attribute that lies in a tensor's `__dict__`, if it was set. Deletion raises RuntimeError."""

    def read(tensor: Any) -> Any:
        try:
            return tensor.__dict__[name]
        except KeyError:
            raise AttributeError(f"'{type(tensor).__name__}' object has no attribute '{name}'") from None

    def write(tensor: Any, value: Any) -> None:
        tensor.__dict__[name] = value

    def delete(tensor: Any) -> None:
        raise refuse(why)

    return property(read, write, delete)
