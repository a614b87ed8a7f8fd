"""oneDNN by ctypes: layouts, primitives, reorders and products of float32 arrays in CPU memory; operands.py uses them.

The library is that of the wheel `onednn-cpu-gomp` (extra `[onednn]`). It is loaded at its first use; without it,
`library` is None. A primitive runs in its caller's thread alone, so callers divide the work themselves: OpenMP gets one
thread and starts none. Therefore no OpenMP threads wait for work, forks may compute too, and the number of threads
does not change a result.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gradwire_engine.backends.product_facts import products_of, scales_of

log = logging.getLogger("gradwire.engine")

PACKAGE = "onednn-cpu-gomp"
_FILE, _MAJOR = "libdnnl.so.3", 3
# Numbers of dnnl_types.h.
_F32, _ANY, _CPU, _IN_ORDER, _USER_SCRATCHPAD = 3, 1, 1, 1, 1
_TRAINING, _BACKWARD, _DIRECT = 64, 128, 1  # training: with the same kernels as inference
_FORWARDS, _BACKWARDS, _OVERWRITE = 1, 2, 1  # directions of a recurrent layer; its weights' gradients are not added
_SUCCESS, _OUT_OF_MEMORY, _UNIMPLEMENTED = 0, 1, 3
_NAME_QUERY, _SCRATCHPAD_QUERY, _ARGUMENT_QUERY = 8, 136, 255
_AVX512 = 0x20  # of dnnl_cpu_isa_t, a set of bits
FROM, TO, SCRATCHPAD = 1, 17, 80
SOURCE, WEIGHTS, BIAS, RESULT = 1, 33, 41, 17
SOURCE_GRADIENT, WEIGHTS_GRADIENT, RESULT_GRADIENT = 129, 161, 145
# Of a recurrent layer, after SOURCE, WEIGHTS and RESULT: the states before and after it, and the recurrent weights.
FIRST_STATE, FIRST_CELL, RECURRENT, LAST_STATE, LAST_CELL, WORKSPACE = 2, 3, 34, 18, 19, 64
GRADIENT = 128  # added to an argument's number
_Dims = ctypes.c_int64 * 12
_LOADING = threading.Lock()  # so that two threads get the same library
_Handle = ctypes.c_void_p
_Out = ctypes.POINTER(ctypes.c_void_p)


class _Argument(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("memory", _Handle))


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


_DIMS = ctypes.POINTER(ctypes.c_int64)
_SIGNATURES: dict[str, Sequence[Any]] = {
    "engine_create": (_Out, ctypes.c_int, ctypes.c_size_t),
    "stream_create": (_Out, _Handle, ctypes.c_uint),
    "set_primitive_cache_capacity": (ctypes.c_int,),
    "memory_desc_create_with_tag": (_Out, ctypes.c_int, _DIMS, ctypes.c_int, ctypes.c_int),
    "memory_desc_create_with_strides": (_Out, ctypes.c_int, _DIMS, ctypes.c_int, _DIMS),
    "memory_desc_clone": (_Out, _Handle),
    "memory_desc_equal": (_Handle, _Handle),
    "memory_desc_destroy": (_Handle,),
    "memory_create": (_Out, _Handle, _Handle, _Handle),
    "memory_set_data_handle": (_Handle, _Handle),
    "memory_destroy": (_Handle,),
    "primitive_attr_create": (_Out,),
    "primitive_attr_set_scratchpad_mode": (_Handle, ctypes.c_int),
    "primitive_desc_query": (_Handle, ctypes.c_int, ctypes.c_int, _Handle),
    "primitive_desc_destroy": (_Handle,),
    "primitive_create": (_Out, _Handle),
    "primitive_execute": (_Handle, _Handle, ctypes.c_int, _Handle),
    "primitive_destroy": (_Handle,),
    "reorder_primitive_desc_create": (_Out, *[_Handle] * 5),
    "lstm_forward_primitive_desc_create": (
        (_Out, _Handle, ctypes.c_int, ctypes.c_int, *[_Handle] * 11, ctypes.c_uint, _Handle)
    ),
    "lstm_backward_primitive_desc_create": (
        (_Out, _Handle, ctypes.c_int, ctypes.c_int, *[_Handle] * 22, ctypes.c_uint, _Handle, _Handle)
    ),
    "convolution_forward_primitive_desc_create": (
        (_Out, _Handle, ctypes.c_int, ctypes.c_int, *[_Handle] * 4, *[_DIMS] * 4, _Handle)
    ),
    "convolution_backward_data_primitive_desc_create": (
        (_Out, _Handle, ctypes.c_int, *[_Handle] * 3, *[_DIMS] * 4, _Handle, _Handle)
    ),
    "convolution_backward_weights_primitive_desc_create": (
        (_Out, _Handle, ctypes.c_int, *[_Handle] * 4, *[_DIMS] * 4, _Handle, _Handle)
    ),
}


_LONG, _CHAR, _FLOAT = ctypes.c_int64, ctypes.c_char, ctypes.c_float
_SGEMM: tuple[Any, ...] = (
    _CHAR, _CHAR, _LONG, _LONG, _LONG, _FLOAT, _Handle, _LONG, _Handle, _LONG, _FLOAT, _Handle, _LONG,
)  # fmt: skip


def _address(function: Any) -> int:
    """Where a function's code is."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _Owned:
    """A handle of the library, freed with its owner."""

    __slots__ = ("_free", "handle")

    def __init__(self, handle: _Handle, free: Any) -> None:
        self.handle, self._free = handle, free

    def __del__(self) -> None:
        self._free(self.handle)


