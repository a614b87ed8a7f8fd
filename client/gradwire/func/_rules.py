"""Batching rules: what an op on one sample is on all of them, whose values have the batch as their first dimension.

A rule calls ops on values (dimensions shifted by one), or is written in ops on batched tensors, which have rules
themselves. `RULES` maps the ops' names to them; what is not there is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradwire import _ops
from gradwire._call import _call
from gradwire._errors import GradwireIndexError, refuse
from gradwire._functions import promote_types
from gradwire._tensor import Tensor
from gradwire.func._batched import LEVELS, BatchedTensor, Level, is_batched, spread, value_at
from gradwire.func._pytree import tree_map

Rule = Callable[["Call"], Any]
RULES: dict[str, Rule] = {}


class Call:
    """An op's call: its arguments by name, as they were given by place or by name."""

    def __init__(
        self,
        op: str,
        base: str,
        in_place: bool,
        args: tuple[Any, ...],
        kwargs: Sequence[tuple[str, Any]],
        result: Any,
        level: Level,
        names: tuple[str, ...],
    ) -> None:
        self.op = op
        self.base = base
        self.in_place = in_place
        self.args = list(args)
        self.kwargs = dict(kwargs)
        self.result = result
        self.level = level
        self.names = names

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or the default if it was left out."""
        place = self.names.index(name)
        return self.args[place] if place < len(self.args) else self.kwargs.get(name, default)

    def set(self, name: str, value: Any) -> None:
        """Give an argument another value."""
        place = self.names.index(name)
        if place < len(self.args):
            self.args[place] = value
        else:
            self.kwargs[name] = value

    def first(self) -> Any:
        """The value of the first argument, with the batch in front."""
        return spread(self.args[0], self.level)

    def run(self) -> Any:
        """The op on what the arguments are now."""
        return _call(self.op, tuple(self.args), tuple(self.kwargs.items()), self.result)

    def wrap(self, answer: Any) -> Any:
        """An answer in values as batched tensors."""
        return tree_map(lambda one: BatchedTensor(one, self.level) if isinstance(one, Tensor) else one, answer)


def rule(names: str) -> Callable[[Rule], Rule]:
    """Register a rule for ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), function))
        return function

    return register


def refuse_in_place(call: Call) -> None:
    """Refuse to write samples into what all samples share."""
    if call.in_place and not is_batched(call.args[0], call.level):
        raise refuse(
            f"vmap: inplace arithmetic(self, *extra_args) is not possible: {call.op} would write a value per sample "
            "into a tensor that all samples share. Use the out-of-place form, or make the tensor inside of vmap from "
            "one that is mapped over (x.new_zeros, zeros_like)."
        )


# Elementwise.


def _padded(tensor: Any, ndim: int, level: Level) -> Any:
    """A value with so many dimensions behind the batch; what all samples share broadcasts as it is."""
    if not is_batched(tensor, level):
        return tensor
    value = value_at(tensor, level)
    missing = ndim - tensor.dim()
    return value.reshape((level.size, *(1,) * missing, *tensor.shape)) if missing > 0 else value


def _promoted(tensors: list[Any], level: Level) -> dict[int, Any]:
    """Stand-ins for tensors whose dtype would count otherwise for having the batch's dimension."""
    if len({each.dtype for each in tensors}) < 2:
        return {}
    points = [each for each in tensors if not each.dim()]
    dimensioned = [each for each in tensors if each.dim()]
    if not dimensioned:
        joint = points[0].dtype
        for each in points[1:]:
            joint = promote_types(joint, each.dtype)
        return {id(each): each.to(joint) for each in points}
    wide = dimensioned[0].dtype
    for each in dimensioned[1:]:
        wide = promote_types(wide, each.dtype)
    return {id(each): each.to(wide) for each in points if is_batched(each, level) and _kind(each.dtype) <= _kind(wide)}


def _kind(dtype: Any) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype.name == "bool" else 1


