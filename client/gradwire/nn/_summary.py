"""A module as a table: each layer's output shape and parameters, from one pass without gradients."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from gradwire._base import dtypes as _dtypes
from gradwire._base.errors import GradwireTypeError, GradwireValueError
from gradwire._base.modes import no_grad
from gradwire._base.printing import bytes_text
from gradwire._functions.create import zeros
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module

_HEADINGS = ("Layer (type:depth-idx)", "Output Shape", "Param #")


@dataclass(frozen=True)
class LayerRow:
    """One layer: its label, how deep it lies, the shapes that it gave (None if it was not called), its parameters."""

    label: str
    depth: int
    output: str
    parameters: int
    trainable: int
    recursive: bool


@dataclass(frozen=True, repr=False)
class ModelSummary:
    """The result of gradwire.summary(): prints as a table, shows as one in a notebook."""

    rows: tuple[LayerRow, ...]
    parameters: int
    trainable: int
    bytes: int

    def _cells(self) -> list[tuple[str, str, str]]:
        return [
            (
                ("│    " * (row.depth - 1) + "├─" if row.depth else "") + row.label,
                row.output,
                "(recursive)" if row.recursive else f"{row.parameters:,}" if row.parameters else "--",
            )
            for row in self.rows
        ]

    def _totals(self) -> list[str]:
        return [
            f"Total params: {self.parameters:,}",
            f"Trainable params: {self.trainable:,}",
            f"Non-trainable params: {self.parameters - self.trainable:,}",
            f"Params and buffers: {bytes_text(self.bytes)}",
        ]

    def __repr__(self) -> str:
        cells = [_HEADINGS, *self._cells()]
        widths = [max(len(row[place]) for row in cells) + 2 for place in range(3)]
        line = "=" * sum(widths)
        lines = ["".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
        return "\n".join([line, lines[0], line, *lines[1:], line, *self._totals(), line])

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str) -> str:
            style = "text-align:left;white-space:pre;padding:1px 8px;font-family:monospace"
            return "<tr>" + "".join(f"<{tag} style='{style}'>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = row(_HEADINGS, "th") + "".join(row(cells, "td") for cells in self._cells())
        return f"<table>{body}</table><div>{'<br>'.join(self._totals())}</div>"


def summary(
    model: Module,
    input_size: Any = None,
    input_data: Any = None,
    *,
    dtypes: Any = None,
    depth: int = 3,
    **kwargs: Any,
) -> ModelSummary:
    """Return a table of a module's layers, with their output shapes for an input, and their parameters.

    `input_size` is one input's shape or a list of shapes. The inputs are then zeros of `dtypes`: one for all, a list,
    or the default dtype. `input_data` is the input itself, or a list of inputs. `kwargs` are passed to the module.
    Without either input no shapes are shown. The module is called once in eval mode without gradients; its mode and its
    values do not change. Raises TypeError for a non-module, and the module's exceptions.
    """
    if not isinstance(model, Module):
        raise GradwireTypeError(f"summary() takes a module, but got {type(model).__name__}")
    if input_size is not None and input_data is not None:
        raise GradwireValueError("summary() takes input_size or input_data, not both")
    shapes: dict[int, str] = {}
    if input_size is not None or input_data is not None or kwargs:
        _call(model, _inputs(input_size, input_data, dtypes), kwargs, shapes)
    rows: list[LayerRow] = []
    _walk(model, type(model).__name__, 0, depth, shapes, rows, set(), {})
    params = list(model.parameters())
    return ModelSummary(
        rows=tuple(rows),
        parameters=sum(param.numel() for param in params),
        trainable=sum(param.numel() for param in params if param.requires_grad),
        bytes=sum(held.numel() * held.element_size() for held in [*params, *model.buffers()]),
    )


def _inputs(input_size: Any, input_data: Any, dtypes: Any) -> tuple[Any, ...]:
    if input_data is not None:
        return tuple(input_data) if isinstance(input_data, (list, tuple)) else (input_data,)
    if input_size is None:
        return ()
    many = isinstance(input_size, (list, tuple)) and bool(input_size) and isinstance(input_size[0], (list, tuple))
    sizes = list(input_size) if many else [input_size]
    kinds = list(dtypes) if isinstance(dtypes, (list, tuple)) else [dtypes] * len(sizes)
    if len(kinds) != len(sizes):
        raise GradwireValueError(f"summary() was given {len(kinds)} dtypes for {len(sizes)} inputs")
    default = _dtypes.get_default_dtype()
    return tuple(zeros(*size, dtype=kind or default) for size, kind in zip(sizes, kinds, strict=True))


def _call(model: Module, inputs: tuple[Any, ...], kwargs: dict[str, Any], shapes: dict[int, str]) -> None:
    modes = [(module, module.training) for module in model.modules()]
    handles = []

    def note(module: Module, given: Any, made: Any) -> None:
        shapes[id(module)] = _shape(made)

    try:
        handles = [module.register_forward_hook(note) for module, _ in modes]
        model.eval()
        with no_grad():
            model(*inputs, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training


def _shape(made: Any) -> str:
    if isinstance(made, Tensor):
        return str(list(made.shape))
    if isinstance(made, (tuple, list)) and made:
        return _shape(made[0])
    if isinstance(made, dict) and made:
        return _shape(next(iter(made.values())))
    return "--"


def _walk(
    module: Module,
    name: str,
    level: int,
    depth: int,
    shapes: dict[int, str],
    rows: list[LayerRow],
    seen: set[int],
    counts: dict[int, int],
) -> None:
    counts[level] = counts.get(level, 0) + 1
    kind = type(module).__name__
    label = kind if level == 0 else f"{kind} ({name}): {level}-{counts[level]}"
    inside = level == depth or not module._modules
    own = list(module.parameters(recurse=inside))
    rows.append(
        LayerRow(
            label=label,
            depth=level,
            output=shapes.get(id(module), "--"),
            parameters=sum(param.numel() for param in own),
            trainable=sum(param.numel() for param in own if param.requires_grad),
            recursive=id(module) in seen,
        )
    )
    if id(module) in seen or level == depth:
        return
    seen.add(id(module))
    for child, held in module._modules.items():
        if held is not None:
            _walk(held, child, level + 1, depth, shapes, rows, seen, counts)
