"""The cost of every op, by its name: operations, about a nanosecond of a core each. cost.py says what they are for.

A weight is what an element takes. Functions are given the op's arguments, with arrays for tensors.
"""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.op.cost import LONG, Cost, Works, counted, elements, linear, operands

# Weights, and the ops of each.
_LINEAR: dict[float, str] = {
    4: "_conj add neg sub mul _copied _to_device _real _real_copy expand where masked_fill fill zero copy _zeros "
    "eq ne lt le gt ge logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not "
    "bitwise_left_shift bitwise_right_shift equal abs floor ceil trunc round isnan isinf isfinite isreal "
    "isposinf isneginf signbit square reciprocal deg2rad rad2deg _masked _masked_by relu _threshold_backward threshold "
    "hardtanh relu6 _slope leaky_relu _prelu_kernel hardsigmoid hardshrink _half reshape view "
    "view_dtype squeeze unsqueeze permute transpose t select _slice diagonal _alias view_as_real "
    "view_as_complex _transposed _fold _unsafe_view _squeezed imag _imag_copy complex clone maximum minimum rsub lerp "
    "addcmul addcdiv clamp clamp_min clamp_max copysign stack flip _diagonal_copy dot vdot mv _dropout_noise "
    "_keep_noise _times_noise _not_again _as_strided unfold pixel_shuffle pixel_unshuffle channel_shuffle _scaled_sum "
    "_identity_like _running _sample_mean _is_class _not_below mean sum sum_to_size amax amin _max _min any all "
    "_as_before _show _overwrite count_nonzero linalg.cross _held_above _beside _uniform_targets _mse_loss trace",
    8: "softshrink hardswish _huber_loss _smooth_l1_loss cummin cummax isclose allclose "
    "_cast div sqrt rsqrt frac sign sgn nan_to_num glu silu _join_halves tril triu cumsum _reverse_cumsum "
    " nansum select_scatter slice_scatter diagonal_scatter _constant_pad cat roll _batch_norm_eval "
    "_max_dim _min_dim argmax argmin var std prod _channel_sum _fft_resized fmax fmin linalg.vector_norm _layer_norm "
    "_batch_norm _group_norm logit heaviside",
    12: "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh _tanh_backward asinh acosh "
    "atanh sigmoid _sigmoid_backward elu celu selu softplus logsigmoid mish gelu _normal_cdf softmax log_softmax "
    "_softmax_backward _log_softmax_backward logsumexp _binary_cross_entropy _bce_with_logits ldexp hypot atan2 "
    "remainder fmod floor_divide logaddexp logaddexp2 polar angle erf erfc sinc special.entr nextafter "
    "bernoulli uniform _normal exponential random cauchy log_normal _rrelu_noise",
    30: "pow gcd lcm index_select gather _put_along _scatter index_copy index_fill masked_select _index "
    "_nonzero masked_scatter xlogy special.xlog1py special.log_ndtr special.erfcx special.ndtri erfinv i0 "
    "special.i1 special.i0e special.i1e geometric _embedding _embedding_forward _nll_loss _nll_loss_linear "
    "_unique_consecutive _max_indices _set_index index_put",
    60: "_index_backward _scatter_add index_add _gather_backward _scatter_product _scatter_reduce "
    "_scatter_counts lgamma poisson",
    250: "digamma igamma igammac special.zeta polygamma binomial multinomial",
}
_CALL = 5_000  # a call of NumPy, however little it does
_LOOP = 30_000  # a turn of a loop in Python that makes several
Ints = Any


def _flop(dtype: Any) -> Any:
    """Of a multiplication and an addition in a product of matrices: whole numbers have no BLAS."""
    kind, size = dtype.kind, dtype.itemsize
    if kind not in "fc" or size in (2, 1):
        return 3.0
    return {"f4": 0.04, "f8": 0.08, "c8": 0.16, "c16": 0.32}.get(f"{kind}{size}", 3.0)


def _product(rows: int, inner: int, columns: int, dtype: Any) -> Any:
    return rows * inner * columns * _flop(dtype) + 4.0 * (rows * inner + inner * columns + rows * columns)


def _mm(input: Any, mat2: Any) -> Any:
    return _product(math.prod(input.shape[:-1]), input.shape[-1], mat2.shape[-1], mat2.dtype)


