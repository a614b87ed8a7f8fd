"""Elements scattered along lines in machine code: each line of the result begins as zeros and gets a line's elements.

A row of the loop is a line, which is initialized while it is in the cache. `table` holds the number of elements of a
line, and the operands: the line's length in the result, the elements, their indices in the line, the result. Elements
come in order, so sums have the bits of a loop over all. An index that the line has not is skipped: nothing outside of
the line is written. Who calls the loop refuses such indices.
"""

from __future__ import annotations

from gradwire_engine.compile.eager.loop_code import Code

#: Operations per element, about.
OPERATIONS = 8
#: By the loop's name, whether elements at one index are added; else the last one stays.
_ADDS = {"gather_backward": True, "put_along": False}
NAMES = tuple(_ADDS)


def source_of(name: str, dtype: str) -> str | None:
    """The module of a loop for a dtype, "f4" or "f8"; None if no loop has this name."""
    if name not in NAMES:
        return None
    code = Code(dtype)
    kind = code.kind
    count = code.get("i64", "%table")
    operands = [code.get("ptr", code.at("%table", str(2 * place + 1), "i64")) for place in range(4)]
    length = code.get("i64", operands[0])
    size = code.integer("mul", length, str(code.bytes))

    def line(number: str) -> None:
        begin = code.integer("mul", number, count)
        given, indices = code.at(operands[1], begin), code.at(operands[2], begin, "i64")
        target = code.at(operands[3], code.integer("mul", number, length))
        code.lines.append(f"  call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")

        def element(place: str) -> None:
            index = code.get("i64", code.at(indices, place, "i64"))

            def write() -> None:
                there, value = code.at(target, index), code.get(kind, code.at(given, place))
                if _ADDS[name]:
                    value = code.let(f"fadd {kind} {code.get(kind, there)}, {value}")
                code.set(kind, there, value)

            code.branch(code.integer("icmp ult", index, length), write, lambda: None)

        code.loop("0", count, 1, element)

    code.loop("%begin", "%end", 1, line)
    return code.module(["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"])
