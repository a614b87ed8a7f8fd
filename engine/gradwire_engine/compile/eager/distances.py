"""Distances between the rows of two matrices in machine code, and their gradients; for p of 1, 2 and infinity.

A row is a row of x1. `table` holds a number that is not read, then the operands. The first operand is the geometry:
rows of x1 and of x2 per batch, columns, and the pitch of x2. x2 is transposed; its rows are padded with zeros to the
pitch, a multiple of `lanes`. So a vector holds a column of many rows of x2.

A distance adds columns in order, in parts of `_PART`. A gradient adds its shares by lanes, in parts of `_RUN` rows of
x2. The shapes alone determine the order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Numbers of the geometry.
GEOMETRY = ("rows", "others", "columns", "pitch")
#: Operations per difference, about.
OPERATIONS = 4
_PART = 64  # columns whose powers are added before they are added to the others'
_RUN, _COLUMNS = 1024, 16  # rows of x2 and columns that a gradient takes at once: they stay in the cache
_TYPES = {"f4": ("float", 32), "f8": ("double", 16)}
_SUFFIX = {"float": "f32", "double": "f64"}


def lanes(dtype: str) -> int:
    """Values of a vector, for "f4" or "f8"."""
    return _TYPES[dtype][1]


class _Code:
    """Statements of the function. LLVM turns its variables in memory into registers."""

    def __init__(self, dtype: str) -> None:
        self.kind, self.lanes = _TYPES[dtype]
        self.vector, self.mask = f"<{self.lanes} x {self.kind}>", f"<{self.lanes} x i1>"
        self.name = f"v{self.lanes}{_SUFFIX[self.kind]}"
        self.variables: list[str] = []
        self.lines: list[str] = []
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def let(self, operation: str) -> str:
        """A new value."""
        made = f"%{self.fresh()}"
        self.lines.append(f"  {made} = {operation}")
        return made

    def variable(self, kind: str) -> str:
        made = f"%{self.fresh()}"
        self.variables.append(f"  {made} = alloca {kind}")
        return made

    def get(self, kind: str, variable: str) -> str:
        return self.let(f"load {kind}, ptr {variable}")

    def set(self, kind: str, variable: str, value: str) -> None:
        self.lines.append(f"  store {kind} {value}, ptr {variable}")

    def integer(self, operation: str, one: str, other: str) -> str:
        return self.let(f"{operation} i64 {one}, {other}")

    def limit(self, which: str, one: str, other: str) -> str:
        """The smaller number ("smin") or the larger one ("smax")."""
        return self.let(f"call i64 @llvm.{which}.i64(i64 {one}, i64 {other})")

    def loop(self, first: str, end: str, step: int, body: Callable[[str], None]) -> None:
        """Statements for each number from `first` to before `end`."""
        place, number = self.variable("i64"), self.fresh()
        self.set("i64", place, first)
        self.lines += [f"  br label %head.{number}", f"head.{number}:"]
        at = self.get("i64", place)
        more = self.integer("icmp slt", at, end)
        self.lines += [f"  br i1 {more}, label %body.{number}, label %done.{number}", f"body.{number}:"]
        body(at)
        self.set("i64", place, self.integer("add nsw", at, str(step)))
        self.lines += [f"  br label %head.{number}", f"done.{number}:"]

    def at(self, pointer: str, place: str, kind: str = "") -> str:
        return self.let(f"getelementptr {kind or self.kind}, ptr {pointer}, i64 {place}")

    def splat(self, value: str) -> str:
        one = self.let(f"insertelement {self.vector} poison, {self.kind} {value}, i64 0")
        return self.let(
            f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def given(self, pointer: str) -> str:
        """A vector in memory, which begins at any element."""
        return self.let(f"load {self.vector}, ptr {pointer}, align {4 if self.kind == 'float' else 8}")

    def lanewise(self, operation: str, one: str, other: str) -> str:
        return self.let(f"{operation} {self.vector} {one}, {other}")

    def select(self, condition: str, one: str, other: str) -> str:
        return self.let(f"select {self.mask} {condition}, {self.vector} {one}, {self.vector} {other}")

    def unary(self, name: str, value: str) -> str:
        return self.let(f"call {self.vector} @llvm.{name}.{self.name}({self.vector} {value})")

    def constant(self, value: float) -> str:
        return "<" + ", ".join([f"{self.kind} {value:.1f}"] * self.lanes) + ">"

    def within(self, place: str, end: str) -> str:
        """Which of a vector's elements from `place` are before `end`."""
        kind = f"<{self.lanes} x i64>"
        left = self.integer("sub", end, place)
        one = self.let(f"insertelement {kind} poison, i64 {left}, i64 0")
        limits = self.let(f"shufflevector {kind} {one}, {kind} poison, <{self.lanes} x i32> zeroinitializer")
        steps = ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        return self.let(f"icmp sgt {kind} {limits}, <{steps}>")

    def part_or_all(self, place: str, end: str, whole: Callable[[], None], part: Callable[[str], None]) -> None:
        """Statements for a vector from `place` that is before `end`, or for one of which a part is."""
        number = self.fresh()
        behind = self.integer("add nsw", place, str(self.lanes))
        fits = self.integer("icmp sle", behind, end)
        self.lines += [f"  br i1 {fits}, label %whole.{number}, label %part.{number}", f"whole.{number}:"]
        whole()
        self.lines += [f"  br label %met.{number}", f"part.{number}:"]
        part(self.within(place, end))
        self.lines += [f"  br label %met.{number}", f"met.{number}:"]

    def summed(self, value: str) -> str:
        """The sum of a vector's lanes, by halves."""
        width = self.lanes
        while width > 1:
            half = width // 2
            kind = f"<{width} x {self.kind}>"
            low, high = (
                self.let(
                    f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <"
                    + ", ".join(f"i32 {lane}" for lane in range(begin, begin + half))
                    + ">"
                )
                for begin in (0, half)
            )
            value, width = self.let(f"fadd <{half} x {self.kind}> {low}, {high}"), half
        return self.let(f"extractelement <1 x {self.kind}> {value}, i64 0")


