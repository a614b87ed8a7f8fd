"""Running sums, products, maxima and minima in machine code, with PyTorch's roundings.

float32 is summed and multiplied in double precision, and each result is rounded once. Chains are independent; a chain
is one sequence of elements. Adjacent chains are computed together, by vectors; others four at a time, so that none
waits for its own addition. `table` holds a number that is not read, then the operands. The first is the geometry. A
row of the loop is a unit: up to `width` chains.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradwire_engine.compile.eager.loop_code import Code

#: Numbers of the geometry. count: chains of a part; apart, step, part: elements from a chain, an element and a part to
#: the next; first: the place of a chain's first element; units: of a part; width: chains of a unit.
GEOMETRY = ("length", "count", "apart", "step", "first", "part", "units", "width")
#: Operations per element, about.
OPERATIONS = 4
_AT_ONCE = 4
#: By the loop's name: the operation, and the value that a sum or product begins with.
_FOLDS = {"cumsum": ("fadd", "0.0"), "cumprod": ("fmul", "1.0")}
_EXTREMES = {"cummax": "oge", "cummin": "ole"}
NAMES = (*_FOLDS, *_EXTREMES)


@dataclass
class _Chains:
    """Chains that are computed together: a vector of them, or one (`count` is 1); what an element changes."""

    code: Code
    name: str
    count: int

    def __post_init__(self) -> None:
        self.kind, self.wide = self.of(self.code.kind), self.of("double")
        self.held = self.code.variable(self.wide if self.name in _FOLDS else self.kind)
        self.index = self.code.variable(self.of("i64"))

    def of(self, kind: str) -> str:
        return kind if self.count == 1 else f"<{self.count} x {kind}>"

    def load(self, pointer: str) -> str:
        return self.code.let(f"load {self.kind}, ptr {pointer}, align {self.code.bytes}")

    def begin(self, pointer: str) -> None:
        """Begin before the first element, which is here."""
        if self.name in _FOLDS:
            self.code.set(self.wide, self.held, self.every("double", _FOLDS[self.name][1]))
            return
        self.code.set(self.kind, self.held, self.load(pointer))
        self.code.set(self.of("i64"), self.index, self.every("i64", "0"))

    def every(self, kind: str, value: str) -> str:
        """A constant in each lane."""
        return value if self.count == 1 else "<" + ", ".join([f"{kind} {value}"] * self.count) + ">"

    def fold(self, source: str, target: str) -> None:
        """Add or multiply an element; store the rounded result."""
        code, value = self.code, self.load(source)
        narrow = code.kind == "float"
        value = code.let(f"fpext {self.kind} {value} to {self.wide}") if narrow else value
        made = code.let(f"{_FOLDS[self.name][0]} {self.wide} {code.get(self.wide, self.held)}, {value}")
        code.set(self.wide, self.held, made)
        made = code.let(f"fptrunc {self.wide} {made} to {self.kind}") if narrow else made
        self.store(self.kind, made, target, code.bytes)

    def compare(self, source: str, target: str, places: str, number: str) -> None:
        """Take an element that is not less extreme, or nan; store the extreme and the element's number."""
        code, value = self.code, self.load(source)
        ahead = code.let(f"fcmp {_EXTREMES[self.name]} {self.kind} {value}, {code.get(self.kind, self.held)}")
        nan = code.let(f"fcmp uno {self.kind} {value}, {value}")
        which = self.of("i1")
        taken = f"{which} {code.let(f'or {which} {ahead}, {nan}')}"
        for kind, variable, new, pointer, align in (
            (self.kind, self.held, value, target, code.bytes),
            (self.of("i64"), self.index, self.spread(number), places, 8),
        ):
            made = code.let(f"select {taken}, {kind} {new}, {kind} {code.get(kind, variable)}")
            code.set(kind, variable, made)
            self.store(kind, made, pointer, align)

    def spread(self, number: str) -> str:
        """An integer in each lane."""
        if self.count == 1:
            return number
        kind = self.of("i64")
        one = self.code.let(f"insertelement {kind} poison, i64 {number}, i64 0")
        return self.code.let(f"shufflevector {kind} {one}, {kind} poison, <{self.count} x i32> zeroinitializer")

    def store(self, kind: str, value: str, pointer: str, align: int) -> None:
        self.code.lines.append(f"  store {kind} {value}, ptr {pointer}, align {align}")


@dataclass
class _Scan:
    """The statements of a loop."""

    code: Code
    name: str

    def __post_init__(self) -> None:
        code, count = self.code, 3 if self.name in _FOLDS else 4
        self.operands = [code.get("ptr", code.at("%table", str(2 * place + 1), "i64")) for place in range(count)]
        self.numbers = {
            each: code.get("i64", code.at(self.operands[0], str(place), "i64")) for place, each in enumerate(GEOMETRY)
        }

    def along(self, chains: list[_Chains], firsts: list[str]) -> None:
        """Compute chains side by side; firsts: where they begin."""
        code, given = self.code, self.operands[1]
        for each, first in zip(chains, firsts, strict=True):
            each.begin(code.at(given, first))

        def element(number: str) -> None:
            passed = code.integer("mul", number, self.numbers["step"])
            for each, first in zip(chains, firsts, strict=True):
                place = code.integer("add", first, passed)
                source, target = code.at(given, place), code.at(self.operands[2], place)
                if self.name in _FOLDS:
                    each.fold(source, target)
                else:
                    each.compare(source, target, code.at(self.operands[3], place, "i64"), number)

        code.loop("0", self.numbers["length"], 1, element)

    def unit(self, row: str) -> None:
        """The chains of a unit."""
        code, numbers = self.code, self.numbers
        part = code.integer("sdiv", row, numbers["units"])
        begin = code.integer("mul", code.integer("srem", row, numbers["units"]), numbers["width"])
        count = code.limit("smin", code.integer("sub", numbers["count"], begin), numbers["width"])
        first = code.integer("add", code.integer("mul", part, numbers["part"]), numbers["first"])
        first = code.integer("add", first, code.integer("mul", begin, numbers["apart"]))
        adjacent = code.let(f"icmp eq i64 {numbers['apart']}, 1")
        whole = code.let(f"icmp eq i64 {count}, {code.lanes}")
        code.branch(
            code.let(f"and i1 {adjacent}, {whole}"),
            lambda: self.along([_Chains(code, self.name, code.lanes)], [first]),
            lambda: self.apart(first, count),
        )

    def apart(self, first: str, count: str) -> None:
        """Chains four at a time, then one at a time."""
        code = self.code
        several = [_Chains(code, self.name, 1) for _ in range(_AT_ONCE)]

        def begins(number: str, chains: list[_Chains]) -> list[str]:
            places = [code.integer("add", number, str(place)) for place in range(len(chains))]
            return [code.integer("add", first, code.integer("mul", each, self.numbers["apart"])) for each in places]

        most = code.integer("and", count, str(-_AT_ONCE))
        code.loop("0", most, _AT_ONCE, lambda number: self.along(several, begins(number, several)))
        code.loop(most, count, 1, lambda number: self.along(several[:1], begins(number, several[:1])))


def source_of(name: str, dtype: str) -> str | None:
    """The module of a loop for a dtype, "f4" or "f8"; None if no loop has this name."""
    if name not in NAMES:
        return None
    code = Code(dtype)
    code.loop("%begin", "%end", 1, _Scan(code, name).unit)
    return code.module(["declare i64 @llvm.smin.i64(i64, i64)"])
