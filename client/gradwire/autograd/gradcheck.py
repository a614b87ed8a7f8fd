"""Checks of gradients against differences of the function's values (torch.autograd.gradcheck).

Complex numbers are taken as pairs of reals on both sides: an output gradient of 1 yields the real part's derivatives,
1j the imaginary part's. The result contains those by both parts of the input.

A sparse input is moved by its stored values, in Jacobians with a row per element (`perturbed.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire._base.errors import GradwireValueError, refuse
from gradwire._base.modes import enable_grad
from gradwire._base.refused import refusal
from gradwire._base.wiring import wired
from gradwire._functions.backward import grad
from gradwire._functions.create import is_tensor, make_tensor, randn_like, zeros_like
from gradwire._functions.stored_values import GradientLayoutError, StoredValues
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.forward_ad import dual_level, make_dual, unpack_dual
from gradwire.autograd.function import Function
from gradwire.autograd.perturbed import densified, rows_of_elements


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
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether backward agrees with central differences of `func`, for each input that requires grad.

    Use float64 or complex128. `check_forward_ad`: also whether forward mode does. `check_backward_ad`: whether backward
    is checked. `check_undefined_grad`: also whether it copes with outputs that no gradient came for, and inputs without
    tangent. `check_batched_forward_grad`: whether vmap of forward mode gives what each direction gives alone.
    `masked`: elements that sparse inputs do not store are not moved. `check_grad_dtypes` has no effect, and
    `check_batched_grad` only for sparse inputs, with which it fails. `fast_mode` is not faster: all elements are
    checked. Raises GradcheckError if they differ, or returns False with raise_exception=False; ValueError if no input
    requires grad, and for sparse outputs; AssertionError if nothing is checked.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    tolerances = _Tolerances(eps, atol, rtol, nondet_tol)
    try:
        modes = _Modes(
            check_forward_ad,
            check_backward_ad,
            check_undefined_grad,
            check_batched_forward_grad,
            check_batched_grad,
            bool(masked),
        )
        try:
            _check(func, _as_tuple(inputs), tolerances, modes)
        except GradientLayoutError as error:
            raise GradcheckError(str(error)) from error
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

    grad_outputs: the outputs' gradients, of which those that require grad are checked; random ones if left out.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    for name, asked in (("check_undefined_grad", check_undefined_grad), ("check_batched_grad", check_batched_grad)):
        if asked and not check_rev_over_rev:
            raise AssertionError(f"Setting {name}=True requires check_rev_over_rev to be True")
    given = _as_tuple(inputs)
    count = len(given)
    if grad_outputs is None:
        with enable_grad():
            weights = tuple(randn_like(each).requires_grad_() for each in _outputs(func, given))
    else:
        weights = _as_tuple(grad_outputs)

    differentiable = [isinstance(each, Tensor) and each.requires_grad for each in given]

    def slopes(*args: Any) -> Any:
        # Forward mode gives inputs that require no grad.
        inner = [each.requires_grad_() if wants else each for each, wants in zip(args, differentiable, strict=False)]
        outer = args[count:]
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
        check_batched_grad=check_batched_grad,
        masked=masked,
    )


@dataclass(frozen=True)
class _Modes:
    """What is checked."""

    forward: bool
    backward: bool
    undefined: bool
    batched_forward: bool = False
    batched: bool = False
    masked: bool = False


@dataclass(frozen=True)
class _Tolerances:
    """The step of the differences, and by how much the results may differ."""

    eps: float
    atol: float
    rtol: float
    nondet: float


def _as_tuple(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, (Tensor, StoredValues)) else tuple(given)


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    """The function's differentiable outputs."""
    found = func(*inputs)
    return [each for each in _as_tuple(found) if isinstance(each, Tensor) and each.requires_grad]


