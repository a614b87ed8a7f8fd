"""Measure a cluster of three machines, in network namespaces where root runs this: `python -m benchmarks.cluster`.

Starts the cluster and ends it. Prints what is measured, what it is to be at most, and whether it is. Takes about five
minutes; `--only worker front` and the like choose parts. The exit status is 1 if something is not as it is to be.

Times of calls are compared with a single server's, in turns. After each kind of failure, the weights of a training with
dropout and Adam, its state and the next random numbers are compared with those of an undisturbed training, bit for bit.
Ten random failures in a row are those of tests/client/test_partitions.py.
"""

import argparse
import itertools
import multiprocessing
import os
import signal
import statistics
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradwire
from benchmarks.cluster_machines import COUNT, FAILURES, LIMIT_BYTES, PARTITIONS, Failure, Machines, machines
from gradwire._base.errors import GradwireMemoryError
from tests.client.sharing import train
from tests.server.harness import until

ROUNDS, CALLS = 80, 50
SESSIONS = 200
IDLE_SECONDS, SETTLE_SECONDS = 30.0, 5.0
CLIENTS, TENSOR_FLOATS = 6, 16_384
BEYOND_SECONDS = 2.0  # for which a client that was refused tries again
TRIES = 3  # failures of each kind
FIRST, BETWEEN, HEALED_AFTER = 10, 15, 7  # steps of a training
STEPS = FIRST + BETWEEN * TRIES
HEALING_SECONDS = 1.0  # before each step after a machine came back
HEAD_STEPS = (10, 25)


@dataclass
class Table:
    """The rows that were measured, each printed at once."""

    missed: list[str] = field(default_factory=list)

    def row(self, what: str, found: str, bound: str = "", holds: bool = True) -> None:
        """Print a row. `bound` is what it is to be."""
        print(f"| {what} | {found} | {bound} | {('yes' if holds else '**NO**') if bound else ''} |", flush=True)
        if not holds:
            self.missed.append(what)


