"""What functions and methods do with sparse tensors: the table that `SparseTensor` looks in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gradwire._base import dtypes
from gradwire._base.errors import GradwireIndexError, refuse
from gradwire._base.modes import is_grad_enabled, no_grad
from gradwire._base.promotion import promote_types
from gradwire._base.refused import refusal
from gradwire._base.wiring import wired
from gradwire._functions.stored_values import shared
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.sparse._coo import RULES, SparseTensor, summed, to_sparse

_DENSE_SUM = "add(sparse, dense) is not supported. Use add(dense, sparse) instead."


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _rule(*names: str) -> Callable[[_Function], _Function]:
    """Enter a function into the table under these names."""

    def enter(function: _Function) -> _Function:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


# Products.


def _checked_matrix(name: str, matrix: Any, *others: Any) -> None:
    for each in (matrix, *others):
        if each.ndim > 2:
            raise refusal(
                f"{name} of sparse tensors", f"matrices and vectors are multiplied, but got {list(each.shape)}"
            )
        if isinstance(each, SparseTensor) and (each.sparse_dim() != 2 or each.dense_dim()):
            raise refuse(f"{name}: expected sparse matrices of 2 sparse dimensions, but got {list(each.shape)}")


def _sparse_times_dense(left: SparseTensor, right: Tensor) -> Tensor:
    """(n, m) by (m, k) or (m,): each stored element times its row of `right`, added to its row of the result."""
    check_factors(left, right)
    rows, columns = left._i.unbind(0)
    values = left._v if right.ndim == 1 else left._v.unsqueeze(1)
    return summed(values * right.index_select(0, columns), rows, left.shape[0])


def check_factors(left: SparseTensor, right: Tensor, ranks: Sequence[int] = (1, 2)) -> None:
    """Check that a matrix and a dense tensor of one of these ranks can be multiplied. Raises RuntimeError."""
    if right.ndim not in ranks or left.shape[1] != right.shape[0]:
        raise refuse(f"mat1 and mat2 shapes cannot be multiplied ({_sizes(left)} and {_sizes(right)})")
    if left.dtype is not right.dtype:
        raise refuse(f"expected m1 and m2 to have the same dtype, but got: {left.dtype} != {right.dtype}")


def _sizes(each: Any) -> str:
    return "x".join(map(str, each.shape))


def _sparse_times_sparse(left: SparseTensor, right: SparseTensor) -> SparseTensor:
    """The product at the elements that have a pair of stored ones. It needs the memory of two dense results."""
    with no_grad():
        pattern = _sparse_times_dense(_ones(left), _ones(right).to_dense())
        indices = pattern.nonzero().t().contiguous()
    product = _sparse_times_dense(left, right.to_dense())
    return SparseTensor(indices, product[tuple(indices)], product.shape, True)


def _ones(each: SparseTensor) -> SparseTensor:
    return each.like(ops.ones_like(each._v.detach()).to(dtypes.float32))


@_rule("mm", "matmul", "mv", "spmm", "dsmm")
def mm(input: Any, mat2: Any) -> Any:
    """The matrix product. Dense if one operand is dense, else sparse."""
    _checked_matrix("mm", input, mat2)
    if not isinstance(input, SparseTensor):
        return _sparse_times_dense(transpose(mat2, 0, 1), input.t() if input.ndim > 1 else input).t()
    if isinstance(mat2, SparseTensor):
        return _sparse_times_sparse(input, mat2)
    return _sparse_times_dense(input, mat2)


@_rule("addmm")
def addmm(input: Tensor, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta * input + alpha * (mat1 @ mat2)`, dense."""
    product = mm(mat1, mat2)
    if isinstance(product, SparseTensor) or isinstance(input, SparseTensor):
        raise refusal("addmm of sparse tensors", "only a product with a dense matrix is added, to a dense matrix")
    if input.dtype is not product.dtype:
        raise refuse(f"expected scalar type {product.dtype.title} but found {input.dtype.title}")
    input = input.expand(product.shape)  # an input of more elements than the product is an error
    return beta * input + alpha * product if beta else alpha * product  # nan of an input that does not count is ignored


