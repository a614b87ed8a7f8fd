"""Checks of gradients against differences of the function's values (torch.autograd.gradcheck).

Complex numbers are taken as pairs of reals on both sides: an output gradient of 1 yields the real part's derivatives,
1j the imaginary part's. The result contains those by both parts of the input.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._base.errors import GradwireNotImplementedError, GradwireValueError, refuse
from gradwire._base.modes import enable_grad
from gradwire._functions.backward import grad
from gradwire._functions.create import make_tensor, randn_like, zeros_like
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.function import Function


class GradcheckError(RuntimeError):
    """A gradient that contradicts the function's values (torch.autograd.gradcheck.GradcheckError)."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether backward agrees with central differences of `func`, for each input that requires grad.

    Use float64 or complex128. `check_undefined_grad`: also whether it copes with outputs that no gradient came for.
    `check_grad_dtypes`, `check_batched_grad` and `masked` (sparse tensors) have no effect. `fast_mode` is not faster:
    all elements are checked. Raises GradcheckError if they differ, or returns False with raise_exception=False;
    ValueError if no input requires grad; NotImplementedError for `check_forward_ad`.
    """
    if check_forward_ad:
        raise GradwireNotImplementedError("gradcheck: forward mode, check_forward_ad=True, is not supported")
    if not check_backward_ad:
        raise GradwireValueError(
            "Expected at least one of check_forward_ad and check_backward_ad to be True, but both are False."
        )
    tolerances = _Tolerances(eps, atol, rtol, nondet_tol)
    try:
        _check(func, _as_tuple(inputs), tolerances, check_undefined_grad)
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
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
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
        check_undefined_grad=check_undefined_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )


@dataclass(frozen=True)
class _Tolerances:
    """The step of the differences, and by how much the results may differ."""

    eps: float
    atol: float
    rtol: float
    nondet: float


def _as_tuple(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, Tensor) else tuple(given)


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    """The function's differentiable outputs."""
    found = func(*inputs)
    return [each for each in _as_tuple(found) if isinstance(each, Tensor) and each.requires_grad]


def _check(func: Callable[..., Any], inputs: tuple[Any, ...], allowed: _Tolerances, undefined: bool) -> None:
    checked = [place for place, each in enumerate(inputs) if isinstance(each, Tensor) and each.requires_grad]
    _check_inputs(inputs, checked)
    with enable_grad():
        everything = _as_tuple(func(*inputs))
        outputs = [each for each in everything if isinstance(each, Tensor) and each.requires_grad]
        if not outputs:
            _check_constant(func, inputs, checked, len(everything), allowed.eps)
            return
        for number, output in enumerate(outputs):
            analytical = _analytical(output, [inputs[place] for place in checked])
            again = _analytical(output, [inputs[place] for place in checked])
            for (place, one), two in zip(zip(checked, analytical, strict=True), again, strict=True):
                if np.abs(one - two).max(initial=0) > allowed.nondet:
                    raise GradcheckError(
                        "Backward is not reentrant, i.e., running backward with same input and grad_output multiple "
                        f"times gives different values, for output {number} with respect to input {place}."
                    )
            for place, found in zip(checked, analytical, strict=True):
                expected = _numerical(func, inputs, place, number, allowed.eps, _outputs)
                if not np.allclose(found, expected, rtol=allowed.rtol, atol=allowed.atol, equal_nan=True):
                    _mismatch(output, number, place, found, expected, allowed)
        _check_zero(outputs, [inputs[place] for place in checked])
        if undefined:
            _check_undefined(func, inputs, [inputs[place] for place in checked])


def _check_inputs(inputs: tuple[Any, ...], checked: Sequence[int]) -> None:
    if not checked:
        raise GradwireValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for place in checked:
        each = inputs[place]
        if each.dtype.itemsize < (16 if each.is_complex() else 8):
            warnings.warn(
                f"Input #{place} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex.",
                UserWarning,
                stacklevel=5,
            )
        if any(size > 1 and step == 0 for size, step in zip(each.shape, each.stride(), strict=True)):
            raise refuse(
                f"The {place}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                ".contiguous on the input before passing it to gradcheck."
            )


