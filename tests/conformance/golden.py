"""Golden vectors: bytes that every SDK must make or read alike. `make.py` writes them to golden.json.

Words of prepared calls follow the rule in the comment of `Prepare` (commands.proto). A program's hash is that of the
bytes as registered; an SDK may serialize differently, and must then hash its own bytes.
"""

import hashlib
import json
import struct
from typing import Any

from gradwire.v1 import commands_pb2, errors_pb2, programs_pb2, types_pb2

# Ids and doubles are places. Integers, strings, lists of numbers and complex numbers are not.
CALLS: list[dict[str, Any]] = [
    {"op": "add", "args": [{"tensor": 1}, {"tensor": 2}], "named": {"alpha": {"float": 0.5}}, "outputs": [11]},
    {"op": "mul", "args": [{"tensor": 1}, {"float": -2.5}], "outputs": [12]},
    {"op": "sub_", "args": [{"tensor": 2}, {"tensor": 1}], "named": {"alpha": {"integer": 2}}},
    {"op": "cat", "args": [{"tensors": [1, 2, 1]}, {"integer": 0}], "outputs": [13]},
    {"op": "sort", "args": [{"tensor": 1}], "named": {"descending": {"boolean": True}}, "outputs": [14, 15]},
    {"op": "getitem", "args": [{"tensor": 1}, {"index": [{"tensor": 3}]}], "outputs": [16]},
    {"op": "full", "args": [{"integers": [2, 2]}, {"float": 1.25}], "outputs": [17]},
]

PROGRAM = programs_pb2.Program(
    inputs=[programs_pb2.ProgramInput(dtype=types_pb2.DTYPE_FLOAT32, shape=[3], requires_grad=True)],
    numbers=1,
    steps=[
        programs_pb2.ProgramStep(
            op=commands_pb2.OpRequest(
                op="mul", args=[types_pb2.Argument(tensor=1), types_pb2.Argument(tensor=1)], outputs=[2]
            )
        ),
        programs_pb2.ProgramStep(op=commands_pb2.OpRequest(op="sum", args=[types_pb2.Argument(tensor=2)], outputs=[3])),
        programs_pb2.ProgramStep(backward=commands_pb2.BackwardRequest(tensors=[3])),
        programs_pb2.ProgramStep(grad=commands_pb2.GradRequest(tensor=1, id=4)),
        programs_pb2.ProgramStep(
            op=commands_pb2.OpRequest(
                op="sub_",
                args=[
                    types_pb2.Argument(tensor=1),
                    types_pb2.Argument(tensor=4),
                    types_pb2.Argument(name="alpha", number=0),
                ],
                grad_mode=types_pb2.GRAD_MODE_DISABLED,
            )
        ),
        programs_pb2.ProgramStep(set_grad=commands_pb2.SetGradRequest(tensor=1)),
    ],
    outputs=[3],
)

ERROR = errors_pb2.Error(
    code=3,
    reason=errors_pb2.REASON_SHAPE,
    message="mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
    metadata={"op": "matmul", "shape": "[2, 3]"},
)


def words(number: int, call: dict[str, Any]) -> bytes:
    """The words of a call, by the rule of `Prepare`."""
    return struct.pack("<Q", number) + b"".join(_places(call))


def _places(call: dict[str, Any]) -> list[bytes]:
    places = []
    for argument in [*call["args"], *call.get("named", {}).values()]:
        ((kind, value),) = argument.items()
        if kind == "float":
            places.append(struct.pack("<d", value))
        elif kind in ("tensor", "tensors"):
            places += [struct.pack("<Q", each) for each in ([value] if kind == "tensor" else value)]
        elif kind == "index":
            places += [struct.pack("<Q", item["tensor"]) for item in value if "tensor" in item]
    return places + [struct.pack("<Q", each) for each in call.get("outputs", [])]


def request(call: dict[str, Any]) -> commands_pb2.OpRequest:
    """The op of a call as a message."""
    made = commands_pb2.OpRequest(op=call["op"], outputs=call.get("outputs", []))
    for name, argument in [*(("", each) for each in call["args"]), *call.get("named", {}).items()]:
        ((kind, value),) = argument.items()
        added = made.args.add(name=name)
        if kind == "tensors":
            added.tensors.ids.extend(value)
        elif kind == "integers":
            added.integers.values.extend(value)
        elif kind == "index":
            added.index.items.extend(types_pb2.IndexItem(**item) for item in value)
        else:
            setattr(added, kind, value)
    return made


def text() -> str:
    """What golden.json should hold."""
    program = PROGRAM.SerializeToString(deterministic=True)
    vectors = {
        "prepared_calls": [
            {"number": number, **call, "words": words(number, call).hex()} for number, call in enumerate(CALLS)
        ],
        "programs": [{"bytes": program.hex(), "sha256": hashlib.sha256(program).hexdigest()}],
        "errors": [
            {
                "bytes": ERROR.SerializeToString(deterministic=True).hex(),
                "code": ERROR.code,
                "reason": "SHAPE",
                "message": ERROR.message,
                "metadata": dict(sorted(ERROR.metadata.items())),
            }
        ],
    }
    return json.dumps(vectors, indent=1) + "\n"
