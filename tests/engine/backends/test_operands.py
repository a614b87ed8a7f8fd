"""Operands of oneDNN's primitives: reorders between the caller's layout and the primitive's, and aligned memory."""

import threading

import numpy as np
import pytest

from gradwire_engine.backends.onednn import library
from gradwire_engine.backends.operands import ALIGNED, address_of, aligned_in, whole
from gradwire_engine.ops.nn.recurrent.onednn import lstm


@pytest.mark.parametrize("nbytes", [0, 1, ALIGNED, ALIGNED + 1])
def test_room_is_a_multiple_of_the_alignment(nbytes: int) -> None:
    assert whole(nbytes) % ALIGNED == 0
    assert 0 <= whole(nbytes) - nbytes < ALIGNED


def test_an_aligned_address_is_in_the_array() -> None:
    room = np.empty(4 * ALIGNED, np.uint8)
    for start in range(ALIGNED):
        address = aligned_in(room[start:])
        assert address % ALIGNED == 0
        assert 0 <= address - address_of(room[start:]) < ALIGNED


@pytest.mark.skipif(library() is None, reason="oneDNN is not installed")
def test_threads_that_run_one_primitive_at_once_do_not_share_memory() -> None:
    rng = np.random.default_rng(0)
    shapes = [(6, 8, 5), (8, 7), (8, 7), (28, 5), (28, 7), (28,)]
    given = [[rng.standard_normal(shape).astype(np.float32) for shape in shapes] for _ in range(4)]
    alone = [lstm.compute((each, False, False))[0] for each in given]
    found: list[list[np.ndarray]] = [[] for _ in given]

    def run(place: int) -> None:
        for _ in range(50):
            found[place].append(lstm.compute((given[place], False, False))[0])

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(given))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    for expected, made in zip(alone, found, strict=True):
        assert len(made) == 50
        assert all((one == expected).all() for one in made)
