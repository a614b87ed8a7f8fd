"""What an op keeps for backward: the values its formulas name, for one choice of inputs that need a gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradwire_engine.core.device import device_of
from gradwire_engine.graph.graph import Meta, Saved, saved_input
from gradwire_engine.graph.tensor import Tensor

Formula: TypeAlias = Callable[..., Any]


class Saving:
    """For one choice of inputs that need a gradient: what to save, and which formulas to run on it."""

    # A formula comes with its input's number, the places of what it takes among what is saved, None if that is all of
    # it in order, and whether it takes the gradients of all outputs.
    __slots__ = ("formulas", "getters", "lone", "names", "saves_tensors")

    def __init__(
        self, wanted: Sequence[tuple[int, Formula, tuple[str, ...]]], getter: Callable[[str], tuple[str, Any]]
    ) -> None:
        """wanted: formulas, each with its input's number and what it takes, by names that `getter` explains."""
        self.names: list[str] = []
        found: list[tuple[int, Formula, tuple[int, ...], bool]] = []
        for slot, formula, names in wanted:
            takes_all = next(iter(inspect.signature(formula).parameters)) == "gs"
            found.append((slot, formula, tuple([self._place(name) for name in names]), takes_all))
        everything = tuple(range(len(self.names)))
        self.formulas: list[tuple[int, Formula, tuple[int, ...] | None, bool]] = [
            (slot, formula, None if places == everything else places, takes_all)
            for slot, formula, places, takes_all in found
        ]
        self.getters = [getter(name) for name in self.names]
        kinds = [kind for kind, _ in self.getters]
        #: The place of what is saved, if that is one argument as it is.
        self.lone = self.getters[0][1] if kinds in (["input"], ["argument"]) else None
        self.saves_tensors = any(kind in ("input", "output", "inputs") for kind, _ in self.getters)

    def _place(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def save(self, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """What the formulas name, of these arguments and results."""
        if self.lone is not None:
            value = args[self.lone]
            return (saved_input(value) if type(value) is Tensor else value,)
        saved: list[Any] = []
        for kind, place in self.getters:
            if kind == "input":
                value = args[place]
                saved.append(saved_input(value) if type(value) is Tensor else value)
            elif kind == "argument":
                saved.append(args[place])
            else:
                saved.append(_saved(kind, place, args, outputs))
        return tuple(saved)


def meta_of(item: Tensor) -> Meta:
    """What backward knows of a tensor it did not save."""
    array = item.array
    return Meta(array.shape, array.dtype, device_of(array))


def _saved(kind: str, place: int, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> Any:
    if kind == "output":
        return Saved(outputs[place], place)
    value = args[place]
    if kind == "inputs":
        return [Saved(item, -1) if type(item) is Tensor else item for item in value]
    if kind == "metas":
        return [meta_of(item) if type(item) is Tensor else item for item in value]
    return meta_of(value) if type(value) is Tensor else value