def _bmm(input: Any, other: Any) -> Any:
    lead = max(math.prod(input.shape[:-2]), math.prod(other.shape[:-2]))
    if input.ndim > 2 < other.ndim and input.shape[:-2] != other.shape[:-2]:
        lead = elements((_Shaped(input.shape[:-2]), _Shaped(other.shape[:-2])))
    return lead * (500 + _product(input.shape[-2], input.shape[-1], other.shape[-1], other.dtype))


class _Shaped:
    """A shape, for `elements`."""

    dtype = dtypes.float32

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)


# Decompositions: so many operations for each of m n min(m, n).


def _lapack(per: float, backward: float = 4.0) -> Cost:
    def works(A: Any, *rest: Any) -> Any:
        m, n = A.shape[-2:]
        wide = 2.0 if A.dtype.itemsize >= dtypes.float64.itemsize else 1.0
        wide *= 2.0 if A.dtype.kind == "c" else 1.0
        return math.prod(A.shape[:-2]) * (_LOOP + per * wide * m * n * min(m, n) + 20.0 * m * n)

    return counted(works, backward, 1 << 14)


def _tall(per: Cost) -> Cost:
    """A decomposition whose formulas make squares of the larger side."""

    def backward(A: Any, *rest: Any) -> Any:
        return per.backward(A, *rest) + 8.0 * math.prod(A.shape[:-2]) * max(A.shape[-2:]) ** 2 * (
            2.0 + min(A.shape[-2:]) * _flop(A.dtype)
        )

    return counted(per.forward, backward, per.few)


def _full(A: Any, full: bool) -> Any:
    """What square factors of the larger side add."""
    large = max(A.shape[-2:])
    return math.prod(A.shape[:-2]) * 4.0 * large**2 * min(A.shape[-2:]) if full else 0.0


def _solved(per: float) -> Works:
    def works(A: Any, B: Any, *rest: Any) -> Any:
        matrix, lead = (A, B) if A.shape[-1] == A.shape[-2] else (B, A)
        n, batch = matrix.shape[-1], max(math.prod(A.shape[:-2]), math.prod(B.shape[:-2]))
        batch *= 1 if A.ndim == B.ndim else max(1, min(math.prod(A.shape[:-2]), math.prod(B.shape[:-2])))
        right = lead.size / max(1, n * math.prod(lead.shape[:-2]))
        wide = 2.0 if matrix.dtype.itemsize >= dtypes.float64.itemsize else 1.0
        return batch * (_LOOP + wide * (per * n**3 + 0.3 * n * n * right))

    return works


# Sorting.


def _sorted(per: float) -> Cost:
    def works(input: Any, *rest: Any) -> Any:
        return per * input.size * math.log2(2 + max(input.shape, default=1))

    return counted(works, lambda input, *rest: 60.0 * input.size, int(LONG / per / 32))


def _searched(values: Any, input: Any, *rest: Any) -> Any:
    found = 1 if not hasattr(input, "size") else input.size
    lines = 0 if values.ndim < 2 else values.size // max(1, values.shape[-1])
    return 10.0 * found * math.log2(2 + values.shape[-1]) + lines * _CALL + 2.0 * values.size


def _distinct(input: Any, dim: int | None) -> Any:
    per = 30.0 if dim is None else 60.0
    return per * input.size * math.log2(2 + input.size)


# Transforms.


def _transform(length: int) -> Any:
    """Of each element, along a dimension of this length: lengths of large prime factors are made of longer ones."""
    rest = length
    for prime in (2, 3, 5, 7, 11, 13):
        while rest > 1 and not rest % prime:
            rest //= prime
    slow = 1.0 if rest == 1 else 8.0
    far = 1.0 if length < 1 << 16 else 4.0  # beyond the caches
    return slow * far * 0.6 * math.log2(2 + length)


def _fft(input: Any, dim: Ints, *rest: Any) -> Any:
    return input.size * (4.0 + 2.0 * sum(_transform(input.shape[axis]) for axis in dim))


def _c2r(input: Any, dim: Ints, scale: int, last: int) -> Any:
    lines = input.size // max(1, input.shape[dim[-1]])
    count = max(input.size, lines * last)
    return count * (4.0 + 2.0 * (_transform(last) + sum(_transform(input.shape[axis]) for axis in dim[:-1])))


# Windows.


