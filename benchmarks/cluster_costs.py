"""What single steps of a cluster cost on this machine, for benchmarks.cluster_model. Starts a cluster, and ends it.

Processor time is that of all processes that a step uses. So it does not depend on what else runs, except for caches.
"""

import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import gradwire
from benchmarks.cluster import cpu_seconds
from benchmarks.cluster_machines import COUNT, Machines, machines
from benchmarks.cluster_model import Costs
from gradwire_server.cluster.director import director
from gradwire_server.cluster.placement import Load, Placement
from gradwire_server.cluster.ray_process import connect, use_token
from tests.server.machines import parent_of, processes

REPORTS, PLACES, TRIPS, SESSIONS = 4000, 400, 400, 60
AT_ONCE = 50  # calls of the Director that wait for it
PAUSE_SECONDS = 3.0  # after which placed sessions are counted no more


def measure() -> tuple[Costs, list[float]]:
    """The costs, and the seconds that each of some sessions took to open."""
    with machines(own_networks=False) as cluster:
        use_token(cluster.token_file)
        import ray  # reads the token's variables

        connect(cluster.ray_address)
        try:
            report, place, trip = _director(cluster)
        finally:
            ray.shutdown()
        time.sleep(PAUSE_SECONDS)
        opening, seconds, sessions = _opening(cluster)
        taking = _taking_over(cluster, sessions)
    found = Costs(report=report, place=place, round_trip=trip, open=opening, take_over=taking)
    return _with_choice(found), seconds


def _director(cluster: Machines) -> tuple[float, float, float]:
    """The Director's time of a report and of a placement, and how long a call takes."""
    import ray

    actor = director()
    endpoint = cluster.endpoints[0]
    load = asdict(Load(draining=True))  # of a node that gets no sessions
    raylets = {pid for index in range(COUNT) for pid, kind in cluster.processes(index).items() if kind == "Ray"}
    pid = next(pid for pid, words in processes() if words[0].startswith(b"ray::Director") and parent_of(pid) in raylets)

    def cost(count: int, call: Callable[[], object]) -> float:
        before = cpu_seconds(pid)
        for _ in range(count // AT_ONCE):
            ray.get([call() for _ in range(AT_ONCE)], timeout=60)
        return (cpu_seconds(pid) - before) / count

    report = cost(REPORTS, lambda: actor.report.remote("of no node:1", load))
    place = cost(PLACES, lambda: actor.place.remote(endpoint))
    trips = []
    for _ in range(TRIPS):
        began = time.perf_counter()
        ray.get(actor.report.remote("of no node:1", load), timeout=60)
        trips.append(time.perf_counter() - began)
    ray.get(actor.remove.remote("of no node:1"), timeout=60)
    return report, place, statistics.median(trips)


def _serving(cluster: Machines, indices: Sequence[int]) -> list[int]:
    """Processes of nodes' servers and workers."""
    kinds = ("server", "worker")
    return [pid for index in indices for pid, kind in cluster.processes(index).items() if kind in kinds]


def _used(pids: Sequence[int]) -> float:
    """Processor time of servers, and of this process as their client."""
    return sum(map(cpu_seconds, pids)) + time.process_time()


def _opening(cluster: Machines) -> tuple[float, list[float], list[tuple[gradwire.Session, gradwire.Tensor]]]:
    """The time of opening a session, how long each took, and the sessions with a tensor each."""
    gradwire.connect(cluster.addresses).close()
    pids = _serving(cluster, range(COUNT))
    before, took, opened = _used(pids), list[float](), list[gradwire.Session]()
    for _ in range(SESSIONS):
        began = time.perf_counter()
        opened.append(gradwire.connect(cluster.addresses))
        took.append(time.perf_counter() - began)
    cost = (_used(pids) - before) / SESSIONS
    made = []
    for session in opened:
        with session:
            made.append((session, gradwire.ones(3)))
            gradwire.sync()
    return cost, took, made


def _taking_over(cluster: Machines, sessions: list[tuple[gradwire.Session, gradwire.Tensor]]) -> float:
    """The time of a session's way to another node, when its own is killed."""
    lost = COUNT - 1
    moved = [(session, held) for session, held in sessions if session.address == cluster.endpoints[lost]]
    doomed = list(cluster.processes(lost))
    pids = _serving(cluster, range(lost))
    before = _used(pids)
    cluster.signal(doomed, signal.SIGKILL)
    for session, held in moved:
        with session:
            assert held.sum().item() == 3
    cost = (_used(pids) - before) / len(moved)
    for session, _ in sessions:
        session.close()
    return cost


def _with_choice(costs: Costs) -> Costs:
    """Add how the Director's choice grows with the number of nodes."""

    def choice(nodes: int) -> float:
        placement, times = Placement(), []
        for number in range(nodes):
            placement.report(f"n{number}:1", Load(workers=8, sessions=number % 7))
        for _ in range(30):
            began = time.process_time()
            placement.choose("n0:1")
            times.append(time.process_time() - began)
        return statistics.median(times)

    per_node = (choice(4000) - choice(1000)) / 3000
    return Costs(**{**asdict(costs), "place_per_node": per_node})
