"""The list of a profile's events: sums by name, a table, and files for trace viewers and flame graphs."""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

from gradwire.profiler._events import FunctionEvent, FunctionEventAvg, format_time, nest

_SORTABLE = (
    "cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total", "self_device_time_total",
    "cuda_time", "cuda_time_total", "self_cuda_time_total", "cpu_memory_usage", "self_cpu_memory_usage",
    "device_memory_usage", "self_device_memory_usage", "count",
)  # fmt: skip


class EventList(list[Any]):
    """Events or their sums (torch.autograd.profiler_util.EventList)."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args)
        self._options = options

    def _populate_cpu_children(self) -> None:
        nest(self)

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, each counted once."""
        return float(sum(each.self_cpu_time_total for each in self))

    def total_average(self) -> FunctionEventAvg:
        """The sums over all events."""
        total = FunctionEventAvg()
        for each in self:
            total.count += each.count
            total.cpu_time_total += each.cpu_time_total
            total.self_cpu_time_total += each.self_cpu_time_total
        total.key = "Total"
        return total

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The sums by name, and if wanted by shapes of the arguments, by lines of the program or by overload."""
        found: dict[Any, FunctionEventAvg] = {}
        for each in self:
            key = (
                each.key,
                each.is_user_annotation,
                str(each.input_shapes) if group_by_input_shapes else "",
                tuple((each.stack or ())[:group_by_stack_n]),
                each.overload_name if group_by_overload_name else "",
            )
            found.setdefault(key, FunctionEventAvg()).add(each)
        for each in found.values():
            each.stack = (each.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                each.input_shapes = None
        return EventList(found.values(), **self._options)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """A table of the events. `sort_by` names an attribute; the largest is first.

        Raises ValueError for an unknown attribute.
        """
        rows = [each for each in self if not (top_level_events_only and each.cpu_parent is not None)]
        if sort_by is not None:
            if sort_by not in _SORTABLE:
                raise ValueError(f"a table is sorted by one of {', '.join(_SORTABLE)}, not by {sort_by!r}")
            rows.sort(key=lambda each: getattr(each, sort_by), reverse=True)
        widths = {"name": max_name_column_width, "shapes": max_shapes_column_width, "source": max_src_column_width}
        total = self.self_cpu_time_total
        cells = _cells(rows if row_limit < 0 else rows[:row_limit], total, widths, time_unit)
        return _drawn(cells, header, f"Self CPU time total: {_time(total, time_unit)}")

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events for a viewer of traces (chrome://tracing, Perfetto); compressed for a name with .gz."""
        made = [_trace_event(each) for each in self if isinstance(each, FunctionEvent)]
        text = json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": made})
        with gzip.open(path, "wt") if os.fspath(path).endswith(".gz") else open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def supported_export_stacks_metrics(self) -> list[str]:
        """The metrics of `export_stacks`."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path: str | os.PathLike[str], metric: str) -> None:
        """Write each event's lines of the program and its time, for a flame graph. Raises ValueError."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        translation = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for each in self:
                value = int(getattr(each, metric, 0))
                if each.stack and value > 0:
                    frames = [frame.translate(translation) for frame in reversed(each.stack)]
                    file.write(f"{';'.join(frames)} {value}\n")


def _time(time_us: float, unit: str | None) -> str:
    if unit is None:
        return format_time(time_us)
    return f"{time_us / {'s': 1e6, 'ms': 1e3, 'us': 1.0}[unit]:.3f}{unit}"


def _short(text: str, width: int) -> str:
    return text if width < 4 or len(text) <= width else f"{text[: width - 3]}..."


def _cells(rows: list[Any], total: float, widths: dict[str, int], unit: str | None) -> list[list[str]]:
    """The table's head and rows, without the columns that no row has."""
    head = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
    shapes = any(each.input_shapes for each in rows)
    stacks = any(each.stack for each in rows)
    cells = [[*head, *(["Input Shapes"] if shapes else []), *(["Source Location"] if stacks else [])]]
    for each in rows:
        line = [
            _short(each.key, widths["name"]),
            _part(each.self_cpu_time_total, total),
            _time(each.self_cpu_time_total, unit),
            _part(each.cpu_time_total, total),
            _time(each.cpu_time_total, unit),
            _time(each.cpu_time, unit),
            str(each.count),
        ]
        if shapes:
            line.append(_short(str(each.input_shapes or []), widths["shapes"]))
        if stacks:
            line.append(_short(each.stack[0] if each.stack else "", widths["source"]))
        cells.append(line)
    return cells


def _part(time_us: float, total: float) -> str:
    return f"{100.0 * time_us / total:.2f}%" if total else "0.00%"


def _drawn(cells: list[list[str]], header: str | None, below: str) -> str:
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    rule = "  ".join("-" * width for width in widths)
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in cells]
    above = ["-" * len(rule), header] if header else []
    return "\n".join([*above, rule, lines[0], rule, *lines[1:], rule, below, ""])


def _trace_event(event: FunctionEvent) -> dict[str, Any]:
    """An event of the trace format, complete (phase X)."""
    args: dict[str, Any] = {}
    if event.input_shapes:
        args["Input Dims"] = event.input_shapes
    if event.stack:
        args["Call stack"] = event.stack
    return {
        "ph": "X",
        "cat": "user_annotation" if event.is_user_annotation else "cpu_op",
        "name": event.name,
        "pid": os.getpid(),
        "tid": event.thread,
        "ts": event.time_range.start,
        "dur": event.time_range.elapsed_us(),
        "args": args,
    }
