"""Max pooling over two or three dimensions in machine code: maxima, sums of gradients at them, elements at them.

A row is a plane: the pooled dimensions of one channel. `table` holds the number of a plane's windows and the operands.
The first operand is the geometry: a list of numbers, then each kernel position's offset along the first dimension,
along the next, and so on. A window's elements outside of the plane are padding, and are skipped.

The order of comparisons and of sums is PyTorch's: windows in row-major order, and in a window its elements. A nan is
the maximum, the last one if there are several.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

#: The numbers that the geometry begins with, by the number of pooled dimensions: windows, sizes, strides, padding.
GEOMETRY = {
    2: ("taps", "rows", "columns", "height", "width", "down", "right", "above", "left", "size", "cells"),
    3: (
        "taps", "slices", "rows", "columns", "depth", "height", "width", "forth", "down", "right", "front", "above",
        "left", "size", "cells",
    ),
}  # fmt: skip
#: Operations per window, about.
OPERATIONS = 16
_TYPES = {"f4": ("float", 4), "f8": ("double", 8)}

_SCATTER = """\
  %bytes = mul i64 %size, $bytes
  call void @llvm.memset.p0.i64(ptr %a3.plane, i8 0, i64 %bytes, i1 false)
"""
# Where element $index of a window lies; $outside if it is padding.
_OFFSET = """\
  %d$axis.place = add i64 %$index, %taps.$number
  %d$axis.at = getelementptr inbounds i64, ptr %offsets, i64 %d$axis.place
  %d$axis = load i64, ptr %d$axis.at
  %$axis = add i64 %$begin, %d$axis
  %in.$axis = icmp ult i64 %$axis, %$size
"""
_OFFSETS = {
    2: (("y", "top", "height"), ("x", "begins", "width")),
    3: (("z", "fore", "depth"), ("y", "top", "height"), ("x", "begins", "width")),
}
_INSIDE = {
    2: """\
  %in = and i1 %in.y, %in.x
  br i1 %in, label %inside, label %$outside
inside:
  %line = mul i64 %y, %width
  %place = add i64 %line, %x
""",
    3: """\
  %in.plane = and i1 %in.y, %in.x
  %in = and i1 %in.z, %in.plane
  br i1 %in, label %inside, label %$outside
inside:
  %layer = mul i64 %z, %height
  %layer.line = add i64 %layer, %y
  %line = mul i64 %layer.line, %width
  %place = add i64 %line, %x
""",
}
# A position that no window has is skipped, so that nothing outside of the plane is read or written.
_POSITION = """\
  %which.at = getelementptr inbounds i8, ptr %a2.plane, i64 %cell
  %which.byte = load i8, ptr %which.at, align 1
  %which = zext i8 %which.byte to i64
  %known = icmp ult i64 %which, %taps
  br i1 %known, label %look, label %$outside
look:
"""
_ADD = """\
  %grad.at = getelementptr inbounds $type, ptr %a1.plane, i64 %cell
  %grad = load $type, ptr %grad.at
  %sum.at = getelementptr inbounds $type, ptr %a3.plane, i64 %place
  %before = load $type, ptr %sum.at
  %after = fadd $type %before, %grad
  store $type %after, ptr %sum.at
  br label %next
"""
_PICK = """\
  %given.at = getelementptr inbounds $type, ptr %a1.plane, i64 %place
  %given = load $type, ptr %given.at
  br label %found
found:
  %picked = phi $type [ %given, %inside ], [ 0.0, %cell.start ], [ 0.0, %look ]
  %made.at = getelementptr inbounds $type, ptr %a3.plane, i64 %cell
  store $type %picked, ptr %made.at
  br label %next
"""
_MAXIMUM = """\
  br label %tap
tap:
  %number = phi i64 [ 0, %cell.start ], [ %number.next, %tap.end ]
  %best = phi $type [ $least, %cell.start ], [ %best.next, %tap.end ]
  %which = phi i64 [ 0, %cell.start ], [ %which.next, %tap.end ]
  %any = phi i1 [ false, %cell.start ], [ %any.next, %tap.end ]
"""
_COMPARE = """\
  %given.at = getelementptr inbounds $type, ptr %a1.plane, i64 %place
  %given = load $type, ptr %given.at
  %above.best = fcmp ogt $type %given, %best
  %nan = fcmp uno $type %given, %given
  %larger = or i1 %above.best, %nan
  %first = xor i1 %any, true
  %better = or i1 %larger, %first
  %best.in = select i1 %better, $type %given, $type %best
  %which.in = select i1 %better, i64 %number, i64 %which
  br label %tap.end
tap.end:
  %best.next = phi $type [ %best.in, %inside ], [ %best, %tap ]
  %which.next = phi i64 [ %which.in, %inside ], [ %which, %tap ]
  %any.next = phi i1 [ true, %inside ], [ %any, %tap ]
  %number.next = add nuw nsw i64 %number, 1
  %more.taps = icmp slt i64 %number.next, %taps
  br i1 %more.taps, label %tap, label %taken
taken:
  %value.at = getelementptr inbounds $type, ptr %a2.plane, i64 %cell
  store $type %best.next, ptr %value.at
  %which.byte = trunc i64 %which.next to i8
  %which.at = getelementptr inbounds i8, ptr %a3.plane, i64 %cell
  store i8 %which.byte, ptr %which.at, align 1
  br label %next