class Layout(_Owned):
    """Shape and order of an array's elements in memory; an open one is chosen by a primitive."""

    __slots__ = ("nbytes",)

    def __init__(self, library: Library, handle: _Handle) -> None:
        super().__init__(handle, library.calls["memory_desc_destroy"])
        self.nbytes = int(library.size_of(handle))


class Memory(_Owned):
    """An address with a layout. One thread at a time uses it."""

    __slots__ = ("_address", "_layout", "_set")

    def __init__(self, library: Library, layout: Layout) -> None:
        handle = library.made("memory_create", layout.handle, library.engine, None)
        super().__init__(handle, library.calls["memory_destroy"])
        self._set, self._layout = library.calls["memory_set_data_handle"], layout
        self._address = 0

    def point(self, address: int) -> None:
        """Set the address."""
        if address != self._address:
            self._set(self.handle, address)
            self._address = address


class Primitive(_Owned):
    """A computation with fixed layouts.

    name: of the implementation. scratch: layout of its temporary memory; None if it needs none.
    """

    __slots__ = ("_layouts", "name", "scratch")

    def __init__(self, library: Library, descriptor: _Handle, arguments: Sequence[int] = ()) -> None:
        """Make the primitive of a primitive descriptor, which is freed; `arguments` have a `layout`."""
        try:
            self._layouts = {
                number: library.copied(library.queried(descriptor, _ARGUMENT_QUERY, number)) for number in arguments
            }
            scratch = library.copied(library.queried(descriptor, _SCRATCHPAD_QUERY, 0))
            self.scratch = scratch if scratch.nbytes else None
            name = ctypes.c_char_p()
            library.call("primitive_desc_query", descriptor, _NAME_QUERY, 0, ctypes.byref(name))
            self.name = (name.value or b"").decode()
            handle = library.made("primitive_create", descriptor)
        finally:
            library.calls["primitive_desc_destroy"](descriptor)
        super().__init__(handle, library.calls["primitive_destroy"])

    def layout(self, argument: int) -> Layout:
        """The layout of an argument."""
        return self._layouts[argument]


