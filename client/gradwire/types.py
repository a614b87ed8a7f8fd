"""Names of types for annotations (torch.types)."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import TypeAlias

from gradwire._base.dtypes import Size, device, dtype
from gradwire._tensor.tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = "str | os.PathLike[str] | object"
PySymType: TypeAlias = int | float | bool
Storage: TypeAlias = object

_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge: TypeAlias = Tensor | Sequence[Tensor] | object
_bool: TypeAlias = builtins.bool
_device: TypeAlias = device
_dtype: TypeAlias = dtype
_float: TypeAlias = builtins.float
_int: TypeAlias = builtins.int
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_symsize: TypeAlias = Size | Sequence[int]