def _check(func: Callable[..., Any], inputs: tuple[Any, ...], allowed: _Tolerances, modes: _Modes) -> None:
    checked = [place for place, each in enumerate(inputs) if is_tensor(each) and each.requires_grad]
    sparse = [place for place in checked if isinstance(inputs[place], StoredValues)]
    _check_inputs(inputs, checked)
    if sparse and modes.forward:
        raise refusal("autograd.gradcheck(check_forward_ad=True) of sparse inputs", "forward mode takes dense ones")
    moved = inputs if modes.masked else tuple(densified(each) for each in inputs)
    with enable_grad():
        everything = _as_tuple(func(*inputs))
        if any(isinstance(each, StoredValues) for each in everything):
            raise GradwireValueError(
                "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output "
                "of fn for gradcheck."
            )
        places = [at for at, each in enumerate(everything) if isinstance(each, Tensor) and each.requires_grad]
        outputs = [everything[at] for at in places]
        if not outputs:
            _check_constant(func, moved, checked, len(everything), allowed.eps)
            return
        wanted = [inputs[place] for place in checked]
        # Jacobians by numbers of output and input, per mode.
        backward: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
        for number, output in enumerate(outputs if modes.backward else ()):
            found = _reentrant(output, number, wanted, checked, allowed)
            backward |= {(number, place): each for place, each in zip(checked, found, strict=True)}
        # After backward: where both fail, backward's error is raised.
        forward = _forward(func, inputs, checked, places) if modes.forward else {}
        for number in range(len(outputs)):
            for place in checked:
                expected = _numerical(func, moved, place, number, allowed.eps, _outputs)
                at = number, place
                if at in backward and _differ(backward[at], expected, allowed):
                    _mismatch(outputs[number].is_complex(), "", at, backward[at], expected, allowed)
                if at in forward and _differ(forward[at], expected, allowed):
                    mode = "computed with forward mode "
                    _mismatch(inputs[place].is_complex(), mode, at, forward[at], expected, allowed)
        if modes.batched and sparse:
            raise GradcheckError(_BATCHED_SPARSE)
        if modes.backward:
            if any(each._storage is not None and each._storage.mirrors for each in outputs):
                # A conjugated copy of an input is not used any more, since the differences have moved that.
                everything = _as_tuple(func(*inputs))
                outputs = [everything[at] for at in places]
            _check_zero(outputs, wanted)
            if modes.undefined:
                _check_undefined(func, inputs, wanted)
        if modes.forward and modes.undefined:
            _check_undefined_tangents(func, inputs, checked, places)
        if modes.batched_forward:
            for place in checked:
                _check_batched_tangents(func, inputs, place)


def _reentrant(
    output: Tensor, number: int, wanted: list[Tensor], checked: Sequence[int], allowed: _Tolerances
) -> list[np.ndarray[Any, Any]]:
    """The Jacobians that backward computes. Raises GradcheckError if it computes others the second time."""
    analytical, again = _analytical(output, wanted), _analytical(output, wanted)
    for place, one, two in zip(checked, analytical, again, strict=True):
        if np.abs(one - two).max(initial=0) > allowed.nondet:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple "
                f"times gives different values, for output {number} with respect to input {place}."
            )
    return analytical


def _differ(found: Any, expected: Any, allowed: _Tolerances) -> bool:
    return not np.allclose(found, expected, rtol=allowed.rtol, atol=allowed.atol, equal_nan=True)


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
        content = each._v if isinstance(each, StoredValues) else each
        if any(size > 1 and step == 0 for size, step in zip(content.shape, content.stride(), strict=True)):
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


def _mismatch(
    is_complex: bool, mode: str, at: tuple[int, int], found: Any, expected: Any, allowed: _Tolerances
) -> None:
    """Raise for Jacobians that differ. Tell which part of a complex output does, in forward mode of a complex input."""
    part = ""
    if is_complex:
        parts = [(a[::2], a[1::2]) if mode else (a[:, ::2], a[:, 1::2]) for a in (found, expected)]
        which = "imaginary" if _differ(parts[0][1], parts[1][1], allowed) else "real"
        part = f"While considering the {which} part of complex {'inputs' if mode else 'outputs'} only, "
    raise GradcheckError(
        f"{part}Jacobian {mode}mismatch for output {at[0]} with respect to input {at[1]},\n"
        f"numerical:{expected}\nanalytical:{found}\n"
    )