class Call:
    """A primitive with its memory. Call it in one thread at a time, after `use_one_thread`. Raises RuntimeError."""

    __slots__ = ("_arguments", "_count", "_execute", "_held", "_primitive", "_stream")

    def __init__(self, library: Library, primitive: Primitive, memory: Mapping[int, Memory]) -> None:
        self._arguments = (_Argument * len(memory))(
            *[_Argument(number, each.handle) for number, each in memory.items()]
        )
        self._count, self._held, self._primitive = len(memory), (primitive, *memory.values()), primitive.handle
        self._execute, self._stream = library.calls["primitive_execute"], library.stream

    def numbers(self) -> tuple[int, int, int]:
        """The primitive, how many arguments, and where they are, for machine code."""
        return self._primitive.value or 0, self._count, ctypes.addressof(self._arguments)

    def __call__(self) -> None:
        status = self._execute(self._primitive, self._stream, self._count, self._arguments)
        if status:
            raise error_of("primitive_execute", status)


def _opened(path: str) -> ctypes.CDLL:
    """The library's file, loaded while other threads run: Python's own call keeps its lock for 5 ms. Raises OSError."""
    opened = getattr(ctypes.CDLL(None), "dlopen", None)
    if opened is None:
        return ctypes.CDLL(path)
    opened.restype, opened.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    handle = opened(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL)
    # Where it failed, Python's own call fails too, and says why.
    return ctypes.CDLL(path, handle=handle) if handle else ctypes.CDLL(path)


