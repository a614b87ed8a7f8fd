"""Composed: PyTorch's methods made of a few other ops, and flags that are never set here."""

from __future__ import annotations

from typing import Any, TypeVar

from gradwire._base.errors import refuse
from gradwire._base.wiring import wired
from gradwire._proxy.handle import Handle

_T = TypeVar("_T", bound="Composed")


class Composed(Handle):
    """Methods of Tensor made of a few other ops, and flags that are the same for all tensors."""

    __slots__ = ()

    is_sparse = False
    is_quantized = False
    is_mps = False
    is_meta = False
    is_nested = False

    def fill_diagonal_(self: _T, fill_value: float, wrap: bool = False) -> _T:
        """Write a number on the main diagonal. With `wrap`, a tall matrix gets a diagonal in each square block.

        Raises RuntimeError for fewer than 2 dimensions, or for more than 2 dimensions of unequal size.
        """
        target: Any = self
        sizes = tuple(target.shape)
        if len(sizes) < 2:
            raise refuse("dimensions must larger than 1")
        if len(sizes) > 2 and len(set(sizes)) > 1:
            raise refuse("all dimensions of input must be of equal length")
        if len(sizes) == 2:
            rows, columns = sizes
            # Each wrapped diagonal starts columns + 1 rows below the previous one, as in PyTorch.
            for start in range(0, rows, columns + 1) if wrap and columns else [0]:
                target[start:].diagonal().fill_(fill_value)
        else:
            line = target.as_strided((sizes[0],), (sum(target.stride()),), 0) if target.is_contiguous() else None
            if line is None:
                for place in range(sizes[0]):
                    target[(place,) * len(sizes)].fill_(fill_value)
            else:
                line.fill_(fill_value)
        return self

    def matrix_power(self, n: int) -> Any:
        """See `gradwire.matrix_power`."""
        return wired("matrix_power")(self, n)

    def conj_physical(self) -> Any:
        """See `gradwire.conj_physical`."""
        return wired("conj_physical")(self)

    def pinverse(self, rcond: float = 1e-15) -> Any:
        """See `gradwire.pinverse`."""
        return wired("pinverse")(self, rcond)

    def svd(self, some: bool = True, compute_uv: bool = True) -> Any:
        """See `gradwire.svd`."""
        return wired("svd")(self, some, compute_uv)

    def qr(self, some: bool = True) -> Any:
        """See `gradwire.qr`."""
        return wired("qr")(self, some)

    def pin_memory(self: _T, device: Any = None) -> _T:
        """This tensor; the server decides on the placement of its bytes."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False."""
        return False