def _outputs(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, extra: int = 0) -> int:
    """How many windows there are."""
    made = 1
    for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True):
        made *= max(0, (n + 2 * p - d * (k - 1) - 1) // max(1, s) + 1 + extra)
    return made


def _reach(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> int:
    """Elements with their padding."""
    return math.prod(
        max(n + 2 * p, d * (k - 1) + 1) for n, k, p, d in zip(size, kernel, padding, dilation, strict=True)
    )


def _convolution(input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    kernel = weight.shape[2:]
    outputs = _outputs(input.shape[2:], kernel, stride, padding, dilation)
    reach = _reach(input.shape[2:], kernel, stride, padding, dilation)
    return _correlated(input, weight.shape[0], weight.shape[1], math.prod(kernel), outputs, reach, groups)


def _correlated(input: Any, out: int, per_group: int, taps: int, outputs: int, reach: int, groups: int) -> Any:
    images = input.shape[0]
    columns = images * groups * per_group * taps * outputs
    flops = images * out * per_group * taps * outputs * _flop(input.dtype)
    return flops + 5.0 * columns + 8.0 * images * groups * per_group * reach + taps * _CALL + images * groups * 500


def _transposed(
    input: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, size: Ints
) -> Any:
    kernel, outputs = weight.shape[2:], math.prod(input.shape[2:])
    reach = _reach(size, kernel, stride, padding, dilation)
    images, taps = input.shape[0], math.prod(kernel)
    columns = images * groups * weight.shape[1] * taps * max(outputs, reach if all(s == 1 for s in stride) else 0)
    flops = columns * weight.shape[0] / max(1, groups) * _flop(input.dtype)
    return flops + 3.0 * columns + 4.0 * images * groups * weight.shape[1] * reach + taps * groups * _CALL


def _weighed(input: Any, grad: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int, kernel: Ints) -> Any:
    outputs = math.prod(grad.shape[2:])
    reach = _reach(input.shape[2:], kernel, stride, padding, dilation)
    per_group = input.shape[1] // max(1, groups)
    work = _correlated(input, grad.shape[1], per_group, math.prod(kernel), outputs, reach, groups)
    return work + input.shape[0] * _LOOP


def _max_pool(input: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
    lead = math.prod(input.shape[: -len(kernel)])
    size = input.shape[-len(kernel) :]
    outputs = _outputs(size, kernel, stride, padding, dilation, ceil_mode)
    return _gone_through(lead, size, kernel, outputs, stride, padding, dilation, 6.0)


def doubles(kernel: Ints, padded: Ints, outputs: Ints) -> bool:
    """Whether large windows are gone through by doubling (ops/wide_pool.py): where that is less work by far."""
    taps = math.prod(kernel)
    return taps > _TAPS and _DOUBLING * math.prod(padded) * _rounds(kernel) < math.prod(outputs) * taps


_TAPS, _DOUBLING = 64, 4


def _rounds(kernel: Ints) -> int:
    return sum((k - 1).bit_length() for k in kernel)


def _gone_through(
    lead: int, size: Ints, kernel: Ints, outputs: int, stride: Ints, padding: Ints, dilation: Ints, per: float
) -> Any:
    taps = math.prod(kernel)
    reach = _reach(size, kernel, stride, padding, dilation)
    if doubles(kernel, (reach,), (outputs,)):
        return lead * (20.0 * reach * (1 + _rounds(kernel)) + 60.0 * outputs) + _rounds(kernel) * _LOOP
    return per * lead * outputs * taps + taps * _LOOP + 4.0 * lead * reach


def _picked(input: Any, which: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, *size: Ints) -> Any:
    spatial = size[0] if size else input.shape[-len(kernel) :]
    lead = math.prod(which.shape[: -len(kernel)])
    outputs = math.prod(which.shape[-len(kernel) :])
    return _gone_through(lead, spatial, kernel, outputs, stride, padding, dilation, 6.0)


def _averaged(input: Any, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, *rest: Any) -> Any:
    ones = (1,) * len(kernel)
    size = rest[2] if len(rest) > 2 else input.shape[-len(kernel) :]
    lead = math.prod(input.shape[: -len(kernel)])
    reach = _reach(size, kernel, stride, padding, ones)
    return (
        3.0 * lead * reach * sum(min(k, k / max(1, s) + 1) for k, s in zip(kernel, stride, strict=True))
        + sum(kernel) * _CALL
    )


def _columned(input: Any, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    outputs = _outputs(input.shape[2:], kernel, stride, padding, dilation)
    lead = math.prod(input.shape[:2])
    return 4.0 * lead * (outputs * math.prod(kernel) + _reach(input.shape[2:], kernel, stride, padding, dilation))


def _laid(input: Any, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Any:
    taps = math.prod(kernel)
    lead = input.shape[0] * input.shape[1] / max(1, taps)
    return 5.0 * input.size + taps * _CALL + 4.0 * lead * _reach(size, kernel, stride, padding, dilation)


def _resized(input: Any, size: Ints, *rest: Any) -> Any:
    """Each dimension by a matrix, (made, given), the last first of all."""
    given, work = list(input.shape), 0.0
    lead = len(given) - len(size)
    for axis, made in enumerate(size):
        length = given[lead + axis]
        work += length * made * (20.0 + math.prod(given[: lead + axis] + given[lead + axis + 1 :]) * _flop(input.dtype))
        work += made * _CALL
        given[lead + axis] = made
        work += 4.0 * math.prod(given)
    return work


def _by_place(input: Any, size: Ints) -> Any:
    """A window after the other, each with a few calls."""
    return math.prod(size) * 2 * _LOOP + 6.0 * (input.size + math.prod(input.shape[: -len(size)]) * math.prod(size) * 4)


# Others.


def _of_shape(weight: float, place: int) -> Cost:
    """By the shape among the arguments."""

    def works(*arrays: Any) -> Any:
        return weight * (math.prod(n or 1 for n in arrays[place]) + elements(arrays))

    return counted(works)


def _repeated(input: Any, repeats: Ints) -> Any:
    return 4.0 * input.size * math.prod(repeats) + len(repeats) * _CALL


def _apart(input: Any, by: Any, dim: int = 0) -> Any:
    """Views, each made in Python."""
    many = len(by) if hasattr(by, "__len__") else input.shape[dim] / max(1, by)
    return 4.0 * input.size + _CALL * many


def _unbound(input: Any, dim: int) -> Any:
    return _apart(input, 1, dim)


def _lined(input: Any, lines: Ints, *rest: Any) -> Any:
    lead = math.prod(input.shape[: input.ndim - len(lines)])
    return 30.0 * (input.size + lead * math.prod(map(len, lines)))


def _blocks(tensors: list[Any]) -> Any:
    height, width = (sum(each.shape[axis] for each in tensors) for axis in (0, 1))
    return 2.0 * height * width + len(tensors) * _CALL


def _spelled(log_probs: Any, targets: Any, *rest: Any) -> Any:
    steps, samples, _ = log_probs.shape
    states = 2 * targets.shape[-1] + 1
    return steps * _LOOP + 60.0 * steps * samples * states + 20.0 * log_probs.size


def _spelled_back(log_probs: Any, targets: Any, *rest: Any) -> Any:
    states = 2 * targets.shape[-1] + 1
    return 3.0 * _spelled(log_probs, targets) + states * _LOOP + 20.0 * log_probs.shape[0] * log_probs.shape[1] * states


def _turns(input: Any, dim: int, *rest: Any) -> int:
    """The length of a dimension, which formulas go along in Python."""
    return input.shape[dim] if input.ndim else 1


def _by_turns(weight: float) -> Works:
    def works(input: Any, dim: int, *rest: Any) -> Any:
        return weight * input.size + _LOOP * _turns(input, dim)

    return works


def _exponential(A: Any) -> Any:
    n = A.shape[-1]
    return math.prod(A.shape[:-2]) * (20 * _LOOP + 20.0 * n**3 * _flop(A.dtype) + 40.0 * n * n)


def _least(A: Any, B: Any, *rest: Any) -> Any:
    m, n = A.shape[-2:]
    right = B.shape[-1] if B.ndim == A.ndim else 1
    batch = max(math.prod(A.shape[:-2]), math.prod(B.shape[: A.ndim - 2]))
    return batch * (10 * _LOOP + 4.0 * m * n * min(m, n) + 1.0 * m * n * right)


def _distances(x1: Any, x2: Any) -> Any:
    return 8.0 * x1.shape[-2] * x2.shape[-2] * max(math.prod(x1.shape[:-2]), math.prod(x2.shape[:-2]), 1) + _bmm(
        x1, x2.swapaxes(-1, -2)
    )


def _member(elements_: Any, test: Any, *rest: Any) -> Any:
    sizes = [value.size if hasattr(value, "size") else 1 for value in (elements_, test)]
    return 40.0 * sum(sizes) * math.log2(2 + sum(sizes))


def _cofactored(A: Any) -> Any:
    n = A.shape[-1]
    return math.prod(A.shape[:-2]) * (n * _LOOP + 8.0 * n**3)


def _restrided(input: Any, source: Any, target: Any) -> Any:
    return 30.0 * (math.prod(source[0]) + math.prod(target[0]) + input.size)


# Ops that take places among their operands, which then do not broadcast.
_PLACING = (
    "index_select index_copy index_fill _index _index_backward index_add _nll_loss _nll_loss_linear _set_index "
    "index_put mv dot vdot _beside _running _batch_norm _batch_norm_eval _layer_norm _group_norm _max_indices _is_class"
)


def _placed(weight: float) -> Cost:
    """By the elements of all operands, and of each row or line that a place stands for."""

    def works(*arrays: Any) -> float:
        given = list(operands(arrays))
        if not given:
            return 0.0
        row = given[0].size // max(1, max(given[0].shape, default=1))
        return weight * float(sum(each.size for each in given) + min(each.size for each in given) * row)

    return counted(works, 3.0, int(LONG / weight))


def _looked_up(weight: float, table: int) -> Cost:
    """By the rows of a table that are looked up."""

    def works(*arrays: Any) -> float:
        return weight * float(arrays[1 - table].size * arrays[table].shape[-1])

    return counted(works, lambda *arrays: 15.0 * works(*arrays) + 8.0 * arrays[table].size, int(LONG / weight))


# Ops whose places are as many as what is read or written.
_ALONG = "gather _put_along _scatter _scatter_add _gather_backward _scatter_product _scatter_reduce _scatter_counts"


def _placed_alike(weight: float) -> Cost:
    """By the elements of all operands."""
    return counted(lambda *arrays: weight * float(sum(each.size for each in operands(arrays))), 3.0, int(LONG / weight))


COSTS: dict[str, Cost] = {
    **{name: linear(weight) for weight, names in _LINEAR.items() for name in names.split()},
    **{
        name: _placed(weight) for weight, names in _LINEAR.items() for name in names.split() if name in _PLACING.split()
    },
    **{
        name: _placed_alike(weight)
        for weight, names in _LINEAR.items()
        for name in names.split()
        if name in _ALONG.split()
    },
    "_embedding": _looked_up(4, 1),
    "_embedding_forward": _looked_up(4, 0),
    **dict.fromkeys(("mm", "_linear_mm"), counted(_mm, 2.5, 1 << 30)),
    "addmm": counted(lambda input, one, other, *rest: _mm(one, other), 2.5, 1 << 30),
    "_linear_addmm": counted(lambda input, one, other: _mm(one, other), 2.5, 1 << 30),
    **dict.fromkeys(("bmm", "_matmul_batched"), counted(_bmm, 3.0, 1 << 30)),
    "baddbmm": counted(lambda input, one, other, *rest: _bmm(one, other), 3.0, 1 << 30),
    **dict.fromkeys(("_select_backward", "_slice_backward", "_diagonal_backward"), _of_shape(2, 1)),
    "_trace_backward": _of_shape(2, 1),
    "_index_select_backward": _of_shape(60, 3),
    "_masked_select_backward": _of_shape(10, 2),
    "_nll_loss_backward": _of_shape(10, 5),
    "_max_unpool_to": _of_shape(30, 2),
    "_embedding_backward": counted(
        lambda grad, input, rows, *rest: 60.0 * grad.size + 2.0 * rows * (grad.shape[-1] if grad.ndim else 1)
    ),
    "_add_lines": counted(
        lambda g, lines, sizes, node: 60.0 * g.size + 4.0 * sum(map(len, lines)) + 4.0 * math.prod(sizes)
    ),
    "_unfold_backward": counted(
        lambda g, shape, dimension, size, step: 5.0 * g.size + size * _CALL + 2.0 * math.prod(shape)
    ),
    "_restride": counted(_restrided),
    "repeat": counted(_repeated),
    "diag_embed": counted(
        lambda input, offset, *rest: 8.0 * input.size * (1 + abs(offset) + (input.shape[-1] if input.ndim else 1))
    ),
    "_block_diag": counted(_blocks),
    "_causal_mask": counted(lambda query, keys: 4.0 * query.shape[-2] * keys),
    **dict.fromkeys(("sort", "argsort", "topk", "_nanmedian_dim", "mode"), _sorted(6)),
    **dict.fromkeys(("kthvalue", "_median_dim", "_median", "_nanmedian"), _sorted(3)),
    "_unique": counted(_distinct, few=1 << 16),
    "isin": counted(_member, few=1 << 16),
    "searchsorted": counted(_searched, few=1 << 16),
    "bincount": counted(lambda input, weights, minlength: 30.0 * input.size + 2.0 * minlength),
    "histc": counted(lambda input, bins, *rest: 60.0 * input.size + 10.0 * bins),
    "one_hot": counted(lambda tensor, classes: 2.0 * tensor.size * max(1, classes) + 30.0 * tensor.size),
    "_label_sets": counted(lambda target: 6.0 * target.size * target.shape[-1], few=1 << 16),
    "_pairs": counted(lambda input: 25.0 * input.shape[0] ** 2, few=1 << 10),
    "unbind": counted(_unbound, 3.0, 1 << 14),
    "split": counted(_apart, 3.0, 1 << 14),
    "_take_lines": counted(_lined),
    "_adaptive_max_pool": counted(_by_place),
    "_im2col": counted(_columned),
    "_col2im": counted(_laid),
    "_convolution": counted(_convolution, 3.0),
    "_convolution_transpose": counted(_transposed, 3.0),
    "_convolution_weight": counted(_weighed, 3.0),
    "_max_pool": counted(_max_pool, 2.0),
    "_max_unpool": counted(_picked, 2.0),
    "_max_pick": counted(_picked, 2.0),
    **dict.fromkeys(("_avg_pool", "_avg_unpool"), counted(_averaged, 2.0)),
    **dict.fromkeys(("_adaptive_avg_pool", "_adaptive_avg_unpool"), counted(_resized, 2.0)),
    **dict.fromkeys(("_resample", "_resample_adjoint"), counted(_resized, 2.0)),
    "_ctc_loss": counted(_spelled, _spelled_back),
    "_ctc_loss_backward": counted(lambda g, *rest: _spelled_back(*rest)),
    "cumprod": counted(lambda input, dim, dtype: 4.0 * input.size, _by_turns(30), 1 << 11),
    "logcumsumexp": counted(
        lambda input, dim: 40.0 * input.size + (_LOOP * _turns(input, dim) if input.dtype.kind == "c" else 0),
        _by_turns(60),
        1 << 11,
    ),
    "_mvlgamma": counted(lambda input, p: 100.0 * input.size * p + p * _LOOP, 4.0),
    **dict.fromkeys(("_fft_c2c", "_fft_r2c"), counted(_fft, 2.0, 1 << 16)),
    "_fft_c2r": counted(_c2r, 2.0),
    "linalg.cholesky": _lapack(0.1, 12.0),
    "linalg.inv": _lapack(0.3),
    "linalg.det": counted(_lapack(0.15).forward, _cofactored, 1 << 13),
    "linalg.slogdet": _lapack(0.15),
    "linalg.lu": counted(
        lambda A, pivot: _lapack(0.3).forward(A) + 4.0 * A.size // A.shape[-1] * A.shape[-2], 4.0, 1 << 14
    ),
    "linalg.lu_factor": _tall(_lapack(0.15, 10.0)),
    "_qr": counted(lambda A, mode: _lapack(0.8).forward(A) + _full(A, mode == "complete"), 4.0, 1 << 14),
    "_svd": counted(lambda A, full: _lapack(3.0).forward(A) + _full(A, full), 2.0, 1 << 14),
    "linalg.svdvals": _lapack(1.0, 5.0),
    "linalg.pinv": _tall(_lapack(3.0)),
    "_matrix_rank": linear(4),
    "linalg.eigh": _lapack(1.5),
    "linalg.eigvalsh": _lapack(0.5, 5.0),
    "linalg.eig": _lapack(8.0, 2.0),
    "_cofactors": counted(_cofactored, 2.0, 1 << 13),
    "linalg.solve": counted(_solved(0.2), 4.0, 1 << 16),
    "linalg.solve_triangular": counted(_solved(0.02), 4.0, 1 << 16),
    "cholesky_solve": counted(lambda B, L, upper: _solved(0.05)(L, B), 4.0, 1 << 16),
    "linalg.lstsq": _tall(counted(_least, 4.0, 1 << 14)),
    "linalg.matrix_exp": counted(_exponential, 8.0, 1 << 13),
    "_euclidean_dist": counted(_distances, 4.0, 1 << 20),
}
# What an op that nobody has told about is taken to be; a test holds that there is none in the registry.
OTHER = linear(4)
#: Ops that draw random numbers: they are not computed in another process, which would keep the generator's state.
DRAWING = frozenset(
    name
    for names in (
        "bernoulli multinomial uniform _normal exponential random cauchy log_normal geometric poisson binomial",
        "_dropout_noise _keep_noise _rrelu_noise _times_noise",
    )
    for name in names.split()
)
