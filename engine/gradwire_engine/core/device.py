"""Devices: which array module computes for "cpu" and for "cuda:n".

CuPy is imported at most once. If CuPy or a GPU is missing, only "cpu" exists and other devices are refused by name.
"""

import importlib
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from gradwire_engine.backends.cupy import overlay
from gradwire_engine.backends.downloads import download
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.scipy_modules import scipy_module

# An array of the device's module: numpy.ndarray or cupy.ndarray. CuPy has no type stubs.
Array: TypeAlias = Any
CPU = "cpu"
_OF_NUMPY = (np.ndarray, np.generic)


@cache
def cupy() -> ModuleType | None:
    """CuPy with NumPy's behaviour (see `backends`), or None if it is not installed or finds no GPU."""
    try:
        module = importlib.import_module("cupy")
    except ImportError:
        return None
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        return None
    return overlay(module) if count else None


@cache
def available() -> tuple[str, ...]:
    """Names of the available devices, "cpu" first."""
    module = cupy()
    gpus = range(module.cuda.runtime.getDeviceCount()) if module else ()
    return (CPU, *(f"cuda:{index}" for index in gpus))


@cache
def canonical(name: str | None) -> str:
    """The full name of a device: "cuda" is the first GPU, None is the CPU.

    Raises EngineError: ARGUMENT_VALUE for an invalid name, DEVICE_UNAVAILABLE for an absent device.
    """
    if name is None or name in ("cpu", "cpu:0"):
        return CPU
    kind, _, index = name.partition(":")
    if kind != "cuda" or (":" in name and not index.isdecimal()):
        raise EngineError(
            Reason.ARGUMENT_VALUE, f"Expected one of cpu, cuda device type at start of device string: {name}"
        )
    full = f"cuda:{int(index or 0)}"
    if full not in available():
        raise EngineError(
            Reason.DEVICE_UNAVAILABLE,
            f"device {name!r} is not available: the server has {', '.join(available())} "
            "(no CUDA GPUs are available without CuPy and a GPU)",
            device=name,
        )
    return full


def module_of(array: Array) -> Any:
    """The array module of an array (numpy or cupy); numpy for Python and NumPy scalars."""
    if isinstance(array, np.ndarray | np.generic) or not hasattr(array, "device"):
        return np
    return cupy() or np


@cache
def scipy_of(xp: Any, name: str) -> ModuleType:
    """The module of SciPy of this name ("linalg"), or what stands for it, for an array module."""
    return scipy_module(name) if xp is np else xp.scipy(name)


def load_scipy() -> None:
    """Load the modules of SciPy that ops load with their first use, so that forks share them."""
    for name in ("fft", "linalg", "special"):
        scipy_of(np, name)


def module_for(device: str) -> Any:
    """The array module of a device, given by its canonical name."""
    return np if device == CPU else cupy()


def device_of(array: Array) -> str:
    """The canonical name of an array's device."""
    return CPU if isinstance(array, _OF_NUMPY) else f"cuda:{array.device.id}"


def is_writable(array: Array) -> bool:
    """Whether an array may be written into. CuPy's arrays always may, and their flags do not say it."""
    return bool(array.flags.writeable) if type(array) is np.ndarray else True


def may_share_memory(one: Array, other: Array) -> bool:
    """Whether the memory of two arrays may overlap, by their first and last bytes (numpy.may_share_memory)."""
    if type(one) is not type(other):
        return False
    return bool(module_of(one).may_share_memory(one, other))


def address(array: Array) -> int:
    """Where an array begins, in the memory of its device."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def allocation(array: Array) -> int:
    """The address of the memory of a GPU that holds an array; views of the array have the same."""
    return int(array.data.mem.ptr)


def is_whole(array: Array) -> bool:
    """Whether an array of a GPU is row-major and nothing but itself keeps its memory large."""
    return bool(array.flags.c_contiguous) and (array.base is None or array.base.size == array.size)


def row_major_copy(array: Array) -> Array:
    """A row-major copy on the array's device; of a scalar, a 0-d array."""
    return np.array(array, order="C") if isinstance(array, np.ndarray | np.generic) else array.copy(order="C")


def duplicate(array: Array) -> Array:
    """A row-major copy of a GPU's array; by the copy engine, not by a kernel, if the array is row-major."""
    if not array.flags.c_contiguous:
        return array.copy(order="C")
    made = module_of(array).empty(array.shape, array.dtype)
    if array.nbytes:
        made.data.copy_from_device_async(array.data, array.nbytes)
    return made


@cache
def several() -> bool:
    """Whether there is more than one GPU. CuPy computes only on arrays of the current one."""
    return len(available()) > 2


def selected(device: str) -> AbstractContextManager[Any]:
    """Context manager that makes a device current for allocation and computation."""
    module = cupy()
    if device == CPU or module is None or not several():
        return nullcontext()
    context: AbstractContextManager[Any] = module.cuda.Device(int(device[5:]))
    return context


def beside(array: Array) -> AbstractContextManager[Any]:
    """Context manager that makes an array's device current."""
    return selected(device_of(array)) if several() else nullcontext()


@cache
def card_bytes() -> tuple[int, ...]:
    """Memory of each GPU in bytes. Creates no CUDA context."""
    module = cupy()
    if module is None:
        return ()
    return tuple(
        int(module.cuda.runtime.getDeviceProperties(int(name[5:]))["totalGlobalMem"]) for name in available()[1:]
    )


def limit_pools(share: float = 0.95) -> None:
    """Limit each GPU's pool of memory to a share of the card: the rest is for the CUDA context and libraries.

    An allocation beyond it raises MemoryError.
    """
    for name, size in zip(available()[1:], card_bytes(), strict=True):
        with selected(name):
            module_for(name).get_default_memory_pool().set_limit(size=int(size * share))


def is_broken() -> bool:
    """Whether a GPU's context is broken: after a wrong access by a kernel, every call fails until the process ends.

    Waits for the GPUs.
    """
    module = cupy()
    try:
        for name in available()[1:]:
            with selected(name):
                module.cuda.runtime.deviceSynchronize()  # type: ignore[union-attr]
    except module.cuda.runtime.CUDARuntimeError:  # type: ignore[union-attr]
        return True
    return False


def pools() -> dict[str, tuple[int, int]]:
    """Memory pool of each GPU: bytes in use by arrays, and total bytes."""
    usage: dict[str, tuple[int, int]] = {}
    for name in available():
        if name != CPU:
            with selected(name):
                pool = module_for(name).get_default_memory_pool()
                usage[name] = (int(pool.used_bytes()), int(pool.total_bytes()))
    return usage


def to_device(array: Array, device: str) -> Array:
    """Copy the array to a device; return the array itself if it is already there."""
    if device_of(array) == device:
        return array
    if device == CPU:
        return host(array)
    with selected(device):
        return module_for(device).asarray(array)


def host(array: Array) -> "np.ndarray[Any, Any]":
    """The array's values in host memory."""
    if isinstance(array, np.ndarray):
        return array
    return download(cupy(), array) if hasattr(array, "get") else np.asarray(array)
