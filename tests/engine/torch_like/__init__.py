"""The engine with PyTorch's surface, as far as the scenarios of tests/scenarios need it: no server, no socket.

A thin helper of tests. It translates calls and holds no rule of autograd: those are the engine's. What PyTorch's
surface has and the engine does not (modules, gradcheck, modes as decorators) is not here: see Client in
tests/scenarios/kit.py.
"""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from gradwire_engine import REGISTRY
from gradwire_engine import tensor as _leaf
from gradwire_engine.core.context import CURRENT
from tests.engine.torch_like import autograd
from tests.engine.torch_like.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tests.engine.torch_like.tensors import DType, Tensor, call, wrap

nn = SimpleNamespace(functional=sys.modules[__name__])  # every op by its name; there are no modules
float32, float64 = DType("float32"), DType("float64")
complex64, complex128 = DType("complex64"), DType("complex128")
_DEFAULTS = {"f": np.float32, "c": np.complex64, "i": np.int64, "b": np.bool_}


def tensor(values: Any, dtype: DType | None = None, requires_grad: bool = False) -> Tensor:
    """A leaf of Python's numbers, in PyTorch's default dtypes."""
    array = np.array(values)
    array = array.astype(_DEFAULTS[array.dtype.kind] if dtype is None else dtype.numpy)
    made: Tensor = wrap(_leaf(array, requires_grad))
    return made


def ones(*size: Any, **options: Any) -> Any:
    """torch.ones."""
    return call("ones", _size(size), **options)


def zeros(*size: Any, **options: Any) -> Any:
    """torch.zeros."""
    return call("zeros", _size(size), **options)


def einsum(equation: str, *operands: Tensor) -> Any:
    """torch.einsum."""
    return call("einsum", equation, operands)


def broadcast_tensors(*tensors: Tensor) -> Any:
    """torch.broadcast_tensors."""
    return call("broadcast_tensors", tensors)


def manual_seed(seed: int) -> None:
    """torch.manual_seed."""
    CURRENT.get().generator.manual_seed(seed)


def _size(size: tuple[Any, ...]) -> list[int]:
    return list(size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size)


def __getattr__(name: str) -> Any:
    """Every op of the engine, by name."""
    if name not in REGISTRY:
        raise AttributeError(f"the engine has no op {name!r}")
    return lambda *args, **kwargs: call(name, *args, **kwargs)


__all__ = [
    "Tensor",
    "autograd",
    "broadcast_tensors",
    "complex64",
    "complex128",
    "einsum",
    "enable_grad",
    "float32",
    "float64",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "manual_seed",
    "nn",
    "no_grad",
    "ones",
    "set_grad_enabled",
    "tensor",
    "zeros",
]
