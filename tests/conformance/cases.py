"""The scenarios without answers: `make.py` runs them on PyTorch and writes scenarios/*.json.

A string among an op's arguments names a tensor; `S("sum")` is a string. Other Python values become the kinds of
Argument: a float stays a float, an int an integer.
"""

import math
from typing import Any

from tests.conformance.interpreter import Step

Scenario = dict[str, Any]


class S(str):
    """A string argument, in contrast to a tensor's name."""

    __slots__ = ()


class D(str):
    """An element type as an argument."""

    __slots__ = ()


def tensor(out: str, values: Any, shape: list[int] | None = None, dtype: str = "float32", grad: bool = False) -> Step:
    flat = values if isinstance(values, list) else [values]
    if shape is None:
        shape = [len(flat)] if isinstance(values, list) else []
    step = {"do": "tensor", "out": out, "dtype": dtype, "shape": shape, "values": flat}
    return {**step, "requires_grad": True} if grad else step


def argument(value: Any) -> dict[str, Any]:
    match value:
        case dict():
            return value
        case None:
            return {"none": True}
        case bool():
            return {"boolean": value}
        case int():
            return {"integer": value}
        case float():
            return {"float": value}
        case complex():
            return {"complex": [value.real, value.imag]}
        case S():
            return {"string": str(value)}
        case D():
            return {"dtype": str(value)}
        case str():
            return {"tensor": value}
        case list() if value and isinstance(value[0], str):
            return {"tensors": value}
        case list() if value and isinstance(value[0], float):
            return {"floats": value}
        case list():
            return {"integers": value}
    raise TypeError(value)


def op(name: str, *args: Any, out: Any = None, mode: str = "", refused: str = "", **named: Any) -> Step:
    step: Step = {"do": "op", "op": name, "args": [argument(each) for each in args]}
    if named:
        step["named"] = {key: argument(value) for key, value in named.items()}
    if out is not None:
        step["out"] = out
    if mode:
        step["mode"] = mode
    return refuse(step, refused) if refused else step


def index(*items: Any) -> dict[str, Any]:
    def item(value: Any) -> dict[str, Any]:
        match value:
            case slice():
                return {"slice": [value.start, value.stop, value.step]}
            case None:
                return {"new_axis": True}
            case bool():
                return {"boolean": value}
            case int():
                return {"integer": value}
            case str():
                return {"tensor": value}
        return {"ellipsis": True}

    return {"index": [item(each) for each in items]}


def backward(*tensors: str, **options: Any) -> Step:
    return {"do": "backward", "tensors": list(tensors), **options}


def gradients(outputs: list[str], inputs: list[str], out: list[str | None], **options: Any) -> Step:
    return {"do": "gradients", "outputs": outputs, "inputs": inputs, "out": out, **options}


def grad(of: str, out: str) -> Step:
    return {"do": "grad", "of": of, "out": out}


def no_grad_of(of: str) -> Step:
    return {"do": "no_grad_of", "of": of}


def read(*names: str) -> list[Step]:
    return [{"do": "read", "of": name} for name in names]


def describe(*names: str) -> list[Step]:
    return [{"do": "describe", "of": name} for name in names]


def reads_grad(of: str) -> list[Step]:
    return [grad(of, f"{of}.grad"), *read(f"{of}.grad")]


def hook(of: str, name: str, kind: str = "tensor", **options: Any) -> Step:
    return {"do": "hook", "of": of, "name": name, "kind": kind, **options}


def node_hook(of: str, name: str, kind: str = "after", **options: Any) -> Step:
    return {"do": "node_hook", "of": of, "name": name, "kind": kind, **options}


def square(of: str, out: str, factor: float) -> Step:
    return {"do": "square", "of": of, "out": out, "factor": factor}


def refuse(step: Step, reason: str) -> Step:
    return {**step, "refused": reason}


def repeat(times: int, *steps: Step) -> Step:
    return {"do": "repeat", "times": times, "steps": list(steps)}


HOOKS_RUN: Step = {"do": "hooks_run"}


def scenario(name: str, *steps: Any, **options: Any) -> Scenario:
    flat: list[Step] = []
    for step in steps:
        flat.extend(step if isinstance(step, list) else [step])
    return {"name": name, **options, "steps": flat}


