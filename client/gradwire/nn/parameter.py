"""The module of the name that PyTorch programs import Parameter from."""

from gradwire._base.wiring import names_of_paths
from gradwire.nn._parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
    UninitializedTensorMixin,
    is_lazy,
)

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]

__getattr__ = names_of_paths(__name__)
