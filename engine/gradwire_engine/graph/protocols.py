"""Protocols: the interface of ops (declared in op/) that the graph needs to run, describe and store a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gradwire_engine.core.schema import Param


class SavingPlan(Protocol):
    """Values to save and formulas to run, for one set of inputs that need a gradient: op/saving.py."""

    names: list[str]
    formulas: list[tuple[int, Callable[..., Any], tuple[int, ...] | None, bool]]
    getters: list[tuple[str, Any]]
    saves_tensors: bool
    reads_values: bool


class Named(Protocol):
    """An op or a composite, as refusals name it."""

    @property
    def name(self) -> str:
        """Its name in the registry."""


class GraphOp(Named, Protocol):
    """The op of a node, or of a step from a base to a view: op/op.py."""

    @property
    def params(self) -> tuple[Param, ...]:
        """Its parameters, in order."""

    @property
    def tensor_positions(self) -> tuple[int, ...]:
        """Indices of the tensor parameters."""

    @property
    def list_position(self) -> int:
        """Index of the parameter that is a list of tensors; -1 if none is."""

    @property
    def formulas(self) -> Mapping[str, tuple[Callable[..., Any], Sequence[str]]]:
        """Formulas of the differentiable inputs, each with its parameters' names."""

    @property
    def saving_plans(self) -> Mapping[int, SavingPlan]:
        """Plans made so far, by bit mask of the inputs that need a gradient."""

    @property
    def unfilled_outputs(self) -> tuple[int, ...]:
        """Indices of results whose missing gradient is None for the formulas, not zeros."""

    @property
    def grows_back(self) -> bool:
        """Whether a small output gradient may give a large input gradient."""

    @property
    def work_back(self) -> float:
        """Working memory of the formulas, as a multiple of the larger of the given and the computed gradients."""

    @property
    def most_back(self) -> int:
        """Maximum memory of the formulas, as a multiple of the given gradient, if none grows."""

    def saving_plan(self, needed: int) -> SavingPlan:
        """The plan for a bit mask of the inputs that need a gradient."""

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The forward alone, on bare arrays."""
