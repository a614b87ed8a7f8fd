"""Computations that pause, driven by a test."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from gradwire_engine import Interrupt

T = TypeVar("T")


class Polled(Interrupt):
    """Wants to be asked each time, and answers what it was given."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self.at, self.node_began = 0.0, None
        self.answers = list(reversed(answers))

    def stopping(self) -> bool:
        """The next answer."""
        return self.answers.pop()


def through(steps: Generator[None, None, T]) -> T:
    """What steps give at their end."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
