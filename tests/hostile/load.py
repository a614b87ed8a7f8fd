"""Many sessions at once: `python -m tests.hostile.load --sessions 1000 --seconds 300`.

Each session trains a little, pauses, and trains again. The program measures the time of a step: two batches, with
forward, backward, update and a read of the loss. It measures one session alone, then all at once, then all with two
hostile clients. One hostile client floods the server with matrix products. The other requests megabytes without reading
them, uploads a byte a second, and keeps its calls open.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import numpy as np

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from tests.hostile.server_process import percentile, resident, served
from tests.hostile.training_step import IDS, W, data, read_loss, update
from tests.server.harness import Id, command, op, payload

_SESSIONS_PER_CONNECTION = 10
_PATIENCE = 120.0


class Client:
    """A session that takes steps. `times` has the seconds of each."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.seq = 1
        self.next_id = 100
        self.times: list[float] = []
        self.loss = float("inf")
        self.session_id = ""

    async def open(self) -> None:
        """A session with data and a weight."""
        self.session_id = (await self.stub.OpenSession(s.OpenSessionRequest(), timeout=_PATIENCE)).session_id
        for tensor_id, values in data().items():
            request = c.CreateRequest(session_id=self.session_id, id=tensor_id, payload=payload(values))
            request.requires_grad = tensor_id == W
            await self.stub.Create(request, timeout=_PATIENCE)

    async def run(self, *commands: s.Command) -> list[s.Result]:
        """A batch; its results. Raises AssertionError if one of them is refused."""
        run = s.RunRequest(session_id=self.session_id, writer=1, first_seq=self.seq, commands=commands)
        self.seq += len(commands)
        run.acknowledged_seq = self.seq - len(commands) - 1
        results = list((await self.stub.Run(run, timeout=_PATIENCE)).results)
        refused = [result.error.message for result in results if result.HasField("error")]
        assert not refused, refused
        return results

    async def step(self) -> None:
        """Forward, backward, update, and the loss."""
        first = self.next_id
        self.next_id += IDS
        began = time.perf_counter()
        await self.run(*update(first))
        results = await self.run(*read_loss(first))
        self.times.append(time.perf_counter() - began)
        self.loss = float(np.frombuffer(results[0].read.payload.data, np.float32)[0])

    async def work(self, until: float, think: float, rng: random.Random) -> None:
        """Steps with pauses in between."""
        await asyncio.sleep(rng.random() * think)
        while time.monotonic() < until:
            await self.step()
            await asyncio.sleep(rng.uniform(0.5, 1.5) * think)

    async def close(self) -> None:
        """End the session."""
        await self.stub.CloseSession(s.CloseSessionRequest(session_id=self.session_id), timeout=_PATIENCE)


async def flood(stub: Any, done: Counter[str]) -> None:
    """Batches of work as fast as they are taken, sixteen ahead of their answers."""
    client = Client(stub)
    await client.open()
    size = 128
    values = payload(np.ones((size, size), np.float32))
    await stub.Create(c.CreateRequest(session_id=client.session_id, id=50, payload=values), timeout=_PATIENCE)

    async def batch(first: int) -> None:
        run = s.RunRequest(session_id=client.session_id, writer=1, first_seq=first, acknowledged_seq=first - 1)
        for place in range(200):
            run.commands.add(op=op("matmul", Id(50), Id(50), outputs=[60 + place]), quiet=True)
        run.commands.add(release=c.ReleaseRequest(tensors=range(60, 260)), quiet=True)
        await stub.Run(run, timeout=_PATIENCE)
        done["flooded batches"] += 1

    pending: set[asyncio.Task[None]] = set()
    first = 1
    try:
        while True:
            while len(pending) < 16:
                pending.add(asyncio.ensure_future(batch(first)))
                first += 201
            finished, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in finished:
                if each.exception() is not None:
                    done[f"flood: {type(each.exception()).__name__}"] += 1
    finally:
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def read_nothing(channel: grpc.aio.Channel, done: Counter[str]) -> None:
    """Ask for megabytes on a stream and read none of them; upload a byte a second."""
    stub: Any = service_pb2_grpc.AutogradServiceStub(channel)
    client = Client(stub)
    await client.open()
    big = payload(np.zeros(1 << 17, np.float32))
    await stub.Create(c.CreateRequest(session_id=client.session_id, id=50, payload=big), timeout=_PATIENCE)

    async def asking() -> AsyncIterator[s.StreamRequest]:
        yield s.StreamRequest(attach=s.StreamAttach(session_id=client.session_id, writer=1, attempt=1))
        for seq in range(1, 100_000):
            run = s.RunRequest(first_seq=seq, commands=[command(c.ReadRequest(tensor=50))])
            done["asked for and not read, MiB"] = seq // 2
            yield s.StreamRequest(batch=run)

    async def trickling() -> AsyncIterator[s.UploadRequest]:
        yield s.UploadRequest(start=s.UploadStart(session_id=client.session_id, total_bytes=1 << 20))
        while True:
            await asyncio.sleep(1)
            yield s.UploadRequest(data=b"x")

    stream, upload = stub.Stream(asking()), stub.Upload(trickling())
    try:
        await asyncio.sleep(3600)
    finally:
        stream.cancel()
        upload.cancel()


