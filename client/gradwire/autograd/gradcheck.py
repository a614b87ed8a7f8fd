"""Checks of gradients against differences of the function's values (torch.autograd.gradcheck).

Complex numbers are taken as pairs of reals on both sides: as an output's gradient 1 asks for the real part's
derivatives and 1j for the imaginary part's, and what comes back holds those by the input's two parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradwire._backward import grad
from gradwire._create import make_tensor, randn_like
from gradwire._errors import GradwireValueError
from gradwire._modes import enable_grad
from gradwire._tensor import Tensor


class GradcheckError(RuntimeError):
    """A gradient that is not what the function's values say (torch.autograd.gradcheck.GradcheckError)."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Whether backward agrees with central differences of `func`, for each input that requires grad.

    Use float64 or complex128. Raises GradcheckError where they differ, or with raise_exception=False answers False;
    ValueError if no input requires grad.
    """
    try:
        _check(func, _as_tuple(inputs), eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """As `gradcheck`, for the derivatives of second order: by the inputs and by the outputs' gradients.

    grad_outputs: the outputs' gradients; random ones if left out.
    """
    given = _as_tuple(inputs)
    count = len(given)
    if grad_outputs is None:
        with enable_grad():
            weights = tuple(randn_like(each).requires_grad_() for each in _outputs(func, given))
    else:
        weights = tuple(each.detach().requires_grad_() for each in _as_tuple(grad_outputs))

    def slopes(*args: Any) -> Any:
        inner, outer = args[:count], args[count:]
        wanted = [each for each in inner if isinstance(each, Tensor) and each.requires_grad]
        return grad(_outputs(func, inner), wanted, outer, create_graph=True, allow_unused=True, materialize_grads=True)

    return gradcheck(
        slopes,
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
    )


def _as_tuple(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, Tensor) else tuple(given)


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    """The function's differentiable outputs."""
    found = func(*inputs)
    return [each for each in _as_tuple(found) if isinstance(each, Tensor) and each.requires_grad]


def _check(
    func: Callable[..., Any], inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float
) -> None:
    checked = [place for place, each in enumerate(inputs) if isinstance(each, Tensor) and each.requires_grad]
    if not checked:
        raise GradwireValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for place in checked:
        if inputs[place].dtype.itemsize < (16 if inputs[place].is_complex() else 8):
            warnings.warn(
                f"Input #{place} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex.",
                UserWarning,
                stacklevel=4,
            )
    with enable_grad():
        outputs = _outputs(func, inputs)
        for number, output in enumerate(outputs):
            analytical = _analytical(output, [inputs[place] for place in checked])
            again = _analytical(output, [inputs[place] for place in checked])
            for (place, one), two in zip(zip(checked, analytical, strict=True), again, strict=True):
                if np.abs(one - two).max(initial=0) > nondet_tol:
                    raise GradcheckError(
                        "Backward is not reentrant, i.e., running backward with same input and grad_output multiple "
                        f"times gives different values, for output {number} with respect to input {place}."
                    )
            for place, found in zip(checked, analytical, strict=True):
                expected = _numerical(func, inputs, place, number, eps)
                if not np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True):
                    raise GradcheckError(
                        f"Jacobian mismatch for output {number} with respect to input {place},\n"
                        f"numerical:{expected}\nanalytical:{found}\n"
                    )


def _pairs(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values as a vector of reals, complex ones as two each."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _values(tensor: Tensor) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = tensor.detach().cpu().numpy()
    return found


def _analytical(output: Tensor, inputs: list[Tensor]) -> list[np.ndarray[Any, Any]]:
    """Per input the Jacobian that backward computes: a column per real of the output."""
    template = np.zeros(tuple(output.shape), _values(output).dtype)
    columns: list[list[np.ndarray[Any, Any]]] = [[] for _ in inputs]
    for place in range(_pairs(template).size):
        _pairs(template)[place] = 1
        weight = make_tensor(template.copy(), output.dtype, str(output.device), False, output._session)
        _pairs(template)[place] = 0
        found = grad([output], inputs, [weight], retain_graph=True, allow_unused=True, materialize_grads=True)
        for column, each in zip(columns, found, strict=True):
            column.append(_pairs(_values(each)))
    return [
        np.stack(column, 1) if column else np.zeros((each.numel(), 0))
        for column, each in zip(columns, inputs, strict=True)
    ]


def _numerical(
    func: Callable[..., Any], inputs: tuple[Any, ...], place: int, number: int, eps: float
) -> np.ndarray[Any, Any]:
    """The Jacobian by central differences: a row per real of the input."""
    moved = inputs[place]
    start = _values(moved).copy()
    rows = []
    for at in range(_pairs(start).size):
        results = []
        for step in (eps, -eps):
            shifted = start.copy()
            _pairs(shifted)[at] += step
            other = make_tensor(shifted, moved.dtype, str(moved.device), False, moved._session).requires_grad_()
            results.append(_pairs(_values(_outputs(func, (*inputs[:place], other, *inputs[place + 1 :]))[number])))
        rows.append((results[0] - results[1]) / (2 * eps))
    return np.stack(rows) if rows else np.zeros((0, 0))


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
