"""`out=`: writes an op's result into an existing tensor."""

from __future__ import annotations

import warnings
from typing import Any

from gradwire._base import dtypes
from gradwire._base.errors import GradwireNotImplementedError, GradwireTypeError, refuse
from gradwire._base.modes import GRAD_ENABLED, no_grad
from gradwire._graph import commands
from gradwire._proxy.handle import Handle
from gradwire._proxy.overlap import refuse_overlap
from gradwire._tensor.batching import BATCHING, OUTS
from gradwire._tensor.in_place_views import is_shared
from gradwire.v1 import errors_pb2

# Functions that fill an output of as many elements in row-major order, whatever its shape.
_IN_ORDER = frozenset(["arange", "linspace", "logspace", "range"])
# Functions that resize an output without a warning.
_RESIZE_IN_SILENCE = frozenset(
    [
        "bernoulli",
        "empty",
        "eye",
        "full",
        "linspace",
        "logspace",
        "multinomial",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "range",
        "zeros",
    ]
)
_REAL = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
# Functions that take no output of another dtype.
_EXACT = frozenset(
    [
        "abs",
        "addbmm",
        "addmm",
        "addmv",
        "all",
        "amax",
        "amin",
        "aminmax",
        "any",
        "argmax",
        "argmin",
        "avg_pool2d",
        "avg_pool3d",
        "baddbmm",
        "bmm",
        "bucketize",
        "ceil",
        "clamp",
        "clamp_max",
        "clamp_min",
        "complex",
        "conj_physical",
        "cross",
        "cummax",
        "cummin",
        "diag",
        "dot",
        "float_power",
        "floor",
        "frac",
        "frexp",
        "gather",
        "gelu",
        "hardshrink",
        "hash_tensor",
        "heaviside",
        "histc",
        "index_add",
        "index_copy",
        "index_reduce",
        "index_select",
        "inner",
        "inverse",
        "isin",
        "isneginf",
        "isposinf",
        "kthvalue",
        "lerp",
        "linalg.cholesky",
        "linalg.cross",
        "linalg.det",
        "linalg.eigh",
        "linalg.eigvalsh",
        "linalg.inv",
        "linalg.ldl_factor",
        "linalg.ldl_factor_ex",
        "linalg.ldl_solve",
        "linalg.lu",
        "linalg.lu_factor",
        "linalg.lu_factor_ex",
        "linalg.matrix_norm",
        "linalg.matrix_power",
        "linalg.multi_dot",
        "linalg.norm",
        "linalg.qr",
        "linalg.slogdet",
        "linalg.solve",
        "linalg.svd",
        "linalg.svdvals",
        "linalg.vecdot",
        "linalg.vector_norm",
        "linear",
        "log_softmax",
        "logcumsumexp",
        "logsigmoid",
        "masked_select",
        "matmul",
        "max",
        "median",
        "min",
        "mm",
        "mode",
        "msort",
        "mv",
        "nan_to_num",
        "nanmedian",
        "nanquantile",
        "neg",
        "norm",
        "polar",
        "qr",
        "quantile",
        "renorm",
        "round",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "searchsorted",
        "sgn",
        "sign",
        "signbit",
        "slice_scatter",
        "softmax",
        "softplus",
        "softshrink",
        "sort",
        "svd",
        "take",
        "take_along_dim",
        "tensordot",
        "topk",
        "tril",
        "triu",
        "trunc",
        "vdot",
    ]
)


