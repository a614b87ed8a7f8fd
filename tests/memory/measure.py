"""Peak memory of a call: the growth of the process's resident memory, compared with what the account was told.

Each call is measured in a child process. The same call on small operands runs first and loads what it needs. With
MALLOC_MMAP_THRESHOLD_ set, the C library returns each larger block when it is freed; see `environment`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gradwire_engine as engine
from gradwire_engine.autograd.headroom import Headroom
from gradwire_engine.core.matrix_product import matrix_product
from gradwire_engine.op.declaration import OPS
from tests.memory.calls import BIG, CALLS, SMALL, Sizes, arguments

RATIO = 1.5
SLACK = 1 << 20  # of pages that came otherwise: code that is run first, the interpreter's own
_SECONDS = 120
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakAccount(engine.Account):
    """An account that refuses nothing and records the peak of bytes held and requested."""

    most = 0
    held = 0

    @property  # type: ignore[override]
    def bytes(self) -> int:
        return self.held

    @bytes.setter
    def bytes(self, value: int) -> None:
        self.held = value
        self.most = max(self.most, value)

    def admit(self, size: int) -> None:
        self.most = max(self.most, self.held + size)


class _UnlimitedHeadroom(Headroom):
    """Reports each node to the account, not only the nodes beyond the remaining room."""

    def __init__(self, account: engine.Account) -> None:
        super().__init__(account)
        self.left = -1

    def count(self, *given: Any) -> None:
        super().count(*given)
        self.left = -1


@dataclass
class Taken:
    """Bytes that a call, and its backward, reported and took; None without a backward."""

    name: str
    accounted: int = 0
    taken: int = 0
    back_accounted: int | None = None
    back_taken: int | None = None
    trouble: str = ""

    def short(self) -> bool:
        """Whether the call took more than the limit."""
        over = self.taken > RATIO * self.accounted + SLACK
        return over or (self.back_taken or 0) > RATIO * (self.back_accounted or 0) + SLACK


def environment() -> dict[str, str]:
    """The environment that a process needs to measure."""
    return {
        **os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OPENBLAS_NUM_THREADS": "1"
    }  # fmt: skip


def can_measure() -> bool:
    """Whether the system reports peak memory, and can reset it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return "VmHWM" in _STATUS.read_text()


def _status(key: str) -> int:
    return next(int(line.split()[1]) << 10 for line in _STATUS.read_text().splitlines() if line.startswith(key))


class _Peak:
    """Measures peak memory from its construction on."""

    def __init__(self, account: PeakAccount) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self.account = account
        self.held = account.most = account.held
        _CLEAR.write_text("5")
        self.resident = _status("VmRSS")

    def accounted(self) -> int:
        return self.account.most - self.held

    def taken(self) -> int:
        return max(0, _status("VmHWM") - self.resident)


def _call(name: str, sizes: Sizes, taken: Taken | None, account: PeakAccount) -> None:
    args, kwargs = arguments(name, sizes)
    leaves = [one for one in _flat([args, list(kwargs.values())]) if isinstance(one, engine.Tensor)]
    peak = _Peak(account)
    made = engine.call(name.partition("/")[0], args, kwargs)
    if taken is not None:
        taken.accounted, taken.taken = peak.accounted(), peak.taken()
    outs = [one for one in _flat([made]) if isinstance(one, engine.Tensor) and one.requires_grad]
    inputs = [one for one in leaves if one.requires_grad and one is not made]
    if not outs or not inputs:
        return
    seeds = [engine.tensor(np.ones(out.shape, out.dtype)) for out in outs]
    peak = _Peak(account)
    found = engine.gradients(outs, inputs, seeds, allow_unused=True)
    if taken is not None:
        taken.back_accounted, taken.back_taken = peak.accounted(), peak.taken()
    del found


def _flat(value: Any) -> list[Any]:
    return [one for item in value for one in _flat(item)] if isinstance(value, tuple | list) else [value]


def _measured(name: str) -> Taken:
    account = PeakAccount(limit=1 << 62)
    taken = Taken(name)
    with engine.activate(engine.Context(account=account)):
        try:
            _call(name, SMALL, None, account)
            _call(name, BIG, taken, account)
        except Exception as error:  # noqa: BLE001 - any error is reported
            taken.trouble = f"{type(error).__name__}: {error}"
    return taken


def measure(name: str) -> Taken:
    """A call, in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        signal.alarm(_SECONDS)
        os.write(writer, json.dumps(asdict(_measured(name))).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return Taken(**json.loads(output)) if output else Taken(name, trouble="it did not end")


def report_all() -> None:
    """Report every op and node of this process to the accounts from now on, even small ones."""
    for each in OPS.values():
        each.may_grow = True
    Headroom.of = staticmethod(lambda account, create_graph: None if create_graph else _UnlimitedHeadroom(account))  # type: ignore[method-assign]


def main(names: list[str]) -> int:
    """Measure these calls, or all. Prints a line for each call with too small an account; with `-v` for every call."""
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, "-m", "tests.memory.measure", *names], environment())
    every = "-v" in names
    as_json = "--json" in names
    report_all()
    side = np.ones((128, 128), np.float32)
    matrix_product(np, side, side)  # loads oneDNN, which no single call accounts for
    chosen = [name for name in names if not name.startswith("-")] or sorted(CALLS)
    short = 0
    if not as_json:
        print(f"{'MiB':40}   told  taken  ratio    back  taken  ratio")
    for name in chosen:
        start = time.monotonic()
        taken = measure(name)
        if as_json:
            print(json.dumps(asdict(taken)), flush=True)
            continue
        short += taken.short() or bool(taken.trouble)
        if every or taken.short() or taken.trouble:
            print(line(taken), f"{time.monotonic() - start:.1f} s" if every else "", flush=True)
    if not as_json:
        print(f"{short} of {len(chosen)} take more than {RATIO} times what they report")
    return 1 if short else 0


def line(taken: Taken) -> str:
    """A row of the table."""
    if taken.trouble:
        return f"{taken.name:40} {taken.trouble}"
    text = f"{taken.name:40} {_pair(taken.accounted, taken.taken)}"
    return text if taken.back_accounted is None else f"{text}  {_pair(taken.back_accounted, taken.back_taken or 0)}"


def _pair(accounted: int, taken: int) -> str:
    mark = "!" if taken > RATIO * accounted + SLACK else " "
    return f"{accounted / 2**20:6.1f} {taken / 2**20:6.1f} {taken / accounted if accounted else 0:5.2f}{mark}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
