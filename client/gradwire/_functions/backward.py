"""Differentiation: backward, which adds to leaves' .grad, and grad, which returns gradients (torch.autograd)."""

from __future__ import annotations

import itertools
import math
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from gradwire._base.errors import GradwireError, GradwireTypeError, GradwireValueError, refuse
from gradwire._base.modes import set_grad_enabled
from gradwire._base.refused import refusal
from gradwire._base.watching import unwatched
from gradwire._functions.create import zeros_like
from gradwire._functions.derivative_memo import DerivativeMemo, may_know
from gradwire._functions.edges import EdgeTensor, GradientEdge, tensor_at
from gradwire._functions.saved_tensor_hooks import packing
from gradwire._functions.stored_values import StoredValues
from gradwire._graph import commands
from gradwire._graph.anomaly import checks_nan, explained
from gradwire._graph.hook_runner import Pass, run_hooks
from gradwire._graph.sparse_gradients import SparseGradients, fitting, not_a_leaf, takes_sparse
from gradwire._proxy.handle import PRESENT, UNKNOWN, Handle
from gradwire._proxy.memo import Spec, read_spec
from gradwire._proxy.results import after_backward, known_or_new, mark_gradients, mark_gradients_unknown, new_proxy
from gradwire._proxy.shadow_graph import ReachableNodes
from gradwire._tensor.batching import BATCHING, DERIVATIVES
from gradwire._tensor.known_values.ahead import differentiating
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.values import array_of
from gradwire._tensor.warnings import warn_once
from gradwire._transport.wire import Value
from gradwire.v1 import commands_pb2, errors_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_Tensors: TypeAlias = "Tensor | GradientEdge | Sequence[Tensor | GradientEdge]"
_Gradients: TypeAlias = "Tensor | Sequence[Tensor | None] | None"

