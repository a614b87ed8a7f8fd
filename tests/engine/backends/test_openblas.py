"""NumPy's OpenBLAS in one thread: jobs of several threads, changes of the number meanwhile, and forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from gradwire_engine.backends.openblas import OpenBlas, openblas


@pytest.fixture
def found() -> Iterator[OpenBlas]:
    """The library, which has two threads."""
    library = openblas()
    if library is None:
        pytest.skip("NumPy has another BLAS")
    before = library._count()
    library.use_threads(2)
    yield library
    assert not library._busy
    library.use_threads(before)


def in_thread(job: Callable[[], None]) -> None:
    other = threading.Thread(target=job)
    other.start()
    other.join()


def test_one_thread_computes_until_the_last_job_has_ended(found: OpenBlas) -> None:
    begun, done = threading.Event(), threading.Event()

    def other() -> None:
        found.begin()
        begun.set()
        done.wait()
        found.end()

    thread = threading.Thread(target=other)
    found.begin()
    thread.start()
    begun.wait()
    found.end()
    assert found._count() == 1
    found.begin()
    done.set()
    thread.join()
    assert found._count() == 1
    found.end()
    assert found._count() == 2


def test_a_number_that_is_set_during_a_job_holds_after_it(found: OpenBlas) -> None:
    found.begin()
    in_thread(lambda: found.use_threads(3))
    assert found._count() == 1
    found.end()
    assert found._count() == 3
    found.begin()
    in_thread(lambda: found.use_threads(1))
    found.end()
    assert found._count() == 1


def test_a_number_that_others_set_during_a_job_is_changed_by_the_next_one(found: OpenBlas) -> None:
    found.begin()
    found._use(3)

    def other() -> None:
        found.begin()
        assert found._count() == 1
        found.end()

    in_thread(other)
    found.end()
    assert found._count() == 3


def test_a_job_that_did_not_begin_ends_without_change(found: OpenBlas) -> None:
    found.end()
    assert found._count() == 2
    found.begin()
    in_thread(found.end)
    assert found._count() == 1
    found.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_none_of_its_parents_jobs(found: OpenBlas) -> None:
    found.begin()
    child = os.fork()
    if not child:
        os._exit(0 if not found._busy and found._count() == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert found._count() == 1
    found.end()
