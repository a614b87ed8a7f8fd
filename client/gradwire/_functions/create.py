"""Creation: makes tensors from values, which the client sends, or by a rule (zeros, arange, randn) on the server."""

from __future__ import annotations

import math
import warnings
from array import array as PythonArray
from collections import deque
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from gradwire._base import dtypes
from gradwire._base.call_site import find_call_site
from gradwire._base.dtypes import default_device_name, device, device_name, dtype
from gradwire._base.errors import GradwireRuntimeError, GradwireTypeError, GradwireValueError, refuse
from gradwire._base.memory_formats import PRESERVE, name_of, strides_in
from gradwire._base.modes import is_inference_mode_enabled, no_grad
from gradwire._base.promotion import promote_types
from gradwire._base.wiring import wired
from gradwire._functions.stored_values import StoredValues
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import MemoEntry, Spec, intern
from gradwire._proxy.results import new_proxy
from gradwire._session.sessions import current_session
from gradwire._tensor.batching import BATCHING, LIFTS, MADE
from gradwire._tensor.call import _call, _sizes
from gradwire._tensor.known_values.bounds import note_bounds
from gradwire._tensor.out import _into
from gradwire._tensor.tensor import Tensor, warn_of_scalar
from gradwire._transport.wire import DataFrame, Template, framed, make_data_frame
from gradwire.v1 import commands_pb2, errors_pb2, service_pb2
from gradwire.v1 import types_pb2 as pb

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

Array = npt.NDArray[Any]

_COPY_WARNING = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than gradwire.tensor(sourceTensor)."
)
# Python's own sequences of numbers.
_BUFFERS = (PythonArray, bytearray, memoryview)
_NO_TEMPLATE = Template((b"",), "", b"")


