"""Kernels by their contents: compiled beside the running plans, kept on disk, loaded once.

`Kernels.later` queues a job and returns at once. In its thread, `built` reads a kernel's object code from the disk or
has it compiled by the compiler process (compiler.py), and loads it. A key is the hash of the source, of the compiler,
of LLVM's version and of the CPU. Files are written under another name and renamed, begin with the hash of their
contents, and are ignored if damaged. The directory belongs to this user alone: whoever can write to it can run code in
the server.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import importlib.util
import json
import logging
import os
import queue
import select
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gradwire_engine.compile.fusion.llvm_printer import ENTRY

log = logging.getLogger("gradwire.engine")

Entry = Callable[[int, int, "int | None", int], None]
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_COMPILE_SECONDS = 60.0
_IDLE_SECONDS = 10.0  # then the compiler process ends
_MOST = 1024  # kernels of a process
_QUEUED = 256  # jobs that wait
_FORM = 2  # increase it when object code of an earlier version must not be loaded
_SCRIPT = Path(__file__).with_name("compiler.py")
_DIGEST = hashlib.sha256().digest_size


class Kernel:
    """A kernel that was asked for. `entry` is None until it is loaded; `failed` says why it will not be."""

    __slots__ = ("entry", "failed", "key", "source")

    def __init__(self, key: str, source: str) -> None:
        self.key, self.source = key, source
        self.entry: Entry | None = None
        self.failed = ""


def available() -> bool:
    """Whether kernels can be compiled: llvmlite is installed."""
    return importlib.util.find_spec("llvmlite") is not None


def default_directory() -> Path:
    """Where kernels are kept: $GRADWIRE_KERNEL_CACHE, else in the user's cache directory."""
    given = os.environ.get("GRADWIRE_KERNEL_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(base) / "gradwire" / "kernels").expanduser()


def _private(directory: Path) -> Path | None:
    """The directory, made if missing; None if it cannot be used or others can write to it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = directory.stat()
    except (OSError, RuntimeError) as error:
        log.info("compiled kernels are not kept on disk: %s", error)
        return None
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o022:
        log.warning("compiled kernels are not kept on disk: others can write to %s", directory)
        return None
    return directory


class Kernels:
    """The kernels of this process. Any thread."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._known: dict[str, Kernel] = {}
        self._jobs: queue.Queue[Callable[[], object]] = queue.Queue(_QUEUED)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._compiler: _Compiler | None = None
        self._engine: Any = None  # owns the code
        self._salt = ""
        self._process = os.getpid()

    def later(self, job: Callable[[], object]) -> bool:
        """Run a job in the kernels' thread; return whether it is queued. A full queue refuses it."""
        if os.getpid() != self._process:
            return False  # a fork has no thread
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="gradwire-kernels", daemon=True)
                self._thread.start()
        return True

    def built(self, source: str) -> Kernel:
        """The kernel of a source, loaded or failed. In the kernels' thread only."""
        key = self._key(source)
        kernel = self._known.get(key)
        if kernel is not None:
            return kernel
        kernel = Kernel(key, source)
        if len(self._known) >= _MOST:
            kernel.failed = f"this process has {_MOST} kernels already"
            return kernel
        self._known[key] = kernel
        try:
            self._load(kernel, self._code(kernel))
        except (OSError, RuntimeError, ImportError) as error:
            kernel.failed = str(error) or type(error).__name__
            log.warning("a kernel is not used: %s", kernel.failed)
        return kernel

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._compiler is not None:
                    self._compiler.end()
                    self._compiler = None
                with self._lock:
                    if self._jobs.empty():
                        self._thread = None
                        return
                continue
            try:
                job()
            except Exception:
                log.exception("a plan could not be fused")

    def _key(self, source: str) -> str:
        if not self._salt:
            import llvmlite
            import llvmlite.binding as llvm

            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            features, how = llvm.get_host_cpu_features().flatten(), _SCRIPT.read_text("utf-8")
            self._salt = "\n".join((str(_FORM), llvmlite.__version__, llvm.get_host_cpu_name(), features, how))
        return hashlib.sha256(f"{self._salt}\n{source}".encode()).hexdigest()

    def _code(self, kernel: Kernel) -> bytes:
        """Object code, from the disk or compiled. Raises OSError, RuntimeError."""
        directory = _private(self._directory or default_directory())
        path = None if directory is None else directory / f"{kernel.key}.o"
        if path is not None:
            with suppress(FileNotFoundError):
                code = _unsealed(path.read_bytes())
                if code is not None:
                    return code
        code = self._compile(kernel.source.replace(f"@{ENTRY}(", f"@{_symbol(kernel)}("))
        if path is not None:
            with suppress(OSError):
                _write(path, hashlib.sha256(code).digest() + code)
        return code

    def _compile(self, source: str) -> bytes:
        if self._compiler is None:
            self._compiler = _Compiler()
        try:
            return self._compiler.compiled(source)
        except OSError:
            self._compiler.end()
            self._compiler = None
            raise

    def _load(self, kernel: Kernel, code: bytes) -> None:
        import llvmlite.binding as llvm

        if self._engine is None:
            machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(_symbol(kernel))
        if not address:
            raise RuntimeError("the object code has no entry")
        kernel.entry = _SIGNATURE(address)


def _symbol(kernel: Kernel) -> str:
    """The name of a kernel's function: one engine holds all kernels of a process."""
    return f"kernel_{kernel.key}"


def _unsealed(data: bytes) -> bytes | None:
    digest, code = data[:_DIGEST], data[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(path: Path, data: bytes) -> None:
    """Write a file in one step. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            file.write(data)
            file.close()
            os.replace(file.name, path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


class _Compiler:
    """The compiler process."""

    def __init__(self) -> None:
        """Start it. Raises OSError."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def compiled(self, source: str) -> bytes:
        """Object code. Raises RuntimeError: not valid; OSError: the process failed or took too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(source).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], _COMPILE_SECONDS)
        answer = self._process.stdout.readline() if ready else b""
        if not answer.endswith(b"\n"):
            raise OSError("the compiler ended" if ready else f"compiling took more than {_COMPILE_SECONDS:g} s")
        told = json.loads(answer)
        if "error" in told:
            raise RuntimeError(told["error"])
        return base64.b64decode(told["code"])

    def end(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.kill()
        self._process.wait()


#: The kernels of this process.
KERNELS = Kernels()
