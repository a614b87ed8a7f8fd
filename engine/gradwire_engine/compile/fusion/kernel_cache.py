"""Kernels by their contents: compiled beside the running plans, kept on disk, loaded once.

`Kernels.later` queues a job and returns at once; `Kernels.hurry` lets it precede those that no plan waits for. In the
kernels' thread, `built` reads a kernel's object code from the disk (kernel_files.py) or has it compiled by the compiler
process (compiler_process.py), and loads it. A key is the hash of the source, of the compiler, of LLVM's version and of
the CPU. A kernel's code is freed with its last user. LLVM itself is loaded only where object_code.py cannot load a
file, or the system does not describe the CPU.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from gradwire_engine.compile.fusion.compiler_process import SCRIPT, Compiler, Unusable
from gradwire_engine.compile.fusion.kernel_files import KernelFiles
from gradwire_engine.compile.fusion.llvm_printer import ENTRY
from gradwire_engine.compile.fusion.object_code import load

log = logging.getLogger("gradwire.engine")

Entry = Callable[[int, int, "int | None", int], None]
Job = Callable[[], object]
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_IDLE_SECONDS = 10.0  # then the compiler process ends
_QUEUED = 256  # jobs that wait, but for those that a plan waits for
_MOST_TIMEOUTS = 3  # in a row; then nothing is compiled any more, since plans wait each time
_CPU_FACTS = "vendor_id", "cpu family", "model", "stepping", "flags"
_FORM = 4  # increase it when object code of an earlier version must not be loaded


class Kernel:
    """A kernel that was asked for. `entry` is None until it is loaded; `failed` says why it will not be."""

    __slots__ = ("__weakref__", "engine", "entry", "failed", "key", "source")

    def __init__(self, key: str, source: str) -> None:
        self.key, self.source = key, source
        self.entry: Entry | None = None
        self.engine: Any = None  # owns the code
        self.failed = ""


@functools.cache
def available() -> bool:
    """Whether kernels can be compiled: llvmlite is installed."""
    return importlib.util.find_spec("llvmlite") is not None


class Kernels:
    """The kernels of this process. Any thread."""

    def __init__(self, directory: Path | None = None) -> None:
        self._files = KernelFiles(directory)
        self._known: WeakValueDictionary[str, Kernel] = WeakValueDictionary()
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._urgent: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._compiler: Compiler | None = None
        self._unusable = ""
        self._timeouts = 0
        self._salt = ""
        self._process = os.getpid()

    def later(self, job: Job) -> bool:
        """Run a job in the kernels' thread; return whether it is queued. A full queue and a fork refuse it."""
        if self.is_forked():  # first: the fork may have copied the lock while another thread held it
            return False
        with self._changed:
            if len(self._jobs) >= _QUEUED:
                return False
            self._jobs.append(job)
            self._wake()
            return True

    def hurry(self, job: Job) -> bool:
        """Run a job before those of `later`, also if it is one of them; a fork refuses it."""
        if self.is_forked():
            return False
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
            self._urgent.append(job)
            self._wake()
            return True

    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that has the kernels' thread."""
        return os.getpid() != self._process

    def note(self, name: str) -> None:
        """Note on disk that a loop of this name was used. In the kernels' thread only."""
        self._files.note(name)

    def noted(self) -> list[str]:
        """The names of loops that this and earlier processes used, the last first. In the kernels' thread only."""
        return self._files.noted()

    def kept(self, name: str) -> bytes | None:
        """Data that was kept on disk by this name. In the kernels' thread only."""
        return self._files.read(name)

    def keep(self, name: str, data: bytes) -> None:
        """Keep data on disk by a name that is no kernel's key. In the kernels' thread only."""
        self._files.write(name, data)

    def stored(self, source: str) -> Kernel | None:
        """The kernel of a source, if it is loaded or on disk. In the kernels' thread only."""
        try:
            key = self._key(source)
        except (OSError, RuntimeError, ImportError):
            return None  # `built` reports it
        if key not in self._known and self._files.read(key) is None:
            return None
        return self.built(source)

    def built(self, source: str) -> Kernel:
        """The kernel of a source, loaded or failed. In the kernels' thread only."""
        try:
            key = self._key(source)
        except (OSError, RuntimeError, ImportError) as error:
            self._give_up(f"llvmlite cannot be loaded: {error}")
            failed = Kernel("", source)
            failed.failed = self._unusable
            return failed
        if (known := self._known.get(key)) is not None:
            return known
        kernel = self._known[key] = Kernel(key, source)
        try:
            self._load(kernel, self._code(kernel))
        except (OSError, RuntimeError, ImportError) as error:
            kernel.failed = str(error) or type(error).__name__
            if not self._unusable:
                log.warning("a kernel is not used: %s", kernel.failed)
        return kernel

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gradwire-kernels", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _next(self) -> Job | None:
        """The next job; None if there is none for a while, and then the thread is no more the kernels' one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._urgent or self._jobs, _IDLE_SECONDS):
                self._thread = None
                compiler, self._compiler = self._compiler, None
                if compiler is not None:
                    compiler.end()
                return None
            return (self._urgent or self._jobs).popleft()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                log.exception("a plan could not be fused")

    def _key(self, source: str) -> str:
        if not self._salt:
            import llvmlite

            cpu = _described_cpu() or _cpu_of_llvm()
            self._salt = "\n".join((str(_FORM), llvmlite.__version__, cpu, SCRIPT.read_text("utf-8")))
        return hashlib.sha256(f"{self._salt}\n{source}".encode()).hexdigest()

    def _code(self, kernel: Kernel) -> bytes:
        """Object code, from the disk or compiled. Raises OSError, RuntimeError."""
        code = self._files.read(kernel.key)
        if code is None:
            code = self._compile(kernel.source.replace(f"@{ENTRY}(", f"@{_symbol(kernel)}("))
            self._files.write(kernel.key, code)
        return code

    def _compile(self, source: str) -> bytes:
        if self._unusable:
            raise RuntimeError(self._unusable)
        try:
            if self._compiler is None:
                self._compiler = Compiler()
            code = self._compiler.compiled(source)
        except Unusable as error:
            self._give_up(str(error))
            raise RuntimeError(self._unusable) from error
        except OSError as error:
            if self._compiler is not None:
                self._compiler.end()
                self._compiler = None
            self._timeouts = self._timeouts + 1 if isinstance(error, TimeoutError) else 0
            if self._timeouts >= _MOST_TIMEOUTS:
                self._give_up(f"{error}, {_MOST_TIMEOUTS} times in a row")
            raise
        self._timeouts = 0
        return code

    def _give_up(self, why: str) -> None:
        """Compile nothing any more; kernels on disk are still loaded."""
        if not self._unusable:
            log.warning("no kernel is compiled: %s", why)
        self._unusable = why

    def _load(self, kernel: Kernel, code: bytes) -> None:
        """Load object code. Raises OSError, RuntimeError, ImportError."""
        try:
            loaded = load(code, _symbol(kernel))
        except PermissionError as error:  # the system forbids code that is made at run time
            self._give_up(str(error))
            raise
        if loaded is not None:
            kernel.engine, kernel.entry = loaded, _SIGNATURE(loaded.address)
            return
        llvm = _llvm()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(_symbol(kernel))
        if not address:
            raise RuntimeError("the object code has no entry")
        kernel.engine, kernel.entry = engine, _SIGNATURE(address)


def _symbol(kernel: Kernel) -> str:
    """The name of a kernel's function: it shows in a profile which kernel it is."""
    return f"kernel_{kernel.key}"


def _llvm() -> Any:
    """LLVM, ready for this machine's code. Raises OSError, RuntimeError, ImportError."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _cpu_of_llvm() -> str:
    """The CPU by LLVM's name, and what it can do."""
    llvm = _llvm()
    return f"{llvm.get_host_cpu_name()}\n{llvm.get_host_cpu_features().flatten()}"


def _described_cpu() -> str:
    """The CPU as Linux describes one of x86: its model, and what it can do. Empty on other systems."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as told:
            for line in itertools.takewhile(str.strip, told):  # of the first core
                name, _, value = line.partition(":")
                found[name.strip()] = value.strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return "\n".join(found[name] for name in _CPU_FACTS) if found.keys() >= set(_CPU_FACTS) else ""


#: The kernels of this process.
KERNELS = Kernels()
