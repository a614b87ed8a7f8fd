"""Samples to a batch: tensors are stacked, numbers and arrays become tensors, structures keep their form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradwire._base import dtypes
from gradwire._functions.create import as_tensor, tensor
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of samples: tensors and arrays stacked, floats as float64, ints as int64, strings as they are.

    Dicts, tuples, named tuples and lists are collated part by part. Raises TypeError for a sample of another type,
    RuntimeError for sequences of different lengths or tensors of different shapes.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return ops.stack(list(batch))
    if isinstance(first, (np.ndarray, np.generic)):
        return _of_arrays(batch)
    if isinstance(first, float):
        return tensor(list(batch), dtype=dtypes.float64)
    if isinstance(first, int):
        return tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        parts = {key: default_collate([each[key] for each in batch]) for key in first}
        return parts if type(first) is dict else _like(first, parts)
    if isinstance(first, Sequence):
        if any(len(each) != len(first) for each in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*columns)
        return columns
    raise TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {type(first).__name__}"
    )


def _of_arrays(batch: Sequence[Any]) -> Tensor:
    """Arrays travel as one."""
    if np.asarray(batch[0]).dtype.kind not in "biufc":
        raise TypeError(
            "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            f"found {np.asarray(batch[0]).dtype}"
        )
    return as_tensor(np.stack([np.asarray(each) for each in batch]))


def _like(first: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    try:
        return type(first)(parts)  # type: ignore[call-arg]
    except TypeError:  # a mapping with another constructor
        return parts


def default_convert(data: Any) -> Any:
    """A sample as it is, but for arrays, which become tensors."""
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind in "biufc":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return {key: default_convert(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, (tuple, list)):
        return [default_convert(value) for value in data]
    return data