def own_bytes(pid: int) -> int:
    """Memory that a process shares proportionally (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_idle(cluster: Machines, table: Table) -> None:
    """Memory and computing of a machine that joined, and serves nobody."""
    time.sleep(SETTLE_SECONDS)
    kinds = cluster.processes(COUNT - 1)
    before = {pid: cpu_seconds(pid) for pid in kinds}
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)
    took = time.monotonic() - began
    sizes, used = defaultdict[str, int](int), defaultdict[str, float](float)
    for pid, kind in kinds.items():
        sizes[kind] += own_bytes(pid)
        used[kind] += cpu_seconds(pid) - before[pid]
    size, share = sum(sizes.values()) / 2**20, 100 * sum(used.values()) / took
    parts = ", ".join(f"{kind} {sizes[kind] / 2**20:.0f} MiB {100 * used[kind] / took:.1f} %" for kind in sizes)
    table.row("idle machine, memory (PSS)", f"{size:.0f} MiB", "≤ 250 MiB", size <= 250)
    table.row(f"idle machine, of a core, in {took:.0f} s", f"{share:.1f} %", "≤ 3 %", share <= 3)
    table.row("of that", parts)


def round_trip(session: gradwire.Session) -> float:
    """Median seconds of an op whose value is waited for."""
    with session:
        x = gradwire.ones(2)
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            (x + 1).sum().item()
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure_round_trip(cluster: Machines, table: Table) -> None:
    """Compare a node's round trip, and the opening of sessions, with a single server's, in turns."""
    process, address = cluster.start_single()
    addresses = {"node": cluster.addresses, "single": address}
    try:
        sessions = {name: gradwire.connect(each) for name, each in addresses.items()}
        times: dict[str, list[float]] = {name: [] for name in sessions}
        for turn in range(ROUNDS + 1):
            # The first turn warms up. Who begins changes, for the first one waits longer for a core.
            for name in list(sessions)[:: 1 if turn % 2 else -1]:
                found = round_trip(sessions[name])
                if turn:
                    times[name].append(found)
        ratio = statistics.median(one / other for one, other in zip(times["node"], times["single"], strict=True))
        micros = [f"{statistics.median(each) * 1e6:.0f} µs" for each in times.values()]
        table.row("round trip of a small op at a node, and at a single server", " and ".join(micros))
        table.row("median ratio of the turns", f"{ratio:.3f}", "≤ 1.05", ratio <= 1.05)
        for session in sessions.values():
            session.close()
        measure_opening(addresses, table)
    finally:
        process.terminate()
        process.wait()


def measure_opening(addresses: dict[str, str], table: Table) -> None:
    """Open sessions one after the other, in turns, and count where they are."""
    opened: dict[str, list[gradwire.Session]] = {name: [] for name in addresses}
    times: dict[str, list[float]] = {name: [] for name in addresses}
    for _ in range(SESSIONS):
        for name, address in addresses.items():
            began = time.perf_counter()
            opened[name].append(gradwire.connect(address))
            times[name].append(time.perf_counter() - began)
    counts = sorted(Counter(each.address for each in opened["node"]).values())
    even = SESSIONS / COUNT
    holds = len(counts) == COUNT and max(abs(each - even) for each in counts) <= 0.1 * even
    table.row(f"{SESSIONS} sessions on {COUNT} nodes", ", ".join(map(str, counts)), "±10 % of even", holds)
    quantiles = {name: statistics.quantiles(each, n=100) for name, each in times.items()}
    for name, found in quantiles.items():
        table.row(f"opening a session, {name}", f"p50 {found[49] * 1e3:.1f} ms, p99 {found[98] * 1e3:.1f} ms")
    for each in itertools.chain(*opened.values()):
        each.close()


# Quotas.


def allocate(addresses: str, ready: Any, answers: Any) -> None:
    """A client that allocates as fast as it can, until some seconds after its first refusal. Runs in a process."""
    warnings.filterwarnings("ignore", "the token travels")
    with gradwire.connect(addresses) as session:
        size, held, taken, refused = TENSOR_FLOATS * 4, [], list[float](), 0.0
        ready.wait()
        while not refused or time.monotonic() < refused + BEYOND_SECONDS:
            try:
                made = gradwire.zeros(TENSOR_FLOATS)
                gradwire.sync()
            except GradwireMemoryError:
                refused = refused or time.monotonic()
                time.sleep(0.001)
                continue
            held.append(made)
            taken.append(time.monotonic())  # one clock for all processes
        answers.put((session.address, size, taken, refused))
        session.close()


def measure_quota(cluster: Machines, table: Table) -> None:
    """Let clients on all nodes allocate beyond their principal's limit."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(CLIENTS), context.Queue()
    clients = [context.Process(target=allocate, args=(cluster.addresses, ready, answers)) for _ in range(CLIENTS)]
    for each in clients:
        each.start()
    found = [answers.get(timeout=120) for _ in clients]
    for each in clients:
        each.join(60)
    size = found[0][1]
    taken = sorted(itertools.chain(*(times for _, _, times, _ in found)))
    refused = min(first for *_, first in found)
    # The most of any second before the first refusal.
    before = [at for at in taken if at <= refused]
    first, most = 0, 0
    for last, at in enumerate(before):
        while before[first] < at - 1.0:
            first += 1
        most = max(most, last + 1 - first)
    beyond, second = max(0, len(taken) * size - LIMIT_BYTES), most * size
    nodes = len({address for address, *_ in found})
    table.row(
        f"allocated beyond {LIMIT_BYTES >> 20} MiB by {CLIENTS} clients on {nodes} nodes", f"{beyond / 2**20:.1f} MiB",
        f"≤ {second / 2**20:.0f} MiB, those of a second", nodes == COUNT and beyond <= second,
    )  # fmt: skip


# Failures.


