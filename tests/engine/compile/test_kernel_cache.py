"""Kernels are compiled beside the running plans, kept on disk by content, and refused if damaged."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Tensor, call, tensor
from gradwire_engine.compile.fusion import compiler_process, kernel_cache, kernel_files
from gradwire_engine.compile.fusion import fused as fused_plans
from gradwire_engine.compile.fusion.form import WHOLE, Loop
from gradwire_engine.compile.fusion.kernel_cache import Kernel, Kernels
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.compile.plan import Plan
from gradwire_engine.core.context import CURRENT, Context, Interrupt, activate
from gradwire_engine.core.errors import EngineError
from tests.engine.compile.fusing import run, traced

pytest.importorskip("llvmlite")
SECONDS = 60.0


def source(factor: float) -> str:
    """A loop that multiplies by a number."""
    loop = Loop()
    given, made = (loop.operand("f8", WHOLE) for _ in range(2))
    loop.store(made, loop.binary("mul", loop.load(given), loop.const(factor, "f8")))
    return printed(loop)


def apply(kernel: Kernel) -> list[float]:
    """What the kernel makes of 0, 1, 2."""
    assert kernel.entry is not None, kernel.failed
    given, made = np.arange(3.0), np.zeros(3)
    table = np.array([3, given.ctypes.data, 0, made.ctypes.data, 0], np.int64)
    kernel.entry(0, 3, None, table.ctypes.data)
    return made.tolist()


def never_compiles(self: Kernels, source: str) -> bytes:
    raise AssertionError("compiled again")


def test_a_kernel_is_compiled_once_and_then_read_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kernels(tmp_path / "kernels")
    kernel = first.built(source(3))
    assert apply(kernel) == [0, 3, 6]
    assert first.built(source(3)) is kernel
    assert [path.suffix for path in (tmp_path / "kernels").iterdir()] == [".o"]
    monkeypatch.setattr(Kernels, "_compile", never_compiles)
    assert apply(Kernels(tmp_path / "kernels").built(source(3))) == [0, 3, 6]


def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    Kernels(tmp_path).built(source(3))
    (path,) = tmp_path.glob("*.o")
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)
        assert apply(Kernels(tmp_path).built(source(3))) == [0, 3, 6]
        assert path.read_bytes() == whole


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert apply(Kernels(tmp_path).built(source(3))) == [0, 3, 6]
    assert not list(tmp_path.iterdir())
    assert "others can write" in caplog.text


@pytest.mark.parametrize("mode", [0o666, 0o660])
def test_a_file_that_others_can_write_to_is_not_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """Its hash is right: whoever writes object code writes that as well."""
    Kernels(tmp_path).built(source(3))
    (path,) = tmp_path.glob("*.o")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        assert kernel_files.KernelFiles(tmp_path).read(path.stem) is None
    assert "others can write" in caplog.text
    assert apply(Kernels(tmp_path).built(source(3))) == [0, 3, 6]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_directory_is_not_followed(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    Kernels(directory).built(source(3))
    (path,) = directory.glob("*.o")
    path.rename(tmp_path / "elsewhere.o")
    path.symlink_to(tmp_path / "elsewhere.o")
    assert kernel_files.KernelFiles(directory).read(path.stem) is None
    assert apply(Kernels(directory).built(source(3))) == [0, 3, 6]
    assert not path.is_symlink()


def test_a_directory_exchanged_after_the_check_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone who can write to a directory above exchanges the checked one for another."""
    directory, other = tmp_path / "kernels", tmp_path / "other"
    for path, code in ((directory, b"own"), (other, b"other")):
        kernel_files.KernelFiles(path).write("key", code)
    checked = os.fstat

    def exchanged(file: int) -> os.stat_result:
        about = checked(file)
        if other.exists():
            directory.rename(tmp_path / "away")
            other.rename(directory)
        return about

    monkeypatch.setattr(os, "fstat", exchanged)
    assert kernel_files.KernelFiles(directory).read("key") == b"own"
    assert not other.exists()


def test_a_source_that_is_not_valid_fails_alone(tmp_path: Path) -> None:
    kernels = Kernels(tmp_path)
    kernel = kernels.built("no assembly")
    assert kernel.entry is None
    assert kernel.failed
    assert apply(kernels.built(source(3))) == [0, 3, 6]


