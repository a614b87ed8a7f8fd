"""Composed: PyTorch's methods made of a few other ops, and flags that are never set here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._base.refused import refusal
from gradwire._base.wiring import wired
from gradwire._proxy.handle import Handle

_T = TypeVar("_T", bound="Composed")


def _mapped(target: Any, name: str, callable: Callable[..., Any], *others: Any) -> None:
    """Write to the tensor the results of a Python function of its values and the others', in row-major order."""
    if any(each.requires_grad for each in (target, *others)):
        raise refuse(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if any(each.device.type != "cpu" for each in (target, *others)):
        raise GradwireTypeError(f"{name}() is only for CPU tensors")
    if any(each.dtype is not target.dtype for each in others):
        raise GradwireTypeError(f"{name}(): expected a tensor of {target.dtype}, but got {others[0].dtype}")
    columns = [target.flatten().tolist(), *(each.expand(target.shape).flatten().tolist() for each in others)]
    made = [callable(*row) for row in zip(*columns, strict=True)]
    values = wired("make_tensor")(made, target.dtype, str(target.device))
    target.copy_(values.reshape(target.shape))


class Composed(Handle):
    """Methods of Tensor made of a few other ops, and flags that are the same for all tensors."""

    __slots__ = ()

    is_sparse = False
    is_quantized = False
    is_mps = False
    is_meta = False
    is_nested = False
    is_xpu = False
    is_ipu = False
    is_xla = False
    is_maia = False
    is_mtia = False
    is_vulkan = False
    is_mkldnn = False
    is_sparse_csr = False

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

    def hash_tensor(self, dim: Any = (), *, keepdim: bool = False, mode: int = 0) -> Any:
        """See `gradwire.hash_tensor`."""
        return wired("hash_tensor")(self, dim, keepdim=keepdim, mode=mode)

    def chalf(self, **_: Any) -> Any:
        """Complex numbers of half types do not exist here. Raises NotImplementedError."""
        raise refusal("Tensor.chalf()", "there are no complex numbers of half types (complex32); use cfloat()")

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

    def conj_physical_(self: _T) -> _T:
        """Replace the values by their complex conjugates (torch.Tensor.conj_physical_)."""
        target: Any = self
        if target.is_complex():
            target.copy_(target.conj())
        return self

    def apply_(self: _T, callable: Callable[[Any], Any]) -> _T:
        """Replace each value by `callable(value)`, called in this process. Reads and sends all values.

        Raises RuntimeError for a tensor that requires grad, and for one that is not on the CPU.
        """
        _mapped(self, "apply_", callable)
        return self

    def map_(self: _T, tensor: Any, callable: Callable[[Any, Any], Any]) -> _T:
        """Replace each value by `callable(value, other)`, `other` of `tensor` broadcast. Reads and sends all values.

        Raises RuntimeError as `apply_` does, TypeError for a `tensor` of another dtype.
        """
        _mapped(self, "map_", callable, tensor)
        return self

    def map2_(self: _T, x: Any, y: Any, callable: Callable[[Any, Any, Any], Any]) -> _T:
        """Replace each value by `callable(value, one, other)`, of two tensors broadcast. Reads and sends all values.

        Raises as `map_` does.
        """
        _mapped(self, "map2_", callable, x, y)
        return self

    def dense_dim(self) -> int:
        """Number of dimensions: all are dense (torch.Tensor.dense_dim)."""
        return len(self._spec.shape)

    def sparse_dim(self) -> int:
        """0: no dimension is sparse (torch.Tensor.sparse_dim)."""
        return 0

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        """This tensor, which is dense, or with `dtype` its cast (torch.Tensor.to_dense)."""
        target: Any = self
        return target if dtype is None else target.to(dtype)

    def to_sparse(
        self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
    ) -> Any:
        """The nonzero elements as a sparse tensor, differentiable (torch.Tensor.to_sparse).

        `sparse_dim`: how many leading dimensions have indices in COO form; None for all. `layout`: another form, of
        which each value is a block, with `blocksize`, and may have trailing dimensions.
        """
        if layout is None or repr(layout) == "torch.sparse_coo":
            return wired("to_sparse")(self, sparse_dim)
        return wired("compressed")(self, layout, blocksize, dense_dim)

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        """`to_sparse` with compressed rows (torch.Tensor.to_sparse_csr)."""
        return self.to_sparse(layout=wired("sparse_csr"), dense_dim=dense_dim)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        """`to_sparse` with compressed columns (torch.Tensor.to_sparse_csc)."""
        return self.to_sparse(layout=wired("sparse_csc"), dense_dim=dense_dim)

    def to_sparse_bsr(self, blocksize: Any, dense_dim: int | None = None) -> Any:
        """`to_sparse` in blocks with compressed rows (torch.Tensor.to_sparse_bsr)."""
        return self.to_sparse(layout=wired("sparse_bsr"), blocksize=blocksize, dense_dim=dense_dim)

    def to_sparse_bsc(self, blocksize: Any, dense_dim: int | None = None) -> Any:
        """`to_sparse` in blocks with compressed columns (torch.Tensor.to_sparse_bsc)."""
        return self.to_sparse(layout=wired("sparse_bsc"), blocksize=blocksize, dense_dim=dense_dim)

    def to_sparse_coo(self) -> Any:
        """`to_sparse` of all dimensions (torch.Tensor.to_sparse_coo)."""
        return wired("to_sparse")(self)

    def sparse_mask(self, mask: Any) -> Any:
        """The elements at the stored indices of a sparse tensor, sparse (torch.Tensor.sparse_mask)."""
        return wired("sparse_mask")(self, mask)

    def coalesce(self) -> Any:
        """Raises RuntimeError: this tensor is dense (torch.Tensor.coalesce)."""
        raise refuse("coalesce expected sparse coordinate tensor layout but got Strided")

    def is_coalesced(self) -> Any:
        """Raises RuntimeError: this tensor is dense (torch.Tensor.is_coalesced)."""
        raise refuse("is_coalesced expected sparse coordinate tensor layout but got Strided")

    def indices(self) -> Any:
        """Raises RuntimeError: this tensor is dense (torch.Tensor.indices)."""
        raise refuse("indices expected sparse coordinate tensor layout but got Strided")

    def values(self) -> Any:
        """Raises RuntimeError: this tensor is dense (torch.Tensor.values)."""
        raise refuse("values expected sparse tensor layout but got Strided")

    def dim_order(self) -> tuple[int, ...]:
        """The dimensions from the outermost to the innermost in memory (torch.Tensor.dim_order)."""
        target: Any = self
        strides = target.stride()
        return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))

    def is_shared(self) -> bool:
        """Whether processes share the memory: only on a GPU, as in PyTorch (torch.Tensor.is_shared)."""
        return self._spec.device.type == "cuda"

    def is_distributed(self) -> bool:
        """False."""
        return False

    def new_empty_strided(self, size: Any, stride: Any, **options: Any) -> Any:
        """A tensor with these strides, of this dtype and device unless given (torch.Tensor.new_empty_strided)."""
        target: Any = self
        given = {"dtype": target.dtype, "device": target.device, **options}
        return wired("empty_strided")(size, stride, **given)

    def cholesky(self, upper: bool = False) -> Any:
        """See `gradwire.cholesky`."""
        return wired("cholesky")(self, upper)

    def lu(self, pivot: bool = True, get_infos: bool = False) -> Any:
        """See `gradwire.lu`."""
        return wired("lu")(self, pivot, get_infos)

    def lu_solve(self, LU_data: Any, LU_pivots: Any) -> Any:
        """See `gradwire.lu_solve`."""
        return wired("lu_solve")(self, LU_data, LU_pivots)

    def orgqr(self, input2: Any) -> Any:
        """See `gradwire.orgqr`."""
        return wired("orgqr")(self, input2)

    def ormqr(self, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Any:
        """See `gradwire.ormqr`."""
        return wired("ormqr")(self, input2, input3, left, transpose)

    def triangular_solve(self, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
        """See `gradwire.triangular_solve`."""
        return wired("triangular_solve")(self, A, upper, transpose, unitriangular)

    def histogram(self, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False) -> Any:
        """See `gradwire.histogram`."""
        return wired("histogram")(self, bins, range=range, weight=weight, density=density)

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Any:
        """See `gradwire.nonzero_static`."""
        return wired("nonzero_static")(self, size=size, fill_value=fill_value)

    def as_strided_scatter(self, src: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
        """See `gradwire.as_strided_scatter`."""
        return wired("as_strided_scatter")(self, src, size, stride, storage_offset)

    def narrow_copy(self, dim: int, start: int, length: int) -> Any:
        """See `gradwire.narrow_copy`."""
        return wired("narrow_copy")(self, dim, start, length)

    def pin_memory(self: _T, device: Any = None) -> _T:
        """This tensor; the server decides on the placement of its bytes."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False."""
        return False
