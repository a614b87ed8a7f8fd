"""The ops of nodes that in-place changes of views make: the part shown, the base overwritten, sizes that changed."""

from typing import Any

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, Tensor, gradients, tensor
from gradwire_engine.op.rebase import ViewRoute
from gradwire_engine.ops.index.index import getitem
from gradwire_engine.ops.shape import copy_slices
from gradwire_engine.ops.shape.shape import transpose


def _seen(*ways: Any) -> tuple[Tensor, Tensor, ViewRoute]:
    """A base of 3 x 4, the view that these functions make of it in turn, and the route to it."""
    base = tensor(np.arange(12.0).reshape(3, 4), True)
    view = base
    for way in ways:
        view = way(view)
    return base, view, ViewRoute(base.array, view.view.last)


WAYS = {
    "row": (lambda x: getitem(x, 1),),
    "part of a row": (lambda x: getitem(x, 1), lambda x: getitem(x, slice(1, 4, 2))),
    "transposed column": (lambda x: transpose(x, 0, 1), lambda x: getitem(x, (slice(None), slice(0, 2)))),
}


@pytest.mark.parametrize("name", WAYS)
def test_show_copies_the_part_that_the_view_shows(name: str) -> None:
    base, view, route = _seen(*WAYS[name])
    found = copy_slices.show(base, route)
    np.testing.assert_array_equal(found.array, view.array)
    assert not np.shares_memory(found.array, base.array)


@pytest.mark.parametrize("name", WAYS)
def test_the_gradient_of_a_shown_part_is_zero_elsewhere(name: str) -> None:
    base, view, route = _seen(*WAYS[name])
    weights = np.random.default_rng(1).standard_normal(view.shape)
    (found,), _ = gradients([copy_slices.show(base, route)], [base], [tensor(weights)])
    expected = np.zeros((3, 4))
    part = expected
    for step in route.steps:
        part = step.op.compute((part, *step.args))
    part[...] = weights
    np.testing.assert_array_equal(found.array, expected)


@pytest.mark.parametrize("name", WAYS)
def test_overwrite_leaves_the_base_and_splits_the_gradient(name: str) -> None:
    base, view, route = _seen(*WAYS[name])
    source = tensor(np.full(view.shape, -1.0), True)
    before = base.array.copy()
    out = copy_slices.overwrite(base, source, route)
    np.testing.assert_array_equal(base.array, before)
    np.testing.assert_array_equal(np.isin(before, view.array), out.array == -1.0)
    g = np.random.default_rng(2).standard_normal((3, 4))
    (by_base, by_source), _ = gradients([out], [base, source], [tensor(g)])
    np.testing.assert_array_equal(by_base.array, np.where(out.array == -1.0, 0, g))
    np.testing.assert_array_equal(by_source.array, route.follow(g))


@pytest.mark.parametrize(("given", "found"), [((3,), [1, 1, 1]), ((2, 3), [2, 2, 2])])
def test_a_gradient_of_sizes_that_changed_is_summed_to_what_it_broadcasts_from(given: tuple, found: list) -> None:
    formula, _ = copy_slices.as_before.formulas["input"]
    meta = type("Meta", (), {"shape": (3,)})
    assert formula(np.ones(given), meta).tolist() == found


def test_a_gradient_of_other_sizes_is_refused_with_both() -> None:
    formula, _ = copy_slices.as_before.formulas["input"]
    meta = type("Meta", (), {"shape": (3,)})
    with pytest.raises(EngineError, match=r"got \[2\] but expected shape compatible with \[3\]") as refusal:
        formula(np.ones(2), meta)
    assert refusal.value.reason is Reason.SHAPE
    x = np.ones(3)
    assert copy_slices.as_before(x) is x