A = tensor("a", [1.0, 2.0, 3.0], grad=True)
SQUARE = [A, op("mul", "a", "a", out="h"), op("sum", "h", out="l")]

LEAVES = [
    scenario("gradient of a square", *SQUARE, backward("l"), reads_grad("a"), describe("a", "h", "l")),
    scenario(
        "two backwards add up",
        A,
        *[step for _ in range(2) for step in (op("mul", "a", 3.0, out="h"), op("sum", "h", out="l"), backward("l"))],
        reads_grad("a"),
    ),
    scenario(
        "a cleared gradient is none", *SQUARE, backward("l"), {"do": "set_grad", "of": "a", "to": None}, no_grad_of("a")
    ),
    scenario(
        "a set gradient is added to",
        *SQUARE,
        tensor("g", [10.0, 20.0, 30.0]),
        {"do": "set_grad", "of": "a", "to": "g"},
        backward("l"),
        reads_grad("a"),
    ),
    scenario("a non-leaf has no gradient", *SQUARE, backward("l"), no_grad_of("h")),
    scenario(
        "retain_grad keeps a non-leaf's",
        *SQUARE,
        {"do": "retain_grad", "of": "h"},
        backward("l"),
        reads_grad("h"),
        describe("h"),
    ),
    scenario(
        "retain_grad of a tensor without gradient",
        tensor("a", [1.0]),
        refuse({"do": "retain_grad", "of": "a"}, "REQUIRES_GRAD"),
    ),
    scenario(
        "detach begins a new leaf",
        *SQUARE,
        op("detach", "h", out="d"),
        describe("d"),
        op("sum", "d", out="m"),
        refuse(backward("m"), "NO_GRAD_FN"),
    ),
    scenario(
        "requires_grad of a leaf",
        tensor("a", [1.0, 2.0]),
        {"do": "requires_grad", "of": "a", "to": True},
        op("exp", "a", out="h"),
        op("sum", "h", out="l"),
        backward("l"),
        reads_grad("a"),
    ),
    scenario(
        "requires_grad of a non-leaf stays",
        *SQUARE,
        refuse({"do": "requires_grad", "of": "h", "to": False}, "REQUIRES_GRAD"),
    ),
    scenario(
        "integers take no gradient",
        tensor("a", [1, 2], dtype="int64"),
        refuse({"do": "requires_grad", "of": "a", "to": True}, "REQUIRES_GRAD"),
    ),
    scenario("no_grad records nothing", A, op("mul", "a", "a", out="h", mode="no_grad"), describe("h")),
    scenario(
        "set_data keeps the leaf",
        A,
        tensor("b", [5.0, 6.0, 7.0]),
        {"do": "set_data", "of": "a", "to": "b"},
        op("mul", "a", "a", out="h"),
        op("sum", "h", out="l"),
        backward("l"),
        reads_grad("a"),
        read("a"),
    ),
    scenario(
        "a broadcast gradient has the leaf's shape",
        A,
        tensor("x", [1.0] * 6, [2, 3]),
        op("mul", "x", "a", out="h"),
        op("sum", "h", out="l"),
        backward("l"),
        reads_grad("a"),
    ),
]

