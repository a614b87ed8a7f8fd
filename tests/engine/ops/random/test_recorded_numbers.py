"""PCG64's numbers of a seed stay what they were: logs of earlier versions replay them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Context, Generator, activate, call, tensor
from gradwire_engine.core import dtypes


def _held(dtype: str = "float32") -> Any:
    return tensor((np.arange(40).reshape(5, 8).T / 40).astype(dtypes.BY_NAME[dtype]))


DRAWS = {
    "rand": lambda: call("rand", [(40,)]),
    "rand, half": lambda: call("rand", [(40,)], {"dtype": dtypes.bfloat16}),
    "randn": lambda: call("randn", [(40,)]),
    "randn, complex": lambda: call("randn", [(40,)], {"dtype": dtypes.complex64}),
    "randint": lambda: call("randint", [0, 100, (40,)]),
    "randperm": lambda: call("randperm", [40]),
    "uniform": lambda: call("uniform_", [_held(), -1.0, 2.0]),
    "normal": lambda: call("normal_", [_held(), 0.5, 2.0]),
    "exponential": lambda: call("exponential_", [_held(), 2.0]),
    "cauchy": lambda: call("cauchy_", [_held(), 0.1, 2.0]),
    "log_normal": lambda: call("log_normal_", [_held(), 0.1, 0.5]),
    "geometric": lambda: call("geometric_", [_held(), 0.3]),
    "random": lambda: call("random_", [_held("int64")]),
    "random of a range": lambda: call("random_", [_held("int64"), 3, 50]),
    "bernoulli": lambda: call("bernoulli", [_held()]),
    "bernoulli of a number": lambda: call("bernoulli_", [_held(), 0.3]),
    "dropout": lambda: call("dropout", [_held(), 0.3]),
    "rrelu": lambda: call("rrelu", [_held() - 0.5, 0.1, 0.3, True]),
    "poisson": lambda: call("poisson", [_held() * 20.0]),
    "binomial": lambda: call("binomial", [_held() * 0.0 + 9.0, _held()]),
    "standard_gamma": lambda: call("standard_gamma", [_held() * 3.0]),
    "multinomial": lambda: call("multinomial", [_held(), 3]),
    "multinomial with replacement": lambda: call("multinomial", [_held(), 30, True]),
    "one index with replacement": lambda: call("multinomial", [_held(), 1, True]),
}
RECORDED = {
    "rand": 79.51181265215824,
    "rand, half": 79.22693557380892,
    "randn": -47.78814178655546,
    "randn, complex": (-33.79131874679082 - 16.585001898228207j),
    "randint": 7869.509766264012,
    "randperm": 3307.8401631625093,
    "uniform": 66.91964961255181,
    "normal": -9.768389333314282,
    "exponential": 86.49392697026451,
    "cauchy": -731.7566719479032,
    "log_normal": 170.60771299395066,
    "geometric": 578.3131624686278,
    "random": 7.618711670886434e20,
    "random of a range": 4177.078031112087,
    "bernoulli": 88.75147308667485,
    "bernoulli of a number": 56.08143794652178,
    "dropout": 73.4969144973798,
    "rrelu": 18.82272284236526,
    "poisson": 1730.211520263997,
    "binomial": 838.4173409526879,
    "standard_gamma": 268.3957388367293,
    "multinomial": 216.76090902913307,
    "multinomial with replacement": 6743.885562884558,
    "one index with replacement": 36.37479781124211,
}


def _told(name: str) -> complex:
    """A number to which each element contributes differently."""
    with activate(Context(generator=Generator(5, "pcg64"))):
        values = np.ascontiguousarray(DRAWS[name]().array).ravel().astype(np.complex128)
    return complex((values * np.sqrt(np.arange(1, values.size + 1))).sum())


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_the_recorded_ones(name: str) -> None:
    found, recorded = _told(name), RECORDED[name]
    assert math.isclose(found.real, recorded.real, rel_tol=1e-6)
    assert math.isclose(found.imag, recorded.imag, rel_tol=1e-6)