def _check_constant(
    func: Callable[..., Any], inputs: tuple[Any, ...], checked: Sequence[int], count: int, eps: float
) -> None:
    """Whether outputs that require no grad do not depend on the inputs."""

    def everything(func: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
        return [each for each in _as_tuple(func(*given)) if isinstance(each, Tensor)]

    for number in range(count):
        for place in checked:
            if np.abs(_numerical(func, inputs, place, number, eps, everything)).max(initial=0) > 0:
                raise GradcheckError("Numerical gradient for function expected to be zero")


def _mismatch(output: Tensor, number: int, place: int, found: Any, expected: Any, allowed: _Tolerances) -> None:
    """Raise for Jacobians that differ, saying which part of a complex output does."""
    part = ""
    if output.is_complex():
        even = [np.allclose(found[:, at::2], expected[:, at::2], rtol=allowed.rtol, atol=allowed.atol) for at in (0, 1)]
        which = "imaginary" if not even[1] else "real"
        part = f"While considering the {which} part of complex outputs only, "
    raise GradcheckError(
        f"{part}Jacobian mismatch for output {number} with respect to input {place},\n"
        f"numerical:{expected}\nanalytical:{found}\n"
    )


def _check_zero(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Whether the gradients are zero where those of the outputs are."""
    zeros = [zeros_like(each) for each in outputs]
    found = grad(outputs, inputs, zeros, retain_graph=True, allow_unused=True)
    if any(each is not None and np.abs(_values(each)).max(initial=0) > 0 for each in found):
        raise GradcheckError("backward not multiplied by grad_output")


class _Undefined(Function):
    """The identity, which lets no gradient through."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        return tuple(each.clone() for each in tensors)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return (None,) * len(grad_outputs)


def _check_undefined(func: Callable[..., Any], inputs: tuple[Any, ...], wanted: Sequence[Tensor]) -> None:
    """Whether backward copes with outputs that no gradient came for, each alone and all of them."""
    count = len(_outputs(func, inputs))
    for silent in [range(count), *([place] for place in range(count) if count > 1)]:
        outputs = _outputs(func, inputs)
        hidden = _Undefined.apply(*[outputs[place] for place in silent])
        for place, each in zip(silent, hidden, strict=True):
            outputs[place] = each
        try:
            found = grad(outputs, wanted, [zeros_like(each) for each in outputs], allow_unused=True)
        except RuntimeError as error:
            warnings.warn(
                "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but "
                "it may break existing callers of this function. If this is true for you, you can call this function "
                'with "check_undefined_grad=False" to disable the feature',
                UserWarning,
                stacklevel=4,
            )
            raise GradcheckError(
                "Expected backward function to handle undefined output grads. A custom function's backward and hooks "
                "are given None for them."
            ) from error
        if any(each is not None and np.abs(_values(each)).max(initial=0) > 0 for each in found):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
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
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    place: int,
    number: int,
    eps: float,
    chosen: Callable[[Callable[..., Any], Sequence[Any]], list[Tensor]],
) -> np.ndarray[Any, Any]:
    """The Jacobian by central differences: a row per real of the input.

    As in PyTorch the input itself is moved, and put back: a function may use it without taking it as an argument.
    """
    moved = inputs[place]
    start = _values(moved).copy()
    data = moved.data
    rows = []
    try:
        for at in range(_pairs(start).size):
            results = []
            for step in (eps, -eps):
                shifted = start.copy()
                _pairs(shifted)[at] += step
                data.copy_(make_tensor(shifted, moved.dtype, str(moved.device), False, moved._session))
                made = chosen(func, inputs)[number]
                results.append((made, _pairs(_values(made))))  # read now: it may be the input itself
            (one, before), (two, after) = results
            _check_alike(one, two)
            rows.append((before - after) / (2 * eps))
    finally:
        data.copy_(make_tensor(start, moved.dtype, str(moved.device), False, moved._session))
    return np.stack(rows) if rows else np.zeros((0, 0))


def _check_alike(one: Tensor, two: Tensor) -> None:
    """Whether a function returns tensors of one kind at all points. Raises AssertionError."""
    for what, same in (("shape", one.shape == two.shape), ("dtype", one.dtype is two.dtype)):
        if not same:
            raise AssertionError(
                f"Expected `func` to return outputs with the same {what} when inputs are perturbed on the order of "
                f"1e-6, but got {getattr(one, what)} and {getattr(two, what)}"
            )


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
