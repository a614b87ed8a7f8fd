"""Kernels are compiled beside the running plans, kept on disk by content, and refused if damaged."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradwire_engine import Tensor, call, tensor
from gradwire_engine.compile.fusion import fused as fused_plans
from gradwire_engine.compile.fusion import kernel_cache
from gradwire_engine.compile.fusion.form import WHOLE, Loop
from gradwire_engine.compile.fusion.kernel_cache import Kernel, Kernels
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.compile.plan import Plan
from gradwire_engine.core.context import CURRENT, Context, activate
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
    monkeypatch.setattr(kernel_cache, "_COMPILE_SECONDS", 0.0)
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


def test_a_plan_is_replaced_when_its_kernels_are_ready_and_no_run_waits(
    fusing: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, built = threading.Event(), Kernels.built

    def slow(self: Kernels, text: str) -> Kernel:
        assert go.wait(SECONDS)
        return built(self, text)

    monkeypatch.setattr(Kernels, "built", slow)
    plan, account = planned(), CURRENT.get().account
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    expected = np.exp(x.array * 0.5) + x.array
    for _ in range(10):  # while the kernels' thread waits
        assert plan.fastest(account) is plan
        np.testing.assert_allclose(run(plan, [x])[0].array, expected, rtol=1e-14)
    go.set()
    end = time.monotonic() + SECONDS
    while plan.fastest(account) is plan and time.monotonic() < end:
        time.sleep(0.01)
        run(plan, [x])
    # The replaced plan is asked once; programs keep what it answers.
    assert plan.fusion is None


def test_the_fused_plan_holds_less_memory_and_is_not_replaced(fusing: Kernels) -> None:
    plan, account = planned(), CURRENT.get().account
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    quick = plan
    end = time.monotonic() + SECONDS
    while quick is plan and time.monotonic() < end:
        run(plan, [x])
        quick = plan.fastest(account)
        time.sleep(0.01)
    assert [instr.kind for instr in quick.instrs] == ["fused"]
    assert quick.bytes <= plan.bytes
    np.testing.assert_allclose(run(quick, [x])[0].array, np.exp(x.array * 0.5) + x.array, rtol=1e-14)
    assert quick.fastest(account) is quick


def test_a_dropped_plan_is_not_compiled(fusing: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernels, "_compile", never_compiles)
    go, done = threading.Event(), threading.Event()
    fusing.later(lambda: go.wait(SECONDS))
    plan = planned()
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(fused_plans.RUNS_BEFORE):
        run(plan, [x])
    del plan
    fusing.later(done.set)
    go.set()
    assert done.wait(SECONDS)
    assert fusing._known == {}


@pytest.mark.parametrize("mode", ["off", "on without llvmlite"])
def test_without_compilation_plans_stay(mode: str, fusing: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plans.OPTIONS, "mode", mode.split()[0])
    if mode != "off":
        monkeypatch.setattr(fused_plans, "available", lambda: False)
    plan = planned()
    x = tensor(np.linspace(0, 1, 12).reshape(3, 4))
    for _ in range(2 * fused_plans.RUNS_BEFORE):
        run(plan, [x])
    assert fusing._thread is None
    assert plan.fastest(CURRENT.get().account) is plan


def test_a_fork_compiles_nothing(fusing: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not fusing.later(lambda: None)