def measure_head(cluster: Machines, table: Table, expected: str) -> None:
    """Kill Ray's head twice while a client trains, and another one opens sessions and computes."""
    failed: list[Exception] = []
    done = threading.Event()
    calls = 0

    def use() -> None:
        nonlocal calls
        while not done.is_set():
            try:
                with gradwire.connect(cluster.addresses) as session:
                    assert (gradwire.ones(2) + 1).sum().item() == 4
                    session.close()
            except Exception as error:  # noqa: BLE001 - counted
                failed.append(error)
            calls += 3

    def disturb(step: int) -> None:
        if step in HEAD_STEPS:
            before = cluster.head()
            os.kill(before, signal.SIGKILL)
            until(lambda: cluster.head() not in (0, before), "another head")
            time.sleep(1.0)

    using = threading.Thread(target=use)
    using.start()
    try:
        same = train(cluster.addresses, STEPS, disturb) == expected
    finally:
        done.set()
        using.join(100)
    table.row(
        f"failed calls, of {calls} and {STEPS} steps, while Ray's head is killed twice", f"{len(failed)}",
        "0, same bits", same and not failed,
    )  # fmt: skip
    for error in failed[:3]:
        print(repr(error), file=sys.stderr)


class Steps:
    """Harms the machine that has the session at some steps of a training, and times the others."""

    def __init__(self, cluster: Machines, failure: Failure) -> None:
        self._cluster, self._failure = cluster, failure
        self._harmed: list[int] = []
        self.longest: list[float] = []  # after each failure
        self._began = 0.0

    def done(self, step: int) -> None:
        """Follow the training. What happens here is not timed."""
        if self.longest:
            self.longest[-1] = max(self.longest[-1], time.monotonic() - self._began)
        at = step - FIRST
        if at >= 0 and at % BETWEEN == 0 and len(self.longest) < TRIES:
            self._cluster.make_whole()
            self._harmed.append(self._cluster.here())
            self._failure.harm(self._cluster, self._harmed[-1])
            self.longest.append(0.0)
        elif at >= 0 and at % BETWEEN == HEALED_AFTER:
            self._failure.heal(self._cluster, self._harmed[-1])
        elif at >= 0 and at % BETWEEN > HEALED_AFTER and self._failure.heals:
            time.sleep(HEALING_SECONDS)  # Ray's other processes hear of it meanwhile; these steps are timed, too
        self._began = time.monotonic()


def measure_failure(cluster: Machines, table: Table, failure: Failure, expected: str) -> None:
    """Make some failures of a kind during a training."""
    steps = Steps(cluster, failure)
    same = train(cluster.addresses, STEPS, steps.done) == expected
    cluster.make_whole()
    longest = ", ".join(f"{each:.2f}" for each in steps.longest)
    table.row(
        f"{failure.name}: longest step", f"{longest} s, {'same' if same else 'OTHER'} bits",
        f"≤ {failure.bound:g} s, same bits", same and max(steps.longest) <= failure.bound,
    )  # fmt: skip


PARTS = ("idle", "calls", "quota", "head", *(each.part for each in (*FAILURES, *PARTITIONS)))


def measure(cluster: Machines, table: Table, parts: list[str]) -> None:
    """Measure the chosen parts."""
    if "idle" in parts:  # first, for it includes what a worker keeps of earlier sessions
        measure_idle(cluster, table)
    if "calls" in parts:
        measure_round_trip(cluster, table)
    if "quota" in parts:
        measure_quota(cluster, table)
    failures = [each for each in (*FAILURES, *PARTITIONS) if each.part in parts]
    if not failures and "head" not in parts:
        return
    process, address = cluster.start_single()
    try:
        expected = train(address, STEPS)
    finally:
        process.terminate()
        process.wait()
    if "head" in parts:
        measure_head(cluster, table, expected)
    for failure in failures:
        if failure in PARTITIONS and cluster.network is None:
            print("partitions need root and network namespaces", file=sys.stderr)
        else:
            measure_failure(cluster, table, failure, expected)


def main() -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parts = parser.parse_args().only
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster is ended
    table, began = Table(), time.monotonic()
    with machines() as cluster:
        how = "at 127.0.0.1" if cluster.network is None else "in network namespaces"
        print(f"three machines {how}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n", flush=True)
        print("| what | measured | to be | is |\n| --- | --- | --- | --- |")
        measure(cluster, table, parts)
        took = time.monotonic() - began
    missed = ", ".join(table.missed) or "nothing"
    print(f"\nload {os.getloadavg()[0]:.1f}; took {took:.0f} s; not as it is to be: {missed}")
    return bool(table.missed)


if __name__ == "__main__":
    raise SystemExit(main())
