"""The loops of this process, compiled or read from the disk when an op first asks for one, and those of a session.

An op waits for its loop, once per machine for compiling and once per process for reading. So the arguments alone
decide whether machine code computes them, not the time at which a kernel becomes ready.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from gradwire_engine.compile.eager import column_dots, distances, max_pool, recurrent, scans, scatters, sequences
from gradwire_engine.compile.eager.forms import BATCH_NORM, FORMS, loop_of
from gradwire_engine.compile.eager.gpu import GpuLoops, check_results, gpu_loops
from gradwire_engine.compile.fusion.form import FULL, is_flat
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.fusion.kernel_cache import Kernel, available
from gradwire_engine.compile.fusion.llvm_printer import printed
from gradwire_engine.op.workload import pause
from gradwire_engine.ops.base.loops import Loop

_CODES = {"f": "f4", "d": "f8"}
#: The names of all loops.
NAMES = frozenset(
    {
        *max_pool.NAMES, *distances.NAMES, *column_dots.NAMES, *scans.NAMES, *scatters.NAMES, *sequences.NAMES,
        *FORMS, *recurrent.STEPS, "normal", *(f"batch_norm_{name}" for name in BATCH_NORM),
    }
)  # fmt: skip
_MOST_PRELOADED = 24
_WAIT_SECONDS = 0.01  # between two looks at whether the command was cancelled


@dataclass(frozen=True)
class _Source:
    """A loop to compile, and the facts of `Loop`."""

    text: str
    operations: int
    kept: int
    flat: bool


def _source_of(name: str, dtype: str) -> _Source | None:
    """A loop by its name; None if there is none for a dtype."""
    for module in (max_pool, distances, column_dots, scans, scatters, sequences):
        text = module.source_of(name, dtype)
        if text is not None:
            return _Source(text, module.OPERATIONS, 0, False)
    form = loop_of(name, dtype)
    if form is None:
        return None
    operations = sum(value.scope == FULL for value in form.values)
    return _Source(printed(form), operations, len(form.kept()), is_flat(form))


@dataclass
class Library:
    """Loops by name and dtype, as they are asked for; None for those that cannot be compiled."""

    loaded: dict[tuple[str, str], Loop | None] = field(default_factory=dict)
    _asked: set[tuple[str, str]] = field(default_factory=set)
    _held: list[Kernel] = field(default_factory=list)  # a kernel's code is freed with its last user

    def find(self, name: str, dtype: str) -> Loop | None:
        """A loop, loaded. Raises EngineError: CANCELLED, while it waits."""
        key = name, dtype
        if key in self.loaded:
            return self.loaded[key]
        source = _source_of(name, _CODES[dtype])
        if source is None:
            self.loaded[key] = None
            return None
        kernel = self._built(source.text, f"{name}.{dtype}")
        return None if kernel is None else self._keep(key, source, kernel)

    def ask(self, name: str, dtype: str) -> None:
        """Have a loop loaded in the kernels' thread; nothing waits for it."""
        key = name, dtype
        if key in self.loaded or key in self._asked or not available():
            return

        def build() -> None:
            source = _source_of(name, _CODES[dtype])
            if source is not None:
                self._keep(key, source, OPTIONS.kernels.built(source.text))
                OPTIONS.kernels.note(f"{name}.{dtype}")

        if OPTIONS.kernels.later(build):
            self._asked.add(key)

    def preload(self) -> None:
        """Read the loops that the last processes used, and that are on disk. In the kernels' thread only."""
        known = [(name, dtype) for name, _, dtype in (noted.rpartition(".") for noted in OPTIONS.kernels.noted())]
        for key in [key for key in known if key[0] in NAMES and key[1] in _CODES][:_MOST_PRELOADED]:
            OPTIONS.kernels.later(functools.partial(self._read, key))

    def _read(self, key: tuple[str, str]) -> None:
        source = None if key in self.loaded else _source_of(key[0], _CODES[key[1]])
        kernel = None if source is None else OPTIONS.kernels.stored(source.text)
        if source is not None and kernel is not None:
            self._keep(key, source, kernel)

    def _keep(self, key: tuple[str, str], source: _Source, kernel: Kernel) -> Loop | None:
        self._held.append(kernel)
        found = None if kernel.entry is None else Loop(kernel.entry, source.operations, source.kept, source.flat)
        self.loaded[key] = found
        return found

    def _built(self, source: str, name: str) -> Kernel | None:
        """The kernel, after it was built or failed; None in a fork, which has no kernels' thread."""
        kernels, done = OPTIONS.kernels, Future[Kernel]()

        def build() -> None:
            try:
                done.set_result(kernels.built(source))
                kernels.note(name)
            except BaseException as error:
                done.set_exception(error)
                raise

        if not kernels.hurry(build):
            return None
        while not done.done():
            pause()
            wait([done], _WAIT_SECONDS)
        return done.result()


