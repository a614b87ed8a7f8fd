"""Types for annotations of scripted functions (torch.jit.annotations)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035

from gradwire._tensor.tensor import Tensor

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple"]

Module = object
Future = object


class _BroadcastingList:
    """A list whose annotation says that one value stands for several."""

    def __getitem__(self, kind: Any) -> Any:
        return list[kind]


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = BroadcastingList4 = _BroadcastingList()


def is_tensor(annotation: Any) -> bool:
    """Whether an annotation is the class of tensors."""
    return isinstance(annotation, type) and issubclass(annotation, Tensor)