@dataclass
class _Given:
    """What the statements of a batch read: numbers, operands, and the batch's rows and its part of x2."""

    numbers: dict[str, str]
    operands: list[str]
    first: str = ""
    last: str = ""
    turned: str = ""


def _powered(code: _Code, p: str, size: str) -> str:
    return code.lanewise("fmul", size, size) if p == "2" else size


def _joined(code: _Code, p: str, one: str, other: str) -> str:
    """The sum, or the larger ones; nan if one of them is."""
    if p != "inf":
        return code.lanewise("fadd", one, other)
    above, nan = code.lanewise("fcmp ogt", other, one), code.lanewise("fcmp uno", other, other)
    return code.select(code.let(f"or {code.mask} {above}, {nan}"), other, one)


def _forward(code: _Code, p: str, given: _Given) -> None:
    """The distances of a batch's rows."""
    columns, others, pitch = (given.numbers[each] for each in ("columns", "others", "pitch"))
    total, part = code.variable(code.vector), code.variable(code.vector)

    def vector(place: str, row: str) -> None:
        start = code.at(given.operands[1], code.integer("mul", row, columns))
        theirs = code.at(given.turned, place)
        code.set(code.vector, total, "zeroinitializer")

        def column(number: str) -> None:
            mine = code.splat(code.let(f"load {code.kind}, ptr {code.at(start, number)}"))
            other = code.given(code.at(theirs, code.integer("mul", number, pitch)))
            size = code.unary("fabs", code.lanewise("fsub", mine, other))
            code.set(code.vector, part, _joined(code, p, code.get(code.vector, part), _powered(code, p, size)))

        def columns_from(number: str) -> None:
            code.set(code.vector, part, "zeroinitializer")
            end = code.limit("smin", code.integer("add nsw", number, str(_PART)), columns)
            code.loop(number, end, 1, column)
            before, more = code.get(code.vector, total), code.get(code.vector, part)
            code.set(code.vector, total, _joined(code, p, before, more))

        code.loop("0", columns, _PART, columns_from)
        made = code.get(code.vector, total)
        made = code.unary("sqrt", made) if p == "2" else made
        width = 4 if code.kind == "float" else 8
        target = code.at(given.operands[3], code.integer("add", code.integer("mul", row, others), place))
        code.part_or_all(
            place,
            others,
            lambda: code.lines.append(f"  store {code.vector} {made}, ptr {target}, align {width}"),
            lambda mask: code.lines.append(
                f"  call void @llvm.masked.store.{code.name}.p0({code.vector} {made}, ptr {target}, i32 {width}, "
                f"{code.mask} {mask})"
            ),
        )

    code.loop(
        "0", others, code.lanes, lambda place: code.loop(given.first, given.last, 1, lambda row: vector(place, row))
    )


def _share(code: _Code, p: str, mine: str, other: str, given: list[str]) -> str:
    """Shares of a gradient: of g, or for p = 2 of g / distance; for infinity, only of the largest differences."""
    if p == "2":
        return code.lanewise("fmul", given[0], code.lanewise("fsub", mine, other))
    above, below = code.lanewise("fcmp ogt", mine, other), code.lanewise("fcmp olt", mine, other)
    minus = code.select(below, code.constant(-1), "zeroinitializer")
    sign = code.select(above, code.constant(1), minus)
    if p == "inf":
        size = code.unary("fabs", code.lanewise("fsub", mine, other))
        sign = code.select(code.lanewise("fcmp oeq", size, given[1]), sign, "zeroinitializer")
    return code.lanewise("fmul", given[0], sign)


