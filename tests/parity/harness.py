"""The table of ops that is held against PyTorch: one line an op, one helper that compares.

    case("mul", *pair())
    case("sum", s(t(3, 4)), s(t(3, 4), dim=1, keepdim=True))

A sample is a call: `t(...)` stands for a tensor made anew in each dtype, everything else is passed on. Compared are
value, shape, dtype, node name, the first derivative and, in a random direction, the second. Where there is no
PyTorch the derivatives are held against finite differences.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import dtypes
from gradwire_engine.core.errors import EngineError
from tests.refusals import CLASSES

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

FLOAT64, FLOAT32 = "float64", "float32"


@dataclass(frozen=True)
class T:
    """A tensor of a sample. dtype None is the run's float dtype; `values` are given ones instead of random ones."""

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str | None = None
    grad: bool = True
    values: Any = None
    layout: str = "C"

    def build(self, rng: np.random.Generator, dtype: str) -> np.ndarray:
        """The array, of this dtype or the run's."""
        dtype_ = dtypes.BY_NAME[self.dtype or dtype]
        if self.values is not None:
            return np.array(self.values).astype(dtype_).reshape(self.shape)
        if dtype_.kind == "b":
            return rng.random(self.shape) < 0.5
        if dtype_.kind in "iu":
            return rng.integers(int(self.low), int(self.high), self.shape).astype(dtype_)
        drawn = rng.uniform(self.low, self.high, self.shape)
        if dtype_.kind == "c":
            drawn = drawn + 1j * rng.uniform(self.low, self.high, self.shape)
        return drawn.astype(dtype_)

    @property
    def differentiable(self) -> bool:
        """Whether a derivative is taken by it."""
        return self.grad and (self.dtype is None or dtypes.is_differentiable(dtypes.BY_NAME[self.dtype]))


def t(*shape: int, **options: Any) -> T:
    """A tensor of a shape, uniform between `low` and `high`."""
    return T(shape, **options)


def of(*values: Any, **options: Any) -> T:
    """A vector of values, or a tensor of nested lists if one is given."""
    given = values[0] if len(values) == 1 else values
    return T(np.shape(given), values=given, **options)


def ints(*values: Any, dtype: str = "int64") -> T:
    """Whole numbers."""
    return of(*values, dtype=dtype, grad=False)


def mask(*values: Any) -> T:
    """Bools."""
    return of(*values, dtype="bool", grad=False)


