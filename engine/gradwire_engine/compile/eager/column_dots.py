"""Sums over the rows of a matrix in machine code: the gradient of a layer normalization's weight.

A row of the loop is a part of the matrix's rows. It adds their g * (x - centre) * scale, in the rows' order. Parts
depend on the shape alone, so results do not depend on the number of threads. `table` holds the columns, then the
operands: the numbers of rows and of rows of a part, g, x, a centre and a scale per row, and the sums of each part.
"""

from __future__ import annotations

from string import Template

NAMES = ("layer_norm_dots",)
#: Operations per element.
OPERATIONS = 4
_TYPES = {"f4": ("float", 4), "f8": ("double", 8)}
_OPERANDS = ("numbers", "g", "x", "centre", "scale", "made")
_AT_ONCE = 4  # rows, so that a sum is loaded and stored once for all of them

_MODULE = """\
define internal void @body(i64 %begin, i64 %end, i64 %n, i64 %rows, i64 %step, ptr noalias %g, ptr noalias %x,
                           ptr noalias %centre, ptr noalias %scale, ptr noalias %made) #0 {
start:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %part, label %done
part:
  %i = phi i64 [ %begin, %start ], [ %i.next, %part.end ]
  %first = mul nsw i64 %i, %step
  %after = add nsw i64 %first, %step
  %short = icmp slt i64 %rows, %after
  %last = select i1 %short, i64 %rows, i64 %after
  %sums.at = mul nsw i64 %i, %n
  %sums = getelementptr $type, ptr %made, i64 %sums.at
  %size = mul i64 %n, $bytes
  call void @llvm.memset.p0.i64(ptr %sums, i8 0, i64 %size, i1 false)
  %several.last = sub nsw i64 %last, $others
  br label %several.test
$several$one
part.end:
  %i.next = add nsw i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %part, label %done
done:
  ret void
}
define void @entry(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {
  %n = load i64, ptr %table
$pointers  %rows = load i64, ptr %numbers
  %step.at = getelementptr i64, ptr %numbers, i64 1
  %step = load i64, ptr %step.at
  call void @body(i64 %begin, i64 %end, i64 %n, i64 %rows, i64 %step, ptr %g, ptr %x, ptr %centre,
                  ptr %scale, ptr %made)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
attributes #0 = { nounwind }
"""
# Adds $count rows at a time while there are as many.
_ROWS = """\
$name.test:
  %$name = phi i64 [ $from ], [ %$name.next, %$name.end ]
  %$name.is = icmp slt i64 %$name, $until
  br i1 %$name.is, label %$name.begin, label %$then
$name.begin:
$begins  br label %$name.loop
$name.loop:
  %$name.j = phi i64 [ 0, %$name.begin ], [ %$name.j.next, %$name.loop ]
  %$name.to = getelementptr inbounds $type, ptr %sums, i64 %$name.j
  %$name.sum.0 = load $type, ptr %$name.to
$adds  store $type %$name.sum.$count, ptr %$name.to
  %$name.j.next = add nuw nsw i64 %$name.j, 1
  %$name.more = icmp slt i64 %$name.j.next, %n
  br i1 %$name.more, label %$name.loop, label %$name.end
$name.end:
  %$name.next = add nsw i64 %$name, $count
  br label %$name.test
"""
_BEGIN = """\
  %$name.row.$k = add nsw i64 %$name, $k
  %$name.m.at.$k = getelementptr inbounds $type, ptr %centre, i64 %$name.row.$k
  %$name.m.$k = load $type, ptr %$name.m.at.$k
  %$name.s.at.$k = getelementptr inbounds $type, ptr %scale, i64 %$name.row.$k
  %$name.s.$k = load $type, ptr %$name.s.at.$k
  %$name.base.$k = mul nsw i64 %$name.row.$k, %n
"""
_ADD = """\
  %$name.at.$k = add nsw i64 %$name.base.$k, %$name.j
  %$name.g.at.$k = getelementptr inbounds $type, ptr %g, i64 %$name.at.$k
  %$name.g.$k = load $type, ptr %$name.g.at.$k
  %$name.x.at.$k = getelementptr inbounds $type, ptr %x, i64 %$name.at.$k
  %$name.x.$k = load $type, ptr %$name.x.at.$k
  %$name.d.$k = fsub $type %$name.x.$k, %$name.m.$k
  %$name.n.$k = fmul $type %$name.d.$k, %$name.s.$k
  %$name.t.$k = fmul $type %$name.g.$k, %$name.n.$k
  %$name.sum.$next = fadd $type %$name.sum.$k, %$name.t.$k
"""


def source_of(name: str, dtype: str) -> str | None:
    """The module of a kernel for a dtype, "f4" or "f8"; None if no kernel has this name."""
    if name not in NAMES:
        return None
    kind, width = _TYPES[dtype]
    pointers = "".join(
        f"  %{each}.at = getelementptr i64, ptr %table, i64 {2 * place + 1}\n  %{each} = load ptr, ptr %{each}.at\n"
        for place, each in enumerate(_OPERANDS)
    )
    made = Template(_MODULE).safe_substitute(
        pointers=pointers, bytes=width, others=_AT_ONCE - 1,
        several=_rows("several", _AT_ONCE, "%first, %part", "%several.last", "one.test"),
        one=_rows("one", 1, "%several, %several.test", "%last", "part.end"),
    )  # fmt: skip
    return Template(made).substitute(type=kind)


def _rows(name: str, count: int, begin: str, until: str, then: str) -> str:
    """The loop that adds `count` rows at a time."""
    names = {"name": name, "count": count, "from": begin, "until": until, "then": then}
    begins = "".join(Template(_BEGIN).safe_substitute(name=name, k=place) for place in range(count))
    adds = "".join(Template(_ADD).safe_substitute(name=name, k=place, next=place + 1) for place in range(count))
    return Template(_ROWS).safe_substitute(names, begins=begins, adds=adds)
