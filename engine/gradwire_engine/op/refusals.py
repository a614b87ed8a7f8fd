"""Refusals of ops, with PyTorch's messages: forbidden in-place changes, and errors that NumPy or CuPy raised."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Tensor, check_base, refuse_origin

if TYPE_CHECKING:
    from gradwire_engine.core.context import Context
    from gradwire_engine.graph.protocols import Named

# NumPy and CuPy raise this subclass of TypeError for a dtype that has no loop.
_NoLoop: type[Exception] = np._core._exceptions._UFuncNoLoopError  # type: ignore[attr-defined]
# CuPy's own words for the same, in a plain TypeError.
_NO_LOOP = ("not supported", "Wrong type (")
# Raised by NumPy, CuPy and Python arithmetic for invalid arguments.
REFUSED: tuple[type[Exception], ...] = (
    ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError, AttributeError, MemoryError
)  # fmt: skip


def check_in_place(target: Tensor) -> None:
    """Check that an in-place change may be recorded. Raises EngineError: LEAF_IN_PLACE, RUNTIME."""
    view = target.view
    if view is not None:
        check_base(target, view)
        if view.origin is not None:
            refuse_origin(target, view.origin, "is being")
        if target.requires_grad and view.base.is_leaf:
            raise EngineError(
                Reason.LEAF_IN_PLACE,
                "a view of a leaf Variable that requires grad is being used in an in-place operation.",
            )
    if target.requires_grad and target.is_leaf:
        raise EngineError(
            Reason.LEAF_IN_PLACE, "a leaf Variable that requires grad is being used in an in-place operation."
        )


def refuse_changed(tensor: Tensor, gradient: Any) -> None:
    """Refuse a gradient whose sizes differ from the tensor's or its `.grad`'s. Always raises EngineError: SHAPE."""
    held = "" if tensor.grad is None else f", and its .grad is of shape {list(tensor.grad.shape)}"
    raise EngineError(
        Reason.SHAPE,
        f"backward returned an invalid gradient - got {list(gradient.shape)} but expected shape compatible with "
        f"{list(tensor.shape)}: the tensor's sizes were changed in place after its use{held}",
    )


def check_inference(context: Context) -> None:
    """Refuse an in-place change of an inference tensor outside inference mode. Raises EngineError: RUNTIME."""
    if not context.inference:
        raise EngineError(
            Reason.RUNTIME,
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a "
            "normal tensor before doing inplace update.",
        )


def check_writable(array: Array) -> None:
    """Refuse an array whose elements share memory. Raises EngineError: RUNTIME."""
    if shares_elements(array):
        raise EngineError(
            Reason.RUNTIME,
            "unsupported operation: more than one element of the written-to tensor refers to a single memory "
            "location. Please clone() the tensor before performing the operation.",
        )


def shares_elements(array: Array) -> bool:
    """Whether several elements share memory by a stride of 0; other overlaps are not detected."""
    return bool(array.size) and any(
        size > 1 and stride == 0 for size, stride in zip(array.shape, array.strides, strict=True)
    )


def check_overlap(written: Array, read: Array) -> None:
    """Refuse an operand that partly overlaps the written memory, because the result would depend on the write order.

    Identical layouts are allowed. As in PyTorch, only dense arrays are checked. Raises EngineError: RUNTIME.
    """
    same = written is read or (_ends(written) == _ends(read) and written.strides == read.strides)
    if not same and _overlaps(written, read) and not _same_elements(written, read):
        _refuse_overlap()


def check_no_overlap(written: Array, given: Any) -> None:
    """Refuse operands, including those in lists, that share any written memory. Raises EngineError: RUNTIME."""
    for each in given:
        if type(each) is list:
            check_no_overlap(written, each)
        elif type(each) is Tensor and (each.array is written or _overlaps(written, each.array)):
            _refuse_overlap()


def _overlaps(written: Array, read: Array) -> bool:
    """Whether two arrays share memory; False unless both are dense."""
    if not (written.size and read.size and is_dense(written) and is_dense(read)):
        return False
    (low, high), (first, last) = _ends(written), _ends(read)
    return high > first and last > low


def _same_elements(one: Array, other: Array) -> bool:
    """Whether two arrays have the same elements in the same places; the strides of dimensions of size 1 are open."""
    steps = zip(one.shape, one.strides, other.strides, strict=False)
    return one.shape == other.shape and _ends(one) == _ends(other) and all(n == 1 or a == b for n, a, b in steps)


def _refuse_overlap() -> None:
    raise EngineError(
        Reason.RUNTIME,
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
        "location. Please clone() the tensor before performing the operation.",
    )


def is_dense(array: Array) -> bool:
    """Whether the elements fill a contiguous range of memory, in any order of dimensions."""
    step = array.itemsize
    for stride, size in sorted(zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride != step:
                return False
            step *= size
    return True


def memory_axes(value: Any) -> list[int] | None:
    """Axes from the outermost in memory to the innermost, if they are no row-major order and there are no gaps."""
    array = value.array if type(value) is Tensor else value
    if array.flags.c_contiguous or not is_dense(array):
        return None
    return sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))


def _ends(array: Array) -> tuple[int, int]:
    start = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
    return start, start + array.nbytes


def check_result(name: str, target: Tensor, result: Any) -> None:
    shape, wanted = tuple(getattr(result, "shape", ())), target.shape
    if shape != wanted:
        raise EngineError(
            Reason.SHAPE,
            f"output with shape {list(wanted)} doesn't match the broadcast shape {list(shape)} in {name}_()",
            op=f"{name}_",
        )
    dtype = getattr(result, "dtype", target.dtype)
    if dtypes.category(dtype) > dtypes.category(target.dtype):
        raise EngineError(
            Reason.DTYPE,
            f"result type {dtypes.TITLES[dtype]} can't be cast to the desired output type "
            f"{dtypes.TITLES[target.dtype]} in {name}_()",
            op=f"{name}_",
        )


def explain_backward(op: Named, g: Any, values: list[Any], error: Exception) -> EngineError:
    """Translate an array module's error in an op's formula into a refusal."""
    found = explain(op, (g, *values), error)
    return EngineError(found.reason, f"backward of {found.message}", **found.metadata)


def _not_converged(op: Named, given: list[Any], error: Exception, details: dict[str, object]) -> EngineError:
    """The refusal of matrices for which LAPACK found no result, named as PyTorch's function."""
    name = "linalg.svd" if "SVD" in str(error) else op.name
    message = str(error)
    values = given[0] if given else np.zeros(())
    bad = ~np.isfinite(values if isinstance(values, np.ndarray) else values.get()).all((-2, -1))
    if bad.any():
        which = f"(Batch element {int(np.argmax(bad))}): " if bad.ndim else ""
        message = f"{which}The algorithm failed to converge because the input matrix contained non-finite values."
    return EngineError(Reason.RUNTIME, f"{name}: {message}", **details, linalg_error=True)