_CYCLE = (
    "Using backward() with create_graph=True makes a reference cycle between a parameter and its gradient, which keeps "
    "memory until it is broken. Prefer autograd.grad for a graph of the gradient, or set the parameters' .grad to None "
    "afterwards."
)
# Modules to call after each backward, in the order of their numbers: all ranks of a program call them in one order.
_AFTER_BACKWARD: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def backward(
    tensors: _Tensors,
    grad_tensors: _Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: _Gradients = None,
    inputs: _Tensors | None = None,
) -> None:
    """Add the gradients of tensors to the leaves they depend on (torch.autograd.backward).

    `grad_tensors` are the gradients of the tensors; None is allowed for a tensor of one element. With `inputs`, only
    these tensors receive gradients. With `create_graph`, a leaf's gradient has a graph that leads back to the leaf.
    The server keeps the memory of this cycle until `leaf.grad = None` breaks it or the session ends. Raises
    RuntimeError for tensors without history or with freed saved values; then no gradient has changed. Before a hook is
    called, gradients that have arrived are added; they stay if the hook raises.
    """
    for see in DERIVATIVES if BATCHING else ():
        if see(backward, (tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)) is None:
            return
    sparse = SparseGradients()
    grad_tensors = grad_tensors if grad_tensors is not None else grad_variables
    tensors, grad_tensors = _by_values(tensors, grad_tensors, sparse)
    roots = _as_list(tensors)
    gradients = _gradients(roots, grad_tensors)
    targets = [] if inputs is None else _as_list(_values_of_all(inputs))
    if inputs is not None and not targets:
        raise refuse("`inputs` argument to `backward()` cannot be empty.")
    _check_inputs(targets)
    for target in targets:
        if isinstance(target, EdgeTensor):
            continue
        target.retain_grad()  # as in PyTorch: a non-leaf receives its gradient by retaining it from now on
    if not roots:
        sparse.deliver(targets, create_graph)
        return
    if create_graph:
        warn_once(_CYCLE)
    given = [each for each in gradients if each is not None]
    session = commands.common_session("backward", [*roots, *given, *targets])
    keep = create_graph if retain_graph is None else bool(retain_graph)
    check_nan = checks_nan()
    hooked = bool(session.hooks)

    def build(values: Sequence[Value]) -> service_pb2.Command:
        ids = [int(value) for value in values]
        remaining = iter(ids[len(roots) :])
        request = commands_pb2.BackwardRequest(
            tensors=ids[: len(roots)],
            gradients=[0 if each is None else next(remaining) for each in gradients] if given else (),
            retain_graph=keep,
            create_graph=create_graph,
            check_nan=check_nan,
            answers_hooks=hooked,
        )
        request.inputs.extend(remaining)
        return service_pb2.Command(backward=request)

    reachable = ReachableNodes([root._edge for root in roots])
    session.begin_backward()
    received: list[Any] = []
    values = [each._id for each in (*roots, *given, *targets)]
    dual = any(each._spec.tangents for each in (*roots, *given))
    plain = reachable.known and not (create_graph or targets or check_nan or hooked or dual)
    memo, is_deferred = None, False
    if not (plain or create_graph or check_nan) and may_know(session, [*roots, *gradients, *targets]):
        memo = DerivativeMemo("backward", session, (roots, gradients, targets), (keep,))
    if plain or (memo is not None and memo.entry is not None):
        if plain and len(roots) == 1 and not given:
            differentiating(roots[0], array_of)
        # If Ctrl-C interrupts before the gradients are marked, the server must be asked which exist.
        before = mark_gradients_unknown(reachable.owners() if memo is None else memo.received())
        try:
            if memo is None or memo.entry is None:
                key = (keep, *_spec_key(roots), *_spec_key(gradients))
                recorder = session.recorder if len(roots) == 1 and not given else None
                surely = recorder is not None and recorder.differentiates_surely(roots[0])
                # If it failed late, an update would use the gradients that there were before.
                if recorder is not None and surely and all(state is None for _, state in before):
                    unwatched(commands.record_surely, session, recorder, "backward", key, values, build)
                else:
                    commands.run(session, "backward", key, values, build)
            else:
                commands.repeat(session, memo.entry, values)
        except GradwireError as error:
            # A late error may be another command's; then this backward was executed.
            for owner, state in () if error.late else before:
                owner._grad = state
            raise
        for owner, state in before:
            owner._grad = after_backward(owner, state, PRESENT)
        received += [owner for owner, _ in before]
        is_deferred = True
    else:
        state = UNKNOWN if create_graph or dual else PRESENT

        def on_received(ids: Sequence[int]) -> None:
            found = _found(session, ids, targets)
            mark_gradients(found, state)
            received.extend(found)
            session.float_writes += 1  # what hooks have read may be written after them

        with explained():
            answer = session.wait(build(values)).backward
            if memo is not None and not answer.HasField("due"):
                memo.learn_backward(answer.accumulated, build, values)
            this = Pass(keep, not targets, sparse, roots, targets, reachable=reachable)
            run_hooks(session, answer, create_graph, this, on_received)
    if not keep:
        reachable.mark_freed()
    if sparse:
        received += sparse.deliver(targets, create_graph)
    if is_deferred:
        session.end_step()
    if _AFTER_BACKWARD:
        for module in tuple(_AFTER_BACKWARD.values()):
            module.after_backward(received)


def call_after_backward(module: Any) -> None:
    """Call a module's `after_backward` after each backward, with the tensors that received a gradient.

    Modules are called in the order in which they came. They are not kept alive.
    """
    _AFTER_BACKWARD[next(_numbers)] = module


