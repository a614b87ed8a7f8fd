"""A team's threads do each part of a job once, with the bits of one thread; it sleeps, forks and ends."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from gradwire_engine.backends.onednn import library
from gradwire_engine.compile.fusion import team_code
from gradwire_engine.compile.fusion.kernel_cache import KERNELS
from gradwire_engine.compile.fusion.llvm_printer import ENTRY
from gradwire_engine.core import matrix_product as products
from gradwire_engine.core.matrix_product import RepeatedProduct, matrix_product
from gradwire_engine.core.team import LOOPS, Team
from gradwire_engine.core.threads import POOL, Pool

pytest.importorskip("llvmlite")
needs_library = pytest.mark.skipif(library() is None, reason="needs oneDNN: pip install gradwire[onednn]")

# Adds 1 to each row's number; scratch memory counts the rows of a thread. table: the numbers.
_COUNTING = f"""
define void @{ENTRY}(i64 %begin, i64 %end, ptr %scratch, ptr %table) {{
start:
  br label %row
row:
  %i = phi i64 [ %begin, %start ], [ %next, %row ]
  %a = getelementptr i64, ptr %table, i64 %i
  %x = load i64, ptr %a
  %y = add i64 %x, 1
  store i64 %y, ptr %a
  %n = load i64, ptr %scratch
  %m = add i64 %n, 1
  store i64 %m, ptr %scratch
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %row, label %done
done:
  ret void
}}
"""


@pytest.fixture(scope="module")
def counting() -> Any:
    """A loop that counts."""
    made = KERNELS.built(_COUNTING)
    assert made.entry is not None, made.failed
    return made


def counted(team: Team, counting: Any, rows: int, threads: int) -> list[int]:
    """Rows that each thread computed; each row is computed once."""
    numbers, scratch = np.zeros(rows, np.int64), np.zeros((threads, 3), np.int64)
    team.run_loop(counting.entry, rows, [lane.ctypes.data for lane in scratch], numbers.ctypes.data)
    assert (numbers == 1).all()
    assert scratch[:, 0].sum() == rows
    return [int(count) for count in scratch[:, 0]]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 3, 64, 1000, 100_003])
def test_each_row_is_computed_once(team: Team, counting: Any, rows: int, threads: int) -> None:
    for _ in range(20):
        counted(team, counting, rows, threads)


def test_helpers_share_a_long_job(team: Team, counting: Any) -> None:
    for _ in range(2000):
        if min(counted(team, counting, 3_000_000, 2)):
            return
    pytest.fail("no helper took a part")


def test_a_sleeping_helper_is_woken(team: Team, counting: Any) -> None:
    for _ in range(2000):  # a busy machine may give helpers no core for long
        counted(team, counting, 10_000, 3)
        time.sleep(0.002)  # longer than a helper's patience
        if min(counted(team, counting, 3_000_000, 3)):
            return
    pytest.fail("no helper was woken")


def test_several_threads_use_a_team_at_once(team: Team, counting: Any) -> None:
    failures: list[Exception] = []

    def use() -> None:
        try:
            for rows in range(1, 400):
                counted(team, counting, rows * 7, 3)
        except (AssertionError, RuntimeError) as error:
            failures.append(error)

    users = [threading.Thread(target=use) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not failures


def test_helpers_end_with_their_team(kernel: Any, counting: Any) -> None:
    before = threading.active_count()
    made = Team(kernel.entry, kernel)
    counted(made, counting, 10_000, 4)
    assert threading.active_count() == before + 3
    time.sleep(0.002)  # some sleep, some may wait
    made.end()
    assert threading.active_count() == before


def test_without_more_threads_a_team_computes_alone(team: Team, counting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert counted(team, counting, 5000, 3) == [5000, 0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128])
def test_a_large_copy_is_equal(team: Team, dtype: Any) -> None:
    pool = Pool()
    pool.team = team
    array = np.random.default_rng(0).standard_normal((333, 411, 17)).astype(dtype)
    for given in (array, array.T, array[:3, :2], array[5:300], np.zeros((0, 3), dtype)):
        for pool.threads in (1, 2, 5):
            made = pool.row_major_copy(given)
            np.testing.assert_array_equal(made, given)
            assert made.flags.c_contiguous
            assert made.dtype == given.dtype
            assert not np.may_share_memory(made, given)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_helpers_of_its_own(kernel: Any, counting: Any) -> None:
    pool = Pool()
    pool.team = Team(kernel.entry, kernel)
    counted(pool.team, counting, 10_000, 3)
    child = os.fork()
    if not child:
        pool.forget_helpers()
        try:
            used = any(min(counted(pool.team, counting, 3_000_000, 2)) for _ in range(200))
        except (AssertionError, RuntimeError):
            used = False
        os._exit(0 if used else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.team.end()


@pytest.mark.parametrize(
    ("lead", "shape"),
    [
        ((), (512, 384, 128)),
        ((), (64, 512, 1030)),
        ((), (130, 20, 400)),
        ((8, 4), (64, 64, 32)),
        ((3,), (300, 300, 300)),
    ],
    ids=str,
)
def test_products_have_the_same_bits_with_and_without_a_team(
    team: Team,
    found_library: Any,
    lead: tuple[int, ...],
    shape: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(POOL, "team", None)
    rng, (rows, columns, inner) = np.random.default_rng(0), shape
    a, b = (rng.standard_normal((*lead, *sizes), dtype=np.float32) for sizes in ((rows, inner), (columns, inner)))
    b = b.swapaxes(-1, -2)
    expected = matrix_product(np, a, b)
    np.testing.assert_allclose(expected, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(POOL, "team", team)
    for threads in (1, 2, 4):
        monkeypatch.setattr(POOL, "threads", threads)
        np.testing.assert_array_equal(matrix_product(np, a, b), expected)


@pytest.mark.parametrize("out_t", [False, True])
def test_a_row_is_added_with_the_bits_of_numpy(
    team: Team, found_library: Any, out_t: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    a, b, row = (rng.standard_normal(sizes, dtype=np.float32) for sizes in ((200, 90), (90, 530), (530,)))
    out = np.empty((530, 200) if out_t else (200, 530), np.float32)
    made = out.T if out_t else out
    monkeypatch.setattr(POOL, "team", None)
    RepeatedProduct(out_t=out_t).add(a, b, out, row)
    expected = made.copy()
    if not out_t or getattr(found_library, "has_avx512", False):  # else bits of a product depend on the layouts
        np.testing.assert_array_equal(expected, matrix_product(np, a, b) + row)
    np.testing.assert_allclose(expected, a.astype(np.float64) @ b + row, rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(POOL, "team", team)
    multiply = RepeatedProduct(out_t=out_t)
    for threads in (1, 3):
        monkeypatch.setattr(POOL, "threads", threads)
        out[...] = np.nan
        multiply.add(a, b, out, row)
        np.testing.assert_array_equal(made, expected)


@needs_library
def test_a_failing_product_raises(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    found = library()
    assert found is not None
    refusing = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
    monkeypatch.setattr(products, "_fast", lambda: found)
    monkeypatch.setattr(found, "sgemm", ctypes.cast(refusing, ctypes.c_void_p).value)
    monkeypatch.setattr(POOL, "team", team)
    big = np.ones((200, 200), np.float32)
    with pytest.raises(MemoryError, match="sgemm"):
        matrix_product(np, big, big)


def test_an_interrupted_start_gives_no_lane_twice(team: Team, counting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes, start = [], threading.Thread.start

    def interrupted(helper: Any) -> None:
        lanes.append(helper._args[1])
        start(helper)
        if len(lanes) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        counted(team, counting, 10_000, 3)
    counted(team, counting, 10_000, 3)
    assert lanes == [1, 2]


def test_a_job_of_one_thread_leaves_the_team_to_others(team: Team, counting: Any) -> None:
    used: list[bool] = []

    def meanwhile(begin: int, end: int, scratch: int | None, table: int | None) -> None:
        used.append(any(min(counted(team, counting, 3_000_000, 2)) for _ in range(200)))

    entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(meanwhile)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    facts = np.array([address, 1, 1, 0, 0, 0], np.int64)
    team.run(LOOPS, 1, facts.ctypes.data, 2)
    assert used == [True]


def test_the_end_waits_once_for_all_helpers(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire_engine.core.team._END_SECONDS", 0.2)
    made, over = Team(kernel.entry, kernel), threading.Event()
    made._helpers = [threading.Thread(target=over.wait, args=(60,), daemon=True) for _ in range(20)]
    for helper in made._helpers:
        helper.start()
    begin = time.monotonic()
    made.end()
    took = time.monotonic() - begin
    over.set()
    assert took < 2


def test_threads_that_ask_at_once_get_one_team(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(POOL, "team", None)
    monkeypatch.setattr(KERNELS, "hurry", lambda job: not jobs.append(job))
    assert team_code.make_team()
    assert team_code.make_team()
    jobs[0]()
    made = POOL.team
    assert made is not None
    jobs[1]()
    assert POOL.team is made
    made.end()


def test_a_row_that_was_freed_is_not_added_again(
    team: Team, found_library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(POOL, "team", team)
    a, b, out = np.ones((200, 90), np.float32), np.ones((90, 530), np.float32), np.empty((200, 530), np.float32)
    multiply = RepeatedProduct()
    multiply.add(a, b, out, np.full(530, 1.0, np.float32))
    assert (out == 91).all()
    multiply(a, b, out)
    assert (out == 90).all()


def test_an_interrupt_keeps_no_job_of_other_arrays(
    team: Team, found_library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(POOL, "team", team)
    one, two = (np.full((200, 90), value, np.float32) for value in (1, 2))
    b = np.ones((90, 530), np.float32)
    out = np.empty((200, 530), np.float32)
    multiply = RepeatedProduct()
    multiply(one, b, out)

    def interrupt(array: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(products, "ref", interrupt)
        with pytest.raises(KeyboardInterrupt):
            multiply(two, b, out)
    multiply(one, b, out)
    assert (out == 90).all()
