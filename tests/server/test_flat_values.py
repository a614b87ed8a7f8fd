"""Flat values: tensors' elements as one sequence, of which any part is cut into views."""

import numpy as np
import pytest

from gradwire_engine import Account, EngineError, Tensor
from gradwire_server.session.state.flat_values import FlatValues


def flat(*arrays: np.ndarray, account: Account | None = None) -> FlatValues:
    return FlatValues(account or Account(), list(map(Tensor, arrays)))


def test_each_part_of_the_elements_is_found_in_its_tensors() -> None:
    tensors = [np.arange(3.0), np.empty((0, 2)), np.arange(3.0, 9.0).reshape(2, 3), np.array(9.0)]
    values = flat(*tensors)
    assert values.size == 10
    for begin in range(11):
        for end in range(begin, 12):
            pieces = list(values.pieces(begin, end))
            found = [each for _, _, part in pieces for each in part]
            assert found == list(range(begin, min(end, 10)))
            for at, first, part in pieces:
                assert values.offset(at, first) == part[0]
                assert np.shares_memory(part, tensors[at])


def test_tensors_that_share_memory_are_copied_and_written_back_in_their_order() -> None:
    base = np.arange(6.0)
    values = flat(base[:4], base[2:])
    for each in values.arrays:
        each += 10
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    values.write_back()
    assert base.tolist() == [10, 11, 12, 13, 14, 15]


def test_copies_are_admitted_before_they_are_made() -> None:
    account = Account(limit=100)
    flat(np.ones(20), account=account)  # its own memory needs no copy
    with pytest.raises(EngineError, match="memory"):
        flat(np.ones((4, 5)).T, account=account)