GRADIENTS = [
    scenario(
        "backward with a gradient",
        A,
        op("mul", "a", "a", out="h"),
        tensor("v", [1.0, 10.0, 100.0]),
        backward("h", gradients=["v"]),
        reads_grad("a"),
    ),
    scenario(
        "backward of several tensors",
        A,
        op("sum", "a", out="s"),
        op("prod", "a", out="p"),
        backward("s", "p"),
        reads_grad("a"),
    ),
    scenario(
        "backward for some inputs",
        A,
        tensor("b", [4.0, 5.0, 6.0], grad=True),
        op("mul", "a", "b", out="h"),
        op("sum", "h", out="l"),
        backward("l", inputs=["b"]),
        reads_grad("b"),
        no_grad_of("a"),
    ),
    scenario(
        "backward needs a scalar", A, op("mul", "a", "a", out="h"), refuse(backward("h"), "GRADIENT_NEEDS_SCALAR")
    ),
    scenario("a second backward is refused", *SQUARE, backward("l"), refuse(backward("l"), "GRAPH_FREED")),
    scenario(
        "retain_graph allows a second backward",
        *SQUARE,
        backward("l", retain_graph=True),
        backward("l"),
        reads_grad("a"),
    ),
    scenario(
        "create_graph differentiates twice",
        A,
        op("pow", "a", 3.0, out="h"),
        op("sum", "h", out="l"),
        gradients(["l"], ["a"], ["g"], create_graph=True),
        read("g"),
        describe("g"),
        op("sum", "g", out="m"),
        gradients(["m"], ["a"], ["gg"]),
        read("gg"),
    ),
    scenario("gradients leave leaves alone", *SQUARE, gradients(["l"], ["a"], ["g"]), read("g"), no_grad_of("a")),
    scenario(
        "gradients with grad_outputs",
        A,
        op("exp", "a", out="h"),
        tensor("v", [1.0, 0.0, 2.0]),
        gradients(["h"], ["a"], ["g"], grad_outputs=["v"]),
        read("g"),
    ),
    scenario(
        "an unused input is refused",
        *SQUARE,
        tensor("b", [1.0], grad=True),
        refuse(gradients(["l"], ["b"], ["g"]), "UNUSED_INPUT"),
    ),
    scenario(
        "an unused input may be none",
        *SQUARE,
        tensor("b", [1.0], grad=True),
        gradients(["l"], ["b", "a"], [None, "g"], allow_unused=True),
        read("g"),
    ),
    scenario(
        "a network's gradients",
        tensor("x", [0.5, -1.0, 2.0, 0.25], [2, 2]),
        tensor("w", [0.1, 0.2, -0.3, 0.4, 0.5, -0.6], [2, 3], grad=True),
        tensor("b", [0.01, 0.02, 0.03], grad=True),
        tensor("y", [2, 0], dtype="int64"),
        op("matmul", "x", "w", out="z"),
        op("add", "z", "b", out="s"),
        op("cross_entropy", "s", "y", out="l", label_smoothing=0.1, reduction=S("sum")),
        read("l"),
        backward("l"),
        reads_grad("w"),
        reads_grad("b"),
    ),
    scenario(
        "several results of one op",
        tensor("a", [3.0, 1.0, 2.0, 6.0, 5.0, 4.0], [2, 3], grad=True),
        op("sort", "a", out=["v", "i"], dim=1, descending=True),
        read("v", "i"),
        op("getitem", "v", index(slice(None, None, None), 0), out="f"),
        op("sum", "f", out="l"),
        backward("l"),
        reads_grad("a"),
    ),
    scenario(
        "a list of results",
        tensor("a", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        op("split", "a", 3, out=["p", "q", "r"]),
        read("p", "q", "r"),
        describe("r"),
    ),
    scenario(
        "indices",
        tensor("a", [float(i) for i in range(12)], [3, 4], grad=True),
        tensor("i", [2, 0], dtype="int64"),
        op("getitem", "a", index("i"), out="b"),
        read("b"),
        op("getitem", "a", index(slice(0, 3, 2), None, -1), out="c"),
        read("c"),
        op("getitem", "a", index(..., 1), out="d"),
        read("d"),
        op("sum", "b", out="l"),
        backward("l"),
        reads_grad("a"),
    ),
    scenario(
        "a mask",
        tensor("a", [1.0, -2.0, 3.0], grad=True),
        op("gt", "a", 0.0, out="m"),
        read("m"),
        op("getitem", "a", index("m"), out="b"),
        read("b"),
        op("sum", "b", out="l"),
        backward("l"),
        reads_grad("a"),
    ),
    scenario(
        "cat and stack",
        A,
        tensor("b", [4.0, 5.0, 6.0], grad=True),
        op("cat", ["a", "b"], out="c"),
        op("stack", ["a", "b"], 1, out="s"),
        read("c", "s"),
        op("mul", "c", "c", out="h"),
        op("sum", "h", out="l"),
        backward("l"),
        reads_grad("a"),
        reads_grad("b"),
    ),
]

IN_PLACE = [
    scenario("a leaf that requires a gradient", A, op("add_", "a", 1.0, refused="LEAF_IN_PLACE"), read("a")),
    scenario("a leaf without recording", A, op("add_", "a", 1.0, mode="no_grad"), read("a"), describe("a")),
    scenario(
        "a view of a leaf",
        A,
        op("getitem", "a", index(slice(0, 2, None)), out="v"),
        op("mul_", "v", 2.0, refused="LEAF_IN_PLACE"),
    ),
    scenario(
        "a saved value was changed",
        A,
        op("exp", "a", out="h"),
        op("sum", "h", out="l"),
        op("add_", "h", 1.0),
        refuse(backward("l"), "VERSION_CONFLICT"),
    ),
    scenario(
        "an in-place change is recorded",
        A,
        op("mul", "a", 2.0, out="h"),
        op("mul_", "h", 3.0),
        describe("h"),
        op("sum", "h", out="l"),
        backward("l"),
        reads_grad("a"),
    ),
    scenario(
        "a change through a view",
        tensor("a", [1.0, 2.0, 3.0, 4.0]),
        op("view", "a", [2, 2], out="v"),
        op("add_", "v", 10.0),
        read("a"),
        describe("v"),
    ),
    scenario(
        "an assignment to an index",
        tensor("a", [1.0, 2.0, 3.0]),
        tensor("b", 9.0),
        op("setitem_", "a", index(1), "b"),
        read("a"),
    ),
    scenario(
        "the result's dtype does not fit",
        tensor("a", [1, 2], dtype="int64"),
        op("add_", "a", 0.5, refused="DTYPE"),
        read("a"),
    ),
    scenario(
        "the operand does not fit",
        tensor("a", [1.0, 2.0]),
        tensor("b", [1.0] * 4, [2, 2]),
        op("add_", "a", "b", refused="SHAPE"),
        read("a"),
    ),
    scenario(
        "an inference tensor",
        tensor("x", [1.0]),
        op("exp", "x", out="h", mode="inference"),
        tensor("w", [2.0], grad=True),
        op("mul", "w", "h", out="m", refused="RUNTIME"),
    ),
]

HOOKS = [
    scenario("a hook sees a leaf's gradient", *SQUARE, hook("a", "first"), backward("l"), HOOKS_RUN, reads_grad("a")),
    scenario(
        "a hook changes a gradient", *SQUARE, hook("h", "ten", factor=10.0), backward("l"), HOOKS_RUN, reads_grad("a")
    ),
    scenario(
        "hooks run in order",
        *SQUARE,
        hook("h", "one", factor=2.0),
        hook("h", "two", factor=3.0),
        hook("a", "leaf"),
        backward("l"),
        HOOKS_RUN,
        reads_grad("a"),
    ),
    scenario(
        "a removed hook",
        *SQUARE,
        hook("h", "gone", factor=10.0),
        {"do": "remove_hook", "hook": "gone"},
        backward("l"),
        HOOKS_RUN,
        reads_grad("a"),
    ),
    scenario(
        "after accumulation",
        *SQUARE,
        hook("a", "accumulated", "accumulated"),
        backward("l"),
        HOOKS_RUN,
        reads_grad("a"),
    ),
    scenario(
        "a failing hook ends the backward",
        *SQUARE,
        hook("h", "broken", fails=True),
        refuse(backward("l"), "HOOK"),
        HOOKS_RUN,
        no_grad_of("a"),
        op("sum", "a", out="s"),
        read("s"),
    ),
    scenario(
        "a hook in gradients",
        *SQUARE,
        hook("h", "half", factor=0.5),
        gradients(["l"], ["a"], ["g"]),
        HOOKS_RUN,
        read("g"),
    ),
    scenario(
        "a tensor without gradient takes no hook", tensor("x", [1.0]), refuse(hook("x", "never"), "REQUIRES_GRAD")
    ),
]

# Bytes of three values of each dtype: small, negative or large, and a special one.
BYTES = {
    "float32": "0000803f0000c0c00000807f",
    "float64": "000000000000f03f00000000000018c0000000000000f07f",
    "float16": "003c00c6007c",
    "bfloat16": "803fc0c0807f",
    "int8": "01fa7f",
    "int16": "0100faffff7f",
    "int32": "01000000faffffffffffff7f",
    "int64": "0100000000000000faffffffffffffffffffffffffffff7f",
    "uint8": "01faff",
    "bool": "010001",
    "complex64": "0000803f000000400000c0c0000000000000000000008040",
    "complex128": "000000000000f03f000000000000004000000000000018c0000000000000000000000000000000000000000000001040",
    "uint16": "0100faffffff",
    "uint32": "01000000faffffffffffffff",
    "uint64": "0100000000000000faffffffffffffffffffffffffffffff",
}
COMPUTED = [name for name in BYTES if name not in ("uint16", "uint32", "uint64")]
PAIRS = [("int32", "float32"), ("int64", "float16"), ("bool", "int8"), ("uint8", "int8"), ("float16", "bfloat16"),
         ("complex64", "float64"), ("float32", "float64"), ("int16", "bool")]  # fmt: skip


def raw(out: str, dtype: str) -> Step:
    return {"do": "tensor", "out": out, "dtype": dtype, "shape": [3], "hex": BYTES[dtype]}


DTYPES = [
    *(scenario(f"{name} travels", raw("a", name), read("a"), describe("a")) for name in BYTES),
    *(scenario(f"{name} adds", raw("a", name), op("add", "a", "a", out="b"), read("b")) for name in COMPUTED),
    *(
        scenario(f"{one} and {other}", raw("a", one), raw("b", other), op("add", "a", "b", out="c"), describe("c"))
        for one, other in PAIRS
    ),
    scenario("a float next to integers", raw("a", "int32"), op("mul", "a", 0.5, out="b"), read("b")),
    scenario("an integer next to halves", raw("a", "float16"), op("mul", "a", 2, out="b"), read("b")),
    scenario("a complex number", raw("a", "complex64"), op("mul", "a", 1j, out="b"), read("b")),
    scenario("a conversion", raw("a", "float64"), op("to", "a", D("float32"), out="b"), read("b")),
    scenario(
        "a gradient in halves",
        {**raw("a", "bfloat16"), "requires_grad": True},
        op("mul", "a", "a", out="h"),
        op("sum", "h", out="l"),
        backward("l"),
        reads_grad("a"),
        describe("l"),
    ),
    scenario(
        "values that are not numbers", tensor("a", ["nan", "inf", "-inf", 0.0]), op("neg", "a", out="b"), read("b")
    ),
    scenario("no elements", tensor("a", [], [0, 3]), op("sum", "a", 1, out="b"), read("a", "b")),
    scenario("no dimensions", tensor("a", 2.5, grad=True), op("exp", "a", out="b"), backward("b"), reads_grad("a")),
]

X23 = tensor("a", [1.0] * 6, [2, 3])
ERRORS = [
    scenario(
        "shapes of matmul",
        X23,
        op("matmul", "a", "a", out="b", refused="SHAPE"),
        op("sum", "b", out="c", refused="DEPENDENCY_FAILED"),
        refuse({"do": "read", "of": "c"}, "DEPENDENCY_FAILED"),
        op("sum", "a", out="d"),
        read("d"),
    ),
    scenario("shapes of add", X23, tensor("b", [1.0, 2.0]), op("add", "a", "b", out="c", refused="SHAPE")),
    scenario("a view of another size", X23, op("view", "a", [4, 2], out="b", refused="SHAPE")),
    scenario("a dimension", X23, op("sum", "a", 5, out="b", refused="DIM_OUT_OF_RANGE")),
    scenario("an index", X23, op("getitem", "a", index(7), out="b", refused="INDEX_OUT_OF_RANGE")),
    scenario(
        "dtypes of matmul",
        X23,
        tensor("b", [1, 2, 3], [3, 1], dtype="int64"),
        op("matmul", "a", "b", out="c", refused="DTYPE"),
    ),
    scenario(
        "a choice",
        X23,
        tensor("b", [1.0] * 6, [2, 3]),
        op("mse_loss", "a", "b", out="l", reduction=S("median"), refused="ARGUMENT_VALUE"),
    ),
    scenario("a number of elements", X23, op("reshape", "a", [7], out="b", refused="SHAPE")),
    scenario("backward without a graph", X23, op("sum", "a", out="l"), refuse(backward("l"), "NO_GRAD_FN")),
    scenario(
        "the session survives",
        X23,
        *[op("matmul", "a", "a", out=f"b{number}", refused="SHAPE") for number in range(20)],
        op("sum", "a", out="s"),
        read("s"),
    ),
]

RAMP = {"do": "tensor", "out": "a", "dtype": "float32", "shape": [1024, 1024], "ramp": 251}
BULK = [
    scenario("up and down", RAMP, op("mul", "a", 2.0, out="b"), read("b"), op("sum", "a", out="s"), read("s")),
    scenario(
        "up and down through cuts",
        {**RAMP, "shape": [512, 1024]},
        op("mul", "a", 2.0, out="b"),
        read("b"),
        cuts=[200_000, 1_500_000],
    ),
]

ONE = tensor("w", 0.0)
STREAMS = [
    scenario("many ops without waiting", ONE, repeat(1000, op("add_", "w", 1.0)), read("w")),
    # More results than a byte can count, and as many less 256: they are two prepared ops.
    scenario(
        "prepared ops differ by their results",
        tensor("one", [5.0]),
        tensor("many", [float(i) for i in range(257)]),
        repeat(3, op("unbind", "one", out=["a"]), op("unbind", "many", out=[f"r{i}" for i in range(257)])),
        read("a", "r0", "r256"),
    ),
    scenario("prepared ops change numbers", ONE, repeat(50, op("add_", "w", {"round": 1.5})), read("w")),
    scenario(
        "prepared ops with lists",
        tensor("a", [1.0]),
        tensor("b", [2.0]),
        tensor("n", [0.0, 0.0]),
        repeat(20, op("cat", ["a", "b"], out="c"), op("add_", "n", "c")),
        read("n"),
    ),
    scenario(
        "exactly once through cuts",
        ONE,
        repeat(20, repeat(200, op("add_", "w", 1.0)), {"do": "wait"}),
        read("w"),
        cuts=[1000, 30_000],
    ),
    scenario(
        "training through cuts",
        tensor("x", [0.0, 1.0, 2.0, 3.0], [4, 1]),
        tensor("y", [1.0, 3.0, 5.0, 7.0], [4, 1]),
        tensor("w", [0.0], [1, 1], grad=True),
        tensor("b", [0.0], grad=True),
        repeat(
            25,
            repeat(
                4,
                op("matmul", "x", "w", out="z"),
                op("add", "z", "b", out="p"),
                op("mse_loss", "p", "y", out="l"),
                backward("l"),
                grad("w", "gw"),
                grad("b", "gb"),
                op("sub_", "w", "gw", mode="no_grad", alpha=0.1),
                op("sub_", "b", "gb", mode="no_grad", alpha=0.1),
                {"do": "set_grad", "of": "w", "to": None},
                {"do": "set_grad", "of": "b", "to": None},
            ),
            {"do": "wait"},
        ),
        read("w", "b"),
        cuts=[1000, 12_000],
    ),
    scenario(
        "refusals through cuts",
        X23,
        repeat(50, op("sum", "a", out="s")),
        *[op("matmul", "a", "a", out="b", refused="SHAPE") for _ in range(10)],
        op("sum", "a", out="d"),
        read("d"),
        cuts=[300, 3000],
    ),
    scenario(
        "hooks through cuts",
        *SQUARE,
        hook("h", "half", factor=0.5),
        *[backward("l", retain_graph=True) for _ in range(10)],
        HOOKS_RUN,
        reads_grad("a"),
        cuts=[300, 3000],
    ),
    scenario("released tensors", ONE, repeat(300, op("add", "w", 1.0, out="w")), {"do": "wait"}, read("w")),
    scenario(
        "PyTorch's random numbers",
        {"do": "seed", "seed": 7, "algorithm": "mt19937"},
        op("rand", [5], out="a"),
        op("randn", [5], out="b"),
        op("randperm", 6, out="p"),
        read("a", "b", "p"),
    ),
]

LEASES = [
    scenario(
        "an idle session lives",
        tensor("a", [1.0, 2.0]),
        {"do": "wait"},
        {"do": "sleep", "seconds": 2.0},
        op("sum", "a", out="s"),
        read("s"),
        lease_ms=900,
    ),
]

STEP = {
    "do": "program",
    "name": "step",
    "inputs": [
        {"name": "w", "dtype": "float32", "shape": [2, 1], "requires_grad": True},
        {"name": "x", "dtype": "float32", "shape": [4, 2]},
        {"name": "y", "dtype": "float32", "shape": [4, 1]},
    ],
    "numbers": 1,
    "steps": [
        op("matmul", "x", "w", out="z"),
        op("mse_loss", "z", "y", out="l"),
        backward("l"),
        grad("w", "g"),
        op("sub_", "w", "g", mode="no_grad", alpha={"number": 0}),
        {"do": "set_grad", "of": "w", "to": None},
    ],
    "outputs": ["l"],
}
DATA = [
    tensor("w", [0.5, -0.5], [2, 1], grad=True),
    tensor("x", [math.sin(i) for i in range(16)], [8, 2]),
    tensor("y", [math.cos(i) for i in range(8)], [8, 1]),
    op("getitem", "x", index(slice(0, 4, None)), out="xs"),
    op("getitem", "y", index(slice(0, 4, None)), out="ys"),
]


def run(inputs: list[str], out: list[str], rate: float, **options: Any) -> Step:
    return {"do": "run", "program": "step", "inputs": inputs, "numbers": [rate], "out": out, **options}


PROGRAMS = [
    scenario("a training step", *DATA, STEP, *[run(["w", "xs", "ys"], [f"l{i}"], 0.1) for i in range(4)],
             read("l0", "l1", "l2", "l3", "w"), no_grad_of("w")),
    scenario("numbers change", *DATA, STEP, *[run(["w", "xs", "ys"], [f"l{i}"], 0.1 / (i + 1)) for i in range(4)],
             read("l3", "w")),
    scenario("a repeated step", *DATA, STEP, run(["w", "xs", "ys"], ["l"], 0.1, repeat=25), read("l", "w")),
    scenario("an epoch of slices", *DATA, STEP, run(["w", "x", "y"], ["l"], 0.1, repeat=2, sliced=[1, 2], stacked=True),
             read("l", "w")),
    scenario("programs through cuts", *DATA, STEP, repeat(60, run(["w", "xs", "ys"], ["l"], 0.1), {"do": "wait"}),
             read("l", "w"), cuts=[500, 8000]),
]  # fmt: skip

CUSTOM_FUNCTIONS = [
    scenario("its derivative is that of its backward", A, square("a", "h", 10.0), op("sum", "h", out="l"), read("l"),
             backward("l"), reads_grad("a"), needs="custom functions"),
    scenario("two calls in a chain", A, square("a", "h", 2.0), square("h", "k", 3.0), op("sum", "k", out="l"),
             backward("l"), reads_grad("a"), needs="custom functions"),
    scenario("the derivative of its backward", A, square("a", "h", 10.0), op("sum", "h", out="l"),
             gradients(["l"], ["a"], ["g"], create_graph=True), read("g"), op("sum", "g", out="s"),
             backward("s"), reads_grad("a"), needs="custom functions"),
    scenario("between other ops", A, op("mul", "a", 2.0, out="b"), square("b", "h", 5.0), op("mul", "h", "a", out="k"),
             op("sum", "k", out="l"), backward("l"), reads_grad("a"), needs="custom functions"),
]  # fmt: skip

NODE_HOOKS = [
    scenario("after the node's formulas", *SQUARE, node_hook("h", "ten", factor=10.0), backward("l"), HOOKS_RUN,
             reads_grad("a"), needs="node hooks"),
    scenario("before the node's formulas", *SQUARE, node_hook("h", "three", "before", factor=3.0), backward("l"),
             HOOKS_RUN, reads_grad("a"), needs="node hooks"),
    scenario("in order with a tensor's hook", *SQUARE, node_hook("h", "after", factor=2.0),
             node_hook("h", "before", "before", factor=3.0), hook("h", "tensor", factor=5.0), backward("l"), HOOKS_RUN,
             reads_grad("a"), needs="node hooks"),
    scenario("a removed one", *SQUARE, node_hook("h", "gone", factor=10.0), {"do": "remove_hook", "hook": "gone"},
             backward("l"), HOOKS_RUN, reads_grad("a"), needs="node hooks"),
]  # fmt: skip

SUBJECTS: dict[str, list[Scenario]] = {
    "leaves": LEAVES,
    "gradients": GRADIENTS,
    "in_place": IN_PLACE,
    "hooks": HOOKS,
    "custom_functions": CUSTOM_FUNCTIONS,
    "node_hooks": NODE_HOOKS,
    "dtypes": DTYPES,
    "errors": ERRORS,
    "bulk": BULK,
    "streams": STREAMS,
    "leases": LEASES,
    "programs": PROGRAMS,
}
