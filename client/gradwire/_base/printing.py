"""Printing: formats a tensor as text identical to PyTorch's, and as HTML for a notebook.

The number format (fixed, whole or scientific, with one width) depends only on the values that are printed. A caller
with a large remote tensor therefore fetches only its corners. `needs_summary` says when, and `edge_indices` lists the
indices of each dimension. The functions take arrays and return strings; they use no server or session.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: The beginning of a tensor's text.
PREFIX = "tensor("
# Most rows and columns of an HTML table, for readability. Larger edgeitems raise the limits.
_TABLE_ROWS = 16
_TABLE_COLUMNS = 12


@dataclass
class PrintOptions:
    """How numbers and summaries are printed; the meanings and defaults of torch.set_printoptions."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


#: The current options. `set_printoptions` changes this object in place.
PRINT_OPTIONS = PrintOptions()

_PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed (torch.set_printoptions).

    `profile` ("default", "short" or "full"; another name changes nothing) applies first, then each option that is not
    None. Every call sets `sci_mode`: without a value it returns to the automatic choice.
    """
    chosen = _PROFILES.get(profile, PRINT_OPTIONS) if profile is not None else PRINT_OPTIONS
    PRINT_OPTIONS.precision = chosen.precision if precision is None else precision
    PRINT_OPTIONS.threshold = chosen.threshold if threshold is None else threshold
    PRINT_OPTIONS.edgeitems = chosen.edgeitems if edgeitems is None else edgeitems
    PRINT_OPTIONS.linewidth = chosen.linewidth if linewidth is None else linewidth
    PRINT_OPTIONS.sci_mode = sci_mode


def needs_summary(numel: int) -> bool:
    """Whether a tensor of `numel` elements is printed as its corners only."""
    return numel > PRINT_OPTIONS.threshold


def edge_indices(size: int, edgeitems: int) -> list[int] | None:
    """The indices of a dimension of `size` that a summary prints. None means all of them."""
    if size <= 2 * edgeitems:
        return None
    return [*range(edgeitems), *range(size - edgeitems, size)]


def format_tensor(
    values: Array,
    *,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    requires_grad: bool,
    grad_fn: str | None,
    is_parameter: bool = False,
    default_dtype: str = "float32",
    summarized: bool = False,
    tangent: str | None = None,
    prefix: str = PREFIX,
    facts: Sequence[str] = (),
) -> str:
    """Format a tensor as PyTorch does (torch.Tensor.__repr__, torch.nn.Parameter.__repr__).

    `values` holds the elements, with bfloat16 as float32. With `summarized`, it holds only the corners that
    `edge_indices` selects in every dimension of `shape`. `dtype` and `default_dtype` are PyTorch's names without
    "torch.". `grad_fn` is the node's name. `tangent` is the text of the tangent. `prefix` is the text before the
    elements. `facts` are texts that stand in place of size and dtype.
    """
    values, summarized = _shown(values, shape, summarized)
    empty = math.prod(shape) == 0
    if empty:
        body = "[]"
    elif summarized and len(shape) > 0 and PRINT_OPTIONS.edgeitems == 0:
        body = "[...]"
    else:
        cells, width = _cells(values, dtype)
        grid = np.array(cells, dtype=object).reshape(values.shape)
        body = _nested(grid, shape, width, len(prefix), summarized)

    suffixes = [] if device == "cpu" else [f"device='{device}'"]
    if facts:
        suffixes.extend(facts)
    else:
        if len(shape) != 1 if empty else PRINT_OPTIONS.edgeitems == 0:
            suffixes.append(f"size={shape}")
        if dtype not in _implied_dtypes(default_dtype, empty=empty):
            suffixes.append(f"dtype=torch.{dtype}")
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    return ("Parameter containing:\n" if is_parameter else "") + _with_suffixes(prefix + body, suffixes)


def format_html(
    values: Array,
    *,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    requires_grad: bool,
    grad_fn: str | None,
    summarized: bool,
    is_parameter: bool = False,
) -> str:
    """Format a tensor as HTML for a notebook: a summary line, then a table.

    Empty tensors, and tensors of three dimensions or more, show the text of `format_tensor` instead. The arguments
    equal those of `format_tensor`. All text is escaped. The page sets the colours, light or dark.
    """
    kind = "Parameter" if is_parameter else "Tensor"
    role = grad_fn if grad_fn is not None else "leaf, requires grad" if requires_grad else "leaf"
    size = " × ".join(map(str, shape)) if shape else "scalar"
    facts = " · ".join(html.escape(fact) for fact in (size, dtype, device, role))
    head = f'<div style="margin-bottom:4px"><b>{kind}</b> <span style="opacity:.7">{facts}</span></div>'
    if len(shape) <= 2 and math.prod(shape) > 0:
        body = _table(values, dtype, shape, summarized)
    else:
        text = format_tensor(
            values, dtype=dtype, shape=shape, device=device, requires_grad=False, grad_fn=None, summarized=summarized
        )
        body = f'<pre style="margin:0">{html.escape(text)}</pre>'
    return f'<div style="max-width:100%;overflow-x:auto">{head}{body}</div>'


def _shown(values: Array, shape: tuple[int, ...], summarized: bool) -> tuple[Array, bool]:
    """The elements to print, and whether they are a summary. A full array above the threshold is cut."""
    if summarized or not needs_summary(math.prod(shape)):
        return values, summarized
    for axis, size in enumerate(shape):
        indices = edge_indices(size, PRINT_OPTIONS.edgeitems)
        if indices is not None:
            values = np.take(values, indices, axis)
    return values, True


def _split(count: int, size: int, summarized: bool) -> int | None:
    """The position of "..." among the `count` printed entries of a dimension of `size`, or None."""
    edge = PRINT_OPTIONS.edgeitems
    if not summarized or size <= 2 * edge:
        return None
    if count != 2 * edge:
        raise ValueError(f"a summary shows {2 * edge} entries of a dimension of size {size}, but was given {count}")
    return edge


def _cells(values: Array, dtype: str) -> tuple[list[str], int]:
    """All elements as text of equal width, in row-major order, and the width used for line breaks."""
    if dtype.startswith("complex"):
        flat = np.asarray(values).astype(np.complex128).ravel()
        real, real_width = _float_cells(flat.real)
        imag, imag_width = _float_cells(flat.imag)
        return [_joined(a, b) for a, b in zip(real, imag, strict=True)], real_width + imag_width + 1
    if dtype.startswith(("float", "bfloat")):
        return _float_cells(np.asarray(values).astype(np.float64).ravel())
    texts = [str(value) for value in np.asarray(values).ravel().tolist()]
    width = max(map(len, texts), default=1)
    return [text.rjust(width) for text in texts], width


def _joined(real: str, imag: str) -> str:
    imag = imag.lstrip()
    return real + (imag if imag.startswith("-") else "+" + imag) + "j"


def _float_cells(values: npt.NDArray[np.float64]) -> tuple[list[str], int]:
    """Format floats in one common notation.

    Only finite nonzero values determine the notation and the width. Other values may be wider.
    """
    finite = np.isfinite(values) & (values != 0)
    write = _notation(np.abs(values[finite]))
    texts = [write(value) for value in values.tolist()]
    width = max((len(text) for text, is_finite in zip(texts, finite.tolist(), strict=True) if is_finite), default=1)
    return [text.rjust(width) for text in texts], width


def _notation(magnitudes: npt.NDArray[np.float64]) -> Callable[[float], str]:
    if magnitudes.size == 0:
        return _whole
    least, most = float(magnitudes.min()), float(magnitudes.max())
    whole = bool(np.all(magnitudes == np.ceil(magnitudes)))
    scientific = PRINT_OPTIONS.sci_mode
    if scientific is None:
        scientific = most / least > 1000 or most > 1e8 or (not whole and least < 1e-4)
    if whole and not scientific:
        return _whole
    return f"{{:.{PRINT_OPTIONS.precision}{'e' if scientific else 'f'}}}".format


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else str(value)


def _nested(cells: npt.NDArray[np.object_], shape: tuple[int, ...], width: int, indent: int, summarized: bool) -> str:
    if not shape:
        return str(cells[()])
    if len(shape) == 1:
        return _row(cells.tolist(), shape[0], width, indent, summarized)
    parts = [_nested(part, shape[1:], width, indent + 1, summarized) for part in cells]
    gap = _split(len(parts), shape[0], summarized)
    if gap is not None:
        parts.insert(gap, "...")
    between = "," + "\n" * (len(shape) - 1) + " " * (indent + 1)
    return "[" + between.join(parts) + "]"


def _row(cells: list[str], size: int, width: int, indent: int, summarized: bool) -> str:
    """Format the innermost dimension, with line breaks. The "..." of a summary counts as an element of its line."""
    gap = _split(len(cells), size, summarized)
    if gap is not None:
        cells.insert(gap, " ...")
    per_line = max(1, (PRINT_OPTIONS.linewidth - indent) // (width + 2))
    lines = [", ".join(cells[start : start + per_line]) for start in range(0, len(cells), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _implied_dtypes(default_dtype: str, *, empty: bool) -> tuple[str, ...]:
    """The dtypes that are not printed. For an empty tensor only the default dtype is implied."""
    if empty:
        return (default_dtype,)
    return default_dtype, "complex128" if default_dtype == "float64" else "complex64", "int64", "bool"


def _with_suffixes(text: str, suffixes: Iterable[str]) -> str:
    """Append the suffixes and the closing bracket. A suffix that does not fit starts a new line."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > PRINT_OPTIONS.linewidth:
            text += ",\n" + " " * len(PREFIX) + suffix
            column = len(PREFIX) + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _table(values: Array, dtype: str, shape: tuple[int, ...], summarized: bool) -> str:
    """Format a tensor of at most two dimensions as a table. Long dimensions omit their middle."""
    rows, columns = (1, 1, *shape)[-2:]
    values, summarized = _shown(values, shape, summarized)
    grid = np.atleast_2d(values)
    row_numbers, grid = _thinned(grid, 0, rows, _TABLE_ROWS, summarized)
    column_numbers, grid = _thinned(grid, 1, columns, _TABLE_COLUMNS, summarized)
    cells, _ = _cells(grid, dtype)
    texts = iter(cells)

    faint = 'style="opacity:.5;font-weight:normal;text-align:right;padding:1px 8px"'
    value = 'style="text-align:right;padding:1px 8px;white-space:nowrap"'
    lines = []
    if len(shape) > 0:
        corner = f"<th {faint}></th>" if len(shape) == 2 else ""
        lines.append("<tr>" + corner + "".join(f"<th {faint}>{_number(j)}</th>" for j in column_numbers) + "</tr>")
    for i in row_numbers:
        label = f"<th {faint}>{_number(i)}</th>" if len(shape) == 2 else ""
        entries = ("…" if i is None or j is None else html.escape(next(texts).strip()) for j in column_numbers)
        lines.append("<tr>" + label + "".join(f"<td {value}>{entry}</td>" for entry in entries) + "</tr>")
    style = "border-collapse:collapse;margin:0;font-family:monospace;font-variant-numeric:tabular-nums"
    return f'<table style="{style}">{"".join(lines)}</table>'


def _thinned(grid: Array, axis: int, size: int, most: int, summarized: bool) -> tuple[list[int | None], Array]:
    """The indices to show along an axis, with None for the gap, and the grid cut to them.

    The grid of a summary is already cut.
    """
    half = PRINT_OPTIONS.edgeitems
    cut = summarized and size > 2 * half
    if not cut:
        half = max(half, most // 2)
        if size <= 2 * half or PRINT_OPTIONS.threshold == math.inf:
            return list(range(size)), grid
        grid = np.take(grid, [*range(half), *range(size - half, size)], axis)
    return [*range(half), None, *range(size - half, size)], grid


def _number(index: int | None) -> str:
    return "" if index is None else str(index)


def bytes_text(count: int) -> str:
    """A number of bytes as readable text: 512 B, 1.5 KiB."""
    if count < 1024:
        return f"{count} B"
    power = min(4, int(math.log(count, 1024) + 1e-9))
    return f"{count / 1024**power:.1f}".removesuffix(".0") + (" KiB", " MiB", " GiB", " TiB")[power - 1]