def _backward(code: _Code, p: str, given: _Given) -> None:
    """The gradient of a batch's rows, added to what the last operand holds."""
    columns, others, pitch = (given.numbers[each] for each in ("columns", "others", "pitch"))
    total = code.variable(code.vector)
    read, made = given.operands[3:-1], given.operands[-1]
    held = [code.variable(code.vector) for _ in read]
    width = 4 if code.kind == "float" else 8

    def element(row: str, column: str, first: str, last: str) -> None:
        place = code.integer("add", code.integer("mul", row, columns), column)
        mine = code.splat(code.let(f"load {code.kind}, ptr {code.at(given.operands[1], place)}"))
        theirs = code.at(given.turned, code.integer("mul", column, pitch))
        lines = [code.at(each, code.integer("mul", row, others)) for each in read]
        code.set(code.vector, total, "zeroinitializer")

        def vector(at: str) -> None:
            places = [code.at(line, at) for line in lines]

            def whole() -> None:
                for variable, each in zip(held, places, strict=True):
                    code.set(code.vector, variable, code.given(each))

            def part(mask: str) -> None:
                for variable, each in zip(held, places, strict=True):
                    value = code.let(
                        f"call {code.vector} @llvm.masked.load.{code.name}.p0(ptr {each}, i32 {width}, "
                        f"{code.mask} {mask}, {code.vector} zeroinitializer)"
                    )
                    code.set(code.vector, variable, value)

            code.part_or_all(at, others, whole, part)
            values = [code.get(code.vector, each) for each in held]
            share = _share(code, p, mine, code.given(code.at(theirs, at)), values)
            code.set(code.vector, total, code.lanewise("fadd", code.get(code.vector, total), share))

        code.loop(first, last, code.lanes, vector)
        target = code.at(made, place)
        before = code.let(f"load {code.kind}, ptr {target}")
        after = code.let(f"fadd {code.kind} {before}, {code.summed(code.get(code.vector, total))}")
        code.lines.append(f"  store {code.kind} {after}, ptr {target}")

    def block(column: str, first: str) -> None:
        end = code.limit("smin", code.integer("add nsw", column, str(_COLUMNS)), columns)
        last = code.limit("smin", code.integer("add nsw", first, str(_RUN)), others)
        code.loop(
            given.first,
            given.last,
            1,
            lambda row: code.loop(column, end, 1, lambda each: element(row, each, first, last)),
        )

    code.loop("0", columns, _COLUMNS, lambda column: code.loop("0", others, _RUN, lambda first: block(column, first)))


_NORMS = ("1", "2", "inf")
NAMES = tuple(f"cdist_{p}{part}" for p in _NORMS for part in ("", "_backward"))


def source_of(name: str, dtype: str) -> str | None:
    """The module of a loop for a dtype, "f4" or "f8"; None if no loop has this name."""
    if name not in NAMES:
        return None
    p, backward = name.split("_")[1], name.endswith("_backward")
    code = _Code(dtype)
    operands = [
        code.get("ptr", code.at("%table", str(2 * place + 1), "i64"))
        for place in range(4 + backward + (backward and p == "inf"))
    ]
    numbers = {each: code.get("i64", code.at(operands[0], str(place), "i64")) for place, each in enumerate(GEOMETRY)}
    given, rows = _Given(numbers, operands), numbers["rows"]

    def batch(number: str) -> None:
        first = code.integer("mul", number, rows)
        given.first = code.limit("smax", "%begin", first)
        given.last = code.limit("smin", "%end", code.integer("add", first, rows))
        size = code.integer("mul", numbers["columns"], numbers["pitch"])
        given.turned = code.at(operands[2], code.integer("mul", number, size))
        (_backward if backward else _forward)(code, p, given)

    before = code.integer("add", code.integer("sdiv", code.integer("sub", "%end", "1"), rows), "1")
    code.loop(code.integer("sdiv", "%begin", rows), before, 1, batch)
    vector, mask = code.vector, code.mask
    return "\n".join([
        "define void @entry(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {",
        *code.variables,
        *code.lines,
        "  ret void",
        "}",
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        *(f"declare {vector} @llvm.{each}.{code.name}({vector})" for each in ("fabs", "sqrt")),
        f"declare void @llvm.masked.store.{code.name}.p0({vector}, ptr, i32, {mask})",
        f"declare {vector} @llvm.masked.load.{code.name}.p0(ptr, i32, {mask}, {vector})",
        "attributes #0 = { nounwind }",
        "",
    ])  # fmt: skip
