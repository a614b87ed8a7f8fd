"""Loops that recent processes used are read before an op asks for them; others are not, nor are damaged ones."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from gradwire_engine.compile.eager import preloading
from gradwire_engine.compile.eager.library import Library
from gradwire_engine.compile.eager.preloading import Preloader
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.kernel_cache import Kernels

pytest.importorskip("llvmlite")
SECONDS = 60.0


def never_compiles(self: Kernels, source: str) -> bytes:
    raise AssertionError("compiled again")


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the kernels, in which one loop was used, and is compiled."""
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setattr(OPTIONS, "kernels", Kernels(tmp_path))
    assert Library().find("relu", "f") is not None
    finish_jobs()  # the name is noted behind the answer
    monkeypatch.setattr(OPTIONS, "kernels", Kernels(tmp_path))  # another process's
    monkeypatch.setattr(Kernels, "_compile", never_compiles)
    return tmp_path


def begun(library: Library) -> Preloader:
    """A preloader that has loaded all it will."""
    made = Preloader(library)
    made.begin()
    made.wait()
    finish_jobs()
    return made


def finish_jobs() -> None:
    """Wait until the kernels' thread has done all that it was given."""
    done: Future[None] = Future()
    assert OPTIONS.kernels.later(lambda: done.set_result(None))
    done.result(SECONDS)


def test_a_loop_that_another_process_used_is_loaded(kernels: Path) -> None:
    library = Library()
    begun(library)
    assert [*library.loaded] == [("relu", "f")]
    assert library.loaded["relu", "f"] is not None


def test_unknown_names_and_damaged_kernels_are_left_out(kernels: Path) -> None:
    for name in ("nonsense.f", "relu.x", "relu", "silu.f"):  # the last one has no kernel on disk
        (kernels / f"{name}.used").touch(0o600)
    (path,) = kernels.glob("*.o")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    library = Library()
    begun(library)
    assert not library.loaded


def test_nothing_is_loaded_without_machine_code(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "off")
    library = Library()
    made = Preloader(library)
    made.begin()
    made.wait()
    assert not library.loaded


def test_a_fork_waits_for_native_libraries(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, ended = threading.Event(), []

    def prepare() -> None:
        ends.wait(SECONDS)
        ended.append(True)

    monkeypatch.setattr(preloading.matrix_product, "prepare", prepare)
    made = Preloader(Library())
    made.begin()
    threading.Timer(0.05, ends.set).start()
    made.wait()
    assert ended


def test_products_that_cannot_be_prepared_are_logged_and_hold_up_no_fork(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def prepare() -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(preloading.matrix_product, "prepare", prepare)
    with caplog.at_level("WARNING", "gradwire.engine"):
        begun(Library())
    assert "products could not be prepared: no kernel" in caplog.text