def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: _Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Gradients of outputs with respect to inputs, one per input; no leaf's .grad changes (torch.autograd.grad).

    An input that the outputs do not depend on is refused. With `allow_unused` it yields None, with
    `materialize_grads` zeros. With `is_grads_batched`, each of `grad_outputs` has one more leading dimension; the
    gradients get it too. Raises RuntimeError as backward does.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use gradwire.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    for see in DERIVATIVES if BATCHING else ():
        how = (grad_outputs, retain_graph, create_graph, True, allow_unused, is_grads_batched, materialize_grads)
        answer = see(grad, (outputs, inputs, *how))
        if answer is not NotImplemented:
            return tuple(answer)
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    if materialize_grads and allow_unused is False:
        raise GradwireValueError("Expected allow_unused to be True or not passed when materialize_grads=True.")
    wanted: list[Any] = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if any(isinstance(each, StoredValues) for each in wanted):
        how = (grad_outputs, retain_graph, create_graph, True, allow_unused, False, materialize_grads)
        found = grad(outputs, _values_of_all(wanted), *how)
        pairs = zip(found, wanted, strict=True)
        return tuple(to.gradient(one) if one is not None and isinstance(to, StoredValues) else one for one, to in pairs)
    sparse = SparseGradients()
    outputs, grad_outputs = _by_values(outputs, grad_outputs, sparse)
    roots, targets = _as_list(outputs), _as_list(inputs)
    # Of some targets the server may get no gradient, since the client has a sparse one.
    asked = (allow_unused, materialize_grads)
    joins = bool(sparse) or any(takes_sparse(each) for each in targets)
    if joins:
        allow_unused, materialize_grads = True, False
    if not targets:
        raise refuse("`inputs` argument to `grad()` cannot be empty.")
    if materialize_grads and any(isinstance(each, EdgeTensor) for each in targets):
        found = grad(roots, targets, grad_outputs, retain_graph, create_graph, allow_unused=True)
        return tuple(_materialized(each, target, create_graph) for each, target in zip(found, targets, strict=True))
    gradients = _gradients(roots, grad_outputs)
    _check_inputs(targets)
    if not roots:
        return _joined(targets, [None] * len(targets), sparse, create_graph, *asked)
    given = [each for each in gradients if each is not None]
    session = commands.common_session("grad", [*roots, *targets, *given])
    keep = create_graph if retain_graph is None else bool(retain_graph)
    near = {each._id: each for each in (*roots, *targets, *given)}
    shown = [each.__dict__["_view"].base for each in near.values() if "_view" in each.__dict__]
    near |= {base._id: base for base in shown}
    ids = [next(session.ids) for _ in targets]
    check_nan = checks_nan()
    hooked = bool(session.hooks)

    def build(values: Sequence[Value]) -> service_pb2.Command:
        numbers = [int(value) for value in values]
        first, second = len(roots), len(roots) + len(targets)
        remaining = iter(numbers[second : second + len(given)])
        request = commands_pb2.GradientsRequest(
            outputs=numbers[:first],
            inputs=numbers[first:second],
            grad_outputs=[0 if each is None else next(remaining) for each in gradients] if given else (),
            retain_graph=keep,
            create_graph=create_graph,
            allow_unused=bool(allow_unused),
            materialize_grads=materialize_grads,
            check_nan=check_nan,
            answers_hooks=hooked,
            results=numbers[second + len(given) :],
        )
        return service_pb2.Command(gradients=request)

    reachable = ReachableNodes([root._edge for root in roots])
    values = [each._id for each in (*roots, *targets, *given)] + ids
    retaining = [owner for owner in reachable.owners() if not owner._spec.is_leaf]
    reached = {id(edge) for edge in (*reachable.leaves, *reachable.nodes)}
    dual = any(each._spec.tangents for each in (*roots, *given))
    plain = not (create_graph or allow_unused or check_nan or hooked or dual)
    memo = None
    if not ((plain and reachable.known) or check_nan) and may_know(session, [*roots, *gradients, *targets]):
        options = (keep, create_graph, bool(allow_unused), materialize_grads)
        memo = DerivativeMemo("grad", session, (roots, gradients, targets), options)
    session.begin_backward()
    if memo is not None and memo.entry is not None:
        commands.repeat(session, memo.entry, values)
        made = memo.gradients(ids)
    elif plain and reachable.known and all(id(target._edge) in reached for target in targets):
        key = (keep, materialize_grads, *_spec_key(roots), *_spec_key(targets), *_spec_key(gradients))
        specs = commands.run(session, "grad", key, values, build, _read_gradients)
        assert specs is not None
        mark_gradients(retaining, UNKNOWN)
        made = tuple(new_proxy(session, one, spec) for one, spec in zip(ids, specs, strict=True))
    else:

        def through() -> tuple[Any, ...]:
            nonlocal memo
            arrived: list[Any] = []

            def on_received(ids: Sequence[int]) -> None:
                mark_gradients(_found(session, ids, ()), UNKNOWN)

            def on_result(answer: Any) -> None:
                if memo is not None:
                    memo.learn_gradients(answer, ids, build, values)
                    if memo.entry is not None:
                        arrived.extend(memo.gradients(ids))
                        return
                arrived.extend(known_or_new(session, message, near) for message in answer.gradients)

            with explained():
                answer = session.wait(build(values), tuple(ids)).gradients
                if answer.HasField("due"):
                    memo = None
                this = Pass(keep, False, sparse, roots, targets, captures=True)
                run_hooks(session, answer, create_graph, this, on_received, on_result)
            return tuple(arrived)

        made = packing(session, through) if create_graph else through()
    if not keep:
        reachable.mark_freed()
    if joins:
        made = _joined(targets, made, sparse, create_graph, *asked)
    first: dict[int, int] = {}  # an input given twice has one gradient
    return tuple([made[first.setdefault(target._id, place)] for place, target in enumerate(targets)])