def tensor(
    data: Any,
    *,
    dtype: dtype | None = None,
    device: device | str | int | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a leaf of values: a number, nested lists, an array (torch.tensor).

    Without `dtype`, bools give bool, ints int64, floats the default dtype, complex numbers its complex dtype. Arrays
    keep their dtype. Raises ValueError for ragged lists, RuntimeError for an integer tensor with `requires_grad`.
    """
    if isinstance(data, Tensor):
        warnings.warn(_COPY_WARNING, UserWarning, stacklevel=2)
        return _copied(data, dtype, device).requires_grad_(requires_grad)
    made = make_tensor(data, None if dtype is None else dtypes.as_dtype(dtype), device_name(device), requires_grad)
    for lift in LIFTS if BATCHING else ():
        made = lift(made)
    return made


def as_tensor(data: Any, dtype: dtype | None = None, device: device | str | int | None = None) -> Tensor:
    """Make a tensor of values; return `data` itself if it has that dtype and device already (torch.as_tensor)."""
    if is_tensor(data):
        wanted = data.dtype if dtype is None else dtypes.as_dtype(dtype)
        same: Tensor = data.to(wanted) if device is None else data.to(device, wanted)
        return same
    return tensor(data, dtype=dtype, device=device)


def from_numpy(ndarray: Array) -> Tensor:
    """Copy an array's values and dtype to a tensor on the server. Raises TypeError if it is not an array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return make_tensor(ndarray)


def _copied(source: Tensor, wanted: dtype | None, target_device: Any) -> Tensor:
    bare = source.detach()
    made: Tensor = bare.to(dtype=None if wanted is None else dtypes.as_dtype(wanted), device=target_device, copy=True)
    return made


def legacy_tensor(args: tuple[Any, ...], **options: Any) -> Tensor:
    """Tensor of the default dtype, from values or sizes, for the constructor Tensor(...)."""
    if not args:
        return empty(0, **options)
    if all(type(arg) is int for arg in args):
        return empty(*args, **options)
    if len(args) != 1:
        raise TypeError("Tensor() takes sizes, or one list, array or tensor of values")
    if isinstance(args[0], Tensor):
        return args[0].detach()
    if isinstance(args[0], dtypes.Size):
        return empty(*args[0], **options)
    return make_tensor(args[0], dtypes.get_default_dtype(), **options)


# Values to arrays.


def make_tensor(
    data: Any,
    wanted: dtype | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
    session: SessionProtocol | None = None,
) -> Tensor:
    """Make a leaf of values in the given session or the current one. Raises RuntimeError as `tensor` does."""
    if isinstance(data, (list, tuple)) and (stacked := _stacked(data, wanted, device, session)) is not None:
        return stacked.requires_grad_(requires_grad)
    array, found = _as_array(data, wanted)
    if requires_grad and not (found.is_floating_point or found.is_complex):
        raise refuse(
            "Only Tensors of floating point and complex dtype can require gradients", errors_pb2.REASON_REQUIRES_GRAD
        )
    made = _send(session or current_session(), array, found, device, requires_grad)
    note_bounds(made, found, array)
    for shown in MADE if BATCHING else ():
        shown(made)
    return made


def _stacked(data: Sequence[Any], wanted: dtype | None, device: str, session: SessionProtocol | None) -> Tensor | None:
    """A tensor of nested lists of tensors of one element, made on the server; None if their values must be read.

    A conversion to a narrower dtype needs them, since PyTorch refuses some values.
    """
    probe: Any = data
    for _ in range(_MOST_DIMS):
        if not isinstance(probe, (list, tuple)) or not probe:
            break
        probe = probe[0]
    if not isinstance(probe, Tensor) or device != "cpu" or BATCHING:
        return None
    shape, scalars, found = _flattened(data)
    if not all(isinstance(one, Tensor) for one in scalars):
        return None
    target = _target(scalars, found, wanted)
    for one in scalars:
        spec = one._spec
        if promote_types(spec.dtype, target) is not target or spec.device_name != "cpu" or spec.tangents:
            return None
        if one._session is not (session or probe._session):
            return None
        warn_of_scalar(one, 5)
    with no_grad():
        flat = [one.detach().reshape(()).to(target) for one in scalars]
        made: Tensor = _call("stack", (flat, 0))
        return made if len(shape) == 1 else _call("reshape", (made, shape))


def _as_array(data: Any, wanted: dtype | None) -> tuple[Array, dtype]:
    """Values as a row-major little-endian array, bfloat16 as uint16, and their dtype."""
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    elif isinstance(data, (list, tuple, range, deque)):
        array = _of_lists(data, wanted)
    elif isinstance(data, (bool, int, float, complex)):
        array = _of_scalars([data], (), _of_python(type(data)) if wanted is None else wanted)
    elif isinstance(data, (str, bytes)):
        raise GradwireTypeError(f"new(): invalid data type '{type(data).__name__}'")
    elif isinstance(data, _BUFFERS):
        array = _of_lists(_items(data), wanted)
    elif not hasattr(data, "__array__"):
        raise refuse(f"Could not infer dtype of {type(data).__name__}")
    else:
        array = np.asarray(data)
    found = wanted
    if found is None:
        found = dtypes.BY_NUMPY.get(array.dtype.newbyteorder("<"))
        if found is None:
            raise GradwireTypeError(
                f"can't convert np.ndarray of type {array.dtype}. The supported types are: float64, float32, float16, "
                "complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool."
            )
    if found.numpy is None:
        return to_bfloat16(array), found
    if array.dtype.kind == "c" and not found.is_complex:
        array = array.real
    return np.ascontiguousarray(array.astype(found.numpy, copy=False)).reshape(array.shape), found


def to_bfloat16(array: Array) -> Array:
    """Upper 16 bits of the float32 values as uint16, rounded to nearest even."""
    single = np.asarray(array, dtype=np.float32)
    bits = np.ascontiguousarray(single).view(np.uint32).reshape(single.shape)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _of_lists(data: Sequence[Any], wanted: dtype | None) -> Array:
    shape, scalars, found = _flattened(data)
    target = _target(scalars, found, wanted)
    return _of_scalars([_number(one, target) for one in scalars], shape, target)


def _items(buffer: Any) -> list[Any]:
    if isinstance(buffer, memoryview) and buffer.ndim != 1:
        raise GradwireValueError("could not determine the shape of object type 'memoryview'")
    return list(buffer)


#: How deep lists may be nested.
_MOST_DIMS = 128


def _flattened(data: Sequence[Any]) -> tuple[tuple[int, ...], list[Any], set[dtype]]:
    """The shape of nested lists, their scalars row by row, and the dtypes of arrays and tensors that gave some.

    A tensor in a list is a scalar, except after lists of numbers.
    """
    shape: list[int] = []
    probe: Any = data
    while _is_sequence(probe) and not isinstance(probe, Handle):
        shape.append(len(probe))
        if len(shape) > _MOST_DIMS:
            raise GradwireValueError(f"too many dimensions '{type(probe).__name__}'")
        if not len(probe):
            break
        probe = probe[0]
    scalars: list[Any] = []
    found: set[dtype] = set()
    _collect(data, tuple(shape), 0, scalars, found)
    return tuple(shape), scalars, found


def _is_sequence(value: Any) -> bool:
    if isinstance(value, Handle):
        return len(value._spec.shape) > 0
    if isinstance(value, np.ndarray) and not value.shape:
        raise GradwireTypeError("len() of unsized object: a list of numbers has an array without dimensions")
    return isinstance(value, (np.ndarray, list, tuple, range, deque, *_BUFFERS))


def _contains_itself(value: Any, around: tuple[int, ...]) -> bool:
    """Whether a list is one of those around it, or holds one that is."""
    if not isinstance(value, (list, tuple, deque)):
        return False
    return id(value) in around or any(_contains_itself(each, (*around, id(value))) for each in value)


def _collect(value: Any, shape: tuple[int, ...], depth: int, into: list[Any], found: set[dtype]) -> None:
    """Append the scalars of nested lists row by row. Raises ValueError for ragged lists, TypeError for other values."""
    if depth == len(shape):
        if isinstance(value, Handle):
            if math.prod(value._spec.shape) != 1:
                raise GradwireValueError("only one element tensors can be converted to Python scalars")
        elif _is_sequence(value):
            if _contains_itself(value, ()):
                raise GradwireTypeError("new(): self-referential lists are incompatible")
            raise GradwireTypeError(f"only numbers are expected at dim {depth}, but got a {type(value).__name__}")
        into.append(value)
        return
    if not _is_sequence(value):
        if isinstance(value, str):
            raise GradwireTypeError("new(): invalid data type 'str'")
        raise GradwireTypeError(f"expected a sequence at dim {depth}, but got a {type(value).__name__}")
    if len(value) != shape[depth]:
        raise GradwireValueError(f"expected sequence of length {shape[depth]} at dim {depth} (got {len(value)})")
    if isinstance(value, np.ndarray):
        value = list(value)  # the scalars keep the array's dtype
    elif isinstance(value, Tensor):
        found.add(value.dtype)
        value = value.tolist()
    if depth + 1 == len(shape) and all(type(item) in (int, float, bool) for item in value):
        into.extend(value)
        return
    for item in value:
        _collect(item, shape, depth + 1, into, found)


def _number(scalar: Any, target: dtype) -> Any:
    """A scalar of a list as a number. Raises TypeError for a tensor with a fraction that is to be an integer."""
    if not isinstance(scalar, Tensor):
        return scalar
    if scalar.dtype.is_complex:
        return complex(scalar)
    if not scalar.is_floating_point():
        return scalar.item()
    if not (target.is_floating_point or target.is_complex or target is dtypes.bool_):
        raise GradwireTypeError("only integer tensors of a single element can be converted to an index")
    return float(scalar)


def _of_scalars(scalars: list[Any], shape: tuple[int, ...], target: dtype) -> Array:
    if target.numpy is None:
        return np.array(scalars, dtype=np.float32).reshape(shape)
    try:
        if not target.is_floating_point and not target.is_complex and target is not dtypes.bool_:
            scalars = [_integer(scalar, target) for scalar in scalars]
        with np.errstate(over="ignore"):  # too large for a type of fewer bits: inf, without a warning
            return np.array(scalars, dtype=target.numpy).reshape(shape)
    except OverflowError:
        _refuse_overflow(scalars, target)


def _integer(scalar: Any, target: dtype) -> int:
    """A scalar as a value of an integer type. Raises GradwireRuntimeError for inf, nan and floats too large."""
    if isinstance(scalar, (float, np.floating)) and not -(2.0**63) <= scalar < 2.0**64:
        raise _overflow(target)
    value = int(scalar)
    if value < 0 and not isinstance(scalar, (float, np.floating)) and target.name in ("uint8", "uint16", "uint32"):
        size: int = 1 << 8 * target.itemsize
        return value % size if value > -size else value  # as PyTorch does: -3 is 253
    return value


def _refuse_overflow(scalars: list[Any], target: dtype) -> NoReturn:
    if any(not -(1 << 63) <= scalar < 1 << 63 for scalar in scalars):
        raise GradwireValueError("Overflow when unpacking long long")
    raise _overflow(target)


def _overflow(target: dtype) -> GradwireRuntimeError:
    return GradwireRuntimeError(f"value cannot be converted to type {target.name} without overflow")


def _target(scalars: Sequence[Any], found: set[dtype], wanted: dtype | None) -> dtype:
    """The dtype that was asked for, else the one to which the dtypes of all scalars promote.

    Tensors and NumPy scalars have their own, Python numbers PyTorch's default of their kind. Raises RuntimeError or
    TypeError for a scalar that is no number.
    """
    kinds = {type(scalar) for scalar in scalars}
    of_all = {one.dtype for one in scalars if isinstance(one, Tensor)} | found
    for kind in kinds:
        if issubclass(kind, np.generic):
            of_all.add(dtypes.BY_NUMPY[np.dtype(kind)])
        elif issubclass(kind, (bool, int, float, complex)):
            of_all.add(_of_python(kind))
        elif issubclass(kind, str):
            raise GradwireTypeError("new(): invalid data type 'str'")
        elif not issubclass(kind, Tensor):
            raise refuse(f"Could not infer dtype of {kind.__name__}")
    if wanted is not None:
        return wanted
    return reduce(promote_types, of_all) if of_all else dtypes.get_default_dtype()


def _of_python(kind: type[Any]) -> dtype:
    """The dtype of Python's numbers of a type."""
    if issubclass(kind, int):
        return dtypes.bool_ if kind is bool else dtypes.int64
    default = dtypes.get_default_dtype()
    return default.to_complex() if issubclass(kind, complex) else default


# Arrays to the server.


def _send(session: SessionProtocol, array: Array, found: dtype, device: str, requires_grad: bool) -> Tensor:
    inference = is_inference_mode_enabled()
    spec = intern(found, array.shape, device, requires_grad, inference=inference)
    tensor_id = next(session.ids)
    call_site = find_call_site()
    key = ("create", id(call_site[0]), call_site[1], spec.kind)  # values of other sizes are not refused either
    entry, most = session.memo.get(key), session.limits.max_inline_bytes or 1 << 20
    frame = None if entry is None or array.nbytes > min(most, _MOST_FRAMED) else _frame(spec, array.nbytes)
    if entry is not None and frame is not None:
        session.post_large(frame.fill(tensor_id, array.tobytes()), entry)
        return cast("Tensor", new_proxy(session, tensor_id, spec))
    request = _request(tensor_id, spec)
    if array.nbytes > most:
        transfer = session.upload(memoryview(array.data).cast("B"))
        code: Any = found.code
        request.transfer.CopyFrom(
            commands_pb2.Transfer(transfer_id=transfer, dtype=code, shape=array.shape, total_bytes=array.nbytes)
        )
    else:
        _put(request, spec, array.tobytes())
    if entry is None:
        entry = MemoEntry(key, "create", call_site, _NO_TEMPLATE, (spec,))
        if _must_wait(session, entry, request):
            session.wait(service_pb2.Command(create=request), (tensor_id,))
            session.remember(entry)
            entry = None
        else:
            session.raise_if_unusable()
            session.remember(entry)
    if entry is not None:
        session.post_large(framed(service_pb2.Command(create=request, quiet=True).SerializeToString()), entry)
    made: Tensor = new_proxy(session, tensor_id, spec)
    made._received = False
    return made


# Frames of the creations of small arrays, by the description of their tensor: a message takes longer to make.
_FRAMES: dict[Spec, DataFrame | None] = {}
_MOST_FRAMED, _MOST_FRAMES = 1 << 12, 1 << 10


def _frame(spec: Spec, size: int) -> DataFrame | None:
    if spec not in _FRAMES:

        def build(number: int, data: bytes) -> service_pb2.Command:
            request = _request(number, spec)
            _put(request, spec, data)
            return service_pb2.Command(create=request)

        if len(_FRAMES) >= _MOST_FRAMES:
            _FRAMES.clear()
        _FRAMES[spec] = make_data_frame(build, size)
    return _FRAMES.get(spec)


def _request(number: int, spec: Spec) -> commands_pb2.CreateRequest:
    """A request without its values."""
    return commands_pb2.CreateRequest(
        id=number,
        requires_grad=spec.requires_grad,
        device="" if spec.device_name == "cpu" else spec.device_name,
        grad_mode=pb.GRAD_MODE_INFERENCE if spec.inference else pb.GRAD_MODE_UNSPECIFIED,
    )


def _put(request: commands_pb2.CreateRequest, spec: Spec, data: bytes) -> None:
    code: Any = spec.dtype.code
    request.payload.CopyFrom(pb.Payload(dtype=code, shape=tuple(spec.shape), data=data))


def _must_wait(session: SessionProtocol, entry: MemoEntry, request: commands_pb2.CreateRequest) -> bool:
    """Whether the server might refuse an array: for its size, its device or its flag; or whether calls wait anyway."""
    spec = entry.specs[0]
    if session.recorder is not None or session.every_call_waits or entry.key in session.models:
        return True
    if request.HasField("transfer") or request.device or spec.inference:
        return True
    return spec.requires_grad and not spec.dtype.is_floating_point


# Tensors made by a rule on the server.


def create(op: str, args: tuple[Any, ...], options: dict[str, Any], session: SessionProtocol | None = None) -> Tensor:
    """Have the server make a tensor. `options` are PyTorch's: dtype, device, requires_grad, generator, out.

    The dtype and device of an `out` are the result's. Raises RuntimeError for another dtype beside it.
    """
    out = options.pop("out", None)
    if out is not None:
        wanted = options.pop("requires_grad", False)
        filled = cast("Tensor", _into(op, out, create(op, args, like_output(options, out), session)))
        return filled.requires_grad_() if wanted else filled
    generator = options.pop("generator", None)
    memory_format = options.pop("memory_format", None)
    if memory_format is not None and (name := name_of(memory_format)) != PRESERVE:
        return _in_format(op, args, options, session, memory_format, name)
    options.pop("pin_memory", None)  # the server decides on the placement of its bytes
    layout = options.pop("layout", None)
    if layout is not None and layout is not wired("strided"):
        _refuse_layout(op, layout)
    if options.get("dtype") is not None:
        options["dtype"] = dtypes.as_dtype(options["dtype"])
    if options.get("device") is not None:
        options["device"] = device_name(options["device"])
    elif (default := default_device_name()) != "cpu" and not isinstance(args[0], Handle):
        options["device"] = default
    named = tuple((name, value) for name, value in options.items() if value is not None and value is not False)
    with session or current_session():
        if generator is not None:
            with generator.used():
                made: Tensor = _call(op, args, named)
        else:
            made = _call(op, args, named)
    return made


def _in_format(
    op: str, args: tuple[Any, ...], options: dict[str, Any], session: SessionProtocol | None, memory_format: Any,
    name: str,
) -> Tensor:  # fmt: skip
    """Make a tensor that lies in a memory format. Numbers are drawn in the order of its memory, as in PyTorch."""
    if isinstance(args[0], Handle):
        return create(op, (args[0].detach().contiguous(memory_format), *args[1:]), options, session)  # type: ignore[attr-defined]
    wanted = options.pop("requires_grad", False)
    made = create(op, args, options, session)
    strides_in(made.shape, name)
    with no_grad():
        made = made.contiguous(memory_format)
    return made.requires_grad_() if wanted else made


def like_output(options: dict[str, Any], out: Tensor) -> dict[str, Any]:
    """The options with an output's dtype and device. Raises RuntimeError for another dtype beside it."""
    if options.get("dtype") not in (None, out.dtype):
        raise refuse(f"dtype {options['dtype']} does not match dtype of out parameter ({out.dtype})")
    return {**options, "dtype": out.dtype, "device": out.device}


def _refuse_layout(op: str, layout: Any) -> NoReturn:
    if type(layout) is not type(wired("strided")):
        raise GradwireTypeError(f"{op}(): argument 'layout' must be torch.layout, not {type(layout).__name__}")
    raise NotImplementedError(f"{op}(layout={layout}) is not supported: call to_sparse() of a tensor")


def _floating(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the default dtype filled in if it differs from the server's default, float32."""
    default = dtypes.get_default_dtype()
    if options.get("out") is None and options.get("dtype") is None and default is not dtypes.float32:
        options["dtype"] = default
    return options


def _shape(size: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, ...]:
    given = size or ((options.pop("size"),) if "size" in options else ())
    return _sizes(given) if given else ()


def zeros(*size: Any, **options: Any) -> Tensor:
    """A tensor of zeros: zeros(2, 3), zeros((2, 3)); options dtype, device, requires_grad (torch.zeros)."""
    return create("zeros", (_shape(size, options),), _floating(options))


def ones(*size: Any, **options: Any) -> Tensor:
    """A tensor of ones (torch.ones)."""
    return create("ones", (_shape(size, options),), _floating(options))


def empty(*size: Any, **options: Any) -> Tensor:
    """A tensor of unspecified values (torch.empty). Filled with zeros, so it exposes no other session's data."""
    return create("empty", (_shape(size, options),), _floating(options))


def full(size: Any, fill_value: Any, **options: Any) -> Tensor:
    """A tensor of one value, whose kind gives the dtype (torch.full)."""
    if isinstance(fill_value, float):
        _floating(options)
    return create("full", (_sizes((size,)), fill_value), options)


def eye(n: int, m: int | None = None, **options: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere (torch.eye)."""
    return create("eye", (n,) if m is None else (n, m), _floating(options))


def arange(*bounds: Any, **options: Any) -> Tensor:
    """Numbers from start up to, not including, end: arange(end), arange(start, end, step) (torch.arange)."""
    start, end, step = _bounds(bounds, options)
    if any(isinstance(bound, float) for bound in (start, end, step)):
        _floating(options)
    return create("arange", (start, end, step), options)


def _bounds(bounds: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any, Any]:
    named = {name: options.pop(name) for name in ("start", "end", "step") if name in options}
    if len(bounds) == 1 and "end" not in named:
        named["end"] = bounds[0]
    else:
        named.update(zip(("start", "end", "step"), bounds, strict=False))
    if "end" not in named or len(bounds) > 3:
        raise GradwireTypeError("arange() takes (end), (start, end) or (start, end, step)")
    numbers = [named.get("start", 0), named["end"], named.get("step", 1)]
    start, end, step = [each.item() if isinstance(each, (Tensor, np.generic)) else each for each in numbers]
    return start, end, step


def _check_ends(name: str, start: Any, end: Any) -> None:
    given = [(what, one.ndim) for what, one in (("start", start), ("end", end)) if isinstance(one, Tensor)]
    if any(ndim for _, ndim in given):
        found = " and ".join(f"{what} with {ndim} dimension(s)" for what, ndim in given)
        raise refuse(f"{name} only supports 0-dimensional start and end tensors, but got {found}.")


def linspace(start: Any, end: Any, steps: int, **options: Any) -> Tensor:
    """`steps` numbers from start to end, both included (torch.linspace). Raises RuntimeError for vectors as ends."""
    _check_ends("linspace", start, end)
    if _are_complex(start, end):
        return _between_complex("linspace", start, end, steps, options)
    return create("linspace", (start, end, steps), _floating(options))


def _are_complex(*ends: Any) -> bool:
    return any(end.is_complex() if isinstance(end, Tensor) else isinstance(end, complex) for end in ends)


def _complex_of(name: str, options: dict[str, Any]) -> dtype:
    """The dtype of a result between complex ends, taken off the options: by default that of the default dtype."""
    given = options.pop("dtype", None)
    if given is None:
        return dtypes.complex128 if dtypes.get_default_dtype() is dtypes.float64 else dtypes.complex64
    found = dtypes.as_dtype(given)
    if not found.is_complex:
        raise refuse(
            f"torch.{name}(): inferred dtype of complex ends can't be safely cast to passed dtype {found.title}"
        )
    return found


def _between_complex(
    name: str, start: Any, end: Any, steps: int, options: dict[str, Any], base: float | None = None
) -> Tensor:
    """Numbers from a complex one to another: those of the real and of the imaginary parts. With a base its powers."""
    out, requires_grad = options.pop("out", None), options.pop("requires_grad", False)
    options = options if out is None else like_output(options, out)
    kind = _complex_of(name, options)
    first, last = (complex(one.item() if isinstance(one, Tensor) else one) for one in (start, end))
    part = dtypes.float64 if base is not None or kind is dtypes.complex128 else dtypes.float32
    parts = [
        create("linspace", (one, other, steps), {**options, "dtype": part})
        for one, other in ((first.real, last.real), (first.imag, last.imag))
    ]
    made: Tensor = _call("complex", (parts[0], parts[1]))
    if base is not None:
        made = _call("pow", (_call("full_like", (made, base)), made)).to(kind)
    return cast("Tensor", made.requires_grad_(requires_grad) if out is None else _into(name, out, made))


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> Tensor:
    """`steps` powers of a base, with exponents evenly spaced from start to end (torch.logspace).

    Raises RuntimeError for vectors as ends.
    """
    _check_ends("logspace", start, end)
    if _are_complex(start, end):
        return _between_complex("logspace", start, end, steps, options, base)
    return create("logspace", (start, end, steps, base), _floating(options))


def rand(*size: Any, **options: Any) -> Tensor:
    """Random numbers uniform in [0, 1) (torch.rand)."""
    return create("rand", (_shape(size, options),), _floating(options))


def randn(*size: Any, **options: Any) -> Tensor:
    """Random numbers of the standard normal distribution (torch.randn)."""
    return create("randn", (_shape(size, options),), _floating(options))


def randint(*args: Any, **options: Any) -> Tensor:
    """Random whole numbers: randint(high, size), randint(low, high, size) (torch.randint)."""
    named = {name: options.pop(name) for name in ("low", "high", "size") if name in options}
    names = ("low", "high", "size") if len(args) + len(named) == 3 else ("high", "size")
    free: list[Any] = [name for name in names if name not in named]
    named.update(zip(free, args, strict=False))
    if "high" not in named or "size" not in named:
        raise GradwireTypeError("randint() takes (high, size) or (low, high, size)")
    return create("randint", (named.get("low", 0), named["high"], _sizes((named["size"],))), options)


def randperm(n: int, **options: Any) -> Tensor:
    """The numbers from 0 to n - 1 in random order (torch.randperm)."""
    return create("randperm", (n,), options)


def zeros_like(input: Tensor, **options: Any) -> Tensor:
    """Zeros of a tensor's size, dtype and device (torch.zeros_like)."""
    return create("zeros_like", (input,), options)


def ones_like(input: Tensor, **options: Any) -> Tensor:
    """Ones of a tensor's size, dtype and device (torch.ones_like)."""
    return create("ones_like", (input,), options)


def empty_like(input: Tensor, **options: Any) -> Tensor:
    """A tensor of another's size, dtype and device, with unspecified values (torch.empty_like)."""
    return create("empty_like", (input,), options)


def full_like(input: Tensor, fill_value: Any, **options: Any) -> Tensor:
    """One value in a tensor's size, dtype and device (torch.full_like)."""
    return create("full_like", (input, fill_value), options)


def rand_like(input: Tensor, **options: Any) -> Tensor:
    """Uniform random numbers in [0, 1) of a tensor's size, dtype and device (torch.rand_like)."""
    return create("rand_like", (input,), options)


def randint_like(input: Tensor, *bounds: Any, **options: Any) -> Tensor:
    """Random whole numbers of a tensor's size, dtype and device (torch.randint_like).

    randint_like(input, high) gives 0 to high - 1, randint_like(input, low, high) low to high - 1. Raises RuntimeError
    for bounds beyond the dtype.
    """
    named: dict[str, Any] = {name: options.pop(name) for name in ("low", "high") if name in options}
    free: tuple[str, ...] = ("high",) if len(bounds) == 1 and "high" not in named else ("low", "high")
    if len(bounds) > len(free) or (bounds and "low" in named):
        raise GradwireTypeError("randint_like() takes (input, high) or (input, low, high)")
    named.update(zip(free, bounds, strict=False))
    if "high" not in named:
        raise GradwireTypeError("randint_like() takes (input, high) or (input, low, high)")
    return create("randint_like", (input, named.get("low", 0), named["high"]), options)


def randn_like(input: Tensor, **options: Any) -> Tensor:
    """Standard normal random numbers of a tensor's size, dtype and device (torch.randn_like)."""
    return create("randn_like", (input,), options)


def is_tensor(obj: object) -> bool:
    """Whether an object is a tensor (torch.is_tensor)."""
    return isinstance(obj, (Tensor, StoredValues))


def scalar_tensor(s: Any, **options: Any) -> Tensor:
    """A 0-d tensor of the default dtype (torch.scalar_tensor)."""
    return create("scalar_tensor", (s,), _floating(options))
