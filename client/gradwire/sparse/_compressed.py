"""Sparse matrices in compressed form (CSR, CSC, BSR, BSC): as `_coo.py`, a few parts on which ordinary ops compute.

Rows (CSR, BSR) or columns (CSC, BSC) are compressed to the place where each begins; BSR and BSC store dense blocks.
Products and conversions go by the COO form. Batches are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from gradwire._base import dtypes
from gradwire._base.dtypes import Size
from gradwire._base.errors import refuse
from gradwire._base.modes import no_grad
from gradwire._base.refused import refusal
from gradwire._functions.create import as_tensor
from gradwire._functions.legacy import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from gradwire._functions.stored_values import GradientLayoutError, StoredValues, shared
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import show
from gradwire.sparse import _rules
from gradwire.sparse._coo import RULES as COO_RULES
from gradwire.sparse._coo import SparseTensor, check_masked, sparse_absent, to_sparse

_REASON = "compressed sparse tensors have no such op here; call to_sparse_coo() or to_dense() first"
_NAMES = {
    sparse_csr: ("crow_indices", "col_indices"),
    sparse_bsr: ("crow_indices", "col_indices"),
    sparse_csc: ("ccol_indices", "row_indices"),
    sparse_bsc: ("ccol_indices", "row_indices"),
}
_BLOCKED = (sparse_bsr, sparse_bsc)
#: Functions and methods for compressed tensors by PyTorch's name.
RULES: dict[str, Any] = {}
_WIDTH = 80

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CompressedTensor(StoredValues):
    """A sparse matrix of which rows or columns are compressed (torch.sparse_csr_tensor and the like)."""

    is_sparse = False

    def __init__(self, begins: Tensor, places: Tensor, values: Tensor, size: Sequence[int], layout: Any) -> None:
        """`begins`: where each row or column begins, and the end. `places`: (nnz,). `values`: (nnz, *block, *dense)."""
        self._begins, self._places, self._v = begins, places, values
        self.shape, self.layout = Size(size), layout

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Apply the rule for a function. Raises NotImplementedError for a function without one."""
        if func.__name__ not in RULES:
            raise refusal(f"{func.__name__} of a sparse tensor", _REASON)
        return RULES[func.__name__](*args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Any:
        if name in RULES:
            return lambda *args, **kwargs: RULES[name](self, *args, **kwargs)
        for layout, parts in _NAMES.items():
            if name in parts and layout is self.layout:
                return lambda: (self._begins, self._places)[parts.index(name)]
        if any(name in parts for parts in _NAMES.values()):
            raise refuse(f"{name} expected sparse row or column compressed tensor layout but got {self.layout}")
        if hasattr(Tensor, name) and not name.startswith("__"):
            raise sparse_absent(name, _REASON)
        raise AttributeError(f"'CompressedTensor' object has no attribute '{name}'", name=name)

    def like(self, values: Tensor) -> CompressedTensor:
        """The same places with other values."""
        return CompressedTensor(self._begins, self._places, values, self.shape, self.layout)

    def places(self) -> tuple[Tensor, ...]:
        """Where rows or columns begin, and the other indices."""
        return self._begins, self._places

    def maker(self) -> Callable[[Tensor], CompressedTensor]:
        """The function that makes this tensor of its values."""
        return partial(CompressedTensor, self._begins, self._places, size=self.shape, layout=self.layout)

    def values_of(self, gradient: Any) -> Tensor:
        """A gradient of the same layout as one of the stored values. Raises GradientLayoutError for other elements."""
        if not isinstance(gradient, CompressedTensor) or gradient.layout is not self.layout:
            raise GradientLayoutError(f"grad is incorrect layout ({gradient.layout} is not {self.layout})")
        if tuple(gradient.shape) != tuple(self.shape) or gradient._v.shape != self._v.shape:
            raise GradientLayoutError(f"grad is {self.layout} tensor, but stores other elements")
        with no_grad():
            pairs = ((self._begins, gradient._begins), (self._places, gradient._places))
            if not all(one is other or ops.equal(one, other) for one, other in pairs):
                raise GradientLayoutError(f"grad is {self.layout} tensor, but stores other elements")
        return gradient._v

    @property
    def _by_rows(self) -> bool:
        return self.layout in (sparse_csr, sparse_bsr)

    @property
    def _blocked(self) -> bool:
        return self.layout in _BLOCKED

    def values(self) -> Tensor:
        """(nnz, *block, *dense sizes), differentiable."""
        return shared(self._v, view=True)

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is CSR."""
        return self.layout is sparse_csr

    def sparse_dim(self) -> int:
        """Number of dimensions that have indices: 2."""
        return 2

    def dense_dim(self) -> int:
        """Number of trailing dimensions, which each value has."""
        return len(self.shape) - 2

    def coo(self) -> SparseTensor:
        """The COO form, differentiable."""
        with no_grad():
            counts = self._begins.diff()
            groups = ops.repeat_interleave(ops.arange(counts.shape[0], device=self.device), counts)
            rows, columns = (groups, self._places) if self._by_rows else (self._places, groups)
            rows, columns = rows.to(dtypes.int64), columns.to(dtypes.int64)
            dense = self._v.shape[1:]
            if self._blocked:
                high, wide = dense[:2]
                dense, each = dense[2:], self._v.shape[:3]
                inner = ops.arange(high, device=self.device).view(1, -1, 1)
                across = ops.arange(wide, device=self.device).view(1, 1, -1)
                rows = (rows.view(-1, 1, 1) * high + inner).expand(each).reshape(-1)
                columns = (columns.view(-1, 1, 1) * wide + across).expand(each).reshape(-1)
            indices = ops.stack((rows, columns))
        return SparseTensor(indices, self._v.reshape(-1, *dense), self.shape, self.layout is sparse_csr)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements as an ordinary tensor, differentiable; with `dtype` cast."""
        if masked_grad is False and self.requires_grad:
            check_masked(self._v.numel() == self.numel())
        return self.coo().to_dense(dtype)

    def numpy(self, *, force: bool = False) -> Any:
        """Raises TypeError: NumPy has no sparse arrays."""
        raise TypeError(f"can't convert {self.layout} layout tensor to numpy. Use Tensor.to_dense() first.")

    __array__ = numpy

    def __repr__(self) -> str:
        lines: list[str] = []
        for name, part in zip((*_NAMES[self.layout], "values"), (self._begins, self._places, self._v), strict=True):
            start = f"{'       ' if lines else 'tensor('}{name}=tensor("
            part = part.detach()
            lines.append(show(part, prefix=start) if part.numel() else f"{start}[], size={tuple(part.shape)})")
        text, used = ",\n".join(lines), len(lines[-1].rpartition("\n")[2])
        for fact in self._facts():
            fits = used + 2 + len(fact) < _WIDTH - 1
            text += f", {fact}" if fits else f",\n       {fact}"
            used = used + 2 + len(fact) if fits else 7 + len(fact)
        return text + ")"

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return product(other, self)

    def __neg__(self) -> Any:
        return self.like(-self._v)

    def __add__(self, other: Any) -> Any:
        return RULES["add"](self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return RULES["sub"](self, other)

    def __rsub__(self, other: Any) -> Any:
        return RULES["sub"](other, self)

    def __getitem__(self, key: Any) -> Any:
        return self.coo()[key]

    def __mul__(self, other: Any) -> Any:
        return RULES["mul"](self, other)

    __rmul__ = __mul__


# Forms.


def compressed(given: Any, layout: Any, blocksize: Any = None, dense_dim: int | None = None) -> Any:
    """A dense or sparse matrix in a compressed layout, or in COO form, differentiable. Waits for the server.

    `dense_dim`: how many trailing dimensions each value of a dense tensor has.
    """
    blocksize = (blocksize, blocksize) if isinstance(blocksize, int) else blocksize
    if layout not in _NAMES:
        return given.coo() if isinstance(given, CompressedTensor) else given.to_sparse()
    if given.ndim < 2:
        raise refuse(f"to_sparse: expected at least 2 dimensions for layout {layout}, but got {given.ndim}")
    if given.ndim - (given.dense_dim() if not isinstance(given, Tensor) else dense_dim or 0) != 2:
        raise refusal("a batch of compressed sparse tensors", "two dimensions have indices")
    if isinstance(given, CompressedTensor) and given.layout is layout:
        if layout in _BLOCKED and blocksize is not None and tuple(blocksize) != tuple(given._v.shape[1:3]):
            raise refusal("a conversion of sparse blocks to other sizes", "call to_dense() first")
        return given
    if layout in _BLOCKED:
        return _blocks(given if isinstance(given, Tensor) else given.to_dense(), layout, blocksize)
    given = given.coo() if isinstance(given, CompressedTensor) else given
    coo = (to_sparse(given, 2) if isinstance(given, Tensor) else given).coalesce()
    rows, columns = coo._i.unbind(0)
    if layout is sparse_csr:
        return CompressedTensor(_begins(rows, coo.shape[0]), columns, shared(coo._v), coo.shape, layout)
    order = columns.argsort(stable=True)
    return CompressedTensor(_begins(columns, coo.shape[1]), rows[order], coo._v[order], coo.shape, layout)


def _begins(groups: Tensor, count: int) -> Tensor:
    """Where each group begins among sorted elements, and the end."""
    return ops.pad(ops.bincount(groups, minlength=count).cumsum(0), (1, 0))


def _blocks(dense: Tensor, layout: Any, blocksize: Sequence[int] | None) -> CompressedTensor:
    if blocksize is None or len(blocksize) != 2:
        raise refuse(f"conversion to {layout} requires a blocksize of two sizes, but got {blocksize}")
    if any(each < 1 or size % each for size, each in zip(dense.shape[:2], blocksize, strict=True)):
        raise refuse(
            f"tensor sparse size ({dense.shape[0]},{dense.shape[1]}) must be divisible by given blocksize "
            f"({blocksize[0]},{blocksize[1]})"
        )
    high, wide = blocksize
    blocks = dense.reshape(dense.shape[0] // high, high, dense.shape[1] // wide, wide, *dense.shape[2:]).transpose(1, 2)
    with no_grad():
        full = (blocks != 0).flatten(2).any(-1)
        groups, places = (full if layout is sparse_bsr else full.t()).nonzero().unbind(1)
        begins = _begins(groups, full.shape[0] if layout is sparse_bsr else full.shape[1])
    rows, columns = (groups, places) if layout is sparse_bsr else (places, groups)
    return CompressedTensor(begins, places, blocks[rows, columns], dense.shape, layout)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> CompressedTensor:
    """A sparse matrix of its parts, in the layout CSR, CSC, BSR or BSC (torch.sparse_compressed_tensor).

    Without `size`, the largest index gives the size along the dimension that is not compressed; it is read.
    Raises RuntimeError for parts that do not fit; `check_invariants` checks the indices' number, too.
    """
    if layout not in _NAMES:
        raise refuse(f"sparse_compressed_tensor: expected sparse compressed layout but got layout {layout}")
    values = as_tensor(values, dtype=dtype, device=device)
    begins, places = (as_tensor(each, device=values.device) for each in (compressed_indices, plain_indices))
    blocked = layout in _BLOCKED
    if begins.ndim != 1 or places.ndim != 1:
        raise refusal("a batch of compressed sparse tensors", "two dimensions have indices")
    if values.ndim < (3 if blocked else 1):
        raise refuse(f"values must have dimensionality of at least {3 if blocked else 1}, but got {values.ndim}")
    if places.shape[0] != values.shape[0]:
        raise refuse(f"number of values, {values.shape[0]}, must be that of plain indices, {places.shape[0]}")
    block = tuple(values.shape[1:3]) if blocked else (1, 1)
    dense = tuple(values.shape[3 if blocked else 1 :])
    by_rows = layout in (sparse_csr, sparse_bsr)
    if size is None:
        groups, most = begins.shape[0] - 1, int(places.max()) + 1 if places.numel() else 0
        rows, columns = (groups, most) if by_rows else (most, groups)
        size = (rows * block[0], columns * block[1], *dense)
    if tuple(size[2:]) != dense:
        raise refuse(f"values have the dense sizes {list(dense)}, but size is {list(size)}")
    dim = 0 if by_rows else 1
    if begins.shape[0] != size[dim] // block[dim] + 1:
        raise refuse(
            f"{_NAMES[layout][0]}.shape[-1] must be equal to the number of {'rows' if by_rows else 'columns'} "
            f"+ 1, but got {begins.shape[0]} for size {list(size)}"
        )
    if check_invariants and int(begins[-1]) != places.shape[0]:
        raise refuse(f"`{_NAMES[layout][0]}[..., -1] == nnz` is not satisfied.")
    values = values.detach().requires_grad_() if requires_grad else shared(values)
    return CompressedTensor(begins, places, values, size, layout)


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Any:
    """A sparse matrix with compressed rows (torch.sparse_csr_tensor)."""
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, **{"layout": sparse_csr, **options})


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Any:
    """A sparse matrix with compressed columns (torch.sparse_csc_tensor)."""
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, **{"layout": sparse_csc, **options})


def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **options: Any) -> Any:
    """A sparse matrix of blocks with compressed rows (torch.sparse_bsr_tensor)."""
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, **{"layout": sparse_bsr, **options})


