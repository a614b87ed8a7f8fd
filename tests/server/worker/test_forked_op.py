"""Computing in a fork: results and errors come back, a cancelled or killed child leaves nothing."""

import os
import signal
import time

import numpy as np
import pytest

from gradwire_engine.core.errors import EngineError, Reason
from gradwire_server.worker.forked_op import ForkedOp

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks")


def _wait(seconds: float) -> None:
    assert seconds < 60


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_arrays_of_any_layout_and_size_are_returned() -> None:
    rng = np.random.default_rng(1)
    arrays = (rng.standard_normal((300, 400)), rng.standard_normal((4, 5)).T, np.zeros((0, 3)), np.float32(2.5))
    found = ForkedOp(lambda: arrays, "some").result(_wait)
    for one, other in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    found[0][0] = 1.0  # the result can be written to


def test_a_refusal_of_the_engine_is_returned_whole() -> None:
    def refuse() -> None:
        raise EngineError(Reason.SHAPE, "does not fit", op="add")

    with pytest.raises(EngineError, match="does not fit") as refusal:
        ForkedOp(refuse, "add").result(_wait)
    assert (refusal.value.reason, refusal.value.metadata) == (Reason.SHAPE, {"op": "add"})


class _Unpicklable(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (MemoryError("9 GiB"), MemoryError, "9 GiB"),
        (ZeroDivisionError("by zero"), ZeroDivisionError, "by zero"),
        (_Unpicklable(1, 2), RuntimeError, "_Unpicklable"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
    ],
)
def test_other_errors_are_raised_here(error: BaseException, kind: type[BaseException], says: str) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(kind, match=says):
        ForkedOp(fail, "add").result(_wait)


def test_what_the_child_changes_does_not_show_here() -> None:
    array = np.zeros(3)

    def change() -> float:
        array[:] = 1.0
        return float(array.sum())

    assert ForkedOp(change, "change").result(_wait) == 3.0
    assert array.sum() == 0.0


def test_a_check_that_raises_kills_the_child() -> None:
    child = ForkedOp(lambda: time.sleep(60), "sleep")
    pid = child.pid

    def cancel(seconds: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        child.result(cancel)
    assert _gone(pid)
    child.end()  # again: nothing is left to end


def test_a_child_that_was_killed_is_told_by_the_name_of_its_op() -> None:
    child = ForkedOp(lambda: time.sleep(60), "linalg.svd")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(MemoryError, match=r"computed linalg\.svd ended before it was done, by SIGKILL"):
        child.result(_wait)


def test_a_child_that_ended_by_itself_is_told_with_its_exit_status() -> None:
    with pytest.raises(RuntimeError, match=r"computed abort ended before it was done, with exit status 3"):
        ForkedOp(lambda: os._exit(3), "abort").result(_wait)


def test_a_child_leaves_no_descriptors_open() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    ForkedOp(lambda: 1, "one").result(_wait)
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_child_holds_no_descriptor_but_its_own_pipe() -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc")
    held = ForkedOp(lambda: [int(each) for each in os.listdir("/proc/self/fd")], "list").result(_wait)
    assert len([each for each in held if each > 2]) <= 2  # the pipe, and the folder being listed


def test_the_child_computes_at_a_lower_priority() -> None:
    assert ForkedOp(lambda: os.nice(0), "nice").result(_wait) >= min(os.nice(0) + 10, 19)
