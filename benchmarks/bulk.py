"""W4: large tensors to the server and back, each way, beside what the machine can do in the same run.

Over TCP loopback the measure is a bare gRPC stream of the same bytes in the same chunks between two processes: a
synchronous client that cuts an array into messages, a grpc.aio server that drops them, and the same backwards. With
shared memory it is memcpy, into memory that is new (as the tensor's is) and into memory that was used before.

    python -m benchmarks.bulk [--mib 256] [--turns 7]
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import grpc
import numpy as np

import gradwire

CHUNK = 1 << 20
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


async def serve_bare(size: int) -> None:
    """The bare server; prints its address."""
    values = memoryview(np.ones(size, np.uint8))

    async def up(requests: AsyncIterator[bytes], context: Any) -> bytes:
        received = 0
        async for part in requests:
            received += len(part)
        return str(received).encode()

    async def down(request: bytes, context: Any) -> None:
        for begin in range(0, size, CHUNK):
            await context.write(bytes(values[begin : begin + CHUNK]))

    server = grpc.aio.server(options=OPTIONS)
    handlers = {
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Down": grpc.unary_stream_rpc_method_handler(down),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


class Bare:
    """A bare stream of bytes to another process and back."""

    def __init__(self, values: Any) -> None:
        self.values = memoryview(values)
        command = [sys.executable, "-m", "benchmarks.bulk", "--bare", str(values.nbytes)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        channel = grpc.insecure_channel(self.process.stdout.readline().decode().strip(), OPTIONS)
        self._up, self._down = channel.stream_unary("/bare/Up"), channel.unary_stream("/bare/Down")

    def up(self) -> None:
        """To the other process."""
        size = self.values.nbytes
        got = self._up(bytes(self.values[begin : begin + CHUNK]) for begin in range(0, size, CHUNK))
        assert int(got) == size

    def down(self) -> None:
        """From there."""
        assert sum(len(part) for part in self._down(b"")) == self.values.nbytes


class Gradwire:
    """Tensors to a server and back."""

    def __init__(self, session: gradwire.Session, values: Any) -> None:
        self.session, self.values = session, values
        with session:
            self.held = gradwire.tensor(values)
        gradwire.sync()

    def up(self) -> None:
        """An array becomes a tensor."""
        with self.session:
            gradwire.tensor(self.values)
            self.session.sync()

    def down(self) -> None:
        """A tensor becomes an array."""
        assert self.held.numpy().nbytes == self.values.nbytes


def started_server() -> tuple[subprocess.Popen[bytes], str]:
    """`gradwire serve` on a port of its own."""
    command = [sys.executable, "-m", "gradwire", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    return process, process.stdout.readline().decode().split()[-1]


def turns(count: int, *works: Callable[[], object]) -> list[float]:
    """Median seconds of each, taking turns."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(count + 1):
        for work, into in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            if turn:  # the first is for warming up
                into.append(time.perf_counter() - begin)
    return [statistics.median(each) for each in times]


def connect(address: str, shared: bool) -> gradwire.Session:
    """A session whose large tensors go through shared memory, or do not."""
    os.environ["GRADWIRE_SHARED_MEMORY"] = "1" if shared else "0"
    return gradwire.connect(address)


def report(name: str, size: int, ours: float, **others: float) -> None:
    """A line of the table."""
    speeds = "; ".join(
        f"{other} {size / seconds / 1e9:.2f} GB/s: ratio **{seconds / ours:.2f}**" for other, seconds in others.items()
    )
    print(f"| {name} | {size / ours / 1e9:.2f} GB/s | {speeds} |", flush=True)


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk", description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the tensor")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_bare(args.bare))
        return
    values = np.random.default_rng(0).integers(0, 256, args.mib << 20, dtype=np.uint8)
    size, used = values.nbytes, np.ones(args.mib << 20, np.uint8)
    process, address = started_server()
    bare = Bare(values)
    try:
        print(f"{args.mib} MiB, medians of {args.turns} turns\n\n| way | gradwire | beside |\n| --- | --- | --- |")
        remote = Gradwire(connect(address, shared=False), values)
        for way in ("up", "down"):
            ours, theirs = turns(args.turns, getattr(remote, way), getattr(bare, way))
            report(f"TCP loopback, {way}", size, ours, bare_stream=theirs)
        shared = Gradwire(connect(address, shared=True), values)
        for way in ("up", "down"):
            works = (getattr(shared, way), lambda: values.copy(), lambda: np.copyto(used, values))
            ours, new, old = turns(args.turns, *works)
            report(f"shared memory, {way}", size, ours, memcpy_to_new_memory=new, memcpy_to_used_memory=old)
    finally:
        bare.process.kill()
        process.terminate()
        bare.process.wait()
        process.wait()


if __name__ == "__main__":
    main()