def sparse_bsc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, **options: Any) -> Any:
    """A sparse matrix of blocks with compressed columns (torch.sparse_bsc_tensor)."""
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, **{"layout": sparse_bsc, **options})


# Rules.


def _rule(*names: str) -> Callable[[_Function], _Function]:
    def enter(function: _Function) -> _Function:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def _coo(each: Any) -> Any:
    return each.coo() if isinstance(each, CompressedTensor) else each


@_rule("mm", "matmul", "mv", "spmm")
def product(input: Any, mat2: Any) -> Any:
    """The matrix product. Dense if one operand is dense, else in the first operand's layout."""
    made = _rules.mm(_coo(input), _coo(mat2))
    return made if isinstance(made, Tensor) else compressed(made, input.layout)


@_rule("addmm")
def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _rules.addmm(_coo(input), _coo(mat1), _coo(mat2), beta=beta, alpha=alpha)


@_rule("linear")
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    return _rules.linear(_coo(input), _coo(weight), bias)


def _through_coo(name: str) -> None:
    def apply(input: Any, other: Any, **kwargs: Any) -> Any:
        layout = (input if isinstance(input, CompressedTensor) else other).layout
        if layout in _BLOCKED:
            raise refusal(f"{name} of a sparse tensor of blocks", _REASON)
        if name == "add" and isinstance(input, CompressedTensor) and isinstance(other, Tensor):
            if kwargs.get("alpha", 1) != 1:  # PyTorch multiplies the other operand
                raise refusal("add(sparse, dense, alpha=)", "multiply the dense tensor first")
            input, other = other, input
        made = COO_RULES[name](_coo(input), _coo(other), **kwargs)
        return made if isinstance(made, Tensor) else compressed(made, layout)

    RULES[name] = apply