async def phase(name: str, clients: Iterable[Client], seconds: float, think: float) -> list[float]:
    """Let clients work; the times of their steps."""
    clients = list(clients)
    for client in clients:
        client.times.clear()
    rng = random.Random(1)
    until = time.monotonic() + seconds
    await asyncio.gather(*(client.work(until, think, random.Random(rng.random())) for client in clients))
    times = [each for client in clients for each in client.times]
    p50, p99 = (1000 * percentile(times, share) for share in (0.5, 0.99))
    print(
        f"{name:<28} {len(clients):>5} sessions {len(times):>7} steps {len(times) / seconds:>7.1f}/s"
        f"  p50 {p50:>8.1f} ms  p99 {p99:>8.1f} ms  longest {1000 * max(times):>8.1f} ms",
        flush=True,
    )
    return times


async def load(sessions: int, seconds: float, think: float, workers: int) -> dict[str, float]:
    """All phases; p99 by phase, and the server's MiB. Raises AssertionError where a step fails or anything is left."""
    # One client may flood: it is held to its share by turns, and to memory by its quota.
    with served(f"--workers={workers}", "--max-sessions=20000", "--max-session-bytes=64MiB") as (address, front):
        count = 1 + sessions // _SESSIONS_PER_CONNECTION
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]
        channels = [grpc.aio.insecure_channel(address, options) for _ in range(count)]
        stubs = [service_pb2_grpc.AutogradServiceStub(channel) for channel in channels]
        before = resident(front)
        clients = [Client(stubs[number % count]) for number in range(sessions)]
        for start in range(0, sessions, 50):
            await asyncio.gather(*(client.open() for client in clients[start : start + 50]))
        opened = resident(front)
        alone = await phase("one alone", clients[:1], min(seconds, 15), 0.01)
        together = await phase("all", clients, seconds, think)
        # In a separate process, so that hostile clients do not delay the measuring ones.
        hostile = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.hostile.load", "--hostile", address, stdout=asyncio.subprocess.PIPE
        )
        assert hostile.stdout is not None
        assert await asyncio.wait_for(hostile.stdout.readline(), 60) == b"at it\n"
        beside = await phase("all beside two hostile ones", clients[2:], seconds, think)
        after = resident(front)
        hostile.terminate()
        said, _ = await asyncio.wait_for(hostile.communicate(), 60)
        assert hostile.returncode == 0, hostile.returncode
        print(f"hostile clients: {said.decode().strip()}")
        assert all(client.loss < 1.0 for client in clients if len(client.times) > 30), "a client did not learn"
        await asyncio.gather(*(client.close() for client in clients))
        info = await stubs[0].ServerInfo(s.ServerInfoRequest(), timeout=_PATIENCE)
        assert info.sessions <= 2, info.sessions  # the hostile ones never close
        for channel in channels:
            with contextlib.suppress(asyncio.CancelledError):
                await channel.close()
        p99 = {
            name: percentile(times, 0.99) for name, times in (("alone", alone), ("all", together), ("beside", beside))
        }
        print(
            f"p99 beside hostile ones: {p99['beside'] / p99['all']:.2f} of all without them, "
            f"{p99['beside'] / p99['alone']:.2f} of one alone"
        )
        print(f"the server's processes: {before:.0f} MiB idle, {opened:.0f} with all sessions, {after:.0f} at the end")
        return {**p99, "steps": len(beside), "before": before, "after": after}


async def be_hostile(address: str) -> None:
    """Flood and dawdle until SIGTERM; then say how much of it was done."""
    done: Counter[str] = Counter()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("at it", flush=True)
    async with grpc.aio.insecure_channel(address) as one, grpc.aio.insecure_channel(address) as other:
        tasks = [
            asyncio.ensure_future(flood(service_pb2_grpc.AutogradServiceStub(one), done)),
            asyncio.ensure_future(read_nothing(other, done)),
        ]
        await ended.wait()
        for each in tasks:
            each.cancel()
        for each in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(each, asyncio.CancelledError), each
    print(dict(done))


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each phase with all sessions")
    parser.add_argument("--think", type=float, default=5.0, help="seconds between the steps of a session")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--hostile", metavar="ADDRESS", help="be the two hostile clients of the server at an address")
    given = parser.parse_args()
    if given.hostile:
        asyncio.run(be_hostile(given.hostile))
        return
    asyncio.run(load(given.sessions, given.seconds, given.think, given.workers))


if __name__ == "__main__":
    main()
