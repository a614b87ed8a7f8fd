"""Object code is loaded without LLVM where each of its addresses has 64 bits; all else is left to LLVM."""

from __future__ import annotations

import ctypes
import platform
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradwire_engine.compile.eager.library import NAMES, Library
from gradwire_engine.compile.fusion import kernel_cache, object_code
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.kernel_cache import Kernels
from gradwire_engine.compile.fusion.object_code import ObjectCode, load

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="LLVM loads the code of other machines"
)
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_int64)
#: Adds a constant to the bytes' sum, after another function and memset have made them.
_MODULE = """
@table = private constant [2 x double] [double 0.25, double 0.5]
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define internal void @fill(ptr %data, i64 %count) noinline {
  call void @llvm.memset.p0.i64(ptr %data, i8 3, i64 %count, i1 false)
  ret void
}
define double @known(ptr %data, i64 %count) {
  call void @fill(ptr %data, i64 %count)
  %place = and i64 %count, 1
  %at = getelementptr [2 x double], ptr @table, i64 0, i64 %place
  %made = load double, ptr %at
  ret double %made
}
"""


def compiled(module: str) -> bytes:
    """What the compiler process makes of a module."""
    from gradwire_engine.compile.fusion import compiler

    compiler.prepared()
    return compiler.compiled(module)


def loaded(module: str, symbol: str = "known") -> ObjectCode | None:
    """A compiled module."""
    return load(compiled(module), symbol)


def test_functions_constants_and_functions_of_the_process_are_found() -> None:
    code = loaded(_MODULE)
    assert code is not None
    made = np.zeros(1001, np.uint8)
    for count in (1001, 1000):
        assert _SIGNATURE(code.address)(made.ctypes.data, count) == (0.5 if count % 2 else 0.25)
        assert made[:count].tolist() == [3] * count


def test_code_is_executable_and_cannot_be_written() -> None:
    code = loaded(_MODULE)
    assert code is not None
    assert _rights(code.address) == "r-xp"


@pytest.mark.parametrize(
    "module",
    [
        "@kept = internal global i64 0\ndefine i64 @known() { %made = atomicrmw add ptr @kept, i64 1 seq_cst\n"
        " ret i64 %made }",
        "define void @unknown() { ret void }",
    ],
    ids=["a variable", "another symbol"],
)
def test_what_only_llvm_loads_is_left_to_it(module: str) -> None:
    assert loaded(module) is None


def test_code_that_calls_a_function_that_is_not_loaded_is_refused(tmp_path: Path) -> None:
    """LLVM would load it, and the call would end the process."""
    kernel = Kernels(tmp_path).built(
        "declare void @no_function_of_the_process()\n"
        "define void @entry(i64 %a, i64 %b, ptr %c, ptr %d) { call void @no_function_of_the_process()\n ret void }"
    )
    assert kernel.entry is None
    assert kernel.failed == "the process has no function no_function_of_the_process"


def test_where_no_memory_may_be_executed_one_warning_tells_it_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by SELinux's execmem, or systemd's MemoryDenyWriteExecute."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "memory cannot be made executable")

    monkeypatch.setattr(object_code, "_protect", refuse)
    kernels = Kernels(tmp_path)
    for number in range(3):
        module = f"define void @entry(i64 %a, i64 %b, ptr %c, ptr %d) {{ store i64 {number}, ptr %d\n ret void }}"
        kernel = kernels.built(module)
        assert kernel.entry is None
        assert "executable" in kernel.failed
    assert len(caplog.messages) == len(list(tmp_path.glob("*.o"))) == 1


