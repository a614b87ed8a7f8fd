"""What the graph knows of the ops that are declared above it (op/): enough to run, describe and store a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gradwire_engine.core.schema import Param


class SavingPlan(Protocol):
    """What a node saves and which formulas run on it, for one choice of inputs that need a gradient: op/saving.py."""

    names: list[str]
    formulas: list[tuple[int, Callable[..., Any], tuple[int, ...] | None, bool]]
    getters: list[tuple[str, Any]]
    saves_tensors: bool


class Named(Protocol):
    """What a refusal names: an op or a composite."""

    @property
    def name(self) -> str:
        """Its name in the registry."""


class GraphOp(Named, Protocol):
    """The op of a node, or of a step from a base to a view: op/op.py."""

    @property
    def params(self) -> tuple[Param, ...]:
        """Its parameters, in order."""

    @property
    def tensor_places(self) -> tuple[int, ...]:
        """The places of the parameters that are tensors."""

    @property
    def list_place(self) -> int:
        """The place of a parameter that is a list of tensors; -1 for none."""

    @property
    def formulas(self) -> Mapping[str, tuple[Callable[..., Any], Sequence[str]]]:
        """The formulas of its differentiable inputs, with the names of what they take."""

    @property
    def plans(self) -> Mapping[int, SavingPlan]:
        """The plans made so far, by the inputs that need a gradient, a bit for each."""

    @property
    def grows_back(self) -> bool:
        """Whether a small gradient may come back as a large one."""

    @property
    def work_back(self) -> float:
        """How many times the larger of the gradient given and those made its formulas take besides."""

    @property
    def most_back(self) -> int:
        """How many times the gradient given its formulas take at most, where none grows."""

    def plan(self, needed: int) -> SavingPlan:
        """The plan for these inputs, a bit for each that needs a gradient."""

    def compute(self, args: tuple[Any, ...]) -> Any:
        """The forward alone, on bare arrays."""
