"""Saving: the values an op saves for backward, for one set of inputs that need a gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradwire_engine.core.device import device_of
from gradwire_engine.graph.graph import Meta
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Tensor

Formula: TypeAlias = Callable[..., Any]


def reads_values(formula: Formula) -> Formula:
    """Declare a formula that reads values of arrays, instead of computing by ops alone.

    With create_graph it ends a trace: a decision by values may differ in the next run.
    """
    formula.reads_values = True  # type: ignore[attr-defined]
    return formula


class Saving:
    """Values to save and formulas to run, for one set of inputs that need a gradient."""

    # `formulas`: input's number; formula; indices of its arguments among the saved values, None for all in order;
    # whether it takes the gradients of all outputs.
    __slots__ = ("formulas", "getters", "lone", "names", "reads_values", "saves_tensors")

    def __init__(
        self, wanted: Sequence[tuple[int, Formula, tuple[str, ...]]], getter: Callable[[str], tuple[str, Any]]
    ) -> None:
        """wanted: input's number, formula and parameter names. getter: the source of a parameter, by name."""
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
        #: Index of the saved argument, if the only saved value is one argument.
        self.lone = self.getters[0][1] if kinds in (["input"], ["argument"]) else None
        #: Whether a formula reads values of arrays.
        self.reads_values = any(getattr(formula, "reads_values", False) for _, formula, _, _ in found)
        self.saves_tensors = any(kind in ("input", "output", "inputs", "rest") for kind, _ in self.getters)

    def _place(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def save(self, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Values of these arguments and results that the formulas need."""
        if self.lone is not None:
            value = args[self.lone]
            return (Saved(value, -1) if type(value) is Tensor else value,)
        saved: list[Any] = []
        for kind, place in self.getters:
            if kind == "input":
                value = args[place]
                saved.append(Saved(value, -1) if type(value) is Tensor else value)
            elif kind == "argument":
                saved.append(args[place])
            else:
                saved.append(_saved(kind, place, args, outputs))
        return tuple(saved)


def meta_of(item: Tensor) -> Meta:
    """Shape, dtype and device of a tensor that is not saved."""
    array = item.array
    return Meta(array.shape, array.dtype, device_of(array))


def _saved(kind: str, place: Any, args: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> Any:
    if kind == "output":
        return Saved(outputs[place], place)
    if kind == "rest":
        place, described = place
        return [
            item if type(item) is not Tensor else meta_of(item) if number in described else Saved(item, -1)
            for number, item in enumerate(args[place])
        ]
    value = args[place]
    if kind == "inputs":
        return [Saved(item, -1) if type(item) is Tensor else item for item in value]
    if kind == "metas":
        return [meta_of(item) if type(item) is Tensor else item for item in value]
    return meta_of(value) if type(value) is Tensor else value
