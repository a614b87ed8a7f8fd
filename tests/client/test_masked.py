"""torch.masked: reductions and normalizations of selected elements, with gradients, against PyTorch."""

import itertools
from typing import Any

import pytest

import gradwire
from tests.client.oracle import refuse, torch
from tests.comparison import alike, plain

pytestmark = pytest.mark.usefixtures("session")

REDUCTIONS = ("sum", "prod", "amax", "amin", "mean", "norm", "var", "std", "logsumexp")


def same(case: Any) -> None:
    found, expected = plain(case(gradwire)), plain(case(torch))
    assert alike(found, expected), f"{found} is not {expected}"


def given(m: Any) -> tuple[Any, list[Any]]:
    """A tensor, and masks: none, one of its shape with an empty row, one that broadcasts."""
    x = m.arange(24, dtype=m.float64).sin().reshape(2, 3, 4)
    mask = (x > -0.3).index_fill(1, m.tensor([1]), False)
    return x.requires_grad_(), [None, mask, m.tensor([True, False, True, True])]


def differentiated(m: Any, result: Any, x: Any) -> list[Any]:
    (slope,) = m.autograd.grad(result.nansum() if result.isfinite().all() else result.clamp(-9, 9).nansum(), x)
    return [result.detach(), slope]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_pytorchs(name: str) -> None:
    def case(m: Any) -> list[Any]:
        x, masks = given(m)
        found = []
        for mask, dim, keepdim in itertools.product(masks, (None, 1, (0, -1), ()), (False, True)):
            arguments = (3.0, dim) if name == "norm" else (dim,)
            result = getattr(m.masked, name)(x, *arguments, keepdim=keepdim, mask=mask)
            # A mean of no elements is nan, whose gradient PyTorch's node computes in another order.
            found += differentiated(m, result, x) if mask is None or mask.ndim == 1 else [result.detach()]
        return found

    same(case)


@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "softmin", "cumsum", "cumprod", "median", "argmax", "argmin"]
)
def test_functions_along_a_dimension_are_pytorchs(name: str) -> None:
    def case(m: Any) -> list[Any]:
        x, masks = given(m)
        return [getattr(m.masked, name)(x.detach(), dim, mask=mask) for mask in masks for dim in (0, -1)]

    same(case)


def test_other_arguments_are_pytorchs() -> None:
    def case(m: Any) -> list[Any]:
        x, (_, mask, row) = given(m)
        whole = m.arange(6).reshape(2, 3)
        half = whole % 2 == 0
        k = m.masked
        found = [k.normalize(x, 2.0, 1, mask=mask), k.logaddexp(x, x * 2, input_mask=mask, other_mask=row)]
        found += [
            k.var(x, 2, False, mask=row),
            k.std(x, correction=2, mask=row),
            k.norm(x, float("-inf"), 1, mask=mask),
        ]
        found += [k.sum(whole, 1, mask=half), k.prod(whole.int(), mask=half), k.amax(whole, 0, mask=half)]
        found += [k.amin(whole, mask=half), k.median(whole, 1, mask=half), k.mean(whole, dtype=m.float32, mask=half)]
        found += [k.var(whole, mask=half), k.sum(m.tensor(3.0), mask=m.tensor(False)), k.mean(m.tensor(3.0))]
        found += [m.view_as_real(k.logsumexp(x + 1j, dim, mask=one)) for dim, one in (((0, -1), mask), (2, row))]
        found += [k.sum(m.zeros(0, 3), 0), k.sum(x + 1j, 0, mask=mask), k.var(x + 1j, 0)]
        return [each.detach() for each in found]

    same(case)


def test_wrong_arguments_are_refused() -> None:
    refuse(lambda m: m.masked.mean(m.arange(3)), ValueError, "Could not infer output dtype")
    refuse(lambda m: m.masked.sum(m.ones(2), 1), IndexError, "Dimension out of range")
    refuse(lambda m: m.masked.sum(m.ones(2), mask=m.ones(2, 2) > 0), IndexError, "dimensionality higher")
    refuse(lambda m: m.masked.median(m.arange(3), 0, mask=m.zeros(3) > 0), ValueError, "no fully masked out rows")
    with pytest.raises((AttributeError, NotImplementedError), match="masked tensors"):
        gradwire.masked.masked_tensor(gradwire.ones(2), gradwire.ones(2) > 0)
