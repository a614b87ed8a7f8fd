"""Messages that a hostile client might send, most of them nearly valid, so that they get far.

The ops' schemas give commands with arguments of every kind. Then some of their bytes are changed.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
from google.protobuf.message import Message

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import hooks_pb2 as h
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import types_pb2 as t
from gradwire_engine import REGISTRY
from gradwire_engine.core.schema import REQUIRED
from gradwire_server.session.commands import BY_METHOD

IDS = range(1, 30)
NAMES = sorted(REGISTRY)
# Integers that often cause errors.
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    256,
    65_535,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 32,
    (1 << 62),
    (1 << 63) - 1,
    -(1 << 63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-310, 1e38, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "mean", "sum", "none", "cpu", "cuda:0", "constant", "reflect", "ij,jk->ik", "i,i", "...", "\0", "é" * 50)
# Methods that take a message each, besides the commands.
OTHERS: dict[str, type[Message]] = {
    "Run": s.RunRequest,
    "KeepAlive": s.KeepAliveRequest,
    "Cancel": s.CancelRequest,
    "ServerInfo": s.ServerInfoRequest,
    "ListOps": s.ListOpsRequest,
    "ListSessions": s.ListSessionsRequest,
    "EndSession": s.EndSessionRequest,
}


class Messages:
    """Draws requests for a session. The same seed draws the same."""

    def __init__(self, seed: int, session_id: str = "") -> None:
        self.rng = random.Random(seed)
        self.session_id = session_id
        self.seq = 1  # of the next command, as the server knows it

    def one_of(self, *values: Any) -> Any:
        """One of the values."""
        return self.rng.choice(values)

    def a_tensor(self) -> int:
        """An id that is likely to name a tensor."""
        return self.rng.choice(IDS) if self.rng.random() < 0.95 else self.rng.choice(NUMBERS) & (1 << 64) - 1

    def number(self) -> int:
        """A whole number, mostly small."""
        return self.rng.randrange(-3, 6) if self.rng.random() < 0.8 else self.rng.choice(NUMBERS)

    def shape(self) -> list[int]:
        """Sizes, mostly small."""
        return [
            abs(self.number()) % (1 << 62) if self.rng.random() < 0.9 else self.number()
            for _ in range(self.rng.randrange(5))
        ]

    def payload(self) -> t.Payload:
        """Values: mostly as many as the shape tells."""
        shape = [self.rng.randrange(5) for _ in range(self.rng.randrange(4))]
        dtype, item = self.one_of((1, 4), (2, 8), (3, 2), (8, 8), (10, 1), (12, 16))
        size = int(np.prod(shape)) * item + (self.rng.random() < 0.1)
        return t.Payload(
            dtype=dtype, shape=shape if self.rng.random() < 0.9 else self.shape(), data=self.rng.randbytes(size)
        )

    def argument(self, kind: str, name: str) -> t.Argument:
        """An argument of a kind, or of another."""
        rng = self.rng
        if rng.random() < 0.05:
            kind = self.one_of("tensor", "integer", "integers", "none", "string", "tensors", "index")
        made = t.Argument(name=name)
        if kind == "tensor":
            made.tensor = self.a_tensor()
        elif kind == "tensors":
            made.tensors.ids.extend(self.a_tensor() for _ in range(rng.randrange(4)))
        elif kind == "integer":
            made.integer = self.number()
        elif kind == "integers":
            made.integers.values.extend(self.number() for _ in range(rng.randrange(5)))
        elif kind == "float":
            made.float = rng.choice(FLOATS)
        elif kind == "floats":
            made.floats.values.extend(rng.choice(FLOATS) for _ in range(rng.randrange(4)))
        elif kind == "boolean":
            made.boolean = rng.random() < 0.5
        elif kind == "string":
            made.string = rng.choice(TEXTS)
        elif kind == "dtype":
            made.dtype = rng.randrange(16)
        elif kind == "index":
            for _ in range(rng.randrange(4)):
                item = made.index.items.add()
                which = self.one_of("integer", "tensor", "new_axis", "ellipsis", "slice")
                if which == "integer":
                    item.integer = self.number()
                elif which == "tensor":
                    item.tensor = self.a_tensor()
                elif which == "slice":
                    item.slice.SetInParent()
                    for edge in ("start", "stop", "step"):
                        if rng.random() < 0.6:
                            setattr(item.slice, edge, self.number())
                else:
                    setattr(item, which, True)
        else:
            made.none.SetInParent()
        return made

    def op(self) -> c.OpRequest:
        """A call of some op, its arguments mostly of the kinds that it takes."""
        rng = self.rng
        name = rng.choice(NAMES)
        op = REGISTRY[name]
        request = c.OpRequest(op=name + ("_" if op.has_in_place and rng.random() < 0.2 else ""))
        for param in op.params:
            if param.default is not REQUIRED and rng.random() < 0.6:
                continue
            request.args.append(self.argument(_KINDS.get(param.kind.name, "none"), param.name))
        request.grad_mode = self.one_of(0, 0, 0, 1, 2, 3, 9)
        if rng.random() < 0.2:
            request.outputs.extend(rng.choice(IDS) for _ in range(self.one_of(1, 1, 1, 2, 3)))
        return request

    def request(self, which: str) -> Message:
        """A command's request."""
        kind = BY_METHOD[which].request
        tensor, tensors = self.a_tensor(), [self.a_tensor() for _ in range(self.rng.randrange(3))]
        drawn: dict[str, Any] = {
            "Op": self.op,
            "Create": lambda: c.CreateRequest(
                id=self.rng.choice(IDS), payload=self.payload(), requires_grad=self.rng.random() < 0.5
            ),
            "Backward": lambda: c.BackwardRequest(
                tensors=[tensor, *tensors], gradients=tensors, create_graph=self.rng.random() < 0.3, inputs=tensors
            ),
            "Gradients": lambda: c.GradientsRequest(outputs=[tensor], inputs=tensors, allow_unused=True),
            "Grad": lambda: c.GradRequest(tensor=tensor, id=self.rng.choice(IDS)),
            "SetGrad": lambda: c.SetGradRequest(tensor=tensor, grad=self.a_tensor()),
            "SetData": lambda: c.SetDataRequest(tensor=tensor, data=self.a_tensor()),
            "RetainGrad": lambda: c.RetainGradRequest(tensor=tensor),
            "SetRequiresGrad": lambda: c.SetRequiresGradRequest(tensor=tensor, requires_grad=self.rng.random() < 0.7),
            "ManualSeed": lambda: c.ManualSeedRequest(seed=self.rng.getrandbits(64) - (1 << 63)),
            "Describe": lambda: c.DescribeRequest(tensors=tensors),
            "Read": lambda: c.ReadRequest(tensor=tensor),
            "Release": lambda: c.ReleaseRequest(tensors=tensors),
            "Graph": lambda: c.GraphRequest(tensors=[tensor]),
            "RegisterProgram": self.registration,
            "RegisterHook": lambda: h.RegisterHookRequest(),
        }
        make = drawn.get(which)
        return kind() if make is None else make()

    def first(self) -> list[c.CreateRequest]:
        """Tensors for most of the ids, of several shapes and dtypes."""
        shapes = ([], [1], [2], [3], [4], [2, 3], [3, 3], [3, 2], [1, 3], [2, 2, 3], [1, 2, 4, 4], [0, 2])
        requests = []
        for tensor_id in IDS:
            shape = shapes[tensor_id % len(shapes)]
            number, name = self.one_of((1, "float32"), (1, "float32"), (2, "float64"), (8, "int64"), (10, "bool"))
            values = np.array([self.rng.randrange(0, 3) for _ in range(int(np.prod(shape)))]).astype(name)
            payload = t.Payload(dtype=number, shape=shape, data=values.tobytes())
            requests.append(c.CreateRequest(session_id=self.session_id, id=tensor_id, payload=payload))
            requests[-1].requires_grad = number in (1, 2) and self.rng.random() < 0.6
        return requests

    def registration(self) -> p.RegisterProgramRequest:
        """A program of some ops."""
        program = p.Program(inputs=[p.ProgramInput(dtype=1, shape=[2]) for _ in range(2)])
        for _ in range(self.rng.randrange(1, 4)):
            program.steps.add(op=self.op())
        raw = self.changed(program.SerializeToString())
        return p.RegisterProgramRequest(hash=hashlib.sha256(raw).digest(), program=raw)

    def batch(self) -> s.RunRequest:
        """A batch of the writer's next commands, or of others."""
        run = s.RunRequest(session_id=self.session_id, writer=1, first_seq=self.seq)
        for _ in range(self.rng.randrange(1, 12)):
            which = self.one_of(*("Op",) * 20, "Create", *BY_METHOD)
            command = run.commands.add()
            getattr(command, BY_METHOD[which].name).MergeFrom(self.request(which))
            command.quiet = self.rng.random() < 0.2
        if self.rng.random() < 0.1:
            run.first_seq = self.rng.randrange(5)
            run.acknowledged_seq = self.rng.randrange(100)
        return run

    def changed(self, raw: bytes) -> bytes:
        """Some bytes changed, cut out, doubled or put elsewhere; often none."""
        rng = self.rng
        data = bytearray(raw)
        for _ in range(self.one_of(*(0,) * 9, 1, 1, 2, 5)):
            if not data:
                break
            at, size = rng.randrange(len(data)), rng.randrange(1, 9)
            what = rng.randrange(5)
            if what == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                data[at] = rng.randrange(256)
            elif what == 2:
                del data[at : at + size]
            elif what == 3:
                data[at:at] = data[at : at + size]
            else:
                data[at:at] = rng.randbytes(size)
        return bytes(data)

    def draw(self) -> tuple[str, bytes]:
        """A method, and its request's bytes."""
        method = self.one_of(*("Run", "Op") * 12, *BY_METHOD, *OTHERS)
        if method == "Run":
            request: Message = self.batch()
        elif method in OTHERS:
            request = OTHERS[method]()
            if method == "Cancel" and self.rng.random() < 0.5:
                request.through_seq, request.writer = self.rng.randrange(5), self.rng.randrange(3)  # type: ignore[attr-defined]
        else:
            request = self.request(method)
        if "session_id" in type(request).DESCRIPTOR.fields_by_name:
            request.session_id = self.session_id  # type: ignore[attr-defined]
        return method, self.changed(request.SerializeToString())


_KINDS = {
    "TENSOR": "tensor",
    "TENSOR_OR_NUMBER": "tensor",
    "TENSORS": "tensors",
    "NUMBER": "integer",
    "FLOAT": "float",
    "INTEGER": "integer",
    "BOOLEAN": "boolean",
    "STRING": "string",
    "DTYPE": "dtype",
    "DEVICE": "string",
    "INTEGERS": "integers",
    "FLOATS": "floats",
    "INDEX": "index",
    "NUMBER_OR_STRING": "string",
}