@rule(
    "abs detach acos acosh angle asin asinh atan atanh bitwise_not ceil celu clone conj contiguous cos cosh deg2rad "
    "digamma elu empty_like erf erfc erfinv exp exp2 expm1 fill floor frac full_like gelu hardshrink hardsigmoid "
    "hardswish hardtanh i0 imag isfinite isinf isnan isneginf isposinf isreal leaky_relu lgamma log log10 log1p "
    "log2 logical_not logit logsigmoid mish mvlgamma nan_to_num neg ones_like positive rad2deg real reciprocal "
    "relu relu6 resolve_conj round rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink "
    "softsign special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr "
    "special_ndtri sqrt square tan tanh tanhshrink threshold to trunc zero zeros_like polygamma add addcdiv "
    "addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clamp clamp_max "
    "clamp_min complex copy copysign div eq float_power floor_divide fmax fmin fmod gcd ge gt heaviside hypot "
    "igamma igammac isclose lcm ldexp le lerp logaddexp logaddexp2 logical_and logical_or logical_xor lt "
    "masked_fill maximum minimum mul ne nextafter polar pow remainder rsub special_xlog1py special_zeta sub "
    "type_as where xlogy "
)
def elementwise(call: Call) -> Any:
    """Operands as in broadcasting, the batch in front of what is added on the left."""
    refuse_in_place(call)
    level = call.level
    named = [*call.args, *call.kwargs.values()]
    tensors = [each for each in named if isinstance(each, Tensor)]
    ndim = max(each.dim() for each in tensors)
    if call.in_place and ndim > call.args[0].dim():
        raise refuse(
            f"output with shape {list(call.args[0].shape)} doesn't match the broadcast shape of {call.op}'s operands"
        )
    counted = tensors if call.base not in _FIRST_IS_CONDITION else tensors[1:]
    stand_in = {} if call.in_place or call.base in _ONE_DTYPE or len(counted) < 2 else _promoted(counted, level)

    def made(each: Any) -> Any:
        return _padded(stand_in.get(id(each), each), ndim, level) if isinstance(each, Tensor) else each

    target = call.args[0]
    call.args = [made(each) for each in call.args]
    call.kwargs = {name: made(each) for name, each in call.kwargs.items()}
    answer = call.run()
    return target if call.in_place else call.wrap(answer)


_FIRST_IS_CONDITION = frozenset(["where"])
_ONE_DTYPE = frozenset(["masked_fill", "type_as", "copy"])


# Reductions, and ops along a dimension.


def _shifted(dim: int, ndim: int) -> int:
    """A sample's dimension as one of the value."""
    count = max(ndim, 1)
    if not -count <= dim < count:
        raise GradwireIndexError(
            f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})"
        )
    return dim % count + 1


def _shifted_all(dim: Any, ndim: int) -> Any:
    return _shifted(dim, ndim) if isinstance(dim, int) else tuple(_shifted(one, ndim) for one in dim)


@rule(
    "sum mean prod amax amin max min argmax argmin all any std var std_mean var_mean logsumexp nansum nanmean median "
    "nanmedian norm mode kthvalue aminmax linalg.vector_norm count_nonzero cummax cummin"
)
def reduction(call: Call) -> Any:
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
            call = Call(_WHOLE.get(call.base, call.base), "", False, (), (), None, level, ("input", "dim"))
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
    call.set("dim", _shifted_all(dim, ndim))
    return call.wrap(_pointed(call.run(), ndim, level))


_WHOLE = {"max": "amax", "min": "amin"}


def _pointed(answer: Any, ndim: int, level: Level) -> Any:
    """The answer for samples without dimensions, which were computed with one."""
    return answer if ndim else tree_map(lambda one: one.reshape((level.size,)), answer)


@rule(
    "softmax log_softmax softmin cumsum cumprod logcumsumexp sort argsort topk glu fft.fft fft.ifft fft.rfft fft.irfft "
    "fft.hfft fft.ihfft"
)
def along_one(call: Call) -> Any:
    """One dimension, by default the last, that stays."""
    ndim, value = call.args[0].dim(), call.first()
    call.args[0] = value if ndim else value.reshape((call.level.size, 1))
    call.set("dim", _shifted(call.get("dim", -1), ndim))
    return call.wrap(_pointed(call.run(), ndim, call.level))