def _values_of_all(tensors: Any) -> Any:
    """Tensors, or one, with the values of sparse ones."""
    if isinstance(tensors, (list, tuple)):
        return [each._v if isinstance(each, StoredValues) else each for each in tensors]
    return tensors._v if isinstance(tensors, StoredValues) else tensors


def _by_values(roots: Any, gradients: Any, sparse: SparseGradients) -> tuple[Any, Any]:
    """Roots and gradients of a pass without sparse ones: a sparse root's values, with the gradient of these.

    A sparse gradient of a dense leaf is added to `sparse`, and its root left out.
    """
    if gradients is None and isinstance(roots, Tensor) and not isinstance(roots, StoredValues):
        return roots, None  # the common case
    tensors = list(roots) if isinstance(roots, (list, tuple)) else [roots]
    given = list(gradients) if isinstance(gradients, (list, tuple)) else [gradients] * len(tensors)
    if not any(isinstance(each, StoredValues) for each in (*tensors, *given)) or len(given) != len(tensors):
        return roots, gradients
    left: list[tuple[Any, Any]] = []
    for place, (root, gradient) in enumerate(zip(tensors, given, strict=True)):
        if isinstance(root, StoredValues):
            if gradient is None and root.numel() != 1:
                raise refuse("grad can be implicitly created only for scalar outputs")
            left.append((root._v, None if gradient is None else root.values_of(gradient)))
        elif isinstance(gradient, StoredValues):
            root._fresh()
            if not (root.is_leaf and root.requires_grad):
                raise not_a_leaf(f"output {place} got one")
            if root.__dict__.get("_held_hooks") is not None:
                raise refusal("backward of a leaf with hooks and a sparse gradient", "make the gradient dense")
            problem = f"Mismatch in shape: grad_output[{place}] does not fit output[{place}]"
            sparse.give(root, fitting(gradient, root, problem))
        else:
            left.append((root, gradient))
    return [root for root, _ in left], [gradient for _, gradient in left]


def _joined(
    targets: Sequence[Tensor],
    made: Sequence[Any],
    sparse: SparseGradients,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    """The gradients with their sparse parts. Raises RuntimeError for a target without one, as the server would."""
    with set_grad_enabled(create_graph):
        joined = [sparse.join(target, gradient) for target, gradient in zip(targets, made, strict=True)]
    for place, (target, gradient) in enumerate(zip(targets, joined, strict=True)):
        if gradient is None and materialize_grads:
            joined[place] = zeros_like(target, requires_grad=create_graph)
        elif gradient is None and not allow_unused:
            raise refuse(
                f"The differentiated Tensor at index {place} appears to not have been used in the graph. Set "
                "allow_unused=True if this is the desired behavior.",
                errors_pb2.REASON_UNUSED_INPUT,
            )
    return tuple(joined)


def _materialized(gradient: Any, target: Tensor, create_graph: bool) -> Any:
    """The gradient, or zeros if it is None. Raises RuntimeError for an edge, whose tensor may no longer exist."""
    if gradient is not None:
        return gradient
    if isinstance(target, EdgeTensor):
        raise refuse("materialize_grads cannot be used when the given input is a GradientEdge")
    return zeros_like(target, requires_grad=create_graph)


def _batched(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: _Gradients,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Any, ...]:
    """Gradients for each of a batch of output gradients, computed in one pass per batch element."""
    roots = _as_list(outputs)
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs or ())
    if len(given) != len(roots):
        raise refuse(f"got {len(roots)} tensors and {len(given)} gradients")
    for place, (root, each) in enumerate(zip(roots, given, strict=True)):
        if each is not None and (not each.dim() or each.shape[1:] != root.shape):
            raise refuse(
                f"If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                f"dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{place}] has a shape of {each.shape} and "
                f"output[{place}] has a shape of {root.shape}.",
                errors_pb2.REASON_SHAPE,
            )
    sizes = {each.shape[0] for each in given if each is not None}
    if len(sizes) != 1 or not max(sizes):
        raise refuse("with is_grads_batched=True the gradients need one leading size, of at least 1")
    count = sizes.pop()
    keep = create_graph if retain_graph is None else bool(retain_graph)
    rows = [
        grad(
            roots,
            inputs,
            [None if each is None else each[row] for each in given],
            keep or row + 1 < count,
            create_graph,
            allow_unused=allow_unused,
            materialize_grads=materialize_grads,
        )
        for row in range(count)
    ]
    return tuple(None if column[0] is None else stack(column) for column in zip(*rows, strict=True))


