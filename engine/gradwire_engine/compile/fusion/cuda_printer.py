"""The printer of a loop as CUDA's C++, for CuPy's RawKernel.

A flat loop is `entry(count, operands)`, one thread per element. Other loops are `entry(rows, n, inner, operands)`:
blocks of (rows at a time, lanes) threads, whose lanes stride along a row and add their sums in shared memory. An
operand is a pointer, followed by its count for tiles and columns; a single value may also be given as a number.

A flat loop may also run over several sets of arrays (`printed_many`): blocks of threads are divided among the sets.

Elements of a row may lie `inner` at a time, at a distance of all rows (`across`): channels of images, columns of a
matrix. Values are the LLVM printer's: operations are neither reordered nor contracted. Only sums have another order,
which the lanes alone fix.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import cast

from gradwire_engine.compile.fusion.form import (
    BITS,
    COLUMN,
    F4,
    F8,
    ROW,
    SCALAR,
    TILE,
    UNIFORM,
    WHOLE,
    Loop,
    Pass,
    is_flat,
)

ENTRY = "entry"
#: Options of NVRTC: without contraction, so that values are those of the CPU.
COMPILER_OPTIONS = ("--std=c++17", "--fmad=false")
#: Threads of a block at most: the shared memory of a reduction has so many values.
MOST_THREADS = 1024
_TYPES = {"f4": "float", "f8": "double", "i4": "int", "i8": "long long", "b1": "bool"}
_UNSIGNED = {"i4": "unsigned", "i8": "unsigned long long"}
_FLOAT_OPS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_WRAPPING_OPS = {"add": "+", "sub": "-", "mul": "*", "shl": "<<", "and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "==", "ne": "!="}
_FUNCTIONS = {("abs", F4): "fabsf", ("abs", F8): "fabs", ("sqrt", F4): "sqrtf", ("sqrt", F8): "sqrt"}
_TO_BITS = {F4: "__float_as_int", F8: "__double_as_longlong"}
_FROM_BITS = {F4: "__int_as_float", F8: "__longlong_as_double"}
_PLACES = {WHOLE: "at", TILE: "b{} + j", COLUMN: "b{}"}
_BODY = "const long long place = (long long)blockIdx.x * blockDim.x + threadIdx.x;"


#: Sets of arrays of one launch at most, and arrays of a set: their addresses fit the 4 KB of a kernel's arguments.
MOST_SETS, MOST_OF_SET = 64, 5


def printed_many(loop: Loop, *, numbers: Container[int] = (), pointed: bool = False) -> str:
    """The source of a flat loop over several sets of arrays: `entry(table, numbers)`. pointed: numbers are pointers.

    table: MOST_SETS counts, MOST_SETS + 1 first blocks, the number of sets, and MOST_OF_SET addresses of each set.
    """
    return _Printer(loop, () if pointed else numbers, False).source_of_many(numbers)


def printed(loop: Loop, *, numbers: Container[int] = (), across: bool = False) -> str:
    """The source of a loop. numbers: places of operands that are given as numbers. across: see the module."""
    return _Printer(loop, numbers, across).source()


class _Printer:
    def __init__(self, loop: Loop, numbers: Container[int], across: bool) -> None:
        self.loop, self.numbers, self.across = loop, numbers, across
        self.flat = is_flat(loop)
        # To compute a value again takes less time on a GPU than to keep it in memory.
        self.passes = loop.passes(keeping=False)
        self.needed = loop.reached([value for _, _, value in loop.stores])
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append("  " + line)

    def source(self) -> str:
        sizes = ["long long count"] if self.flat else ["long long rows", "int n", "int inner"]
        given = ", ".join([*sizes, *(self.parameter(place) for place in range(len(self.loop.operands)))])
        self.say(_BODY)
        self.scoped(UNIFORM)
        if self.flat:
            self.say("const long long step = (long long)gridDim.x * blockDim.x;")
            self.say("for (long long at = place; at < count; at += step) {")
            self.elements(self.passes[0], "", True)
            self.say("}")
        else:
            self.rows()
        head = [] if self.flat else [_REDUCE]
        return "\n".join([*head, f'extern "C" __global__ void {ENTRY}({given}) {{', *self.lines, "}", ""])

    def source_of_many(self, common: Container[int]) -> str:
        """common: places of operands that all sets have in common, which are numbers or pointers to them."""
        places = range(len(self.loop.operands))
        given = ", ".join(["const Table table", *(self.parameter(place) for place in places if place in common)])
        self.say("int set = 0;")
        self.say("while (set + 1 < table.sets && blockIdx.x >= table.first[set + 1]) set++;")
        self.say("const long long count = table.count[set], blocks = table.first[set + 1] - table.first[set];")
        for which, place in enumerate(place for place in places if place not in common):
            declared = self.parameter(place)
            pointer = declared.split("*")[0] + "*"
            self.say(f"{declared} = ({pointer})table.address[set][{which}];")
        self.scoped(UNIFORM)
        self.say("long long at = (blockIdx.x - table.first[set]) * blockDim.x + threadIdx.x;")
        self.say("for (; at < count; at += blocks * blockDim.x) {")
        self.elements(self.passes[0], "", True)
        self.say("}")
        return "\n".join([_TABLE, f'extern "C" __global__ void {ENTRY}({given}) {{', *self.lines, "}", ""])

    def parameter(self, place: int) -> str:
        """The declaration of an operand."""
        operand = self.loop.operands[place]
        kind = _TYPES[operand.dtype]
        if place in self.numbers:
            return f"const {kind} a{place}"
        count = f", const long long k{place}" if operand.index in (TILE, COLUMN) else ""
        return f"{'' if operand.written else 'const '}{kind}* __restrict__ a{place}{count}"

    def rows(self) -> None:
        """All work of a thread: its part of one row. A thread behind the last row stores nothing."""
        self.say("const bool live = place < rows;")
        self.say("const long long row = live ? place : rows - 1;")
        for place, operand in enumerate(self.loop.operands):
            if operand.index == TILE:
                self.say(f"const long long b{place} = row % k{place} * n;")
            elif operand.index == COLUMN:
                self.say(f"const long long b{place} = row / k{place};")
        self.scoped(ROW, {value for each in self.passes for value in (*each.rows, *each.reductions)})
        last = self.passes[-1]
        for each in self.passes:
            if each.elements or each.reductions:
                self.row_pass(each, each is last)
            for number in each.rows:
                self.value(number)
        columns = [store for store in self.loop.stores if self.loop.operands[store[0]].index == COLUMN]
        if columns:
            self.say("__syncthreads();")  # other threads may still have to read them
            self.say("if (live && threadIdx.y == 0) {")
            for target, _, number in columns:
                self.say(f"  a{target}[b{target}] = {self.name(number)};")
            self.say("}")

    def row_pass(self, each: Pass, last: bool) -> None:
        for number in each.reductions:
            value = self.loop.values[number]
            kind = _TYPES[value.dtype if value.op == "sum" else BITS[value.dtype]]
            first = "0" if value.op == "sum" else f"least<{kind}>()"
            self.say(f"{kind} s{number} = {first};")
        self.say("for (int j = threadIdx.y; j < n; j += blockDim.y) {")
        self.say(f"const long long at = {self.place_in_row()};")
        self.elements(each, "if (live) ", last)
        for number in each.reductions:
            self.accumulate(number)
        self.say("}")
        for number in each.reductions:
            value = self.loop.values[number]
            made = f"block_{value.op}(s{number})"
            if value.op == "max":
                made = f"{_FROM_BITS[value.dtype]}(ordered({made}))"
            self.say(f"const {_TYPES[value.dtype]} v{number} = {made};")

    def place_in_row(self) -> str:
        """Where element j of a row is in a whole operand."""
        return "j / inner * (rows * inner) + row * inner + j % inner" if self.across else "row * n + j"

    def elements(self, each: Pass, guard: str, last: bool) -> None:
        for number in each.elements:
            self.value(number)
        if last:
            for target, _, number in self.loop.stores:
                if self.loop.operands[target].index == WHOLE:
                    self.say(f"{guard}a{target}[at] = {self.name(number)};")

    def accumulate(self, number: int) -> None:
        value = self.loop.values[number]
        given = self.name(value.args[0])
        if value.op == "sum":
            self.say(f"s{number} += {given};")
        else:
            self.say(f"s{number} = larger(s{number}, ordered({_TO_BITS[value.dtype]}({given})));")

    def scoped(self, scope: str, others: Container[int] = ()) -> None:
        """Compute the needed values of a scope, but these others."""
        for number in sorted(self.needed):
            if self.loop.values[number].scope == scope and number not in others:
                self.value(number)

    # Values.

    def name(self, number: int) -> str:
        value = self.loop.values[number]
        if value.op == "spread":
            return self.name(value.args[0])
        return self.constant(number) if value.op == "const" else f"v{number}"

    def constant(self, number: int) -> str:
        value = self.loop.values[number]
        if value.dtype not in (F4, F8):
            return f"({_TYPES[value.dtype]})({value.detail})"
        exact = struct.unpack("<d", bytes.fromhex(str(value.detail)))[0]
        code, integer = ("<f", "<I") if value.dtype == F4 else ("<d", "<Q")
        bits = struct.unpack(integer, struct.pack(code, exact))[0]
        return f"{_FROM_BITS[value.dtype]}(({_TYPES[BITS[value.dtype]]}){bits:#x}{'u' if value.dtype == F4 else 'ull'})"

    def value(self, number: int) -> None:
        """Compute one value."""
        value = self.loop.values[number]
        if value.op not in ("const", "spread"):
            self.say(f"const {_TYPES[value.dtype]} v{number} = {self.expression(number)};")

    def expression(self, number: int) -> str:
        value = self.loop.values[number]
        kind, op = _TYPES[value.dtype], value.op
        args = [self.name(arg) for arg in value.args]
        given = self.loop.dtype(value.args[0]) if args else value.dtype
        if op == "load":
            return self.load(cast("tuple[int, int]", value.detail)[0])
        if op in _COMPARISONS:
            return f"{args[0]} {_COMPARISONS[op]} {args[1]}"
        if op == "select":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if op == "neg":
            return f"-{args[0]}"
        if op in ("abs", "sqrt"):
            return f"{_FUNCTIONS[op, value.dtype]}({args[0]})"
        if op == "cast":
            return f"({kind}){args[0]}"
        if op == "bits":
            return f"{_TO_BITS[given] if given in _TO_BITS else _FROM_BITS[value.dtype]}({args[0]})"
        if value.dtype in (F4, F8):
            return f"{args[0]} {_FLOAT_OPS[op]} {args[1]}"
        if op == "ashr":
            return f"{args[0]} >> {args[1]}"
        whole = _UNSIGNED[value.dtype]  # signed integers may not overflow
        return f"({kind})(({whole}){args[0]} {_WRAPPING_OPS[op]} ({whole}){args[1]})"

    def load(self, operand: int) -> str:
        index = self.loop.operands[operand].index
        if index == SCALAR:
            return f"a{operand}" if operand in self.numbers else f"a{operand}[0]"
        return f"a{operand}[{_PLACES[index].format(operand)}]"


_TABLE = f"""
struct Table {{
  long long count[{MOST_SETS}], first[{MOST_SETS + 1}], sets, address[{MOST_SETS}][{MOST_OF_SET}];
}};"""
_REDUCE = f"""
template <typename T> __device__ T least();
template <> __device__ int least<int>() {{ return (int)0x80000000u; }}
template <> __device__ long long least<long long>() {{ return (long long)0x8000000000000000ull; }}
// A float's bits as an integer in the order of the floats, and back: nan is beyond the infinities.
__device__ int ordered(int bits) {{ return bits ^ (bits >> 31 & 0x7fffffff); }}
__device__ long long ordered(long long bits) {{ return bits ^ (bits >> 63 & 0x7fffffffffffffffll); }}
template <typename T> __device__ T larger(T one, T other) {{ return one > other ? one : other; }}
template <typename T, bool sums> __device__ T over_lanes(T value) {{
  __shared__ T held[{MOST_THREADS}];
  T* mine = held + threadIdx.y * blockDim.x + threadIdx.x;
  *mine = value;
  __syncthreads();
  for (int half = blockDim.y / 2; half > 0; half /= 2) {{
    if (threadIdx.y < half) {{
      const T other = mine[half * blockDim.x];
      *mine = sums ? *mine + other : larger(*mine, other);
    }}
    __syncthreads();
  }}
  const T made = held[threadIdx.x];
  __syncthreads();
  return made;
}}
template <typename T> __device__ T block_sum(T value) {{ return over_lanes<T, true>(value); }}
template <typename T> __device__ T block_max(T value) {{ return over_lanes<T, false>(value); }}
"""