LIBRARY = Library()


@dataclass
class _Loaded:
    """Some loops, for a computation that can load no others."""

    loops: dict[tuple[str, str], Loop]
    verifies: bool
    check = staticmethod(check_results)

    def for_gpu(self) -> GpuLoops | None:
        """The loops for arrays on GPUs; None if there are none."""
        return gpu_loops()

    def on_gpu(self, array: Any) -> GpuLoops | None:
        """The loops for an array on a GPU; None for other values."""
        gpu = gpu_loops()
        return gpu if gpu is not None and type(array) is gpu.array else None

    def find(self, name: str, dtype: str) -> Loop | None:
        """A loop; None if it is not one of these."""
        return self.loops.get((name, dtype))

    loaded = find

    def ask(self, name: str, dtype: str) -> None:
        """No other loop can be loaded."""

    def only(self, names: Sequence[tuple[str, str]]) -> _Loaded:
        """These loops of them."""
        return _Loaded({name: self.loops[name] for name in names if name in self.loops}, self.verifies)


class SessionLoops:
    """The loops of one session.

    applies: whether the session may use machine code now. A session whose log is replayed must repeat every bit on
    any machine, so it may not.
    """

    check = staticmethod(check_results)

    def __init__(self, applies: Callable[[], bool], library: Library = LIBRARY) -> None:
        self._applies, self._library = applies, library

    @property
    def verifies(self) -> bool:
        """Whether results are compared with NumPy's."""
        return OPTIONS.mode == "verify"

    def for_gpu(self) -> GpuLoops | None:
        """The loops for arrays on GPUs; None if there are none, or this session computes by CuPy's kernels."""
        return None if OPTIONS.mode == "off" or not self._applies() else gpu_loops()

    def on_gpu(self, array: Any) -> GpuLoops | None:
        """The loops for an array on a GPU; None for other values, and if this session computes by CuPy's kernels."""
        gpu = gpu_loops()
        return self.for_gpu() if gpu is not None and type(array) is gpu.array else None

    def find(self, name: str, dtype: str) -> Loop | None:
        """A loop; None if this session computes by NumPy."""
        if OPTIONS.mode == "off" or not self._applies():
            return None
        found = self._library.loaded.get((name, dtype))
        if found is not None or not available():
            return found
        return self._library.find(name, dtype)

    def loaded(self, name: str, dtype: str) -> Loop | None:
        """A loop that is loaded already; None if it is not, or this session computes by NumPy."""
        return None if OPTIONS.mode == "off" or not self._applies() else self._library.loaded.get((name, dtype))

    def ask(self, name: str, dtype: str) -> None:
        """Have a loop loaded in the background, unless this session computes by NumPy."""
        if OPTIONS.mode != "off" and self._applies():
            self._library.ask(name, dtype)

    def only(self, names: Sequence[tuple[str, str]]) -> _Loaded | None:
        """These loops, by name and dtype, loaded; None if there are none. Raises EngineError: CANCELLED."""
        found = {name: loop for name in names if (loop := self.find(*name)) is not None}
        return _Loaded(found, self.verifies) if found else None
