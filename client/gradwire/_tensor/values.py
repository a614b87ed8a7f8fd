"""Values: reads tensors as arrays, as Python numbers, or as printed text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire._base import dtypes
from gradwire._base.errors import refuse
from gradwire._base.modes import GRAD_ENABLED, no_grad
from gradwire._base.printing import PREFIX, PRINT_OPTIONS, edge_indices, format_html, format_tensor, needs_summary
from gradwire._proxy.dual_levels import DUAL_LEVELS
from gradwire._proxy.handle import Handle
from gradwire._tensor.batching import BATCHING, READS
from gradwire._tensor.call import _call
from gradwire._tensor.known_values.drawn import drawn_values
from gradwire._tensor.known_values.items import READ
from gradwire._tensor.known_values.known import Seen
from gradwire.v1 import commands_pb2, errors_pb2, service_pb2

Array = npt.NDArray[Any]
#: DLPack's device type for CPU memory.
CPU = 1


def read_array(source: Handle) -> Array:
    """Copy a tensor's values to a new array; bfloat16 becomes float32."""
    array = _read(source)
    return array if array.flags.writeable else np.array(array)


def _read(source: Handle) -> Array:
    """A tensor's values, which may be read-only; bfloat16 becomes float32."""
    session = source._session
    return array_of(session, session.wait(service_pb2.Command(read=commands_pb2.ReadRequest(tensor=source._id))).read)


def array_of(session: Any, answer: Any) -> Array:
    """The values of a session's answer to a read."""
    if answer.HasField("payload"):
        described: Any = answer.payload
        data = np.frombuffer(described.data, np.uint8)
    else:
        described = answer.transfer
        data = np.empty(described.total_bytes, np.uint8)
        session.download(described.transfer_id, data.data)
    dtype = dtypes.BY_CODE[described.dtype]
    if dtype.numpy is None:
        wide = np.left_shift(data.view(np.uint16), 16, dtype=np.uint32)
        return wide.view(np.float32).reshape(tuple(described.shape))
    return data.view(dtype.numpy).reshape(tuple(described.shape))


def read_item(source: Handle) -> Any:
    """The only element as a Python number. Raises RuntimeError if there is not exactly one."""
    for read in READS if BATCHING else ():
        found = read(source)
        if found is not NotImplemented:
            return found
    known = getattr(source, "_known", None)
    if known is not None:
        value = known.find(source)
        if value is not None:
            return value
    count = math.prod(source._spec.shape)
    if count != 1:
        raise refuse(f"a Tensor with {count} elements cannot be converted to Scalar", errors_pb2.REASON_RUNTIME)
    if known is None:  # else the value was asked for already, but does not hold any more
        source._session.root_reads.read(source._id)
    seen = Seen(source)
    array = _read_drawn(source) if known is not None and known.drawn else _read(source)
    seen.seen = value = array.item()
    if source._session.recorder is None and not source._spec.tangents:
        source._known = seen
    return value


def read_list(source: Handle) -> Any:
    """The values as nested lists of Python numbers."""
    if len(source._spec.shape) > 1 or BATCHING:
        return _read(source).tolist()
    values = _read_flat(source)
    return values if source._spec.shape else values[0]


def _read_flat(source: Handle) -> list[Any]:
    """The values in order."""
    known = drawn_values(source)
    if known is not None:
        return list(known)
    drawn = getattr(source, "_known", None)
    array = _read_drawn(source) if drawn is not None and drawn.drawn else _read(source)
    values: list[Any] = array.reshape(-1).tolist()
    return values


def _read_drawn(source: Handle) -> Array:
    """The values of a tensor that depends on drawn numbers, perhaps with the generator's state for the next ones."""
    session = source._session
    draws = session.draws.followed
    state = None if draws is None else draws.begin(session)
    array = _read(source)
    if state is not None:
        draws.copy(state())
    elif draws is not None:
        draws.settle(session)
    return array


