"""`out=`: a result that is written into a tensor that is there already."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from gradwire._base.errors import GradwireTypeError, refuse
from gradwire._base.modes import GRAD_ENABLED, no_grad
from gradwire._proxy.handle import Handle
from gradwire.v1 import errors_pb2

# The ops whose `out` must have the result's dtype; of the others the result is cast, as by copy_.
_EXACT = frozenset(
    [
        "abs",
        "addbmm",
        "addmm",
        "addmv",
        "all",
        "amax",
        "amin",
        "any",
        "argmax",
        "argmin",
        "baddbmm",
        "bmm",
        "bucketize",
        "ceil",
        "clamp",
        "clamp_max",
        "clamp_min",
        "complex",
        "cross",
        "diag",
        "dot",
        "float_power",
        "floor",
        "frac",
        "gather",
        "heaviside",
        "histc",
        "index_select",
        "inner",
        "inverse",
        "isneginf",
        "isposinf",
        "lerp",
        "linalg.cholesky",
        "linalg.cross",
        "linalg.det",
        "linalg.eigvalsh",
        "linalg.inv",
        "linalg.matrix_norm",
        "linalg.matrix_power",
        "linalg.multi_dot",
        "linalg.norm",
        "linalg.solve",
        "linalg.svdvals",
        "linalg.vecdot",
        "linalg.vector_norm",
        "logcumsumexp",
        "masked_select",
        "matmul",
        "mm",
        "mv",
        "nan_to_num",
        "nanquantile",
        "neg",
        "norm",
        "polar",
        "quantile",
        "renorm",
        "round",
        "searchsorted",
        "sgn",
        "sign",
        "signbit",
        "take_along_dim",
        "tril",
        "triu",
        "trunc",
        "vdot",
    ]
)


def _into(op: str, out: Any, made: Any, given: tuple[Any, ...] = ()) -> Any:
    """Give `out` the values of what an op has made of what it was `given`; the answer is `out`.

    One of another shape is resized, with a warning unless it was empty. Raises RuntimeError where gradients would have
    to pass, where the result's dtype does not fit, and where what is to be resized shares its memory; TypeError for
    what is no tensor.
    """
    if not isinstance(out, Handle):
        raise GradwireTypeError(f"{op}(): argument 'out' must be Tensor, not {type(out).__name__}")
    target: Any = out
    if GRAD_ENABLED.get() and (made.requires_grad or target.requires_grad):
        raise refuse(
            f"{op}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if target.dtype is not made.dtype:
        _check_dtype(op, target, made)
    if target.shape != made.shape:
        _resize(op, target, made, given)
        return target
    with no_grad():
        target.copy_(made)
    return target


def _check_dtype(op: str, target: Any, made: Any) -> None:
    from gradwire._base.promotion import can_cast

    if op in _EXACT:
        raise refuse(
            f"{op}(): Expected out tensor to have dtype {made.dtype.name}, but got {target.dtype.name} instead",
            errors_pb2.REASON_DTYPE,
        )
    if not can_cast(made.dtype, target.dtype):
        raise refuse(f"result type {made.dtype.title} can't be cast to the desired output type {target.dtype.title}")


def _resize(op: str, target: Any, made: Any, given: tuple[Any, ...]) -> None:
    """Give a tensor another shape and new memory. Raises RuntimeError where others would have to see it."""
    if any(each is target for value in given for each in (value if type(value) in (list, tuple) else (value,))):
        raise refuse(
            f"{op}(): output with shape {list(target.shape)} doesn't match the broadcast shape {list(made.shape)}, and "
            "it is an operand, too",
            errors_pb2.REASON_SHAPE,
        )
    # The family's other holders are the tensors on the same bytes; this call's own reference makes the second.
    if target._family is not None and sys.getrefcount(target._family) > _ALONE:
        raise refuse(
            f"{op}(): an output of shape {list(target.shape)} cannot be resized to {list(made.shape)}: it shares its "
            "memory with other tensors. Give one of the result's shape, or a clone",
            errors_pb2.REASON_SHAPE,
        )
    if target.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(target.shape)}, which does "
            f"not match the required output shape {list(made.shape)}.",
            UserWarning,
            stacklevel=4,
        )
    with no_grad():
        target.zero_()  # counts as a change, so that what was saved of it is not used
        # What inference mode has made would make the target an inference tensor, too.
        same = made.is_inference() == target.is_inference()
        target.data = made.to(target.dtype) if same else made.clone().to(target.dtype)


# References to the family of a tensor that shares its bytes with none: its own, and that of the count.
_ALONE = 2