class Library:
    """The loaded library: one engine, one stream. Any thread may use it."""

    def __init__(self, path: str) -> None:
        """Load the library. Raises OSError if it cannot be loaded or is another version."""
        loaded = _opened(path)
        self.calls: dict[str, Any] = {}
        try:
            for name, arguments in _SIGNATURES.items():
                function = self.calls[name] = loaded[f"dnnl_{name}"]
                function.argtypes = arguments
            describe, self._query, self._size = (
                loaded[f"dnnl_{name}"] for name in ("version", "primitive_desc_query_md", "memory_desc_get_size")
            )
            self._set_threads = loaded["omp_set_num_threads"]
            self._sgemm, isa = loaded["dnnl_sgemm"], loaded["dnnl_get_effective_cpu_isa"]
            #: Addresses of functions, for machine code.
            self.sgemm, self.set_threads = _address(self._sgemm), _address(self._set_threads)
            self.point, self.execute = (
                _address(self.calls[name]) for name in ("memory_set_data_handle", "primitive_execute")
            )
        except AttributeError as error:
            raise OSError(f"{path} is not oneDNN with OpenMP: {error}") from error
        describe.restype = ctypes.POINTER(_Version)
        self._query.restype, self._query.argtypes = _Handle, (_Handle, ctypes.c_int, ctypes.c_int)
        self._size.restype, self._size.argtypes = ctypes.c_size_t, (_Handle,)
        self._sgemm.argtypes = _SGEMM
        #: Whether products and convolutions use AVX-512.
        self.has_avx512 = bool(isa() & _AVX512)
        version = describe().contents
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        #: What the content of a workspace depends on.
        self.fingerprint = f"{self.version} {isa():x}"
        if version.major != _MAJOR:
            raise OSError(f"{path} is oneDNN {self.version}, not {_MAJOR}")
        self._threads = threading.local()
        self.use_one_thread()
        self.engine = self.made("engine_create", _CPU, 0)
        self.stream = self.made("stream_create", self.engine, _IN_ORDER)
        self._attributes = self.made("primitive_attr_create")
        self.call("primitive_attr_set_scratchpad_mode", self._attributes, _USER_SCRATCHPAD)
        self.call("set_primitive_cache_capacity", 0)  # callers keep their primitives

    def use_one_thread(self) -> None:
        """Give OpenMP one thread wherever this thread uses the library."""
        if not hasattr(self._threads, "one"):
            self._set_threads(1)
            self._threads.one = True

    def call(self, name: str, *args: Any) -> None:
        """Call a function. Raises RuntimeError, MemoryError."""
        status = self.calls[name](*args)
        if status != _SUCCESS:
            raise error_of(name, status)

    def made(self, name: str, *args: Any) -> _Handle:
        """Call a function that makes something. Raises RuntimeError, MemoryError."""
        handle = _Handle()
        self.call(name, ctypes.byref(handle), *args)
        return handle

    def prepare_products(self) -> None:
        """Let the library generate its kernels of products, as a first one would. Raises RuntimeError, MemoryError."""
        self.use_one_thread()
        numbers = (ctypes.c_float * 48)()
        one = ctypes.addressof(numbers)
        other, result = one + 64, one + 128
        status = self._sgemm(b"N", b"N", 4, 4, 4, 1.0, one, 4, other, 4, 0.0, result, 4)
        if status:
            raise error_of("sgemm", status)

    def multiply(self, facts: Any, number: int) -> None:
        """One part of a job of products (core/team.py). Raises RuntimeError, MemoryError."""
        self.use_one_thread()
        alpha, beta = scales_of(facts)
        for part in products_of(facts, number):
            order, other_order, rows, columns, inner, a, one_leading, b, other_leading, c, leading = part
            status = self._sgemm(
                order, other_order, rows, columns, inner, alpha, a, one_leading, b, other_leading, beta, c, leading
            )
            if status:
                raise error_of("sgemm", status)

    def queried(self, descriptor: _Handle, what: int, index: int) -> _Handle:
        """A layout of a primitive descriptor, which owns it."""
        return _Handle(self._query(descriptor, what, index))

    def size_of(self, layout: _Handle) -> int:
        """Bytes of an array with a layout; 0 for an open layout."""
        return int(self._size(layout))

    def copied(self, layout: _Handle) -> Layout:
        """A layout of its own."""
        return Layout(self, self.made("memory_desc_clone", layout))

    def open_layout(self, shape: Sequence[int]) -> Layout:
        """A layout that a primitive chooses."""
        return Layout(self, self.made("memory_desc_create_with_tag", len(shape), _Dims(*shape), _F32, _ANY))

    def plain_layout(self, shape: Sequence[int], strides: Sequence[int] = ()) -> Layout:
        """The layout of a row-major array, or with other strides in elements."""
        if not strides:
            steps = [1]
            for length in reversed(shape[1:]):
                steps.insert(0, steps[0] * length)
            strides = steps
        made = self.made("memory_desc_create_with_strides", len(shape), _Dims(*shape), _F32, _Dims(*strides))
        return Layout(self, made)

    def is_same(self, layout: Layout, other: Layout) -> bool:
        """Whether two layouts place all elements alike."""
        return bool(self.calls["memory_desc_equal"](layout.handle, other.handle))

    def reorder(self, given: Layout, wanted: Layout) -> Primitive | None:
        """The copy from one layout to another (FROM, TO); None if they are the same. Raises RuntimeError."""
        if self.is_same(given, wanted):
            return None
        engine = self.engine
        made = self.made("reorder_primitive_desc_create", given.handle, engine, wanted.handle, engine, None)
        return Primitive(self, made)

    def convolution(
        self, kind: str, source: Layout, weights: Layout, bias: Layout | None, result: Layout, stride: Sequence[int],
        padding: Sequence[int], dilation: Sequence[int],
    ) -> Primitive | None:  # fmt: skip
        """A convolution ("forward") or its gradient by "source" or "weights"; None if there is no implementation.

        weights: (o, c, *kernel), or with groups (groups, o / groups, c / groups, *kernel). Raises RuntimeError.
        """
        self.use_one_thread()
        window = [_Dims(*each) for each in (stride, [gap - 1 for gap in dilation], padding, padding)]
        layouts = [source.handle, weights.handle, None if bias is None else bias.handle, result.handle]
        made, attributes = _Handle(), self._attributes
        out = ctypes.byref(made)
        if kind == "forward":
            arguments: tuple[int, ...] = (SOURCE, WEIGHTS, RESULT, *([] if bias is None else [BIAS]))
            create = self.calls["convolution_forward_primitive_desc_create"]
            status = create(out, self.engine, _TRAINING, _DIRECT, *layouts, *window, attributes)
        elif kind == "source":
            arguments = (SOURCE_GRADIENT, WEIGHTS, RESULT_GRADIENT)
            create = self.calls["convolution_backward_data_primitive_desc_create"]
            status = create(out, self.engine, _DIRECT, *layouts[:2], layouts[3], *window, None, attributes)
        else:
            arguments = (SOURCE, WEIGHTS_GRADIENT, RESULT_GRADIENT)
            create = self.calls["convolution_backward_weights_primitive_desc_create"]
            status = create(out, self.engine, _DIRECT, *layouts, *window, None, attributes)
        if status == _UNIMPLEMENTED:
            return None
        if status:
            raise error_of(f"convolution, {kind}", status)
        return Primitive(self, made, arguments)

    def lstm(self, source: Layout, state: Layout, result: Layout, sizes: tuple[int, int], reverse: bool) -> Any:
        """One layer of an LSTM in one direction, and its gradient. Raises RuntimeError.

        source: (steps, rows, inner). sizes: inner and width. Weights have the shape (1, 1, inner, 4, width), with the
        gates in PyTorch's order.
        """
        self.use_one_thread()
        inner, width = sizes
        bias = self.plain_layout((1, 1, 4, width))
        weights = [self.open_layout((1, 1, size, 4, width)) for size in (inner, width)]
        given = [source, state, state, *weights, None, None, bias, result, state, state]
        handles = [None if each is None else each.handle for each in given]
        inputs = (SOURCE, FIRST_STATE, FIRST_CELL, WEIGHTS, RECURRENT, BIAS)
        results = (RESULT, LAST_STATE, LAST_CELL)
        way = _BACKWARDS if reverse else _FORWARDS
        create = "lstm_forward_primitive_desc_create"
        forward = self.made(create, self.engine, _TRAINING, way, *handles, 0, self._attributes)
        create = "lstm_backward_primitive_desc_create"
        try:
            options = _OVERWRITE, forward, self._attributes
            back = self.made(create, self.engine, _BACKWARD, way, *handles, *handles, *options)
        except BaseException:
            self.calls["primitive_desc_destroy"](forward)
            raise
        made = Primitive(self, forward, (*inputs, *results, WORKSPACE))
        gradients = tuple(number + GRADIENT for number in (*inputs, *results))
        return made, Primitive(self, back, (*inputs, *results, WORKSPACE, *gradients))


def error_of(name: str, status: int) -> Exception:
    """The error of a call that failed."""
    kind = MemoryError if status == _OUT_OF_MEMORY else RuntimeError
    return kind(f"oneDNN: {name} failed with status {status}")


def _path() -> Path | None:
    """The installed library: the wheel puts it beside Python's own, or into the user's folder."""
    import sysconfig  # here, for servers without the library

    schemes = (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
    paths = (Path(sysconfig.get_path("data", scheme), "lib", _FILE) for scheme in schemes)
    return next((path for path in paths if path.exists()), None)


def installed() -> str | None:
    """Version of the installed package; None without one. It does not load the library."""
    if _path() is None:
        return None
    from importlib.metadata import PackageNotFoundError, version  # here, since it loads slowly

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None  # another package's library


def library() -> Library | None:
    """The library; None if it is not installed or cannot be loaded, which is logged."""
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> Library | None:
    path = _path()
    if path is None:
        return None
    try:
        return Library(str(path))
    except OSError as error:
        log.warning("oneDNN is installed, but cannot be loaded; convolutions use NumPy: %s", error)
        return None
