"""Steps of an exported program, beside Python's compiled function: one server, in turns.

    python -m benchmarks.exported --address 127.0.0.1:50051 [--turns 9]

The step is W2 with Adam. Each turn makes 50 steps and reads the last loss. The program runs by Python's
`load_program`; by unary calls, as from any language; and by one call that repeats it 50 times.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable
from typing import Any

import grpc

import gradwire as torch
from gradwire._cli.workloads import SMALL, data
from gradwire.v1 import commands_pb2, programs_pb2, service_pb2, service_pb2_grpc, types_pb2

_STEPS = 50
_BATCH = 128


def main() -> None:
    """Print a step's milliseconds, and its ratios to Python's compiled step: median, range, at best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--address", required=True, help="of a server: host:port")
    options = parser.parse_args()
    torch.connect(options.address)
    x, y, _ = data(_BATCH, SMALL)
    runs = _runs(torch.tensor(x), torch.tensor(y), options.address)
    for run in runs.values():
        for _ in range(3):  # plans and kernels
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.turns):
        for name, run in runs.items():
            begun = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - begun) / _STEPS)
    first = seconds["compiled"]
    for name, each in seconds.items():
        ratios = sorted(one / other for one, other in zip(each, first, strict=True))
        shown = f"{statistics.median(each) * 1e3:.3f} ms (at best {min(each) * 1e3:.3f})"
        spread = f"{ratios[0]:.2f}-{ratios[-1]:.2f}, at best {min(each) / min(first):.2f}"
        print(f"{name:14} {shown}  {statistics.median(ratios):.2f} x ({spread})")


def _runs(x: Any, y: Any, address: str) -> dict[str, Callable[[], object]]:
    step = _step()
    step(x, y)
    content = io.BytesIO()
    torch.export(step, x, y, path=content)
    content.seek(0)
    loaded = torch.load_program(content)["program"]
    compiled = torch.compile(step)

    def steps(function: Callable[..., Any]) -> Callable[[], object]:
        def run() -> object:
            for _ in range(_STEPS - 1):
                function(x, y)
            return function(x, y).item()

        return run

    unary, repeated = _unary(content.getvalue(), x.numpy(), y.numpy(), address)
    return {"compiled": steps(compiled), "load_program": steps(loaded), "unary calls": unary, "repeated": repeated}


def _step() -> Callable[[Any, Any], Any]:
    nn = torch.nn
    net = nn.Sequential(nn.Linear(SMALL[0], SMALL[1]), nn.ReLU(), nn.Linear(SMALL[1], SMALL[2]))
    optimizer = torch.optim.Adam(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _unary(content: bytes, x: Any, y: Any, address: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Steps by unary calls, with and without repetition, in a session of their own."""
    stub = service_pb2_grpc.AutogradServiceStub(grpc.insecure_channel(address))
    session = stub.OpenSession(service_pb2.OpenSessionRequest()).session_id

    def create(dtype: Any, shape: Any, raw: bytes) -> int:
        payload = types_pb2.Payload(dtype=dtype, shape=shape, data=raw)
        return int(stub.Create(commands_pb2.CreateRequest(session_id=session, payload=payload)).tensor.id)

    file = create(types_pb2.DTYPE_UINT8, [len(content)], content)
    program = stub.LoadProgram(programs_pb2.LoadProgramRequest(session_id=session, file=file)).programs[0]
    request = programs_pb2.RunProgramRequest(session_id=session, hash=program.hash, inputs=program.inputs)
    request.named.add(name="x", id=create(types_pb2.DTYPE_FLOAT32, x.shape, x.tobytes()))
    request.named.add(name="y", id=create(types_pb2.DTYPE_INT64, y.shape, y.tobytes()))
    request.outputs.append(1)
    release = commands_pb2.ReleaseRequest(session_id=session, tensors=[1])

    def run(count: int) -> bytes:
        raw = b""
        for left in reversed(range(count)):
            stub.RunProgram(request)
            if not left:
                raw = stub.Read(commands_pb2.ReadRequest(session_id=session, tensor=1)).payload.data
            stub.Release(release)
        return raw

    def once() -> object:
        request.repeat = 1
        return run(_STEPS)

    def repeated() -> object:
        request.repeat = _STEPS
        return run(1)

    return once, repeated


if __name__ == "__main__":
    main()