@_rule("linear")
def linear(input: Any, weight: Any, bias: Tensor | None = None) -> Any:
    """`input @ weight.T + bias`, of a sparse input or weight."""
    product = mm(input, transpose(weight, 0, 1) if isinstance(weight, SparseTensor) else weight.t())
    return product if bias is None else product + bias


# Elementwise.


def _of_values(name: str) -> None:
    def apply(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        made = input.coalesce()
        values = getattr(made._v, name)(*args, **kwargs)
        return made if values is made._v else made.like(values)

    RULES[name] = apply


# Zero stays zero under these, so only the values change.
KEEP_ZERO = (
    "abs absolute asin arcsin asinh arcsinh atan arctan atanh arctanh ceil deg2rad erf erfinv expm1 floor frac isinf "
    "isnan isneginf isposinf log1p positive rad2deg relu round sgn sign signbit sin sinh sqrt square tan tanh trunc fix"
)
for _name in KEEP_ZERO.split():
    _of_values(_name)


@_rule("neg", "negative")
def neg(input: SparseTensor) -> SparseTensor:
    """The negative values."""
    return input.like(-input._v)


@_rule("pow")
def power(input: SparseTensor, exponent: Any) -> SparseTensor:
    """The values to the power of a number that is not 0."""
    if not isinstance(input, SparseTensor) or not isinstance(exponent, (int, float)) or exponent == 0:
        raise refusal("pow of a sparse tensor", "only its power by a number other than 0 is sparse")
    made = input.coalesce()
    return made.like(made._v**exponent)


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, SparseTensor) and (not isinstance(value, Tensor) or value.ndim == 0)


@_rule("mul", "multiply")
def mul(input: Any, other: Any) -> SparseTensor:
    """The product with a number, or by element with a dense or sparse tensor of the same sizes."""
    one: SparseTensor
    one, other = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if _is_scalar(other):
        return one.like(one._v * other)
    if tuple(one.shape) != tuple(other.shape):
        raise refusal("mul of a sparse tensor", "operands have equal sizes, since sparse tensors are not broadcast")
    if isinstance(other, SparseTensor):
        return _common(one, other)
    return one.like(one._v * other[tuple(one._i)])


def _common(one: SparseTensor, other: SparseTensor) -> SparseTensor:
    """The product at the elements that both store."""
    both = one._coalesced and other._coalesced
    one, other = one.coalesce(), other.coalesce()
    if one.sparse_dim() != other.sparse_dim():
        raise refuse("mul operands have incompatible number of sparse dimensions")
    if not other._nnz():
        return other.like(one._v[:0] * other._v)
    with no_grad():
        wanted, there = one.flat_indices(), other.flat_indices()
        place = ops.searchsorted(there, wanted).clamp(max=there.shape[0] - 1)
        kept = (there[place] == wanted).nonzero().squeeze(1)
        place = place[kept]
    made = SparseTensor(one._i[:, kept], one._v[kept] * other._v[place], one.shape, both)
    made.both_stored = True
    return made


@_rule("div", "divide", "true_divide")
def div(input: SparseTensor, other: Any, *, rounding_mode: str | None = None) -> SparseTensor:
    """The values divided by a number, and rounded if wanted."""
    if not isinstance(input, SparseTensor) or not _is_scalar(other):
        raise refuse("Sparse division requires a scalar or zero-dim dense tensor divisor")
    if rounding_mode is None:
        return input.like(input._v / other)
    made = input.coalesce()
    return made.like(made._v.div(other, rounding_mode=rounding_mode))


