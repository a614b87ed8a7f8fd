"""Bounds: the least and the greatest of whole numbers that the program gave as values.

An index out of range is refused in the call itself, as in PyTorch. So an op's first call waits, unless the client knows
that all indices are in range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradwire._base.dtypes import dtype, int32, int64
from gradwire._tensor.known_values.known import Known

if TYPE_CHECKING:
    import numpy as np

    from gradwire._proxy.handle import Handle

# Most values whose bounds are found: that takes 30 µs.
_MOST = 1 << 16


class Bounds(Known):
    """The bounds of a tensor's values, until its memory is written."""

    __slots__ = ("_least", "_most")

    def __init__(self, tensor: Handle, least: int, most: int) -> None:
        super().__init__(tensor)
        self._least, self._most = least, most

    def fit(self, tensor: Handle, count: int) -> bool:
        """Whether all values of the tensor are indices from 0 on, below a count."""
        return self._least >= 0 and self._most < count and self.holds(tensor) and not tensor._session.others_may_write

    def value(self) -> Any:
        """None: only the bounds are known."""
        return None


def note_bounds(made: Handle, kind: dtype, values: np.ndarray[Any, Any]) -> None:
    """Note the bounds of the values that a tensor is made of, if they may be indices."""
    if (kind is int64 or kind is int32) and 0 < values.size <= _MOST:
        made._bounds = Bounds(made, int(values.min()), int(values.max()))


def are_indices(tensor: Handle, count: int) -> bool:
    """Whether the values of a tensor, or of a view's base, are known to be indices from 0 on, below a count."""
    view = tensor.__dict__.get("_view")
    source = tensor if view is None else view.base
    if view is not None and (source._storage is not tensor._storage or source._spec.dtype is not tensor._spec.dtype):
        return False
    bounds = getattr(source, "_bounds", None)
    return bounds is not None and bounds.fit(source, count)
