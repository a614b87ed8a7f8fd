"""Fresh random calls of ops, on gradwire over a real server and on PyTorch, and whether both answer alike.

A `Draw` makes the arguments of one call; `tests/parity/fuzz_calls.py` says, op by op, which. What is compared: value,
shape, dtype, whether it requires grad, the first derivative and, along a random direction, the second; what the inputs
hold after the results are written to; where PyTorch refuses, the class of the exception.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import gradwire
from tests.parity import oplist

FLOATS = ("float64", "float32", "float16", "bfloat16")
WHOLE = ("int64", "int32", "int16", "int8", "uint8")
COMPLEX = ("complex128", "complex64")
EVERY = (*FLOATS, *WHOLE, "bool", *COMPLEX)
_LIKELY = np.array([10, 4, 1.5, 1.5, 2, 1, 0.5, 0.5, 1, 1, 1.5, 0.5])
_TOLERANCE = {
    "float64": 1e-7, "complex128": 1e-7, "float32": 2e-3, "complex64": 2e-3, "float16": 1e-2, "bfloat16": 6e-2
}  # fmt: skip

#: Ops whose inputs differ from PyTorch's after a write to the result, and why.
_SHARED_OTHERWISE = {
    "conj": "a lazily conjugated view in PyTorch, a copy here",
    "mH": "as conj",
    "H": "as conj",
    "cov": "with weights, PyTorch subtracts the mean from its input",
}


@dataclass
class Made:
    """A tensor of a call: values, dtype, layout, and whether it may require grad."""

    values: np.ndarray
    dtype: str
    layout: str
    grad: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def build(self, t: Any) -> Any:
        """The tensor of a module, gradwire or torch."""
        dtype = getattr(t, self.dtype)
        floating = self.dtype in FLOATS or self.dtype in COMPLEX
        laid = self.values.swapaxes(0, -1).copy() if self.layout == "transposed" and self.ndim > 1 else self.values
        wide = laid.astype(np.complex128 if self.dtype in COMPLEX else np.float64) if floating else laid
        made = t.tensor(wide.tolist(), dtype=dtype).reshape(laid.shape)
        if self.grad and floating:
            made.requires_grad_()
        view = made.transpose(0, -1) if self.layout == "transposed" and self.ndim > 1 else made
        return made, view


@dataclass
class D:
    """A dtype among the arguments."""

    name: str


class Draw:
    """The arguments of one call, from a random generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return bool(self.rng.random() < p)

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def int(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def float(self, low: float = -2.0, high: float = 2.0) -> float:
        """A number with few digits."""
        return round(float(self.rng.uniform(low, high)), 3)

    def shape(self, low: int = 0, high: int = 4, most: int = 4, empty: float = 0.05) -> tuple[int, ...]:
        """Sizes; now and then one is 0 or 1."""
        sizes = [self.int(1, most) for _ in range(self.int(low, high))]
        if sizes and self.chance(empty):
            sizes[self.int(0, len(sizes) - 1)] = 0
        return tuple(sizes)

    def dim(self, shape: Sequence[int] | Made, beyond: float = 0.02) -> int:
        """A dimension, from the front or the back; now and then one that is not there."""
        ndim = len(shape.shape if isinstance(shape, Made) else shape)
        if self.chance(beyond):
            return ndim + 1
        return self.int(-max(ndim, 1), max(ndim, 1) - 1)

    def dtype(self, among: Sequence[str] = EVERY) -> str:
        """A dtype, float64 more often than others."""
        weights = np.array([_LIKELY[EVERY.index(name)] for name in among])
        return str(self.rng.choice(among, p=weights / weights.sum()))

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str | None = None,
        low: float = -3.0,
        high: float = 3.0,
        grad: bool = True,
        odd: float = 0.08,
        ties: float = 0.15,
    ) -> Made:
        """A tensor; now and then with ties, zeros, nan or infinities, and strides of its own."""
        dtype = dtype or self.dtype()
        shape = tuple(shape)
        if dtype == "bool":
            values = self.rng.random(shape) < 0.5
        elif dtype in WHOLE:
            bottom = max(math.floor(low), 0 if dtype == "uint8" else -100)
            values = self.rng.integers(bottom, max(int(high), bottom) + 1, shape)
        else:
            values = self.rng.uniform(low, high, shape)
            if dtype in COMPLEX:
                values = values + 1j * self.rng.uniform(low, high, shape)
            elif self.chance(ties):
                values = np.clip(np.round(values), math.ceil(low), math.floor(high)) if high - low >= 1 else values
            elif self.chance(odd) and values.size:
                where = self.rng.random(shape) < 0.2
                values = np.where(where, self.pick(np.nan, np.inf, -np.inf), values)
            values = np.asarray(values)
            if dtype in ("float32", "float16", "complex64"):
                values = np.asarray(values.astype(dtype))
            elif dtype == "bfloat16":
                values = torch.tensor(values.tolist(), dtype=torch.bfloat16).double().numpy().reshape(shape)
        return Made(np.asarray(values), dtype, self.pick("plain", "plain", "transposed"), grad and self.chance(0.85))

    def index(self, shape: Sequence[int], size: int, negative: bool = False, beyond: float = 0.02) -> Made:
        """Positions along a dimension of a size; now and then one beyond."""
        low = -size if negative else 0
        values = self.rng.integers(low, max(size, low + 1), tuple(shape))
        if values.size and self.chance(beyond):
            values.reshape(-1)[0] = size
        return Made(values, "int64", "plain", False)

    def mask(self, shape: Sequence[int]) -> Made:
        """Bools."""
        return Made(self.rng.random(tuple(shape)) < 0.5, "bool", "plain", False)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with this one: some sizes 1, some leading ones left out."""
        sizes = [1 if self.chance(0.25) else size for size in shape]
        return tuple(sizes[self.int(0, len(sizes)) if self.chance(0.3) else 0 :])


def _convert(value: Any, t: Any, leaves: list[Any]) -> Any:
    if isinstance(value, Made):
        leaf, view = value.build(t)
        leaves.append(leaf)
        return view
    if isinstance(value, D):
        return getattr(t, value.name)
    if isinstance(value, slice):
        return value
    if isinstance(value, tuple | list):
        return type(value)(_convert(item, t, leaves) for item in value)
    return value


def _called(t: Any, function: Any, given: Sequence[Any], named: dict[str, Any]) -> Any:
    """The results of a function; of a module's class, whose arguments are a call of `fuzz_calls._recurrent`."""
    if not (isinstance(function, type) and issubclass(function, t.nn.Module)):
        return function(*given, **named)
    options, lengths, parameters, (x, *states) = given
    module = function(**options).to(x.dtype)
    held = dict(zip([name for name, _ in module.named_parameters()], parameters, strict=True))
    if lengths is None:
        return t.func.functional_call(module, held, (x, *states))
    first = options["batch_first"]
    packed = t.nn.utils.rnn.pack_padded_sequence(x, t.tensor(lengths), first, enforce_sorted=False)
    out, last = t.func.functional_call(module, held, (packed, *states))
    return *t.nn.utils.rnn.pad_packed_sequence(out, first), last


Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class Outcome:
    """What a call came to on one side: an exception, or results and the derivatives of both orders."""

    def __init__(self, t: Any, call: Call, in_place: bool, order: int, seed: int) -> None:
        self.error: Exception | None = None
        self.results: list[Any] = []
        self.first: list[Any] = []
        self.second: list[Any] = []
        self.written: list[Any] = []
        self.not_differentiable = False
        name, args, kwargs = call
        leaves: list[Any] = []
        rng = np.random.default_rng(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given = _convert(args, t, leaves)
                named = {key: _convert(value, t, leaves) for key, value in kwargs.items()}
                if in_place:
                    given = (given[0].clone(), *given[1:])
                made = _called(t, oplist.find(t, name), given, named)
                self.results = _flat(made)
                for result in self.results:
                    if isinstance(result, t.Tensor):
                        result.detach().tolist()  # what was deferred is refused here at the latest
        except Exception as error:  # noqa: BLE001 - whatever is raised is what is compared
            self.error = error
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._differentiate(t, leaves, order, rng)
        except (RuntimeError, IndexError) as error:
            self.not_differentiable = True
            self.why = error
        if not in_place:
            self._write_into_results(t, leaves)

    def _write_into_results(self, t: Any, leaves: list[Any]) -> None:
        """Fill the results, and keep what the inputs then hold: a view shows the change, a copy does not."""
        with t.no_grad():
            for result in self.results:
                if isinstance(result, t.Tensor):
                    with contextlib.suppress(RuntimeError):  # an expanded result cannot be written to
                        result.detach().fill_(1)
        self.written = [leaf.detach().clone() for leaf in leaves]

    def _differentiate(self, t: Any, leaves: list[Any], order: int, rng: np.random.Generator) -> None:
        outs = [out for out in self.results if isinstance(out, t.Tensor) and out.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        if not outs or not wanted or not order:
            return
        seeds = [_seed(t, out, rng) for out in outs]
        self.first = list(t.autograd.grad(outs, wanted, seeds, create_graph=order > 1, allow_unused=True))
        if order < 2:
            return
        again = [(g, _seed(t, g, rng)) for g in self.first if g is not None]
        kept = [(g, seed) for g, seed in again if g.requires_grad]
        if kept:
            found = t.autograd.grad([g for g, _ in kept], wanted, [s for _, s in kept], allow_unused=True)
            self.second = [t.zeros_like(leaf) if g is None else g for g, leaf in zip(found, wanted, strict=True)]
        else:
            self.second = [t.zeros_like(leaf) for leaf in wanted]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [one for item in value for one in _flat(item)]
    return [value]


def _seed(t: Any, like: Any, rng: np.random.Generator) -> Any:
    values = np.asarray(rng.uniform(-1, 1, tuple(like.shape)))
    if like.is_complex():
        values = values + 1j * np.asarray(rng.uniform(-1, 1, tuple(like.shape)))
    return t.tensor(values.tolist(), dtype=like.dtype).reshape(tuple(like.shape))


def _numbers(value: Any) -> np.ndarray:
    value = value.detach()
    wide = torch.complex128 if value.is_complex() else torch.float64
    module = torch if isinstance(value, torch.Tensor) else gradwire
    if module is torch and value._is_zerotensor():  # takes no memory, and cannot be listed
        return np.zeros(tuple(value.shape), np.complex128 if value.is_complex() else np.float64)
    if value.dtype in (module.int64, module.bool):
        return np.asarray(value.tolist()).reshape(tuple(value.shape))
    plain = value.to(wide if module is torch else getattr(gradwire, str(wide)[6:]))
    return np.asarray(plain.tolist()).reshape(tuple(value.shape))


def _differs(mine: Any, its: Any, factor: float, coarsest: float) -> str:
    if its is None or mine is None:
        return "" if its is mine else f"{'nothing' if mine is None else 'something'} where PyTorch has the contrary"
    if not isinstance(its, torch.Tensor):
        return "" if type(mine) is type(its) and mine == its else f"{mine!r}, PyTorch has {its!r}"
    if not isinstance(mine, gradwire.Tensor):
        return f"a {type(mine).__name__}, no tensor"
    if str(mine.dtype) != str(its.dtype):
        return f"dtype {mine.dtype}, PyTorch has {its.dtype}"
    if tuple(mine.shape) != tuple(its.shape):
        return f"shape {tuple(mine.shape)}, PyTorch has {tuple(its.shape)}"
    tolerance = (
        max(_TOLERANCE.get(str(its.dtype)[6:], 0.0), coarsest) * factor
        if its.dtype.is_floating_point or its.dtype.is_complex
        else 0
    )
    one, other = _numbers(mine), _numbers(its)
    with np.errstate(all="ignore"):
        same = np.isclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if same.all() else f"values {one.tolist()}, PyTorch has {other.tolist()}"


def compare(call: Call, *, in_place: bool = False, order: int = 2, factor: float = 1.0, seed: int = 0) -> str:
    """Where gradwire and PyTorch differ about this call; nothing where they agree."""
    given = [*call[1], *call[2].values()]
    coarsest = max([_TOLERANCE.get(one.dtype, 0.0) for one in _flat(given) if isinstance(one, Made)], default=0.0)
    its = Outcome(torch, call, in_place, order, seed)
    mine = Outcome(gradwire, call, in_place, order, seed)
    if its.error is not None:
        if mine.error is None:
            return f"no error, PyTorch raises {type(its.error).__name__}: {its.error}"
        wanted = next(cls for cls in type(its.error).__mro__ if cls.__module__ == "builtins")
        wanted = NotImplementedError if isinstance(its.error, NotImplementedError) else wanted
        if not isinstance(mine.error, wanted):
            what = f"{type(mine.error).__name__}: {mine.error}"
            return f"{what}; PyTorch: {type(its.error).__name__}: {its.error}"
        return ""
    if mine.error is not None:
        return f"{type(mine.error).__name__}: {mine.error}; PyTorch raises nothing"
    if len(mine.results) != len(its.results):
        return f"{len(mine.results)} results, PyTorch has {len(its.results)}"
    for one, other in zip(mine.results, its.results, strict=True):
        if what := _differs(one, other, factor, coarsest):
            return what
        if isinstance(other, torch.Tensor) and one.requires_grad != other.requires_grad:
            return f"requires_grad {one.requires_grad}, PyTorch has {other.requires_grad}"
    if its.not_differentiable:
        return ""
    if mine.not_differentiable:
        return f"no derivative: {mine.why}"
    for which, ours, theirs in (("first", mine.first, its.first), ("second", mine.second, its.second)):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if what := _differs(one, other, factor * 10, coarsest):
                return f"{which} derivative by tensor {number}: {what}"
    if call[0] in _SHARED_OTHERWISE:
        return ""
    for number, (one, other) in enumerate(zip(mine.written, its.written, strict=True)):
        if what := _differs(one, other, factor, coarsest):
            return f"tensor {number} after its results were filled with ones: {what}"
    return ""


def describe(call: Call) -> str:
    """The call as text."""

    def text(value: Any) -> str:
        if isinstance(value, Made):
            flag = ", grad" if value.grad else ""
            return f"tensor({value.values.tolist()}, {value.dtype}{flag}{', transposed' * (value.layout != 'plain')})"
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(text, value))}]"
        return repr(value)

    name, args, kwargs = call
    return f"{name}({', '.join([*map(text, args), *(f'{k}={text(v)}' for k, v in kwargs.items())])})"


Maker = Callable[[Draw], tuple[tuple[Any, ...], dict[str, Any]]]
CALLS: dict[str, Maker] = {}
ORDERS: dict[str, int] = {}


def calls(*names: str, order: int = 2) -> Callable[[Maker], Maker]:
    """Say how the arguments of these ops are drawn, and how often the ops are differentiated."""

    def register(maker: Maker) -> Maker:
        for name in names:
            CALLS[name] = maker
            ORDERS[name] = order
        return maker

    return register


def a(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as they are written in a call."""
    return args, kwargs
