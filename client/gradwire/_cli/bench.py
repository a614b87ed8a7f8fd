"""`gradwire bench host:port`: measures a server from this client, and compares it with PyTorch if installed.

The answers are checked before they are timed. Runs of PyTorch, in this process, alternate with runs on the server, so
the ratio is meaningful on a machine whose speed drifts.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import gradwire
from gradwire._base.errors import GradwireError
from gradwire._cli.workloads import LARGE, SMALL, Run, chain, round_trip, training
from gradwire._session.session import Session

_BULK_BYTES = 64 << 20
_FEWEST = 5


@dataclass(frozen=True)
class Figure:
    """One measured value. `ratio` is the server's time divided by PyTorch's, if PyTorch is installed."""

    name: str
    value: float
    unit: str
    note: str = ""
    ratio: float | None = None

    def line(self) -> str:
        """Line to print."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} × PyTorch's time"
        return f"{self.name:<52} {_digits(self.value):>9} {self.unit:<7} {', '.join(filter(None, (self.note, ratio)))}"


def _digits(value: float) -> str:
    """Number with three significant digits."""
    places = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{places}f}"


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _turns(ours: Run, theirs: Run | None, seconds: float) -> tuple[list[float], list[float]]:
    """Times in seconds of both runs, alternating for `seconds`, after a comparison of answers and a warm-up."""
    if theirs is not None:
        found, expected = ours(), theirs()
        if abs(found - expected) > 1e-3 * max(1.0, abs(expected)):
            raise SystemExit(f"the server computed {found}, PyTorch {expected}")
    ours()
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < _FEWEST:
        times[0].append(_timed(ours))
        if theirs is not None:
            times[1].append(_timed(theirs))
    return times


def _pytorch() -> Any:
    """PyTorch, if it is installed."""
    return importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def _round_trips(seconds: float) -> Iterator[Figure]:
    times, _ = _turns(round_trip(gradwire), None, seconds)
    for percent in (50, 99):
        value = float(np.percentile(times, percent))
        yield Figure(f"round trip of a tiny op and its value, p{percent}", value * 1e6, "µs", f"{len(times)} of them")


def _rates(seconds: float) -> Iterator[Figure]:
    """Ops and training steps a second."""
    torch = _pytorch()
    small = "training steps, 64-256-10, batch 128"
    large = "training steps, 1024-1024-1024-10, batch 512"
    rows: list[tuple[str, int, str, Callable[[Any, bool], Run], bool]] = [
        ("eager ops, each with its backward", 1000, "ops/s", lambda t, _: chain(t), False),
        (f"{small}, eager", 50, "steps/s", lambda t, c: training(t, 128, SMALL, 50, c), False),
        (f"{small}, compiled", 50, "steps/s", lambda t, c: training(t, 128, SMALL, 50, c), True),
        (f"{large}, eager", 3, "steps/s", lambda t, c: training(t, 512, LARGE, 3, c), False),
        (f"{large}, compiled", 3, "steps/s", lambda t, c: training(t, 512, LARGE, 3, c), True),
    ]
    for name, per, unit, build, compiled in rows:
        if compiled and not hasattr(gradwire, "compile"):
            continue
        times, local = _turns(build(gradwire, compiled), build(torch, False) if torch else None, seconds)
        ratio = statistics.median(a / b for a, b in zip(times, local, strict=True)) if local else None
        yield Figure(name, per / statistics.median(times), unit, ratio=ratio)


def _bandwidth(session: Session, seconds: float) -> Iterator[Figure]:
    """Bandwidth to and from the server in MB/s, for tensors of up to 64 MiB or the server's limit."""
    size = min(_BULK_BYTES, session.limits.max_tensor_bytes or _BULK_BYTES) // 4
    values = np.random.default_rng(0).standard_normal(size, dtype=np.float32)

    def send() -> Any:
        made = gradwire.tensor(values)
        gradwire.sync()
        return made

    held = send()
    if not np.array_equal(held.numpy(), values):
        raise SystemExit("the server returned other bytes than it received")
    for name, run in (("to the server", send), ("from the server", held.numpy)):
        times: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < _FEWEST:
            times.append(_timed(run))
        note = f"{values.nbytes / 2**20:.0f} MiB at a time"
        yield Figure(f"a tensor's bytes {name}", values.nbytes / statistics.median(times) / 1e6, "MB/s", note)


def measure(session: Session, seconds: float) -> Iterator[Figure]:
    """Yield the figures as they are measured; each takes about `seconds`."""
    with session:
        yield from _round_trips(seconds)
        yield from _rates(seconds)
        yield from _bandwidth(session, seconds)


def _about(session: Session) -> dict[str, Any]:
    info = session.server_info()
    return {
        "address": session.address,
        "server": info.version,
        "client": gradwire.__version__,
        "devices": [device.name for device in info.devices],
        "build": dict(sorted(info.build.items())),
        "sessions": info.sessions,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the subcommand; return the exit status."""
    parser = argparse.ArgumentParser(prog="gradwire bench", description="Measure a server from here.")
    parser.add_argument("address", nargs="?", help="the server, host:port; else GRADWIRE_ADDRESS, else an embedded one")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each figure is measured, at least")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args(arguments)
    if not 0 < options.seconds <= 3600:
        parser.error(f"--seconds must be more than 0 and at most 3600, not {options.seconds:g}")
    try:
        session = gradwire.connect(options.address)
        try:
            _print(session, options.seconds, options.json)
        finally:
            session.close()
    except GradwireError as error:
        print(f"gradwire bench: {error}", file=sys.stderr)
        return 1
    return 0


def _print(session: Session, seconds: float, as_json: bool) -> None:
    about = _about(session)
    if as_json:
        figures = [asdict(figure) for figure in measure(session, seconds)]
        print(json.dumps({**about, "figures": figures}, indent=1))
        return
    build = ", ".join(f"{name} {value}" for name, value in about["build"].items())
    others = about["sessions"] - 1
    print(f"gradwire {about['server']} at {about['address']}: {', '.join(about['devices'])}; {build}")
    print(f"{others} other session{'' if others == 1 else 's'} open\n")
    for figure in measure(session, seconds):
        print(figure.line(), flush=True)
    if _pytorch() is None:
        print("\nWith PyTorch installed here, its time in process would stand beside.")
