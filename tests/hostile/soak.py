"""Sessions one after the other: `python -m tests.hostile.soak --sessions 10000`.

Each makes leaves, a graph, second derivatives, a program, an unfinished upload and an unfetched answer. Then it is
closed. Every tenth session is cut off in the middle of a batch instead, and ends with its lease. The memory of the
server's processes must stay what it was after the first sessions.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import grpc
import numpy as np

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from gradwire.v1 import types_pb2 as t
from tests.hostile.server_process import resident, served
from tests.server.harness import Id, Remote, command, op

_LEASE_MS = 1000
_PROGRAM = p.Program(
    inputs=[p.ProgramInput(dtype=t.DTYPE_FLOAT32, shape=[64, 64], requires_grad=True)],
    steps=[p.ProgramStep(op=c.OpRequest(op="mul", args=[t.Argument(tensor=1), t.Argument(tensor=1)], outputs=[2]))],
    outputs=[2],
).SerializeToString()


def live(session: Remote, number: int) -> None:
    """What a session does."""
    rng = np.random.default_rng(number)
    x = session.create(rng.normal(size=(64, 64)), requires_grad=True)
    y = session.create(rng.normal(size=(64, 64)), requires_grad=True)
    product = session.op("matmul", Id(x), Id(y)).id
    total = session.op("sum", Id(session.op("tanh", Id(product)).id)).id
    session.backward(total, create_graph=True)
    gradient = session.stub.Grad(c.GradRequest(session_id=session.id, tensor=x)).grad.id
    session.backward(session.op("sum", Id(session.op("mul", Id(gradient), Id(gradient)).id)).id)
    session.run(*(command(op("randn", [64, 64], outputs=[1000 + place])) for place in range(20)))
    name = hashlib.sha256(_PROGRAM).digest()
    session.stub.RegisterProgram(p.RegisterProgramRequest(session_id=session.id, hash=name, program=_PROGRAM))
    session.stub.RunProgram(p.RunProgramRequest(session_id=session.id, hash=name, inputs=[x]))
    big = session.op("zeros", [1 << 19]).id
    session.stub.Read(c.ReadRequest(session_id=session.id, tensor=big))  # a transfer that is never fetched
    start = s.UploadStart(session_id=session.id, total_bytes=1 << 20)
    parts = [s.UploadRequest(start=start), s.UploadRequest(data=bytes(1 << 16))]
    session.stub.Upload(iter(parts))


def soak(sessions: int, warm: int, workers: int) -> tuple[float, float]:
    """Sessions in sequence; MiB after the first `warm` and after all. Raises AssertionError if anything is left."""
    with served(f"--workers={workers}", "--max-session-bytes=64MiB") as (address, front):
        before = 0.0
        for number in range(sessions):
            if number == warm:
                _wait_until_empty(address)
                before = resident(front)
            with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                stub = service_pb2_grpc.AutogradServiceStub(channel)
                abandoned = number % 10 == 0
                request = s.OpenSessionRequest(lease_ms=_LEASE_MS if abandoned else 0)
                session = Remote(channel, stub.OpenSession(request))
                if abandoned:  # left to its lease, its connection cut in the middle of a call
                    stub.Run.future(session.batch(*(command(op("randn", [64, 64])) for _ in range(100))))
                else:
                    live(session, number)
                    session.close()
        _wait_until_empty(address)
        return before, resident(front)


def _wait_until_empty(address: str) -> None:
    until = time.monotonic() + 60
    with grpc.insecure_channel(address) as channel:
        stub: Any = service_pb2_grpc.AutogradServiceStub(channel)
        while True:
            info = stub.ServerInfo(s.ServerInfoRequest(), timeout=60)
            if not info.sessions and not info.bytes:
                return
            assert time.monotonic() < until, f"{info.sessions} sessions and {info.bytes} bytes are left"
            time.sleep(0.2)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--warm", type=int, default=500, help="sessions before memory is looked at first")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    began = time.monotonic()
    before, after = soak(given.sessions, given.warm, given.workers)
    took = time.monotonic() - began
    print(f"{given.sessions} sessions in {took:.0f} s: {before:.1f} MiB after {given.warm}, {after:.1f} MiB after all")
    assert after <= 1.1 * before, "memory has grown by more than a tenth"


if __name__ == "__main__":
    main()
