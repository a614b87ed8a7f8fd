"""Unary calls in a row, as quickly as they are answered, with and without the rate limiter, by one server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial

import grpc

from benchmarks.measure import Bound, Result, compare
from benchmarks.processes import hear, process
from gradwire.v1 import service_pb2, service_pb2_grpc

# A server that takes the rate limiter away at SIGUSR1 and puts it back at SIGUSR2. Two processes would differ by more.
_SERVE = """
import signal
from gradwire_server.app.cli import serve
from gradwire_server.rpc.rate_limiter import RateLimiter
enter = RateLimiter.enter
def let_all_in(*_):
    RateLimiter.enter = lambda self, caller: None
def let_few_in(*_):
    RateLimiter.enter = enter
signal.signal(signal.SIGUSR1, let_all_in)
signal.signal(signal.SIGUSR2, let_few_in)
serve(["--port=0", "--log-format=json", "--log-level=warning"])
"""
MANY = 200  # calls of a run


def one_after_the_other(turns: int) -> Iterator[Result]:
    """What the rate limiter costs who waits for his answers: a millisecond per hundred calls."""
    with process("-c", _SERVE, own_threads=True) as started:
        address = json.loads(hear(started))["address"]
        with grpc.insecure_channel(address) as channel:
            stub = service_pb2_grpc.AutogradServiceStub(channel)
            opened = stub.OpenSession(service_pb2.OpenSessionRequest())
            request = service_pb2.KeepAliveRequest(session_id=opened.session_id)

            mode = signal.SIGUSR2

            def call(number: signal.Signals, calls: int) -> None:
                nonlocal mode
                if number != mode:
                    os.kill(started.pid, number)
                    mode = number
                for _ in range(calls):
                    stub.KeepAlive(request)

            for calls, what in ((1, "p50"), (MANY, f"mean of {MANY}")):
                title = f"unary calls one after the other, at full speed: {what}"
                bound = Bound(1.1, 1.0) if calls == 1 else Bound()
                result = Result("suite", title, "the same without the turnstile", bound, unit="µs")
                ours, theirs = partial(call, signal.SIGUSR2, calls), partial(call, signal.SIGUSR1, calls)
                yield compare(result, ours, theirs, per=calls, turns=turns, turn_seconds=0.3)
