"""Counts the samples of PyTorch's op_db that agree: `python -m tests.parity.opinfo [NAME…] [--samples 30]`."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import pathlib
import select
import subprocess
import sys
import time
from typing import Any

from tests.parity.opinfo.counts import counts


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity.opinfo", description=__doc__)
    parser.add_argument("names", nargs="*", help="operators, with their variant; all without")
    parser.add_argument("--samples", type=int, default=1_000_000, help="at most so many samples for each dtype")
    parser.add_argument("--kinds", default="function,method,inplace,out,error", help="forms of an operator")
    parser.add_argument("--dtypes", default="float32,float64,complex64,int64,bool,float16,bfloat16")
    parser.add_argument("--seconds", type=float, default=300, help="time limit of an operator")
    parser.add_argument("--processes", type=int, default=1, help="how many run at once, each with a server")
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("build/opinfo.jsonl"), help="the outcomes")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def serve(options: argparse.Namespace) -> None:
    """Run the operators whose numbers are read from stdin, one line of outcomes each."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.parity.opinfo.calls import full_name, outcomes

    torch.set_num_threads(1)
    kinds, dtypes = tuple(options.kinds.split(",")), tuple(options.dtypes.split(","))
    print(json.dumps([full_name(op) for op in op_db]), flush=True)
    for line in sys.stdin:
        op = op_db[int(line)]
        try:
            found: Any = [dataclasses.asdict(one) for one in outcomes(op, options.samples, kinds, dtypes)]
        except Exception as error:  # noqa: BLE001 - the next operators still run
            found = [{"kind": "runner", "dtype": "", "sample": 0, "outcome": "failed", "text": repr(error)[:300]}]
        print(json.dumps({"op": full_name(op), "outcomes": found}), flush=True)


class Server:
    """A process that runs operators."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.parity.opinfo", "--serve", *sys.argv[1:]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.names = json.loads(self.process.stdout.readline() or "[]")
        self.doing: int | None = None
        self.until = 0.0

    def start(self, number: int, seconds: float) -> None:
        """Run an operator."""
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        self.doing, self.until = number, time.monotonic() + seconds


def run(options: argparse.Namespace) -> None:
    """Run the operators in processes and write their outcomes to the log."""
    servers = [Server() for _ in range(options.processes)]
    names = servers[0].names
    waiting = [number for number, name in enumerate(names) if not options.names or name in options.names]
    options.log.parent.mkdir(parents=True, exist_ok=True)
    with options.log.open("w") as log:
        while waiting or any(server.doing is not None for server in servers):
            for place, server in enumerate(servers):
                if server.doing is None and waiting:
                    server.start(waiting.pop(0), options.seconds)
                if server.doing is not None and not _finish(server, log):
                    servers[place] = Server()
    for server in servers:
        server.process.stdin.close()
        server.process.wait(timeout=600)


def _finish(server: Server, log: Any) -> bool:
    """Write a finished operator's line. False if the process had to be ended."""
    ready = select.select([server.process.stdout], [], [], 0.05)[0]
    line = server.process.stdout.readline() if ready else ""
    if line:
        log.write(line)
    elif ready or time.monotonic() > server.until:
        text = f"{server.names[server.doing]}: no end in time" if not ready else "the process ended"
        outcome = {"kind": "runner", "dtype": "", "sample": 0, "outcome": "failed", "text": text}
        log.write(json.dumps({"op": server.names[server.doing], "outcomes": [outcome]}) + "\n")
        server.process.kill()
        server.process.wait()
    else:
        return True
    log.flush()
    server.doing = None
    return bool(line)


def main() -> None:
    """Run and count, or say what is missing."""
    options = arguments()
    absent = [name for name in ("torch", "expecttest") if importlib.util.find_spec(name) is None]
    if absent:
        print(f"Skipped: the samples of OpInfo need {' and '.join(absent)}.")
    elif options.serve:
        serve(options)
    else:
        run(options)
        counts(options.log)


if __name__ == "__main__":
    main()
