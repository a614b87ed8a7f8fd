"""Products of matrices and vectors: mm, bmm, mv, dot, and the composites matmul, linear, outer.

`matmul` and `linear` choose among the primitives as PyTorch does, so the graph has the same nodes. Half types are
multiplied in float32 and rounded once, as PyTorch's kernels do; NumPy has no half-precision BLAS.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number, cast_number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.matrix_product import matrix_product, product_for
from gradwire_engine.graph.tensor import Tensor
from gradwire_engine.op.composite import composite
from gradwire_engine.op.cost import counted, indexing, of_shape
from gradwire_engine.op.op import op
from gradwire_engine.op.value_access import is_row_major
from gradwire_engine.ops.base.basic import conj
from gradwire_engine.ops.base.checks import broadcast_shape, reshaped
from gradwire_engine.ops.linalg.costs import bmm_cost, mm_cost

Ints = tuple[int, ...]
# C++ names of dtypes in PyTorch's message about mixed dtypes.
_C_NAMES = {
    dtypes.bool_: "bool", dtypes.uint8: "unsigned char", dtypes.uint16: "uint16_t", dtypes.uint32: "uint32_t",
    dtypes.uint64: "uint64_t", dtypes.int8: "signed char", dtypes.int16: "short",
    dtypes.int32: "int", dtypes.int64: "long", dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16",
    dtypes.float32: "float", dtypes.float64: "double", dtypes.complex64: "c10::complex<float>",
    dtypes.complex128: "c10::complex<double>",
}  # fmt: skip


def is_half(dtype: DType) -> bool:
    """Whether a dtype is float16 or bfloat16, whose arithmetic is done in float32."""
    return dtype.itemsize == 2 and dtypes.category(dtype) == dtypes.FLOAT


def product(xp: Any, a: Array, b: Array) -> Array:
    """a @ b; half types in float32, except plain float16 matrices on a GPU, which cuBLAS multiplies."""
    if is_half(a.dtype) and (xp is np or a.ndim > 2 or b.ndim > 2 or a.dtype == dtypes.bfloat16):
        return matrix_product(xp, a.astype(dtypes.float32), b.astype(dtypes.float32)).astype(a.dtype)
    return matrix_product(xp, a, b)


@op(
    name="_transposed",
    view=True,
    node=lambda input: "TBackward0" if input.ndim == 2 else "TransposeBackward0",
    cost=4,
)
def _transposed(xp: Any, input: Array) -> Array:
    return input.swapaxes(-1, -2)


_transposed.works_in(backward=0, grows=False)


def matrix_t(value: Any) -> Any:
    """Transposed matrices: a recorded view of a Tensor, a plain view of an array."""
    return _transposed(value) if type(value) is Tensor else value.swapaxes(-1, -2)


_transposed.grad(input=lambda g: matrix_t(g)).tangent("linear")


@op(name="_fold", view="maybe", node="ViewBackward0", cost=4)
def fold(xp: Any, input: Array, size: Ints) -> Array:
    """Reshape; a view if the strides allow it."""
    return reshaped(input, size)


fold.works_in(backward=0, grows=False)
fold.grad(input=lambda g, input_meta: fold(g, input_meta.shape)).tangent("linear")


@op(name="_unsafe_view", node="UnsafeViewBackward0", cost=4)
def _unsafe_view(xp: Any, input: Array, size: Ints) -> Array:
    """Reshape an intermediate result that has no other reference."""
    return input.reshape(size)


_unsafe_view.grad(input=lambda g, input_meta: fold(g, input_meta.shape)).tangent("linear")


def _shape_error(message: str, *operands: Array) -> EngineError:
    return EngineError(Reason.SHAPE, message, shapes=[list(operand.shape) for operand in operands])


def _refuse_bool(kernel: str, *operands: Array) -> None:
    """Refuse bool operands. As in PyTorch, a product with an empty operand needs no kernel and is not refused."""
    if operands[0].dtype == dtypes.bool_ and (len(operands) == 1 or all(operand.size for operand in operands)):
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{kernel}\" not implemented for 'Bool'")


def _check_matrices(mat1: Array, mat2: Array) -> None:
    """Check shapes and dtypes of mm as PyTorch does. Raises EngineError: SHAPE, DTYPE, NOT_SUPPORTED."""
    if mat1.ndim != 2 or mat2.ndim != 2:
        raise _shape_error(f"{'self' if mat1.ndim != 2 else 'mat2'} must be a matrix", mat1, mat2)
    if mat1.shape[1] != mat2.shape[0]:
        (n, k), (j, m) = mat1.shape, mat2.shape
        raise _shape_error(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {j}x{m})", mat1, mat2)
    if mat1.dtype != mat2.dtype:
        a, b = _C_NAMES[mat1.dtype], _C_NAMES[mat2.dtype]
        raise EngineError(Reason.DTYPE, f"expected m1 and m2 to have the same dtype, but got: {a} != {b}")
    _refuse_bool("addmm_impl_cpu_", mat1, mat2)


@op(cost=counted(mm_cost, 2.5, 1 << 30))
def mm(xp: Any, input: Array, mat2: Array) -> Array:
    """Product of two matrices (torch.mm).

    input: (n, k); mat2: (k, m) of the same dtype. Raises EngineError: SHAPE, DTYPE.
    """
    _check_matrices(input, mat2)
    return product(xp, input, mat2)


mm.works_in(widens=True)


def _direct_product(a: Array, b: Array) -> Any:
    """The product of float matrices that fit, without checks."""
    if a.dtype != b.dtype or a.dtype not in (dtypes.float32, dtypes.float64):
        return None
    return product_for(a, b) if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] else None


mm.directly(_direct_product)


def _left(g: Any, right: Any) -> Any:
    """Gradient of the left factor of a matrix product."""
    return (mm if g.ndim == 2 else bmm)(g, matrix_t(conj(right)))


def _right(g: Any, left: Any) -> Any:
    """Gradient of the right factor of a matrix product."""
    return (mm if g.ndim == 2 else bmm)(matrix_t(conj(left)), g)


mm.sized_by(lambda input, mat2: input.shape[0] * mat2.shape[1] * input.itemsize, bounded=True)
mm.grad(input=lambda g, mat2: _left(g, mat2), mat2=lambda g, input: _right(g, input)).tangent("multilinear")


def _check_expands(input: Array, target: Array) -> None:
    if input.shape == target.shape[-1:]:
        return
    if input.ndim > target.ndim:
        raise _shape_error(
            f"expand: the number of sizes provided ({target.ndim}) must be greater or equal to the number of "
            f"dimensions in the tensor ({input.ndim})",
            input,
        )
    for back, (size, wanted) in enumerate(zip(input.shape[::-1], target.shape[::-1], strict=False), 1):
        if size not in (1, wanted):
            raise _shape_error(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({size}) at non-singleton "
                f"dimension {target.ndim - back}. Target sizes: {list(target.shape)}. "
                f"Tensor sizes: {list(input.shape)}",
                input,
            )


def _added(input: Array, multiplied: Array, beta: Number, alpha: Number) -> Array:
    """beta * input + alpha * multiplied, computed in place in `multiplied`."""
    _check_expands(input, multiplied)
    if type(beta) is int and type(alpha) is int and beta == alpha == 1:  # nothing to cast
        multiplied += input
        return multiplied
    beta, alpha = (cast_number(factor, multiplied.dtype) for factor in (beta, alpha))
    if alpha != 1:
        multiplied *= multiplied.dtype.type(alpha)
    if beta == 0:  # `input` is ignored, nan included
        return multiplied
    multiplied += input if beta == 1 else input * multiplied.dtype.type(beta)
    return multiplied


def _addmm(xp: Any, input: Array, mat1: Array, mat2: Array, beta: Number, alpha: Number) -> Array:
    if input.dtype != mat2.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[mat2.dtype]
        raise EngineError(Reason.DTYPE, f"self and mat2 must have the same dtype, but got {a} and {b}")
    _check_matrices(mat1, mat2)
    _refuse_bool("addmm_impl_cpu_", mat1)
    if is_half(mat1.dtype):
        wide = matrix_product(xp, mat1.astype(dtypes.float32), mat2.astype(dtypes.float32))
        return _added(input.astype(dtypes.float32), wide, beta, alpha).astype(mat1.dtype)
    return _added(input, matrix_product(xp, mat1, mat2), beta, alpha)


@op(in_place=True, cost=counted(lambda input, one, other, *rest: mm_cost(one, other), 2.5, 1 << 30))
def addmm(xp: Any, input: Array, mat1: Array, mat2: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    """beta * input + alpha * (mat1 @ mat2) (torch.addmm).

    input: broadcasts to (n, m); mat1: (n, k); mat2: (k, m); all of one dtype. Raises EngineError: SHAPE, DTYPE.
    """
    return _addmm(xp, input, mat1, mat2, beta, alpha)


addmm.works_in(widens=True)


def _times(value: Any, factor: Number) -> Any:
    return value if factor == 1 else value * conj(factor)


addmm.sized_by(lambda input, mat1, mat2, beta, alpha: mat1.shape[0] * mat2.shape[1] * mat1.itemsize, bounded=True)
addmm.grad(
    input=lambda g, beta: _times(g, beta),
    mat1=lambda g, mat2, alpha: _times(_left(g, mat2), alpha),
    mat2=lambda g, mat1, alpha: _times(_right(g, mat1), alpha),
)


def _product_tangent(product: Any, one: Any, two: Any, t_one: Any, t_two: Any) -> Any:
    """Tangent of a product of two matrices; None if neither has one."""
    parts = [None if t_one is None else product(t_one, two), None if t_two is None else product(one, t_two)]
    return _sum_of(parts)


def _sum_of(parts: list[Any]) -> Any:
    """Sum of the parts that are not None; None if all are."""
    total = None
    for part in parts:
        total = part if total is None else total if part is None else total + part
    return total


def _scaled(value: Any, factor: Number) -> Any:
    return value if value is None or factor == 1 else value * factor


addmm.tangent(
    lambda t_input, t_mat1, t_mat2, mat1, mat2, beta, alpha: _sum_of(
        [_scaled(t_input, beta), _scaled(_product_tangent(mm, mat1, mat2, t_mat1, t_mat2), alpha)]
    )
)


# The two products of `linear`. They differ from addmm and mm in the layout of the second gradient: that of the
# transposed weight is computed transposed, so the weight's gradient is row-major.
@op(
    name="_linear_addmm",
    node="AddmmBackward0",
    cost=counted(lambda input, one, other: mm_cost(one, other), 2.5, 1 << 30),
)
def _linear_addmm(xp: Any, input: Array, mat1: Array, mat2: Array) -> Array:
    return _addmm(xp, input, mat1, mat2, 1, 1)


_linear_addmm.works_in(widens=True)
_linear_addmm.sized_by(lambda input, mat1, mat2: mat1.shape[0] * mat2.shape[1] * mat1.itemsize, bounded=True)


def _direct_linear(input: Array, mat1: Array, mat2: Array) -> Any:
    """The product of float matrices that fit, and a row that is added, without checks."""
    multiplied = _direct_product(mat1, mat2)
    if multiplied is None or input.dtype != mat1.dtype or input.shape != mat2.shape[1:]:
        return None

    def computed(xp: Any, input: Array, mat1: Array, mat2: Array) -> Array:
        made = multiplied(xp, mat1, mat2)
        made += input
        return made

    return computed


_linear_addmm.directly(_direct_linear)


@op(name="_linear_mm", node="MmBackward0", cost=counted(mm_cost, 2.5, 1 << 30))
def _linear_mm(xp: Any, input: Array, mat2: Array) -> Array:
    _check_matrices(input, mat2)
    return product(xp, input, mat2)


_linear_mm.works_in(widens=True).directly(_direct_product)
_linear_mm.sized_by(lambda input, mat2: math.prod(input.shape[:-1]) * mat2.shape[1] * input.itemsize, bounded=True)


def _right_column_major(g: Any, left: Any) -> Any:
    return matrix_t(mm(matrix_t(g), conj(left)))


_linear_addmm.grad(
    input=lambda g: g,
    mat1=lambda g, mat2: _left(g, mat2),
    mat2=lambda g, mat1: _right_column_major(g, mat1),
)
_linear_addmm.tangent(
    lambda t_input, t_mat1, t_mat2, mat1, mat2: _sum_of(
        [t_input, _product_tangent(_linear_mm, mat1, mat2, t_mat1, t_mat2)]
    )
)
_linear_mm.grad(input=lambda g, mat2: _left(g, mat2), mat2=lambda g, input: _right_column_major(g, input))
_linear_mm.tangent("multilinear")


@composite
def linear(input: Array, weight: Array, bias: Array | None = None) -> Any:
    """input @ weight.T + bias (torch.nn.functional.linear).

    input: (..., k); weight: (m, k) or (k,); bias: (m,). Raises EngineError: SHAPE, DTYPE.
    """
    if not (input.ndim and weight.ndim):
        raise EngineError(
            Reason.RUNTIME,
            f"both arguments to linear need to be at least 1D, but they are {input.ndim}D and {weight.ndim}D",
        )
    if weight.ndim == 1:
        applied = matmul(input, weight)
        return applied if bias is None else applied + bias
    weight = matrix_t(weight)
    if input.ndim == 2:
        return _linear_mm(input, weight) if bias is None else _linear_addmm(bias, input, weight)
    if bias is not None and not is_row_major(input):
        return matmul(input, weight) + bias
    rows = fold(input, (-1, input.shape[-1]) if input.size else (_count(input.shape[:-1]), input.shape[-1]))
    applied = _linear_mm(rows, weight) if bias is None else _linear_addmm(bias, rows, weight)
    if bias is None and input.ndim == 1:
        return _squeezed(applied)
    shape = (*input.shape[:-1], weight.shape[1])
    return _unsafe_view(applied, shape) if bias is None else fold(applied, shape)


def _count(shape: Ints) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


@op(cost=counted(bmm_cost, 3.0, 1 << 30))
def bmm(xp: Any, input: Array, mat2: Array) -> Array:
    """Products of two batches of matrices (torch.bmm).

    input: (b, n, k); mat2: (b, k, m) of the same dtype. Raises EngineError: SHAPE, DTYPE.
    """
    _check_batches(input, mat2)
    return product(xp, input, mat2)


bmm.works_in(widens=True)


def _check_batches(batch1: Array, batch2: Array) -> None:
    for place, batch in enumerate((batch1, batch2), 1):
        if batch.ndim != 3:
            raise _shape_error(f"batch{place} must be a 3D tensor", batch1, batch2)
    expected = [batch1.shape[0], batch1.shape[2]]
    if [*batch2.shape[:2]] != expected:
        raise _shape_error(
            f"Expected size for first two dimensions of batch2 tensor to be: {expected} but got: "
            f"{[*batch2.shape[:2]]}.",
            batch1,
            batch2,
        )
    _check_scalar_type("bmm", batch1, batch2)


def _check_scalar_type(kernel: str, a: Array, b: Array) -> None:
    if a.dtype != b.dtype:
        expected, found = dtypes.TITLES[a.dtype], dtypes.TITLES[b.dtype]
        raise EngineError(Reason.DTYPE, f"expected scalar type {expected} but found {found}")
    _refuse_bool(kernel, a, b)


bmm.sized_by(lambda input, mat2: input.shape[0] * input.shape[1] * mat2.shape[2] * input.itemsize, bounded=True)
bmm.grad(input=lambda g, mat2: _left(g, mat2), mat2=lambda g, input: _right(g, input)).tangent("multilinear")


@op(in_place=True, cost=counted(lambda input, one, other, *rest: bmm_cost(one, other), 3.0, 1 << 30))
def baddbmm(xp: Any, input: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    """beta * input + alpha * bmm(batch1, batch2) (torch.baddbmm).

    input: broadcasts to (b, n, m); batch1: (b, n, k); batch2: (b, k, m). Raises EngineError: SHAPE, DTYPE.
    """
    _check_batches(batch1, batch2)
    _refuse_bool("bmm", batch1)
    _check_scalar_type("baddbmm", batch1, input)
    if is_half(batch1.dtype):
        wide = matrix_product(xp, batch1.astype(dtypes.float32), batch2.astype(dtypes.float32))
        return _added(input.astype(dtypes.float32), wide, beta, alpha).astype(batch1.dtype)
    return _added(input, matrix_product(xp, batch1, batch2), beta, alpha)


baddbmm.works_in(widens=True)
baddbmm.sized_by(
    lambda input, batch1, batch2, beta, alpha: math.prod(batch1.shape[:2]) * batch2.shape[2] * batch1.itemsize,
    bounded=True,
)
baddbmm.grad(
    input=lambda g, beta: _times(g, beta),
    batch1=lambda g, batch2, alpha: _times(_left(g, batch2), alpha),
    batch2=lambda g, batch1, alpha: _times(_right(g, batch1), alpha),
)
baddbmm.tangent(
    lambda t_input, t_batch1, t_batch2, batch1, batch2, beta, alpha: _sum_of(
        [_scaled(t_input, beta), _scaled(_product_tangent(bmm, batch1, batch2, t_batch1, t_batch2), alpha)]
    )
)


@op(cost=indexing(4))
def mv(xp: Any, input: Array, vec: Array) -> Array:
    """Product of a matrix and a vector (torch.mv).

    input: (n, k); vec: (k,) of the same dtype. Raises EngineError: SHAPE, DTYPE.
    """
    if not input.ndim:
        raise EngineError(Reason.DIM_OUT_OF_RANGE, "mv: Dimension specified as 0 but tensor has no dimensions")
    if input.ndim != 2 or vec.ndim != 1:
        raise _shape_error(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}", input, vec)
    if input.shape[1] != vec.shape[0]:
        n, k = input.shape
        raise _shape_error(f"size mismatch, got input ({n}), mat ({n}x{k}), vec ({vec.shape[0]})", input, vec)
    if input.dtype != vec.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[vec.dtype]
        raise EngineError(Reason.DTYPE, f"addmv input tensors must have the same dtype, but got {b}, {a}, and {b}")
    _refuse_bool("addmv_impl_cpu", input, vec)
    return product(xp, input, vec)


mv.grad(
    input=lambda g, vec: fold(g, (-1, 1)) * fold(conj(vec), (1, -1)),
    vec=lambda g, input: mv(matrix_t(conj(input)), g),
).tangent("multilinear")


@op(cost=indexing(4))
def dot(xp: Any, input: Array, tensor: Array) -> Array:
    """Dot product of two vectors (torch.dot).

    input, tensor: (k,) of the same dtype. Raises EngineError: SHAPE, DTYPE.
    """
    if input.ndim != 1 or tensor.ndim != 1:
        raise _shape_error(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors", input, tensor)
    if input.dtype != tensor.dtype:
        a, b = dtypes.TITLES[input.dtype], dtypes.TITLES[tensor.dtype]
        raise EngineError(Reason.DTYPE, f"dot : expected both vectors to have same dtype, but found {a} and {b}")
    if input.shape != tensor.shape:
        a, b = input.shape[0], tensor.shape[0]
        raise _shape_error(
            f"inconsistent tensor size, expected tensor [{a}] and src [{b}] to have the same number of elements, "
            f"but got {a} and {b} elements respectively",
            input,
            tensor,
        )
    _refuse_bool("dot", input)
    return product(xp, input, tensor)


dot.grad(input=lambda g, tensor: g * conj(tensor), tensor=lambda g, input: g * conj(input)).tangent("multilinear")


def _broadcast_node(input: Any, other: Any) -> str:
    """Node name. Where one matrix on the left needs a gradient, PyTorch folds the batch on the right, and copies."""
    expands = input.ndim == 3 == other.ndim and input.shape[0] == 1 != other.shape[0]
    folds = (input.ndim == 2 or expands) and getattr(input, "requires_grad", False)
    return "CloneBackward0" if folds else "UnsafeViewBackward0"


def _batched_bytes(input: Array, other: Array) -> int:
    batch = broadcast_shape(input.shape[:-2], other.shape[:-2])
    return int(math.prod(batch) * input.shape[-2] * other.shape[-1] * input.itemsize)


@op(name="_matmul_batched", node=_broadcast_node, cost=counted(bmm_cost, 3.0, 1 << 30))
def _matmul_batched(xp: Any, input: Array, other: Array) -> Array:
    """Batched products; batches broadcast, and each operand has at least two dimensions."""
    if input.shape[-1] != other.shape[-2]:
        (n, k), (j, m) = input.shape[-2:], other.shape[-2:]
        if input.ndim == 2:
            raise _shape_error(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {j}x{m})", input, other)
        batch = np.broadcast_shapes(input.shape[:-2], other.shape[:-2])
        raise _shape_error(
            f"Expected size for first two dimensions of batch2 tensor to be: {[_count(batch), k]} but got: "
            f"{[_count(batch), j]}.",
            input,
            other,
        )
    for back in range(3, min(input.ndim, other.ndim) + 1):
        m, n = input.shape[-back], other.shape[-back]
        if m != n and 1 not in (m, n):
            raise _shape_error(
                f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton dimension "
                f"{max(input.ndim, other.ndim) - back}",
                input,
                other,
            )
    _check_scalar_type("bmm", input, other)
    return product(xp, input, other)


_matmul_batched.works_in(widens=True)
_matmul_batched.sized_by(_batched_bytes, bounded=True)
_matmul_batched.grad(
    input=lambda g, other: _matmul_batched(g, matrix_t(conj(other))),
    other=lambda g, input: _matmul_batched(matrix_t(conj(input)), g),
).tangent("multilinear")


@composite
def matmul(input: Array, other: Array) -> Any:
    """input @ other: vectors, matrices, or batches of them that broadcast (torch.matmul).

    Raises EngineError: SHAPE if the sizes do not match, DTYPE if the dtypes differ.
    """
    left, right = input.ndim, other.ndim
    if left == 2 and right == 2:
        return mm(input, other)
    if not left or not right:
        raise _shape_error(
            f"both arguments to matmul need to be at least 1D, but they are {left}D and {right}D", input, other
        )
    if left == 1 and right == 1:
        return dot(input, other)
    if left == 2 and right == 1:
        return mv(input, other)
    if left == 1:
        row = fold(input, (1, -1))
        if right == 2:
            return _squeezed(mm(row, other))
        return _unsafe_view(_matmul_batched(row, other), (*other.shape[:-2], other.shape[-1]))
    if right <= 2:  # fold the batch into the rows of one product
        rows = fold(input, (_count(input.shape[:-1]), input.shape[-1]))
        multiplied = mm(rows, other) if right == 2 else mv(rows, other)
        return _unsafe_view(multiplied, (*input.shape[:-1], *other.shape[1:]))
    return _matmul_batched(input, other)


@op(name="_squeezed", view=True, node="SqueezeBackward4", cost=4)
def _squeezed(xp: Any, input: Array) -> Array:
    """A matrix of one row as a vector."""
    return input[0]


_squeezed.works_in(backward=0, grows=False)
_squeezed.grad(input=lambda g: fold(g, (1, -1))).tangent("linear")


@composite
def outer(input: Array, vec2: Array) -> Any:
    """Outer product of two vectors (torch.outer).

    input: (n,); vec2: (m,). Raises EngineError: SHAPE.
    """
    for name, operand in (("self", input), ("vec2", vec2)):
        if operand.ndim != 1:
            raise _shape_error(f"outer: Expected 1-D argument {name}, but got {operand.ndim}-D", input, vec2)
    return fold(input, (-1, 1)) * vec2


@op(cost=4)
def trace(xp: Any, input: Array) -> Array:
    """Sum of a matrix's diagonal (torch.trace). input: (n, m). Raises EngineError: SHAPE."""
    _refuse_bool("trace", input)
    if input.ndim != 2:
        raise _shape_error(f"trace: expected a matrix, but got tensor with dim {input.ndim}", input)
    whole = dtypes.category(input.dtype) < dtypes.FLOAT
    return xp.trace(input, dtype=dtypes.int64 if whole else input.dtype)


@op(name="_trace_backward", cost=of_shape(2, 1))
def _trace_backward(xp: Any, grad: Array, size: Ints) -> Array:
    return xp.eye(*size, dtype=grad.dtype) * grad


_trace_backward.sized_by(lambda grad, size: 2 * math.prod(size) * grad.itemsize)
trace.grad(input=lambda g, input_meta: _trace_backward(g, input_meta.shape)).tangent("linear")
_trace_backward.grad(grad=lambda g: trace(g)).tangent("linear")
