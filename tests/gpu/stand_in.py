"""A stand-in for CuPy, computed by NumPy, with CuPy's names and refusals. It shows what would fail on a GPU.

Names that CuPy lacks are missing here (cupy_names.json, written by tools/cupy_names.py). As in CuPy, arrays neither
convert to NumPy arrays implicitly nor mix with them in an operation. An element or a sum is still an array. Ufuncs
reduce and scatter only where CuPy's do. Kernels, dtypes of results and speed need a real GPU.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from tests.gpu import philox

NAMES: dict[str, Any] = json.loads((Path(__file__).parent / "cupy_names.json").read_text())
HOMES = {
    "cupy": "numpy",
    "cupy.linalg": "numpy.linalg",
    "cupy.fft": "numpy.fft",
    "cupy.lib.stride_tricks": "numpy.lib.stride_tricks",
    "cupyx.scipy.special": "scipy.special",
    "cupyx.scipy.fft": "scipy.fft",
    "cupyx.scipy.linalg": "scipy.linalg",
}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SORTING = frozenset(["sort", "argsort", "partition", "argpartition", "lexsort", "unique"])
# These take arrays of the host and give the device's (full: one without dimensions).
UPLOADS = frozenset(["array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "full"])
# What the GPU's atomic operations do at indices.
ATOMIC = frozenset(np.dtype(name) for name in ("int32", "uint32", "uint64", "float32", "float64"))
REDUCING = frozenset(["add", "multiply"])
SCATTERING = frozenset(["add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"])
OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]


def wrapped(value: Any) -> Any:
    """NumPy's result as the device's: 0-d arrays for numbers, too."""
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    if isinstance(value, list):
        return [wrapped(each) for each in value]
    if isinstance(value, tuple):
        made = [wrapped(each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return value


def unwrapped(value: Any) -> Any:
    """The device's arrays as NumPy's. Raises TypeError for an array of the host."""
    if isinstance(value, ndarray):
        return value.values
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, list | tuple) and any(isinstance(each, ndarray | np.ndarray | list | tuple) for each in value):
        return type(value)(unwrapped(each) for each in value)
    return value


class Flags:
    """The flags of an array that CuPy's have."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.owndata, self.fnc, self.forc = flags.owndata, flags.fnc, flags.forc


def scattered(ufunc: Any, target: Any, key: Any, values: Any) -> None:
    """ufunc.at of the device's arrays. Raises TypeError for a dtype without atomic operations."""
    if target.dtype not in ATOMIC:
        raise TypeError(f"scatter_{ufunc.__name__} only supports {sorted(map(str, ATOMIC))}, not {target.dtype}")
    ufunc.at(target.values, key_of(key), unwrapped(values))


def key_of(value: Any) -> Any:
    """An index: CuPy's may be of the host."""
    if isinstance(value, tuple):
        return tuple(key_of(each) for each in value)
    return value.values if isinstance(value, ndarray) else value


