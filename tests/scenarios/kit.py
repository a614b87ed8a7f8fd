"""Marks of scenarios: expected refusals, and the need for more than the engine."""

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any


class Client(Enum):
    """What PyTorch's surface has, the client provides and the engine does not: why a scenario needs the client."""

    MODULES = "nn.Module, its layers and its hooks"
    FUNCTIONAL = "autograd.functional and gradcheck"
    DECORATORS = "grad modes as decorators, which also follow generators"
    CHECKS = "checks of arguments and of what a user's function returns, before they are sent"
    ONCE_DIFFERENTIABLE = "once_differentiable"
    STACKS = "hooks nested deeper than Python's stack, which run in threads"
    EDGES = "gradient edges that are given as a node and a number"
    NODE_CALLS = "nodes of the graph that are called"
    MULTI_GRAD = "register_multi_grad_hook"
    VERSIONS = "increment_version"
    ANOMALY = "anomaly mode's flags and warnings"
    BATCHES = "is_grads_batched, one pass per element"
    SAVED = "save_on_cpu and disable_saved_tensors_hooks"
    PASSES = "questions about the backward under way, and numbers that order it"
    INDEXING = "lists as indices, which become tensors"


def over_the_wire_only(reason: Client) -> Callable[[Any], Any]:
    """The scenario needs the client. A module of such scenarios has a constant OVER_THE_WIRE_ONLY instead."""

    def mark(scenario: Any) -> Any:
        scenario.over_the_wire_only = reason
        return scenario

    return mark


def refused(error: type[Exception], phrase: str) -> Callable[[Any], Any]:
    """The scenario must raise this with torch and with gradwire, and both messages hold the phrase (a pattern)."""

    def mark(scenario: Any) -> Any:
        scenario.refusal = (error, phrase)
        return scenario

    return mark


def leaf(torch: Any, *values: float) -> Any:
    """A vector that requires grad."""
    return torch.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def square(torch: Any) -> Any:
    """A 3 by 3 leaf."""
    return torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]], requires_grad=True)


@cache
def square_function(torch: Any) -> Any:
    """A custom function: the square of a tensor, with its derivative."""

    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    return Square
