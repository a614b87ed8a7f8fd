"""The number of threads follows the workers that have work."""

import pytest

from gradwire_engine.backends.openblas import openblas
from gradwire_server.common.blas import Follower


def test_the_share_of_the_cores_is_told_when_it_changes() -> None:
    told: list[int] = []
    follow = Follower(6, told.append)
    for runnable in (1, 1, 2, 4, 0, 12):
        follow(runnable)
    assert told == [6, 3, 1, 6, 1]


def test_a_number_that_was_asked_for_stays() -> None:
    told: list[int] = []
    Follower(0, told.append)(3)
    assert told == []


def test_numpys_number_stays_one_while_a_product_is_computed() -> None:
    numpys = openblas()
    if numpys is None:
        pytest.skip("NumPy has another BLAS")
    before = numpys._count()
    follow = Follower(6, numpys=numpys)
    numpys.begin()
    follow(2)
    assert numpys._count() == 1
    numpys.end()
    assert numpys._count() == 3
    follow(6)
    assert numpys._count() == 1
    numpys.use_threads(before)