def test_a_daemon_thread_may_run_code_while_the_interpreter_ends(tmp_path: Path) -> None:
    """If the memory were freed then, a signal would end the process."""
    module = (
        "define void @entry(i64 %a, i64 %b, ptr %c, ptr %d) {\n  br label %loop\n"
        "loop:\n  store volatile i64 0, ptr %d\n  br label %loop\n}"
    )
    code = (
        "import ctypes, threading, time; from pathlib import Path\n"
        "from gradwire_engine.compile.fusion.kernel_cache import Kernels\n"
        f"kernel = Kernels(Path({str(tmp_path)!r})).built({module!r})\n"
        "print(type(kernel.engine).__name__)\n"
        "memory = ctypes.CDLL(None).malloc; memory.restype = ctypes.c_void_p\n"
        "threading.Thread(target=kernel.entry, args=(0, 0, None, memory(8)), daemon=True).start()\n"
        "class Late:\n"
        "    def __init__(self, kernel): self.kernel = kernel\n"
        "    def __del__(self, sleep=time.sleep): del self.kernel; sleep(0.2)\n"
        "kernel = Late(kernel)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "ObjectCode"), done.stderr


def test_memory_goes_back_with_the_code() -> None:
    code = compiled(_MODULE)
    before = _mapped()
    held = [load(code, "known") for _ in range(100)]
    assert _mapped() >= before + 100
    held.clear()
    assert _mapped() < before + 50


def test_a_damaged_file_gives_no_entry_outside_of_code() -> None:
    code = compiled(_MODULE)
    section_headers, count = struct.unpack_from("<Q", code, 40)[0], struct.unpack_from("<H", code, 60)[0]
    for place in (*range(32, 64, 2), *range(section_headers, section_headers + 64 * count, 8)):
        for number in (0, 1, 255, 1 << 31, 1 << 47, 1 << 63, (1 << 64) - 1):
            damaged = bytearray(code)
            struct.pack_into("<Q", damaged, min(place, len(code) - 8), number)
            try:
                found = load(bytes(damaged), "known")
            except (OSError, RuntimeError):
                continue  # too much memory, or an unknown function
            assert found is None or _rights(found.address) == "r-xp"


def _mapped() -> int:
    """Areas of this process's memory."""
    return len(Path("/proc/self/maps").read_text().splitlines())


def _rights(address: int) -> str:
    """How memory is protected."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        begin, end = (int(each, 16) for each in span.split("-"))
        if begin <= address < end:
            return rights
    raise AssertionError("this address has no memory")


def test_other_relocations_are_left_to_llvm() -> None:
    code = bytearray(compiled(_MODULE))
    section_headers, size = struct.unpack_from("<Q", code, 40)[0], 64
    count = struct.unpack_from("<H", code, 60)[0]
    for place in range(count):
        _, kind, _, _, offset = struct.unpack_from("<IIQQQ", code, section_headers + size * place)
        if kind == 4:  # of relocations; the first one becomes relative (R_X86_64_PC32)
            struct.pack_into("<I", code, offset + 8, 2)
    assert load(bytes(code), "known") is None


def test_a_file_that_is_cut_off_or_of_another_machine_is_left_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compiled(_MODULE)
    assert not any(load(code[:length], "known") for length in range(len(code)))
    assert load(code[:18] + b"\xb7" + code[19:], "known") is None  # of ARM
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert load(code, "known") is None


def test_no_loop_of_the_engine_needs_llvm_once_it_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setattr(OPTIONS, "kernels", Kernels(tmp_path))
    names = ("layer_norm_dots", "log_softmax", "max_pool_forward", "normal", "lstm_step")
    for name in sorted(NAMES.intersection(names)):
        Library().find(name, "f")
    assert list(tmp_path.glob("*.o"))
    code = (
        "import sys; from pathlib import Path\n"
        "from gradwire_engine.compile.eager.library import LIBRARY\n"
        "from gradwire_engine.compile.fusion.fused import OPTIONS\n"
        "from gradwire_engine.compile.fusion.kernel_cache import Kernels\n"
        f"OPTIONS.mode, OPTIONS.kernels = 'on', Kernels(Path({str(tmp_path)!r}))\n"
        "Kernels._compile = None\n"
        f"names = {sorted(NAMES.intersection(names))}\n"
        "print([LIBRARY.find(name, 'f') is not None for name in names], 'llvmlite.binding' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{[True] * len(NAMES.intersection(names))} False"


def test_where_the_loader_leaves_a_file_llvm_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "load", lambda code, symbol: None)
    monkeypatch.setattr(kernel_cache, "_described_cpu", lambda: "")
    module = "define void @entry(i64 %a, i64 %b, ptr %c, ptr %d) { store i64 %a, ptr %d\n ret void }"
    kernel = Kernels(tmp_path).built(module)
    assert kernel.entry is not None, kernel.failed
    made = np.zeros(1, np.int64)
    kernel.entry(7, 0, None, made.ctypes.data)
    assert made.tolist() == [7]
    assert not isinstance(kernel.engine, ObjectCode)


def test_a_key_tells_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for another CPU might not run here."""
    keys = set()
    for cpu in ("one", "another"):
        monkeypatch.setattr(kernel_cache, "_described_cpu", lambda cpu=cpu: cpu)
        keys.add(Kernels()._key("source"))
    assert len(keys) == 2
