"""compile: a change of anything that a function reads affects the next call, as without compile."""

import math
import os
import random
import sys
import warnings

import numpy as np
import pytest

import gradwire
from tests.client.compile_cases import CASES

CALLS, CHANGED = 6, 3


def seen(value):
    """All that can be seen of an answer, its bits included."""
    if isinstance(value, gradwire.Tensor):
        bits = value.detach().numpy().tobytes()
        node = None if value.grad_fn is None else value.grad_fn.name()
        return (tuple(value.shape), value.dtype, bits, value.requires_grad, value.is_leaf, node, value.stride())
    if isinstance(value, (tuple, list)):
        return (type(value), [seen(each) for each in value])
    if isinstance(value, dict):
        return (type(value), [(name, seen(each)) for name, each in value.items()])
    if isinstance(value, float):
        return (float, math.copysign(1.0, value), repr(value))
    return (type(value), value)


def default_arguments():
    return (gradwire.arange(1.0, 4.0),)


def take_calls(make, wrap):
    """What the calls of a case answer, in full, with the change after the third."""
    gradwire.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    step, change, *rest = make()
    args = rest[0] if rest and rest[0] is not None else default_arguments
    wrapped = wrap(step)
    found = []
    try:
        for turn in range(CALLS):
            if turn == CHANGED:
                change()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(seen(wrapped(*args())))
                found.append(seen(rest[2]()) if len(rest) > 2 else None)
    finally:
        gradwire.set_grad_enabled(True)
        gradwire.set_default_dtype(gradwire.float32)
        if len(rest) > 1 and rest[1] is not None:
            rest[1]()
    return found


@pytest.fixture(scope="module")
def opened(server_address):
    session = gradwire.connect(server_address)
    argv, environ = sys.argv, dict(os.environ)
    yield session
    sys.argv = argv
    os.environ.clear()
    os.environ.update(environ)
    session.close()


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_what_a_function_reads_shows_in_the_next_call(opened, name):
    plain = take_calls(CASES[name], lambda step: step)
    replayed = take_calls(CASES[name], gradwire.compile)
    assert len(plain) == 2 * CALLS
    for turn, (one, other) in enumerate(zip(plain, replayed, strict=True)):
        assert one == other, f"call {turn // 2 + 1}"


def test_there_are_cases_enough():
    assert len(CASES) >= 330
