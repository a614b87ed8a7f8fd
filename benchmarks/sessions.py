"""Many sessions on one server: what they get done together, what they do to each other, what they cost in memory."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
import psutil

from benchmarks.measure import Bound, Fact, Result, Run, seconds
from benchmarks.processes import THREADS, client, hear, served, tell
from gradwire._cli.workloads import SMALL, round_trip, training

AT_ONCE = 8
IDLE = 100
TRIPS, FEWEST_TRIPS, TRIP_SECONDS = 400, 50, 4.0  # of a turn: so many, but no longer, unless they were too few
RUNS = 20  # of 20 steps each, per turn and session
MUST_IDLE = 100_000


def _has_compile() -> bool:
    import gradwire

    return hasattr(gradwire, "compile")


def _together(clients: list[subprocess.Popen[str]], result: Result, turns: int) -> Result:
    """What all get done together, against one of them alone."""
    for number in range(turns):
        times = {}
        for count in (1, len(clients)) if number % 2 else (len(clients), 1):
            start = time.perf_counter()
            for each in clients[:count]:
                tell(each, f"run {RUNS}")
            for each in clients[:count]:
                hear(each)
            times[count] = (time.perf_counter() - start) / (RUNS * 20 * count)
        result.add(times[len(clients)], times[1], times[1] / times[len(clients)])
    return result


def at_once(turns: int) -> Iterator[Result]:
    """Eight clients, each a process with a session, taking W2 steps together, against one of them alone.

    What the machine's cores have to give is shown by as many processes that take the steps by NumPy, in a thread each.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, dict.fromkeys(THREADS, "1")))
        cores = len(os.sched_getaffinity(0))
        peers = [stack.enter_context(client("W2")) for _ in range(cores)]
        title = f"{cores} processes at once, W2 in NumPy by hand: total throughput"
        yield _together(peers, Result("suite", title, "one process", Bound(at_least=True)), turns)
    for compiled in (False, True) if _has_compile() else (False,):
        with ExitStack() as stack:
            address, _ = stack.enter_context(served())
            clients = [stack.enter_context(client("W2", address, compiled=compiled)) for _ in range(AT_ONCE)]
            bound = Bound(1.5, 1.8, at_least=True) if compiled else Bound()
            how = "compiled" if compiled else "eager"
            result = Result("suite", f"{AT_ONCE} sessions at once, W2 {how}: total throughput", "one session", bound)
            yield _together(clients, result, turns)


def _trips(trip: Run) -> Iterator[float]:
    start = time.perf_counter()
    for number in range(TRIPS):
        if number >= FEWEST_TRIPS and time.perf_counter() - start > TRIP_SECONDS:
            return
        yield seconds(trip)


def beside_a_busy_one(turns: int) -> Iterator[Result]:
    """The round trip of one session while another takes W3 steps without pause, against the same alone."""
    import gradwire

    with ExitStack() as stack:
        address, _ = stack.enter_context(served())
        neighbour = stack.enter_context(client("W3", address))
        session = gradwire.connect(address)
        stack.callback(session.close)
        trip = round_trip(gradwire)
        list(_trips(trip))
        results = {
            50: Result("suite", "RTT p50 while another session computes", "alone", unit="µs"),
            99: Result("suite", "RTT p99 while another session computes", "alone", Bound(5, 2), unit="µs"),
        }
        for number in range(turns):
            times: dict[bool, list[float]] = {}
            for busy in (True, False) if number % 2 else (False, True):
                if busy:
                    tell(neighbour, "loop")
                    time.sleep(0.1)
                times[busy] = list(_trips(trip))
                if busy:
                    tell(neighbour, "stop")
                    if int(hear(neighbour)) < 1:
                        raise SystemExit("the other session was given no time at all while this one asked")
            for percent, result in results.items():
                busy_time, alone = (float(np.percentile(times[busy], percent)) for busy in (True, False))
                result.add(busy_time, alone)
        yield from results.values()


def _resident(pid: int) -> int:
    """Bytes that a server's processes have for themselves."""
    root = psutil.Process(pid)
    return sum(int(each.memory_full_info().uss) for each in [root, *root.children(recursive=True)])


def memory() -> Iterator[Fact]:
    """What a server's memory grows by per session: idle with its connection open, and with W2's tensors."""
    import gradwire

    with served() as (address, pid), ExitStack() as stack:

        def opened() -> gradwire.Session:
            session = gradwire.connect(address)
            stack.callback(session.close)
            round_trip(gradwire)()
            return session

        for _ in range(10):
            opened()
        time.sleep(1)
        before = _resident(pid)
        kept = [opened() for _ in range(IDLE)]
        time.sleep(1)
        idle = (_resident(pid) - before) / IDLE
        held = f"{idle / 1e3:.0f} KB"
        yield Fact(
            f"server memory per idle session, of {IDLE}", held, f"≤ {MUST_IDLE / 1e3:.0f} KB", idle <= MUST_IDLE, idle
        )
        before = _resident(pid)
        models = []
        for session in kept[:20]:
            with session:
                run = training(gradwire, 128, SMALL, 2)
                run()
                models.append(run)
        grown = (_resident(pid) - before) / len(models)
        tensors = sum(rows * columns + columns for rows, columns in itertools.pairwise(SMALL)) * 4
        tensors += 128 * (SMALL[0] * 4 + 8)
        yield Fact(
            "server memory per session that trains W2", f"{grown / 1e3:.0f} KB, of it tensors {tensors / 1e3:.0f} KB"
        )