for _name in ("add", "sub", "mul"):
    _through_coo(_name)


def _of_values(name: str) -> None:
    def apply(input: CompressedTensor, *args: Any, **kwargs: Any) -> CompressedTensor:
        return _moved(input, getattr(input._v, name)(*args, **kwargs))

    RULES[name] = apply


def _moved(input: CompressedTensor, values: Tensor) -> CompressedTensor:
    """The same places with other values, perhaps on another device; the tensor itself if they are its own."""
    if values is input._v:
        return input
    begins, places = (each.to(values.device) for each in (input._begins, input._places))
    return CompressedTensor(begins, places, values, input.shape, input.layout)


for _name in (*_rules.KEEP_ZERO.split(), *_rules.CASTS.split(), "neg", "negative", "clone", "detach"):
    _of_values(_name)

for _name in _rules.QUESTIONS:
    RULES[_name] = lambda input, _name=_name: getattr(input._v, _name)()


@_rule("to")
def _to(input: CompressedTensor, *args: Any, **kwargs: Any) -> CompressedTensor:
    return _moved(input, input._v.to(*args, **kwargs))


@_rule("sum")
def _sum(input: CompressedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dim is not None:
        raise refusal("sum of a compressed sparse tensor along a dimension", _REASON)
    return input._v.sum(dtype=dtype)


@_rule("transpose", "swapaxes", "swapdims")
def _transpose(input: CompressedTensor, dim0: int, dim1: int) -> CompressedTensor:
    one, other = (_rules.checked_dim(each, input.dim()) for each in (dim0, dim1))
    if one == other:
        return input
    if max(one, other) > 1:
        raise refuse("transpose: can only transpose sparse dimensions of a sparse tensor")
    layouts = {sparse_csr: sparse_csc, sparse_csc: sparse_csr, sparse_bsr: sparse_bsc, sparse_bsc: sparse_bsr}
    values = input._v.transpose(1, 2) if input._blocked else shared(input._v, view=True)
    size = (input.shape[1], input.shape[0], *input.shape[2:])
    return CompressedTensor(input._begins, input._places, values, size, layouts[input.layout])


@_rule("t")
def _t(input: CompressedTensor) -> CompressedTensor:
    return _transpose(input, 0, 1)


@_rule("to_sparse")
def _converted(
    input: Any, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Any:
    """A compressed or COO tensor in another layout; in COO form without one."""
    return compressed(input, layout, blocksize, dense_dim)


@_rule("to_sparse_coo")
def _to_coo(input: CompressedTensor) -> SparseTensor:
    return input.coo()


def _conversion(name: str, layout: Any) -> None:
    def plain(input: Any, dense_dim: int | None = None) -> Any:
        return compressed(input, layout, None, dense_dim)

    def blocked(input: Any, blocksize: Sequence[int], dense_dim: int | None = None) -> Any:
        return compressed(input, layout, blocksize, dense_dim)

    RULES[name] = COO_RULES[name] = blocked if layout in _BLOCKED else plain


for _layout in _NAMES:
    _conversion(f"to_{_layout!r}".replace("torch.", ""), _layout)


# Products of which only some elements are wanted, or that are not sums.


def sampled_addmm(input: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)` at the stored elements of a CSR matrix (torch.sparse.sampled_addmm)."""
    if not isinstance(input, CompressedTensor) or input.layout is not sparse_csr:
        raise refuse("sampled_addmm: Expected self to have sparse csr layout")
    if out is not None:
        raise refusal("sparse.sampled_addmm(out=)", "the result is new")
    if mat1.shape[1] != mat2.shape[0] or tuple(input.shape) != (mat1.shape[0], mat2.shape[1]):
        raise refuse(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({mat1.shape[0]}x{mat1.shape[1]} and "
            f"{mat2.shape[0]}x{mat2.shape[1]}) to {list(input.shape)}"
        )
    rows, columns = input.coo()._i.unbind(0)
    found = alpha * (mat1[rows] * mat2.t()[columns]).sum(1)
    return input.like(found + beta * input._v if beta else found)


def reduced_mm(mat1: Any, mat2: Tensor, reduce: str) -> Tensor:
    """The product of a CSR matrix and a dense one, with products reduced by sum, mean, amax or amin.

    Rows without stored elements are 0. Of equal extremes, the first has the gradient.
    """
    if not isinstance(mat1, CompressedTensor) or mat1.layout is not sparse_csr:
        raise refuse("torch.sparse.mm(reduce=): expected mat1 to have sparse csr layout")
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise refuse(f"reduce argument must be either sum, mean, amax or amin, got {reduce}")
    coo = mat1.coo()
    _rules.check_factors(coo, mat2, (2,))
    if reduce == "sum":
        made: Tensor = _rules.mm(coo, mat2)
        return made
    if reduce == "mean":
        counts = mat1._begins.diff().clamp(min=1).to(mat2.dtype)
        divided: Tensor = _rules.mm(coo, mat2) / counts.unsqueeze(1)
        return divided
    return _extremes(coo, mat2, reduce)


def _extremes(coo: SparseTensor, mat2: Tensor, reduce: str) -> Tensor:
    rows, columns = coo._i.unbind(0)
    products = coo._v.unsqueeze(1) * mat2[columns]
    size, count = (coo.shape[0], mat2.shape[1]), coo._nnz()
    if not count:
        nothing: Tensor = products.sum(0).expand(size) * 0
        return nothing
    with no_grad():
        to = rows.unsqueeze(1).expand(products.shape)
        start = products.new_zeros(size)
        best = start.scatter_reduce(0, to, products.detach(), reduce, include_self=False)
        order = ops.arange(count, device=products.device).unsqueeze(1).expand(products.shape)
        found = products.detach()
        order = ops.where((found == best[rows]) | found.isnan(), order, count - 1)
        first = order.new_zeros(size).scatter_reduce(0, to, order, "amin", include_self=False)
        stored = (ops.bincount(rows, minlength=size[0]) > 0).unsqueeze(1)
    made: Tensor = ops.where(stored, products.gather(0, first), products.new_zeros(()))
    return made
