"""The generator: reproducible from a seed, restored from a state, and diverted on a GPU."""

import numpy as np
import pytest

from gradwire_engine.core.random import Generator


class _Gpu:
    """A stand-in for CuPy: generators that tell the seed they were made with."""

    class random:
        @staticmethod
        def Philox4x3210(seed: int) -> int:
            return seed

        @staticmethod
        def Generator(bits: int) -> tuple[str, int]:
            return ("generator", bits)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64 - 1, 2**70 + 3])
def test_a_seed_counts_modulo_two_to_the_64_and_repeats(seed: int) -> None:
    one, other = Generator(seed), Generator(seed % 2**64)
    assert one.seed == seed % 2**64
    np.testing.assert_array_equal(one.of(np).random(5), other.of(np).random(5))


def test_generators_without_a_seed_differ() -> None:
    assert Generator().seed != Generator().seed


def test_a_state_restores_the_numbers_that_follow_and_the_seed() -> None:
    generator = Generator(5)
    generator.of(np).random(3)
    state = generator.get_state()
    following = generator.of(np).random(4)
    other = Generator(9)
    other.set_state(state)
    np.testing.assert_array_equal(other.of(np).random(4), following)
    assert other.seed == 5


@pytest.mark.parametrize("state", [b"", b"{}", b"[]", b"1", b'{"seed": 1}', b"\xff"])
def test_anything_else_is_no_state(state: bytes) -> None:
    generator = Generator(5)
    with pytest.raises(ValueError):
        generator.set_state(state)
    np.testing.assert_array_equal(generator.of(np).random(2), Generator(5).of(np).random(2))


def test_manual_seed_starts_again() -> None:
    generator = Generator(5)
    first = generator.of(np).random(3)
    generator.manual_seed(5)
    np.testing.assert_array_equal(generator.of(np).random(3), first)


def test_a_gpu_has_a_generator_of_its_own_with_the_same_seed() -> None:
    generator = Generator(5)
    made = generator.of(_Gpu)
    assert made == ("generator", 5)
    assert generator.of(_Gpu) is made
    generator.manual_seed(6)
    assert generator.of(_Gpu) == ("generator", 6)


def test_diverting_seeds_the_gpu_from_a_state_and_undiverting_restores_it() -> None:
    generator = Generator(5)
    before = generator.of(_Gpu)
    held = generator.seed_cuda(b"one state")
    diverted = generator.of(_Gpu)
    assert diverted != before
    generator.restore_cuda(held)
    assert generator.of(_Gpu) is before
    again = generator.seed_cuda(b"one state")
    assert generator.of(_Gpu) == diverted
    generator.restore_cuda(again)
    generator.seed_cuda(b"another state")
    assert generator.of(_Gpu) != diverted
