"""NVIDIA's libraries by ctypes: a failed call tells its status, and what cannot be prepared is not tried again."""

from __future__ import annotations

import ctypes
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from gradwire_engine.backends import cuda_library
from gradwire_engine.backends.cuda_library import CudaLibrary, CudaLibraryError, Descriptors


@pytest.fixture
def destroyed() -> list[Any]:
    return []


@pytest.fixture
def library(destroyed: list[Any]) -> CudaLibrary[str]:
    """A library whose functions are Python's."""

    def create(made: Any, number: int) -> int:
        return 0

    functions = SimpleNamespace(works=lambda: 0, fails=lambda: 3, create=create, destroy=destroyed.append)
    runtime = SimpleNamespace(getDevice=lambda: 0)
    return CudaLibrary(functions, SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)), "it is done without")  # type: ignore[arg-type]


def test_a_failed_call_tells_its_name_and_status(library: CudaLibrary[str]) -> None:
    library.call("works")
    with pytest.raises(CudaLibraryError, match="fails failed with status 3"):
        library.call("fails")
    with pytest.raises(AttributeError):
        library.function("absent")


def test_what_cannot_be_prepared_is_told_once_and_not_tried_again(
    library: CudaLibrary[str], caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def prepare() -> str:
        tries.append(1)
        raise CudaLibraryError("no algorithm")

    with caplog.at_level(logging.INFO, "gradwire.engine"):
        assert library._prepared(("a",), prepare) is None
        assert library._prepared(("a",), prepare) is None
    assert len(tries) == 1
    assert [each.getMessage() for each in caplog.records] == ["it is done without: no algorithm"]


def test_the_longest_unused_are_prepared_again(library: CudaLibrary[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_library, "_MOST_PREPARED", 2)
    made: list[str] = []

    def prepared(key: str) -> None:
        assert library._prepared((key,), lambda: made.append(key) or key) == key  # type: ignore[func-returns-value]

    for key in "abacab":
        prepared(key)
    assert made == ["a", "b", "c", "b"]


def test_descriptors_are_destroyed_with_what_holds_them(library: CudaLibrary[str], destroyed: list[Any]) -> None:
    held = Descriptors(library)
    made = held._created("create", "destroy", 7)
    assert isinstance(made, ctypes.c_void_p)
    assert not destroyed
    del held
    assert destroyed == [made]
