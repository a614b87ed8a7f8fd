"""Random numbers of a GPU: Philox's, of 16 bytes of state, the same as in another implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradwire_engine.backends.philox import Philox
from gradwire_engine.core import device as devices
from gradwire_engine.core.random import Generator
from tests.gpu import philox


def drawn(generator: Generator, name: str, *args: Any) -> np.ndarray[Any, Any]:
    return devices.host(getattr(generator.of(devices.cupy()), name)(*args))


# From the Random123 library's file of known answers.
@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_the_reference_gives_the_known_answers(counter: list[int], key: list[int], answer: list[int]) -> None:
    assert philox.hashed(np.array(counter, np.uint32), np.array(key, np.uint32)).tolist() == answer


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_kernels_give_the_numbers_of_the_reference_and_go_on_where_they_ended(dtype: str) -> None:
    generator = Generator(0x123456789ABCDEF0)
    kind = np.dtype(dtype)
    for name, reference in (("random", philox.uniform), ("standard_normal", philox.normal)):
        offset = generator.offset
        expected = reference((3, 5), kind, generator.seed, offset)
        np.testing.assert_allclose(drawn(generator, name, (3, 5), kind), expected, rtol=2e-6, atol=1e-6)
        assert generator.offset == offset + 15


def test_integers_are_those_of_the_reference_for_narrow_and_wide_ranges() -> None:
    generator = Generator(7)
    for low, high in ((-3, 4), (-(2**63), 2**63 - 1)):
        expected = philox.integers((50,), np.int64, low, high - low, generator.seed, generator.offset)
        found = drawn(generator, "integers", low, high, (50,))
        np.testing.assert_array_equal(found, expected)
        assert low <= found.min() <= found.max() < high


@pytest.mark.parametrize("mean", [0.5, 9.5, 40.0, 3000.0])
def test_poisson_numbers_have_their_mean_and_variance(mean: float) -> None:
    xp = devices.cupy()
    found = drawn(Generator(3), "poisson", xp.full((20000,), mean))
    assert abs(found.mean() - mean) < 6 * np.sqrt(mean / 20000)
    assert abs(found.var() / mean - 1) < 0.1


@pytest.mark.parametrize(("count", "chance"), [(20, 0.1), (20, 0.9), (1000, 0.4), (100000, 0.7)])
def test_binomial_numbers_have_their_mean_and_variance(count: int, chance: float) -> None:
    xp = devices.cupy()
    found = drawn(Generator(4), "binomial", xp.full((20000,), count), xp.full((20000,), chance))
    mean, variance = count * chance, count * chance * (1 - chance)
    assert abs(found.mean() - mean) < 6 * np.sqrt(variance / 20000)
    assert abs(found.var() / variance - 1) < 0.1
    assert found.min() >= 0
    assert found.max() <= count


def test_a_saved_state_gives_the_same_numbers_again_on_the_gpu_and_the_cpu() -> None:
    generator = Generator(11)
    drawn(generator, "random", (100,))
    state = generator.get_state()
    first = drawn(generator, "random", (8,)), generator.of(np).uniform(8)
    again = Generator(0)
    again.set_state(state)
    for one, other in zip(first, (drawn(again, "random", (8,)), again.of(np).uniform(8)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_empty_array_draws_nothing() -> None:
    generator = Generator(1)
    made = Philox(devices.cupy(), generator).random((0, 3), np.dtype("float32"))
    assert (made.shape, generator.offset) == ((0, 3), 0)
