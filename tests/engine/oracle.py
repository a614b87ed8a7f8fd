"""Hold one function of the engine, imported and called directly, against PyTorch's.

    SAME = [same(binary.hypot, torch.hypot, normal(3, 4), normal(4))]
    REFUSED = [refused(binary.gcd, Reason.NOT_SUPPORTED, "gcd_cpu", normal(2), normal(2), theirs=torch.gcd)]

Inputs are drawn from a seed of the case's name. Without PyTorch, the modules that import this one are skipped.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import EngineError, Op, Reason, Tensor
from gradwire_engine.core import dtypes

torch = pytest.importorskip("torch")

_STEP = 1e-6
_TOLERANCE = {
    dtypes.float64: (1e-9, 1e-10),
    dtypes.complex128: (1e-9, 1e-10),
    dtypes.float32: (2e-5, 2e-6),
    dtypes.complex64: (2e-5, 2e-6),
    dtypes.float16: (2e-3, 1e-3),
    dtypes.bfloat16: (2e-2, 1e-2),
}


@dataclass(frozen=True)
class Drawn:
    """An input drawn anew for each case. make: draws its array from a generator."""

    make: Callable[[np.random.Generator], Any]
    says: str
    grad: bool = True

    def __repr__(self) -> str:
        return self.says

    @property
    def constant(self) -> Drawn:
        """The same input without a gradient."""
        return Drawn(self.make, self.says, False)


def normal(*shape: int, dtype: str = "float64") -> Drawn:
    """Numbers of mean 0 and variance 1."""
    wanted = dtypes.BY_NAME[dtype]

    def make(rng: np.random.Generator) -> Any:
        drawn = rng.standard_normal(shape)
        return np.asarray(drawn + 1j * rng.standard_normal(shape) if wanted.kind == "c" else drawn).astype(wanted)

    return Drawn(make, f"{dtype}{list(shape)}")


def uniform(low: float, high: float, *shape: int, dtype: str = "float64") -> Drawn:
    """Numbers between two bounds."""
    make = lambda rng: np.asarray(rng.uniform(low, high, shape)).astype(dtypes.BY_NAME[dtype])  # noqa: E731
    return Drawn(make, f"{dtype}{list(shape)}")


def integers(low: int, high: int, *shape: int, dtype: str = "int64") -> Drawn:
    """Whole numbers from `low` to `high` - 1."""
    make = lambda rng: np.asarray(rng.integers(low, high, shape)).astype(dtypes.BY_NAME[dtype])  # noqa: E731
    return Drawn(make, f"{dtype}{list(shape)}", False)


def bools(*shape: int) -> Drawn:
    """Truth values."""
    return Drawn(lambda rng: np.asarray(rng.random(shape) < 0.5), f"bool{list(shape)}", False)


def given(values: Any, dtype: str = "float64", grad: bool = True) -> Drawn:
    """Known values."""
    array = np.array(values).astype(dtypes.BY_NAME[dtype])
    return Drawn(lambda _: array.copy(), f"{dtype}{array.tolist()}", grad)


def positive_definite(*batch_and_n: int) -> Drawn:
    """Symmetric positive-definite matrices."""

    def make(rng: np.random.Generator) -> Any:
        drawn = rng.standard_normal((*batch_and_n, batch_and_n[-1]))
        return drawn @ drawn.swapaxes(-1, -2) + batch_and_n[-1] * np.eye(batch_and_n[-1])

    return Drawn(make, f"positive definite{list(batch_and_n)}")


def _change(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_change(item, change) for item in value)
    if isinstance(value, dict):
        return {name: _change(item, change) for name, item in value.items()}
    return change(value)


def to_torch(array: Any, grad: bool = False) -> Any:
    """A leaf of PyTorch with the same values and dtype."""
    wide = array.astype(np.float32) if array.dtype == dtypes.bfloat16 else array
    made = torch.tensor(np.ascontiguousarray(wide).reshape(array.shape))
    return made.to(getattr(torch, dtypes.name_of(array.dtype))).requires_grad_(grad)


def _torch_value(value: Any) -> Any:
    return getattr(torch, dtypes.name_of(value)) if isinstance(value, np.dtype) else value


def results(value: Any) -> list[Any]:
    """The results of a call as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def numbers(value: Any) -> Any:
    """The values of a result of either side, in a dtype that NumPy compares."""
    if isinstance(value, Tensor):
        value = value.array
    elif isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype == dtypes.bfloat16 else value