@_rule("add")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """The sum of two sparse tensors, sparse, or of a dense and a sparse one, dense."""
    if not isinstance(other, SparseTensor):
        raise refuse(_DENSE_SUM)
    size = tuple(input.shape) if isinstance(input, (Tensor, SparseTensor)) else ()
    if size != tuple(other.shape):
        raise refuse(f"add: expected sizes of 'self' and 'other' to match, but {list(size)} != {list(other.shape)}")
    other = other if alpha == 1 else _scaled(other, alpha, promote_types(input.dtype, other.dtype))
    if not isinstance(input, SparseTensor):
        return input + other.to_dense()
    if input.sparse_dim() != other.sparse_dim():
        raise refuse("add: expected 'self' and 'other' to have the same number of sparse dimensions")
    if input._i is other._i:
        return input.like(input._v + other._v)
    indices, values = ops.cat((input._i, other._i), 1), ops.cat((input._v, other._v))
    made = SparseTensor(indices, values, input.shape)
    return made.coalesce() if input._coalesced and other._coalesced else made


def _scaled(given: SparseTensor, factor: Any, dtype: dtypes.dtype) -> SparseTensor:
    """The product with a number, computed in the dtype of the result: a narrower one would wrap."""
    if isinstance(factor, float) and not (dtype.is_floating_point or dtype.is_complex):
        raise refuse("For integral input tensors, argument alpha must not be a floating point number.")
    return given.like((given._v.to(dtype) * factor).to(dtype))


@_rule("sub", "subtract")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """The difference of two sparse tensors, sparse, or of a dense and a sparse one, dense."""
    if isinstance(other, SparseTensor) and dtypes.bool_ in (other.dtype, getattr(input, "dtype", None)):
        raise refuse("Subtraction, the `-` operator, with a bool tensor is not supported.")
    return add(input, other, alpha=-alpha)


# In place, for gradients: an optimizer's scaling and clearing.


@_rule("mul_", "multiply_")
def mul_(input: SparseTensor, other: Any) -> SparseTensor:
    """The product with a number, in place like `add_`."""
    if not (isinstance(input, SparseTensor) and _is_scalar(other)):
        raise refusal("mul_ of a sparse tensor", "only a number multiplies it in place")
    return _become(input, mul(input, other))


@_rule("div_", "divide_", "true_divide_")
def div_(input: SparseTensor, other: Any) -> SparseTensor:
    """The quotient by a number, in place like `add_`."""
    if not (isinstance(input, SparseTensor) and _is_scalar(other)):
        raise refusal("div_ of a sparse tensor", "only a number divides it in place")
    return _become(input, div(input, other))


@_rule("add_")
def add_(input: SparseTensor, other: Any, *, alpha: Any = 1) -> SparseTensor:
    """The sum with a sparse tensor, which takes the place of the stored elements."""
    if not isinstance(input, SparseTensor):
        raise refusal("add_ of a dense and a sparse tensor", "add the sparse one's to_dense()")
    return _become(input, add(input, other, alpha=alpha))


@_rule("sub_", "subtract_")
def sub_(input: SparseTensor, other: Any, *, alpha: Any = 1) -> SparseTensor:
    """The difference, in place like `add_`."""
    return add_(input, other, alpha=-alpha)


@_rule("zero_")
def zero_(input: SparseTensor) -> SparseTensor:
    """No stored elements are left."""
    return _become(input, zeros_like(input))


@_rule("detach_")
def detach_(input: SparseTensor) -> SparseTensor:
    """The tensor, from now on without history."""
    input._v.detach_()
    return input


def _become(input: SparseTensor, made: SparseTensor) -> SparseTensor:
    if is_grad_enabled() and (input.requires_grad or made.requires_grad):
        raise refusal("in-place changes of a sparse tensor with gradients", "make a new tensor")
    if made.dtype is not input.dtype:
        raise refuse(f"result type {made.dtype} can't be cast to the desired output type {input.dtype}")
    input.become(made)
    return input


# Reductions.


