"""Measure a cluster of this machine: `gradwire cluster up --nodes 3`, then `python -m benchmarks.cluster ADDRESSES`.

Prints the round trip of a small op at a node and at a single server, taken in turns in one run; how 200 sessions are
spread; the memory and the computing of idle nodes; and how long a training step takes whose worker, front or node is
killed. Takes 3 minutes. Partitions are measured by tests/client/test_partitions.py.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gradwire

ROUNDS, CALLS = 80, 50
SESSIONS = 200
IDLE_SECONDS = 20.0
TRIES = 3
# Until the next one: Ray starts an actor again, and that a server.
SETTLE_SECONDS = {"worker": 2.0, "front": 5.0, "node": 15.0}


def command_of(pid: int) -> str:
    """A process's command line; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes(*words: str) -> list[int]:
    """The processes whose command lines have one of the words."""
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return [pid for pid in pids if any(word in command_of(pid) for word in words)]


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


def single_server(folder: str) -> tuple[subprocess.Popen[str], str]:
    """A server that is no part of a cluster, with a log as the nodes have."""
    command = [
        sys.executable, "-m", "gradwire_server", "--port=0", "--workers=1", f"--state-dir={folder}", "--durability=log",
        "--log-level=error",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def measure_round_trip(addresses: str) -> None:
    """Compare a node's round trip with a single server's, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        process, address = single_server(folder)
        try:
            both = {"cluster": gradwire.connect(addresses), "single": gradwire.connect(address)}
            times: dict[str, list[float]] = {name: [] for name in both}
            for turn in range(ROUNDS + 1):
                for name, session in both.items():
                    found = round_trip(session)
                    if turn:  # the first turn warms up
                        times[name].append(found)
            medians = {name: statistics.median(each) for name, each in times.items()}
            for name, median in medians.items():
                print(f"round trip, {name}: {median * 1e6:.0f} µs")
            ratios = [one / other for one, other in zip(times["cluster"], times["single"], strict=True)]
            print(f"median of the turns' ratios: {statistics.median(ratios):.3f}")
            for session in both.values():
                session.close()
        finally:
            process.terminate()
            process.wait()


def measure_spread(addresses: str) -> None:
    """Open sessions at one seed, and count where they are."""
    began = time.monotonic()
    opened = [gradwire.connect(addresses) for _ in range(SESSIONS)]
    took = time.monotonic() - began
    counts = Counter(session.address for session in opened)
    print(f"{SESSIONS} sessions in {took:.1f} s: {dict(counts)}")
    for session in opened:
        session.close()


def measure_idle(nodes: int, endpoints: list[str]) -> None:
    """Memory and computing of the processes of an idle cluster, by kind."""
    servers = processes(*(f"--endpoint={each} " for each in endpoints))
    kinds = {
        "server": servers,
        "worker": [pid for pid in processes("gradwire_server.worker.main") if parent(pid) in servers],
        "node actor": processes("ray::Node"),
        "Director": processes("ray::Director"),
        "Ray": processes("gw-ray-", "ray::DashboardAgent", "ray::RuntimeEnvAgent"),
    }
    before = {pid: cpu_seconds(pid) for pids in kinds.values() for pid in pids}
    time.sleep(IDLE_SECONDS)
    for kind, pids in kinds.items():
        used = sum(cpu_seconds(pid) - before[pid] for pid in pids) / IDLE_SECONDS
        size = sum(map(own_bytes, pids))
        print(f"{kind}: {len(pids)} processes, {size / 2**20:.0f} MiB, {100 * used:.1f} % of a core")
    print(f"of {nodes} nodes")


def parent(pid: int) -> int:
    """A process's parent; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def longest_step(addresses: str, harm: Callable[[str], None]) -> float:
    """The longest step of a training whose node is harmed once. Seconds."""
    with gradwire.connect(addresses) as session:
        model = gradwire.nn.Sequential(gradwire.nn.Linear(32, 64), gradwire.nn.ReLU(), gradwire.nn.Linear(64, 8))
        optimizer = gradwire.optim.Adam(model.parameters(), lr=0.01)
        x, longest = gradwire.randn(64, 32), 0.0
        for step in range(200):
            began = time.monotonic()
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            loss.item()
            longest = max(longest, time.monotonic() - began) if step > 5 else 0.0
            if step == 100:
                harm(session.address)
        session.close()
    return longest


def kill_worker(endpoint: str) -> None:
    """Kill the worker processes of a node's server."""
    servers = processes(f"--endpoint={endpoint} ")
    for pid in processes("gradwire_server.worker.main"):
        if parent(pid) in servers:
            os.kill(pid, signal.SIGKILL)


def kill_front(endpoint: str) -> None:
    """Kill a node's server. Its actor starts it again."""
    for pid in processes(f"--endpoint={endpoint} "):
        os.kill(pid, signal.SIGKILL)


def kill_node(endpoint: str) -> None:
    """Kill a node's server, its worker and its actor, as the loss of a machine does."""
    servers = processes(f"--endpoint={endpoint} ")
    doomed = [*servers, *(parent(pid) for pid in servers)]
    doomed += [pid for pid in processes("gradwire_server.worker.main") if parent(pid) in servers]
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    addresses = sys.argv[1] if len(sys.argv) > 1 else os.environ["GRADWIRE_ADDRESS"]
    endpoints = addresses.split(",")
    measure_round_trip(addresses)
    measure_spread(addresses)
    measure_idle(len(endpoints), endpoints)
    for name, harm in (("worker", kill_worker), ("front", kill_front), ("node", kill_node)):
        for _ in range(TRIES):
            print(f"{name} killed, longest step: {longest_step(addresses, harm):.2f} s", flush=True)
            time.sleep(SETTLE_SECONDS[name])
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