class ndarray:
    """An array on the device that is not there."""

    __array_priority__ = 100
    device = SimpleNamespace(id=0)

    def __init__(self, values: Any, dtype: Any = None, memory: Any = None) -> None:
        self.values = values if memory is None else np.ndarray(values, dtype, memory.mem.array)

    real = property(lambda self: wrapped(self.values.real), lambda self, value: self._set("real", value))
    imag = property(lambda self: wrapped(self.values.imag), lambda self, value: self._set("imag", value))

    shape = property(lambda self: self.values.shape, lambda self, value: self._set("shape", value))

    def _set(self, part: str, value: Any) -> None:
        setattr(self.values, part, unwrapped(value))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in NAMES["ndarray"]:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        if name == "data":
            memory = _owner(self.values)
            where = SimpleNamespace(ptr=memory.ctypes.data, size=memory.nbytes, array=memory)
            return SimpleNamespace(ptr=self.values.ctypes.data, mem=where)
        found = getattr(self.values, name)
        if name == "flags":
            return Flags(found)
        if callable(found):
            return Function(name, None, _writable_diagonal(found) if name == "diagonal" else found)
        return wrapped(found) if name in ("T", "mT", "base") else found

    def get(self) -> np.ndarray[Any, Any]:
        """A copy of it on the host."""
        return self.values.copy()

    def item(self, *args: int) -> Any:
        """An element as a Python number."""
        return self.values.item(*args)

    def tolist(self) -> Any:
        """All elements as Python numbers."""
        return self.values.tolist()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct one.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or not hasattr(CUPY, ufunc.__name__):
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return getattr(CUPY, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        home = CUPY
        for part in function.__module__.split(".")[1:]:
            home = getattr(home, part, None)
        found = getattr(home, function.__name__, None)
        return NotImplemented if found is None else found(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return (wrapped(each) for each in self.values)

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self.values[key_of(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        lift = key_of if isinstance(value, np.ndarray) and not value.ndim else unwrapped
        self.values[key_of(key)] = lift(value)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __int__(self) -> int:
        return int(self.values)

    def __float__(self) -> float:
        return float(self.values)

    def __complex__(self) -> complex:
        return complex(self.values)

    def __index__(self) -> int:
        return self.values.__index__()

    def __neg__(self) -> Any:
        return wrapped(-self.values)

    def __abs__(self) -> Any:
        return wrapped(abs(self.values))

    def __invert__(self) -> Any:
        return wrapped(~self.values)

    def __repr__(self) -> str:
        return f"stand-in for cupy.{self.values!r}"


def _owner(array: Any) -> Any:
    """The array that allocated the memory."""
    while (
        base := getattr(array.base, "base", None) if "Dummy" in type(array.base).__name__ else array.base
    ) is not None:
        array = base
    return array


def _writable_diagonal(diagonal: Any) -> Any:
    """CuPy's diagonal may be written into."""

    def shown(*args: Any) -> Any:
        answer = diagonal(*args)
        answer.flags.writeable = True
        return answer

    return shown


def _operator(name: str, *, in_place: bool = False) -> Callable[..., Any]:
    def apply(self: ndarray, other: Any) -> Any:
        answer = getattr(self.values, name)(unwrapped(other))
        if in_place:
            return NotImplemented if answer is NotImplemented else self
        return answer if answer is NotImplemented else wrapped(answer)

    return apply


for _name in OPERATORS:
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(ndarray, f"__r{_name}__", _operator(f"__r{_name}__"))
    setattr(ndarray, f"__i{_name}__", _operator(f"__i{_name}__", in_place=True))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
ndarray.__hash__ = None  # type: ignore[assignment]


class Function:
    """One of CuPy's functions: its parameters, NumPy's computation."""

    def __init__(self, name: str, parameters: list[str] | None, found: Any) -> None:
        self.__name__ = name
        self.parameters = parameters
        self.found = found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute it. Raises TypeError for parameters that CuPy does not take and for arrays of the host."""
        for key in kwargs:
            if self.parameters is not None and key not in self.parameters:
                raise TypeError(f"cupy.{self.__name__}() got an unexpected keyword argument '{key}'")
        if self.parameters is None and {"initial", "where"} & kwargs.keys():
            raise TypeError(f"ndarray.{self.__name__}() takes no `initial` and no `where`")
        if self.__name__ in SORTING and any(getattr(each, "dtype", None) == BFLOAT16 for each in args):
            raise TypeError(f"{self.__name__}: no bfloat16")
        lift = key_of if self.__name__ in UPLOADS else unwrapped
        kwargs = {key: lift(value) for key, value in kwargs.items() if key != "blocking"}
        answer = self.found(*map(lift, args), **kwargs)
        return wrapped(answer)

    def _of_ufunc(self, method: str, known: frozenset[str]) -> Any:
        if self.__name__ not in known:
            raise NotImplementedError(f"`cupy_{self.__name__}.{method}` is not supported yet")
        return Function(f"{self.__name__}.{method}", None, getattr(self.found, method))

    def __getattr__(self, name: str) -> Any:
        if name in ("reduce", "accumulate"):
            return self._of_ufunc(name, REDUCING)
        if name == "at":
            self._of_ufunc(name, SCATTERING)
            return lambda target, key, values: scattered(self.found, target, key, values)
        raise AttributeError(name)


class Module(ModuleType):
    """A module of CuPy's: its functions by name, with NumPy's constants and types."""

    def __getattr__(self, name: str) -> Any:
        own = NAMES[self.__name__]
        found = getattr(importlib.import_module(HOMES[self.__name__]), name, Module)
        if name in own:
            made = Function(name, own[name], found)
        elif isinstance(found, ModuleType) or found is Module or (callable(found) and not isinstance(found, type)):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        else:
            made = found  # pi, float32, finfo
        setattr(self, name, made)
        return made


def _where(condition: Any, *chosen: Any) -> Any:
    """numpy.where without a loop for bfloat16, which becomes float32."""
    wide = [each.astype(np.float32) if getattr(each, "dtype", None) == BFLOAT16 else each for each in chosen]
    return np.where(condition, *wide)


def _solve(a: Any, b: Any) -> Any:
    if a.shape[:-2] != b.shape[: a.ndim - 2]:
        raise ValueError("a and b must have the same batch dimensions")
    return np.linalg.solve(a, b)


def _expm(a: Any) -> Any:
    if a.ndim != 2:
        raise ValueError("expm: one matrix")
    return importlib.import_module("scipy.linalg").expm(a)


def _polygamma(n: Any, x: Any) -> Any:
    if not isinstance(n, ndarray):
        raise TypeError("polygamma: n is an array")
    return wrapped(importlib.import_module("scipy.special").polygamma(n.values, unwrapped(x)))


class Factored(Function):
    """A factorization: of a matrix that it cannot factor it makes nan, unless cupyx.errstate says to raise."""

    raises = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute it. Raises LinAlgError inside errstate(linalg="raise")."""
        try:
            return super().__call__(*args, **kwargs)
        except np.linalg.LinAlgError:
            if Factored.raises:
                raise
            return wrapped(np.full_like(unwrapped(args[0]), np.nan))


@contextmanager
def _errstate(linalg: str) -> Iterator[None]:
    before, Factored.raises = Factored.raises, linalg == "raise"
    try:
        yield
    finally:
        Factored.raises = before


class ElementwiseKernel:
    """The engine's kernels of random numbers, by name; `philox.py` has the same numbers in NumPy."""

    def __init__(self, parameters: str, results: str, body: str, name: str, preamble: str = "") -> None:
        self.computed = philox.KERNELS[name]

    def __call__(self, *args: Any) -> None:
        """Fill the last argument."""
        *given, made = map(unwrapped, args)
        made[...] = self.computed(made.shape, made.dtype, *given)


def _cuda() -> SimpleNamespace:
    class CUDARuntimeError(RuntimeError):
        pass

    def device(_: int = 0) -> AbstractContextManager[None]:
        return nullcontext()

    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda _: {"name": b"stand-in", "totalGlobalMem": 1 << 34},
        runtimeGetVersion=lambda: 0,
        CUDARuntimeError=CUDARuntimeError,
    )
    pointer = lambda memory, offset: SimpleNamespace(mem=memory, offset=offset)  # noqa: E731
    handles = SimpleNamespace(get_cublas_handle=lambda: 0)

    def no_pinned_memory(_: int) -> None:
        raise CUDARuntimeError("the stand-in pins no memory")

    return SimpleNamespace(
        runtime=runtime, Device=device, MemoryPointer=pointer, device=handles, alloc_pinned_memory=no_pinned_memory
    )


def _modules() -> dict[str, ModuleType]:
    made: dict[str, ModuleType] = {name: Module(name) for name in HOMES}
    root: Any = made["cupy"]
    root.linalg, root.fft = made["cupy.linalg"], made["cupy.fft"]
    root.lib = SimpleNamespace(stride_tricks=made["cupy.lib.stride_tricks"])
    root.ndarray, root.cuda, root.__version__ = ndarray, _cuda(), NAMES["version"]
    root.ElementwiseKernel = ElementwiseKernel
    root.__spec__ = ModuleSpec("cupy", None)  # it counts as installed
    root.asnumpy = lambda array: array.get()
    pool = SimpleNamespace(set_limit=lambda size: None, used_bytes=lambda: 0, total_bytes=lambda: 0)
    root.get_default_memory_pool = lambda: pool
    linear: Any = root.linalg
    for name in ("cholesky", "eigh", "eigvalsh", "inv", "qr", "svd", "solve"):
        computed = _solve if name == "solve" else getattr(np.linalg, name)
        setattr(linear, name, Factored(name, NAMES["cupy.linalg"][name], computed))
    root.where = Function("where", NAMES["cupy"]["where"], _where)
    made["cupyx.scipy.linalg"].expm = Function("expm", None, _expm)  # type: ignore[attr-defined]
    made["cupyx.scipy.special"].polygamma = _polygamma  # type: ignore[attr-defined]
    extra: Any = ModuleType("cupyx")
    extra.errstate = _errstate
    extra.scatter_add = partial(scattered, np.add)
    extra.rsqrt = Function("rsqrt", NAMES["cupyx"]["rsqrt"], lambda x, **kwargs: 1 / np.sqrt(x, **kwargs))
    scipy: Any = ModuleType("cupyx.scipy")
    return {**made, "cupyx": extra, "cupyx.scipy": scipy}


MODULES = _modules()
CUPY: Any = MODULES["cupy"]


@contextmanager
def installed() -> Iterator[None]:
    """A process in which `import cupy` finds the stand-in, and the engine one GPU."""
    from gradwire_engine.core import device

    before = {name: sys.modules.get(name) for name in MODULES}
    sys.modules.update(MODULES)
    cached = [each for each in vars(device).values() if hasattr(each, "cache_clear")]
    for each in cached:
        each.cache_clear()
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        for each in cached:
            each.cache_clear()
