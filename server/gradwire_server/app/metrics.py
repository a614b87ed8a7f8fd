"""Metrics: serves Prometheus metrics of the front and its workers on a separate port.

Values are gathered only when a page is requested. No label has a value that a client chose: ops come from the registry,
methods from the service, reasons from the contract.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gradwire_server import __version__
from gradwire_server.common.errors import CODES
from gradwire_server.common.histogram import COMMANDS, SECONDS

if TYPE_CHECKING:
    from gradwire_server.registry.backend import Backend
    from gradwire_server.rpc.server import Server
    from gradwire_server.web.counters import WebCounters

CPU = "cpu"  # the contract's name of the device
_WAIT_SECONDS = 5.0
_Families = Iterator[Any]

log = logging.getLogger("gradwire.server")


class Totals:
    """Sums of the workers' counts. Includes the last known counts of ended workers."""

    def __init__(self) -> None:
        self.commands: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[tuple[str, str, str]] = Counter()
        self.queued = Sum(SECONDS)
        self.computed = Sum(SECONDS)
        self.sizes = Sum(COMMANDS)

    def add(self, meter: dict[str, Any]) -> None:
        """Add the counts of one worker's Meter."""
        for command, op, count in meter["commands"]:
            self.commands[command, op] += count
        for command, op, reason, count in meter["refusals"]:
            self.refusals[command, op, reason] += count
        for name in ("queued", "computed", "sizes"):
            getattr(self, name).add(meter[name])