def test_a_compiler_that_ends_or_hangs_fails_the_kernel_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels(tmp_path)
    kernels.built(source(3))
    compiler = kernels._compiler
    assert compiler is not None
    compiler._process.kill()
    compiler._process.wait()
    assert kernels.built(source(4)).failed
    assert apply(kernels.built(source(5))) == [0, 5, 10]
    monkeypatch.setattr(compiler_process, "SECONDS", 0.0)
    assert "took more than" in kernels.built(source(6)).failed
    monkeypatch.undo()
    assert apply(kernels.built(source(7))) == [0, 7, 14]


def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "_QUEUED", 2)
    kernels, go = Kernels(tmp_path), threading.Event()
    began = threading.Event()
    assert kernels.later(lambda: (began.set(), go.wait(SECONDS)))
    assert began.wait(SECONDS)
    taken = [kernels.later(lambda: None) for _ in range(4)]
    go.set()
    assert taken == [True, True, False, False]


def test_a_job_that_a_plan_waits_for_precedes_others_and_is_queued_though_the_queue_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "_QUEUED", 2)
    kernels, go, began, done = Kernels(tmp_path), threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []
    kernels.later(lambda: (began.set(), go.wait(SECONDS)))
    assert began.wait(SECONDS)

    def known() -> None:
        order.append("known")

    kernels.later(lambda: order.append("first"))
    kernels.later(known)
    assert kernels.hurry(known)
    assert kernels.hurry(lambda: order.append("new"))
    kernels.later(done.set)  # there is room again, for the known job left the queue
    go.set()
    assert done.wait(SECONDS)
    assert order == ["known", "new", "first"]


def test_a_kernels_code_is_freed_with_its_last_user(tmp_path: Path) -> None:
    kernels = Kernels(tmp_path)
    kernel = kernels.built(source(3))
    assert len(kernels._known) == 1
    assert apply(kernel) == [0, 3, 6]
    del kernel
    assert len(kernels._known) == 0
    assert apply(kernels.built(source(3))) == [0, 3, 6]


def test_the_longest_unused_files_are_evicted(tmp_path: Path) -> None:
    for place in range(12):
        (tmp_path / f"{place:02}.o").write_bytes(b"code")
        os.utime(tmp_path / f"{place:02}.o", (place, place))
    for name, at in (("old.part", 0.0), ("new.part", time.time())):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (at, at))
    files = kernel_files.KernelFiles(tmp_path)
    files.write("written", b"code")
    assert files.read("written") == b"code"
    assert len(list(tmp_path.glob("*.o"))) == 13
    directory = os.open(tmp_path, os.O_RDONLY)
    kernel_files.evict(directory, 8)
    os.close(directory)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "07.o", "08.o", "09.o", "10.o", "11.o", "new.part", "written.o"
    ]  # fmt: skip


def test_a_file_that_is_read_counts_as_used(tmp_path: Path) -> None:
    files = kernel_files.KernelFiles(tmp_path)
    files.write("one", b"code")
    os.utime(tmp_path / "one.o", (0, 0))
    assert files.read("one") == b"code"
    assert (tmp_path / "one.o").stat().st_mtime > 0


def test_a_compiler_without_llvm_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script, starts = tmp_path / "compiler.py", tmp_path / "starts"
    text = Path(compiler_process.SCRIPT).read_text("utf-8").replace("import llvmlite.binding", "import no_llvm.binding")
    script.write_text(f"open({str(starts)!r}, 'a').write('x')\n" + text.replace("from __future__", "#"))
    monkeypatch.setattr(compiler_process, "SCRIPT", script)
    kernels = Kernels(tmp_path / "kernels")
    with caplog.at_level(logging.WARNING):
        for factor in (3, 4, 5):
            assert "no_llvm" in kernels.built(source(factor)).failed
    assert starts.read_text() == "x"
    assert len(caplog.records) == 1


