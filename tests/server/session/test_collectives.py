"""What the ranks of a collective must agree on, in words."""

import numpy as np
import pytest

from gradwire_engine import tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session import collectives


def test_a_description_names_dtype_and_shapes_and_stays_short() -> None:
    one, two = tensor(np.zeros((2, 3), np.float32)), tensor(np.zeros(4, np.float32))
    assert collectives._described("all_reduce", [one, two]) == "all_reduce of float32 [2, 3], [4]"
    assert collectives._described("barrier", []) == "barrier"
    many = collectives._described("all_reduce", [one] * 500)
    assert len(many) < collectives._MAX_SHOWN + 60
    assert many != collectives._described("all_reduce", [one] * 499 + [two])  # the hash tells them apart


def test_tensors_of_two_dtypes_are_refused() -> None:
    one, two = tensor(np.zeros(2, np.float32)), tensor(np.zeros(2))
    with pytest.raises(Refusal, match="one dtype, not float32, float64"):
        collectives._one_dtype([one, two])
    with pytest.raises(Refusal, match="not none"):
        collectives._one_dtype([])


def test_a_tensor_whose_elements_share_memory_is_not_written() -> None:
    spread = tensor(np.zeros(1))
    spread.array = np.broadcast_to(spread.array, (3,))
    with pytest.raises(Refusal, match=r"clone\(\)"):
        collectives._check_written([spread])
    collectives._check_written([tensor(np.zeros(3))])
