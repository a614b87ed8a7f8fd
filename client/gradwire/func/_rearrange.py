"""rearrange: dimensions split, joined and reordered by a pattern of names, as by einops (torch.func.rearrange)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gradwire._base.errors import GradwireValueError
from gradwire._tensor.ops import stack
from gradwire._tensor.tensor import Tensor

_TOKEN = re.compile(r"\.\.\.|[()]|\w+")


def rearrange(tensor: Tensor | list[Tensor] | tuple[Tensor, ...], pattern: str, **axes_lengths: int) -> Tensor:
    """The tensor with its dimensions in the order of the pattern's right side (torch.func.rearrange).

    `"b (h p) w -> b h (p w)"` names each dimension; brackets hold the parts of one, and `...` stands for any others.
    `axes_lengths` are sizes of parts; one of a dimension may be left out. Several tensors are stacked first. Raises
    ValueError for a pattern that does not fit.
    """
    given = stack(list(tensor)) if isinstance(tensor, (list, tuple)) else tensor
    left, right = _sides(pattern, given.dim())
    sizes: dict[str, int] = dict(axes_lengths)
    for group, size in zip(left, given.shape, strict=True):
        _learn(pattern, group, size, sizes)
    before, after = [name for group in left for name in group], [name for group in right for name in group]
    if sorted(before) != sorted(after) or len(set(before)) < len(before) or set(axes_lengths) - set(before):
        raise GradwireValueError(f"the sides of the pattern {pattern!r} do not name the same dimensions, each once")
    parts = given.reshape([sizes[name] for name in before])
    ordered = parts.permute([before.index(name) for name in after])
    return ordered.reshape([math.prod(sizes[name] for name in group) for group in right])


def _sides(pattern: str, dimensions: int) -> tuple[list[list[str]], list[list[str]]]:
    """Both sides: for each dimension the names of its parts."""
    sides = pattern.split("->")
    if len(sides) != 2 or _TOKEN.sub("", pattern.replace("->", " ")).strip():
        raise GradwireValueError(f"the pattern {pattern!r} is not of the form 'names -> names'")
    left, right = (_groups(pattern, side) for side in sides)
    others = dimensions - sum(group != ["..."] for group in left)
    if others < 0 or (others and ["..."] not in left):
        raise GradwireValueError(f"the pattern {pattern!r} does not fit a tensor of {dimensions} dimensions")
    names = [f"...{place}" for place in range(others)]
    expanded = [[name] for name in names]
    for side in (left, right):
        if ["..."] in side:
            place = side.index(["..."])
            side[place : place + 1] = expanded
    return left, [[part for name in group for part in (names if name == "..." else [name])] for group in right]


def _groups(pattern: str, side: str) -> list[list[str]]:
    """The dimensions of one side; a 1 is a dimension without parts."""
    groups: list[list[str]] = []
    inside = False
    for token in _TOKEN.findall(side):
        if token in ("(", ")"):
            if inside == (token == "("):
                raise GradwireValueError(f"the brackets of the pattern {pattern!r} do not match")
            inside = token == "("
        if token == "(" or (token != ")" and not inside):
            groups.append([])
        if token not in ("(", ")", "1"):
            groups[-1].append(token)
    if inside:
        raise GradwireValueError(f"the brackets of the pattern {pattern!r} do not match")
    return groups


def _learn(pattern: str, group: Sequence[str], size: int, sizes: dict[str, int]) -> None:
    """Note the size of the one part that was not given. Raises ValueError for sizes that do not fit."""
    unknown = [name for name in group if name not in sizes]
    known = math.prod(sizes[name] for name in group if name in sizes)
    if len(unknown) > 1:
        raise GradwireValueError(f"the pattern {pattern!r} leaves the sizes of {', '.join(unknown)} open")
    if unknown and known and size % known == 0:
        sizes[unknown[0]] = size // known
    elif unknown or known != size:
        raise GradwireValueError(f"the sizes of {' '.join(group) or '1'} in the pattern {pattern!r} do not give {size}")
