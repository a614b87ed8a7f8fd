"""Compiled functions and gradients that tensors have before the call: of other strides, with a graph, of non-leaves.

Each function is called several times, eagerly by PyTorch and by this package, and compiled; all must tell the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradwire

pytestmark = pytest.mark.filterwarnings("ignore:compile", "ignore:Using backward", "ignore:grad and param do not obey")


def told(lib: Any, case: Callable[..., Callable[..., Any]], wrap: Callable[..., Any]) -> list[Any]:
    """What a case's function and what it left tell, of each of five calls."""
    step, look = case(lib)
    step = wrap(step)
    found = [(step(lib.ones(2, 3) + place), look()) for place in range(5)]
    return [([shown(each) if hasattr(each, "tolist") else each for each in given], left) for given, left in found]


def shown(tensor: Any) -> Any:
    return tensor.tolist(), tuple(tensor.stride()), tensor.requires_grad


def of_other_strides(lib: Any) -> Any:
    weight = lib.ones(2, 3, requires_grad=True)
    weight.grad = gradient = lib.arange(6.0).reshape(3, 2).t()

    def step(x):
        (weight * x).sum().backward()
        try:
            weight.grad.view(-1)
        except RuntimeError:
            return weight.grad * 1, weight.grad.is_contiguous()
        return ("it was viewed",)

    return step, lambda: (shown(weight.grad), weight.grad is gradient)


def with_a_graph(lib: Any) -> Any:
    weight, other = lib.ones(2, 3, requires_grad=True), lib.ones(2, 3, requires_grad=True)
    weight.grad = gradient = other * 2

    def step(x):
        loss = (weight.grad * x).sum()
        loss.backward(retain_graph=True)
        return loss.detach() * 1, loss.requires_grad

    return step, lambda: (shown(other.grad), shown(weight.grad), weight.grad is gradient)


def with_a_graph_of_the_call(lib: Any) -> Any:
    weight = lib.ones(2, 3, requires_grad=True)
    weight.grad = gradient = lib.ones(2, 3)

    def step(x):
        (weight**3 * x).sum().backward(create_graph=True)
        return ((weight.grad**2).sum().detach(),)

    return step, lambda: (shown(weight.grad), weight.grad is gradient, shown(gradient))


def of_a_non_leaf(lib: Any) -> Any:
    weight = lib.ones(2, 3, requires_grad=True)
    doubled = weight * 2
    doubled.retain_grad()
    doubled.sum().backward(retain_graph=True)
    gradient = doubled.grad

    def step(x):
        (doubled * x).sum().backward(retain_graph=True)
        return doubled.grad * 1, weight.grad * 1

    return step, lambda: (shown(doubled.grad), doubled.grad is gradient, shown(gradient))


CASES = [of_other_strides, with_a_graph, with_a_graph_of_the_call, of_a_non_leaf]


@pytest.mark.parametrize("case", CASES)
def test_a_compiled_function_sees_and_leaves_the_gradients_that_the_function_does(case, deferring) -> None:
    expected = told(torch, case, lambda function: function)
    assert told(gradwire, case, lambda function: function) == expected
    assert told(gradwire, case, gradwire.compile) == expected


def test_a_gradient_that_a_program_assigns_is_described_as_it_is(deferring) -> None:
    weight, scale = gradwire.ones(2, 3, requires_grad=True), gradwire.ones(2, 3, requires_grad=True)

    def assign(x):
        weight.grad = scale * x
        return x * 1

    compiled = gradwire.compile(assign)
    found = []
    for place in range(10):
        weight.grad = None
        if place % 2:
            compiled(gradwire.ones(2, 3))
        else:
            weight.sum().backward()
        found.append(weight.grad.requires_grad)
    assert found == [False, True] * 5
