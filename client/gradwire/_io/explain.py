"""explain: says in sentences why a tensor is a leaf or not, whether it gets a gradient, and what to call.

For a compiled function it says what was recorded, and whether the server runs it as a plan.
"""

from __future__ import annotations

from gradwire._base.errors import GradwireTypeError
from gradwire._base.modes import is_grad_enabled
from gradwire._compile.compile import Compiled
from gradwire._graph.graph import GraphNode
from gradwire._graph.nodes import graph
from gradwire._tensor.tensor import Tensor

_MOST_LEAVES = 8


class Text(str):
    """Text whose repr is the text itself, so a console prints it without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(tensor: Tensor | Compiled) -> Text:
    """Explain a tensor's role in autograd: whether and why it is a leaf, where gradients are stored, what to call.

    Reading the graph of a non-leaf costs a round trip. For a compiled function it lists the recordings, and how often
    and why the server ran them as a plan or step by step. Raises TypeError for anything else.
    """
    if isinstance(tensor, Compiled):
        return Text("\n".join(tensor.describe()))
    if not isinstance(tensor, Tensor):
        raise GradwireTypeError(f"explain() takes a tensor, but got {type(tensor).__name__}")
    tensor._fresh()
    name = getattr(tensor, "name", None)
    what = "parameter" if tensor._is_parameter() else "tensor"
    title = f"{name}: a {what}" if isinstance(name, str) else f"A {what}"
    facts = f"{title} of shape {tuple(tensor.shape)}, {tensor.dtype.name}, on {tensor.device}."
    if not tensor.requires_grad:
        lines = _without_gradient(tensor)
    elif tensor.is_leaf:
        lines = _leaf(tensor)
    else:
        lines = _made(tensor)
    if not is_grad_enabled():
        lines.append("Grad mode is off here (no_grad): computations are not recorded in a graph.")
    return Text("\n".join([facts, *(f"- {line}" for line in lines)]))


def _without_gradient(tensor: Tensor) -> list[str]:
    lines = [
        "It is a leaf, by convention: it does not require grad, so it is in no graph. You made it, or it is a "
        "result of tensors that do not require grad, of detach(), or of a computation under no_grad()."
    ]
    if tensor.is_inference():
        lines.append("It was made in inference_mode(), so it can never be part of a graph. clone() it outside.")
    elif tensor.is_floating_point() or tensor.is_complex():
        lines.append("It will receive no gradient; backward() from it is refused.")
        lines.append("To get one, call requires_grad_() on it before you compute with it.")
    else:
        lines.append(f"It can receive no gradient: {tensor.dtype.name} has none. Cast it to a floating dtype for one.")
    return lines


def _leaf(tensor: Tensor) -> list[str]:
    lines = ["It is a leaf: it requires grad and no operation made it, so backward() ends at it (is_leaf, no grad_fn)."]
    grad = tensor.grad
    if grad is None:
        lines.append(
            "It has no gradient yet. A backward() from a result that depends on it adds one to its .grad; one that "
            "does not reach it leaves .grad None."
        )
    else:
        lines.append(
            f"It has a gradient of shape {tuple(grad.shape)}. The next backward() adds to it: set .grad = None, or "
            "call the optimizer's zero_grad(), to clear it."
        )
    lines.append("To change it in place, do so under no_grad(); to leave it out of training, requires_grad_(False).")
    return lines


def _made(tensor: Tensor) -> list[str]:
    drawn = graph(tensor)
    nodes = {node.id: node for node in drawn.nodes}
    root = nodes.get(drawn.roots[0]) if drawn.roots else None
    name = root.name if root is not None else tensor._spec.grad_fn
    lines = [f"It is not a leaf: {name} made it from tensors that require grad, so backward() passes through it."]
    if root is not None and root.made_at:
        lines[0] += "\n  " + root.made_at
    if tensor.retains_grad:
        lines.append("It keeps its gradient: retain_grad() was called, so .grad is there after backward().")
    else:
        lines.append("Its gradient is passed on and not kept: .grad is None. Call retain_grad() before backward().")
    lines.append(_landing([node for node in drawn.nodes if node.leaf is not None]))
    freed = sum(node.freed for node in drawn.nodes)
    if freed:
        lines.append(
            f"A backward() has freed {freed} of its graph's {len(nodes)} nodes: another one is refused. Compute it "
            "again, or pass retain_graph=True to the first."
        )
    elif tensor.numel() == 1:
        lines.append("It is a scalar: backward() needs no argument.")
    else:
        lines.append(
            f"It has {tensor.numel()} elements: backward() needs gradient= of its shape, or reduce it (sum, "
            "mean) first."
        )
    lines.append("detach() returns its values without the graph.")
    return lines


def _landing(leaves: list[GraphNode]) -> str:
    shown = []
    for node in leaves[:_MOST_LEAVES]:
        assert node.leaf is not None
        shown.append(f"{node.leaf.name or 'a leaf without a name'} {node.leaf.shape}")
    if not shown:
        return "It depends on no leaf that requires grad, so backward() stores nothing."
    more = f" and {len(leaves) - _MOST_LEAVES} more" if len(leaves) > _MOST_LEAVES else ""
    return f"backward() from it stores gradients in {_counted(leaves)}: {', '.join(shown)}{more}."


def _counted(leaves: list[GraphNode]) -> str:
    return f"{len(leaves)} {'leaf' if len(leaves) == 1 else 'leaves'}"
