"""Gradients of tensors that may be batched: those of all samples in one pass.

Samples do not mix, so the gradient of all samples' outputs by a batched input is each sample's own. An input that all
samples share needs one pass per sample. So do batched gradients of unbatched outputs (many cotangents for one graph).
"""

from __future__ import annotations

from collections.abc import Sequence

from gradwire._base.errors import refuse
from gradwire._functions.backward import grad
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor
from gradwire.func._batched import BatchedTensor, Level, innermost, is_batched, spread, value_at


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
    shared = [place for place, target in enumerate(targets) if not is_batched(target, level)]
    rooted = any(is_batched(root, level) for root in roots)
    if not rooted and len(shared) == len(targets):
        return _by_rows(level, roots, targets, weights, retain_graph, create_graph, allow_unused)
    # Each sample has a separate gradient of a target that all samples share, as for each row of weights.
    unbatched = (
        _by_rows(level, roots, [targets[place] for place in shared], weights, True, create_graph, True)
        if shared
        else []
    )
    if shared and not allow_unused and any(each is None for each in unbatched):
        raise refuse("One of the differentiated Tensors appears to not have been used in the graph.")
    kept = [(root, weight) for root, weight in zip(roots, weights, strict=True) if is_batched(root, level)]
    together = [target for target in targets if is_batched(target, level)]
    found = (
        gradients(
            [value_at(root, level) for root, _ in kept],
            [value_at(target, level) for target in together],
            [spread(weight, level) for _, weight in kept],
            retain_graph,
            create_graph,
            allow_unused,
        )
        if kept and together
        else [None] * len(together)
    )
    rest, alone = iter(found), iter(unbatched)
    return [next(alone) if place in shared else _batched(next(rest), level) for place in range(len(targets))]


def _by_rows(
    level: Level,
    roots: Sequence[Tensor],
    targets: Sequence[Tensor],
    weights: Sequence[Tensor],
    retain_graph: bool,
    create_graph: bool,
    allow_unused: bool,
) -> list[Tensor | None]:
    """The gradients by tensors that all samples share: one pass for each sample."""

    def of_row(each: Tensor, row: int) -> Tensor:
        return value_at(each, level)[row] if is_batched(each, level) else each

    rows = [
        gradients(
            [of_row(root, row) for root in roots],
            targets,
            [of_row(weight, row) for weight in weights],
            retain_graph or row + 1 < level.size,
            create_graph,
            allow_unused,
        )
        for row in range(level.size)
    ]
    return [
        None if column[0] is None else BatchedTensor(stack(list(column)), level) for column in zip(*rows, strict=True)
    ]


def _batched(found: Tensor | None, level: Level) -> Tensor | None:
    return None if found is None else BatchedTensor(found, level)
