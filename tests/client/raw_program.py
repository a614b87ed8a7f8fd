"""A client of another language, as it were: runs a program file by bare gRPC calls, and prints what came out as JSON.

    python -m tests.client.raw_program ADDRESS FILE X Y STEPS [SAVED]

X and Y are files of NumPy. It uses the messages and the stub only, none of the Python client.
"""

import json
import sys
from typing import Any

import grpc
import numpy as np

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import snapshots_pb2 as n
from gradwire.v1 import types_pb2 as t
from gradwire.v1.service_pb2_grpc import AutogradServiceStub

_DTYPES = {"float32": t.DTYPE_FLOAT32, "int64": t.DTYPE_INT64, "uint8": t.DTYPE_UINT8}
_NUMPY = {t.DTYPE_FLOAT32: np.float32, t.DTYPE_FLOAT64: np.float64, t.DTYPE_INT64: np.int64, t.DTYPE_UINT8: np.uint8}


class RawSession:
    """A session by bare calls."""

    def __init__(self, address: str) -> None:
        self.connect(address)
        self.id = self.stub.OpenSession(s.OpenSessionRequest(client="raw", lease_ms=60_000)).session_id

    def connect(self, address: str) -> None:
        """Connect, or connect again after a restart."""
        self.stub = AutogradServiceStub(grpc.insecure_channel(address))

    def create(self, array: Any) -> int:
        payload = t.Payload(dtype=_DTYPES[array.dtype.name], shape=array.shape, data=array.tobytes())
        return int(self.stub.Create(c.CreateRequest(session_id=self.id, payload=payload)).tensor.id)

    def read(self, tensor: int) -> Any:
        payload = self.stub.Read(c.ReadRequest(session_id=self.id, tensor=tensor)).payload
        return np.frombuffer(payload.data, _NUMPY[payload.dtype]).reshape(payload.shape)

    def load(self, content: bytes) -> None:
        """Load a program file; keep its answer."""
        self.file = self.create(np.frombuffer(content, np.uint8))
        answer = self.stub.LoadProgram(p.LoadProgramRequest(session_id=self.id, file=self.file))
        self.programs = {each.name: each for each in answer.programs}
        self.tensors = {each.name: each.spec.id for each in answer.tensors}

    def run(self, name: str, inputs: dict[str, int], **options: Any) -> list[int]:
        """Run a program of the file; return the ids of its outputs."""
        program = self.programs[name]
        request = p.RunProgramRequest(session_id=self.id, hash=program.hash, inputs=program.inputs, **options)
        for key, tensor in inputs.items():
            request.named.add(name=key, id=tensor)
        return [each.id for each in self.stub.RunProgram(request, wait_for_ready=True).outputs]

    def saved(self) -> bytes:
        """The file with the present values."""
        named = [n.NamedTensor(name=name, id=tensor) for name, tensor in self.tensors.items()]
        request = p.SaveProgramRequest(session_id=self.id, file=self.file, tensors=named)
        made: bytes = self.read(self.stub.SaveProgram(request).file.id).tobytes()
        return made


def main(address: str, file: str, x: str, y: str, steps: str, saved: str = "") -> None:
    session = RawSession(address)
    with open(file, "rb") as opened:
        session.load(opened.read())
    inputs = {"x": session.create(np.load(x)), "y": session.create(np.load(y))}
    losses = []
    for _ in range(int(steps)):
        (loss,) = session.run("program", inputs)
        losses.append(float(session.read(loss)))
        session.stub.Release(c.ReleaseRequest(session_id=session.id, tensors=[loss]))
    if saved:
        with open(saved, "wb") as written:
            written.write(session.saved())
    counters = {
        name: float(session.read(each)) for name, each in session.tensors.items() if session.read(each).ndim == 0
    }
    print(json.dumps({"losses": losses, "counters": counters}))
    session.stub.CloseSession(s.CloseSessionRequest(session_id=session.id))


if __name__ == "__main__":
    main(*sys.argv[1:])
