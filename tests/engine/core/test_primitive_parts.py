"""Parts of a computation by oneDNN have the same bits with any number of threads, with and without a team."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from gradwire_engine.backends.onednn import library
from gradwire_engine.core.primitive_parts import PrimitiveParts
from gradwire_engine.core.team import Team
from gradwire_engine.core.threads import POOL
from gradwire_engine.ops.nn.convolution import onednn, parts
from gradwire_engine.ops.nn.recurrent import onednn as recurrent

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN: pip install gradwire[onednn]")
Arrays = list[np.ndarray]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Convolutions of small arrays have several parts."""
    monkeypatch.setattr(parts, "_PART", 3000)
    onednn._convolution.cache_clear()
    yield
    onednn._convolution.cache_clear()


def drawn(*shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def convolved(images: int, groups: int, bias: bool) -> Arrays:
    """A convolution and its gradients."""
    x, w, shift, g = drawn((images, 16, 12, 12), (32, 16 // groups, 3, 3), (32,), (images, 32, 12, 12))
    arguments = (1, 1), (1, 1), (1, 1), groups
    found = [
        onednn.forward(x, w, shift if bias else None, (12, 12), *arguments),
        onednn.source_gradient(g, w, (12, 12), *arguments),
        onednn.weight_gradient(x, g, (3, 3), *arguments),
    ]
    return [each for each in found if each is not None]


def layer(rows: int, reverse: bool = False) -> Arrays:
    """A layer of an LSTM and its gradients."""
    steps, inner, width = 6, 5, 9
    tensors = drawn(
        (steps, rows, inner), (rows, width), (rows, width), (4 * width, inner), (4 * width, width), (4 * width,)
    )
    made = recurrent.lstm.function(np, tensors, reverse, True)
    gs = drawn((steps, rows, width), (rows, width), (rows, width))
    return [*made[:3], *recurrent._gradients(gs, tensors, reverse, *made)]


_CASES: dict[str, Callable[[], Arrays]] = {
    "images": lambda: convolved(8, 1, False),
    "images of two numbers, with a bias": lambda: convolved(7, 1, True),
    "groups": lambda: convolved(8, 2, True),
    "rows": lambda: layer(16),
    "rows of two numbers": lambda: layer(37, True),
}


@pytest.mark.parametrize("case", _CASES)
def test_all_numbers_of_threads_give_the_same_bits(case: str, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[int] = []
    run = team.run
    rooms = []
    room = PrimitiveParts.room

    def admitted(made: PrimitiveParts) -> int:
        rooms.append(len(made))
        return room(made)

    monkeypatch.setattr(PrimitiveParts, "room", admitted)

    def noted(kind: int, count: int, data: int, threads: int) -> None:
        jobs.append(count)
        run(kind, count, data, threads)

    monkeypatch.setattr(team, "run", noted)
    monkeypatch.setattr(POOL, "threads", 1)
    monkeypatch.setattr(POOL, "team", None)
    expected = _CASES[case]()
    assert len(expected) >= 3
    for threads in (1, 2, 3, 8):
        for shared in (None, team):
            monkeypatch.setattr(POOL, "team", shared)
            monkeypatch.setattr(POOL, "threads", threads)
            for one, other in zip(_CASES[case](), expected, strict=True):
                np.testing.assert_array_equal(one, other)
    assert len(jobs) >= 6
    assert min(jobs) > 1
    assert max(rooms) == max(jobs)


def test_threads_that_compute_at_once_do_not_share_memory(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "team", team)
    monkeypatch.setattr(POOL, "threads", 3)
    expected = [*convolved(8, 1, True), *layer(16)]
    wrong: list[int] = []

    def run() -> None:
        for number in range(20):
            made = [*convolved(8, 1, True), *layer(16)]
            if any((one != other).any() for one, other in zip(made, expected, strict=True)):
                wrong.append(number)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert not any(each.is_alive() for each in threads)
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_computes_the_same_bits_after_its_parent(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POOL, "team", team)
    monkeypatch.setattr(POOL, "threads", 2)
    expected = layer(16)
    child = os.fork()
    if not child:
        same = all((one == other).all() for one, other in zip(layer(16), expected, strict=True))
        os._exit(0 if same else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the fork did not end")


def test_a_failing_primitive_raises(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    found = library()
    assert found is not None
    refusing = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 2)
    monkeypatch.setattr(POOL, "team", team)
    monkeypatch.setattr(POOL, "threads", 2)
    expected = convolved(8, 1, False)
    onednn._convolution.cache_clear()
    with monkeypatch.context() as failing:
        failing.setattr(found, "execute", ctypes.cast(refusing, ctypes.c_void_p).value)
        with pytest.raises(RuntimeError, match="primitive_execute failed with status 2"):
            convolved(8, 1, False)
    onednn._convolution.cache_clear()
    for one, other in zip(convolved(8, 1, False), expected, strict=True):
        np.testing.assert_array_equal(one, other)