def assert_close(ours: Any, theirs: Any, what: str, factor: float = 1.0) -> None:
    """Equal shape, and equal values within the rounding of the dtype of `ours`."""
    rtol, atol = _TOLERANCE.get(ours.dtype, (0, 0))
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {ours.shape}, PyTorch has {tuple(theirs.shape)}"
    np.testing.assert_allclose(
        numbers(ours), numbers(theirs), rtol=rtol * factor, atol=atol * factor, equal_nan=True, err_msg=what
    )


class _Case:
    """A call with drawn inputs."""

    ours: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        name = getattr(self.ours, "name", None) or getattr(self.ours, "__name__", "call")
        given = [*map(repr, self.args), *(f"{key}={value!r}" for key, value in self.kwargs.items())]
        return f"{name}({', '.join(given)})".replace("::", ":")

    def draw(self) -> tuple[list[Drawn], list[Any]]:
        """The inputs and their arrays, in the order of the arguments."""
        self.rng = np.random.default_rng(zlib.crc32(str(self).encode()))
        inputs: list[Drawn] = []
        _change([self.args, self.kwargs], lambda value: inputs.append(value) if isinstance(value, Drawn) else None)
        return inputs, [each.make(self.rng) for each in inputs]

    def call(self, function: Callable[..., Any], tensors: list[Any], change: Callable[[Any], Any]) -> list[Any]:
        """The results with these tensors for the inputs. change: converts all other arguments."""
        rest = iter(tensors)
        put = lambda value: next(rest) if isinstance(value, Drawn) else change(value)  # noqa: E731
        args = _change(self.args, put)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return results(function(*args, **_change(self.kwargs, put)))

    def call_ours(self, tensors: list[Any]) -> list[Any]:
        """The engine's results."""
        return self.call(self.ours, tensors, lambda value: value)

    def call_theirs(self, tensors: list[Any]) -> list[Any]:
        """PyTorch's results."""
        return self.call(self.theirs, tensors, _torch_value)  # type: ignore[attr-defined]


