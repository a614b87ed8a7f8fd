"""Specs: describes engine tensors for the wire."""

from collections.abc import Callable

from gradwire.v1 import types_pb2
from gradwire_engine import Tensor
from gradwire_engine.core.context import CURRENT
from gradwire_engine.graph.tensor import ViewOrigin, node_without_refresh, outdated
from gradwire_engine.op.strides import memory_of
from gradwire_server.common.payload import TO_WIRE

# Serialized descriptions of ordinary results, without ids: iterations of a loop after the first find theirs.
_MEMO: dict[tuple[int, tuple[int, ...], tuple[int, ...], str, str, int], bytes] = {}
_MAX_MEMO = 4096
_ORIGINS = {
    ViewOrigin.MULTIPLE: types_pb2.VIEW_ORIGIN_MULTIPLE,
    ViewOrigin.NO_GRAD: types_pb2.VIEW_ORIGIN_NO_GRAD,
    ViewOrigin.INFERENCE: types_pb2.VIEW_ORIGIN_INFERENCE,
    ViewOrigin.FUNCTION: types_pb2.VIEW_ORIGIN_FUNCTION,
}


def fill_spec(spec: types_pb2.TensorSpec, tensor: Tensor, tensor_id: int, data_dependent: bool = False) -> None:
    """Describe a tensor that the session knows by `tensor_id` (0 for none)."""
    array = tensor.array
    node = node_without_refresh(tensor)  # first, since it updates a view's flags
    plain = (
        tensor.view is None
        and not tensor.storage.inference
        and tensor.state is None
        and not tensor.storage.version
        and not data_dependent
        and not CURRENT.get().duals.active
    )
    if not plain or not array.flags.c_contiguous or (node is None and tensor.requires_grad):
        _fill(spec, tensor, data_dependent)
    else:
        key = (
            array.dtype.num,
            array.shape,
            array.strides,
            tensor.device,
            "" if node is None else node.name,
            tensor.index,
        )
        encoded = _MEMO.get(key)
        if encoded is None:
            _fill(spec, tensor, data_dependent)
            if len(_MEMO) < _MAX_MEMO:
                _MEMO[key] = spec.SerializeToString()
        else:
            spec.MergeFromString(encoded)
    spec.id = tensor_id


def tell_base(spec: types_pb2.TensorSpec, tensor: Tensor, id_of: Callable[[Tensor], int]) -> None:
    """Set the base's id in a view's description; 0 if the session has none for the base."""
    if tensor.view is not None:
        spec.base = id_of(tensor.view.base)


def tell_memory(spec: types_pb2.TensorSpec, tensor: Tensor, id_of: Callable[[Tensor], int]) -> None:
    """Set the base, and where the first element is in its memory."""
    tell_base(spec, tensor, id_of)
    spec.storage_offset = memory_of(tensor.array)[0]


def _fill(spec: types_pb2.TensorSpec, tensor: Tensor, data_dependent: bool) -> None:
    array, node = tensor.array, node_without_refresh(tensor)
    spec.dtype = TO_WIRE[array.dtype]  # type: ignore[assignment]
    if array.shape:
        spec.shape.extend(array.shape)
        # NumPy ignores strides of dimensions of size 1 when it tests for contiguity; PyTorch reports them.
        if array.size and array.strides != _dense_strides(array.shape, array.itemsize):
            size = array.itemsize
            spec.strides.extend([stride // size for stride in array.strides])
    spec.device = tensor.device
    spec.requires_grad = tensor.requires_grad
    spec.is_leaf = node is None
    if node is not None:
        spec.grad_fn = node.name
        spec.output_nr = tensor.index
        spec.retains_grad = tensor.retains_grad
    view = tensor.view
    if view is not None:
        spec.is_view = True
        if view.origin is not None:
            spec.view_origin = _ORIGINS[view.origin]
            spec.outdated = outdated(tensor, view)
    spec.version = tensor.storage.version
    spec.inference = tensor.storage.inference
    spec.data_dependent = data_dependent
    duals = CURRENT.get().duals
    for depth, tangent in duals.described(tensor) if duals.active else ():
        _fill(spec.tangents.add(depth=depth).tangent, tangent, False)


def _dense_strides(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Strides in bytes of a row-major array without gaps."""
    strides = []
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
