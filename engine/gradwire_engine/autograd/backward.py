"""Backward: the entry points, `backward` and `gradients`, and their resumable forms `Backward` and `Gradients`.

They check the arguments and find the edges where a pass begins and ends. The pass itself is in backward_pass.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradwire_engine.autograd.backward_pass import BackwardPass, Place, unused_input
from gradwire_engine.autograd.buffer_reuse import own
from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.device import module_for, selected
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import AccumulateGrad
from gradwire_engine.graph.tensor import EdgeTensor, Tensor, edge_of
from gradwire_engine.op.refusals import refuse_changed
from gradwire_engine.ops.base.basic import cast
from gradwire_engine.ops.base.checks import admit


def backward(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
    check_nan: bool = False,
) -> list[Tensor]:
    """Add the tensors' gradients to the leaves they depend on (torch.autograd.backward).

    inputs: if given, only these receive gradients; non-leaves among them retain their gradient from now on.
    check_nan: refuse a formula that returns nan, and name its node (torch.autograd.detect_anomaly).
    Returns the tensors that received a gradient. Raises EngineError: NO_GRAD_FN, GRADIENT_NEEDS_SCALAR, SHAPE,
    GRAPH_FREED, VERSION_CONFLICT, CANCELLED; then no tensor's gradient has changed. Raises NOT_SUPPORTED if an
    external callback is needed; the class Backward supports these.
    """
    return Backward(tensors, gradients, retain_graph, create_graph, inputs, check_nan).through().deliver()


def gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    grad_outputs: Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
    check_nan: bool = False,
) -> tuple[list[Tensor | None], list[Tensor]]:
    """Gradients of `outputs` by `inputs` (torch.autograd.grad), and the tensors that retained their gradient.

    Raises EngineError as `backward` does. Raises UNUSED_INPUT for an input that the outputs do not depend on, unless
    `allow_unused` (its gradient is None) or `materialize_grads` (zeros).
    """
    unused = allow_unused or materialize_grads
    run = Gradients(outputs, inputs, grad_outputs, retain_graph, create_graph, check_nan, not unused).through()
    return run.results(allow_unused, materialize_grads), run.deliver()


def _places(inputs: Sequence[Tensor]) -> list[Place]:
    places = []
    for item in inputs:
        edge = edge_of(item)
        if edge is None and not item.requires_grad:
            raise EngineError(Reason.NO_GRAD_FN, "One of the differentiated Tensors does not require grad")
        places.append((AccumulateGrad(item), 0) if edge is None else edge)  # no edge leads to the new node
    return places


def _roots(
    tensors: Sequence[Tensor], gradients: Sequence[Tensor | None] | None, as_tensors: bool
) -> list[tuple[Place, Any]]:
    given = list(gradients or ())
    if len(given) > len(tensors):
        raise EngineError(Reason.RUNTIME, f"got {len(tensors)} tensors and {len(given)} gradients")
    given += [None] * (len(tensors) - len(given))
    roots = []
    for number, (tensor, gradient) in enumerate(zip(tensors, given, strict=True)):
        if gradient is None:
            gradient = _implicit_gradient(tensor)
        elif gradient.shape != tensor.shape:
            raise EngineError(
                Reason.SHAPE,
                f"Mismatch in shape: grad_output[{number}] has a shape of {list(gradient.shape)} and output[{number}] "
                f"has a shape of {list(tensor.shape)}.",
            )
        elif (dtypes.category(gradient.dtype) == dtypes.COMPLEX) != (dtypes.category(tensor.dtype) == dtypes.COMPLEX):
            raise EngineError(
                Reason.DTYPE,
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                f"dtype: grad_output[{number}] has a dtype of {dtypes.name_of(gradient.dtype)} and output[{number}] "
                f"has a dtype of {dtypes.name_of(tensor.dtype)}.",
            )
        edge = edge_of(tensor)
        if edge is None:
            raise EngineError(
                Reason.NO_GRAD_FN,
                f"element {number} of tensors does not require grad and does not have a grad_fn",
            )
        if gradient.dtype != tensor.dtype:
            gradient = cast(gradient, tensor.dtype)
        roots.append((edge, gradient if as_tensors else gradient.array))
    return roots


def _implicit_gradient(tensor: Tensor) -> Tensor:
    if not tensor.requires_grad and tensor.grad_fn is None:
        raise EngineError(Reason.NO_GRAD_FN, "element 0 of tensors does not require grad and does not have a grad_fn")
    if tensor.size != 1:
        raise EngineError(
            Reason.GRADIENT_NEEDS_SCALAR,
            f"grad can be implicitly created only for scalar outputs; this one has shape {list(tensor.shape)}",
        )
    if dtypes.category(tensor.dtype) == dtypes.COMPLEX:
        raise EngineError(
            Reason.GRADIENT_NEEDS_SCALAR,
            f"grad can be implicitly created only for real scalar outputs but got {dtypes.name_of(tensor.dtype)}",
        )
    with selected(tensor.device):
        ones = Tensor(module_for(tensor.device).ones(tensor.shape, tensor.dtype))
    tracer = CURRENT.get().tracer
    if tracer is not None:
        tracer.created(ones)
    return ones


class Backward(BackwardPass):
    """A resumable backward: call `advance`, then `deliver`. See `backward` for arguments and errors."""

    def __init__(
        self,
        tensors: Sequence[Tensor],
        gradients: Sequence[Tensor | None] | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | None = None,
        check_nan: bool = False,
    ) -> None:
        if inputs is not None and not inputs:
            raise EngineError(Reason.RUNTIME, "'inputs' argument to backward cannot be empty.")
        super().__init__(create_graph, retain_graph, True, check_nan)
        targets = None if inputs is None else _places(inputs)
        roots = _roots(tensors, gradients, self.tensors)
        # A non-leaf receives its gradient by retaining it, from now on.
        self.collecting = [item for item in inputs or () if type(item) is not EdgeTensor]
        self.steps = self._run(roots, targets)


class Gradients(BackwardPass):
    """A resumable torch.autograd.grad: call `advance`, then `results` and `deliver`. See `gradients`."""

    def __init__(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        grad_outputs: Sequence[Tensor | None] | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        check_nan: bool = False,
        refuse_unused: bool = False,
    ) -> None:
        """refuse_unused: before the pass begins, refuse inputs that it cannot reach."""
        if not inputs:
            raise EngineError(Reason.ARGUMENT_VALUE, "grad requires non-empty inputs.")
        super().__init__(create_graph, retain_graph, False, check_nan)
        self.inputs = inputs
        self.targets = _places(inputs)
        self.used = [node for node, _ in self.targets] if refuse_unused else ()
        self.steps = self._run(_roots(outputs, grad_outputs, self.tensors), self.targets)

    def results(self, allow_unused: bool, materialize_grads: bool) -> list[Tensor | None]:
        """The gradients that arrived. Raises EngineError: UNUSED_INPUT."""
        arrived = [self.captured.get(place) for place in reversed(self.targets)]
        self.captured.clear()
        results: list[Tensor | None] = []
        for item in self.inputs:
            gradient = arrived.pop()  # drops a reference, so that `own` can take the array over
            if gradient is not None and gradient.shape != item.shape:
                refuse_changed(item, gradient)
            if gradient is not None and not self.tensors:
                gradient = own(gradient)
            elif gradient is None and materialize_grads:
                admit(item.shape, item.dtype)
                with selected(item.device):
                    gradient = Tensor(module_for(item.device).zeros(item.shape, item.dtype), self.create_graph)
                if self.observer is not None:
                    self.observer.made_zeros(gradient)
            elif gradient is None and not allow_unused:
                raise unused_input(len(results))
            results.append(gradient)
        if self.observer is not None:
            self.observer.returned(self.targets, results)
        return results