@dataclass(frozen=True)
class Sample:
    """One call. `smooth` is False where finite differences say nothing: ties, edges, nan."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    smooth: bool = True
    order: int = 2
    dtypes: tuple[str, ...] = (FLOAT64, FLOAT32)


def s(*args: Any, **kwargs: Any) -> Sample:
    """A sample."""
    return Sample(args, kwargs)


def edge(*args: Any, **kwargs: Any) -> Sample:
    """A sample at a place where the function has no derivative, or none that differences could find."""
    return Sample(args, kwargs, smooth=False)


def once(*args: Any, **kwargs: Any) -> Sample:
    """A sample whose second derivative is not compared: at a corner it is nan in the one, 0 in the other."""
    return Sample(args, kwargs, smooth=False, order=1)


def in_dtype(dtype: str, /, *args: Any, **kwargs: Any) -> Sample:
    """A sample run in one dtype only."""
    return Sample(args, kwargs, smooth=False, dtypes=(dtype,))


@dataclass(frozen=True)
class Case:
    """An op and its samples; see `case`."""

    op: str
    samples: tuple[Sample, ...]
    torch: Callable[..., Any] | str | None = None
    node: str | bool = True
    order: int = 2
    half: bool = True
    in_place: bool = True
    in_place_order: int = 2
    tolerance: float = 1.0
    keywords: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.op


TABLE: dict[str, list[Case]] = {}


def case(op: str, *samples: Sample | Iterable[Sample], **options: Any) -> Case:
    """Put an op into the table.

    torch: PyTorch's function, or its dotted name, where it is not called as the op is.
    node: False where PyTorch builds several nodes and ours is one (or the other way round); else the names must agree.
    order: how often it is differentiated. half: whether float16 and bfloat16 are tried on the first sample.
    in_place: whether the form that ends in an underscore is tried too, where there is one; `in_place_order` how often
        it is differentiated, where PyTorch has no second derivative of it.
    tolerance: a factor on what is allowed.
    """
    flat: list[Sample] = []
    for one in samples:
        flat.extend([one] if isinstance(one, Sample) else one)
    made = Case(op, tuple(flat), **options)
    TABLE.setdefault(op, []).append(made)
    return made


# Samples that most ops share.


def unary(low: float = -2.0, high: float = 2.0, *edges: float, **kwargs: Any) -> list[Sample]:
    """A tensor of two dimensions, of none, an empty and a transposed one, and values at the edges."""
    ranged = {"low": low, "high": high}
    samples = [
        s(t(3, 4, **ranged), **kwargs),
        s(t(**ranged), **kwargs),
        s(t(0, 3, **ranged), **kwargs),
        s(t(4, 3, layout="F", **ranged), **kwargs),
    ]
    return samples + ([edge(of(*edges), **kwargs)] if edges else [])


def pair(low: float = -2.0, high: float = 2.0, low2: float | None = None, high2: float | None = None) -> list[Sample]:
    """Two tensors: of one shape, broadcasting, without dimensions, empty, of two dtypes."""
    a = {"low": low, "high": high}
    b = {"low": low if low2 is None else low2, "high": high if high2 is None else high2}
    return [
        s(t(3, 4, **a), t(3, 4, **b)),
        s(t(3, 1, **a), t(4, **b)),
        s(t(4, **a), t(2, 1, 4, **b)),
        s(t(3, **a), t(**b)),
        s(t(**a), t(**b)),
        s(t(0, 3, **a), t(1, 3, **b)),
        s(t(4, 3, layout="F", **a), t(4, 3, **b)),
        edge(t(3, dtype="float32", **a), t(3, dtype="float64", **b)),
    ]


WHOLE = ("int64", "int32", "uint8", "bool")


def whole(*more: Any, dtypes: Sequence[str] = WHOLE, **kwargs: Any) -> list[Sample]:
    """Vectors of whole numbers and bools, for what the results' dtypes are."""
    return [in_dtype(FLOAT32, T((4,), 1, 5, dtype=dtype, grad=False), *more, **kwargs) for dtype in dtypes]


COMPLEX = "complex128"


def complexes(count: int = 1, *more: Any, low: float = -2.0, high: float = 2.0, **kwargs: Any) -> Sample:
    """Complex tensors, for the conjugate gradient."""
    return in_dtype(FLOAT64, *(t(3, low=low, high=high, dtype=COMPLEX) for _ in range(count)), *more, **kwargs)


# Calls on both sides.


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """A change of every T inside lists, tuples and slices of arguments."""
    if isinstance(value, T):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_map(item, change) for item in value)
    return value


def _laid_out(array: Any, layout: str, copy: Callable[[Any], Any]) -> Any:
    """The values with another order of strides."""
    return copy(array.swapaxes(0, -1)).swapaxes(0, -1) if layout == "F" else array


