"""Derivatives of functions of tensors: jacobian, hessian and products with them (torch.autograd.functional).

Each calls the function once, on copies of the inputs that require grad, and differentiates its results. With
`create_graph` the results can be differentiated by the given inputs; else they are plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gradwire._base.errors import GradwireNotImplementedError, GradwireTypeError, GradwireValueError, refuse
from gradwire._base.modes import enable_grad
from gradwire._functions.backward import grad
from gradwire._functions.create import zeros, zeros_like
from gradwire._proxy.transforms import TRANSFORM, refuse_inside
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor

_Tensors: TypeAlias = "Tensor | tuple[Tensor, ...]"
_Function: TypeAlias = "Callable[..., Any]"


def vjp(
    func: _Function, inputs: _Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The function's outputs, and v (of the outputs' shapes) times its Jacobian (torch.autograd.functional.vjp).

    v may be left out where the output has one element. Raises RuntimeError if shapes differ; with `strict` also where
    an output does not depend on an input.
    """
    call = _Call("vjp", func, inputs, create_graph, strict)
    with enable_grad():
        weights = _weights("vjp", v, call.outputs, call.is_tuple_out, _OUTPUT)
        products = call.gradients(call.outputs, weights, create_graph)
    return call.answer(call.outputs, call.is_tuple_out), call.answer(products, call.is_tuple_in)


def jvp(
    func: _Function, inputs: _Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The function's outputs, and its Jacobian times v (of the inputs' shapes) (torch.autograd.functional.jvp).

    It is the derivative of the vector-Jacobian product by its vector. v may be left out where the input has one
    element. Raises RuntimeError as `vjp` does.
    """
    call = _Call("jvp", func, inputs, create_graph, strict)
    with enable_grad():
        directions = _weights("jvp", v, call.inputs, call.is_tuple_in, _INPUT)
        dummies = tuple(zeros_like(output, requires_grad=True) for output in call.outputs)
        products = call.gradients(call.outputs, dummies, True)
        results = _gradients(products, dummies, directions, create_graph)
        filled = _filled(results, dummies, call.strict)
        if strict and create_graph:
            _depends(filled, "gradients")
    return call.answer(call.outputs, call.is_tuple_out), call.answer(filled, call.is_tuple_out)


def jacobian(
    func: _Function,
    inputs: _Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for each output and input a tensor of the one's shape and the other's (torch's jacobian).

    A tensor, or tuples if the function takes or returns tuples. `vectorize` and `strategy` change nothing here: the
    rows are computed one after the other, none waits for the one before. Raises RuntimeError for `strict` with
    `vectorize`, as PyTorch does.
    """
    _not_together(strict, vectorize, create_graph, strategy, "jacobian")
    inside = TRANSFORM.get()
    if strategy == "forward-mode" and inside is not None and not inside.differentiates:
        raise refuse("Batching rule not implemented for aten::_make_dual. We could not generate a fallback.")
    call = _Call("jacobian", func, inputs, create_graph, strict)
    rows = []
    with enable_grad():
        for number, output in enumerate(call.outputs):
            flat = output.reshape(-1)
            who = f"Output {number}"
            lines = [call.gradients((flat[place],), (None,), create_graph, who) for place in range(flat.numel())]
            shapes = [(*output.shape, *each.shape) for each in call.inputs]
            parts = [
                stack([line[place] for line in lines]).reshape(shape) if lines else zeros(shape, dtype=output.dtype)
                for place, shape in enumerate(shapes)
            ]
            rows.append(call.answer(tuple(parts), call.is_tuple_in))
    return tuple(rows) if call.is_tuple_out else rows[0]


def hessian(
    func: _Function,
    inputs: _Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with a result of one element (torch.autograd.functional.hessian).

    For each two inputs a tensor of the one's shape and the other's; a tensor, or tuples for a tuple of inputs.
    """
    is_tuple, given = _as_tuple("hessian", "inputs", inputs)
    _not_together(strict, vectorize, create_graph, outer_jacobian_strategy, "hessian")

    def slope(*inner: Tensor) -> Any:
        _, values = _as_tuple("hessian", "outputs of the user-provided function", func(*inner))
        _scalar("hessian", values)
        if strict:
            _depends(values, "outputs")
        filled = _filled(_gradients(values, inner, (None,), True), inner, False)
        if strict:
            _depends(filled, "jacobian")
        return filled if is_tuple else filled[0]

    return jacobian(slope, given if is_tuple else given[0], create_graph, strict)


def vhp(
    func: _Function, inputs: _Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The function's value, and v (of the inputs' shapes) times its Hessian (torch.autograd.functional.vhp)."""
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def hvp(
    func: _Function, inputs: _Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The function's value, and its Hessian times v (of the inputs' shapes) (torch.autograd.functional.hvp).

    A Hessian is symmetric, so this is `vhp`.
    """
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, func: _Function, inputs: _Tensors, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    call = _Call(name, func, inputs, create_graph, strict)
    _scalar(name, call.outputs)
    with enable_grad():
        weights = _weights(name, v, call.inputs, call.is_tuple_in, _INPUT)
        slopes = call.gradients(call.outputs, (None,), True)
        if strict:
            _depends(slopes, "jacobian")
        products = call.gradients(slopes, weights, create_graph)
    return call.answer(call.outputs, call.is_tuple_out), call.answer(products, call.is_tuple_in)


class _Call:
    """One call of the function, on copies of the inputs."""

    def __init__(self, name: str, func: _Function, inputs: _Tensors, create_graph: bool, strict: bool) -> None:
        self.name = name
        self.create_graph = create_graph
        self.strict = strict
        self.is_tuple_in, given = _as_tuple(name, "inputs", inputs)
        refuse_inside("requires_grad_")
        with enable_grad():
            self.inputs = tuple(
                each.view_as(each) if create_graph and each.requires_grad else each.detach().requires_grad_()
                for each in given
            )
            found = func(*self.inputs)
            self.is_tuple_out, self.outputs = _as_tuple(name, "outputs of the user-provided function", found)
        if strict:
            _depends(self.outputs, "outputs")

    def gradients(
        self,
        outputs: Sequence[Tensor],
        weights: Sequence[Tensor | None],
        create_graph: bool,
        who: str = "The output",
    ) -> tuple[Tensor, ...]:
        """The outputs' gradients by the inputs; zeros where they do not depend on one."""
        found = _gradients(outputs, self.inputs, weights, create_graph)
        if self.strict and create_graph and self.create_graph:
            _depends([each for each in found if each is not None], "gradients")
        return _filled(found, self.inputs, self.strict, who)

    def answer(self, tensors: tuple[Tensor, ...], as_tuple: bool) -> Any:
        """The caller's result: a tuple if the caller uses tuples, without a graph unless requested."""
        kept = tensors if self.create_graph else tuple(each.detach() for each in tensors)
        return kept if as_tuple else kept[0]


def _gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], weights: Sequence[Tensor | None], create_graph: bool
) -> tuple[Tensor | None, ...]:
    kept = [(output, weight) for output, weight in zip(outputs, weights, strict=True) if output.requires_grad]
    if not kept:
        return (None,) * len(inputs)
    return grad(
        [output for output, _ in kept],
        inputs,
        [weight for _, weight in kept],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
    )


