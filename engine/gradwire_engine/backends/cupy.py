"""CuPy as an array module that behaves like NumPy: all replacements for what CuPy lacks, or does otherwise, are here.

Ops call the module as `xp`. Names that are not replaced are CuPy's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from gradwire_engine.backends.cublaslt import library
from gradwire_engine.backends.philox import Philox

Array: TypeAlias = Any  # cupy.ndarray; CuPy has no type stubs

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Overlay(ModuleType):
    """A module with some of its names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        setattr(self, name, found)  # the next access needs no call
        return found


def overlay(cupy: Any) -> Overlay:
    """The array module of CuPy's arrays, of the `cupy` module."""
    replaced = _Replaced(cupy)
    linear = {name: replaced.raising(getattr(cupy.linalg, name)) for name in _FACTORED}
    return Overlay(
        cupy,
        matmul=replaced.matmul,
        products=lambda: library(cupy),
        where=replaced.where,
        tril=replaced.moving(cupy.tril),
        triu=replaced.moving(cupy.triu),
        logical_not=replaced.logical_not,
        arctan2=_refusing_complex("arctan2", cupy.arctan2),
        copysign=_refusing_complex("copysign", cupy.copysign),
        linalg=Overlay(cupy.linalg, **linear, solve=replaced.solve),
        scipy=replaced.scipy,
        generator=lambda state: Philox(cupy, state),
    )


# What reports a failed factorization: singular, not positive-definite, or without convergence.
_FACTORED = ("cholesky", "eigh", "eigvalsh", "inv", "qr", "svd")


def _refusing_complex(name: str, function: Callable[..., Array]) -> Callable[..., Array]:
    def checked(*operands: Any) -> Array:
        if any(getattr(each, "dtype", _BFLOAT16).kind == "c" for each in operands):
            raise TypeError(f"ufunc '{name}' not supported for complex numbers")  # CuPy's does not compile
        return function(*operands)

    return checked


class _Replaced:
    """Functions in place of CuPy's."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.errors = importlib.import_module("cupyx").errstate

    def where(self, condition: Array, *chosen: Any) -> Any:
        """numpy.where. CuPy's has no loop for bfloat16 and answers in float32."""
        cupy = self.cupy
        types = [each.dtype for each in chosen if hasattr(each, "dtype")]
        if _BFLOAT16 not in types:
            return cupy.where(condition, *chosen)
        if any(each != _BFLOAT16 for each in types):
            common = np.result_type(*types)
            return cupy.where(condition, *(cupy.asarray(each).astype(common) for each in chosen))
        return cupy.where(condition, *map(self._bits, chosen)).view(_BFLOAT16)

    def _bits(self, value: Any) -> Any:
        """A bfloat16 array, or a number as one, seen as integers."""
        if isinstance(value, self.cupy.ndarray):
            return value.view(np.uint16)
        return np.asarray(value, _BFLOAT16).view(np.uint16)[()]

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """numpy.matmul: by cublasLt, which reads transposed and broadcast operands where they are."""
        products = library(self.cupy) if a.ndim > 1 < b.ndim else None
        made = None if products is None else products.product(a, b, out)
        return self.cupy.matmul(a, b, out=out) if made is None else made

    def moving(self, function: Callable[..., Array]) -> Callable[..., Array]:
        """A function that moves elements, or replaces them by zeros: CuPy's answers in float32 for bfloat16."""

        def moved(input: Array, *args: Any) -> Array:
            return (
                function(self._bits(input), *args).view(_BFLOAT16)
                if input.dtype == _BFLOAT16
                else function(input, *args)
            )

        return moved

    def logical_not(self, input: Array) -> Array:
        """numpy.logical_not. CuPy's has no loop for complex numbers and bfloat16."""
        return input == 0

    def raising(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, but it raises LinAlgError as NumPy's does. CuPy's returns nan by default."""

        def checked(*args: Any, **kwargs: Any) -> Any:
            with self.errors(linalg="raise"):
                return function(*args, **kwargs)

        return checked

    def solve(self, a: Array, b: Array) -> Array:
        """numpy.linalg.solve. CuPy's does not broadcast batches."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (self.cupy.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (a, b))
        with self.errors(linalg="raise"):
            return self.cupy.linalg.solve(a, b)

    def scipy(self, name: str) -> ModuleType:
        """What stands for the module scipy.`name`."""
        module = importlib.import_module(f"cupyx.scipy.{name}")
        if name == "linalg":
            return Overlay(module, expm=self._expm(module.expm))
        if name == "special":
            return Overlay(module, polygamma=lambda n, x: module.polygamma(self.cupy.asarray(n), x))
        return module

    def _expm(self, of_one: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """scipy.linalg.expm. CuPy's takes one matrix."""

        def expm(a: Array) -> Array:
            result = self.cupy.empty_like(a, order="C")
            for place in np.ndindex(a.shape[:-2]):
                result[place] = of_one(a[place])
            return result

        return expm
