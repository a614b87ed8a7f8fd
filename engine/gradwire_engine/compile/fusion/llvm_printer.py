"""The printer of a loop as LLVM's assembly language.

The kernel is `void entry(i64 begin, i64 end, ptr scratch, ptr table)`. It computes the rows from `begin` to `end`; for
a flat loop, the elements. `table` holds the row's length, then for each operand its address and its count: the rows of
a tile or cycle, those that share a column's value, or the elements from one strided row to the next. `scratch` has a
row of 8 bytes per element for each kept value.

No operation may be reordered or contracted, except additions of a sum, so that they vectorize. The order of a sum is
fixed by the compiled code and does not depend on how rows are divided among threads.
"""

from __future__ import annotations

from typing import cast

from gradwire_engine.compile.fusion.form import (
    B1,
    BITS,
    COLUMN,
    CYCLE,
    F4,
    F8,
    FULL,
    ROW,
    SCALAR,
    SHIFTED,
    STRIDED,
    TILE,
    UNIFORM,
    WHOLE,
    Loop,
    Pass,
    is_flat,
    kept_by,
)

ENTRY = "entry"
_TYPES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "b1": "i1"}
_IN_MEMORY = {**_TYPES, "b1": "i8"}
_BYTES = {"f4": 4, "f8": 8, "i4": 4, "i8": 8, "b1": 1}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISONS = {"lt": "olt", "gt": "ogt", "le": "ole", "ge": "oge", "eq": "oeq", "ne": "une"}
_WIDTH = '!"llvm.loop.vectorize.width", i32 8'
_MASKED = '!"llvm.loop.vectorize.predicate.enable", i1 true', '!"llvm.loop.vectorize.width", i32 16'
_SHORT = range(6, 49)  # elements of rows of float32 that are computed faster with masks
_INTERLEAVED = '!"llvm.loop.interleave.count", i32 4'
_LONG = 20  # values of an elementwise formula
_SUFFIX = {"f4": "f32", "f8": "f64"}
_SIGN = {"i4": (31, 0x7FFFFFFF, -(1 << 31)), "i8": (63, 0x7FFFFFFFFFFFFFFF, -(1 << 63))}


def printed(loop: Loop, length: int = 0) -> str:
    """The module of a loop. length: of a row, if it is known; short rows are computed with masks."""
    return _Printer(loop, length in _SHORT).module()