def explain(op: Named, args: tuple[Any, ...], error: Exception) -> EngineError:
    """Translate an array module's error into a refusal with PyTorch's message."""
    given = [value for value in args if hasattr(value, "shape") and not isinstance(value, np.dtype)]
    shapes = [list(value.shape) for value in given]
    details: dict[str, object] = {"op": op.name, "shapes": shapes}
    if isinstance(error, np.linalg.LinAlgError):
        return _not_converged(op, given, error, details)
    if isinstance(error, MemoryError):
        return EngineError(Reason.MEMORY_LIMIT, f"{op.name}: not enough memory: {error}", **details)
    if isinstance(error, np.exceptions.AxisError):
        return EngineError(Reason.DIM_OUT_OF_RANGE, f"{op.name}: Dimension out of range: {error}", **details)
    if isinstance(error, IndexError):
        return EngineError(Reason.INDEX_OUT_OF_RANGE, f"{op.name}: index out of range: {error}", **details)
    if isinstance(error, OverflowError):
        return EngineError(Reason.ARGUMENT_VALUE, f"{op.name}: a number is out of range: {error}", **details)
    if isinstance(error, _NoLoop) or (isinstance(error, TypeError) and any(words in str(error) for words in _NO_LOOP)):
        names = ", ".join(dtypes.TITLES.get(value.dtype, str(value.dtype)) for value in given)
        return EngineError(Reason.NOT_SUPPORTED, f"\"{op.name}\" not implemented for '{names}'", **details)
    if isinstance(error, TypeError | AttributeError):
        return EngineError(Reason.ARGUMENT_TYPE, f"{op.name}() got an invalid argument: {error}", **details)
    if getattr(op, "promotes", None) and len(given) > 1:
        for a, b in itertools.combinations(given, 2):
            for back in range(1, min(a.ndim, b.ndim) + 1):
                m, n = a.shape[-back], b.shape[-back]
                if m != n and 1 not in (m, n):
                    return EngineError(
                        Reason.SHAPE,
                        f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton dimension "
                        f"{max(a.ndim, b.ndim) - back}: {op.name} was given shapes {shapes[0]} and {shapes[1]}",
                        **details,
                    )
    return EngineError(Reason.RUNTIME, f"{op.name}: {error} (shapes {shapes})", **details)
