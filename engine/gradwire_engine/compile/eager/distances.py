"""Distances between the rows of two matrices in machine code, and their gradients; for p of 1, 2 and infinity.

A row is a row of x1. `table` holds a number that is not read, then the operands. The first operand is the geometry:
rows of x1 and of x2 per batch, columns, and the pitch of x2. x2 is transposed; its rows are padded with zeros to the
pitch, a multiple of `lanes`. So a vector holds a column of many rows of x2.

A distance adds columns in order, in parts of `_PART`. A gradient adds its shares by lanes, in parts of `_RUN` rows of
x2. The shapes alone determine the order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradwire_engine.compile.eager.loop_code import Code

#: Numbers of the geometry.
GEOMETRY = ("rows", "others", "columns", "pitch")
#: Operations per difference, about.
OPERATIONS = 4
_PART = 64  # columns whose powers are added before they are added to the others'
_RUN, _COLUMNS = 1024, 16  # rows of x2 and columns that a gradient takes at once: they stay in the cache


@dataclass
class _Given:
    """What the statements of a batch read: numbers, operands, and the batch's rows and its part of x2."""

    numbers: dict[str, str]
    operands: list[str]
    first: str = ""
    last: str = ""
    turned: str = ""


def _powered(code: Code, p: str, size: str) -> str:
    return code.lanewise("fmul", size, size) if p == "2" else size


def _joined(code: Code, p: str, one: str, other: str) -> str:
    """The sum, or the larger ones; nan if one of them is."""
    if p != "inf":
        return code.lanewise("fadd", one, other)
    above, nan = code.lanewise("fcmp ogt", other, one), code.lanewise("fcmp uno", other, other)
    return code.select(code.let(f"or {code.mask} {above}, {nan}"), other, one)


def _forward(code: Code, p: str, given: _Given) -> None:
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
        target = code.at(given.operands[3], code.integer("add", code.integer("mul", row, others), place))
        code.part_or_all(
            place,
            others,
            lambda: code.lines.append(f"  store {code.vector} {made}, ptr {target}, align {code.bytes}"),
            lambda mask: code.lines.append(
                f"  call void @llvm.masked.store.{code.name}.p0({code.vector} {made}, ptr {target}, i32 {code.bytes}, "
                f"{code.mask} {mask})"
            ),
        )

    code.loop(
        "0", others, code.lanes, lambda place: code.loop(given.first, given.last, 1, lambda row: vector(place, row))
    )


def _share(code: Code, p: str, mine: str, other: str, given: list[str]) -> str:
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


def _backward(code: Code, p: str, given: _Given) -> None:
    """The gradient of a batch's rows, added to what the last operand holds."""
    columns, others, pitch = (given.numbers[each] for each in ("columns", "others", "pitch"))
    total = code.variable(code.vector)
    read, made = given.operands[3:-1], given.operands[-1]
    held = [code.variable(code.vector) for _ in read]

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
                        f"call {code.vector} @llvm.masked.load.{code.name}.p0(ptr {each}, i32 {code.bytes}, "
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
    code = Code(dtype)
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
    return code.module([
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        *(f"declare {vector} @llvm.{each}.{code.name}({vector})" for each in ("fabs", "sqrt")),
        f"declare void @llvm.masked.store.{code.name}.p0({vector}, ptr, i32, {mask})",
        f"declare {vector} @llvm.masked.load.{code.name}.p0(ptr, i32, {mask}, {vector})",
    ])  # fmt: skip
