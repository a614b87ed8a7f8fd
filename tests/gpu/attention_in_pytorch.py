"""PyTorch's attention on the CPU, in a process of its own: hostcupy's libraries replace those it is linked to."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def attention(arrays: Sequence[Array], mask: Array | None, options: dict[str, Any], g: Array) -> list[Array]:
    """Output, and the gradients of query, key and value."""
    return _process().submit(_attention, arrays, mask, options, g).result()


def second(arrays: Sequence[Array], g: Array, weights: Sequence[Array]) -> list[Array]:
    """The gradients of the weighted sum of the gradients."""
    return _process().submit(_second, arrays, g, weights).result()


def _attention(arrays: Sequence[Array], mask: Array | None, options: dict[str, Any], g: Array) -> list[Array]:
    import torch

    given = [torch.tensor(each, requires_grad=True) for each in arrays]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        made = torch.nn.functional.scaled_dot_product_attention(
            *given, None if mask is None else torch.tensor(mask), **options
        )
    made.backward(torch.tensor(g))
    return [each.numpy() for each in (made.detach(), *(leaf.grad for leaf in given))]


def _second(arrays: Sequence[Array], g: Array, weights: Sequence[Array]) -> list[Array]:
    import torch

    given = [torch.tensor(each, requires_grad=True) for each in arrays]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        made = torch.nn.functional.scaled_dot_product_attention(*given)
        first = torch.autograd.grad(made, given, torch.tensor(g), create_graph=True)
        found = torch.autograd.grad(first, given, [torch.tensor(each) for each in weights])
    return [each.numpy() for each in found]
