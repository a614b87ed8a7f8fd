"""Python's side of `python -m benchmarks.languages`, which documents the lines that it reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np

from benchmarks.languages import MODES
from gradwire._cli.workloads import RATE, SMALL, data, training
from gradwire.v1 import commands_pb2, service_pb2, service_pb2_grpc, types_pb2

TINY = (8, 8, 4)
LEASE_MS = 3_600_000  # of a session that nothing renews


def python_side(address: str) -> None:
    """Answer the lines of standard input with the seconds that Python's client takes."""
    import gradwire

    gradwire.connect(address)
    modes: dict[str, Callable[[int], object]] = {"unary": _unary(address), **_client(gradwire)}
    bulk: dict[str, Callable[[int], float]] = {**_large(gradwire), **_bare(address)}
    for line in sys.stdin:
        mode, count = line.split()
        if mode in bulk:
            seconds = bulk[mode](int(count))
        else:
            begun = time.perf_counter()
            modes[mode](int(count))
            seconds = time.perf_counter() - begun
        print(seconds, flush=True)


def _client(torch: Any) -> dict[str, Callable[[int], object]]:
    eager = training(torch, 128, SMALL, MODES["stream"])
    compiled = training(torch, 128, SMALL, MODES["program"], compiled=True)
    return {
        "stream": lambda _: eager(),
        "program": lambda _: compiled(),
        "repeated": _repeated(torch),
        "memory": lambda steps: training(torch, 4, TINY, steps)(),
    }


def _repeated(torch: Any) -> Callable[[int], object]:
    inputs, labels, weights = data(128, SMALL)
    x, y = torch.tensor(inputs), torch.tensor(labels)
    w1, w2 = (torch.tensor(each, requires_grad=True) for each in weights)
    b1, b2 = (torch.zeros(each, requires_grad=True) for each in SMALL[1:])

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, y)
        loss.backward()
        with torch.no_grad():
            for p in (w1, b1, w2, b2):
                p -= RATE * p.grad
                p.grad = None
        return loss

    compiled = torch.compile(step, repeat=MODES["repeated"])
    return lambda _: float(compiled().item())


def _large(torch: Any) -> dict[str, Callable[[int], float]]:
    def upload(mib: int) -> float:
        values = np.ones(mib << 18, np.float32)
        begun = time.perf_counter()
        torch.tensor(values)
        torch.sync()
        return time.perf_counter() - begun

    def download(mib: int) -> float:
        held = torch.ones(mib << 18)
        torch.sync()
        begun = time.perf_counter()
        held.numpy()
        return time.perf_counter() - begun

    return {"upload": upload, "download": download}


def _bare(address: str) -> dict[str, Callable[[int], float]]:
    stub = service_pb2_grpc.AutogradServiceStub(grpc.insecure_channel(address))
    opened = stub.OpenSession(service_pb2.OpenSessionRequest(lease_ms=LEASE_MS))
    session, chunk = opened.session_id, opened.limits.chunk_bytes

    def release(tensor: int) -> None:
        stub.Release(commands_pb2.ReleaseRequest(session_id=session, tensors=[tensor]))

    def parts(data: bytes) -> Iterator[service_pb2.UploadRequest]:
        start = service_pb2.UploadStart(session_id=session, total_bytes=len(data))
        yield service_pb2.UploadRequest(start=start)
        for begin in range(0, len(data), chunk):
            yield service_pb2.UploadRequest(data=data[begin : begin + chunk])

    def upload(mib: int) -> float:
        data = bytes(mib << 20)
        begun = time.perf_counter()
        transfer_id = stub.Upload(parts(data)).transfer_id
        seconds = time.perf_counter() - begun
        transfer = commands_pb2.Transfer(
            transfer_id=transfer_id, dtype=types_pb2.DTYPE_UINT8, shape=[len(data)], total_bytes=len(data)
        )
        release(stub.Create(commands_pb2.CreateRequest(session_id=session, transfer=transfer)).tensor.id)
        return seconds

    def download(mib: int) -> float:
        sizes = types_pb2.Argument(integers=types_pb2.IntList(values=[mib << 18]))
        made = stub.Op(commands_pb2.OpRequest(session_id=session, op="ones", args=[sizes])).outputs[0].id
        transfer = stub.Read(commands_pb2.ReadRequest(session_id=session, tensor=made)).transfer
        begun = time.perf_counter()
        request = service_pb2.DownloadRequest(session_id=session, transfer_id=transfer.transfer_id)
        received = sum(len(part.data) for part in stub.Download(request))
        seconds = time.perf_counter() - begun
        release(made)
        if received != mib << 20:
            raise SystemExit(f"{received} bytes came, not {mib << 20}")
        return seconds

    return {"bare-upload": upload, "bare-download": download}


def _unary(address: str) -> Callable[[int], None]:
    stub = service_pb2_grpc.AutogradServiceStub(grpc.insecure_channel(address))
    session = stub.OpenSession(service_pb2.OpenSessionRequest(lease_ms=LEASE_MS)).session_id
    on, off = types_pb2.GRAD_MODE_ENABLED, types_pb2.GRAD_MODE_DISABLED
    made: list[int] = []

    def op(name: str, *given: object, mode: int = on, **named: object) -> int:
        args = [types_pb2.Argument(tensor=each) if isinstance(each, int) else each for each in given]
        request = commands_pb2.OpRequest(session_id=session, op=name, args=args, grad_mode=mode)
        made.append(stub.Op(request).outputs[0].id)
        return made[-1]

    def sized(*sizes: int) -> types_pb2.Argument:
        return types_pb2.Argument(integers=types_pb2.IntList(values=sizes))

    x = op("randn", sized(128, 64))
    y = op("zeros", sized(128), types_pb2.Argument(name="dtype", dtype=types_pb2.DTYPE_INT64))
    parameters = [
        op("randn", sized(64, 256)),
        op("zeros", sized(256)),
        op("randn", sized(256, 10)),
        op("zeros", sized(10)),
    ]
    for each in parameters:
        ask = commands_pb2.SetRequiresGradRequest(session_id=session, tensor=each, requires_grad=True)
        stub.SetRequiresGrad(ask)

    def step() -> None:
        made.clear()
        hidden = op("relu", op("add", op("matmul", x, parameters[0]), parameters[1]))
        loss = op("cross_entropy", op("add", op("matmul", hidden, parameters[2]), parameters[3]), y)
        stub.Backward(commands_pb2.BackwardRequest(session_id=session, tensors=[loss]))
        for each in parameters:
            gradient = stub.Grad(commands_pb2.GradRequest(session_id=session, tensor=each)).grad.id
            made.append(gradient)
            op("sub_", each, op("mul", gradient, types_pb2.Argument(float=0.01), mode=off), mode=off)
            made.pop()  # the parameter itself
            stub.SetGrad(commands_pb2.SetGradRequest(session_id=session, tensor=each))
        stub.Release(commands_pb2.ReleaseRequest(session_id=session, tensors=made))

    def take(steps: int) -> None:
        for _ in range(steps):
            step()

    return take


if __name__ == "__main__":
    python_side(sys.argv[1])
