"""The source text of repeated calls: which arguments pass its checks, and what of a call is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Context, activate, tensor
from gradwire_engine.op.repeated_source import Source, _compiled, as_array, is_same


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    with activate(made):
        yield made


def checked(args: tuple[Any, ...], context: Context, same: bool = False) -> Any:
    """A function that returns True for arguments which pass the checks of `args`."""
    source = Source(args, False, False, same)
    source.add("return True")
    return source.function()(context)


def leaf(size: int, grad: bool = False) -> Any:
    return tensor(np.ones(size, np.float32), grad)


def test_only_arguments_of_one_description_pass(context: Context) -> None:
    call = checked((leaf(3), 2.0), context)
    assert call((leaf(3), 2.0), context)
    for other in ((leaf(4), 2.0), (leaf(3, True), 2.0), (leaf(3), 2), (leaf(3), 3.0), (3.0, 2.0)):
        assert call(other, context) is None
    assert call((leaf(3), 2.0), Context()) is None


def test_an_operand_given_twice_must_be_one_again(context: Context) -> None:
    one, other = leaf(3), leaf(3)
    assert checked((one, one), context)((one, other), context)
    call = checked((one, one), context, same=True)
    assert call((other, other), context)
    assert call((one, other), context) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.0, 0.0, True),
        (0.0, -0.0, False),
        (1, True, False),
        ((1, (2.0,)), (1, (2.0,)), True),
        ((0.0,), (-0.0,), False),
    ],
)
def test_arguments_are_the_same_by_type_and_sign_too(one: Any, other: Any, same: bool) -> None:
    assert is_same(one, other) is same


def test_a_number_of_numpy_becomes_an_array_and_else_is_refused() -> None:
    assert type(as_array(np.float32(2))) is np.ndarray
    with pytest.raises(TypeError):
        as_array(2.0)


def test_the_code_of_a_long_text_goes_with_its_function(context: Context) -> None:
    source = Source((leaf(3),), False, False)
    source.add(*["x = 1"] * 4000, "return True")
    kept = _compiled.cache_info().currsize
    call = source.function()(context)
    assert call((leaf(3),), context)
    assert _compiled.cache_info().currsize == kept
