"""LLVM's assembly of loops that are no forms: statements over numbers, values and vectors of 128 bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_TYPES = {"f4": ("float", 32), "f8": ("double", 16)}
_SUFFIX = {"float": "f32", "double": "f64"}


def lanes(dtype: str) -> int:
    """Values of a vector, for "f4" or "f8"."""
    return _TYPES[dtype][1]


class Code:
    """Statements of the function. LLVM turns its variables in memory into registers."""

    def __init__(self, dtype: str) -> None:
        self.kind, self.lanes = _TYPES[dtype]
        self.bytes = 4 if dtype == "f4" else 8
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

    def branch(self, condition: str, then: Callable[[], None], other: Callable[[], None]) -> None:
        """Statements for where a condition holds, and for where it does not."""
        number = self.fresh()
        self.lines += [f"  br i1 {condition}, label %then.{number}, label %else.{number}", f"then.{number}:"]
        then()
        self.lines += [f"  br label %met.{number}", f"else.{number}:"]
        other()
        self.lines += [f"  br label %met.{number}", f"met.{number}:"]

    def choose(self, value: str, bodies: Sequence[Callable[[], None]]) -> None:
        """Statements by a number below that of the bodies; none for others."""
        number = self.fresh()
        cases = " ".join(f"i64 {case}, label %case{case}.{number}" for case in range(len(bodies)))
        self.lines.append(f"  switch i64 {value}, label %chosen.{number} [ {cases} ]")
        for case, body in enumerate(bodies):
            self.lines.append(f"case{case}.{number}:")
            body()
            self.lines.append(f"  br label %chosen.{number}")
        self.lines.append(f"chosen.{number}:")

    def at(self, pointer: str, place: str, kind: str = "") -> str:
        return self.let(f"getelementptr {kind or self.kind}, ptr {pointer}, i64 {place}")

    def splat(self, value: str) -> str:
        one = self.let(f"insertelement {self.vector} poison, {self.kind} {value}, i64 0")
        return self.let(
            f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def given(self, pointer: str) -> str:
        """A vector in memory, which begins at any element."""
        return self.let(f"load {self.vector}, ptr {pointer}, align {self.bytes}")

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
        fits = self.integer("icmp sle", self.integer("add nsw", place, str(self.lanes)), end)
        self.branch(fits, whole, lambda: part(self.within(place, end)))

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

    def module(self, declarations: list[str]) -> str:
        """The loop's module, with declarations of what it calls."""
        return "\n".join([
            "define void @entry(i64 %begin, i64 %end, ptr %scratch, ptr %table) #0 {",
            *self.variables,
            *self.lines,
            "  ret void",
            "}",
            *declarations,
            "attributes #0 = { nounwind }",
            "",
        ])  # fmt: skip
