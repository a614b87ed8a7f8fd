"""Descriptions of engine tensors for the wire."""

from gradwire.v1 import types_pb2
from gradwire_engine import Tensor
from gradwire_server.payload import TO_WIRE


def fill_spec(spec: types_pb2.TensorSpec, tensor: Tensor, tensor_id: int, data_dependent: bool = False) -> None:
    """Describe a tensor that the session knows by `tensor_id` (0 for none)."""
    array = tensor.array
    node = tensor.grad_fn  # asked first: it brings a view's flags up to date
    spec.id = tensor_id
    spec.dtype = TO_WIRE[array.dtype]  # type: ignore[assignment]
    if array.shape:
        spec.shape.extend(array.shape)
        if not array.flags.c_contiguous:
            size = array.dtype.itemsize
            spec.strides.extend(stride // size for stride in array.strides)
    spec.device = tensor.device
    if tensor.requires_grad:
        spec.requires_grad = True
    if node is None:
        spec.is_leaf = True
    else:
        spec.grad_fn = node.name
        if tensor.retains_grad:
            spec.retains_grad = True
    if tensor.view is not None:
        spec.is_view = True
    version = tensor.storage.version
    if version:
        spec.version = version
    if data_dependent:
        spec.data_dependent = True
