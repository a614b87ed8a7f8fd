"""What scenarios say of themselves: `refused` where PyTorch raises, with the words that both messages have."""

from collections.abc import Callable
from typing import Any


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
