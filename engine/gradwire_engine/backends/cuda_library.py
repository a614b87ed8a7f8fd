"""NVIDIA's libraries called by ctypes: functions that answer a status, descriptors, and what is prepared once."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

log = logging.getLogger("gradwire.engine")

Pointer = ctypes.c_void_p
_Prepared = TypeVar("_Prepared")
_MOST_PREPARED = 1024


class CudaLibraryError(RuntimeError):
    """A call of a library failed."""


class CudaLibrary(Generic[_Prepared]):
    """A library, with what is prepared for its calls on each GPU; the longest unused are forgotten."""

    def __init__(self, loaded: ctypes.CDLL, cupy: Any, without: str) -> None:
        """`without`: what the log says of a call for which nothing can be prepared."""
        self._loaded, self._cupy, self._without = loaded, cupy, without
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Prepared | None] = OrderedDict()

    def function(self, name: str) -> Callable[..., int]:
        """A function of the library. Raises AttributeError if it has none of this name."""
        found: Callable[..., int] = getattr(self._loaded, name)
        return found

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CudaLibraryError if it fails."""
        status = self.function(name)(*arguments)
        if status:
            raise CudaLibraryError(f"{name} failed with status {status}")

    def _prepared(self, key: tuple[Hashable, ...], prepare: Callable[[], _Prepared]) -> _Prepared | None:
        """What is prepared under a key for the current GPU; None if the library cannot. The caller has the lock."""
        here = self._cupy.cuda.runtime.getDevice(), *key
        if here not in self._known:
            try:
                made: _Prepared | None = prepare()
            except CudaLibraryError as error:
                log.info("%s: %s", self._without, error)
                made = None
            self._known[here] = made
            if len(self._known) > _MOST_PREPARED:
                self._known.popitem(last=False)
        self._known.move_to_end(here)
        return self._known[here]


class Descriptors:
    """Descriptors of a library, which are destroyed with this object."""

    def __init__(self, library: CudaLibrary[Any]) -> None:
        self._library = library
        self._made: list[tuple[Callable[..., int], Pointer]] = []

    def _created(self, create: str, destroy: str, *arguments: Any) -> Pointer:
        """A new descriptor, by the library's functions of these names. Raises CudaLibraryError."""
        made = Pointer()
        self._library.call(create, ctypes.byref(made), *arguments)
        self._made.append((self._library.function(destroy), made))
        return made

    def __del__(self) -> None:
        for destroy, made in self._made:
            destroy(made)