class Sum:
    """Sum of histograms."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, histogram: dict[str, Any]) -> None:
        """Add a histogram."""
        self.counts = [mine + its for mine, its in zip(self.counts, histogram["counts"], strict=True)]
        self.total += histogram["total"]

    def family(self, name: str, what: str) -> HistogramMetricFamily:
        """The histogram as Prometheus's family: for each bound, the count of values up to it."""
        below, buckets = 0, []
        for bound, count in zip((*map(float, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            buckets.append((str(bound), below))
        return HistogramMetricFamily(name, what, buckets=buckets, sum_value=self.total)


class Metrics(Collector):
    """A server's metrics. `start` listens; `close` stops."""

    def __init__(self, server: "Server", backend: "Backend", node: str = "", web: "WebCounters | None" = None) -> None:
        """`node` is the server's address in its cluster; `web` are the counters of its gateway."""
        self.server = server
        self.node = node
        self.web = web
        self.backend = backend
        self._loop = asyncio.get_running_loop()
        self._last: dict[int, dict[str, Any]] = {}  # last numbers, by worker
        self._ended: list[dict[str, Any]] = []  # last counts of ended workers, joined
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen for HTTP; the bound host and port. Raises OSError."""
        self._http, _ = start_http_server(port, host, self.registry)
        address: tuple[Any, ...] = self._http.server_address
        return str(address[0]), int(address[1])

    def close(self) -> None:
        """Stop listening. Waits for the HTTP thread: do not call on the event loop."""
        self._http.shutdown()
        self._http.server_close()

    def describe(self) -> _Families:
        """Empty, so registering the collector gathers nothing."""
        return iter(())

    def collect(self) -> _Families:
        """All metrics. Runs in the HTTP thread that answers a page."""
        reports = asyncio.run_coroutine_threadsafe(self.gather(), self._loop).result(_WAIT_SECONDS)
        yield from _front(self.server, self.backend)
        if self.node:
            info = GaugeMetricFamily(
                "gradwire_node_info", "The server's address in its cluster; always 1.", labels=["node"]
            )
            info.add_metric([self.node], 1)
            yield info
        if self.web is not None:
            yield from _gateway(self.web)
        yield from _workers(self.backend, reports)
        totals = Totals()
        for each in (*self._ended, *(report["meter"] for report in list(self._last.values()))):
            totals.add(each)
        yield from _counted(totals)

    async def gather(self) -> list[dict[str, Any]]:
        """Numbers of the workers that are alive. Runs on the event loop."""
        reports = await self.backend.usage_report(0, 0)
        for index, numbers in reports.items():
            before = self._last.get(index)
            if before is not None and before["process"] != numbers["process"]:
                self._ended = [_joined([*self._ended, before["meter"]])]
            self._last[index] = numbers
        return list(reports.values())


def _joined(meters: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts of several workers, summed, in the form of one Meter."""
    totals = Totals()
    for meter in meters:
        totals.add(meter)
    joined: dict[str, Any] = {
        "commands": [[*key, count] for key, count in totals.commands.items()],
        "refusals": [[*key, count] for key, count in totals.refusals.items()],
    }
    for name in ("queued", "computed", "sizes"):
        summed = getattr(totals, name)
        joined[name] = {"counts": summed.counts, "total": summed.total}
    return joined


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"gradwire_{name}", what, value)


def _counter(name: str, what: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"gradwire_{name}", what, value)


def _front(server: "Server", backend: "Backend") -> _Families:
    """Metrics of the front."""
    front, directory, workers = server.front, backend.registry, backend.workers
    info = GaugeMetricFamily("gradwire_build_info", "The server's version; always 1.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    yield _gauge("draining", "1 while the server ends and takes no new work.", front.draining)
    yield _gauge("sessions", "Sessions that are open.", len(directory.entries))
    stored = 0 if backend.persistence is None else len(backend.persistence.catalog.stored_sessions)
    yield _gauge("stored_sessions", "Stored sessions that are not in use.", stored)
    unstored, failures = (
        (0, 0) if backend.persistence is None else (backend.persistence.unstored, backend.persistence.failures)
    )
    yield _gauge("unstored_sessions", "Sessions that could not be stored when that was tried last.", unstored)
    yield _counter("failed_saves", "Times that a session could not be stored.", failures)
    yield _counter("sessions_opened", "Sessions that were opened.", directory.opened)
    yield _counter("lease_expiries", "Sessions whose lease ran out.", directory.expired)
    yield _gauge("streams", "Streams that are open.", len(front.streams))
    yield _gauge("active_calls", "Calls and batches that are being answered.", front.active)
    yield _gauge("waiting_bytes", "Bytes of requests that are being answered.", front.waiting)
    refused = CounterMetricFamily(
        "gradwire_refused_calls", "Calls that ended with a refusal.", labels=["method", "code", "reason"]
    )
    for (method, reason), count in front.refusals.copy().items():
        refused.add_metric([method, CODES[reason].name, reason], count)
    yield refused
    strangers = 0 if server.interceptor is None else server.interceptor.rejected
    yield _counter("auth_failures", "Calls without a valid credential.", strangers)
    stale = server.tokens is not None and bool(server.tokens.error)
    yield _gauge("token_file_unusable", "1 while the token file cannot be used and its earlier contents apply.", stale)
    yield _gauge("workers", "Workers that are ready.", sum(worker.alive for worker in workers))
    yield _counter("worker_restarts", "Worker processes that ended by themselves.", sum(w.restarts for w in workers))


def _gateway(web: "WebCounters") -> _Families:
    """Metrics of the web gateway."""
    yield _gauge("web_connections", "Connections of browsers that are open.", web["connections"])
    yield _gauge("web_streams", "WebSockets that are open.", web["streams"])
    yield _counter("web_accepted_connections", "Connections of browsers that were accepted.", web["accepted"])
    yield _counter("web_refused_connections", "Connections that were over the gateway's limit.", web["over_limit"])
    yield _counter("web_received_bytes", "Bytes of requests' bodies and WebSockets' messages.", web["received"])
    yield _counter("web_sent_bytes", "Bytes of answers' bodies and messages to WebSockets.", web["sent"])
    requests = CounterMetricFamily("gradwire_web_requests", "Requests, WebSockets among them.", labels=["kind"])
    for kind, count in web.requests().items():
        requests.add_metric([kind], count)
    yield requests
    refused = CounterMetricFamily(
        "gradwire_web_refusals", "Requests that the gateway itself refused.", labels=["code", "reason"]
    )
    for reason, count in web.refusals().items():
        refused.add_metric([CODES[reason].name, reason], count)
    yield refused


def _workers(backend: "Backend", reports: list[dict[str, Any]]) -> _Families:
    """Metrics of what the workers hold."""
    yield _gauge("tensors", "Tensors that sessions name.", sum(each["tensors"] for each in reports))
    held: Counter[str] = Counter({CPU: sum(each["bytes"] for each in reports)})
    pools = [(name, *sizes) for each in reports for name, sizes in each["pools"].items()]
    for name, used, _ in pools:
        held[name] += used
    held[CPU] = max(0, held[CPU] - sum(used for _, used, _ in pools))
    by_device = GaugeMetricFamily(
        "gradwire_bytes", "Bytes of tensors, gradients and what backward needs.", labels=["device"]
    )
    for name, size in held.items():
        by_device.add_metric([name], size)
    yield by_device
    yield _gauge(
        "log_queue_bytes", "Bytes that wait to be written to logs.", sum(each["log_bytes"] for each in reports)
    )
    yield _gauge("max_bytes", "Bytes that all sessions may hold.", backend.limits.max_bytes)
    total = GaugeMetricFamily("gradwire_gpu_pool_bytes", "Bytes of a GPU's memory pool.", labels=["device"])
    sums: Counter[str] = Counter()
    for name, _, size in pools:
        sums[name] += size
    for name, size in sums.items():
        total.add_metric([name], size)
    yield total


def _counted(totals: Totals) -> _Families:
    """Metrics of the workers' counts."""
    commands = CounterMetricFamily("gradwire_commands", "Commands carried out or refused.", labels=["command", "op"])
    for key, count in totals.commands.items():
        commands.add_metric(key, count)
    yield commands
    errors = CounterMetricFamily("gradwire_errors", "Commands refused.", labels=["command", "op", "code", "reason"])
    for (command, op, reason), count in totals.refusals.items():
        errors.add_metric([command, op, CODES[reason].name, reason], count)
    yield errors
    yield totals.queued.family("gradwire_queue_seconds", "From a call's arrival to its first step.")
    yield totals.computed.family("gradwire_compute_seconds", "Time in which a call computed, without others' turns.")
    yield totals.sizes.family("gradwire_batch_commands", "Commands of a batch.")
