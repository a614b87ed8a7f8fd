"""torch.autograd: backward, grad and anomaly mode; custom functions and the graph's surface beside it."""

from collections.abc import Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gradwire_engine import Backward, Gradients
from tests.engine.torch_like import hooks
from tests.engine.torch_like.autograd import graph
from tests.engine.torch_like.autograd.function import Function
from tests.engine.torch_like.tensors import Tensor, recorded, wrap
from tests.refusals import as_python

_CHECK_NAN: ContextVar[bool] = ContextVar("check_nan", default=False)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of tensors to the leaves they depend on."""
    targets = None if inputs is None else _inner(inputs)
    with as_python():
        run = Backward(_inner(tensors), _given(grad_tensors), retain_graph, create_graph, targets, _CHECK_NAN.get())
        hooks.run(run)
        run.deliver()


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of outputs with respect to inputs."""
    unused = allow_unused or materialize_grads

    def through() -> Any:
        given, targets, check_nan = _given(grad_outputs), _inner(inputs), _CHECK_NAN.get()
        run = Gradients(_inner(outputs), targets, given, retain_graph, create_graph, check_nan, not unused)
        hooks.run(run)
        found = run.results(allow_unused, materialize_grads)
        run.deliver()
        return found

    with as_python():
        return tuple(wrap(recorded(through) if create_graph else through()))


def _inner(given: Any) -> list[Any]:
    several = [given] if isinstance(given, (Tensor, graph.GradientEdge)) else given
    return [graph.tensor_at(each).inner if isinstance(each, graph.GradientEdge) else each.inner for each in several]


def _given(gradients: Any) -> Sequence[Any] | None:
    if gradients is None:
        return None
    several = [gradients] if isinstance(gradients, Tensor) else gradients
    return [None if each is None else each.inner for each in several]


@contextmanager
def set_detect_anomaly(mode: bool, check_nan: bool = True) -> Any:
    """Refuse formulas that make nan."""
    token = _CHECK_NAN.set(mode and check_nan)
    try:
        yield
    finally:
        _CHECK_NAN.reset(token)


def detect_anomaly() -> Any:
    """Refuse formulas that make nan."""
    return set_detect_anomaly(True)


__all__ = ["Function", "backward", "detect_anomaly", "grad", "graph", "set_detect_anomaly"]
