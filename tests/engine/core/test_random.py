"""The generator: reproducible from a seed, and restored from a state."""

import numpy as np
import pytest

from gradwire_engine.core.random import Generator


class _Gpu:
    """The array module of a GPU, whose generator is what it is made of."""

    @staticmethod
    def generator(state: Generator) -> Generator:
        return state


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


def test_a_gpus_generator_draws_by_the_seed_and_an_offset_that_the_state_holds() -> None:
    generator = Generator(5)
    assert generator.of(_Gpu) is generator
    generator.offset = 7
    other = Generator(9)
    other.set_state(generator.get_state())
    assert (other.seed, other.offset) == (5, 7)
    generator.manual_seed(6)
    assert (generator.seed, generator.offset) == (6, 0)


def test_a_state_without_an_offset_is_of_a_session_without_gpu_numbers() -> None:
    generator = Generator(5)
    assert b"offset" not in generator.get_state()
    generator.offset = 3
    generator.set_state(Generator(5).get_state())
    assert generator.offset == 0