class _Printer:
    def __init__(self, loop: Loop, is_short: bool) -> None:
        self.loop, self.is_short = loop, is_short
        self.passes = loop.passes()
        self.flat = is_flat(loop)
        self.slots = {value: place for place, value in enumerate(kept_by(self.passes))}
        self.needed = loop.reached([value for _, _, value in loop.stores])
        self.lines: list[str] = []
        self.metadata: list[str] = []
        self.count = 0

    def say(self, line: str) -> None:
        self.lines.append("  " + line)

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def module(self) -> str:
        pointers = ", ".join(f"ptr noalias %a{place}, i64 %k{place}" for place in range(len(self.loop.operands)))
        self.lines.append(
            f"define internal void @body(i64 %begin, i64 %end, i64 %n, ptr noalias %scratch, {pointers}) #0 {{"
        )
        self.lines.append("start:")
        for number in sorted(self.needed):
            if self.loop.values[number].scope == UNIFORM:
                self.value(number, "", "")
        if self.flat:
            self.elements(0, self.passes[0], "start", "%begin", "%end", "%zero")
        else:
            self.rows()
        self.say("ret void")
        self.lines.append("}")
        return "\n".join([*self.lines, *self.entry(), *_TAIL, *self.metadata]) + "\n"

    def entry(self) -> list[str]:
        """The function that reads the table and calls the body."""
        lines = [f"define void @{ENTRY}(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {{"]
        lines.append("  %n = load i64, ptr %table")
        given = []
        for place in range(len(self.loop.operands)):
            lines += [
                f"  %p{place} = getelementptr i64, ptr %table, i64 {2 * place + 1}",
                f"  %a{place} = load ptr, ptr %p{place}",
                f"  %q{place} = getelementptr i64, ptr %table, i64 {2 * place + 2}",
                f"  %k{place} = load i64, ptr %q{place}",
            ]
            given.append(f"ptr %a{place}, i64 %k{place}")
        lines.append(f"  call void @body(i64 %begin, i64 %end, i64 %n, ptr %scratch, {', '.join(given)})")
        return [*lines, "  ret void", "}"]

    def rows(self) -> None:
        """The loop over rows."""
        self.say("%some = icmp slt i64 %begin, %end")
        self.say("br i1 %some, label %row, label %done")
        self.lines.append("row:")
        self.say("%i = phi i64 [ %begin, %start ], [ %i.next, %row.end ]")
        self.say("%base = mul nsw i64 %i, %n")
        for place, operand in enumerate(self.loop.operands):
            if operand.index in (TILE, CYCLE):
                self.say(f"%m{place} = urem i64 %i, %k{place}")
                self.say(f"%b{place} = mul nsw i64 %m{place}, {'%n' if operand.index == TILE else operand.step}")
            elif operand.index == SHIFTED:
                self.say(f"%b{place} = mul nsw i64 %i, {operand.step}")
            elif operand.index == STRIDED:
                self.say(f"%b{place} = mul nsw i64 %i, %k{place}")
            elif operand.index == COLUMN:
                self.say(f"%b{place} = udiv i64 %i, %k{place}")
        behind = {value for each in self.passes for value in (*each.rows, *each.reductions)}
        for number in sorted(self.needed):
            if self.loop.values[number].scope == ROW and number not in behind:
                self.value(number, "", "")
        block = "row"
        for place, each in enumerate(self.passes):
            if each.elements or each.reductions:
                block = self.elements(place, each, block, "0", "%n", "%base")
            for number in each.rows:
                self.value(number, "", "")
        for target, offset, number in self.loop.stores:
            if self.loop.operands[target].index in (COLUMN, CYCLE):
                self.store(target, offset, number, "", "")
        self.say("br label %row.end")
        self.lines.append("row.end:")
        self.say("%i.next = add nsw i64 %i, 1")
        self.say("%more = icmp slt i64 %i.next, %end")
        self.say("br i1 %more, label %row, label %done")
        self.lines.append("done:")

    def elements(self, place: int, each: Pass, before: str, first: str, last: str, base: str) -> str:
        """The loop over a row's elements, or over all of a flat loop; returns the block after it."""
        p = f"x{place}"
        if self.flat:
            self.say("%zero = add i64 0, 0")
            self.say(f"%{p}.some = icmp slt i64 {first}, {last}")
            self.say(f"br i1 %{p}.some, label %{p}, label %{p}.end")
        else:
            self.say(f"br label %{p}")
        self.lines.append(f"{p}:")
        self.say(f"%{p}.j = phi i64 [ {first}, %{before} ], [ %{p}.next, %{p} ]")
        for number in each.reductions:
            self.accumulator(number, p, before)
        self.say(f"%{p}.at = add nsw i64 {base}, %{p}.j")
        for number in each.elements:
            if number in self.slots and number not in each.keeps:
                self.kept(number, p)
            else:
                self.value(number, p + ".", p)
            if number in each.keeps:
                pointer = self.scratch(number, p)
                self.say(f"store {self.type(number)} %{p}.v{number}, ptr {pointer}")
        if place == len(self.passes) - 1:
            for operand, offset, number in self.loop.stores:
                if self.loop.operands[operand].index in (WHOLE, SHIFTED, STRIDED):
                    self.store(operand, offset, number, p + ".", p)
        for number in each.reductions:
            self.accumulate(number, p)
        self.say(f"%{p}.next = add nsw i64 %{p}.j, 1")
        self.say(f"%{p}.more = icmp slt i64 %{p}.next, {last}")
        self.say(f"br i1 %{p}.more, label %{p}, label %{p}.end{self.hints(each)}")
        self.lines.append(f"{p}.end:")
        for number in each.reductions:
            self.reduced(number, p)
        return f"{p}.end"

    def hints(self, each: Pass) -> str:
        """Metadata for the vectorizer.

        Sums in float64 of float32 values: LLVM would take vectors of the sums' width. Long elementwise formulas: LLVM
        would compute one vector at a time, and wait for the result of each operation. Short rows: all of the elements
        behind the last whole vector would be computed one by one.
        """
        dtypes = {self.loop.dtype(number) for number in each.elements}
        hints: tuple[str, ...]
        if self.is_short and F4 in dtypes and not self.flat:
            hints = _MASKED
        elif {F4, F8} <= dtypes:
            hints = (_WIDTH,)
        elif self.flat and len(each.elements) >= _LONG:
            hints = (_INTERLEAVED,)
        else:
            return ""
        node = len(self.metadata)
        numbers = range(node + 1, node + 1 + len(hints))
        self.metadata.append(f"!{node} = distinct !{{!{node}, {', '.join(f'!{number}' for number in numbers)}}}")
        self.metadata += [f"!{number} = !{{{hint}}}" for number, hint in zip(numbers, hints, strict=True)]
        return f", !llvm.loop !{node}"

    # Values.

    def type(self, number: int) -> str:
        return _TYPES[self.loop.values[number].dtype]

    def name(self, number: int, prefix: str) -> str:
        value = self.loop.values[number]
        if value.op == "spread":
            return self.name(value.args[0], "")
        if value.op == "const":
            return self.constant(number)
        return f"%{prefix}v{number}" if value.scope == FULL else f"%v{number}"

    def constant(self, number: int) -> str:
        value = self.loop.values[number]
        if value.dtype in (F4, F8):
            return "0x" + bytes.fromhex(str(value.detail))[::-1].hex().upper()
        return str(value.detail)

    def value(self, number: int, prefix: str, p: str) -> None:
        """Compute one value."""
        value = self.loop.values[number]
        if value.op in ("const", "spread"):
            return
        target, kind = self.name(number, prefix), _TYPES[value.dtype]
        args = [self.name(arg, prefix) for arg in value.args]
        given = self.loop.dtype(value.args[0]) if value.args else value.dtype
        if value.op == "load":
            operand, offset = cast("tuple[int, int]", value.detail)
            self.load(target, operand, offset, p)
        elif value.op in _COMPARISONS:
            self.say(f"{target} = fcmp {_COMPARISONS[value.op]} {_TYPES[given]} {args[0]}, {args[1]}")
        elif value.op == "select":
            self.say(f"{target} = select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        elif value.op == "neg":
            self.say(f"{target} = fneg {kind} {args[0]}")
        elif value.op in ("abs", "sqrt"):
            name = {"abs": "fabs", "sqrt": "sqrt"}[value.op]
            self.say(f"{target} = call {kind} @llvm.{name}.{_SUFFIX[value.dtype]}({kind} {args[0]})")
        elif value.op == "cast":
            self.say(f"{target} = {'fpext' if given == F4 else 'fptrunc'} {_TYPES[given]} {args[0]} to {kind}")
        elif value.op == "bits":
            self.say(f"{target} = bitcast {_TYPES[given]} {args[0]} to {kind}")
        else:
            name = _FLOAT_OPS[value.op] if value.dtype in (F4, F8) else value.op
            self.say(f"{target} = {name} {kind} {args[0]}, {args[1]}")

    def address(self, operand: int, offset: int, p: str) -> str:
        given = self.loop.operands[operand]
        if given.index == SCALAR:
            return f"%a{operand}"
        index = {WHOLE: f"%{p}.at", COLUMN: f"%b{operand}", CYCLE: f"%b{operand}"}.get(given.index)
        if index is None:
            index = self.fresh()
            self.say(f"{index} = add nsw i64 %b{operand}, %{p}.j")
        if offset:
            index, start = self.fresh(), index
            self.say(f"{index} = add nsw i64 {start}, {offset}")
        made = self.fresh()
        self.say(f"{made} = getelementptr inbounds {_IN_MEMORY[given.dtype]}, ptr %a{operand}, i64 {index}")
        return made

    def load(self, target: str, operand: int, offset: int, p: str) -> None:
        dtype = self.loop.operands[operand].dtype
        pointer, align = self.address(operand, offset, p), _BYTES[dtype]
        if dtype == B1:
            raw = self.fresh()
            self.say(f"{raw} = load i8, ptr {pointer}, align 1")
            self.say(f"{target} = icmp ne i8 {raw}, 0")
        else:
            self.say(f"{target} = load {_TYPES[dtype]}, ptr {pointer}, align {align}")

    def store(self, operand: int, offset: int, number: int, prefix: str, p: str) -> None:
        pointer, align = self.address(operand, offset, p), _BYTES[self.loop.operands[operand].dtype]
        self.say(f"store {self.type(number)} {self.name(number, prefix)}, ptr {pointer}, align {align}")

    # Kept values and reductions.

    def scratch(self, number: int, p: str) -> str:
        row, offset, made = self.fresh(), self.fresh(), self.fresh()
        self.say(f"{row} = mul nsw i64 %n, {8 * self.slots[number]}")
        self.say(f"{offset} = getelementptr inbounds i8, ptr %scratch, i64 {row}")
        self.say(f"{made} = getelementptr inbounds {self.type(number)}, ptr {offset}, i64 %{p}.j")
        return made

    def kept(self, number: int, p: str) -> None:
        pointer = self.scratch(number, p)
        self.say(f"%{p}.v{number} = load {self.type(number)}, ptr {pointer}")

    def accumulator(self, number: int, p: str, before: str) -> None:
        value = self.loop.values[number]
        if value.op == "sum":
            self.say(f"%s{number} = phi {_TYPES[value.dtype]} [ 0.0, %{before} ], [ %s{number}.next, %{p} ]")
        else:
            bits = BITS[value.dtype]
            least = _SIGN[bits][2]
            self.say(f"%s{number} = phi {_TYPES[bits]} [ {least}, %{before} ], [ %s{number}.next, %{p} ]")

    def accumulate(self, number: int, p: str) -> None:
        value = self.loop.values[number]
        given, kind = self.name(value.args[0], p + "."), _TYPES[value.dtype]
        if value.op == "sum":
            self.say(f"%s{number}.next = fadd reassoc {kind} %s{number}, {given}")
            return
        bits = BITS[value.dtype]
        raw = self.fresh()
        self.say(f"{raw} = bitcast {kind} {given} to {_TYPES[bits]}")
        ordered = self.ordered(raw, bits)
        kind = _TYPES[bits]
        self.say(f"%s{number}.next = call {kind} @llvm.smax.{kind}({kind} %s{number}, {kind} {ordered})")

    def ordered(self, raw: str, bits: str) -> str:
        """A float's bits as an integer in the order of the floats, and back: nan is beyond the infinities."""
        kind, (shift, mask, _) = _TYPES[bits], _SIGN[bits]
        sign, flip, made = self.fresh(), self.fresh(), self.fresh()
        self.say(f"{sign} = ashr {kind} {raw}, {shift}")
        self.say(f"{flip} = and {kind} {sign}, {mask}")
        self.say(f"{made} = xor {kind} {raw}, {flip}")
        return made

    def reduced(self, number: int, p: str) -> None:
        value = self.loop.values[number]
        kind = _TYPES[value.dtype]
        if value.op == "sum":
            self.say(f"%v{number} = fadd {kind} %s{number}.next, 0.0")
            return
        bits = BITS[value.dtype]
        self.say(f"%v{number} = bitcast {_TYPES[bits]} {self.ordered(f'%s{number}.next', bits)} to {kind}")


_TAIL = (
    "declare float @llvm.fabs.f32(float)",
    "declare double @llvm.fabs.f64(double)",
    "declare float @llvm.sqrt.f32(float)",
    "declare double @llvm.sqrt.f64(double)",
    "declare i32 @llvm.smax.i32(i32, i32)",
    "declare i64 @llvm.smax.i64(i64, i64)",
    "attributes #0 = { nounwind }",
)