def _read_gradients(result: service_pb2.Result) -> tuple[Spec, ...]:
    return tuple(read_spec(message) for message in result.gradients.gradients)


def _spec_key(tensors: Sequence[Handle | None]) -> tuple[Any, ...]:
    """Part of a memo key that describes a list of tensors."""
    return (len(tensors), *[None if each is None else each._spec for each in tensors])


def _found(session: SessionProtocol, ids: Iterable[int], targets: Sequence[Handle]) -> list[Any]:
    """Proxies of the tensors that received a gradient: leaves, tensors that retain gradients, and `targets`."""
    named = {target._id: target for target in targets}
    known = [named[tensor_id] if tensor_id in named else session.watched.get(tensor_id) for tensor_id in ids]
    return [each for each in known if each is not None]


def _as_list(tensors: Any) -> list[Tensor]:
    given = [tensors] if isinstance(tensors, (Tensor, GradientEdge)) else list(tensors)
    found = [tensor_at(each) if isinstance(each, GradientEdge) else each for each in given]
    for each in found:
        if not isinstance(each, Tensor):
            raise GradwireTypeError(f"expected tensors, but got {type(each).__name__}")
        each._fresh()
    return found


def _check_inputs(targets: Sequence[Tensor]) -> None:
    for target in targets:
        if not target.requires_grad:
            raise refuse("One of the differentiated Tensors does not require grad", errors_pb2.REASON_UNUSED_INPUT)


def _gradients(roots: Sequence[Tensor], given: Any) -> list[Tensor | None]:
    """One gradient or None per root. Raises RuntimeError for what PyTorch refuses before it walks the graph."""
    gradients: list[Any] = (
        [None] * len(roots) if given is None else [given] if isinstance(given, Tensor) else list(given)
    )
    if len(gradients) != len(roots):
        raise refuse(f"got {len(roots)} tensors and {len(gradients)} gradients")
    for place, (root, gradient) in enumerate(zip(roots, gradients, strict=True)):
        spec = root._spec
        if gradient is None:
            if spec.requires_grad:
                _check_scalar(spec)
        elif not isinstance(gradient, Tensor):
            raise GradwireTypeError(f"gradients can be either Tensors or None, but got {type(gradient).__name__}")
        elif gradient.shape != spec.shape:
            raise refuse(
                f"Mismatch in shape: grad_output[{place}] has a shape of {gradient.shape} and output[{place}] has a "
                f"shape of {spec.shape}.",
                errors_pb2.REASON_SHAPE,
            )
        elif gradient.is_complex() != spec.dtype.is_complex:
            raise refuse(
                f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{place}] has a dtype of {gradient.dtype} and output[{place}] has a dtype of "
                f"{spec.dtype}.",
                errors_pb2.REASON_DTYPE,
            )
    for place, root in enumerate(roots):
        if not root._spec.requires_grad:
            raise refuse(
                f"element {place} of tensors does not require grad and does not have a grad_fn",
                errors_pb2.REASON_NO_GRAD_FN,
            )
    return gradients


def _check_scalar(spec: Spec) -> None:
    if math.prod(spec.shape) != 1:
        raise refuse("grad can be implicitly created only for scalar outputs", errors_pb2.REASON_GRADIENT_NEEDS_SCALAR)
    if spec.dtype.is_complex:
        raise refuse(
            f"grad can be implicitly created only for real scalar outputs but got {spec.dtype}",
            errors_pb2.REASON_GRADIENT_NEEDS_SCALAR,
        )