def _filled(
    found: Sequence[Tensor | None], like: Sequence[Tensor], strict: bool, who: str = "The output"
) -> tuple[Tensor, ...]:
    filled = []
    for place, (each, other) in enumerate(zip(found, like, strict=True)):
        if each is None and strict:
            raise refuse(
                f"{who} of the user-provided function is independent of input {place}. This is not allowed in strict "
                "mode."
            )
        filled.append(zeros_like(other) if each is None else each)
    return tuple(filled)


_INDEPENDENT = {
    "outputs": (
        "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
        "differentiable manner from the input when running in strict mode."
    ),
    "jacobian": (
        "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} "
        "is independent of the input. This is not allowed in strict mode. Ensure that your function is twice "
        "differentiable and that the jacobian depends on the inputs (that of a linear function does not)."
    ),
    "gradients": (
        "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode "
        "when create_graph=True."
    ),
}


def _depends(tensors: Sequence[Tensor], what: str) -> None:
    """Refuse those that do not depend on the inputs. Raises RuntimeError."""
    for place, each in enumerate(tensors):
        if not each.requires_grad:
            raise refuse(_INDEPENDENT[what].format(place))


def _not_together(strict: bool, vectorize: bool, create_graph: bool, strategy: str, name: str) -> None:
    """PyTorch's refusals of options that do not go together. Raises RuntimeError, NotImplementedError, ValueError."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise GradwireValueError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            f'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode". '
            f"{name} was given {strategy!r}."
        )
    if strategy == "forward-mode" and create_graph and name == "jacobian":
        raise GradwireNotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and `strategy='forward-mode'` are not supported "
            "together (yet)."
        )
    if strict and (vectorize or strategy == "forward-mode"):
        raise refuse(
            f"torch.autograd.functional.{name}: `strict=True` and `vectorize=True` are not supported together. Please "
            "either set `strict=False` or `vectorize=False`."
        )


def _as_tuple(name: str, what: str, given: Any) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether a tuple was given, and its tensors. Raises TypeError for a non-tensor."""
    many = isinstance(given, tuple)
    tensors = given if many else (given,)
    for place, each in enumerate(tensors):
        if not isinstance(each, Tensor):
            raise GradwireTypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the value at index "
                f"{place} has type {type(each)}."
            )
    return many, tensors


_INPUT = "the input to the user-provided function is a single Tensor with a single element."
_OUTPUT = "the user-provided function returns a single Tensor with a single element."


def _weights(name: str, given: Any, like: Sequence[Tensor], many: bool, alone: str) -> tuple[Tensor | None, ...]:
    """A tensor per one of `like`, of its shape. Raises RuntimeError where that is not so."""
    if given is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise refuse(f"The vector v can only be None if {alone}")
        return (like[0].detach() * 0 + 1,)
    _, weights = _as_tuple(name, "v", given)
    if len(weights) != len(like):
        if not many:
            raise refuse("The given v should contain a single Tensor.")
        raise refuse(f"v is a tuple of invalid length: should be {len(like)} but got {len(weights)}.")
    for place, (weight, other) in enumerate(zip(weights, like, strict=True)):
        if weight.shape != other.shape:
            entry = f"Entry {place} in " if many else ""
            raise refuse(f"{entry}v has invalid size: should be {other.shape} but got {weight.shape}.")
    return tuple(weights)


def _scalar(name: str, values: Sequence[Tensor]) -> None:
    if len(values) != 1:
        raise refuse(f"The function given to {name} should return a single Tensor")
    if values[0].numel() != 1:
        raise refuse(f"The Tensor returned by the function given to {name} should contain a single element")


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
