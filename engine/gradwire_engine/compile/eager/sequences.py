"""A sequence of elementwise operations on small arrays: one loop that reads them from a table.

A row of the loop is an operation. NumPy takes a microsecond for it, of which some ten nanoseconds compute. The loop is
compiled once for all sequences. Operations are correctly rounded and none is contracted, so the bits are NumPy's. A sum
or product of two NaNs is either of them, as in NumPy.

`table` holds a number that is not read, then two operands: the operations and the bases of addresses. The words of an
operation are those of ops/base/sequences.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gradwire_engine.compile.eager.loop_code import Code
from gradwire_engine.ops.base.sequences import BINARY, KINDS, NAME, UNARY, WORDS

#: Operations per row, about.
OPERATIONS = 64
NAMES = (NAME,)


class _Sequence:
    """The statements of the loop."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.operations, self.bases = [code.get("ptr", code.at("%table", str(at), "i64")) for at in (1, 3)]

    def operation(self, row: str) -> None:
        code = self.code
        begin = code.integer("mul", row, str(len(WORDS)))
        words = [
            code.get("i64", code.at(self.operations, code.integer("add", begin, str(place)), "i64"))
            for place in range(len(WORDS))
        ]
        one, other, out = (self.address(*words[place : place + 2]) for place in (1, 3, 5))
        bodies: list[Callable[[], None]] = [
            partial(self.binary, f"f{name}", kinds, one, other, out, words[7]) for name in BINARY for kinds in KINDS
        ]
        bodies += [partial(self.unary, f"f{name}", one, out, words[7]) for name in UNARY]
        code.choose(words[0], bodies)

    def address(self, base: str, offset: str) -> str:
        return self.code.at(self.code.get("ptr", self.code.at(self.bases, base, "i64")), offset, "i8")

    def binary(self, name: str, kinds: tuple[bool, bool], one: str, other: str, out: str, count: str) -> None:
        code = self.code
        held = [None if whole else self.element(place) for whole, place in zip(kinds, (one, other), strict=True)]

        def compute(load: Callable[[str], str]) -> str:
            values = [load(place) if known is None else known for known, place in zip(held, (one, other), strict=True)]
            return code.lanewise(name, *values)

        self.along(count, out, compute)

    def unary(self, name: str, one: str, out: str, count: str) -> None:
        self.along(count, out, lambda load: self.code.let(f"{name} {self.code.vector} {load(one)}"))

    def element(self, place: str) -> str:
        code = self.code
        return code.splat(code.let(f"load {code.kind}, ptr {place}, align 1"))

    def along(self, count: str, out: str, compute: Callable[[Callable[[str], str]], str]) -> None:
        """Compute vectors of results from those of the operands, which `compute` loads."""
        code, vector = self.code, self.code.vector

        def at(place: str) -> None:
            def whole() -> None:
                made = compute(lambda pointer: code.let(f"load {vector}, ptr {code.at(pointer, place)}, align 1"))
                code.lines.append(f"  store {vector} {made}, ptr {code.at(out, place)}, align 1")

            def part(mask: str) -> None:
                def load(pointer: str) -> str:
                    given = f"ptr {code.at(pointer, place)}, i32 1, {code.mask} {mask}, {vector} zeroinitializer"
                    return code.let(f"call {vector} @llvm.masked.load.{code.name}.p0({given})")

                target = f"ptr {code.at(out, place)}, i32 1, {code.mask} {mask}"
                made = compute(load)
                code.lines.append(f"  call void @llvm.masked.store.{code.name}.p0({vector} {made}, {target})")

            code.part_or_all(place, count, whole, part)

        code.loop("0", count, code.lanes, at)


def source_of(name: str, dtype: str) -> str | None:
    """The module of the loop for a dtype, "f4" or "f8"; None if no loop has this name."""
    if name != NAME:
        return None
    code = Code(dtype)
    code.loop("%begin", "%end", 1, _Sequence(code).operation)
    given = f"ptr, i32, {code.mask}"
    return code.module([
        f"declare {code.vector} @llvm.masked.load.{code.name}.p0({given}, {code.vector})",
        f"declare void @llvm.masked.store.{code.name}.p0({code.vector}, {given})",
    ])  # fmt: skip