"""
_MODULE = """\
define void @entry(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {
start:
$pointers$numbers  %offsets = getelementptr inbounds i64, ptr %a0, i64 $header
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %plane, label %done
plane:
  %i = phi i64 [ %begin, %start ], [ %i.next, %plane.end ]
$planes$prepare$slices
cell.start:
  %ox = phi i64 [ 0, %row ], [ %ox.next, %next ]
  %cell = add i64 %row.cell, %ox
  %ox.right = mul i64 %ox, %right
  %begins = sub i64 %ox.right, %left
$window
next:
  %ox.next = add nuw nsw i64 %ox, 1
  %more.cells = icmp slt i64 %ox.next, %columns
  br i1 %more.cells, label %cell.start, label %row.end
$ends
plane.end:
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %plane, label %done
done:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
attributes #0 = { nounwind }
"""
# The loops over a plane's rows of windows: from the plane's begin to a row's first window, and their ends.
_SLICES = {
    2: """\
  br label %row
row:
  %oy = phi i64 [ 0, %plane ], [ %oy.next, %row.end ]
  %oy.down = mul i64 %oy, %down
  %top = sub i64 %oy.down, %above
  %row.cell = mul i64 %oy, %columns
  br label %cell.start
""",
    3: """\
  br label %slice
slice:
  %oz = phi i64 [ 0, %plane ], [ %oz.next, %slice.end ]
  %oz.forth = mul i64 %oz, %forth
  %fore = sub i64 %oz.forth, %front
  %slice.row = mul i64 %oz, %rows
  br label %row
row:
  %oy = phi i64 [ 0, %slice ], [ %oy.next, %row.end ]
  %oy.down = mul i64 %oy, %down
  %top = sub i64 %oy.down, %above
  %row.number = add i64 %slice.row, %oy
  %row.cell = mul i64 %row.number, %columns
  br label %cell.start
""",
}
_ROW_END = """\
row.end:
  %oy.next = add nuw nsw i64 %oy, 1
  %more.rows = icmp slt i64 %oy.next, %rows
  br i1 %more.rows, label %row, label %$after
"""
_SLICE_END = """\
slice.end:
  %oz.next = add nuw nsw i64 %oz, 1
  %more.slices = icmp slt i64 %oz.next, %slices
  br i1 %more.slices, label %slice, label %plane.end
"""
_ENDS = {
    2: Template(_ROW_END).substitute(after="plane.end"),
    3: Template(_ROW_END).substitute(after="slice.end") + _SLICE_END,
}


@dataclass(frozen=True)
class _Kernel:
    """What is done before a plane; the name of what is done per window.

    index: holds the kernel position. outside: the block that follows where it is padding. operands: those behind the
    geometry, as their values per plane and whether they are bytes.
    """

    prepare: str
    window: str
    index: str
    outside: str
    operands: tuple[tuple[str, bool], ...]


_KERNELS = {
    "max_pool": _Kernel("", "maximum", "number", "tap.end", (("size", False), ("cells", False), ("cells", True))),
    "max_unpool": _Kernel(_SCATTER, "add", "which", "next", (("cells", False), ("cells", True), ("size", False))),
    "max_pick": _Kernel("", "pick", "which", "found", (("size", False), ("cells", True), ("cells", False))),
}
#: What is done per window, before and after its place is known.
_WINDOWS = {"maximum": (_MAXIMUM, _COMPARE), "add": (_POSITION, _ADD), "pick": (_POSITION, _PICK)}
_BY_NAME = {f"{name}{dims}d": (kernel, dims) for name, kernel in _KERNELS.items() for dims in GEOMETRY}
NAMES = tuple(_BY_NAME)


def source_of(name: str, dtype: str) -> str | None:
    """The module of a kernel for a dtype, "f4" or "f8"; None if no kernel has this name."""
    if name not in _BY_NAME:
        return None
    kernel, dims = _BY_NAME[name]
    kind, width = _TYPES[dtype]
    pointers = "".join(
        f"  %p{place} = getelementptr i64, ptr %table, i64 {2 * place + 1}\n  %a{place} = load ptr, ptr %p{place}\n"
        for place in range(1 + len(kernel.operands))
    )
    numbers = "".join(
        f"  %{each}.at = getelementptr i64, ptr %a0, i64 {place}\n  %{each} = load i64, ptr %{each}.at\n"
        for place, each in enumerate(GEOMETRY[dims])
    ) + "".join(f"  %taps.{place} = mul i64 %taps, {place}\n" for place in range(dims))
    planes = "".join(
        f"  %a{place}.base = mul i64 %i, %{count}\n"
        f"  %a{place}.plane = getelementptr {'i8' if bytes_ else kind}, ptr %a{place}, i64 %a{place}.base\n"
        for place, (count, bytes_) in enumerate(kernel.operands, 1)
    )
    made = Template(_MODULE).safe_substitute(
        pointers=pointers, numbers=numbers, header=len(GEOMETRY[dims]), planes=planes, prepare=kernel.prepare,
        slices=_SLICES[dims], window=_window(kernel, dims), ends=_ENDS[dims],
    )  # fmt: skip
    least = "0xFFF0000000000000"  # -inf
    return Template(made).substitute(type=kind, bytes=width, least=least, index=kernel.index, outside=kernel.outside)


def _window(kernel: _Kernel, dims: int) -> str:
    """What is done per window."""
    before, after = _WINDOWS[kernel.window]
    offsets = "".join(
        Template(_OFFSET).safe_substitute(axis=axis, begin=begin, size=size, number=number)
        for number, (axis, begin, size) in enumerate(_OFFSETS[dims])
    )
    return before + offsets + _INSIDE[dims] + after
