"""Random tensors, drawn from the session's generator; the same seed gives the same numbers.

A sampler draws them: as PyTorch on the CPU (pytorch_sampler.py), or by NumPy's PCG64 or a GPU's Philox
(numpy_sampler.py).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import generator_for
from gradwire_engine.core.device import Array
from gradwire_engine.core.dtypes import DType, Number
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.core.mt19937 import Twister
from gradwire_engine.op.composite import composite
from gradwire_engine.op.integer_bounds import Range, note_positions
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.checks import ints
from gradwire_engine.ops.base.creation import made, place
from gradwire_engine.ops.base.fill import zeros
from gradwire_engine.ops.random.layout import dense
from gradwire_engine.ops.random.numpy_sampler import NumpySampler
from gradwire_engine.ops.random.pytorch_sampler import PytorchSampler

Ints = Any
Device = str
_UNIFORM, _NORMAL, _SHUFFLED = 6.0, 15.0, 150.0  # operations per number

_SHUFFLE_BYTES = 40  # working memory per number

_sampler = composite(differentiable=False, reads_values=True, draws=True)


def sampler_for(xp: Any) -> Any:
    """The current context's sampler for an array module: a PytorchSampler or a NumpySampler."""
    source = generator_for(xp)
    return PytorchSampler(source) if isinstance(source, Twister) else NumpySampler(xp, source)


def _floating(name: str, dtype: DType | None) -> DType:
    chosen = dtype or dtypes.default()
    if dtypes.category(chosen) < dtypes.FLOAT:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"{name}\" not implemented for '{dtypes.TITLES[chosen]}'", op=name)
    return chosen


def _array(input: Any) -> Array:
    return getattr(input, "array", input)


def _temporary_bytes(dtype: DType) -> int:
    """Temporary bytes per element: float32 values for half types, both parts for complex types."""
    if dtypes.category(dtype) == dtypes.COMPLEX:
        return 2 * dtype.itemsize
    return 8 if dtype.itemsize == 2 else 0


@_sampler
def rand(size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False) -> Array:
    """Uniform random numbers from [0, 1) (torch.rand)."""
    shape, dtype = ints(size), _floating("rand", dtype)
    xp = place(device, shape, dtype, _temporary_bytes(dtype))
    return made(device, lambda: sampler_for(xp).uniform(shape, dtype), requires_grad, shape, _UNIFORM)


