"""Max pooling over three dimensions in machine code: maxima, sums of gradients at them, elements at them.

A row of the loop is a plane: the pooled dimensions of one channel. Two dimensions have a depth of one. `table` holds
the number of a plane's windows and the operands. The first operand is the geometry: numbers, then lists of a number
per kernel position. Where a whole row of windows lies inside the plane, one list of offsets finds all elements.
Other windows look where each element lies. Those outside of the plane are padding, and are skipped.

The order of comparisons and of sums is PyTorch's: windows in row-major order, and in a window its elements. A nan is
the maximum, the last one if there are several. Maxima of adjacent windows are taken together, by vectors: a branch
that depends on the values would be foretold wrongly for half of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradwire_engine.compile.eager.loop_code import Code

_AXES = ("z", "y", "x")
#: The numbers that the geometry begins with: kernel positions; then of each dimension the windows, the elements, the
#: stride, the padding, and the first window that lies inside and the one after the last; a plane's elements, windows.
GEOMETRY = (
    "taps", *(f"{what}.{axis}" for what in ("count", "size", "step", "pad", "first", "end") for axis in _AXES),
    "size", "cells",
)  # fmt: skip
#: The lists that follow: offsets of each kernel position along the dimensions, and in the flat plane.
LISTS = (*_AXES, "flat")
#: Operations per window, about.
OPERATIONS = 16
#: By the loop's name, the operands behind the geometry: their values per plane, and whether they are bytes.
_OPERANDS = {
    "max_pool": (("size", False), ("cells", False), ("cells", True)),
    "max_unpool": (("cells", False), ("cells", True), ("size", False)),
    "max_pick": (("size", False), ("cells", True), ("cells", False)),
}
NAMES = tuple(_OPERANDS)
_LANES = 8
_LEAST = "0xFFF0000000000000"  # -inf
_DECLARATIONS = [
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "declare i64 @llvm.smin.i64(i64, i64)",
]


@dataclass
class _Row:
    """A row of windows: the places of its first window along each dimension and in the flat plane, and its cell.

    The places may be negative, in the padding.
    """

    z: str
    y: str
    x: str
    flat: str
    cell: str


class _Pooling:
    """The statements of a loop."""

    def __init__(self, code: Code, name: str) -> None:
        self.code, self.name = code, name
        base = [code.get("ptr", code.at("%table", str(2 * place + 1), "i64")) for place in range(4)]
        self.base = base[1:]
        self.numbers = {
            each: code.get("i64", code.at(base[0], str(place), "i64")) for place, each in enumerate(GEOMETRY)
        }
        lists, self.lists = code.at(base[0], str(len(GEOMETRY)), "i64"), {}
        for place, each in enumerate(LISTS):
            begin = code.integer("mul", self.numbers["taps"], str(place))
            self.lists[each] = code.at(lists, begin, "i64")
        self.operands: list[str] = []
        self.many = {kind: f"<{_LANES} x {kind}>" for kind in (code.kind, "i32", "i8", "i1")}

    def plane(self, number: str) -> None:
        """All windows of a plane."""
        code, numbers = self.code, self.numbers
        self.operands = [
            code.at(base, code.integer("mul", number, numbers[count]), "i8" if is_bytes else "")
            for base, (count, is_bytes) in zip(self.base, _OPERANDS[self.name], strict=True)
        ]
        if self.name == "max_unpool":
            length = code.integer("mul", numbers["size"], str(code.bytes))
            code.lines.append(f"  call void @llvm.memset.p0.i64(ptr {self.operands[2]}, i8 0, i64 {length}, i1 false)")
        code.loop("0", numbers["count.z"], 1, lambda z: code.loop("0", numbers["count.y"], 1, lambda y: self.row(z, y)))

    def row(self, z: str, y: str) -> None:
        """A row of windows: those at its ends, which may reach outside, and those between them."""
        code, numbers = self.code, self.numbers
        cell = code.integer("add", code.integer("mul", z, numbers["count.y"]), y)
        top, line, left = (self.place(axis, at) for axis, at in zip(_AXES, (z, y, "0"), strict=True))
        row = _Row(top, line, left, self.flat(top, line, left), code.integer("mul", cell, numbers["count.x"]))
        inside = code.let(f"and i1 {self.is_inside('z', z)}, {self.is_inside('y', y)}")
        count = numbers["count.x"]
        begin, end = (
            code.let(f"select i1 {inside}, i64 {numbers[f'{bound}.x']}, i64 {count}") for bound in ("first", "end")
        )
        for first, after, checks in (("0", begin, True), (begin, end, False), (end, count, True)):
            self.windows(row, first, after, checks)

    def windows(self, row: _Row, first: str, end: str, checks: bool) -> None:
        """Windows of a row. checks: whether elements may lie outside."""
        if self.name == "max_pool":
            maxima = _Maxima(self, row, end, checks)
            self.code.loop(first, end, _LANES, maxima.several)
        else:
            one = self.add if self.name == "max_unpool" else self.pick
            self.code.loop(first, end, 1, lambda x: one(row, x, checks))

    def place(self, axis: str, window: str) -> str:
        """Where a window begins along a dimension."""
        begin = self.code.integer("mul", window, self.numbers[f"step.{axis}"])
        return self.code.integer("sub", begin, self.numbers[f"pad.{axis}"])

    def flat(self, z: str, y: str, x: str) -> str:
        """A place in the flat plane."""
        code, numbers = self.code, self.numbers
        line = code.integer("add", code.integer("mul", z, numbers["size.y"]), y)
        return code.integer("add", code.integer("mul", line, numbers["size.x"]), x)

    def is_inside(self, axis: str, window: str) -> str:
        """Whether all elements of a window lie inside along a dimension."""
        after = self.code.integer("icmp sge", window, self.numbers[f"first.{axis}"])
        before = self.code.integer("icmp slt", window, self.numbers[f"end.{axis}"])
        return self.code.let(f"and i1 {after}, {before}")

    def offset(self, axis: str, tap: str) -> str:
        """The offset of a kernel position in one of the lists."""
        return self.code.get("i64", self.code.at(self.lists[axis], tap, "i64"))

    def reaches(self, axis: str, begin: str, tap: str) -> str:
        """Whether a kernel position lies inside along a dimension."""
        at = self.code.integer("add", begin, self.offset(axis, tap))
        return self.code.integer("icmp ult", at, self.numbers[f"size.{axis}"])

    def at_maximum(self, row: _Row, x: str, checks: bool, then: Callable[[str], None]) -> None:
        """Statements with the flat place of a window's maximum, if there is one.

        A position that no window has is skipped, so that nothing outside of the plane is read or written.
        """
        code = self.code
        begin = code.integer("mul", x, self.numbers["step.x"])
        which = code.get("i8", code.at(self.operands[1], code.integer("add", row.cell, x), "i8"))
        tap = code.let(f"zext i8 {which} to i64")

        def known() -> None:
            place = code.integer("add", code.integer("add", row.flat, begin), self.offset("flat", tap))
            if not checks:
                then(place)
                return
            inside = self.reaches("x", code.integer("add", row.x, begin), tap)
            for axis, start in (("y", row.y), ("z", row.z)):
                inside = code.let(f"and i1 {inside}, {self.reaches(axis, start, tap)}")
            code.branch(inside, lambda: then(place), lambda: None)

        code.branch(code.integer("icmp ult", tap, self.numbers["taps"]), known, lambda: None)

    def add(self, row: _Row, x: str, checks: bool) -> None:
        """Add a window's gradient at its maximum."""
        code, kind = self.code, self.code.kind

        def sum_at(place: str) -> None:
            target = code.at(self.operands[2], place)
            grad = code.get(kind, code.at(self.operands[0], code.integer("add", row.cell, x)))
            code.set(kind, target, code.let(f"fadd {kind} {code.get(kind, target)}, {grad}"))

        self.at_maximum(row, x, checks, sum_at)

    def pick(self, row: _Row, x: str, checks: bool) -> None:
        """Take the element at a window's maximum, or zero if there is none."""
        code, kind = self.code, self.code.kind
        made = code.variable(kind)
        code.set(kind, made, "0.0")
        self.at_maximum(
            row, x, checks, lambda place: code.set(kind, made, code.get(kind, code.at(self.operands[0], place)))
        )
        target = code.at(self.operands[2], code.integer("add", row.cell, x))
        code.set(kind, target, code.get(kind, made))


