"""torch.autograd.graph: places of the graph, and saved values that the user keeps."""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from gradwire_engine import Tensor as EngineTensor
from gradwire_engine.autograd.checkpoints import RegionStart
from gradwire_engine.autograd.saved_tensor_hooks import pack, packable
from gradwire_engine.core.context import CURRENT
from gradwire_engine.graph.tensor import at_edge, edge_of
from tests.engine.torch_like.hooks import ask
from tests.engine.torch_like.modes import no_grad
from tests.engine.torch_like.nodes import Node, node_of
from tests.engine.torch_like.tensors import AROUND, Tensor, unwrap, wrap


class GradientEdge(NamedTuple):
    """An output of a node, and the tensor that the engine knows this place by."""

    node: Node
    output_nr: int
    place: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where a tensor is in the graph now."""
    edge = edge_of(tensor.inner)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge of a Tensor that does not require gradients")
    return GradientEdge(node_of(edge[0]), edge[1], tensor if tensor.is_leaf else wrap(at_edge(tensor.inner)))


def tensor_at(edge: GradientEdge) -> Tensor:
    """The tensor that stands for an edge."""
    made: Tensor = edge.place
    return made


@contextmanager
def saved_tensors_hooks(pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> Any:
    """Inside, `pack_hook` gets each value that an op saves; backward gets it back from `unpack_hook`."""

    def around(apply: Callable[[], Any]) -> Any:
        if not CURRENT.get().grad_enabled:
            return apply()
        moment = RegionStart(CURRENT.get().generator, keeps_random=False)
        with not_packing():
            made = apply()
            _pack(moment.first, [each for each in _tensors(made) if each.requires_grad])
        return made

    def _pack(first: int, outputs: Sequence[EngineTensor]) -> None:
        with no_grad():
            kept = [pack_hook(wrap(value)) for value in packable(first, outputs)]
        pack(first, outputs, [ask(lambda due, each=each: [unwrap(unpack_hook(each))]) for each in kept])

    token = AROUND.set(around)
    try:
        yield
    finally:
        AROUND.reset(token)


@contextmanager
def not_packing() -> Any:
    """Inside, no hooks of saved values are in force."""
    token = AROUND.set(None)
    try:
        yield
    finally:
        AROUND.reset(token)


def _tensors(value: Any) -> list[EngineTensor]:
    several = value if isinstance(value, (tuple, list)) else (value,)
    return [each for each in several if isinstance(each, EngineTensor)]
