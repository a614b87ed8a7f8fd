"""How soon a cancelled long backward stops: `python -m tests.hostile.cancel_latency --nodes 100000`.

The time is measured over the wire, from the call of Cancel until the backward's answer arrives. Cancel is called at
random moments of the backward. Latencies of other sessions' calls are measured too, because the backward yields to
them.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from typing import Any

import grpc
import numpy as np

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from tests.hostile.server_process import percentile, served
from tests.server.harness import Id, command, op, payload

_PATIENCE = 120.0
_BATCH = 5000
X = 1


class Chain:
    """A session with a leaf and a chain of so many ops that comes of it."""

    def __init__(self, stub: Any, nodes: int) -> None:
        self.stub = stub
        self.session_id = stub.OpenSession(s.OpenSessionRequest(), timeout=_PATIENCE).session_id
        leaf = c.CreateRequest(session_id=self.session_id, id=X, requires_grad=True, payload=payload(np.ones(4)))
        stub.Create(leaf, timeout=_PATIENCE)
        self.seed, self.last = nodes + 10, X
        seed = c.CreateRequest(session_id=self.session_id, id=self.seed, payload=payload(np.ones(4)))
        stub.Create(seed, timeout=_PATIENCE)
        for first in range(1, nodes, _BATCH):
            ops = []
            for _ in range(min(_BATCH, nodes + 1 - first)):
                ops.append(command(op("sin", Id(self.last), outputs=[self.last + 1]), quiet=True))
                self.last += 1
            run = s.RunRequest(session_id=self.session_id, writer=1, first_seq=first, commands=ops)
            assert not stub.Run(run, timeout=_PATIENCE).results

    def backward(self) -> Any:
        """Begin one, of a graph that is kept; its future."""
        request = c.BackwardRequest(session_id=self.session_id, tensors=[self.last], retain_graph=True)
        request.gradients.append(self.seed)
        return self.stub.Backward.future(request, timeout=_PATIENCE)

    def cancel(self) -> None:
        """Stop it."""
        self.stub.Cancel(s.CancelRequest(session_id=self.session_id), timeout=_PATIENCE)

    def grad(self) -> bool:
        """Whether the leaf has a gradient."""
        answer = self.stub.Grad(c.GradRequest(session_id=self.session_id, tensor=X), timeout=_PATIENCE)
        return bool(answer.HasField("grad"))


class Neighbour(threading.Thread):
    """A session of the same worker that asks for little all the time; `times` has how long each call took."""

    def __init__(self, stub: Any) -> None:
        super().__init__()
        self.stub = stub
        self.session_id = stub.OpenSession(s.OpenSessionRequest(), timeout=_PATIENCE).session_id
        self.times: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.005):
            began = time.perf_counter()
            self.stub.Describe(c.DescribeRequest(session_id=self.session_id), timeout=_PATIENCE)
            self.times.append(time.perf_counter() - began)


def measure_latencies(nodes: int, times: int, seed: int) -> tuple[list[float], float]:
    """Seconds from each cancel to its answer, and of a whole backward. Raises AssertionError if a gradient is kept."""
    rng = random.Random(seed)
    with (
        served("--workers=1", f"--max-session-tensors={2 * nodes}") as (address, _),
        grpc.insecure_channel(address) as ch,
    ):
        stub = service_pb2_grpc.AutogradServiceStub(ch)
        chain, took = Chain(stub, nodes), []
        began = time.perf_counter()
        chain.backward().result()
        whole = time.perf_counter() - began
        stub.SetGrad(c.SetGradRequest(session_id=chain.session_id, tensor=X), timeout=_PATIENCE)
        neighbour = Neighbour(stub)
        neighbour.start()
        try:
            while len(took) < times:
                running = chain.backward()
                time.sleep(rng.random() * whole)
                began = time.perf_counter()
                chain.cancel()
                stopped = running.exception()
                if stopped is None:  # it was through
                    stub.SetGrad(c.SetGradRequest(session_id=chain.session_id, tensor=X), timeout=_PATIENCE)
                    continue
                took.append(time.perf_counter() - began)
                assert isinstance(stopped, grpc.RpcError)
                assert stopped.code() == grpc.StatusCode.CANCELLED, stopped
                assert not chain.grad(), "a backward that was cancelled left a gradient"
        finally:
            neighbour.over.set()
            neighbour.join()
        waited = [1000 * percentile(neighbour.times, share) for share in (0.5, 0.99)]
    shown = ", ".join(
        f"{name} {1000 * percentile(took, share):.1f} ms" for name, share in (("p50", 0.5), ("p99", 0.99))
    )
    print(f"{nodes} nodes, a whole backward {1000 * whole:.0f} ms; {times} cancelled ones ended after {shown}")
    print(f"calls of another session meanwhile: p50 {waited[0]:.1f} ms, p99 {waited[1]:.1f} ms")
    return took, whole


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    measure_latencies(given.nodes, given.times, given.seed)


if __name__ == "__main__":
    main()