class _Maxima:
    """The maxima of windows of a row that end before `end`, several at a time."""

    def __init__(self, pooling: _Pooling, row: _Row, end: str, checks: bool) -> None:
        self.pooling, self.code, self.row, self.end, self.checks = pooling, pooling.code, row, end, checks
        self.value, self.index, self.mask = (pooling.many[kind] for kind in (pooling.code.kind, "i32", "i1"))
        self.bytes = pooling.many["i8"]
        self.best, self.which = self.code.variable(self.value), self.code.variable(self.index)
        self.seen = self.code.variable(self.index)
        self.outside = self.code.variable(self.code.kind)  # what padding is read as
        self.made, self.places = self.code.variable(self.value), self.code.variable(self.bytes)

    def several(self, x: str) -> None:
        """The maxima of the windows from the one numbered `x`. Lanes after the last window repeat it."""
        code, numbers = self.code, self.pooling.numbers
        last = code.integer("sub", self.end, "1")
        begins = [
            code.integer("mul", code.limit("smin", code.integer("add", x, str(lane)), last), numbers["step.x"])
            for lane in range(_LANES)
        ]
        code.set(code.kind, self.outside, _LEAST)
        code.set(self.value, self.best, self.every(code.kind, _LEAST))
        for variable in (self.which, self.seen):
            code.set(self.index, variable, "zeroinitializer")
        code.loop("0", numbers["taps"], 1, lambda tap: self.compare(tap, begins))
        self.store(x)

    def compare(self, tap: str, begins: list[str]) -> None:
        """Take the elements of a kernel position that are larger, nan, or the first that are not padding."""
        code, row = self.code, self.row
        place = code.integer("add", row.flat, self.pooling.offset("flat", tap))
        pointers = [code.at(self.pooling.operands[0], code.integer("add", place, begin)) for begin in begins]
        real = self.every("i32", "1")
        if self.checks:
            in_row = code.let(
                f"and i1 {self.pooling.reaches('z', row.z, tap)}, {self.pooling.reaches('y', row.y, tap)}"
            )
            inside = [
                code.let(f"and i1 {in_row}, {self.pooling.reaches('x', code.integer('add', row.x, begin), tap)}")
                for begin in begins
            ]
            pointers = [
                code.let(f"select i1 {each}, ptr {pointer}, ptr {self.outside}")
                for each, pointer in zip(inside, pointers, strict=True)
            ]
            real = self.together(self.index, "i32", [code.let(f"zext i1 {each} to i32") for each in inside])
        given = self.together(self.value, code.kind, [code.get(code.kind, pointer) for pointer in pointers])
        best, seen = code.get(self.value, self.best), code.get(self.index, self.seen)
        larger = code.let(f"fcmp ogt {self.value} {given}, {best}")
        nan = code.let(f"fcmp uno {self.value} {given}, {given}")
        first = code.let(f"icmp ugt {self.index} {real}, {seen}")
        better = code.let(f"or {self.mask} {code.let(f'or {self.mask} {larger}, {nan}')}, {first}")
        tap_number = code.let(f"trunc i64 {tap} to i32")
        number = self.together(self.index, "i32", [tap_number] * _LANES)
        for kind, variable, new in ((self.value, self.best, given), (self.index, self.which, number)):
            code.set(
                kind,
                variable,
                code.let(f"select {self.mask} {better}, {kind} {new}, {kind} {code.get(kind, variable)}"),
            )
        code.set(self.index, self.seen, code.let(f"or {self.index} {seen}, {real}"))

    def store(self, x: str) -> None:
        """Store the maxima and their kernel positions; of a part of the lanes one by one."""
        code, pooling, kind = self.code, self.pooling, self.code.kind
        cell = code.integer("add", self.row.cell, x)
        targets = [code.at(pooling.operands[1], cell), code.at(pooling.operands[2], cell, "i8")]
        values = code.get(self.value, self.best)
        places = code.let(f"trunc {self.index} {code.get(self.index, self.which)} to {self.bytes}")
        left = code.integer("sub", self.end, x)

        def whole() -> None:
            code.lines.append(f"  store {self.value} {values}, ptr {targets[0]}, align {code.bytes}")
            code.lines.append(f"  store {self.bytes} {places}, ptr {targets[1]}, align 1")

        def part() -> None:
            code.set(self.value, self.made, values)
            code.set(self.bytes, self.places, places)

            def one(lane: str) -> None:
                code.set(kind, code.at(targets[0], lane), code.get(kind, code.at(self.made, lane)))
                place = code.get("i8", code.at(self.places, lane, "i8"))
                code.set("i8", code.at(targets[1], lane, "i8"), place)

            code.loop("0", left, 1, one)

        code.branch(code.integer("icmp sge", left, str(_LANES)), whole, part)

    def every(self, kind: str, value: str) -> str:
        """A constant in each lane."""
        return "<" + ", ".join([f"{kind} {value}"] * _LANES) + ">"

    def together(self, vector: str, kind: str, values: list[str]) -> str:
        """A vector of these values."""
        made = "poison"
        for lane, value in enumerate(values):
            made = self.code.let(f"insertelement {vector} {made}, {kind} {value}, i64 {lane}")
        return made


def source_of(name: str, dtype: str) -> str | None:
    """The module of a kernel for a dtype, "f4" or "f8"; None if no kernel has this name."""
    if name not in NAMES:
        return None
    code = Code(dtype)
    code.loop("%begin", "%end", 1, _Pooling(code, name).plane)
    return code.module(_DECLARATIONS)
