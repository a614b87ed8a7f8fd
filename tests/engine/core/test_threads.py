"""The pool divides work among threads: each part once, errors raised, and forks with helpers of their own."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from gradwire_engine.core import threads
from gradwire_engine.core.threads import POOL, Pool


def recorded(pool: Pool, end: int, count: int) -> list[tuple[int, int, int | None]]:
    """The parts that a pool divides so many rows into; scratch addresses are numbers."""
    parts: list[tuple[int, int, int | None]] = []
    pool.run(lambda begin, end, scratch, table: parts.append((begin, end, scratch)), end, range(count), 0)
    return sorted(parts)


@pytest.mark.parametrize(("end", "count"), [(1, 4), (3, 4), (10, 3), (1000, 2), (1001, 3), (64, 64), (4097, 5)])
def test_each_row_is_computed_once_with_its_threads_scratch_memory(end: int, count: int) -> None:
    parts = recorded(Pool(), end, count)
    assert [begin for begin, _, _ in parts] == [0, *[stop for _, stop, _ in parts[:-1]]]
    assert parts[-1][1] == end
    assert all(begin < stop for begin, stop, _ in parts)
    assert len({scratch for _, _, scratch in parts}) == len(parts) <= count


def test_several_threads_use_a_pool_at_once() -> None:
    pool, wrong = Pool(), []

    def use() -> None:
        for _ in range(200):
            parts = recorded(pool, 1000, 3)
            if [begin for begin, _, _ in parts] != [0, 384, 768]:
                wrong.append(parts)

    users = [threading.Thread(target=use) for _ in range(3)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not wrong


def test_a_process_without_more_threads_computes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool()

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads.threading, "Thread", refuse)
    assert recorded(pool, 1000, 3) == [(0, 1000, 0)]
    made: list[int] = []
    pool.threads = 3
    pool.each(made.append, 4)
    assert made == [0, 1, 2, 3]


@pytest.mark.parametrize(("threads", "count"), [(1, 3), (2, 1), (2, 7), (3, 0), (4, 4)])
def test_each_number_is_a_job_once(threads: int, count: int) -> None:
    pool, made = Pool(), []
    pool.threads = threads
    pool.each(made.append, count)
    assert sorted(made) == list(range(count))


def test_an_error_of_a_job_is_raised_after_all_jobs_ended() -> None:
    pool, made = Pool(), []
    pool.threads = 2

    def job(number: int) -> None:
        if number == 3:
            raise ValueError("three")
        made.append(number)

    for _ in range(20):
        made.clear()
        with pytest.raises(ValueError, match="three"):
            pool.each(job, 8)
        assert sorted(made) == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_starts_helpers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "threads", 2)
    met = threading.Barrier(2)
    POOL.each(lambda number: met.wait(60), 2)  # a helper of the parent waits at the fork
    read, write = os.pipe()
    child = os.fork()
    if not child:
        met = threading.Barrier(2)  # passed by two threads only
        try:
            POOL.each(lambda number: met.wait(60), 2)
            os.write(write, b"+")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as end:
        assert end.read() == b"+"
    os.waitpid(child, 0)