@_rule("sum")
def widened_total(
    input: SparseTensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """`total`, of integers as int64 (torch.sum); torch.sparse.sum keeps their dtype."""
    if keepdim:
        raise refusal("sum of a sparse tensor with keepdim=True", "unsqueeze the result")
    if dtype is None and not (input._v.is_floating_point() or input._v.is_complex()):
        dtype = dtypes.int64
    return total(input, dim, dtype=dtype)


def total(input: SparseTensor, dim: int | Sequence[int] | None = None, *, dtype: Any = None) -> Any:
    """The sum of all elements, dense, or along dimensions, sparse and coalesced while a sparse dimension is left."""
    input = input if dtype is None else input.like(input._v.to(dtype))
    ndim, sparse = input.dim(), input.sparse_dim()
    given = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    summed_dims = [checked_dim(each, ndim) for each in given]
    for each in summed_dims:
        if summed_dims.count(each) > 1:
            raise refuse(f"dim {each} appears multiple times in the list of dims")
    dense = [each - sparse + 1 for each in summed_dims if each >= sparse]
    values = input._v.sum(dense) if dense else input._v
    kept = [each for each in range(sparse) if each not in summed_dims]
    if not kept:
        return values.sum(0)
    size = [input.shape[each] for each in range(ndim) if each not in summed_dims]
    values = shared(values) if values is input._v else values
    if len(kept) == sparse:
        return SparseTensor(input._i, values, size, input._coalesced).coalesce()
    return SparseTensor(ops.stack([input._i[each] for each in kept]), values, size).coalesce()


def checked_dim(dim: int, ndim: int) -> int:
    """The dimension counted from the first. Raises IndexError for one out of range."""
    if not -ndim <= dim < ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
    return dim % ndim


@_rule("norm")
def norm(input: SparseTensor, p: Any = 2) -> Tensor:
    """The norm of all elements."""
    return input.coalesce()._v.norm(p)


def normalized(input: SparseTensor, dim: int, log: bool, dtype: Any = None) -> SparseTensor:
    """Softmax, or its logarithm, along a sparse dimension; elements that are not stored count as -inf."""
    made = input.coalesce()
    made = made if dtype is None else made.like(made._v.to(dtype))
    dim = checked_dim(dim, made.dim())
    if dim >= made.sparse_dim():
        place = dim - made.sparse_dim() + 1
        return made.like(made._v.log_softmax(place) if log else made._v.softmax(place))
    if not made._nnz():
        return made
    others = [each for each in range(made.sparse_dim()) if each != dim]
    with no_grad():
        flat = made._i[0] * 0
        for each in others:
            flat = flat * made.shape[each] + made._i[each]
        found, group = ops.unique(flat, return_inverse=True)
        count = found.shape[0]
        largest = made._v.new_zeros(count, *made._v.shape[1:])
        places = group.view(-1, *[1] * made.dense_dim()).expand(made._v.shape)
        largest = largest.scatter_reduce(0, places, made._v.detach(), "amax", include_self=False)
    shifted = made._v - largest[group]
    sums = summed(shifted.exp(), group, count)[group]
    return made.like(shifted - sums.log() if log else shifted.exp() / sums)


# Shapes.


@_rule("transpose", "swapaxes", "swapdims")
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Two sparse dimensions swapped."""
    one, other = (checked_dim(each, input.dim()) for each in (dim0, dim1))
    if max(one, other) >= input.sparse_dim():
        raise refuse("transpose: can only transpose sparse dimensions of a sparse tensor")
    order = list(range(input.sparse_dim()))
    order[one], order[other] = other, one
    size = list(input.shape)
    size[one], size[other] = size[other], size[one]
    return SparseTensor(input._i[order], shared(input._v, view=True), size, input._coalesced and one == other)


@_rule("t")
def t(input: SparseTensor) -> SparseTensor:
    """The transposed matrix."""
    if input.dim() > 2:
        raise refuse(f"t() expects a tensor with <= 2 dimensions, but self is {input.dim()}D")
    return input if input.dim() < 2 else transpose(input, 0, 1)


@_rule("select")
def select(input: SparseTensor, dim: int, index: int) -> Any:
    """The part at one index of a dimension: sparse, or dense if no sparse dimension is left."""
    dim = checked_dim(dim, input.dim())
    if not -input.shape[dim] <= index < input.shape[dim]:
        sizes = list(input.shape)
        raise IndexError(f"select(): index {index} out of range for tensor of size {sizes} at dimension {dim}")
    index %= input.shape[dim]
    size = [each for place, each in enumerate(input.shape) if place != dim]
    if dim >= input.sparse_dim():
        return SparseTensor(input._i, input._v.select(dim - input.sparse_dim() + 1, index), size, input._coalesced)
    kept = (input._i[dim] == index).nonzero().squeeze(1)
    if input.sparse_dim() == 1:
        return input._v[kept].sum(0).to(input.dtype)  # sum() widens integers
    rest = [each for each in range(input.sparse_dim()) if each != dim]
    return SparseTensor(input._i[rest][:, kept], input._v[kept], size, input._coalesced)


@_rule("index_select")
def index_select(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The parts at the given indices of a dimension. Waits for the server, which checks them."""
    dim = checked_dim(dim, input.dim())
    if dim >= input.sparse_dim():
        values = input._v.index_select(dim - input.sparse_dim() + 1, index)
        return SparseTensor(input._i, values, _resized(input, dim, index.shape[0]), input._coalesced)
    index = _checked_index(input, dim, index)
    new, old = _pairs(index, input._i[dim])
    rows = [new if each == dim else input._i[each][old] for each in range(input.sparse_dim())]
    return SparseTensor(ops.stack(rows), input._v[old], _resized(input, dim, index.shape[0]))


def _pairs(wanted: Tensor, stored: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of equal numbers: their places in `wanted`, ascending, and in `stored`. Needs no table of both."""
    order = stored.argsort(stable=True)
    ascending = stored[order]
    begin = ops.searchsorted(ascending, wanted)
    counts = ops.searchsorted(ascending, wanted, right=True) - begin
    new = ops.repeat_interleave(ops.arange(wanted.shape[0], device=wanted.device), counts)
    first = (begin - counts.cumsum(0) + counts)[new]
    return new, order[first + ops.arange(new.shape[0], device=wanted.device)]


def _checked_index(input: SparseTensor, dim: int, index: Tensor) -> Tensor:
    """The indices counted from the beginning. Raises IndexError for one out of range."""
    size = input.shape[dim]
    wrong = index[(index < -size) | (index >= size)].tolist()
    if wrong:
        raise GradwireIndexError(
            f"index_select(): index contains {wrong[0]} that is out of range for tensor of size "
            f"{list(input.shape)} at dimension {dim}"
        )
    return index % size if size else index


def _resized(input: SparseTensor, dim: int, size: int) -> list[int]:
    return [size if place == dim else each for place, each in enumerate(input.shape)]


@_rule("narrow")
def narrow(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """`length` parts of a dimension from `start` on."""
    dim = checked_dim(dim, input.dim())
    size = input.shape[dim]
    start = start + size if start < 0 else start
    if length < 0 or not 0 <= start <= size - length:
        raise refuse(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    if dim >= input.sparse_dim():
        values = input._v.narrow(dim - input.sparse_dim() + 1, start, length)
        return SparseTensor(input._i, values, _resized(input, dim, length), input._coalesced)
    kept = ((input._i[dim] >= start) & (input._i[dim] < start + length)).nonzero().squeeze(1)
    rows = list(input._i[:, kept].unbind(0))
    rows[dim] = rows[dim] - start
    return SparseTensor(ops.stack(rows), input._v[kept], _resized(input, dim, length), input._coalesced)


@_rule("unsqueeze")
def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    """A new sparse dimension of size 1."""
    dim = checked_dim(dim, input.dim() + 1)
    if dim > input.sparse_dim():
        raise refusal("unsqueeze of a sparse tensor", "the new dimension must not follow a dense one")
    indices = ops.cat((input._i[:dim], ops.zeros_like(input._i[:1]), input._i[dim:]))
    return SparseTensor(
        indices, shared(input._v, view=True), [*input.shape[:dim], 1, *input.shape[dim:]], input._coalesced
    )


@_rule("cat", "concat", "concatenate")
def cat(tensors: Sequence[SparseTensor], dim: int = 0) -> SparseTensor:
    """Sparse tensors joined along a sparse dimension."""
    first = tensors[0]
    if not all(isinstance(each, SparseTensor) for each in tensors):
        raise refuse("Concatenating sparse tensors, but a dense tensor was found")
    dim = checked_dim(dim, first.dim())
    if dim >= first.sparse_dim():
        raise refusal("cat of sparse tensors", "they are joined along a sparse dimension")
    moved, start = [], 0
    for each in tensors:
        if _resized(each, dim, 0) != _resized(first, dim, 0):
            raise refuse(f"All tensors must have the same shape except along dimension {dim}")
        rows = list(each._i.unbind(0))
        rows[dim] = rows[dim] + start
        moved.append(ops.stack(rows))
        start += each.shape[dim]
    return SparseTensor(ops.cat(moved, 1), ops.cat([each._v for each in tensors]), _resized(first, dim, start))


@_rule("stack")
def stack(tensors: Sequence[SparseTensor], dim: int = 0) -> SparseTensor:
    """Sparse tensors joined along a new sparse dimension."""
    return cat([unsqueeze(each, dim) for each in tensors], dim)


# Copies and casts.


@_rule("clone")
def clone(input: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    """A differentiable copy."""
    return input.like(input._v.clone())


@_rule("detach")
def detach(input: SparseTensor) -> SparseTensor:
    """The same tensor without history."""
    return input.like(input._v.detach())


@_rule("to_sparse")
def itself(input: SparseTensor, *args: Any, layout: Any = None, blocksize: Any = None, **unused: Any) -> Any:
    """The tensor, which is sparse already, or with `layout` in that form."""
    if layout is None or layout is input.layout:
        return input
    return wired("compressed")(input, layout, blocksize)


@_rule("zeros_like")
def zeros_like(input: SparseTensor, *, dtype: Any = None, **unused: Any) -> SparseTensor:
    """A sparse tensor of these sizes without stored elements."""
    return SparseTensor(input._i[:, :0], input._v.detach()[:0].to(dtype or input.dtype), input.shape, True)


@_rule("to")
def to(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    """The tensor with another dtype or on another device, like Tensor.to."""
    plain = [each._v if isinstance(each, SparseTensor) else each for each in args]
    values = input._v.to(*plain, **kwargs)
    return input if values is input._v else _moved(input, values)


def _moved(input: SparseTensor, values: Tensor) -> SparseTensor:
    return SparseTensor(input._i.to(values.device), values, input.shape, input._coalesced)


def _cast(name: str) -> None:
    def cast(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        values = getattr(input._v, name)(*args, **kwargs)
        return input if values is input._v else _moved(input, values)

    RULES[name] = cast


CASTS = "float double half bfloat16 int long short char byte bool cfloat cdouble cpu cuda type_as"
for _name in CASTS.split():
    _cast(_name)

QUESTIONS = ["is_floating_point", "is_complex", "is_signed", "element_size"]
for _name in QUESTIONS:
    RULES[_name] = lambda input, _name=_name: getattr(input._v, _name)()


@_rule("sparse_mask")
def sparse_mask(input: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements of a dense tensor at the stored indices of a sparse one."""
    if isinstance(input, SparseTensor) or tuple(input.shape) != tuple(mask.shape):
        raise refusal("sparse_mask", "it takes a dense tensor and a sparse one of equal sizes")
    return mask.like(input[tuple(mask._i)])


__all__ = ["addmm", "mm", "normalized", "sparse_mask", "to_sparse", "total"]
