"""Events: what a profile recorded, each with a name and a range of time, and their sums by name.

Names and fields are those of torch.autograd.profiler_util. Times are microseconds. Times and memory of devices are
not measured, so they are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class Interval:
    """A range of time, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """Its length."""
        return self.end - self.start


def format_time(time_us: float) -> str:
    """A time in seconds, milliseconds or microseconds, with three digits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


class _Times:
    """What single events and sums have in common."""

    count: int
    cpu_time_total: float
    device_time_total = self_device_time_total = cuda_time_total = self_cuda_time_total = 0
    cpu_memory_usage = self_cpu_memory_usage = device_memory_usage = self_device_memory_usage = 0
    use_device: str | None = None
    is_legacy = is_remote = False
    node_id = 0
    flops: int | None = None

    @property
    def cpu_time(self) -> float:
        """Mean time of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Mean time of a device: 0."""
        return 0.0

    cuda_time = device_time
    cpu_time_str = property(lambda self: format_time(self.cpu_time))
    cpu_time_total_str = property(lambda self: format_time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: format_time(self.self_cpu_time_total))


class FunctionEvent(_Times):
    """An op, a node of a graph, another command, or a range that the program named."""

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Sequence[Any] | None = None,
        stack: Sequence[str] | None = None,
        scope: int = 0,
        use_device: str | None = None,
        is_async: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        is_user_annotation: bool = False,
        **others: Any,
    ) -> None:
        self.id = id
        self.node_id = node_id
        self.name = self.trace_name = self.key = name
        self.overload_name = overload_name or ""
        self.time_range = Interval(start_us, end_us)
        self.thread = thread
        self.fwd_thread = fwd_thread
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.kernels: list[Any] = []
        self.input_shapes = [] if input_shapes is None else list(input_shapes)
        self.stack = [] if stack is None else list(stack)
        self.scope = scope
        self.use_device = use_device
        self.is_async = is_async
        self.sequence_nr = sequence_nr
        self.is_user_annotation = is_user_annotation

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Note an event that is within this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Note the event that this one is within."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Its time, with that of the events within it."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """Its time without that of the events within it; 0 for an asynchronous one."""
        if self.is_async:
            return 0.0
        return self.cpu_time_total - sum(each.cpu_time_total for each in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} thread={self.thread} cpu_time={self.cpu_time_str} "
            f"cpu_start_us={self.time_range.start} cpu_end_us={self.time_range.end} "
            f"cpu_children={[each.id for each in self.cpu_children]} input_shapes={self.input_shapes}>"
        )


class FunctionEventAvg(_Times):
    """The sums of events with one key."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.input_shapes: list[Any] | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.overload_name = ""
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] | None = None
        self.is_async = self.is_user_annotation = False

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Add an event, or other sums with the same key."""
        if self.key is None:
            self.key, self.scope, self.overload_name = other.key, other.scope, other.overload_name
            self.input_shapes, self.stack = other.input_shapes, other.stack
            self.cpu_parent, self.cpu_children = other.cpu_parent, other.cpu_children
            self.is_async, self.is_user_annotation = other.is_async, other.is_user_annotation
        if not isinstance(other, (FunctionEvent, FunctionEventAvg)) or other.key != self.key:
            raise ValueError(f"these are the sums of {self.key!r}, not of {getattr(other, 'key', other)!r}")
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.count += other.count
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes}>"
        )


def nest(events: Iterable[FunctionEvent]) -> None:
    """Tell events of one thread which are within which: those whose range contains theirs."""
    threads: dict[int, list[FunctionEvent]] = {}
    for each in events:
        if not each.is_async:
            threads.setdefault(each.thread, []).append(each)
    for of_thread in threads.values():
        around: list[FunctionEvent] = []
        for each in sorted(of_thread, key=lambda one: (one.time_range.start, -one.time_range.end)):
            while around and (
                each.time_range.start >= around[-1].time_range.end or each.time_range.end > around[-1].time_range.end
            ):
                around.pop()
            if around:
                around[-1].append_cpu_child(each)
                each.set_cpu_parent(around[-1])
            around.append(each)
