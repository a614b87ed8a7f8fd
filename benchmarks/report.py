"""What was measured, as a Markdown table and as JSON, with machine, date, versions and command beside it.

The JSON has pytest-benchmark's form, each row a group of two, so `pytest-benchmark compare FILE` reads it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.measure import Fact, Result

PACKAGES = ("numpy", "grpcio", "protobuf", "torch")
SCALES = {"µs": 1e6, "ms": 1e3, "s": 1.0}


def version(package: str) -> str:
    """A package's version, or "absent"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def processor() -> str:
    """The CPU's name and the widest vectors it has."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    named = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    vectors = next((name for flag, name in ((" avx512f", "AVX-512"), (" avx2", "AVX2")) if flag in text), "")
    return ", ".join(part for part in (named[0] if named else platform.machine(), vectors) if part)


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str:
    """The commit measured, with a plus where files differ from it; empty outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    try:
        head, changed = (
            subprocess.run(["git", "-C", root, *line], capture_output=True, text=True, check=True).stdout.strip()
            for line in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def surroundings() -> dict[str, Any]:
    """Machine, date, versions and command."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "blas": {
            name: os.environ[name] for name in sorted(os.environ) if name.startswith(("OPENBLAS_", "OMP_", "MKL_"))
        },
        "versions": {name: version(name) for name in PACKAGES},
        "commit": commit(),
        "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]),
    }


def heading(about: dict[str, Any]) -> str:
    """The surroundings as lines above a table."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    blas = " ".join(f"{name}={value}" for name, value in about["blas"].items())
    return (
        f"{about['date']}; {about['cores']} cores of {about['processor']}, load {about['load']} before; "
        f"Python {about['python']}, {versions}; {blas}; commit {about['commit'] or 'unknown'}\n`{about['command']}`\n"
    )


def shown(seconds: float, unit: str) -> str:
    """A time with three digits that matter."""
    return f"{seconds * SCALES[unit]:.3g} {unit}"


def row(result: Result | Fact) -> str:
    """A line of the table."""
    if isinstance(result, Fact):
        return f"| {result.name} | | {result.value} | | | {result.must} | | {result.verdict} |"
    low, high = result.interval
    cells = [
        result.name,
        f"{shown(result.theirs.median, result.unit)} ({result.peer})",
        shown(result.ours.median, result.unit),
        f"{result.ratio:.2f} × ({low:.2f}–{high:.2f})",
        f"{result.at_best:.2f} ×",
        result.bound.text(result.bound.must),
        result.bound.text(result.bound.aim),
        result.verdict,
    ]
    return "| " + " | ".join(cells) + " |"


COLUMNS = ("workload", "peer", "gradwire", "ratio (95 %)", "at best", "must", "aim", "")


def header(columns: Sequence[str] = COLUMNS) -> str:
    """The table's first two lines."""
    return "| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns)


def save(path: Path, results: Sequence[Result | Fact], about: dict[str, Any]) -> None:
    """Write the results in pytest-benchmark's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(results, about), indent=1, ensure_ascii=False) + "\n")


def document(results: Sequence[Result | Fact], about: dict[str, Any]) -> dict[str, Any]:
    """The results as pytest-benchmark stores them."""
    rows = []
    facts = [result for result in results if isinstance(result, Fact)]
    for result in results:
        if isinstance(result, Fact):
            continue
        for side, stats in (("gradwire", result.ours), (result.peer, result.theirs)):
            extra = {
                "workload": result.name,
                "ratio": result.ratio,
                "ratio_interval": result.interval,
                "ratio_at_best": result.at_best,
                "must": result.bound.must,
                "aim": result.bound.aim,
                "at_least": result.bound.at_least,
                "holds": result.bound.holds(result.ratio),
            }
            rows.append(
                {
                    "group": result.name,
                    "name": side,
                    "fullname": f"{result.group}::{result.name}[{side}]",
                    "params": None,
                    "param": None,
                    "extra_info": extra,
                    "options": {"disable_gc": False, "warmup": True},
                    "stats": {**stats.as_dict(), "iterations": 1},
                }
            )
    return {
        "machine_info": about,
        "commit_info": {"id": about["commit"]},
        "benchmarks": rows,
        "facts": [vars(fact) for fact in facts],
        "datetime": about["date"],
        "version": version("pytest-benchmark"),
    }