def _into(op: str, out: Any, made: Any, given: tuple[Any, ...] = ()) -> Any:
    """Copy the values of an op's result `made` to `out`; return `out`. `given` are the op's operands.

    An `out` of another shape is resized, with a warning unless it was empty. Raises RuntimeError if gradients would
    have to flow, or if the result's dtype does not fit; NotImplementedError if tangents would have to. RuntimeError is
    also raised if a tensor to resize shares its memory or is an operand, and if `out` overlaps operands partly.
    Raises TypeError if `out` is not a tensor.
    """
    if not isinstance(out, Handle):
        raise GradwireTypeError(f"{op}(): argument 'out' must be Tensor, not {type(out).__name__}")
    target: Any = out
    if GRAD_ENABLED.get() and (made.requires_grad or target.requires_grad):
        raise refuse(
            f"{op}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if made._spec.tangents or target._spec.tangents:
        raise GradwireNotImplementedError(
            f"Trying to use forward AD with {op}_out that does not support it because it is an out= function"
        )
    for shown in OUTS if BATCHING else ():
        if shown(target, made, lambda: _into(op, target, made, given)):
            return target
    if target.dtype is not made.dtype:
        _check_dtype(op, target, made, given)
    if target._storage is not None and target.shape == made.shape:
        refuse_overlap(op, target, given)
    if op in _IN_ORDER and target.numel() == made.numel():
        made = made.view(target.shape)
    if target.shape != made.shape:
        _resize(op, target, made, given)
        return target
    with no_grad():
        target.copy_(made)
    return target


def _into_each(op: str, out: Any, made: Any, given: tuple[Any, ...] = ()) -> Any:
    """Copy an op's results to the tensors of `out`, as `_into` does; return them in the op's return form.

    Raises TypeError for another number of tensors, and what `_into` raises.
    """
    if isinstance(made, Handle):  # max(a, b)
        return _into(op, out, made, given)
    if not isinstance(out, (tuple, list)):
        raise GradwireTypeError(f"{op}(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
    if len(out) != len(made):
        raise GradwireTypeError(f"{op}(): expected tuple of {len(made)} elements but got {len(out)}")
    return type(made)(*[_into(op, target, each, given) for target, each in zip(out, made, strict=True)])


def _check_dtype(op: str, target: Any, made: Any, given: tuple[Any, ...]) -> None:
    from gradwire._base.promotion import can_cast

    if op == "bernoulli":  # draws in the output's dtype
        if target.dtype.is_complex:
            raise GradwireNotImplementedError(f"\"bernoulli\" not implemented for '{target.dtype.title}'")
        return
    if op in ("complex", "polar"):
        raise refuse(
            f"Expected object of scalar type {made.dtype.title} but got scalar type {target.dtype.title} for argument "
            "'out'",
            errors_pb2.REASON_DTYPE,
        )
    is_modulus = op == "abs" and given[0].is_complex() and target.dtype in (given[0].dtype, *_REAL)
    if op in _EXACT and not is_modulus:
        raise refuse(
            f"{op}(): Expected out tensor to have dtype {made.dtype.name}, but got {target.dtype.name} instead",
            errors_pb2.REASON_DTYPE,
        )
    if not can_cast(made.dtype, target.dtype):
        if op == "cat":
            raise TypeError(f"cat(): input types can't be cast to the desired output type {target.dtype.title}")
        raise refuse(f"result type {made.dtype.title} can't be cast to the desired output type {target.dtype.title}")


def _resize(op: str, target: Any, made: Any, given: tuple[Any, ...]) -> None:
    """Give a tensor the shape and memory of `made`. Raises RuntimeError if it is an operand or shares its memory."""
    if any(each is target for value in given for each in (value if type(value) in (list, tuple) else (value,))):
        raise refuse(
            f"{op}(): output with shape {list(target.shape)} doesn't match the broadcast shape {list(made.shape)}, and "
            "it is an operand, too",
            errors_pb2.REASON_SHAPE,
        )
    shared = is_shared(target)
    if target.numel() and op not in _RESIZE_IN_SILENCE:
        warnings.warn(_resized(op, target, made), UserWarning, stacklevel=4)
    if shared:
        _write_over(op, target, made)
        return
    with no_grad():
        target.zero_()  # counts as an in-place change, so values saved from the target are not used
        # An inference tensor as data would make the target an inference tensor too.
        same = made.is_inference() == target.is_inference()
        target.data = made.to(target.dtype) if same else made.clone().to(target.dtype)


def _resized(op: str, target: Any, made: Any) -> str:
    """The text of the warning; that of `arange` counts elements."""
    if op == "arange":
        return (
            f"The number of elements in the out tensor of shape {list(target.shape)} is {target.numel()} which does "
            f"not match the computed number of elements {made.numel()}. Note that this may occur as a result of "
            f"rounding error. The out tensor will be resized to a tensor of shape ({made.numel()},)."
        )
    return (
        f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does not "
        f"match the required output shape {list(made.shape)}. This behavior is deprecated, and in a future PyTorch "
        "release outputs will not be resized unless they have zero elements. You can explicitly reuse an out tensor t "
        "by resizing it, inplace, to zero elements with t.resize_(0)."
    )


def _write_over(op: str, target: Any, made: Any) -> None:
    """Lay a tensor that shares its memory out anew from its first element, and copy `made` to it.

    Its dimensions are in the order of the memory of `made`, as other tensors on this memory see it.
    Raises RuntimeError where the memory is too small for that.
    """
    held = list(target.shape)
    version = None if target.is_inference() else target._version
    with no_grad():
        try:
            target.resize_(made.shape)
            if _has_no_gaps(made):
                target.as_strided_(made.shape, made.stride())
        except RuntimeError as error:
            raise refuse(
                f"{op}(): an output of shape {held} cannot be resized to {list(made.shape)}: it shares its memory "
                "with other tensors. Give one of the result's shape, or a clone",
                errors_pb2.REASON_SHAPE,
            ) from error
        target.copy_(made)
    if version is not None:  # one change, whatever it took
        commands.counters(target, version=version + 1)


def _has_no_gaps(made: Any) -> bool:
    """Whether a tensor's elements fill its memory, each once, in any order of its dimensions."""
    dimensions = zip(made.stride(), made.shape, strict=True)
    expected = 1
    for stride, size in sorted(each for each in dimensions if each[1] > 1):
        if stride != expected:
            return False
        expected *= size
    return True
