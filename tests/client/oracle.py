"""Comparison with PyTorch: the same function runs with torch and with gradwire, and both results must agree.

With gradwire it runs three times in one session: the first waits for every command, the others are deferred.
"""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import gradwire
from tests.comparison import alike, plain

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")

RUNS = 3


def agree(function: Callable[[Any], Any]) -> None:
    """The function answers with gradwire what it answers with torch, flags and all, every time."""
    expected = plain(function(torch))
    for run in range(RUNS):
        found = plain(function(gradwire))
        assert alike(found, expected), f"run {run}: {found} is not {expected}"


def refuse(function: Callable[[Any], Any], error: type[Exception], phrase: str) -> None:
    """Both refuse with that kind of exception, and gradwire with that phrase of PyTorch's."""
    with pytest.raises(error):
        function(torch)
    for _ in range(RUNS):
        with pytest.raises(error, match=phrase):
            function(gradwire)


def messages(function: Callable[[Any], Any], module: Any) -> list[str]:
    """The texts of the UserWarnings that the function causes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(module)
    return [str(each.message) for each in caught if issubclass(each.category, UserWarning)]


def warn(function: Callable[[Any], Any], *phrases: str) -> None:
    """Both warn once, and gradwire's text has the phrases; without phrases neither warns."""
    expected = 1 if phrases else 0
    assert len(messages(function, torch)) == expected
    for _ in range(RUNS):
        found = messages(function, gradwire)
        assert len(found) == expected
        assert all(phrase in found[0] for phrase in phrases)