@dataclass
class Same(_Case):
    """A call that answers as PyTorch's does; see `same`."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    smooth: bool = True
    bare: bool = True
    factor: float = 1.0

    __str__ = _Case.__str__

    def check(self) -> None:
        """Compare values, dtypes and gradients with PyTorch, and the gradients with finite differences."""
        inputs, arrays = self.draw()
        grads = [each.grad for each in inputs]
        ours = [engine.tensor(array.copy(), grad) for array, grad in zip(arrays, grads, strict=True)]
        theirs = [to_torch(array, grad) for array, grad in zip(arrays, grads, strict=True)]
        found, expected = self.call_ours(ours), self.call_theirs(theirs)
        assert len(found) == len(expected), f"{len(found)} results, PyTorch has {len(expected)}"
        for place, (mine, its) in enumerate(zip(found, expected, strict=True)):
            its = its if isinstance(its, torch.Tensor) else torch.tensor(its)
            assert str(its.dtype) == f"torch.{dtypes.name_of(mine.dtype)}", f"result {place} has dtype {mine.dtype}"
            assert_close(mine, its, f"result {place}", self.factor)
            assert mine.requires_grad == its.requires_grad, f"result {place}: requires_grad is {mine.requires_grad}"
        for array, tensor in zip(arrays, ours, strict=True):
            np.testing.assert_array_equal(tensor.array, array, err_msg="the call changed an input")
        if self.bare and isinstance(self.ours, Op):
            for mine, bare in zip(found, self.call_ours(arrays), strict=True):
                np.testing.assert_array_equal(numbers(mine), numbers(bare), err_msg="bare arrays give other values")
        self._compare_gradients(ours, theirs, found, expected)

    def _compare_gradients(self, ours: Any, theirs: Any, found: Any, expected: Any) -> None:
        roots = [(mine, its) for mine, its in zip(found, expected, strict=True) if mine.requires_grad]
        wanted = [place for place, tensor in enumerate(ours) if tensor.requires_grad]
        if not roots or not wanted:
            return
        seeds = [normal(*mine.shape, dtype=dtypes.name_of(mine.dtype)).make(self.rng) for mine, _ in roots]
        got, _ = engine.gradients(
            [mine for mine, _ in roots],
            [ours[place] for place in wanted],
            [engine.tensor(seed) for seed in seeds],
            allow_unused=True,
        )
        its = torch.autograd.grad(
            [its for _, its in roots],
            [theirs[place] for place in wanted],
            [to_torch(seed) for seed in seeds],
            allow_unused=True,
        )
        for place, one, other in zip(wanted, got, its, strict=True):
            assert (one is None) == (other is None), f"gradient of input {place}: {one}, PyTorch has {other}"
            if one is not None:
                assert_close(one, other, f"gradient of input {place}", self.factor)
        doubles = [*(mine for mine, _ in roots), *(ours[place] for place in wanted)]
        if self.smooth and all(each.dtype == dtypes.float64 for each in doubles):
            self._compare_differences([tensor.array for tensor in ours], wanted, got, seeds)

    def _compare_differences(self, arrays: list[Any], wanted: list[int], got: list[Any], seeds: list[Any]) -> None:
        ways = {place: self.rng.standard_normal(arrays[place].shape) for place in wanted}

        def moved(step: float) -> float:
            tensors = [
                engine.tensor(np.asarray(array + step * ways[place]) if place in ways else array.copy(), place in ways)
                for place, array in enumerate(arrays)
            ]
            made = [each for each in self.call_ours(tensors) if each.requires_grad]
            return sum(float(np.sum((each.array * np.conj(seed)).real)) for each, seed in zip(made, seeds, strict=True))

        pairs = [(one, ways[place]) for place, one in zip(wanted, got, strict=True) if one is not None]
        slope = sum(float(np.sum(one.array * way)) for one, way in pairs)
        difference = (moved(_STEP) - moved(-_STEP)) / (2 * _STEP)
        np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-6, err_msg="finite differences")


def same(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *args: Any,
    smooth: bool = True,
    bare: bool = True,
    factor: float = 1.0,
    **kwargs: Any,
) -> Same:
    """A call of both sides with the same inputs.

    smooth: False where a step of finite differences may cross a kink. factor: of the tolerance.
    bare: False where the result on bare arrays differs by declaration, as that of ops that draw.
    """
    return Same(ours, theirs, args, kwargs, smooth, bare, factor)


@dataclass
class Refused(_Case):
    """A call that the engine refuses; see `refused`."""

    ours: Callable[..., Any]
    reason: Reason
    says: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    theirs: Callable[..., Any] | None = None
    caught: tuple[type[Exception], ...] = field(default=(RuntimeError, TypeError, ValueError, IndexError))

    __str__ = _Case.__str__

    def check(self) -> None:
        """The engine refuses with the reason and the words; so does PyTorch, with whatever class and words."""
        _, arrays = self.draw()
        with pytest.raises(EngineError) as refusal:
            self.call_ours([engine.tensor(array.copy()) for array in arrays])
        assert (refusal.value.reason, self.says in refusal.value.message) == (self.reason, True), refusal.value.message
        if self.theirs is not None:
            with pytest.raises(self.caught):
                self.call_theirs([to_torch(array) for array in arrays])


def refused(
    ours: Callable[..., Any], reason: Reason, says: str, *args: Any, theirs: Any = None, **kwargs: Any
) -> Refused:
    """A call that is refused. says: a part of the message, with what was given or what is allowed."""
    return Refused(ours, reason, says, args, kwargs, theirs)
