"""The generator: reproducible from a seed, and restored from a state."""

import json

import numpy as np
import pytest

from gradwire_engine.core.mt19937 import Twister
from gradwire_engine.core.random import MT19937, PCG64, Generator
from tests.engine.oracle import torch

ALGORITHMS = (MT19937, PCG64)


def _numbers(generator: Generator, count: int) -> list[float]:
    source = generator.of(np)
    return (source.uniform(count) if generator.algorithm == MT19937 else source.random(count)).tolist()


class _Gpu:
    """The array module of a GPU, whose generator is what it is made of."""

    @staticmethod
    def generator(state: Generator) -> Generator:
        return state


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64 - 1, 2**70 + 3])
def test_a_seed_counts_modulo_two_to_the_64_and_repeats(seed: int) -> None:
    one, other = Generator(seed), Generator(seed % 2**64)
    assert one.seed == seed % 2**64
    assert _numbers(one, 5) == _numbers(other, 5)


def test_generators_without_a_seed_differ() -> None:
    assert Generator().seed != Generator().seed


@pytest.mark.parametrize("after", ALGORITHMS)
@pytest.mark.parametrize("before", ALGORITHMS)
def test_a_state_restores_the_numbers_that_follow_the_seed_and_the_algorithm(before: str, after: str) -> None:
    generator = Generator(5, after)
    _numbers(generator, 3)
    state = generator.get_state()
    following = _numbers(generator, 4)
    other = Generator(9, before)
    _numbers(other, 2)
    other.set_state(state)
    assert other.algorithm == after
    assert _numbers(other, 4) == following
    assert other.seed == 5
    assert other.get_state() == generator.get_state()
    other.set_state(state)
    assert _numbers(other, 4) == following


def test_a_state_without_an_algorithm_of_an_earlier_version_is_continued() -> None:
    numbers = np.random.Generator(np.random.PCG64(7))
    numbers.random(2)
    inner = json.dumps({"seed": 7, "numpy": numbers.bit_generator.state})
    generator = Generator(1)
    generator.set_state(inner.encode())
    assert _numbers(generator, 3) == numbers.random(3).tolist()


@pytest.mark.parametrize("seed", [0, 7, -1, 2**35 + 7, 2**63])
@pytest.mark.parametrize("drawn", [0, 1, 623, 624, 625, 5000])
def test_the_state_and_the_numbers_are_pytorchs(seed: int, drawn: int) -> None:
    torch.manual_seed(seed)
    generator = Generator(seed)
    theirs = torch.rand(drawn, dtype=torch.float64).tolist()
    assert _numbers(generator, drawn) == theirs
    state = torch.get_rng_state().numpy().tobytes()
    assert generator.get_state() == state
    other = Generator(1)
    other.set_state(state)
    assert other.seed == seed % 2**64
    assert _numbers(other, 700) == torch.rand(700, dtype=torch.float64).tolist()
    torch.set_rng_state(torch.frombuffer(bytearray(generator.get_state()), dtype=torch.uint8))
    assert _numbers(generator, 3) == torch.rand(3, dtype=torch.float64).tolist()


def test_a_kept_normal_number_is_part_of_the_state() -> None:
    torch.manual_seed(3)
    torch.randn(3)
    generator = Generator(1)
    generator.set_state(torch.get_rng_state().numpy().tobytes())
    assert generator.of(np).kept == torch.randn(1, dtype=torch.float64).item()


def test_the_count_of_draws_tells_whether_the_state_may_have_changed() -> None:
    generator = Generator(3)
    before = generator.draws
    state = generator.get_state()
    generator.set_state(state)
    assert generator.draws == before
    for change in (lambda: generator.of(np), lambda: generator.manual_seed(3), lambda: generator.set_state(state)):
        change()
        assert generator.draws > before
        before = generator.draws
        _numbers(generator, 1)
        before = generator.draws


def test_rewinds_and_skips() -> None:
    twister = Twister(5)
    twister.words(10)
    twister.kept = 0.5
    begin = twister.mark()
    words = twister.words(2000)
    twister.kept = None
    twister.rewind(begin)
    assert twister.kept == 0.5
    twister.skip(1500)
    np.testing.assert_array_equal(twister.words(500), words[1500:])


@pytest.mark.parametrize("state", [b"", b"{}", b"[]", b"1", b'{"seed": 1}', b"\xff", bytes(5056), b"x" * 5056])
def test_anything_else_is_no_state(state: bytes) -> None:
    generator = Generator(5)
    with pytest.raises(ValueError):
        generator.set_state(state)
    assert _numbers(generator, 2) == _numbers(Generator(5), 2)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_manual_seed_starts_again(algorithm: str) -> None:
    generator = Generator(5, algorithm)
    first = _numbers(generator, 3)
    generator.manual_seed(5, algorithm)
    assert _numbers(generator, 3) == first


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_gpus_generator_draws_by_the_seed_and_an_offset_that_the_state_holds(algorithm: str) -> None:
    generator = Generator(5, algorithm)
    assert generator.of(_Gpu) is generator
    generator.offset = 7
    other = Generator(9)
    other.set_state(generator.get_state())
    assert (other.seed, other.offset) == (5, 7)
    generator.manual_seed(6, algorithm)
    assert (generator.seed, generator.offset) == (6, 0)


def test_a_state_without_an_offset_is_of_a_session_without_gpu_numbers() -> None:
    generator = Generator(5, PCG64)
    assert b"offset" not in generator.get_state()
    generator.offset = 3
    generator.set_state(Generator(5, PCG64).get_state())
    assert generator.offset == 0