def _check_zero(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Whether the gradients are zero where those of the outputs are."""
    zeros = [zeros_like(each) for each in outputs]
    found = grad(outputs, inputs, zeros, retain_graph=True, allow_unused=True)
    for each, given in zip(found, inputs, strict=True):
        if each is not None and each.layout is not given.layout and isinstance(each, StoredValues):
            raise GradcheckError(f"grad is incorrect layout ({each.layout} is not {given.layout})")
        if each is not None and np.abs(_values(each)).max(initial=0) > 0:
            raise GradcheckError("backward not multiplied by grad_output")


class Undefined(Function):
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
        hidden = Undefined.apply(*[outputs[place] for place in silent])
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


def _values(tensor: Any) -> np.ndarray[Any, Any]:
    """All elements, of a sparse tensor as well."""
    found: np.ndarray[Any, Any] = _dense(tensor).detach().cpu().numpy()
    return found


def _dense(tensor: Any) -> Any:
    """A tensor with all elements, of a sparse one."""
    is_sparse = isinstance(tensor, StoredValues)
    return tensor.to_dense() if is_sparse else tensor


def _copied(tensor: Any) -> Any:
    """A copy of all elements, which later changes leave as it is."""
    return _dense(tensor).detach().clone()


def _values_of_all(tensors: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The elements of each tensor. Tensors of one kind are read together."""
    kinds = {(tuple(each.shape), each.dtype, str(each.device)) for each in tensors}
    return list(_values(stack(tensors))) if len(kinds) == 1 else [_values(each) for each in tensors]


def _analytical(output: Tensor, inputs: list[Tensor]) -> list[np.ndarray[Any, Any]]:
    """Per input the Jacobian that backward computes: a column per real of the output."""
    template = np.zeros(tuple(output.shape), _values(output).dtype)
    columns: list[list[Any]] = [[] for _ in inputs]
    for place in range(_pairs(template).size):
        _pairs(template)[place] = 1
        weight = make_tensor(template.copy(), output.dtype, str(output.device), False, output._session)
        _pairs(template)[place] = 0
        found = grad([output], inputs, [weight], retain_graph=True, allow_unused=True, materialize_grads=True)
        for column, each in zip(columns, found, strict=True):
            column.append(_copied(each))
    return [
        np.stack([_pairs(each) for each in _values_of_all(column)], 1) if column else np.zeros((each.numel(), 0))
        for column, each in zip(columns, inputs, strict=True)
    ]


def _forward(
    func: Callable[..., Any], inputs: tuple[Any, ...], checked: Sequence[int], places: Sequence[int]
) -> dict[tuple[int, int], np.ndarray[Any, Any]]:
    """The Jacobians that forward mode computes, by numbers of output and input: a row per real of the input.

    `places` are the outputs' among all that the function returns. The other inputs have tangents of zeros.
    """
    rows: dict[tuple[int, int], list[np.ndarray[Any, Any]]] = {}
    for place in checked:
        moved = inputs[place]
        direction = np.zeros(tuple(moved.shape), _values(moved).dtype)
        for at in range(_pairs(direction).size):
            _pairs(direction)[at] = 1
            found = _tangents(func, inputs, checked, place, direction, places, zeros=True)
            _pairs(direction)[at] = 0
            for number, tangent in enumerate(found):
                rows.setdefault((number, place), []).append(_pairs(tangent))
    sizes = [_pairs(_values(each)).size for each in _as_tuple(func(*inputs)) if isinstance(each, Tensor)]
    return {
        (number, place): np.stack(rows[number, place]) if (number, place) in rows else np.zeros((0, sizes[at]))
        for number, at in enumerate(places)
        for place in checked
    }


def _check_undefined_tangents(
    func: Callable[..., Any], inputs: tuple[Any, ...], checked: Sequence[int], places: Sequence[int]
) -> None:
    """Whether forward mode takes inputs without a tangent for such with one of zeros. Raises GradcheckError."""
    for place in checked:
        direction = np.zeros(tuple(inputs[place].shape), _values(inputs[place]).dtype)
        _pairs(direction)[:1] = 1
        found = _tangents(func, inputs, checked, place, direction, places, zeros=True)
        if len(checked) > 1:
            _check_without_tangents(found, _tangents(func, inputs, checked, place, direction, places, zeros=False))


_BATCHED_SPARSE = (
    "While computing batched gradients, got: vmap has no gradients of sparse tensors\n\ngradcheck or gradgradcheck "
    "failed while testing batched gradient computation. check_batched_grad=False disables the check."
)
_BATCHED = (
    "gradcheck failed while testing batched gradient computation: the tangents of several directions, computed "
    "together by vmap, differ from those computed one by one. check_batched_forward_grad=False disables the check."
)


def _check_batched_tangents(func: Callable[..., Any], inputs: tuple[Any, ...], place: int) -> None:
    """Whether a vmap over two directions of an input gives the tangents of each. Raises GradcheckError."""

    def of_direction(direction: Tensor) -> tuple[Any, ...]:
        given = [each.detach() if isinstance(each, Tensor) else each for each in inputs]
        with dual_level():
            given[place] = make_dual(given[place], direction)
            pairs = [unpack_dual(each) for each in _as_tuple(func(*given)) if isinstance(each, Tensor)]
            return tuple(zeros_like(primal) if tangent is None else tangent for primal, tangent in pairs)

    directions = [randn_like(inputs[place].detach()) for _ in range(2)]
    one_by_one = [of_direction(each) for each in directions]
    try:
        together = wired("map_anything")(of_direction)(stack(directions))
    except RuntimeError as error:
        raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{_BATCHED}") from error
    for number, (found, parts) in enumerate(zip(together, zip(*one_by_one, strict=True), strict=True)):
        expected = stack(list(parts))
        if not np.allclose(_values(found), _values(expected), rtol=1e-5, atol=1e-8, equal_nan=True):
            raise GradcheckError(
                f"For output {number} and input {place}:\n\n{_BATCHED}\n\nGot:\n{found}\n\nExpected:\n{expected}"
            )


def _tangents(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    checked: Sequence[int],
    place: int,
    direction: np.ndarray[Any, Any],
    places: Sequence[int],
    zeros: bool,
) -> list[np.ndarray[Any, Any]]:
    """The outputs' tangents if one input moves in a direction, and no other does."""
    with dual_level():
        given = list(inputs)
        for at in checked:
            each = given[at] = inputs[at].detach()
            if at == place:
                moving = make_tensor(direction.copy(), each.dtype, str(each.device), False, each._session)
                given[at] = make_dual(each, moving)
            elif zeros:
                given[at] = make_dual(each, zeros_like(each))
        made = _as_tuple(func(*given))
        found = [unpack_dual(made[at]) for at in places]
        return [_values(zeros_like(primal) if tangent is None else tangent) for primal, tangent in found]


def _check_without_tangents(one: list[np.ndarray[Any, Any]], other: list[np.ndarray[Any, Any]]) -> None:
    for number, (expected, found) in enumerate(zip(one, other, strict=True)):
        if not np.allclose(found, expected, rtol=1e-5, atol=1e-8, equal_nan=True):
            raise GradcheckError(
                f"Mismatch in tangent values for output with index: {number} when an input has an undefined tangent "
                f"value. Got: {found} but expected: {expected}"
            )


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
    given = inputs[place]
    moved = given._v if isinstance(given, StoredValues) else given
    start = _values(moved).copy()
    data = moved.data
    kept: list[Any] = []
    try:
        for at in range(_pairs(start).size):
            pair = []
            for step in (eps, -eps):
                shifted = start.copy()
                _pairs(shifted)[at] += step
                data.copy_(make_tensor(shifted, moved.dtype, str(moved.device), False, moved._session))
                pair.append(chosen(func, inputs)[number])
                kept.append(_copied(pair[-1]))  # it may be the input itself
            _check_alike(*pair)
    finally:
        data.copy_(make_tensor(start, moved.dtype, str(moved.device), False, moved._session))
    values = [_pairs(each) for each in _values_of_all(kept)]
    rows = [(before - after) / (2 * eps) for before, after in zip(values[::2], values[1::2], strict=True)]
    if isinstance(given, StoredValues):
        return rows_of_elements(given, rows, _pairs(_values(chosen(func, inputs)[number])).size)
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
