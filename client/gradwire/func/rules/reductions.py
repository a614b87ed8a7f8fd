"""Batching rules of reductions and of ops along a dimension."""

from __future__ import annotations

from typing import Any

from gradwire._tensor.call import _call
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import Level
from gradwire.func._pytree import tree_map
from gradwire.func.rules.calls import OpCall, rule, shifted, shifted_all


@rule(
    "sum mean prod amax amin max min argmax argmin all any std var std_mean var_mean logsumexp nansum nanmean median "
    "nanmedian norm mode kthvalue aminmax linalg.vector_norm count_nonzero cummax cummin"
)
def reduction(call: OpCall) -> Any:
    """Without dimensions all but the batch's are reduced, as one."""
    second = call.get("dim") if "dim" in call.names else None
    if call.base in ("max", "min") and (isinstance(second, Tensor) or call.kwargs.get("other") is not None):
        other = second if isinstance(second, Tensor) else call.kwargs["other"]
        return _call("maximum" if call.base == "max" else "minimum", (call.args[0], other))
    level, ndim, value = call.level, call.args[0].dim(), call.first()
    dim = call.get("dim")
    if dim is None and call.base in ("mode", "kthvalue"):
        dim = -1
    keepdim = bool("keepdim" in call.names and call.get("keepdim", False))
    whole = dim is None or dim == () or dim == []
    if whole:
        if call.base in ("max", "min", "median", "nanmedian"):
            call = OpCall(_WHOLE.get(call.base, call.base), "", False, (), (), None, level, ("input", "dim"))
            if call.op in ("median", "nanmedian"):
                call.result = ("values", "indices")
            call.args = [value.reshape((level.size, -1)), 1]
            answer = call.run()
            return call.wrap(answer if isinstance(answer, Tensor) else answer[0])
        call.args[0] = value.reshape((level.size, -1))
        call.set("dim", 1)
        answer = call.run()
        shape = (level.size, *((1,) * ndim if keepdim else ()))
        return call.wrap(tree_map(lambda one: one.reshape(shape), answer))
    call.args[0] = value if ndim else value.reshape((level.size, 1))
    call.set("dim", shifted_all(dim, ndim))
    return call.wrap(_pointed(call.run(), ndim, level))


_WHOLE = {"max": "amax", "min": "amin"}


def _pointed(answer: Any, ndim: int, level: Level) -> Any:
    """The result for samples without dimensions, which were computed with one."""
    return answer if ndim else tree_map(lambda one: one.reshape((level.size,)), answer)


@rule(
    "softmax log_softmax softmin cumsum cumprod logcumsumexp sort argsort topk glu fft.fft fft.ifft fft.rfft fft.irfft "
    "fft.hfft fft.ihfft"
)
def along_one(call: OpCall) -> Any:
    """One dimension, by default the last, which is kept."""
    ndim, value = call.args[0].dim(), call.first()
    call.args[0] = value if ndim else value.reshape((call.level.size, 1))
    call.set("dim", shifted(call.get("dim", -1), ndim))
    return call.wrap(_pointed(call.run(), ndim, call.level))


@rule(
    "normalize flip squeeze select narrow unbind split split_with_sizes chunk diff unflatten tensor_split unsafe_split "
    "unsafe_split_with_sizes unsafe_chunk"
)
def along(call: OpCall) -> Any:
    """One dimension or several, which must be there."""
    call.args[0] = call.first()
    name = "dims" if "dims" in call.names else "dim"
    ndim = call.args[0].dim() - 1
    dim = call.get(name, {"normalize": 1, "diff": -1, "squeeze": None}.get(call.base, 0))
    if dim is None:
        dim = tuple(range(ndim))
        call.args = call.args[:1]
        call.kwargs = {}
    call.set(name, shifted_all(dim, ndim))
    return call.wrap(call.run())


@rule("linalg.norm linalg.matrix_norm")
def matrix_norm(call: OpCall) -> Any:
    """Of all elements without `ord` and `dim`, else of the dimensions given, by default the last."""
    tensor, order = call.args[0], call.get("ord", None)
    dim = call.get("dim", None if call.base == "linalg.norm" else (-2, -1))
    if dim is None and (order is None or tensor.dim() == 1) and not call.get("keepdim", False):
        return _call("linalg.vector_norm", (tensor, 2 if order is None else order), (("dtype", call.get("dtype")),))
    call.args[0] = call.first()
    call.set("dim", shifted_all(tuple(range(tensor.dim())) if dim is None else dim, tensor.dim()))
    return call.wrap(call.run())


@rule("sum_to_size")
def sum_to_size(call: OpCall) -> Any:
    value = call.first()
    size, count = call.get("size"), call.level.size
    sizes = [size] if isinstance(size, int) else list(size)
    missing = value.dim() - 1 - len(sizes)
    whole = _call("sum_to_size", (value, (count, *[1] * missing, *sizes)))
    return call.wrap(whole.reshape((count, *sizes)))