@rule("normalize flip squeeze select narrow unbind split split_with_sizes chunk diff unflatten tensor_split")
def along(call: Call) -> Any:
    """One dimension or several, which must be there."""
    call.args[0] = call.first()
    name = "dims" if "dims" in call.names else "dim"
    ndim = call.args[0].dim() - 1
    dim = call.get(name, {"normalize": 1, "diff": -1, "squeeze": None}.get(call.base, 0))
    if dim is None:
        dim = tuple(range(ndim))
        call.args = call.args[:1]
        call.kwargs = {}
    call.set(name, _shifted_all(dim, ndim))
    return call.wrap(call.run())


@rule("unsqueeze")
def unsqueeze(call: Call) -> Any:
    dim = _shifted(call.get("dim"), call.args[0].dim() + 1)
    return call.wrap(_call("unsqueeze", (call.first(), dim)))


@rule("transpose swapaxes swapdims")
def transpose(call: Call) -> Any:
    ndim = call.args[0].dim()
    if not ndim:
        return call.args[0]
    return call.wrap(_call("transpose", (call.first(), *[_shifted(one, ndim) for one in _rest(call, 2)])))


def _rest(call: Call, count: int) -> list[Any]:
    return [call.get(name) for name in call.names[1 : 1 + count]]


@rule("T t mT H mH")
def transposed(call: Call) -> Any:
    tensor = call.args[0]
    ndim = tensor.dim()
    if call.base in ("mT", "mH") and ndim < 2:
        raise refuse(f"tensor.{call.base} is only supported on matrices or batches of matrices. Got {ndim}-D tensor.")
    if call.base == "t" and ndim > 2:
        raise refuse(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    order = [*range(ndim - 2), ndim - 1, ndim - 2] if call.base in ("mT", "mH") else list(reversed(range(ndim)))
    turned = tensor.permute(order) if ndim > 1 else tensor
    return turned.conj() if call.base in ("H", "mH") else turned


@rule("permute")
def permute(call: Call) -> Any:
    ndim = call.args[0].dim()
    dims = [_shifted(one, ndim) for one in call.get("dims")] if ndim else []
    return call.wrap(_call("permute", (call.first(), (0, *dims))))


@rule("movedim moveaxis")
def movedim(call: Call) -> Any:
    ndim = call.args[0].dim()
    source, target = (_shifted_all(one, ndim) for one in _rest(call, 2))
    return call.wrap(_call("movedim", (call.first(), source, target)))


def _sizes_of(size: Any) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


@rule("reshape view")
def reshape(call: Call) -> Any:
    size = _sizes_of(call.get(call.names[1]))
    if -1 in size:
        known = math.prod(one for one in size if one != -1)
        count = math.prod(call.args[0].shape)
        if known and count % known == 0:
            size = tuple(count // known if one == -1 else one for one in size)
    return call.wrap(_call(call.base, (call.first(), (call.level.size, *size))))


@rule("reshape_as view_as expand_as")
def like_another(call: Call) -> Any:
    other = call.get("other")
    base = call.base.removesuffix("_as")
    return (
        call.args[0]
        if call.args[0].shape == other.shape and base == "expand"
        else _call(base, (call.args[0], tuple(other.shape)))
    )


@rule("flatten")
def flatten(call: Call) -> Any:
    tensor = call.args[0]
    ndim = tensor.dim()
    if not ndim:
        return tensor.reshape((1,))
    start, end = _shifted(call.get("start_dim", 0), ndim), _shifted(call.get("end_dim", -1), ndim)
    return call.wrap(_call("flatten", (call.first(), start, end)))


@rule("ravel")
def ravel(call: Call) -> Any:
    return call.args[0].reshape((-1,))


@rule("expand broadcast_to")
def expand(call: Call) -> Any:
    size = _sizes_of(call.get("size"))
    value = _padded(call.args[0], len(size), call.level)
    return call.wrap(_call("expand", (value, (call.level.size, *size))))


@rule("repeat tile")
def repeat(call: Call) -> Any:
    counts = _sizes_of(call.get(call.names[1]))
    counts = (1,) * (call.args[0].dim() - len(counts) if call.base == "tile" else 0) + counts
    return call.wrap(_call("repeat", (_padded(call.args[0], len(counts), call.level), (1, *counts))))


@rule("roll")
def roll(call: Call) -> Any:
    tensor, dims = call.args[0], call.get("dims", ())
    if dims in ((), []):
        return _call("roll", (tensor.reshape((-1,)), call.get("shifts"), 0)).reshape(tensor.shape)
    return call.wrap(_call("roll", (call.first(), call.get("shifts"), _shifted_all(dims, tensor.dim()))))


@rule("diagonal")
def diagonal(call: Call) -> Any:
    ndim = call.args[0].dim()
    dims = _shifted(call.get("dim1", 0), ndim), _shifted(call.get("dim2", 1), ndim)
    return call.wrap(_call("diagonal", (call.first(), call.get("offset", 0), *dims)))


@rule("diag")
def diag(call: Call) -> Any:
    tensor, offset = call.args[0], call.get("diagonal", 0)
    return _call("diagonal" if tensor.dim() == 2 else "diag_embed", (tensor, offset))


@rule("trace")
def trace(call: Call) -> Any:
    return call.args[0].diagonal().sum()


@rule(
    "view_as_real view_as_complex "
    "tril triu diag_embed pad one_hot linalg.inv linalg.det linalg.slogdet linalg.cholesky linalg.eigh linalg.eigvalsh "
    "linalg.svdvals linalg.pinv linalg.matrix_exp linalg.matrix_power inverse det logdet slogdet matrix_exp"
)
def last_dims(call: Call) -> Any:
    """What works on the last dimensions, whatever is in front of them."""
    if call.base == "pad" and call.get("mode", "constant") != "constant":
        return folded(call)
    call.args[0] = call.first()
    return call.wrap(call.run())


@rule("unfold")
def unfold(call: Call) -> Any:
    dim = _shifted(call.get("dimension"), call.args[0].dim())
    return call.wrap(_call("unfold", (call.first(), dim, call.get("size"), call.get("step"))))


@rule("linalg.norm linalg.matrix_norm")
def matrix_norm(call: Call) -> Any:
    """Of all elements without `ord` and `dim`, else of the dimensions given, by default the last."""
    tensor, order = call.args[0], call.get("ord", None)
    dim = call.get("dim", None if call.base == "linalg.norm" else (-2, -1))
    if dim is None and (order is None or tensor.dim() == 1) and not call.get("keepdim", False):
        return _call("linalg.vector_norm", (tensor, 2 if order is None else order), (("dtype", call.get("dtype")),))
    call.args[0] = call.first()
    call.set("dim", _shifted_all(tuple(range(tensor.dim())) if dim is None else dim, tensor.dim()))
    return call.wrap(call.run())


@rule("cdist linalg.solve cross linalg.cross")
def broadcast_pairs(call: Call) -> Any:
    """Two operands whose leading dimensions broadcast."""
    one, other = call.args[:2]
    if call.base == "linalg.solve" and other.dim() == 1:
        call.args[1] = other.unsqueeze(-1)
        return call.run().squeeze(-1)
    ndim = max(one.dim(), other.dim())
    if "cross" in call.base:
        dim = call.get("dim", None if call.base == "cross" else -1)
        if dim is None:
            dim = next((place for place, size in enumerate(one.shape) if size == 3), -1)
        call.set("dim", _shifted(dim, ndim) - ndim - 1)
    if "cross" in call.base:
        call.args[:2] = [spread(each, call.level) for each in (one, other)]
    else:
        call.args[:2] = [_padded(each, ndim, call.level) for each in (one, other)]
    return call.wrap(call.run())


@rule("cosine_similarity")
def cosine_similarity(call: Call) -> Any:
    one, other, dim, eps = call.args[0], call.get("x2"), call.get("dim", 1), call.get("eps", 1e-8)
    one, other = _ops.broadcast_tensors(one, other)
    lengths = [each.norm(2, dim, keepdim=True).clamp(min=eps) for each in (one, other)]
    return ((one / lengths[0]) * (other / lengths[1])).sum(dim)


@rule("meshgrid")
def meshgrid(call: Call) -> Any:
    tensors = [each.reshape((-1,)) for each in call.get("tensors")]
    count = len(tensors)
    order = [1, 0, *range(2, count)] if call.get("indexing") == "xy" and count > 1 else list(range(count))
    shape = tuple(tensors[place].numel() for place in order)
    made = []
    for place, each in enumerate(tensors):
        axis = order.index(place)
        made.append(each.reshape((1,) * axis + (-1,) + (1,) * (count - axis - 1)).expand(shape))
    return tuple(made)


@rule("broadcast_tensors")
def broadcast_tensors(call: Call) -> Any:
    tensors = call.get("tensors")
    shape = broadcast_shape([tuple(each.shape) for each in tensors])
    return tuple(each.expand(shape) for each in tensors)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all of them broadcast to. Raises RuntimeError if there is none."""
    ndim = max(len(shape) for shape in shapes)
    joint = [1] * ndim
    for shape in shapes:
        for place, size in enumerate(shape, ndim - len(shape)):
            if size != 1 and joint[place] not in (1, size):
                raise refuse(
                    f"The size of tensor a ({joint[place]}) must match the size of tensor b ({size}) at non-singleton "
                    f"dimension {place}"
                )
            joint[place] = size if joint[place] == 1 else joint[place]
    return tuple(joint)


@rule("atleast_1d atleast_2d atleast_3d")
def at_least(call: Call) -> Any:
    return _at_least(call.args[0], int(call.base[8]))


@rule("repeat_interleave")
def repeat_interleave(call: Call) -> Any:
    tensor, repeats, dim = call.args[0], call.get("repeats"), call.get("dim")
    if is_batched(repeats, call.level):
        raise refuse("vmap: repeat_interleave takes no counts per sample: the size would vary")
    if dim is None:
        tensor, dim = tensor.reshape((-1,)), 0
    return call.wrap(_call("repeat_interleave", (spread(tensor, call.level), repeats, _shifted(dim, tensor.dim()))))


@rule("prelu")
def prelu(call: Call) -> Any:
    tensor, weight = call.args[0], call.get("weight")
    if weight.numel() > 1 and tensor.dim() > 1:
        weight = weight.reshape((-1, *(1,) * (tensor.dim() - 2)))
    elif weight.numel() == 1:
        weight = weight.reshape(())
    return _call("where", (tensor > 0, tensor, tensor * weight))


# Joining.


@rule("cat concat concatenate stack")
def join(call: Call) -> Any:
    tensors = call.get("tensors")
    ndim = max(each.dim() for each in tensors)
    dim = _shifted(call.get("dim", 0), ndim + (call.base == "stack"))
    return call.wrap(_call(call.base, ([spread(each, call.level) for each in tensors], dim)))


@rule("hstack vstack dstack row_stack column_stack")
def join_named(call: Call) -> Any:
    least = {"hstack": 1, "vstack": 2, "row_stack": 2, "dstack": 3, "column_stack": 1}[call.base]
    tensors = [_at_least(each, least) for each in call.get("tensors")]
    if call.base == "column_stack":
        tensors = [each.unsqueeze(1) if each.dim() == 1 else each for each in tensors]
    axis = {"vstack": 0, "row_stack": 0, "dstack": 2}.get(call.base, min(1, max(each.dim() for each in tensors) - 1))
    return _call("cat", (tensors, axis))


def _at_least(tensor: Any, ndim: int) -> Any:
    if tensor.dim() >= ndim:
        return tensor
    if ndim == 3 and tensor.dim() == 2:
        return tensor.unsqueeze(-1)
    if ndim == 3 and tensor.dim() == 1:
        return tensor.reshape((1, -1, 1))
    return tensor.reshape((1,) * (ndim - tensor.dim()) + tuple(tensor.shape))


# Products.


@rule("matmul")
def matmul(call: Call) -> Any:
    level = call.level
    one, other = call.args
    if not one.dim() or not other.dim():
        raise refuse("both arguments to matmul need to be at least 1D")
    shared = not is_batched(other, level)
    if shared and (other.dim() == 2 or (other.dim() == 1 and one.dim() > 1)):
        return call.wrap(_call("matmul", (value_at(one, level), other)))
    if not is_batched(one, level) and one.dim() == 2 and other.dim() == 1:
        return call.wrap(_call("matmul", (value_at(other, level), _call("mT", (one,)))))
    left = one.unsqueeze(0) if one.dim() == 1 else one
    right = other.unsqueeze(-1) if other.dim() == 1 else other
    ndim = max(left.dim(), right.dim())
    answer = call.wrap(_call("matmul", (_padded(left, ndim, level), _padded(right, ndim, level))))
    if other.dim() == 1:
        answer = answer.squeeze(-1)
    return answer.squeeze(-1 if other.dim() == 1 else -2) if one.dim() == 1 else answer


@rule("mm mv bmm dot inner outer vdot linear addmm addmv baddbmm addr linalg.vecdot")
def products(call: Call) -> Any:
    """In terms of matmul and elementwise ops."""
    return _PRODUCTS[call.base](*call.args, **call.kwargs)


def _matrices(name: str, *counts: int) -> Callable[[Any, Any], Any]:
    def product(one: Any, other: Any) -> Any:
        if (one.dim(), other.dim()) != counts:
            raise refuse(f"{name}: expected {counts[0]}D and {counts[1]}D tensors, got {one.dim()}D and {other.dim()}D")
        return _call("matmul", (one, other))

    return product


def _outer(one: Any, other: Any) -> Any:
    return one.unsqueeze(-1) * other


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    made = _call("matmul", (input, _call("mT", (weight,)) if weight.dim() == 2 else weight))
    return made if bias is None else made + bias


def _plus(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def added(input: Any, one: Any, other: Any, beta: Any = 1, alpha: Any = 1) -> Any:
        made = product(one, other)
        return (input if beta == 1 else input * beta) + (made if alpha == 1 else made * alpha)

    return added


def _inner(one: Any, other: Any) -> Any:
    return (
        _call("matmul", (one, _call("mT", (other,)) if other.dim() > 1 else other))
        if one.dim() and other.dim()
        else one * other
    )


_PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": _matrices("mm", 2, 2),
    "mv": _matrices("mv", 2, 1),
    "bmm": _matrices("bmm", 3, 3),
    "dot": _matrices("dot", 1, 1),
    "vdot": lambda one, other: _matrices("vdot", 1, 1)(one.conj(), other),
    "inner": _inner,
    "outer": _outer,
    "linear": _linear,
    "addmm": _plus(_matrices("addmm", 2, 2)),
    "addmv": _plus(_matrices("addmv", 2, 1)),
    "baddbmm": _plus(_matrices("baddbmm", 3, 3)),
    "addr": _plus(_outer),
    "linalg.vecdot": lambda one, other, dim=-1: (one.conj() * other).sum(dim),
}


@rule("einsum")
def einsum(call: Call) -> Any:
    """A letter more, which stands for the batch, in batched operands and in the answer."""
    equation, operands = call.args[0], call.args[1]
    given, arrow, out = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    letters = given.replace(",", "").replace(".", "")
    if not arrow:
        out = ("..." if "..." in given else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    batch = next(c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvutsrqponmlkjihgfedcba" if c not in given + out)
    parts = [batch + part if is_batched(each, call.level) else part for part, each in zip(parts, operands, strict=True)]
    values = [value_at(each, call.level) for each in operands]
    return call.wrap(_call("einsum", (f"{','.join(parts)}->{batch}{out}", values)))


@rule("tensordot")
def tensordot(call: Call) -> Any:
    """As einsum: summed dimensions share a letter. `dims`: a number, or both lists one after the other."""
    one, other, dims = call.args[0], call.args[1], call.get("dims", 2)
    if isinstance(dims, int):
        dims = (*range(one.dim() - dims, one.dim()), *range(dims))
    half = len(dims) // 2
    left = [chr(97 + place) for place in range(one.dim())]
    right = [chr(97 + one.dim() + place) for place in range(other.dim())]
    for first, second in zip(dims[:half], dims[half:], strict=True):
        right[second] = left[first]
    out = [c for c in left if c not in right] + [c for c in right if c not in left]
    return _call("einsum", (f"{''.join(left)},{''.join(right)}->{''.join(out)}", (one, other)))


# Layers that take a batch already: the samples go into it.


@rule(
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d interpolate pixel_shuffle "
    "pixel_unshuffle"
)
def folded(call: Call) -> Any:
    tensor, level = call.args[0], call.level
    value = call.first()
    spatial = next((int(c) for c in call.base if c.isdigit()), None)
    unbatched = spatial is not None and tensor.dim() == spatial + 1
    if unbatched or call.base.startswith("pixel"):
        call.args[0] = value
        return call.wrap(call.run())
    call.args[0] = value.reshape((level.size * tensor.shape[0], *tensor.shape[1:]))
    return call.wrap(tree_map(lambda one: one.reshape((level.size, tensor.shape[0], *one.shape[1:])), call.run()))


@rule("conv1d conv2d conv3d")
def convolution(call: Call) -> Any:
    """Samples go into the batch; if each has weights of its own, into groups of channels."""
    level, spatial = call.level, int(call.base[4])
    tensor, weight, bias = call.args[0], call.get("weight"), call.get("bias")
    if tensor.dim() == spatial + 1:
        call.args[0] = tensor.unsqueeze(0)
        return call.run().squeeze(0)
    call.set("bias", None)
    count = tensor.shape[0]
    if not is_batched(weight, level):
        value = call.first()
        call.args[0] = value.reshape((level.size * count, *tensor.shape[1:]))
        answer = call.run()
        made = call.wrap(answer.reshape((level.size, count, *answer.shape[1:])))
    else:
        value = spread(tensor, level).movedim(0, 1)
        call.args[0] = value.reshape((count, level.size * tensor.shape[1], *tensor.shape[2:]))
        call.set("weight", value_at(weight, level).reshape((level.size * weight.shape[0], *weight.shape[1:])))
        call.set("groups", level.size * call.get("groups", 1))
        answer = call.run()
        made = call.wrap(answer.reshape((count, level.size, weight.shape[0], *answer.shape[2:])).movedim(1, 0))
    return made if bias is None else made + bias.reshape((-1, *(1,) * spatial))


@rule("layer_norm rms_norm group_norm")
def normalization(call: Call) -> Any:
    tensor, weight, bias = call.args[0], call.get("weight"), call.get("bias") if "bias" in call.names else None
    call.set("weight", None)
    if "bias" in call.names:
        call.set("bias", None)
    if call.base == "group_norm":
        made = folded(call)
        shape = (-1, *(1,) * (tensor.dim() - 2))
        weight, bias = (None if one is None else one.reshape(shape) for one in (weight, bias))
    else:
        call.args[0] = call.first()
        made = call.wrap(call.run())
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Any:
    if call.get("dropout_p", 0.0):
        check_random(call.level, call.op)
    operands = [call.get(name) for name in ("query", "key", "value", "attn_mask")]
    ndim = max(each.dim() for each in operands if each is not None)
    for name, each in zip(("query", "key", "value", "attn_mask"), operands, strict=True):
        if each is not None:
            call.set(name, _padded(each, ndim, call.level) if is_batched(each, call.level) else each)
    return call.wrap(call.run())


@rule("embedding")
def embedding(call: Call) -> Any:
    level, weight = call.level, call.get("weight")
    if call.get("max_norm") is not None:
        raise refuse("vmap: embedding(max_norm=…) changes its weight, which samples cannot do one by one")
    if not is_batched(weight, level):
        call.args[0] = call.first()
        return call.wrap(call.run())
    if call.get("padding_idx") is not None:
        raise refuse("vmap: embedding with a weight per sample takes no padding_idx")
    return weight[call.args[0]]


# Losses, in terms of the ops above.


def _reduced(losses: Any, reduction: str) -> Any:
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


@rule(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
    "soft_margin_loss poisson_nll_loss"
)
def elementwise_loss(call: Call) -> Any:
    reduction = call.get("reduction", "mean")
    batch = call.args[0].shape[0] if call.args[0].dim() else 1
    call.set("reduction", "none")
    for name in call.names[:2]:  # of one shape by these ops' own rules, so the batch is given to both
        call.set(name, BatchedTensor(spread(call.get(name), call.level), call.level))
    losses = elementwise(call)
    if reduction == "batchmean":
        return losses.sum() / batch
    return _reduced(losses, reduction)


@rule("cross_entropy nll_loss")
def class_loss(call: Call) -> Any:
    """The samples' batches as one, then the mean of each sample by itself."""
    level, reduction = call.level, call.get("reduction", "mean")
    input, target, weight = call.args[0], call.get("target"), call.get("weight")
    if input.dim() == 1:
        call.args[0] = input.unsqueeze(0)
        call.set("target", target.unsqueeze(0))
        made = class_loss(call)
        return made.squeeze(0) if reduction == "none" else made
    if is_batched(weight, level):
        raise refuse(f"vmap: {call.op} takes no weight per sample")
    flat = [spread(each, level) for each in (input, target)]
    call.args[0] = flat[0].reshape((level.size * input.shape[0], *input.shape[1:]))
    call.set("target", flat[1].reshape((level.size * target.shape[0], *target.shape[1:])))
    call.set("reduction", "none")
    answer = call.run()
    losses = call.wrap(answer.reshape((level.size, input.shape[0], *answer.shape[1:])))
    if reduction != "mean":
        return _reduced(losses, reduction)
    if target.is_floating_point():
        return losses.sum() / losses.numel()
    counted = target != call.get("ignore_index", -100)
    if weight is None:
        return losses.sum() / counted.sum()
    return losses.sum() / _call("where", (counted, weight[_call("where", (counted, target, 0))], 0.0)).sum()


# Random numbers.

FACTORIES = frozenset(["rand", "randn", "randint", "randperm", "normal"])


def check_random(level: Level, op: str) -> None:
    """Refuse a random op where vmap was not told what it should do."""
    if level.randomness == "error":
        raise refuse(
            f"vmap: called random operation while in randomness error mode ({op}). Please either use the 'same' or "
            "'different' randomness flags on vmap or perform the randomness operation out of vmap"
        )


def draw(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], levels: tuple[Level, ...]) -> Any:
    """Numbers that no batched tensor is asked for: for each sample its own, or the same for all."""
    level = levels[-1]
    check_random(level, op)
    if level.randomness == "same":
        if len(levels) == 1:
            return NotImplemented
    elif op in ("rand", "randn"):
        args = ((level.size, *args[0]),)
    elif op == "randint":
        args = (*args[:2], (level.size, *args[2]))
    else:
        raise refuse(f"vmap: there is no batching rule for {op} with randomness='different'")
    token = LEVELS.set(levels[:-1])
    try:
        made = _call(op, args, tuple(kwargs))
    finally:
        LEVELS.reset(token)
    return made if level.randomness == "same" else BatchedTensor(made, level)


@rule(
    "dropout alpha_dropout bernoulli rand_like randn_like randint_like uniform normal exponential geometric cauchy "
    "log_normal random"
)
def random(call: Call) -> Any:
    level = call.level
    refuse_in_place(call)
    if "training" in call.names and not call.get("training", call.base == "dropout"):
        return call.args[0]
    check_random(level, call.op)
    if level.randomness == "different":
        return elementwise(call)
    target = call.args[0]
    if call.base in ("dropout", "alpha_dropout", "bernoulli"):
        if call.base != "dropout" or call.in_place:
            raise refuse(f"vmap: there is no batching rule for {call.op} with randomness='same'")
        ones = _ops.ones_like(value_at(target, level).select(0, 0).detach())
        return target * _call("dropout", (ones, *call.args[1:]), tuple(call.kwargs.items()))
    if call.in_place:
        drawn = _ops.clone(value_at(target, level).select(0, 0))
        call.args[0] = drawn
        target.copy_(call.run())
        return target
    call.args[0] = value_at(target, level).select(0, 0)
    return call.run()


# New tensors like a batched one hold a value per sample, so that samples may be written into them.


@rule("new_zeros new_ones new_full new_empty")
def new_like(call: Call) -> Any:
    size = _sizes_of(call.get("size"))
    call.args[0] = call.first()
    call.set("size", (call.level.size, *size))
    return call.wrap(call.run())
