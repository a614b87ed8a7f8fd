"""Summary: tabulates a session's tensors with their bytes, their graph, and the line that made each.

Tensors with a graph are traced through the server's command numbers. Lines of other tensors are recorded only after
`Session.remember_lines()`, because recording takes time.
"""

from __future__ import annotations

import gc
import html
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import describe_call_site, find_call_site
from gradwire._base.printing import bytes_text
from gradwire._proxy.handle import Handle
from gradwire._session.nodes import fetch_nodes

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_MOST_ROWS = 30
_HEADINGS = ("count", "shape", "dtype", "bytes", "what", "made at")


class TrackedIds:
    """An iterator of new tensor ids that stores the call site of each. Keeps the newest `most` call sites."""

    def __init__(self, numbers: Iterator[int], most: int) -> None:
        self._numbers = numbers
        self._most = most
        self.call_sites: OrderedDict[int, tuple[CodeType, int]] = OrderedDict()

    def __iter__(self) -> TrackedIds:
        return self

    def __next__(self) -> int:
        number = next(self._numbers)
        self.call_sites[number] = find_call_site()
        if len(self.call_sites) > self._most:
            self.call_sites.popitem(last=False)
        return number


@dataclass(frozen=True)
class SummaryRow:
    """Tensors of equal shape, dtype and kind, made at the same line."""

    count: int
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    what: str
    made_at: str


@dataclass(frozen=True, repr=False)
class Summary:
    """The result of Session.summary(). `rows` are the tensors that this program holds, the largest first.

    `tensors` and `bytes` are the server's counts for the session. They include gradients and values saved for backward.
    """

    tensors: int
    bytes: int
    nodes: int
    saved_bytes: int
    rows: tuple[SummaryRow, ...]

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                str(row.count),
                "×".join(map(str, row.shape)) or "scalar",
                row.dtype,
                bytes_text(row.bytes),
                row.what,
                row.made_at,
            )
            for row in self.rows[:_MOST_ROWS]
        ]

    @property
    def _head(self) -> str:
        return (
            f"{self.tensors} tensors, {bytes_text(self.bytes)} on the server; "
            f"graph: {self.nodes} nodes that save {bytes_text(self.saved_bytes)}"
        )

    def __repr__(self) -> str:
        cells = [_HEADINGS, *self._cells()]
        widths = [max(len(row[number]) for row in cells) for number in range(len(_HEADINGS))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        left = len(self.rows) - _MOST_ROWS
        return "\n".join([self._head, *lines, *([f"and {left} rows more"] if left > 0 else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th style='text-align:left;padding:1px 8px'>{text}</th>" for text in _HEADINGS)
        rows = "".join(
            "<tr>"
            + "".join(f"<td style='text-align:left;padding:1px 8px'>{html.escape(text)}</td>" for text in row)
            + "</tr>"
            for row in self._cells()
        )
        return f"<div>{html.escape(self._head)}<table><tr>{head}</tr>{rows}</table></div>"


def summarize(session: SessionProtocol) -> Summary:
    """See Session.summary."""
    described = session.describe()
    held = [each for each in gc.get_objects() if issubclass(type(each), Handle) and _is_of(each, session)]
    with_graph = [each for each in held if each._spec.grad_fn]
    roots, nodes = fetch_nodes(session, with_graph) if with_graph else ([], [])
    by_id = {node.id: node for node in nodes}
    places: dict[int, str] = {}
    for each, root in zip(with_graph, roots, strict=True):
        node = by_id.get(root)
        where = session.made_at(node.command) if node is not None else None
        if where is not None:
            places[each._id] = _shortened(where)
    tracked = session.ids.call_sites if isinstance(session.ids, TrackedIds) else {}
    groups: dict[tuple[Any, ...], int] = {}
    for each in held:
        spec = each._spec
        where = places.get(each._id) or ""
        if not where and each._id in tracked:
            where = _shortened(describe_call_site(*tracked[each._id]))
        key = (tuple(spec.shape), spec.dtype.name, spec.dtype.itemsize, _what(each), where)
        groups[key] = groups.get(key, 0) + 1
    rows = []
    for (shape, dtype, itemsize, what, where), count in groups.items():
        size = itemsize
        for side in shape:
            size *= side
        rows.append(SummaryRow(count, shape, dtype, size * count, what, where))
    rows.sort(key=lambda row: (-row.bytes, row.what))
    return Summary(
        tensors=described.tensor_count,
        bytes=described.bytes,
        nodes=len(nodes),
        saved_bytes=sum(node.saved_bytes for node in nodes),
        rows=tuple(rows),
    )


def track_ids(session: SessionProtocol, most: int) -> None:
    """See Session.remember_lines."""
    if not isinstance(session.ids, TrackedIds):
        session.ids = TrackedIds(session.ids, most)


def _is_of(handle: Handle, session: SessionProtocol) -> bool:
    return getattr(handle, "_session", None) is session and getattr(handle, "_spec", None) is not None


def _what(handle: Any) -> str:
    spec = handle._spec
    name = getattr(handle, "name", None)
    kind = "parameter" if handle._is_parameter() else "leaf, requires grad" if spec.requires_grad else "no grad"
    if spec.grad_fn:
        kind = spec.grad_fn
    if spec.is_view:
        kind += ", a view"
    return f"{name} ({kind})" if isinstance(name, str) else kind


def _shortened(where: str) -> str:
    """A call site in one line: file name, line number and source text."""
    first, _, text = where.partition("\n")
    file, _, rest = first.removeprefix('File "').partition('", line ')
    line = rest.partition(",")[0]
    return f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line} {text.strip()}".rstrip()