@_sampler
def randn(
    size: Ints, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Normal random numbers of mean 0 and variance 1 (torch.randn)."""
    shape, dtype = ints(size), _floating("normal_kernel_cpu", dtype)
    xp = place(device, shape, dtype, _temporary_bytes(dtype))
    return made(device, lambda: sampler_for(xp).normal(shape, dtype), requires_grad, shape, _NORMAL)


@_sampler
def rand_like(
    input: Array, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Uniform random numbers with the input's shape (torch.rand_like)."""
    like, dtype, device = dense(_array(input)), _floating("rand", dtype or input.dtype), device or input.device
    xp = place(device, input.shape, dtype, _temporary_bytes(dtype))
    return made(device, lambda: sampler_for(xp).uniform(like, dtype), requires_grad, input.shape, _UNIFORM)


@_sampler
def randn_like(
    input: Array, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False
) -> Array:
    """Normal random numbers with the input's shape (torch.randn_like)."""
    like, dtype, device = (
        dense(_array(input)),
        _floating("normal_kernel_cpu", dtype or input.dtype),
        device or input.device,
    )
    xp = place(device, input.shape, dtype, _temporary_bytes(dtype))
    return made(device, lambda: sampler_for(xp).normal(like, dtype), requires_grad, input.shape, _NORMAL)


@_sampler
def randint(
    low: int,
    high: int,
    size: Ints,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Random integers from low to high - 1 (torch.randint)."""
    shape, dtype = ints(size), dtype or dtypes.int64
    return _integers(shape, shape, low, high, dtype, device, requires_grad)


def _integers(
    like: Any, shape: tuple[int, ...], low: int, high: int, dtype: DType, device: Device | None, requires_grad: bool
) -> Array:
    _check_bounds(low, high, dtype)
    xp = place(device, shape, dtype, 0 if dtype == dtypes.int64 else 8)
    drawn = made(device, lambda: sampler_for(xp).integers(like, low, high, dtype), requires_grad, shape, _UNIFORM)
    note_positions(drawn, low, high - 1)
    return drawn


@_sampler
def randint_like(
    input: Array,
    low: int,
    high: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Random integers from low to high - 1, with the input's shape (torch.randint_like)."""
    like, dtype, device = dense(_array(input)), dtype or input.dtype, device or input.device
    return _integers(like, input.shape, low, high, dtype, device, requires_grad)


@_sampler
def randperm(n: int, *, dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False) -> Array:
    """Random permutation of 0 to n - 1 (torch.randperm)."""
    dtype = dtype or dtypes.int64
    most = _largest_exact(dtype) + 1
    # PyTorch checks neither bfloat16 nor bool here.
    if n > most and dtype not in (dtypes.bfloat16, dtypes.bool_):
        raise EngineError(
            Reason.RUNTIME,
            f"n cannot be greater than {most} for {dtypes.TITLES[dtype]} type."
            if dtypes.category(dtype) == dtypes.FLOAT
            else f"value cannot be converted to type {dtype.name} without overflow",
        )
    xp = place(device, (n,), dtype, _SHUFFLE_BYTES)
    drawn = made(
        device,
        lambda: sampler_for(xp).permutation(n).astype(dtype, copy=False),
        requires_grad,
        (n,),
        _SHUFFLED,
    )
    note_positions(drawn, 0, n - 1)
    return drawn


@op(in_place=False, cost=12, draws=True)
def bernoulli(xp: Any, input: Array, p: float | None = None) -> Array:
    """Draw 1 with the probability given by each element, or by p, else 0 (torch.bernoulli). The gradient is zero."""
    _check_dtype_of_chances(input.dtype, p)
    _check_chances(input if p is None else xp.asarray(p))
    sampler = sampler_for(xp)
    drawn = sampler.chances(input.shape, input) if p is None else sampler.chance(input.shape, p)
    return drawn.astype(input.dtype)


@op(name="_bernoulli", in_place=True, node="BernoulliBackward0", cost=12, draws=True)
def _bernoulli_like(xp: Any, input: Array, p: float | None = None) -> Array:
    """As `bernoulli`, in the order of the input's memory if p is given."""
    if p is None:
        return bernoulli.function(xp, input)
    _check_dtype_of_chances(input.dtype, p)
    _check_chances(xp.asarray(p))
    return sampler_for(xp).chance(input, p).astype(input.dtype)


@composite(name="bernoulli_", differentiable=False, writes=True, draws=True)
def bernoulli_(input: Array, p: float | None = None) -> Array:
    """Write 1 with the probability given by each element, or by p, else 0 (torch.Tensor.bernoulli_)."""
    return _bernoulli_like.in_place((input, p))


def _check_dtype_of_chances(dtype: DType, p: float | None) -> None:
    """Refuse whole and complex probabilities, and complex results. Raises EngineError: NOT_SUPPORTED."""
    category = dtypes.category(dtype)
    if category == dtypes.FLOAT or (p is not None and category < dtypes.FLOAT):
        return
    kernel = "scalar_cpu" if p is not None else "tensor_cpu_self" if category == dtypes.COMPLEX else "tensor_cpu_p"
    title = dtypes.TITLES[dtype]
    raise EngineError(Reason.NOT_SUPPORTED, f"\"bernoulli_{kernel}_\" not implemented for '{title}'", op="bernoulli")


def _check_chances(chance: Array) -> None:
    if bool(((chance < 0) | (chance > 1) | (chance != chance)).any()):
        raise EngineError(Reason.RUNTIME, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.")


for _each in (bernoulli, _bernoulli_like):
    _each.works_in(forward=1.4, widens=True)
    _each.grad(input=lambda g: zeros(g)).tangent("pointwise")


@_sampler
def normal(
    mean: Array | Number,
    std: Array | Number = 1.0,
    size: Ints | None = None,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Array:
    """Normal random numbers; mean and std are tensors or numbers; two numbers need a size (torch.normal)."""
    centre: Any = getattr(mean, "array", mean)
    spread: Any = getattr(std, "array", std)
    given: list[Any] = [value for value in (mean, std) if hasattr(value, "dtype")]
    if not given and size is None:
        raise EngineError(Reason.ARGUMENT_TYPE, "normal() missing 1 required argument: 'size'", op="normal")
    if not hasattr(spread, "dtype") and spread < 0:
        raise EngineError(Reason.RUNTIME, f"normal expects std >= 0.0, but found std {spread}")
    if hasattr(spread, "dtype") and bool((spread < 0).any()):
        raise EngineError(Reason.RUNTIME, "normal expects all elements of std >= 0.0")
    shape = np.broadcast_shapes(*(value.shape for value in given)) if given else ints(size)
    dtype = dtype or (given[0].dtype if given else dtypes.default())
    device = device or (given[0].device if given else None)
    xp = place(device, shape, dtype)

    def draw() -> Array:
        sampler = sampler_for(xp)
        return (sampler.normal_of if given else sampler.normal)(shape, dtype, centre, spread)

    return made(device, draw, requires_grad, shape, 2 * _NORMAL)


_COMPARED = 1 << 16  # pairs of an edge and a number that are compared in one step


def _searched(xp: Any, edges: Array, drawn: Array, side: str) -> Array:
    """For each number, count the ascending edges of its row below it; of equal ones too, if side is "right"."""
    rows, values = edges.reshape(-1, edges.shape[-1]), drawn.reshape(-1, drawn.shape[-1])
    found = xp.empty(values.shape, dtypes.int64)
    pairs = rows.shape[1] * values.shape[1]
    if pairs > _COMPARED:
        for place, (row, value) in enumerate(zip(rows, values, strict=True)):
            found[place] = xp.searchsorted(row, value, side=side)
        return found.reshape(drawn.shape)
    step = max(1, _COMPARED * 16 // max(pairs, 1))
    below = xp.greater_equal if side == "right" else xp.greater
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        found[part] = below(values[part, :, None], rows[part, None, :]).sum(-1)
    return found.reshape(drawn.shape)


@op(data_dependent=False, cost=250, draws=True)
def multinomial(xp: Any, input: Array, num_samples: int, replacement: bool = False) -> Array:
    """Draw indices by the weights in each row (torch.multinomial)."""
    if input.ndim not in (1, 2):
        raise EngineError(Reason.RUNTIME, "prob_dist must be 1 or 2 dim")
    if num_samples <= 0:
        raise EngineError(Reason.RUNTIME, "cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise EngineError(Reason.RUNTIME, "cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    weights = input.astype(dtypes.float64)
    if not bool((xp.isfinite(weights) & (weights >= 0)).all()):
        raise EngineError(Reason.RUNTIME, "probability tensor contains either `inf`, `nan` or element < 0")
    if bool((weights.sum(-1) <= 0).any()):
        raise EngineError(Reason.RUNTIME, "invalid multinomial distribution (sum of probabilities <= 0)")
    sampler = sampler_for(xp)
    if replacement and not (num_samples == 1 and sampler.ranks_one):
        edges, drawn, side = sampler.edges_and_numbers(input, num_samples)
        return xp.minimum(_searched(xp, edges, drawn, side), input.shape[-1] - 1)
    return sampler.ranking(input, num_samples).astype(dtypes.int64)


def _sample_count(input: Any, num_samples: int, *rest: Any) -> int:
    return int(math.prod(input.shape[:-1]) * num_samples)


multinomial.bounds_results(lambda args, operands: [Range(0, args[0].shape[-1] - 1)], of_integers=False)
multinomial.sized_by(lambda *args: 8 * _sample_count(*args))
multinomial.works_in(lambda *args: 16 * _sample_count(*args) + 24 * args[0].size)


# In-place draws: the overwritten values get zero gradients.


@op(in_place=True, cost=12, draws=True)
def uniform(xp: Any, input: Array, from_: float = 0.0, to: float = 1.0) -> Array:
    """Uniform random numbers from [from_, to), with the input's shape (torch.Tensor.uniform_)."""
    dtype = _floating("check_uniform_bounds", input.dtype)
    if from_ > to:
        raise EngineError(
            Reason.RUNTIME, f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}"
        )
    smallest, largest = _range(dtype)
    for name, bound in (("from", from_), ("to", to)):
        if not smallest <= bound <= largest:
            raise EngineError(Reason.RUNTIME, f"{name} is out of bounds for {_C_NAMES[dtype]}")
    if to - from_ > largest:
        raise EngineError(
            Reason.RUNTIME,
            f"uniform_ expects to-from <= std::numeric_limits<{dtypes.TITLES[dtype]}>::max(), but found to={to} and "
            f"from={from_} which result in to-from to exceed the limit",
        )
    return sampler_for(xp).uniform(input, dtype, from_, to)


uniform.works_in(forward=1)


@op(name="_normal", in_place=True, node="NormalBackward0", cost=12, draws=True)
def _normal_like(xp: Any, input: Array, mean: float, std: float) -> Array:
    if std < 0:
        raise EngineError(Reason.RUNTIME, f"normal expects std >= 0.0, but found std {std}")
    dtype = _floating("normal_kernel_cpu", input.dtype)
    return sampler_for(xp).normal(input, dtype, mean, std)


_normal_like.works_in(forward=1)


@composite(name="normal_", differentiable=False, writes=True, draws=True)
def normal_(input: Array, mean: float = 0.0, std: float = 1.0) -> Array:
    """Write normal random numbers of the given mean and standard deviation into the input (torch.Tensor.normal_)."""
    return _normal_like.in_place((input, mean, std))


@op(in_place=True, cost=12, draws=True)
def exponential(xp: Any, input: Array, lambd: float = 1.0) -> Array:
    """Exponentially distributed numbers, with the input's shape (torch.Tensor.exponential_)."""
    if lambd <= 0:
        raise EngineError(Reason.RUNTIME, f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    dtype = _floating("exponential", input.dtype)
    return sampler_for(xp).exponential(input, dtype, lambd)


exponential.works_in(forward=3.2, widens=True)


@op(in_place=True, cost=12, draws=True)
def random(xp: Any, input: Array, from_: int = 0, to: int | None = None) -> Array:
    """Random integers from [from_, to); by default up to the largest exact integer (torch.Tensor.random_)."""
    kind = dtypes.category(input.dtype)
    if kind == dtypes.COMPLEX:
        raise EngineError(Reason.NOT_SUPPORTED, f"\"random_\" not implemented for '{dtypes.TITLES[input.dtype]}'")
    most = _largest_exact(input.dtype)
    _check_bounds(from_, to, input.dtype)
    if to is None and from_ == 0:
        return sampler_for(xp).all_integers(input, input.dtype, most)
    return sampler_for(xp).integers(input, from_, most + 1 if to is None else to, input.dtype)


random.works_in(forward=2)


def _largest_exact(dtype: DType) -> int:
    """Largest n such that the dtype holds all integers up to n."""
    if dtypes.category(dtype) == dtypes.FLOAT:
        return int(2 ** {dtypes.float64: 53, dtypes.float32: 24, dtypes.float16: 11}.get(dtype, 8))
    return 1 if dtype == dtypes.bool_ else int(np.iinfo(dtype).max)


# PyTorch's names in messages about bounds.
_C_NAMES = {
    dtypes.bool_: "bool", dtypes.uint8: "unsigned char", dtypes.int8: "signed char", dtypes.int16: "short int",
    dtypes.int32: "int", dtypes.int64: "long int", dtypes.uint16: "short unsigned int", dtypes.uint32: "unsigned int",
    dtypes.uint64: "long unsigned int", dtypes.float16: "c10::Half", dtypes.bfloat16: "c10::BFloat16",
    dtypes.float32: "float", dtypes.float64: "double",
}  # fmt: skip


def _check_bounds(low: int, high: int | None, dtype: DType) -> None:
    """Raise EngineError: RUNTIME for an empty range, and for bounds that the dtype cannot represent."""
    if high is not None and low >= high:
        raise EngineError(
            Reason.RUNTIME, f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if dtypes.category(dtype) == dtypes.COMPLEX:
        raise EngineError(Reason.RUNTIME, "check_random_bounds handles only integral, floating-point and boolean types")
    smallest, largest = _range(dtype)
    if not smallest <= low <= largest:
        raise EngineError(Reason.RUNTIME, f"from is out of bounds for {_C_NAMES[dtype]}")
    if high is not None and not smallest <= high - 1 <= largest:
        raise EngineError(Reason.RUNTIME, f"to - 1 is out of bounds for {_C_NAMES[dtype]}")


def _range(dtype: DType) -> tuple[float, float]:
    """Smallest and largest number of a dtype that is not complex."""
    if dtype == dtypes.bool_:
        return 0, 1
    if dtypes.category(dtype) < dtypes.FLOAT:
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    most = 3.3895314e38 if dtype == dtypes.bfloat16 else float(np.finfo(dtype).max)
    return -most, most


@op(in_place=True, cost=12, draws=True)
def cauchy(xp: Any, input: Array, median: float = 0.0, sigma: float = 1.0) -> Array:
    """Cauchy distributed numbers, with the input's shape (torch.Tensor.cauchy_)."""
    if sigma <= 0:
        raise EngineError(Reason.RUNTIME, f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    dtype = _floating("cauchy", input.dtype)
    return sampler_for(xp).cauchy(input, dtype, median, sigma)


cauchy.works_in(forward=3.2, widens=True)


@op(in_place=True, cost=12, draws=True)
def log_normal(xp: Any, input: Array, mean: float = 1.0, std: float = 2.0) -> Array:
    """Log-normally distributed numbers, with the input's shape (torch.Tensor.log_normal_)."""
    if std <= 0:
        raise EngineError(Reason.RUNTIME, f"log_normal_ expects std > 0.0, but found std={std}")
    dtype = _floating("log_normal", input.dtype)
    return sampler_for(xp).log_normal(input, dtype, mean, std)


log_normal.works_in(forward=3.2, widens=True)


@op(in_place=True, cost=30, draws=True)
def geometric(xp: Any, input: Array, p: float) -> Array:
    """Number of trials up to the first success of probability p, with the input's shape (torch.Tensor.geometric_)."""
    if not 0 < p < 1:
        raise EngineError(Reason.RUNTIME, f"geometric_ expects p to be in (0, 1), but got p={p}")
    return sampler_for(xp).geometric(input, input.dtype, p)


geometric.works_in(forward=5.2, widens=True)


@op(cost=500, draws=True)
def poisson(xp: Any, input: Array) -> Array:
    """Poisson distributed numbers; each element is a mean (torch.poisson)."""
    dtype = _floating("poisson_cpu", input.dtype)
    if not bool((input >= 0).all()):  # nan is refused too
        raise EngineError(Reason.RUNTIME, "invalid Poisson rate, expected rate to be non-negative")
    return sampler_for(xp).poisson(input).astype(dtype)


poisson.works_in(forward=1)


@op(cost=1500, draws=True)
def binomial(xp: Any, count: Array, prob: Array) -> Array:
    """Number of successes in `count` trials of probability `prob`; shapes broadcast (torch.binomial)."""
    dtype = _floating("binomial_cpu", count.dtype)
    if not bool((count >= 0).all()) or not bool(((prob >= 0) & (prob <= 1)).all()):  # nan is refused too
        raise EngineError(Reason.RUNTIME, "binomial: counts must not be negative, probabilities within [0, 1]")
    return sampler_for(xp).binomial(count, prob).astype(dtype)


binomial.works_in(forward=2.1)


for _draw in (uniform, _normal_like, exponential, random, cauchy, log_normal, geometric, poisson):
    _draw.grad(input=lambda g: zeros(g)).tangent("pointwise")
