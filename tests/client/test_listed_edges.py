"""`next_functions`, the gradients that a node's hooks are given, and those of its call are as many as PyTorch's."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.oracle import agree

pytestmark = pytest.mark.usefixtures("deferring")

CASES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "a power of a number": lambda t, x, c, i: x**2,
    "a power of a constant": lambda t, x, c, i: x**c,
    "a number's power": lambda t, x, c, i: 2**x,
    "a product with a number": lambda t, x, c, i: x * 2,
    "a difference from a number": lambda t, x, c, i: t.rsub(x, 2),
    "a quotient": lambda t, x, c, i: c / x,
    "a remainder": lambda t, x, c, i: t.fmod(x, 2.0),
    "a limit": lambda t, x, c, i: x.clamp(0, 1),
    "tensors as limits": lambda t, x, c, i: x.clamp(c, c + 1),
    "a choice": lambda t, x, c, i: t.where(x > 1, x, c),
    "a choice of a number": lambda t, x, c, i: t.where(x > 1, 0.0, x),
    "a weight that is a number": lambda t, x, c, i: t.lerp(x, c, 0.5),
    "a loss of classes": lambda t, x, c, i: t.nn.functional.nll_loss(x, i),
    "a weighted loss of classes": lambda t, x, c, i: t.nn.functional.nll_loss(x, i, c[0]),
    "a binary loss": lambda t, x, c, i: t.nn.functional.binary_cross_entropy_with_logits(x, c),
    "an embedding": lambda t, x, c, i: t.nn.functional.embedding(i, x),
    "an index": lambda t, x, c, i: x[i],
    "a lower limit": lambda t, x, c, i: x.clamp_min(0.5),
    "an upper limit": lambda t, x, c, i: x.clamp_max(0.5),
    "limits of a tensor": lambda t, x, c, i: x.clamp_min(c).clamp_max(c),
    "two indices": lambda t, x, c, i: x[i, i],
    "a gathered index": lambda t, x, c, i: x.gather(0, i[None]),
    "a selected index": lambda t, x, c, i: x.index_select(0, i),
    "a scattered tensor": lambda t, x, c, i: x.scatter(0, i[None], c),
    "a scattered number": lambda t, x, c, i: x.scatter(0, i[None], 2.0),
    "a filled mask": lambda t, x, c, i: x.masked_fill(x > 1, 0.0),
    "a mask filled by a tensor": lambda t, x, c, i: x.masked_fill(x > 1, t.tensor(0.0)),
    "a selected mask": lambda t, x, c, i: x.masked_select(x > 1),
    "an added index": lambda t, x, c, i: x.index_add(0, i, c),
}


@pytest.mark.parametrize("name", CASES)
def test_a_node_has_pytorchs_edges(name: str) -> None:
    def case(torch: Any) -> Any:
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        made = CASES[name](torch, x, torch.tensor([[0.5, 0.25], [1.0, 2.0]]), torch.tensor([0, 1]))
        node, seen = made.grad_fn, []
        edges = [(None if each is None else each.name(), number) for each, number in node.next_functions]
        node.register_hook(lambda inputs, outputs: seen.append([None if g is None else g.tolist() for g in inputs]))
        made.sum().backward()
        return node.name(), edges, seen, x.grad

    agree(case)


def test_a_called_node_gives_a_gradient_per_listed_edge() -> None:
    def case(torch: Any) -> Any:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        square, chosen = x**2, torch.where(x > 1, x, 0.0)
        return square.grad_fn(torch.ones(2)), chosen.grad_fn(torch.ones(2))[1] is None

    agree(case)


def test_a_hook_replaces_the_gradients_of_the_listed_edges() -> None:
    def case(torch: Any) -> Any:
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        made = 2**x
        made.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 3,))
        made.sum().backward()
        return x.grad

    agree(case)
