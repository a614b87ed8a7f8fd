"""Gradients of tensors that may be batched: those of all samples in one pass.

Samples do not mix, so the gradient of all samples' outputs by a batched input is each sample's own. Where only the
outputs' gradients are batched (many cotangents for one graph) there is one pass for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradwire._backward import grad
from gradwire._errors import refuse
from gradwire._ops import stack
from gradwire._tensor import Tensor
from gradwire.func._batched import BatchedTensor, innermost, is_batched, spread, value_at


def gradients(
    roots: Sequence[Tensor],
    targets: Sequence[Tensor],
    weights: Sequence[Tensor],
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool,
) -> list[Tensor | None]:
    """The gradients of roots by targets, as autograd.grad's."""
    level = innermost([*roots, *targets, *weights])
    if level is None:
        return list(grad(roots, targets, weights, retain_graph, create_graph, allow_unused=allow_unused))
    kept = [(root, weight) for root, weight in zip(roots, weights, strict=True) if is_batched(root, level)]
    if not kept and not any(is_batched(target, level) for target in targets):
        rows = [
            gradients(
                roots,
                targets,
                [value_at(weight, level)[row] if is_batched(weight, level) else weight for weight in weights],
                retain_graph or row + 1 < level.size,
                create_graph,
                allow_unused,
            )
            for row in range(level.size)
        ]
        return [
            None if column[0] is None else BatchedTensor(stack(list(column)), level)
            for column in zip(*rows, strict=True)
        ]
    if not all(is_batched(target, level) for target in targets):
        raise refuse("vmap: outputs of samples cannot be differentiated by an input that all samples share")
    found = gradients(
        [value_at(root, level) for root, _ in kept],
        [value_at(target, level) for target in targets],
        [spread(weight, level) for _, weight in kept],
        retain_graph,
        create_graph,
        allow_unused,
    )
    return [None if each is None else BatchedTensor(each, level) for each in found]