class _Call:
    """A sample's arrays, made once, and the call with them as tensors of either side."""

    def __init__(self, made: Case, sample: Sample, dtype: str) -> None:
        self.case, self.sample = made, sample
        seed = zlib.crc32(f"{made.op} {sample} {dtype}".encode())
        self.rng = np.random.default_rng(seed)
        self.specs: list[T] = []
        self.arrays: list[np.ndarray] = []

        def note(spec: T) -> T:
            self.specs.append(spec)
            self.arrays.append(spec.build(self.rng, dtype))
            return spec

        _map([sample.args, list(sample.kwargs.values())], note)

    def with_tensors(self, tensors: Sequence[Any], convert: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with these for the Ts, and everything else converted."""
        rest = iter(tensors)
        fill = lambda value: _map_rest(_map(value, lambda _: next(rest)), convert)  # noqa: E731
        args = [fill(value) for value in self.sample.args]
        return args, {name: fill(value) for name, value in self.sample.kwargs.items()}

    def ours(self) -> list[engine.Tensor]:
        """Leaves of the engine."""
        return [
            engine.tensor(_laid_out(array.copy(), spec.layout, np.ascontiguousarray), spec.differentiable)
            for array, spec in zip(self.arrays, self.specs, strict=True)
        ]

    def theirs(self) -> list[Any]:
        """Leaves of PyTorch."""
        return [to_torch(array, spec) for array, spec in zip(self.arrays, self.specs, strict=True)]

    def call_ours(self, tensors: Sequence[engine.Tensor], name: str | None = None) -> list[engine.Tensor]:
        """The op's results."""
        args, kwargs = self.with_tensors(tensors, _engine_value)
        return results(engine.call(name or self.case.op, args, kwargs))

    def call_theirs(self, tensors: Sequence[Any], name: str | None = None) -> list[Any]:
        """PyTorch's results."""
        args, kwargs = self.with_tensors(tensors, _torch_value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name is not None:
                return results(getattr(args[0], name)(*args[1:], **kwargs))
            return results(torch_function(self.case)(*args, **kwargs))


def _map_rest(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, list | tuple) and not isinstance(value, T):
        return type(value)(_map_rest(item, convert) for item in value)
    return convert(value)


@dataclass(frozen=True)
class D:
    """A dtype among a sample's arguments."""

    name: str


def _engine_value(value: Any) -> Any:
    return dtypes.BY_NAME[value.name] if isinstance(value, D) else value


def _torch_value(value: Any) -> Any:
    return getattr(torch, value.name) if isinstance(value, D) else value


def to_torch(array: np.ndarray, spec: T) -> Any:
    """A leaf of PyTorch with the same values."""
    wide = array.astype(np.float32) if array.dtype == dtypes.bfloat16 else array
    made = torch.from_numpy(np.ascontiguousarray(wide).reshape(array.shape).copy())
    made = made.to(getattr(torch, dtypes.name_of(array.dtype)))
    made = _laid_out(made, spec.layout, lambda value: value.contiguous())
    return made.requires_grad_() if spec.differentiable else made


def torch_function(made: Case) -> Callable[..., Any]:
    """What PyTorch calls this op: a function, one of nn.functional, or a method."""
    if callable(made.torch):
        return made.torch
    name = made.torch or made.op
    found: Any = torch
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        found = getattr(torch.nn.functional, name, None) or getattr(torch.Tensor, name)
    return found


def results(value: Any) -> list[Any]:
    """The results as a list, numbers and bools as 0-d arrays."""
    if isinstance(value, list | tuple):
        return list(value)
    return [torch.tensor(value) if torch is not None and isinstance(value, bool | int | float) else value]


def numbers(value: Any) -> np.ndarray:
    """The values of a tensor of either side, as NumPy can compare them."""
    if isinstance(value, engine.Tensor):
        array = value.array
    elif isinstance(value, np.ndarray):
        array = value
    else:
        array = value.detach().resolve_conj().resolve_neg()
        array = (array.float() if array.dtype == torch.bfloat16 else array).numpy(force=True)
    return array.astype(np.float32) if array.dtype == dtypes.bfloat16 else array


_TOLERANCE = {
    dtypes.float64: (1e-9, 1e-10),
    dtypes.complex128: (1e-9, 1e-10),
    dtypes.float32: (2e-4, 2e-5),
    dtypes.complex64: (2e-4, 2e-5),
    dtypes.float16: (4e-3, 2e-3),
    dtypes.bfloat16: (3e-2, 2e-2),
}


def assert_close(ours: engine.Tensor, theirs: Any, what: str, factor: float = 1.0) -> None:
    """Equal values within the dtype's rounding, of the same shape and dtype."""
    dtype = dtypes.name_of(ours.dtype)
    if not isinstance(theirs, np.ndarray):
        assert str(theirs.dtype) == f"torch.{dtype}", f"{what}: dtype {dtype}, PyTorch has {theirs.dtype}"
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {ours.shape}, PyTorch has {tuple(theirs.shape)}"
    rtol, atol = _TOLERANCE.get(ours.dtype, (0, 0))
    np.testing.assert_allclose(
        numbers(ours), numbers(theirs), rtol=rtol * factor, atol=atol * factor, equal_nan=True, err_msg=what
    )


# What is checked.


def check_against_torch(made: Case) -> None:
    """Every sample in its dtypes; the first in half types too; the in-place form."""
    for sample in made.samples:
        for dtype in sample.dtypes:
            _compare(made, _Call(made, sample, dtype), f"{made.op} {sample} {dtype}", min(made.order, sample.order))
    if made.half and made.samples:
        for dtype in ("float16", "bfloat16"):
            _compare(
                made, _Call(made, made.samples[0], dtype), f"{made.op} {made.samples[0]} {dtype}", min(made.order, 1)
            )
    if made.in_place and engine.lookup(made.op)[0].has_in_place and made.torch is None:
        _compare_in_place(made)


def _compare(made: Case, call: _Call, what: str, order: int) -> None:
    ours, theirs = call.ours(), call.theirs()
    out, expected = call.call_ours(ours), call.call_theirs(theirs)
    shares_bytes = made.op.startswith("unsafe_")  # with other storages, which are no views' in PyTorch either
    if not shares_bytes:
        _check_own_bytes(ours, out, what)
    if not shares_bytes and made.op not in _LAZILY_CONJUGATED:
        _compare_storages((ours, theirs), (out, expected), what)
    _compare_results(made, out, expected, what)
    if order >= 1:
        _compare_derivatives(made, call, (ours, theirs), (out, expected), what, order)


def _check_own_bytes(given: list[engine.Tensor], out: list[engine.Tensor], what: str) -> None:
    """A result that is no view has bytes of its own, and they may be written to."""
    for mine in out:
        others = [each for each in given if each.storage is not mine.storage]
        assert not any(np.shares_memory(mine.array, each.array) for each in others), f"{what}: it shares its bytes"
        assert mine.view is not None or mine.array.flags.writeable, f"{what}: it is read-only"


#: Ops that answer a conjugated view in PyTorch and a copy here.
_LAZILY_CONJUGATED = ("conj", "H", "mH")


def _compare_storages(given: tuple[Any, Any], outs: tuple[Any, Any], what: str) -> None:
    """A result shares the storage of an input exactly where PyTorch's does."""
    ours = {id(each.storage) for each in given[0]}
    theirs = {each.untyped_storage()._cdata for each in given[1]}
    for mine, its in zip(*outs, strict=True):
        shares = its.untyped_storage()._cdata in theirs
        assert (id(mine.storage) in ours) == shares, f"{what}: PyTorch's {'shares' if shares else 'owns'} its bytes"


def _compare_results(made: Case, out: list[Any], expected: list[Any], what: str, loose: bool = False) -> None:
    """`loose`: PyTorch numbers the nodes of in-place forms apart."""
    assert len(out) == len(expected), f"{what}: {len(out)} results, PyTorch has {len(expected)}"
    for mine, its in zip(out, expected, strict=True):
        assert_close(mine, its, what, made.tolerance)
        assert mine.requires_grad == its.requires_grad, f"{what}: requires_grad is {mine.requires_grad}"
        if made.node is not False and its.grad_fn is not None:
            name = made.node if isinstance(made.node, str) else its.grad_fn.name().rpartition("::")[2]
            assert mine.grad_fn is not None, f"{what}: no grad_fn"
            same = mine.grad_fn.name == name or (loose and mine.grad_fn.name[:-1] == name[:-1])
            assert same, f"{what}: node {mine.grad_fn.name}, PyTorch has {name}"


def _compare_derivatives(
    made: Case, call: _Call, leaves: tuple[Any, Any], outs: tuple[Any, Any], what: str, order: int
) -> None:
    pairs = [(a, b) for a, b in zip(*outs, strict=True) if b.requires_grad]
    wanted = [(a, b) for a, b in zip(*leaves, strict=True) if b.requires_grad]
    if not pairs or not wanted:
        return
    seeds = [_direction(call.rng, a) for a, _ in pairs]
    inputs, its_inputs = [a for a, _ in wanted], [b for _, b in wanted]
    roots, its_roots = [a for a, _ in pairs], [b for _, b in pairs]
    given, its_given = (
        [engine.tensor(seed) for seed in seeds],
        [to_torch(seed, T(seed.shape, grad=False)) for seed in seeds],
    )
    plain, _ = engine.gradients(roots, inputs, given, retain_graph=True, allow_unused=True)
    recorded, _ = engine.gradients(roots, inputs, given, create_graph=True, allow_unused=True)
    expected = torch.autograd.grad(its_roots, its_inputs, its_given, create_graph=True, allow_unused=True)
    kept = []
    for number, (first, second, its) in enumerate(zip(plain, recorded, expected, strict=True)):
        assert (first is None) == (its is None), f"{what}: gradient {number} is {first}, PyTorch has {its}"
        if first is None or second is None:
            continue
        assert_close(first, its, f"{what}: gradient of input {number}", made.tolerance)
        assert_close(second, its, f"{what}: recorded gradient of input {number}", made.tolerance)
        if its.requires_grad and its.grad_fn is not None:
            kept.append((second, its))
    if order >= 2 and kept:
        _compare_second(made, call, kept, (inputs, its_inputs), what)


def _compare_second(made: Case, call: _Call, kept: list[Any], inputs: tuple[Any, Any], what: str) -> None:
    seeds = [_direction(call.rng, a) for a, _ in kept]
    expected = torch.autograd.grad(
        [b for _, b in kept],
        inputs[1],
        [to_torch(seed, T(seed.shape, grad=False)) for seed in seeds],
        allow_unused=True,
    )
    pairs = [(a, seed) for (a, _), seed in zip(kept, seeds, strict=True) if a.requires_grad]
    if pairs:
        roots = [a for a, _ in pairs]
        found, _ = engine.gradients(roots, inputs[0], [engine.tensor(seed) for _, seed in pairs], allow_unused=True)
    else:
        found = [None] * len(expected)
    for number, (mine, its) in enumerate(zip(found, expected, strict=True)):
        its_value = torch.zeros_like(inputs[1][number]) if its is None else its
        mine = engine.tensor(np.zeros_like(inputs[0][number].array)) if mine is None else mine
        assert_close(mine, its_value, f"{what}: second derivative by input {number}", made.tolerance * 10)


def _direction(rng: np.random.Generator, like: engine.Tensor) -> np.ndarray:
    drawn = rng.uniform(-1, 1, like.shape)
    if like.dtype.kind == "c":
        drawn = drawn + 1j * rng.uniform(-1, 1, like.shape)
    return np.asarray(drawn).astype(like.dtype)


def _compare_in_place(made: Case) -> None:
    """`op_` on a result, so that history is rewritten: the same value and gradients as PyTorch's."""
    sample = made.samples[0]
    call = _Call(made, sample, FLOAT64)
    ours, theirs = call.ours(), call.theirs()
    target = engine.call("clone", [ours[0]])
    same = call.call_ours([target, *ours[1:]], f"{made.op}_")
    assert same[0] is target, f"{made.op}_ answers with another tensor"
    expected = call.call_theirs([theirs[0].clone(), *theirs[1:]], f"{made.op}_")
    _compare_results(made, same, expected, f"{made.op}_ {sample}", loose=True)
    order = min(made.order, made.in_place_order)
    if order:
        _compare_derivatives(made, call, (ours, theirs), (same, expected), f"{made.op}_ {sample}", order)


# Without PyTorch: finite differences in random directions.


def check_by_differences(made: Case) -> None:
    """First and second derivatives of the smooth samples in float64."""
    for sample in made.samples:
        if sample.smooth and FLOAT64 in sample.dtypes:
            _differences(made, _Call(made, sample, FLOAT64), f"{made.op} {sample}")


def _differences(made: Case, call: _Call, what: str) -> None:
    leaves = call.ours()
    wanted = [place for place, spec in enumerate(call.specs) if spec.differentiable]
    flows = [out.requires_grad for out in call.call_ours(leaves)]
    outs = [out for out in call.call_ours(leaves) if out.requires_grad]
    if not outs or not wanted:
        return
    seeds = [engine.tensor(_direction(call.rng, out)) for out in outs]
    ways = {place: _direction(call.rng, leaves[place]) for place in wanted}

    def value(step: float) -> float:
        moved = _moved(call, ways, step, grad=False)
        found = [out for out, flow in zip(call.call_ours(moved), flows, strict=True) if flow]
        return sum((_inner(out, seed.array) for out, seed in zip(found, seeds, strict=True)), 0.0)

    def slope(step: float) -> float:
        moved = _moved(call, ways, step, grad=True)
        found = [out for out in call.call_ours(moved) if out.requires_grad]
        inputs = [moved[place] for place in wanted]
        gradients, _ = engine.gradients(found, inputs, seeds, allow_unused=True)
        return sum(_inner(g, ways[place]) for g, place in zip(gradients, wanted, strict=True) if g is not None)

    if not math.isfinite(value(0)):  # a mean of nothing
        return
    h = 1e-5
    np.testing.assert_allclose(slope(0), (value(h) - value(-h)) / (2 * h), rtol=1e-4, atol=1e-5, err_msg=what)
    if made.order >= 2:
        second = _second(call, ways, wanted, seeds)
        np.testing.assert_allclose(
            second, (slope(h) - slope(-h)) / (2 * h), rtol=1e-3, atol=1e-4, err_msg=f"{what}: second derivative"
        )


def _moved(call: _Call, ways: dict[int, np.ndarray], step: float, grad: bool) -> list[engine.Tensor]:
    return [
        engine.tensor(np.asarray(array + step * ways[place]) if place in ways else array.copy(), grad and place in ways)
        for place, array in enumerate(call.arrays)
    ]


def _second(call: _Call, ways: dict[int, np.ndarray], wanted: list[int], seeds: list[engine.Tensor]) -> float:
    """The second derivative along the ways, by backward through backward."""
    leaves = _moved(call, ways, 0.0, grad=True)
    inputs = [leaves[place] for place in wanted]
    outs = [out for out in call.call_ours(leaves) if out.requires_grad]
    first, _ = engine.gradients(outs, inputs, seeds, create_graph=True, allow_unused=True)
    kept = [(g, ways[place]) for g, place in zip(first, wanted, strict=True) if g is not None and g.requires_grad]
    if not kept:
        return 0.0
    found, _ = engine.gradients(
        [g for g, _ in kept], inputs, [engine.tensor(way) for _, way in kept], allow_unused=True
    )
    return sum(_inner(g, ways[place]) for g, place in zip(found, wanted, strict=True) if g is not None)


def _inner(value: engine.Tensor, way: np.ndarray) -> float:
    """The product along a direction, of complex numbers as of pairs of real ones."""
    return float(np.sum((value.array * np.conj(way)).real))


# Refusals.


@dataclass(frozen=True)
class Refusal:
    """A call that raises, the class of it, and what PyTorch's sentence and ours share."""

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    raises: type[Exception]
    phrase: str
    torch: Callable[..., Any] | str | None = None

    def __str__(self) -> str:
        return f"{self.op}: {self.phrase}"


def refuses(op: str, raises: type[Exception], phrase: str, *args: Any, torch: Any = None, **kwargs: Any) -> Refusal:
    """A call that is refused by both sides with this class and phrase."""
    return Refusal(op, args, kwargs, raises, phrase, torch)


def check_refusal(made: Refusal) -> None:
    """The engine refuses, and PyTorch, if it is here, does so in the same words."""
    as_case = Case(made.op, (), torch=made.torch)
    call = _Call(as_case, Sample(made.args, made.kwargs), FLOAT32)
    with pytest.raises(EngineError) as refused:
        call.call_ours(call.ours())
    error = refused.value
    assert CLASSES.get(error.reason, RuntimeError) is made.raises, f"{made}: raises {error.reason}: {error}"
    assert made.phrase.lower() in error.message.lower(), f"{made}: says {error.message!r}"
    if torch is None:
        return
    name = made.op if made.op.endswith("_") and made.torch is None else None
    with pytest.raises(made.raises) as its:
        call.call_theirs(call.theirs(), name)
    assert type(its.value) is made.raises, f"{made}: PyTorch raises {type(its.value).__name__}: {its.value}"
    assert made.phrase.lower() in str(its.value).lower(), f"{made}: PyTorch says {its.value}"
