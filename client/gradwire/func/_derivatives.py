"""Derivatives of functions of tensors: grad, vjp, jvp, jacrev, jacfwd, hessian (torch.func).

A transform in reverse mode calls the function on copies of its inputs that require grad, and differentiates its results
by them. One in forward mode (jvp, jacfwd) calls it on dual tensors (autograd/forward_ad.py). Nesting is the graph's:
within another transform a gradient keeps its graph, so derivatives of every order work. What leaves the outermost
transform has no graph, unless something of the caller's own that requires grad took part: `_Level` tells.
jacrev goes through one graph once per row. jacfwd computes all columns together, as a vmap of jvp.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, TypeAlias

from gradwire._base.errors import GradwireTypeError, GradwireValueError, refuse
from gradwire._base.modes import GRAD_ENABLED, enable_grad
from gradwire._functions.create import eye, zeros, zeros_like
from gradwire._functions.saved_tensor_hooks import without_saved_tensors_hooks
from gradwire._proxy.dual_levels import DUAL_LEVELS, DualLevel
from gradwire._proxy.shadow_graph import Leaf, ReachableNodes
from gradwire._proxy.transforms import Transform
from gradwire._tensor.ops import ones_like, stack
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.forward_ad import dual_at, has_tangent, primal_at, tangent_at, transform_level
from gradwire.func._batched import UnmappableError, at_all_levels
from gradwire.func._gradients import gradients
from gradwire.func._pytree import Structure, flatten, rebuild, tree_map
from gradwire.func._vmap import vmap

_Function: TypeAlias = "Callable[..., Any]"
_Argnums: TypeAlias = "int | tuple[int, ...]"

#: How PyTorch's messages name a transform's call: grad's is that of grad_and_value, jacrev's that of vjp.
_CALLS = {
    "grad": "grad_and_value(f)(*args)",
    "grad_and_value": "grad_and_value(f)(*args)",
    "vjp": "vjp(f, *primals)",
    "jacrev": "vjp(f, *primals)",
    "jvp": "jvp(f, primals, tangents)",
    "jacfwd": "jvp(f, primals, tangents)",
    "linearize": "linearize(f, *primals)",
}


def grad(func: _Function, argnums: _Argnums = 0, has_aux: bool = False) -> _Function:
    """The function that computes the gradient of `func` by its arguments `argnums` (torch.func.grad).

    `func` returns one tensor without dimensions; with `has_aux` a pair of it and any object, which is returned too. The
    arguments may be nested tuples, lists and dicts of floating or complex tensors. Raises RuntimeError for another
    result or a missing argument.
    """

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, _, aux = _value_and_grad("grad", func, argnums, has_aux, args, kwargs)
        return (found, aux) if has_aux else found

    return gradient


def grad_and_value(func: _Function, argnums: _Argnums = 0, has_aux: bool = False) -> _Function:
    """Like grad, but returns (gradient, value), or (gradient, (value, aux)) (torch.func.grad_and_value)."""

    @functools.wraps(func)
    def both(*args: Any, **kwargs: Any) -> Any:
        found, value, aux = _value_and_grad("grad_and_value", func, argnums, has_aux, args, kwargs)
        return (found, (value, aux)) if has_aux else (found, value)

    return both


def value_and_grad(func: _Function, argnums: _Argnums = 0, has_aux: bool = False) -> _Function:
    """As grad_and_value in the other order: (value, gradient), or ((value, aux), gradient)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def exchanged(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return value, found

    return exchanged


def vjp(func: _Function, *primals: Any, has_aux: bool = False) -> Any:
    """The function's value, and the function that multiplies a cotangent with its Jacobian (torch.func.vjp).

    The cotangent has the value's structure and shapes; the product is a tuple with an entry per primal, in its
    form. With `has_aux` a third: the function's auxiliary result. Raises RuntimeError for a cotangent of another form.
    """
    with _Level() as level:
        level.links = True  # the product may be called where grad mode is on
        inputs, structure = level.enter("vjp", primals)
        value, aux = _split_aux("vjp", func(*rebuild(structure, inputs)), has_aux)
        outputs, form = _differentiable("vjp", value)
        keep = level.keeps(outputs)

    def product(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        weights, given = _tensors("vjp", "cotangents", cotangents)
        if given != form:
            raise refuse(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function."
            )
        graph = create_graph
        if graph is None:
            graph = is_recorded() and (
                keep or level.foreign or _inside() or any(weight.requires_grad for weight in weights)
            )
        found = _filled(_gradients(outputs, inputs, weights, graph), inputs)
        return rebuild(structure, [each if graph else _off_graph(each) for each in found])

    answer = _leave(value, keep)
    return (answer, product, _leave(aux, keep)) if has_aux else (answer, product)


def jvp(func: _Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """The function's value at the primals, and its Jacobian times the tangents, in forward mode (torch.func.jvp).

    `primals` and `tangents` are tuples of one structure. With `strict` an output that does not depend on the primals is
    refused; else its tangent is zero. Raises RuntimeError for tangents of other shapes; ValueError for integers.
    """
    inputs, structure = _primals("jvp", primals)
    directions = _directions("jvp", tangents, structure, inputs)
    with _Level(records=False) as scope, transform_level() as level:
        scope.admit(inputs)
        duals = [dual_at(level, one, other) for one, other in zip(inputs, directions, strict=True)]
        value, aux = _split_aux("jvp", func(*rebuild(structure, duals)), has_aux)
        outputs, form = _outputs("jvp", value)
        if strict and not all(has_tangent(level, each) for each in outputs):
            raise refuse(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
                "allowed with strict=True."
            )
        found = [tangent_at(level, each) if has_tangent(level, each) else zeros_like(each) for each in outputs]
        values = [_primal(level, each) for each in outputs]
        aux = tree_map(lambda leaf: _primal(level, leaf) if isinstance(leaf, Tensor) else leaf, aux)
        keep = scope.keeps([*values, *found])
    answer = (_leave(rebuild(form, values), keep), _leave(rebuild(form, found), keep))
    return (*answer, _leave(aux, keep)) if has_aux else answer


def _primal(level: DualLevel, tensor: Tensor) -> Tensor:
    return primal_at(level, tensor) if has_tangent(level, tensor) else tensor


def linearize(func: _Function, *primals: Any) -> tuple[Any, _Function]:
    """The function's value at the primals, and the function that multiplies its Jacobian with tangents.

    `func` is called once; each product is the derivative of the vector-Jacobian product by its vector.
    """
    value, product = _linearized(func, primals)
    return value, lambda *tangents: product(tangents)


def jacrev(
    func: _Function,
    argnums: _Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> _Function:
    """The function that computes the Jacobian of `func` row by row, in reverse mode (torch.func.jacrev).

    Returns a tensor for each output and input, with the shapes of both, nested like the outputs and then like
    `argnums`. `chunk_size` and `_preallocate_and_copy` change nothing here: rows are computed one at a time.
    """
    _check_chunk("jacrev", chunk_size)

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        _check_real("jacrev", "inputs", args)
        with _Level() as level:
            inputs, structure, value, aux = _called("jacrev", func, argnums, has_aux, level, args, kwargs)
            outputs, form = _differentiable("jacrev", value)
            _check_real("jacrev", "outputs", outputs)
            keep = level.keeps(outputs)
            rows = [rebuild(structure, _rows(output, inputs, keep)) for output in outputs]
        answer = rebuild(form, rows)
        return (answer, _leave(aux, keep)) if has_aux else answer

    return jacobian


def jacfwd(
    func: _Function,
    argnums: _Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> _Function:
    """The function that computes the Jacobian of `func` in forward mode, all columns together (torch.func.jacfwd).

    Returns a tensor for each output and input, with the shapes of both, nested like the outputs and then like
    `argnums`. `chunk_size` is how many columns are computed at a time. A function that vmap cannot map, such as one
    that reads values or draws random numbers without `randomness`, is called once and gives one column at a time.
    """
    _check_chunk("jacfwd", chunk_size)

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        _check_real("jacfwd", "inputs", args)
        try:
            return _mapped_jacobian(func, argnums, has_aux, chunk_size, randomness, args, kwargs)
        except UnmappableError:
            return _jacobian_by_columns(func, argnums, has_aux, args, kwargs)

    return jacobian


def _mapped_jacobian(
    func: _Function,
    argnums: _Argnums,
    has_aux: bool,
    chunk_size: int | None,
    randomness: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The Jacobian as a vmap of jvp over the directions of the inputs' elements."""
    places = _places(argnums, len(args))
    named = tuple(args[place] for place in places)
    inputs, structure = _tensors("jacfwd", "inputs to differentiate by", named)
    shown: dict[str, Any] = {}

    def entered(*entered: Any) -> Any:
        given = list(args)
        for place, each in zip(places, entered, strict=True):
            given[place] = each
        return func(*given, **kwargs)

    def column(*direction: Tensor) -> Any:
        primals, tangents = rebuild(structure, inputs), rebuild(structure, list(direction))
        value, product, *aux = jvp(entered, primals, tangents, has_aux=has_aux)
        outputs, shown["form"] = flatten(value)
        _check_real("jacfwd", "outputs", outputs)
        shown["outputs"] = outputs
        shown["aux"] = aux[0] if has_aux else None
        found, shown["aux form"] = flatten(shown["aux"])
        shown["are tensors"] = [isinstance(each, Tensor) for each in found]
        shown["others"] = found
        return tuple(flatten(product)[0]), tuple(each for each in found if isinstance(each, Tensor))

    directions = _all_directions(inputs)
    if not directions[0].shape[0]:
        return _jacobian_by_columns(func, argnums, has_aux, args, kwargs)
    columns, aux = vmap(column, randomness=randomness, chunk_size=chunk_size)(*directions)
    sizes = [each.numel() for each in inputs]
    form = structure if isinstance(argnums, tuple) else structure.children[0]
    rows = []
    for one in columns:
        parts = one.movedim(0, -1).split(sizes, -1)
        shaped = [part.reshape((*one.shape[1:], *each.shape)) for part, each in zip(parts, inputs, strict=True)]
        rows.append(rebuild(form, shaped))
    answer = rebuild(shown["form"], rows)
    if not has_aux:
        return answer
    tensors = iter(each[0] for each in aux)
    whole = [
        next(tensors) if is_tensor else each
        for is_tensor, each in zip(shown["are tensors"], shown["others"], strict=True)
    ]
    return answer, rebuild(shown["aux form"], whole)


def _all_directions(inputs: Sequence[Tensor]) -> list[Tensor]:
    """For each input the directions of all inputs' elements, in order: zeros where they are another input's."""
    count = sum(each.numel() for each in inputs)
    start, made = 0, []
    for each in inputs:
        size = each.numel()
        whole = zeros(count, size, dtype=each.dtype, device=each.device)
        whole.narrow(0, start, size).fill_diagonal_(1) if size else None
        made.append(whole.reshape((count, *each.shape)))
        start += size
    return made


def _jacobian_by_columns(
    func: _Function, argnums: _Argnums, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The Jacobian from one graph, one column at a time."""
    with _Level() as level:
        inputs, structure, value, aux = _called("jacfwd", func, argnums, has_aux, level, args, kwargs)
        outputs, form = _outputs("jacfwd", value)
        _check_real("jacfwd", "outputs", outputs)
        keep = level.keeps(outputs)
        forward = _Forward(outputs, inputs)
        columns = [_columns(forward, place, keep) for place in range(len(inputs))]
        rows = [rebuild(structure, list(parts)) for parts in zip(*columns, strict=True)]
    answer = rebuild(form, rows)
    return (answer, _leave(aux, keep)) if has_aux else answer


def hessian(func: _Function, argnums: _Argnums = 0) -> _Function:
    """The function that computes the second derivatives of `func` (torch.func.hessian): jacfwd of jacrev."""
    return jacfwd(jacrev(func, argnums), argnums)


# Inside a transform.

_CURRENT: ContextVar[_Level | None] = ContextVar("gradwire_func_level", default=None)


class _Level:
    """One transform under way: its leaves, and whether its results depend on other levels' leaves."""

    def __init__(self, records: bool = True) -> None:
        """records: whether grad mode is on inside."""
        self.parent = _CURRENT.get()
        self.recorded = is_recorded()
        self.own: set[int] = set() if self.parent is None else set(self.parent.own)
        self.leaves: list[Leaf] = []  # kept, so that no other may have the id of one
        self.foreign = False
        self.nested = False
        self.links = self.recorded  # whether inputs stay part of the graph around
        self._mode: Any = enable_grad() if records else nullcontext()
        self._transform = Transform(differentiates=True, forward=not records)
        self._hooks: Any = without_saved_tensors_hooks() if records else nullcontext()

    def __enter__(self) -> _Level:
        self._hooks.__enter__()
        self._token = _CURRENT.set(self)
        self._transform.__enter__()
        self._mode.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__(*exc)
        self._transform.__exit__(*exc)
        _CURRENT.reset(self._token)
        self._hooks.__exit__(*exc)
        if self.parent is not None:
            self.parent.nested = True
            self.parent.foreign |= self.foreign
            self.parent.own |= self.own
            self.parent.leaves += self.leaves

    def enter(self, name: str, value: Any) -> tuple[list[Tensor], Structure]:
        """The inputs as this level differentiates by them: still part of the graph around it, if they are of one."""
        given, structure = _tensors(name, "inputs to differentiate by", value)
        self.admit(given)
        return [self._enter(each) for each in given], structure

    def admit(self, *values: Any) -> None:
        """Take the function's arguments, which it may change in place."""
        self._transform.admit(flatten(values)[0])

    def _enter(self, given: Tensor) -> Tensor:
        tensor: Tensor = at_all_levels(given)
        if self.links and tensor.requires_grad:
            return tensor.view_as(tensor)
        made = tensor.detach().requires_grad_()
        leaf: Any = made._edge
        self.own.add(id(leaf))
        self.leaves.append(leaf)
        return _with_tangents_of(made, tensor)

    def keeps(self, outputs: Sequence[Tensor]) -> bool:
        """Whether this level's results need a graph: for a transform around it, or the caller's tensors."""
        reach = ReachableNodes([each._edge for each in outputs if each.requires_grad])
        if any(id(leaf) not in self.own for leaf in reach.leaves) or (not reach.known and not self.nested):
            self.foreign = True
        return self.recorded and (self.parent is not None or self.foreign)


def is_recorded() -> bool:
    """Whether grad mode is on where the transform is called."""
    return bool(GRAD_ENABLED.get())


def _inside() -> bool:
    return _CURRENT.get() is not None


def _leave(value: Any, keep: bool) -> Any:
    """The results of a transform: as it is, or without the graph that was the transform's own."""
    if keep:
        return value
    return tree_map(lambda leaf: _off_graph(leaf) if isinstance(leaf, Tensor) else leaf, value)


def _off_graph(tensor: Tensor) -> Tensor:
    """The tensor without its graph, but with its tangents."""
    return _with_tangents_of(tensor.detach(), tensor)


def _with_tangents_of(made: Tensor, source: Tensor) -> Tensor:
    """A tensor with another's tangents at the open levels."""
    for level in DUAL_LEVELS.get():
        if has_tangent(level, source):
            made = dual_at(level, made, tangent_at(level, source))
    return made


def _tensors(name: str, what: str, value: Any) -> tuple[list[Tensor], Structure]:
    """The tensors of an argument and its structure. Raises RuntimeError for none, and for anything else in it."""
    leaves, structure = flatten(value)
    if not leaves:
        raise refuse(f"{_CALLS[name]}: Expected {what} to contain at least one Tensor.")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise refuse(f"{_CALLS[name]}: Expected {what} to only contain Tensors, got {type(leaf)}")
    return leaves, structure


def _outputs(name: str, value: Any) -> tuple[list[Tensor], Structure]:
    """The tensors of a function's result and its structure. Raises RuntimeError for none, and for anything else."""
    leaves, structure = flatten(value)
    if not leaves or (len(leaves) == 1 and leaves[0] is None):
        raise refuse(f"{_CALLS[name]}: Expected f to be a function that has non-empty output (got output = {leaves})")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise refuse(
                f"{_CALLS[name]}: expected f(*primals) to return only tensors, got unsupported type {type(leaf)}"
            )
    return leaves, structure


def _differentiable(name: str, value: Any) -> tuple[list[Tensor], Structure]:
    """The tensors of a result to differentiate. Raises RuntimeError for one of an integer dtype."""
    leaves, structure = _outputs(name, value)
    for leaf in leaves:
        if not (leaf.is_floating_point() or leaf.is_complex()):
            raise refuse(
                f"{name}(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                f"{leaf.dtype}"
            )
    return leaves, structure


def _check_real(name: str, what: str, value: Any) -> None:
    """Raise RuntimeError for complex tensors: a Jacobian has derivatives of real numbers by real numbers."""
    for place, leaf in enumerate(flatten(value)[0]):
        if isinstance(leaf, Tensor) and leaf.is_complex():
            raise refuse(
                f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {place}"
            )


def _called(
    name: str,
    func: _Function,
    argnums: _Argnums,
    has_aux: bool,
    level: _Level,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[list[Tensor], Structure, Any, Any]:
    """Call the function on this level's inputs: these, the structure of the arguments in `argnums`, the result, the
    aux."""
    places = _places(argnums, len(args))
    named = tuple(args[place] for place in places)
    inputs, structure = level.enter(name, named if isinstance(argnums, tuple) else named[0])
    entered = rebuild(structure, inputs)
    given = list(args)
    for place, each in zip(places, entered if isinstance(argnums, tuple) else (entered,), strict=True):
        given[place] = each
    level.admit(args, kwargs)
    value, aux = _split_aux(name, func(*given, **kwargs), has_aux)
    return inputs, structure, value, aux


def _value_and_grad(
    name: str, func: _Function, argnums: _Argnums, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any, Any]:
    with _Level() as level:
        inputs, structure, value, aux = _called(name, func, argnums, has_aux, level, args, kwargs)
        if not isinstance(value, Tensor):
            raise refuse(f"{_CALLS[name]}: Expected f(*args) to return a Tensor, got {type(value)}")
        if value.dim():
            raise refuse(
                f"{_CALLS[name]}: Expected f(*args) to return a scalar Tensor, got tensor with {value.dim()} dims. "
                "Maybe you wanted to use the vjp or jacrev APIs instead?"
            )
        if value.is_complex():
            raise refuse(f"grad can be implicitly created only for real scalar outputs but got {value.dtype}")
        keep = level.keeps([value])
        found = _filled(_gradients([value], inputs, [ones_like(value)], keep, retain=keep), inputs)
    return rebuild(structure, found), _leave(value, keep), _leave(aux, keep)


def _split_aux(name: str, answer: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return answer, None
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise refuse(f"{_CALLS[name]}: output of function f should be a tuple: (output, aux) if has_aux is True")
    for leaf in flatten(answer[1])[0]:
        if not isinstance(leaf, Tensor):
            raise refuse(f"Expected tensors, got unsupported type {type(leaf)}")
    return answer


def _places(argnums: Any, count: int) -> list[int]:
    """The arguments' places. Raises TypeError or RuntimeError for numbers that name none."""
    if isinstance(argnums, bool) or not isinstance(argnums, (int, tuple)):
        raise refuse(f"argnums must be int or Tuple[int, ...], got: {type(argnums).__name__}")
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise refuse("argnums must be non-empty")
    places = []
    for number in numbers:
        if not isinstance(number, int):
            raise refuse(f"argnums elements must be int, got {type(number).__name__}")
        if not -count <= number < count:
            raise refuse(f"Got argnum={number}, but only {count} positional inputs")
        places.append(number % count)
    if len(set(places)) < len(places):
        raise refuse(f"argnums elements must be unique, got {argnums}")
    return places


def _slice_argnums(args: tuple[Any, ...], argnums: _Argnums, as_tuple: bool = True) -> Any:
    """The arguments in `argnums`; a single one as it is without `as_tuple` (torch._functorch.eager_transforms)."""
    chosen = tuple(args[place] for place in _places(argnums, len(args)))
    return chosen if as_tuple or isinstance(argnums, tuple) else chosen[0]


# Products with the Jacobian.


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    create_graph: bool,
    retain: bool = True,
) -> list[Tensor | None]:
    """The outputs' gradients by the inputs, None for an input that they do not depend on."""
    kept = [(output, weight) for output, weight in zip(outputs, weights, strict=True) if output.requires_grad]
    if not kept:
        return [None] * len(inputs)
    roots, given = [output for output, _ in kept], [weight for _, weight in kept]
    reach = ReachableNodes([root._edge for root in roots])
    if not reach.known:
        return gradients(roots, inputs, given, retain, create_graph, True)
    reached = {id(edge) for edge in (*reach.leaves, *reach.nodes)}
    targets = [each for each in inputs if id(each._edge) in reached]
    # A function of the user's may give None as a gradient, which no graph tells.
    may_lack = bool(roots[0]._session.hooks)
    slopes = iter(gradients(roots, targets, given, retain, create_graph, may_lack) if targets else ())
    return [next(slopes) if id(each._edge) in reached else None for each in inputs]


def _filled(found: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [zeros_like(other) if each is None else each for each, other in zip(found, like, strict=True)]


class _Forward:
    """Jacobian times vector, as the derivative of vector times Jacobian by its vector."""

    def __init__(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        self.outputs = outputs
        self.inputs = inputs
        # An integer output has no derivative: nothing asks for its dummy, and its tangent is zero.
        self.dummies = [
            zeros_like(output, requires_grad=output.is_floating_point() or output.is_complex()) for output in outputs
        ]
        self.products = _gradients(outputs, inputs, self.dummies, True)

    def times(self, tangents: Sequence[Tensor | None], create_graph: bool) -> list[Tensor | None]:
        """The product per output, None for one that does not depend on the inputs that have a tangent."""
        pairs = [
            (product, tangent)
            for product, tangent in zip(self.products, tangents, strict=True)
            if product is not None and tangent is not None
        ]
        asked = [dummy for dummy in self.dummies if dummy.requires_grad]
        found = iter(_gradients([one for one, _ in pairs], asked, [other for _, other in pairs], create_graph))
        return [next(found) if dummy.requires_grad else None for dummy in self.dummies]


def _primals(name: str, primals: Any) -> tuple[list[Tensor], Structure]:
    if not isinstance(primals, tuple):
        raise refuse(
            f"{name}(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call "
            "f(*primals)."
        )
    return _tensors(name, "primals", primals)


def _directions(name: str, tangents: Any, structure: Structure, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The tangents as tensors. Raises RuntimeError if they do not have the primals' structure and shapes."""
    if flatten(tangents)[1] != structure:
        raise refuse(
            f"{name}(f, primals, tangents): Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be."
        )
    given, _ = _tensors(name, "tangents", tangents)
    for tangent, primal in zip(given, inputs, strict=True):
        if tangent.shape != primal.shape:
            raise refuse(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                f"not supported. Tensor is of size {list(primal.shape)} while the given forward gradient is of size "
                f"{list(tangent.shape)}."
            )
        for what, each in (("primal", primal), ("tangent", tangent)):
            if not (each.is_floating_point() or each.is_complex()):
                raise GradwireValueError(f"Expected {what} to be floating point or complex, but got: {each.dtype}")
    return given


def _linearized(func: _Function, primals: tuple[Any, ...]) -> tuple[Any, Callable[[Any], Any]]:
    _primals("linearize", primals)
    with _Level() as level:
        inputs, structure = level.enter("linearize", primals)
        value = func(*rebuild(structure, inputs))
        outputs, form = _outputs("linearize", value)
        keep = level.keeps(outputs)
        forward = _Forward(outputs, inputs)

    def product(tangents: Any) -> Any:
        given = _directions("linearize", tangents, structure, inputs)
        graph = is_recorded() and (keep or _inside() or any(tangent.requires_grad for tangent in given))
        with enable_grad():
            found = forward.times(given, graph)
        filled = _filled(found, outputs)
        return rebuild(form, [each if graph else _off_graph(each) for each in filled])

    return _leave(value, keep), product


def _basis(like: Tensor) -> list[Tensor]:
    """The directions of a tensor's elements: each of its shape, one at one place."""
    count = like.numel()
    return [row.reshape(like.shape) for row in eye(count, dtype=like.dtype, device=like.device).unbind(0)]


def _rows(output: Tensor, inputs: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """The Jacobians of one output: one pass per element."""
    lines = [_filled(_gradients([output], inputs, [one], create_graph), inputs) for one in _basis(output)]
    if not lines:
        return [zeros(*output.shape, *each.shape, dtype=each.dtype, device=each.device) for each in inputs]
    return [
        stack(list(column)).reshape((*output.shape, *each.shape))
        for column, each in zip(zip(*lines, strict=True), inputs, strict=True)
    ]


def _columns(forward: _Forward, place: int, create_graph: bool) -> list[Tensor]:
    """The Jacobians of all outputs by one input: one pass per element of it."""
    like = forward.inputs[place]
    lines = []
    for one in _basis(like):
        tangents: list[Tensor | None] = [None] * len(forward.inputs)
        tangents[place] = one
        lines.append(_filled(forward.times(tangents, create_graph), forward.outputs))
    if not lines:
        return [zeros(*each.shape, *like.shape, dtype=each.dtype, device=each.device) for each in forward.outputs]
    return [
        stack(list(column), -1).reshape((*each.shape, *like.shape))
        for column, each in zip(zip(*lines, strict=True), forward.outputs, strict=True)
    ]


def _check_chunk(name: str, chunk_size: int | None) -> None:
    if chunk_size is None:
        return
    if not isinstance(chunk_size, int):
        raise GradwireTypeError(f"chunk_size should be an int or None, got {type(chunk_size).__name__}")
    if chunk_size <= 0:
        raise GradwireValueError(f"{name}: `chunk_size` should be greater than 0.")