def test_a_compiler_that_reads_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "compiler.py"
    script.write_text("import time; print('{}', flush=True); time.sleep(600)")
    monkeypatch.setattr(compiler_process, "SCRIPT", script)
    kernels = Kernels(tmp_path / "kernels")
    compiler = kernels._compiler = compiler_process.Compiler()
    monkeypatch.setattr(compiler_process, "SECONDS", 0.2)
    assert "read nothing" in kernels.built(source(3) + ";" * (1 << 21)).failed
    assert compiler._process.poll() is not None


def test_a_compiler_that_is_always_stuck_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else each kernel of each plan would wait for the time limit."""
    script, starts = tmp_path / "compiler.py", tmp_path / "starts"
    script.write_text(
        f"import time; open({str(starts)!r}, 'a').write('x'); print('{{}}', flush=True); input(); time.sleep(600)"
    )
    monkeypatch.setattr(compiler_process, "SCRIPT", script)
    monkeypatch.setattr(compiler_process, "SECONDS", 2.0)
    kernels = Kernels(tmp_path / "kernels")
    with caplog.at_level(logging.WARNING):
        for factor in range(3, 9):
            assert "took more than" in kernels.built(source(factor)).failed
    assert starts.read_text() == "xxx"
    assert [record.message for record in caplog.records if "times in a row" in record.message] != []


@pytest.mark.parametrize("answer", ["no JSON", "[]", "{}"])
def test_another_program_in_place_of_the_compiler_fails_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    script = tmp_path / "compiler.py"
    script.write_text(f"print({answer!r}, flush=True); input(); print({answer!r}, flush=True)")
    monkeypatch.setattr(compiler_process, "SCRIPT", script)
    kernels = Kernels(tmp_path / "kernels")
    assert "the compiler answered" in kernels.built(source(3)).failed
    assert kernels._compiler is None


def test_llvm_that_cannot_be_loaded_fails_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is there, but not its shared library, and the system does not describe the CPU."""
    monkeypatch.setattr(kernel_cache, "_described_cpu", lambda: "")
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert "llvmlite cannot be loaded" in Kernels(tmp_path).built(source(3)).failed


def test_a_module_is_compiled_to_object_code_and_a_wrong_one_refused() -> None:
    from gradwire_engine.compile.fusion import compiler

    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    assert compiler.compiled(source(3))
    with pytest.raises(RuntimeError):
        compiler.compiled("define void @entry() { ret i32 0 }")


def test_the_compiler_imports_nothing_of_the_engine() -> None:
    script = Path(kernel_cache.__file__).with_name("compiler.py")
    code = f"import runpy, sys; runpy.run_path({str(script)!r}); print([m for m in sys.modules if 'gradwire' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Beside a running plan.


@pytest.fixture
def fusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernels]:
    kernels = Kernels(tmp_path)
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", "on")
    monkeypatch.setattr(fused_plans.OPTIONS, "kernels", kernels)
    with activate(Context()):
        yield kernels


def program(x: Tensor) -> list[Tensor]:
    return [call("exp", (x * 0.5,)) + x]


def planned() -> Plan:
    return traced(program, [tensor(np.linspace(0, 1, 12).reshape(3, 4))])


DUE = 12


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans, "replaced_after", lambda schedule: DUE)


def held(monkeypatch: pytest.MonkeyPatch, go: threading.Event) -> None:
    """Let compilations wait for an event."""
    built = Kernels.built

    def slow(self: Kernels, text: str) -> Kernel:
        assert go.wait(SECONDS)
        return built(self, text)

    monkeypatch.setattr(Kernels, "built", slow)


def trained(speed: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[bool]]:
    """The bits of each step's result, and which steps were fused. speed: when the kernels get ready."""
    go = threading.Event()
    with monkeypatch.context() as patch:
        held(patch, go)
        if speed == "at once":
            go.set()
        elif speed == "late":
            wait = fused_plans.Fusion.awaited

            def awaited(self: fused_plans.Fusion) -> Future[None] | None:
                if self._is_due():
                    go.set()
                return wait(self)

            patch.setattr(fused_plans.Fusion, "awaited", awaited)
        plan, account = planned(), CURRENT.get().account
        bits, fused = [], []
        x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
        for step in range(2 * DUE):
            if speed == "midway" and step == DUE // 2:
                go.set()
            plan = plan.fastest(account)
            fused.append(any(instr.kind == "fused" for instr in plan.instrs))
            x = tensor(run(plan, [x])[0].array % 3.0)
            bits.append(x.array.tobytes())
    return bits, fused


