"""Compiled texts of repeated calls: a later process compiles none of them again, and none is taken for another."""

from __future__ import annotations

import marshal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import CodeType

import numpy as np
import pytest

from gradwire_engine import REGISTRY, Account, Context, activate, tensor
from gradwire_engine.compile.eager import call_codes
from gradwire_engine.compile.eager.call_codes import NAME, CallCodes
from gradwire_engine.compile.fusion.kernel_cache import Kernels
from gradwire_engine.op import repeated_source
from gradwire_engine.op.repeated_source import Codes
from tests.engine.repeating import repeated_call

SECONDS = 60.0


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context(account=Account(limit=1 << 30))
    with activate(made):
        yield made


def in_kernels_thread(kernels: Kernels, *jobs: object) -> None:
    """Wait until the kernels' thread has done jobs, and what it was given before."""
    done: Future[None] = Future()
    for job in (*jobs, lambda: done.set_result(None)):
        assert kernels.later(job)  # type: ignore[arg-type]
    done.result(SECONDS)


def process(folder: Path) -> tuple[Codes, CallCodes, Kernels]:
    """The codes of a process that begins."""
    codes, kernels = Codes(), Kernels(folder)
    found = CallCodes(codes, kernels)
    in_kernels_thread(kernels, found.read)
    return codes, found, kernels


def repeats(context: Context) -> bytes:
    """The bits of calls that are repeated, of one operand, of two and of a number."""
    x = tensor(np.arange(12.0).reshape(3, 4), True)
    made = []
    for name, args in (("exp", (x,)), ("mul", (x, x)), ("add", (x, 0.5)), ("mm", (x, tensor(np.ones((4, 2)), True)))):
        bound = REGISTRY[name].bind(args, {})
        _, repeated = repeated_call(REGISTRY[name], bound, context)
        assert repeated is not None
        result = repeated(bound, context)
        assert result is not None
        made.append(result.array.tobytes())
    return b"".join(made)


def test_a_later_process_compiles_no_text_again(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, found, kernels = process(tmp_path)
    monkeypatch.setattr(repeated_source, "CODES", first)
    repeated_source._compiled.cache_clear()
    bits = repeats(context)
    in_kernels_thread(kernels, found.keep)
    second, _, _ = process(tmp_path)
    assert len(second.known) >= 3
    monkeypatch.setattr(repeated_source, "CODES", second)
    repeated_source._compiled.cache_clear()
    compiled: list[str] = []
    second.noted = lambda text, code: compiled.append(text)
    assert repeats(context) == bits
    assert not compiled
    repeated_source._compiled.cache_clear()


def test_a_code_is_that_of_its_text(tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, found, kernels = process(tmp_path)
    monkeypatch.setattr(repeated_source, "CODES", codes)
    repeated_source._compiled.cache_clear()
    repeats(context)
    in_kernels_thread(kernels, found.keep)
    repeated_source._compiled.cache_clear()
    for text, code in process(tmp_path)[0].known.items():
        assert code == compile(text, "<repeated call>", "exec")
    other, _, _ = process(tmp_path)
    assert other.of("value = 1") == compile("value = 1", "<repeated call>", "exec")
    assert other.of("value = 2") != other.of("value = 1")


def test_what_several_processes_compile_is_kept_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_codes, "MOST", 3)
    one, other = process(tmp_path), process(tmp_path)
    for (codes, _, _), texts in ((one, ("a = 1", "a = 2")), (other, ("a = 3", "a = 4"))):
        for text in texts:
            codes.of(text)
    for _, found, kernels in (one, other):
        in_kernels_thread(kernels, found.keep)
    assert list(process(tmp_path)[0].known) == ["a = 2", "a = 3", "a = 4"]


@pytest.mark.parametrize("damage", ["a byte", "another kind of data", "no mapping", "no mapping of texts"])
def test_a_damaged_file_is_left_out(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    codes, found, kernels = process(tmp_path)
    codes.of("a = 1")
    in_kernels_thread(kernels, found.keep)
    if damage == "a byte":
        path = tmp_path / f"{NAME}.o"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        mapping = {1: compile("", "", "exec"), "a = 1": 2}
        forms = {"no mapping": marshal.dumps(["a = 1"]), "no mapping of texts": marshal.dumps(mapping)}
        data = forms.get(damage, b"?")
        in_kernels_thread(kernels, lambda: kernels.keep(NAME, data))
    codes, _, _ = process(tmp_path)
    assert not codes.known
    assert type(codes.of("a = 1")) is CodeType


def test_a_text_is_kept_without_being_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_codes, "_DELAY", 0.0)
    codes, _, kernels = process(tmp_path)
    kept: Future[None] = Future()
    monkeypatch.setattr(kernels, "keep", lambda name, data: kept.set_result(None))
    codes.of("a = 1")
    kept.result(SECONDS)


def test_what_is_kept_stays_small_however_long_texts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_codes, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(call_codes, "LONGEST_KEPT", 60)
    codes, found, kernels = process(tmp_path)
    for text in ("a = " + "1" * 100, "b = " + "1" * 50, "c = " + "1" * 50, "d = 1"):
        codes.of(text)
    in_kernels_thread(kernels, found.keep)
    assert [text[0] for text in process(tmp_path)[0].known] == ["c", "d"]


def test_texts_that_no_job_or_thread_could_keep_do_not_keep_later_ones_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, found, kernels = process(tmp_path)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr(threading.Timer, "start", start)
        codes.of("a = 1")
    with monkeypatch.context() as full:
        full.setattr(call_codes, "_DELAY", 0.0)
        refused: Future[None] = Future()
        full.setattr(kernels, "later", lambda job: refused.set_result(None))
        full.setattr(found, "_drop", lambda why, drop=found._drop: (drop(why), dropped.set_result(None)))
        dropped: Future[None] = Future()
        codes.of("a = 2")
        refused.result(SECONDS)
        dropped.result(SECONDS)
    codes.of("a = 3")
    in_kernels_thread(kernels, found.keep)
    assert list(process(tmp_path)[0].known) == ["a = 3"]


def test_a_fork_compiles_without_the_lock_that_another_thread_may_have_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, found, kernels = process(tmp_path)
    monkeypatch.setattr(kernels, "is_forked", lambda: True)
    with found._lock:
        assert type(codes.of("a = 1")) is CodeType
    assert not found._new
