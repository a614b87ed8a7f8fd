"""A discrete model of a cluster of any size: what opens, the Director and fail-over take. Needs SimPy: `.[bench]`.

    python -m benchmarks.cluster_model              prints a table for 3 to 3,000 nodes with 1,000 sessions each
    python -m benchmarks.cluster_model --calibrate  measures the costs on this machine first, in about a minute

What one step costs was measured on a real cluster of one machine (cluster_costs.py). The model adds what cannot be
measured there: how these steps queue when there are many. The Director is one thread; nodes report to it, and fronts
ask it for places and give up after 0.8 s. Clients of a lost node try the addresses that they know, a random one first.
Those servers then take its sessions over.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import simpy


@dataclass(frozen=True)
class Costs:
    """Seconds. The defaults are those that --calibrate gave on 2 cores, without other programs."""

    report: float = 465e-6  # Director's processor time of a report through Ray
    place: float = 500e-6  # the same of a placement among three nodes
    place_per_node: float = 2.3e-6  # of Placement.choose
    round_trip: float = 1.6e-3  # of an idle Director's call
    open: float = 12.2e-3  # processor time of a node and its client, with a log
    take_over: float = 29.6e-3  # the same, for a session of one small tensor
    check: float = 1.0  # until a server of a lost machine counts as silent
    silence: float = 3.0  # after which a client tries another server


#: What the program does, and would not be changed by a faster machine.
REPORT_SECONDS = 0.4
GIVE_UP_SECONDS = 0.8
LOOKUPS_AT_ONCE = 8


@dataclass
class Findings:
    """What a run found. Lists are in seconds."""

    opens: list[float] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)  # from a report's making to its end
    unplaced: int = 0
    busy: float = 0.0  # of the Director


class Cluster:
    """Nodes that report, clients that open sessions, and a Director. `opens` are per second, over all nodes."""

    def __init__(self, nodes: int, opens: float, costs: Costs, seed: int = 0) -> None:
        self.env = simpy.Environment()
        self.nodes, self.opens, self.costs = nodes, opens, costs
        self.random = random.Random(seed)
        self.director = simpy.Resource(self.env, 1)
        self.fronts = [simpy.Resource(self.env, 1) for _ in range(nodes)]
        self.found = Findings()

    def run(self, seconds: float) -> Findings:
        """Simulate some seconds."""
        for _ in range(self.nodes):
            self.env.process(self._report())
        self.env.process(self._arrive())
        self.env.run(until=seconds)
        self.found.busy /= seconds
        return self.found

    def _direct(self, cost: float) -> Iterator[Any]:
        """A call of the Director."""
        with self.director.request() as turn:
            yield turn
            yield self.env.timeout(cost)
            self.found.busy += cost
        yield self.env.timeout(self.costs.round_trip)

    def _report(self) -> Iterator[Any]:
        """A node reports at its interval, and not before its last report was answered."""
        yield self.env.timeout(self.random.uniform(0, REPORT_SECONDS))
        while True:
            made = self.env.now
            yield from self._direct(self.costs.report)
            self.found.reports.append(self.env.now - made)
            yield self.env.timeout(-(self.env.now - made) % REPORT_SECONDS)

    def _arrive(self) -> Iterator[Any]:
        while True:
            yield self.env.timeout(self.random.expovariate(self.opens))
            self.env.process(self._open())

    def _open(self) -> Iterator[Any]:
        began = self.env.now
        place = self.env.process(self._direct(self.costs.place + self.costs.place_per_node * self.nodes))
        yield place | self.env.timeout(GIVE_UP_SECONDS)
        if not place.triggered:
            self.found.unplaced += 1
        with self.fronts[self.random.randrange(self.nodes)].request() as turn:
            yield turn
            yield self.env.timeout(self.costs.open)
        self.found.opens.append(self.env.now - began)


def fail_over(sessions: int, servers: int, costs: Costs, seed: int = 0) -> list[float]:
    """Seconds until each session of a lost machine continues, where its clients know so many other servers.

    Each server looks up some sessions at once, shares the check of the silent owner, and takes over one at a time.
    """
    env, chosen = simpy.Environment(), random.Random(seed)
    threads = [simpy.Resource(env, LOOKUPS_AT_ONCE) for _ in range(servers)]
    fronts = [simpy.Resource(env, 1) for _ in range(servers)]
    checks: dict[int, Any] = {}
    found: list[float] = []

    def continue_one() -> Iterator[Any]:
        yield env.timeout(costs.silence * chosen.uniform(1.0, 1.3))
        server = chosen.randrange(servers)
        with threads[server].request() as thread:
            yield thread
            if server not in checks:
                checks[server] = env.timeout(costs.check)
            yield checks[server]
            with fronts[server].request() as turn:
                yield turn
                yield env.timeout(costs.take_over)
        found.append(env.now)

    for _ in range(sessions):
        env.process(continue_one())
    env.run()
    return found


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def table(sizes: Sequence[int], sessions: int, lifetime: float, seconds: float, costs: Costs) -> Iterator[str]:
    """A line for each number of nodes, with so many sessions each, which live so many seconds."""
    yield "| nodes | sessions | opens/s | Director busy | report, p99 | open, p50 | open, p99 | not placed |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for nodes in sizes:
        opens = nodes * sessions / lifetime
        found = Cluster(nodes, opens, costs).run(seconds)
        made = len(found.opens) or 1
        yield (
            f"| {nodes:,} | {nodes * sessions:,} | {opens:.1f} | {found.busy:.0%} "
            f"| {1000 * quantile(found.reports, 0.99):.0f} ms | {1000 * quantile(found.opens, 0.5):.0f} ms "
            f"| {1000 * quantile(found.opens, 0.99):.0f} ms | {found.unplaced / made:.0%} |"
        )


def calibrated() -> Costs:
    """Costs that are measured on this machine, and printed with what the model makes of the smallest cluster."""
    from benchmarks import cluster_costs

    costs, opened = cluster_costs.measure()
    for name, value in asdict(costs).items():
        print(f"{name}: {1e6 * value:,.1f} µs")
    modelled = Cluster(3, 5.0, costs).run(60.0).opens
    for name, times in (("measured", opened), ("by the model", modelled)):
        print(f"opening a session on three nodes, {name}: p50 {1e3 * quantile(times, 0.5):.1f} ms")
    print(f"load {os.getloadavg()[0]:.1f}\n", flush=True)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 30, 100, 300, 600, 1000, 3000])
    parser.add_argument("--sessions", type=int, default=1000, help="per node")
    parser.add_argument("--lifetime", type=float, default=3600.0, help="of a session, in seconds")
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated")
    parser.add_argument("--calibrate", action="store_true", help="measure the costs on this machine; needs Ray")
    arguments = parser.parse_args()
    costs = calibrated() if arguments.calibrate else Costs()
    for line in table(arguments.nodes, arguments.sessions, arguments.lifetime, arguments.seconds, costs):
        print(line)
    print(f"\nA lost machine with {arguments.sessions:,} sessions, by the number of other addresses that clients know:")
    for servers in (1, 3, 10, 100):
        times = fail_over(arguments.sessions, servers, costs)
        print(f"{servers:4} servers: half continue after {quantile(times, 0.5):.1f} s, all after {max(times):.1f} s")


if __name__ == "__main__":
    main()