def test_results_do_not_depend_on_when_kernels_are_ready(
    fusing: Kernels, due: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, fused = trained("at once", monkeypatch)
    assert fused == [False] * DUE + [True] * DUE
    for speed in ("midway", "late", "at once"):
        assert trained(speed, monkeypatch) == (expected, fused)


def test_the_last_run_without_kernels_waits_in_pauses_and_can_be_cancelled(
    fusing: Kernels, due: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cancelled(Interrupt):
        def stopping(self) -> bool:
            return True

    go = threading.Event()
    held(monkeypatch, go)
    plan, account = planned(), CURRENT.get().account
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(DUE - 1):
        run(plan, [x])
    for _ in range(3):  # each is the same run again
        cancelled = plan.run([x], (), Context(interrupt=Cancelled()))
        next(cancelled)
        with pytest.raises(EngineError, match="cancelled"):
            next(cancelled)
    assert plan.fastest(account) is plan

    class Noting(Interrupt):
        def wait_for(self, future: Future[Any]) -> None:
            noted.append(future)

    noted: list[Future[Any]] = []
    began = time.monotonic()
    pausing = plan.run([x], (), Context(interrupt=Noting()))
    for _ in range(1000):
        next(pausing)
    assert time.monotonic() - began < 20  # the waiting is left to whoever schedules
    assert len(set(noted)) == 1
    assert not noted[0].done()
    pausing.close()
    waiting = plan.run([x], (), CURRENT.get())
    next(waiting)
    go.set()
    list(waiting)  # it ends
    assert plan.fastest(account) is not plan


def test_a_plan_whose_job_the_full_queue_refused_is_compiled(
    fusing: Kernels, due: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_cache, "_QUEUED", 0)
    plan, account = planned(), CURRENT.get().account
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(DUE):
        run(plan, [x])
    assert plan.fastest(account) is not plan


def test_larger_plans_are_replaced_after_fewer_runs() -> None:
    with activate(Context()):
        small, large = (traced(program, [tensor(np.ones(size))]) for size in (4, 1 << 22))
    assert fused_plans.replaced_after(large) < 50
    assert fused_plans.replaced_after(small) > 10_000


def test_the_fused_plan_holds_less_memory_and_is_not_replaced(fusing: Kernels, due: None) -> None:
    plan, account = planned(), CURRENT.get().account
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(DUE):
        run(plan, [x])
    quick = plan.fastest(account)
    assert [instr.kind for instr in quick.instrs] == ["fused"]
    assert quick.bytes <= plan.bytes
    np.testing.assert_allclose(run(quick, [x])[0].array, np.exp(x.array * 0.5) + x.array, rtol=1e-14)
    assert quick.fastest(account) is quick


def test_a_dropped_plan_is_not_compiled(fusing: Kernels, due: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernels, "_compile", never_compiles)
    go, done = threading.Event(), threading.Event()
    fusing.later(lambda: go.wait(SECONDS))
    plan = planned()
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(DUE - 1):
        run(plan, [x])
    del plan
    fusing.later(done.set)
    go.set()
    assert done.wait(SECONDS)
    assert not fusing._known


@pytest.mark.parametrize("mode", ["off", "on without llvmlite"])
def test_without_compilation_plans_stay(mode: str, fusing: Kernels, due: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", mode.split()[0])
    if mode != "off":
        monkeypatch.setattr(fused_plans, "available", lambda: False)
    plan = planned()
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(2 * DUE):
        run(plan, [x])
    assert fusing._thread is None
    assert plan.fastest(CURRENT.get().account) is plan


def test_a_fork_compiles_nothing(fusing: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not fusing.later(lambda: None)
    assert not fusing.hurry(lambda: None)
    assert planned().fusion is None


def test_a_fork_does_not_wait_for_a_lock_that_another_thread_held(
    fusing: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.extend((fusing.later(print), fusing.hurry(print))), daemon=True)
    with fusing._changed:
        asking.start()
        asking.join(60)
        assert answers == [False, False]