READ.append(_read_flat)


def check_numpy(source: Handle) -> None:
    """Raise RuntimeError for a tensor that requires grad, TypeError for bfloat16, which NumPy lacks."""
    if source._spec.requires_grad and GRAD_ENABLED.get():
        raise refuse("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if source._spec.dtype.numpy is None:
        raise TypeError("Got unsupported ScalarType BFloat16")


def export(tensor: Any, max_version: Any, dl_device: Any, copy: bool | None) -> Any:
    """Capsule of Tensor.__dlpack__. Raises BufferError if the tensor cannot be exported."""
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if dl_device is not None and dl_device[0] != CPU:
        raise BufferError(f"tensors are exported to memory of the CPU, not to DLPack's device {dl_device}")
    if copy is False:
        raise BufferError("__dlpack__(copy=False): the tensor is on a server, so every export is a copy")
    if tensor.dtype.numpy is None:
        raise BufferError("bfloat16 has no form in NumPy, by which tensors are exported: cast it first")
    array: Any = read_array(tensor)
    try:
        return array.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy before 2.1 has no max_version
        return array.__dlpack__()


def _shown(source: Any) -> tuple[Array, bool]:
    """Values to print, and whether they are summarized. Of a large tensor only the edge items are fetched."""
    spec = source._spec
    if not needs_summary(math.prod(spec.shape)):
        return read_array(source), False
    corner = source
    with no_grad():
        for axis, size in enumerate(spec.shape):
            if edge_indices(size, PRINT_OPTIONS.edgeitems) is not None:
                edge = PRINT_OPTIONS.edgeitems
                first = _call("narrow", (corner, axis, 0, edge))
                last = _call("narrow", (corner, axis, size - edge, edge))
                corner = _call("cat", ((first, last), axis))
    return read_array(corner), True


def show(source: Any, is_parameter: bool = False, prefix: str | None = None, facts: Sequence[str] = ()) -> str:
    """Text in PyTorch's format. With `prefix`, the text begins with that, not "tensor(", and leaves out the dtype.

    `facts` are texts in place of size and dtype.
    """
    spec = source._spec
    values, summarized = _shown(source)
    return format_tensor(
        values,
        dtype=spec.dtype.name,
        shape=tuple(spec.shape),
        device=spec.device_name,
        requires_grad=spec.requires_grad,
        grad_fn="Invalid" if source._fresh().outdated else spec.grad_fn or None,
        is_parameter=is_parameter,
        default_dtype=dtypes.get_default_dtype().name if prefix is None else spec.dtype.name,
        summarized=summarized,
        prefix=prefix or PREFIX,
        facts=facts,
        tangent=_shown_tangent(source),
    )


def _shown_tangent(source: Any) -> str | None:
    """Text of the tangent at the innermost open level; None without one."""
    levels = DUAL_LEVELS.get()
    if not levels or all(depth != levels[-1].depth for depth, _ in source._spec.tangents):
        return None
    return show(_call("dual_tangent", (source, levels[-1].tokens[source._session])))


def show_wrapped(kind: str, depths: Sequence[int], text: str, also: str = "") -> str:
    """Text of a tensor inside of transforms: PyTorch's wrapper of this kind for each depth, the deepest outside.

    also: what is told after the depth.
    """
    for depth in sorted(depths):
        text = f"{kind}(lvl={depth}{also}, value=\n{textwrap.indent(text, '    ')}\n)"
    return text


def show_html(source: Any, is_parameter: bool = False) -> str:
    """HTML table for a notebook."""
    spec = source._spec
    values, summarized = _shown(source)
    return format_html(
        values,
        dtype=spec.dtype.name,
        shape=tuple(spec.shape),
        device=spec.device_name,
        requires_grad=spec.requires_grad,
        grad_fn="Invalid" if source._fresh().outdated else spec.grad_fn or None,
        summarized=summarized,
        is_parameter=is_parameter,
    )
