"""Object collectives: exchange Python values between ranks (torch.distributed.all_gather_object and its relatives).

Values travel as JSON with the types that it lacks. Nothing is pickled, so no rank runs code that another one sent.
"""

from __future__ import annotations

import base64
import json
from collections.abc import MutableSequence, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import GradwireTypeError, GradwireValueError
from gradwire._functions.create import empty, from_numpy, tensor, zeros
from gradwire._tensor.tensor import Tensor
from gradwire.distributed._collectives import all_gather_into_tensor, broadcast, recv, send
from gradwire.distributed._group import group_of

_TYPE = "type"


def _encoded(value: Any) -> Any:
    """A value as JSON: containers and bytes are objects that name their type. Raises TypeError."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_encoded(each) for each in value]
    if kind in (tuple, set, frozenset):
        return {_TYPE: kind.__name__, "items": [_encoded(each) for each in value]}
    if isinstance(value, dict):
        return {_TYPE: "dict", "items": [[_encoded(key), _encoded(each)] for key, each in value.items()]}
    if kind in (bytes, bytearray):
        return {_TYPE: kind.__name__, "data": base64.b64encode(value).decode()}
    if kind is complex:
        return {_TYPE: "complex", "parts": [value.real, value.imag]}
    if isinstance(value, Tensor):
        if value.dtype is dtypes.bfloat16:  # NumPy has no such dtype
            return {**_encoded(value.detach().contiguous().view(dtypes.int16).numpy()), _TYPE: "bfloat16"}
        return {**_encoded(np.asarray(value.detach().numpy())), _TYPE: "tensor"}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {_TYPE: "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, np.generic):
        return _encoded(value.item())
    raise GradwireTypeError(
        f"an object of class {kind.__name__} cannot be sent to other ranks: nothing is pickled here. Send numbers, "
        "strings, bytes, arrays, tensors, and lists, tuples, sets and dicts of them"
    )


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value[_TYPE]
    if kind == "dict":
        return {_decoded(key): _decoded(each) for key, each in value["items"]}
    if kind in ("tuple", "set", "frozenset"):
        made = [_decoded(each) for each in value["items"]]
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](made)
    if kind == "complex":
        return complex(*value["parts"])
    data = base64.b64decode(value["data"])
    if kind in ("array", "tensor", "bfloat16"):
        array = np.frombuffer(data, value["dtype"]).reshape(value["shape"]).copy()
        if kind == "array":
            return array
        return from_numpy(array) if kind == "tensor" else from_numpy(array).view(dtypes.bfloat16)
    return bytearray(data) if kind == "bytearray" else data


def _packed(value: Any) -> Tensor:
    data = json.dumps(_encoded(value)).encode()
    made: Tensor = from_numpy(np.frombuffer(data, np.uint8).copy())
    return made


def _unpacked(values: Any) -> Any:
    return _decoded(json.loads(values.tobytes()))


def all_gather_object(object_list: MutableSequence[Any], obj: Any, group: Any = None) -> None:
    """Put the ranks' values into `object_list`, in order."""
    found = group_of(group)
    if found is None:
        return
    if len(object_list) != found.size():
        raise GradwireValueError(f"the list has {len(object_list)} places, but the group has {found.size()} ranks")
    packed = _packed(obj)
    sizes = zeros(found.size(), dtype=dtypes.int64)
    all_gather_into_tensor(sizes, tensor([packed.numel()], dtype=dtypes.int64), found)
    counts = sizes.tolist()
    padded = zeros(max(counts), dtype=dtypes.uint8)
    padded[: packed.numel()] = packed
    gathered = empty((found.size(), max(counts)), dtype=dtypes.uint8)
    all_gather_into_tensor(gathered, padded, found)
    values = gathered.numpy()
    for rank, count in enumerate(counts):
        object_list[rank] = _unpacked(values[rank, :count])


def gather_object(
    obj: Any,
    object_gather_list: MutableSequence[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Put the ranks' values into rank `dst`'s list."""
    found = group_of(group)
    if found is None:
        return
    target = found.ranks[group_dst] if group_dst is not None else dst or 0
    held: list[Any] = [None] * found.size()
    all_gather_object(held, obj, found)
    if found.ranks[found.rank()] == target:
        if object_gather_list is None:
            raise GradwireValueError("Argument ``object_gather_list`` must be specified on destination rank.")
        object_gather_list[:] = held


def broadcast_object_list(
    object_list: MutableSequence[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Replace the list's values by those of rank `src`."""
    found = group_of(group)
    if found is None:
        return
    source = found.ranks[group_src] if group_src is not None else src or 0
    packed = _packed(list(object_list)) if found.ranks[found.rank()] == source else None
    size = tensor([0 if packed is None else packed.numel()], dtype=dtypes.int64)
    broadcast(size, source, found)
    data = empty(int(size.item()), dtype=dtypes.uint8) if packed is None else packed
    broadcast(data, source, found)
    if packed is None:
        values = _unpacked(data.numpy())
        if len(values) != len(object_list):
            raise GradwireValueError(f"rank {source} sent {len(values)} values, but the list has {len(object_list)}")
        object_list[:] = values


def scatter_object_list(
    scatter_object_output_list: MutableSequence[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Put this rank's value of rank `src`'s list into the output list's first place."""
    found = group_of(group)
    if found is None:
        return
    if not scatter_object_output_list:
        raise GradwireValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    source = found.ranks[group_src] if group_src is not None else src or 0
    is_source = found.ranks[found.rank()] == source
    if is_source and len(scatter_object_input_list or ()) != found.size():
        raise GradwireValueError("the list of the source rank needs a value for each rank")
    held: list[Any] = list(scatter_object_input_list or ()) if is_source else [None] * found.size()
    broadcast_object_list(held, source, found)
    scatter_object_output_list[0] = held[found.rank()]


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send values to a rank."""
    packed = _packed(list(object_list))
    send(tensor([packed.numel()], dtype=dtypes.int64), dst, group, group_dst=group_dst)
    send(packed, dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: MutableSequence[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive values; return the sender."""
    size = zeros(1, dtype=dtypes.int64)
    sender = recv(size, src, group, group_src=group_src)
    data = empty(int(size.item()), dtype=dtypes.uint8)
    recv(data, sender, group)
    values = _unpacked(data.numpy())
    object_list[:] = values
    return sender
