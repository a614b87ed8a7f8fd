"""Sparse tensors in COO form: a tensor of indices and a tensor of values, on which ordinary ops compute.

The class is not a subclass of Tensor, though `isinstance` says so to programs. Functions that get one call its
`__torch_function__`, which finds them in a table (`_rules.py`) and refuses others by name. Gradients flow through the
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

from gradwire._base import dtypes
from gradwire._base.absent import GradwireAbsentError
from gradwire._base.dtypes import Size
from gradwire._base.errors import refuse
from gradwire._base.modes import is_grad_enabled, no_grad
from gradwire._base.refused import refusal
from gradwire._functions.create import as_tensor, zeros
from gradwire._functions.legacy import sparse_coo
from gradwire._functions.stored_values import GradientLayoutError, StoredValues, shared
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import show

#: Functions and methods for sparse tensors by PyTorch's name; `_rules.py` fills it.
RULES: dict[str, Any] = {}
_REASON = "sparse tensors have no such op here; call to_dense() first"


class SparseTensor(StoredValues):
    """A tensor in coordinate form (torch.sparse_coo_tensor). Elements at equal indices count as their sum."""

    is_sparse = True
    is_sparse_csr = False
    is_mps = is_xpu = is_ipu = is_xla = is_maia = is_mtia = is_vulkan = False
    layout = sparse_coo
    __hash__ = StoredValues.__hash__  # for `__eq__` is defined

    def __init__(self, indices: Tensor, values: Tensor, size: Sequence[int], coalesced: bool = False) -> None:
        """`indices`: (sparse_dim, nnz), int64. `values`: (nnz, *sizes of the dense dimensions). Nothing is checked."""
        self._i = indices
        self._v = values
        self.shape = Size(size)
        self._coalesced = coalesced or values.shape[0] < 2

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Apply the table's rule for a function. Raises NotImplementedError for a function without one."""
        name = func.__name__
        if name not in RULES:
            raise refusal(f"{name} of a sparse tensor", _REASON)
        return RULES[name](*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name in RULES:
            return lambda *args, **kwargs: RULES[name](self, *args, **kwargs)
        if hasattr(Tensor, name) and not name.startswith("__"):
            raise sparse_absent(name)
        raise AttributeError(f"'SparseTensor' object has no attribute '{name}'", name=name)

    def like(self, values: Tensor, coalesced: bool | None = None) -> SparseTensor:
        """The same indices with other values."""
        return SparseTensor(self._i, values, self.shape, self._coalesced if coalesced is None else coalesced)

    # Parts.

    def indices(self) -> Tensor:
        """(sparse_dim, nnz), int64, sorted. Raises RuntimeError before `coalesce()`."""
        self._check_coalesced("indices")
        return self._i

    def values(self) -> Tensor:
        """(nnz, *dense sizes), differentiable. Raises RuntimeError before `coalesce()`."""
        self._check_coalesced("values")
        return shared(self._v, view=True)

    def _check_coalesced(self, part: str) -> None:
        if not self._coalesced:
            raise refuse(f"Cannot get {part} on an uncoalesced tensor, please call .coalesce() first")

    def _indices(self) -> Tensor:
        return self._i

    def _values(self) -> Tensor:
        return self._v.detach()

    def is_coalesced(self) -> bool:
        """Whether the indices are known to be sorted and distinct."""
        return self._coalesced

    def sparse_dim(self) -> int:
        """Number of leading dimensions that have indices."""
        return self._i.shape[0]

    def dense_dim(self) -> int:
        """Number of trailing dimensions, which each value has."""
        return self._v.ndim - 1

    # Facts.

    def type(self, dtype: Any = None) -> Any:
        """Name of the type ("torch.sparse.FloatTensor"), or with `dtype` the tensor cast to it."""
        if dtype is None:
            return self._v.type().replace("torch.", "torch.sparse.").replace("sparse.cuda", "cuda.sparse")
        values = self._v.type(dtype)
        return self if values is self._v else self.like(values)

    # Gradients.

    def places(self) -> tuple[Tensor, ...]:
        """The indices alone."""
        return (self._i,)

    def maker(self) -> Callable[[Tensor], SparseTensor]:
        """The function that makes this tensor of its values."""
        return partial(SparseTensor, self._i, size=self.shape, coalesced=self._coalesced)

    def values_of(self, gradient: Any) -> Tensor:
        """A sparse gradient as one of the stored values. Raises GradientLayoutError if it stores other elements."""
        if not isinstance(gradient, SparseTensor):
            raise GradientLayoutError(f"grad is incorrect layout ({gradient.layout} is not {self.layout})")
        for name in ("sparse_dim", "dense_dim"):
            found, wanted = getattr(gradient, name)(), getattr(self, name)()
            if found != wanted:
                raise GradientLayoutError(f"grad is sparse tensor, but has incorrect {name} {found}, expected {wanted}")
        if tuple(gradient.shape) != tuple(self.shape):
            raise GradientLayoutError(f"grad has the sizes {list(gradient.shape)}, expected {list(self.shape)}")
        if gradient._i is self._i and gradient._coalesced:
            return gradient._v
        with no_grad():
            mine, place = self._distinct()
            its, _ = gradient._distinct()
            if mine.shape != its.shape or not ops.equal(mine, its):
                raise GradientLayoutError("grad is sparse tensor, but stores other elements; gradwire takes no others")
        return gradient.coalesce()._v.index_select(0, place)

    def become(self, other: SparseTensor) -> None:
        """Take another tensor's elements, in place."""
        self._i, self._v, self._coalesced = other._i, other._v, other._coalesced
        self.changes += 1

    def gradient(self, values: Tensor) -> SparseTensor:
        """A gradient of the stored values as one of this tensor."""
        if self._coalesced:
            return self.like(values)
        # Values at equal indices have equal gradients, that of the element.
        indices, place = self._distinct()
        start = zeros(indices.shape[1], *self._v.shape[1:], dtype=self.dtype, device=self.device)
        return SparseTensor(indices, start.index_copy(0, place, values), self.shape, True)

    # Forms.

    def flat_indices(self) -> Tensor:
        """(nnz,): row-major numbers of the indices in the sparse dimensions."""
        if not self.sparse_dim():
            return zeros(self._nnz(), dtype=dtypes.int64, device=self.device)
        flat = self._i[0]
        for dim in range(1, self.sparse_dim()):
            flat = flat * self.shape[dim] + self._i[dim]
        return flat

    def coalesce(self) -> SparseTensor:
        """Sorted by index, with equal indices summed. Waits for the server; itself if it is coalesced."""
        if self._coalesced:
            return self
        indices, place = self._distinct()
        return SparseTensor(indices, summed(self._v, place, indices.shape[1]), self.shape, True)

    def _distinct(self) -> tuple[Tensor, Tensor]:
        """The sorted distinct indices, (sparse_dim, distinct), and the place of each stored element among them."""
        with no_grad():
            found, place = ops.unique(self.flat_indices(), return_inverse=True)
            rows = []
            for size in reversed(self.shape[: self.sparse_dim()]):
                rows.append(found % size)
                found = found // size
            return ops.stack(rows[::-1]) if rows else self._i[:, : found.shape[0]], place

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements as an ordinary tensor, differentiable; with `dtype` cast."""
        if masked_grad is False and self.requires_grad:
            check_masked(self.coalesce()._nnz() == math.prod(self.shape[: self.sparse_dim()]))
        sizes = self.shape[: self.sparse_dim()]
        made = summed(self._v, self.flat_indices(), math.prod(sizes)).reshape(self.shape)
        return made if dtype is None else made.to(dtype)

    def numpy(self, *, force: bool = False) -> Any:
        """Raises TypeError: NumPy has no sparse arrays."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    __array__ = numpy

    def __bool__(self) -> bool:
        if self.numel() == 1:
            return bool(self.to_dense())
        raise refuse("Boolean value of Tensor with more than one value is ambiguous")

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        made: Any = self
        for place, each in reversed(list(enumerate(keys))):
            if isinstance(each, Integral) and not isinstance(each, bool):
                made = RULES["select"](made, place, int(each))
            elif each != slice(None):
                raise refusal("a sparse tensor's index", "only integers and ':' select from it")
        return made

    def __repr__(self) -> str:
        lines = []
        for name, part in (("tensor(indices=tensor(", self._i), ("       values=tensor(", self._v.detach())):
            lines.append(show(part, prefix=name) if part.numel() else f"{name}[], size={tuple(part.shape)})")
        return ",\n".join(lines) + ",\n       " + ", ".join(self._facts()) + ")"

    def __eq__(self, other: object) -> Any:
        raise sparse_absent("eq")

    def __neg__(self) -> Any:
        return RULES["neg"](self)

    def __abs__(self) -> Any:
        return RULES["abs"](self)

    def __add__(self, other: Any) -> Any:
        return RULES["add"](self, other)

    def __iadd__(self, other: Any) -> Any:
        return RULES["add" if _is_recorded(self, other) else "add_"](self, other)

    def __isub__(self, other: Any) -> Any:
        return RULES["sub" if _is_recorded(self, other) else "sub_"](self, other)

    def __imul__(self, other: Any) -> Any:
        return RULES["mul" if _is_recorded(self, other) else "mul_"](self, other)

    def __itruediv__(self, other: Any) -> Any:
        return RULES["div" if _is_recorded(self, other) else "div_"](self, other)

    def __radd__(self, other: Any) -> Any:
        return RULES["add"](other, self)

    def __sub__(self, other: Any) -> Any:
        return RULES["sub"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return RULES["sub"](other, self)

    def __mul__(self, other: Any) -> Any:
        return RULES["mul"](self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return RULES["div"](self, other)

    def __pow__(self, exponent: Any) -> Any:
        return RULES["pow"](self, exponent)

    def __matmul__(self, other: Any) -> Any:
        return RULES["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return RULES["matmul"](other, self)


def _is_recorded(*operands: Any) -> bool:
    """Whether a result has a history. Then operators as += make a new tensor, as no history is changed in place."""
    return is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in operands)


def sparse_absent(name: str, reason: str = _REASON) -> GradwireAbsentError:
    """The refusal of a tensor's method, which `hasattr` answers by False."""
    error = GradwireAbsentError(f"gradwire does not support torch.{name} of a sparse tensor: {reason}")
    error.reason, error.code = "NOT_SUPPORTED", 12
    return error


def check_masked(is_full: bool) -> None:
    """Refuse gradients of elements that are not stored: gradients flow through the values."""
    if not is_full:
        raise refusal("to_dense(masked_grad=False) of a sparse tensor", "only stored elements have gradients")


def summed(values: Tensor, place: Tensor, count: int) -> Tensor:
    """(count, *dense): the sums of the values that share a place."""
    if values.dtype is dtypes.bool_:
        whole: Tensor = summed(values.to(dtypes.int64), place, count) != 0
        return whole
    start = zeros(count, *values.shape[1:], dtype=values.dtype, device=values.device)
    made: Tensor = start.index_add(0, place, values)
    return made


def sparse_coo_tensor(
    indices: Any,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor of `indices` (sparse_dim, nnz) and `values` (nnz, *dense sizes), or of sizes alone.

    Elements at equal indices count as their sum. Without `size`, the sizes are the largest indices plus 1, which are
    read from the server. Raises RuntimeError for parts that do not fit; `check_invariants` checks indices, too.
    """
    if values is None:
        size = tuple(indices if size is None else size)
        indices, values = zeros(len(size), 0, dtype=dtypes.int64), zeros(0, dtype=dtype)
    values = as_tensor(values, dtype=dtype, device=device)
    indices = _as_indices(indices, values.device)
    if indices.ndim != 2:
        raise refuse(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if values.ndim < 1 or indices.shape[1] != values.shape[0]:
        raise refuse(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{indices.shape[1]}, nnz from values: {values.shape[0] if values.ndim else 1}"
        )
    dense = values.ndim - 1
    if size is None:
        size = _inferred_size(indices, values)
    if len(size) != indices.shape[0] + dense:
        raise refuse(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, "
            f"sparse_dim = {indices.shape[0]}, dense_dim = {dense}"
        )
    if tuple(size[len(size) - dense :]) != tuple(values.shape[1:]):
        expected = [values.shape[0], *size[len(size) - dense :]]
        raise refuse(f"values has incorrect size, expected {expected}, got {list(values.shape)}")
    if check_invariants and indices.numel():
        _check_range(indices, size)
    values = values.detach().requires_grad_() if requires_grad else shared(values)
    return SparseTensor(indices, values, size, bool(is_coalesced))


def _inferred_size(indices: Tensor, values: Tensor) -> list[int]:
    if not indices.numel():
        return [0] * indices.shape[0] + list(values.shape[1:])
    _check_range(indices, None)
    return [*(each + 1 for each in indices.amax(1).tolist()), *values.shape[1:]]


def _as_indices(indices: Any, device: Any) -> Tensor:
    made = as_tensor(indices, device=device)
    return made if made.dtype is dtypes.int64 else made.to(dtypes.int64)


def _check_range(indices: Tensor, size: Sequence[int] | None) -> None:
    """Raise RuntimeError for a negative index, and for one that is too large for a size."""
    least, most = indices.amin(1).tolist(), indices.amax(1).tolist()
    for dim, (low, high) in enumerate(zip(least, most, strict=True)):
        if low < 0:
            raise refuse(f"found negative index {low} for dim {dim}")
        if size is not None and high >= size[dim]:
            raise refuse(
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but found index {high}"
            )


def to_sparse(dense: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The nonzero elements of a tensor, coalesced and differentiable. Waits for the server.

    With `sparse_dim`, only the first dimensions have indices. Raises RuntimeError for none, and for more than exist.
    """
    count = dense.ndim if sparse_dim is None else sparse_dim
    if not min(dense.ndim, 1) <= count <= dense.ndim:
        raise refuse(f"dense_to_sparse: sparse_dim argument must be in [1,{dense.ndim}] range, but {count} is given")
    if not dense.ndim:
        stored = int(bool(dense != 0))
        return SparseTensor(zeros(0, stored, dtype=dtypes.int64), dense.reshape(1)[:stored], (), True)
    with no_grad():
        full = dense != 0
        if count < dense.ndim:
            full = full.flatten(count).any(-1)
        indices = full.nonzero().t().contiguous()
    return SparseTensor(indices, dense[tuple(indices)], dense.shape, True)
