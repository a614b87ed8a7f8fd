"""Changed messages over a socket: `python -m tests.hostile.over_socket --messages 1000000`.

Every call ends in time with a status other than INTERNAL and UNKNOWN. After the sessions are closed, the server holds
no memory of them.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import grpc

from gradwire.v1 import service_pb2 as s
from gradwire.v1 import service_pb2_grpc
from tests.hostile.dispatch import Wrong, check_answer
from tests.hostile.messages import Messages
from tests.hostile.server_process import resident, served

SERVICE = "/gradwire.v1.AutogradService/"
LIMITS = (
    "--max-session-bytes=8MiB",
    "--max-bytes=256MiB",
    "--max-session-tensors=1000",
    "--max-tensor-bytes=1MiB",
    "--gap-seconds=0",
)
_AT_ONCE = 32
_RENEWED = 2_000  # messages of a session
_PATIENCE = 120.0  # seconds for an answer; who takes longer hangs
_MISTAKES = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_STREAMS = ("Stream", "Upload", "Download", "Share")


class Attack:
    """Sends messages on a channel; `codes` counts what came of them."""

    def __init__(self, channel: grpc.Channel, seed: int) -> None:
        self.channel = channel
        self.stub: Any = service_pb2_grpc.AutogradServiceStub(channel)
        self.codes: Counter[str] = Counter()
        self.seeds = itertools.count(seed * 1_000_000)
        self.waiting: deque[tuple[str, bytes, Any]] = deque()
        self.calls = {name: channel.unary_unary(SERVICE + name) for name in self._unary()}
        self.rng = random.Random(seed)
        self.messages: Messages
        self.session_id = ""

    @staticmethod
    def _unary() -> list[str]:
        methods = s.DESCRIPTOR.services_by_name["AutogradService"].methods
        return [method.name for method in methods if method.name not in _STREAMS]

    def run(self, count: int) -> None:
        """Send so many. Raises Wrong."""
        for number in range(count):
            if number % _RENEWED == 0:
                self._renew()
            if self.rng.random() < 0.02:
                self._stream()
                continue
            method, raw = self.messages.draw()
            self.messages.seq += raw.count(b"\x12") if method == "Run" else 0  # wrong as often as right
            self.waiting.append((method, raw, self.calls[method].future(raw, timeout=_PATIENCE)))
            if len(self.waiting) >= _AT_ONCE:
                self._settle()
        self.end()

    def end(self) -> None:
        """Wait for what is under way, and close the session."""
        while self.waiting:
            self._settle()
        if self.session_id:
            self.stub.CloseSession(s.CloseSessionRequest(session_id=self.session_id), timeout=_PATIENCE)
            self.session_id = ""

    def _renew(self) -> None:
        self.end()
        self.session_id = self.stub.OpenSession(s.OpenSessionRequest(), timeout=_PATIENCE).session_id
        self.messages = Messages(next(self.seeds), self.session_id)
        for request in self.messages.first():
            self.stub.Create(request, timeout=_PATIENCE)

    def _settle(self) -> None:
        method, raw, future = self.waiting.popleft()
        try:
            answer = future.result()
        except grpc.RpcError as error:
            self._refused(method, raw, error)
        else:
            check_answer(method, raw, answer)
            if method == "Run":
                self.messages.seq = max(1, s.RunResponse.FromString(answer).applied_seq + 1)
            self.codes["OK"] += 1

    def _refused(self, method: str, raw: bytes, error: grpc.RpcError) -> None:
        code = error.code()
        self.codes[code.name] += 1
        if code in _MISTAKES or (code is grpc.StatusCode.DEADLINE_EXCEEDED and "Deadline Exceeded" in error.details()):
            raise Wrong(f"{method} {raw.hex()} ended with {code}: {error.details()}") from error

    def _stream(self) -> None:
        """A call of many messages, most of them right."""
        name = self.rng.choice(_STREAMS)
        parts = list(self._parts(name))
        sent = b"".join(part[:40] for part in parts)
        try:
            if name == "Upload":
                self.channel.stream_unary(SERVICE + name)(iter(parts), timeout=_PATIENCE)
            elif name == "Download":
                list(self.channel.unary_stream(SERVICE + name)(parts[0], timeout=_PATIENCE))
            else:
                list(self.channel.stream_stream(SERVICE + name)(iter(parts), timeout=_PATIENCE))
        except grpc.RpcError as error:
            self._refused(name, sent, error)
        else:
            self.codes["OK"] += 1

    def _parts(self, name: str) -> Iterator[bytes]:
        changed, rng, session_id = self.messages.changed, self.rng, self.session_id
        if name == "Stream":
            attach = s.StreamAttach(session_id=session_id, writer=1, attempt=rng.randrange(5))
            yield changed(s.StreamRequest(attach=attach).SerializeToString())
            for _ in range(rng.randrange(4)):
                yield changed(s.StreamRequest(batch=self.messages.batch()).SerializeToString())
        elif name == "Download":
            yield changed(s.DownloadRequest(session_id=session_id, transfer_id="x").SerializeToString())
        elif name == "Share":
            yield changed(s.ShareRequest(session_id=session_id, nonce="x" * 16).SerializeToString())
        else:
            start = s.UploadStart(session_id=session_id, total_bytes=rng.choice((0, 10, 1000, 1 << 30, 1 << 62)))
            yield changed(s.UploadRequest(start=start).SerializeToString())
            for _ in range(rng.randrange(3)):
                yield changed(s.UploadRequest(data=rng.randbytes(rng.randrange(600))).SerializeToString())


def attack(count: int, seed: int, workers: int) -> tuple[Counter[str], float, float]:
    """Send messages to a new server. Returns counts of outcomes, and MiB before and after. Raises Wrong."""
    with served(f"--workers={workers}", *LIMITS) as (address, front), grpc.insecure_channel(address) as channel:
        attacker = Attack(channel, seed)
        attacker.run(min(count, 500))  # what is made once, is made
        before = resident(front)
        attacker.run(count - min(count, 500))
        info = attacker.stub.ServerInfo(s.ServerInfoRequest(), timeout=_PATIENCE)
        if info.sessions or info.bytes:
            raise Wrong(f"{info.sessions} sessions and {info.bytes} bytes are left")
        return attacker.codes, before, resident(front)


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print(f"{given.messages} messages, seed {given.seed}, {given.workers} workers", flush=True)
    began = time.monotonic()
    codes, before, after = attack(given.messages, given.seed, given.workers)
    took = time.monotonic() - began
    print(f"{sum(codes.values())} calls in {took:.0f} s, each with a status: {dict(codes.most_common())}")
    print(f"memory of the server's processes: {before:.0f} MiB after 500 messages, {after:.0f} MiB after all")


if __name__ == "__main__":
    main()
