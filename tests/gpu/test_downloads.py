"""Downloads of large arrays: each byte arrives, in any layout, and from several threads at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gradwire_engine.backends import downloads
from gradwire_engine.core import device as devices


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """CuPy, with a GPU or hostcupy: the stand-in has no streams."""
    if devices.cupy() is None:
        pytest.skip("needs CuPy and a CUDA GPU, or hostcupy")
    monkeypatch.setattr(downloads, "LEAST", 64)
    monkeypatch.setattr(downloads, "_CHUNK", 256)
    downloads._ring.cache_clear()
    yield
    downloads._ring.cache_clear()


def sent(values: Any) -> Any:
    return devices.to_device(values, "cuda:0")


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int8", "bool", "float16"])
@pytest.mark.parametrize("size", [16, 63, 64, 255, 256, 257, 512, 5003])
def test_all_values_arrive(dtype: str, size: int) -> None:
    values = (np.random.default_rng(size).standard_normal(size) * 9).astype(dtype)
    array = sent(values)
    for given, wanted in ((array, values), (array[3:], values[3:]), (array[::2], values[::2])):
        found = devices.host(given)
        assert found.dtype == values.dtype
        assert found.flags.c_contiguous and found.flags.writeable
        np.testing.assert_array_equal(found, wanted)
    matrix = np.resize(values, (size, 3))
    np.testing.assert_array_equal(devices.to_device(sent(matrix), "cpu"), matrix)
    np.testing.assert_array_equal(devices.host(sent(matrix).T), matrix.T)


def test_large_arrays_pass_through_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    given = downloads.Ring.copy

    def noted(self: downloads.Ring, array: Any, into: Any) -> None:
        sizes.append(into.nbytes)
        given(self, array, into)

    monkeypatch.setattr(downloads.Ring, "copy", noted)
    devices.host(sent(np.zeros(16, np.float32)))
    devices.host(sent(np.zeros(15, np.float32)))
    devices.host(sent(np.zeros(0, np.float32)))
    assert sizes == [64]


def test_threads_that_download_at_once_get_their_own_values() -> None:
    arrays = [np.full(4001, number, np.float32) for number in range(8)]
    copies = [sent(each) for each in arrays]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            for wanted, found in zip(arrays, pool.map(devices.host, copies), strict=True):
                np.testing.assert_array_equal(found, wanted)


def test_without_pinned_memory_values_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = devices.cupy()

    def refuse(size: int) -> Any:
        raise module.cuda.runtime.CUDARuntimeError(2)

    monkeypatch.setattr(module.cuda, "alloc_pinned_memory", refuse)
    values = np.arange(1000.0)
    np.testing.assert_array_equal(devices.host(sent(values)), values)
