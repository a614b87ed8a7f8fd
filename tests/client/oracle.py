"""PyTorch as the judge: the same function runs with torch and with gradwire, and both must answer alike.

With gradwire it runs three times in one session: the first waits for every command, the others are deferred.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import gradwire

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")

RUNS = 3


def plain(value: Any) -> Any:
    """A result as plain data that can be compared: tensors as values, dtype and flags."""
    if isinstance(value, (torch.Tensor, gradwire.Tensor)):
        name = None if value.grad_fn is None else value.grad_fn.name()
        return {
            "values": value.tolist(),
            "dtype": repr(value.dtype),
            "shape": repr(value.shape),
            "requires_grad": value.requires_grad,
            "is_leaf": value.is_leaf,
            "grad_fn": name,
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return repr(value)


def alike(one: Any, other: Any) -> bool:
    """Whether plain data is equal, floats within single precision."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and one == other


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
