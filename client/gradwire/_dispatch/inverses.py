"""Inverses of views: the base that has a given view, and is as before elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradwire._dispatch.calls import aten

Tensor = Any


def _again(name: str, copies: bool) -> str:
    return f"{name}_copy" if copies else name


def _view(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten(f"{_again('view', copies)}.default", value, list(base.shape))


def _transpose(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten(f"{_again('transpose', copies)}.int", value, *step.args)


def _t(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten(f"{_again('t', copies)}.default", value)


def _permute(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    dims = [each % value.ndim for each in step.args[0]]
    return aten(f"{_again('permute', copies)}.default", value, [dims.index(at) for at in range(len(dims))])


def _unsqueeze(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten(f"{_again('squeeze', copies)}.dim", value, step.args[0])


def _squeeze(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten(f"{_again('view', copies)}.default", value, list(base.shape))


def _select(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten("select_scatter.default", base, value, *step.args)


def _slice(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten("slice_scatter.default", base, value, *step.args)


def _diagonal(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten("diagonal_scatter.default", base, value, *step.args)


def _unbind(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten("select_scatter.default", base, value, step.args[0] if step.args else 0, step.place)


def _split(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    dim = step.args[1] if len(step.args) > 1 else 0
    size = step.args[0]
    start = size * step.place if isinstance(size, int) else sum(size[: step.place])
    return aten("slice_scatter.default", base, value, dim, start, start + value.shape[dim])


def _alias(base: Tensor, value: Tensor, step: Any, copies: bool) -> Any:
    return aten(f"{_again('alias', copies)}.default", value)


#: By a view's op: a function of the base, the view's new value, the view, and whether views are copied.
INVERSES: dict[str, Callable[..., Any]] = {
    "alias": _alias,
    "detach": _alias,
    "diagonal": _diagonal,
    "permute": _permute,
    "select": _select,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "squeeze": _squeeze,
    "t": _t,
    "transpose": _transpose,
    "unbind": _unbind,
    "unsqueeze": _unsqueeze,
    "view": _view,
}
