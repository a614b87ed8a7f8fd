"""Programs run in forks of one process that has imported the library: what they print, and what they cost.

An import of PyTorch takes five seconds of CPU. `python -m tests.client.program_runs torch` is the process for PyTorch,
with `gradwire` the one for gradwire. It reads a JSON string on each line, a program's path, and answers with a line.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import NoReturn

ROOT = Path(__file__).parents[2]
SECONDS = 200


class Ran(NamedTuple):
    """A run of a program: its exit status, what it printed, its errors, and the seconds it took, without imports."""

    status: int
    output: str
    errors: str
    elapsed: float
    cpu: float


@cache
def _runner(library: str, address: str) -> subprocess.Popen[str]:
    """The process. It ends with this one, which closes its input."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.client.program_runs", library],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GRADWIRE_ADDRESS": address},
    )


def ran(program: Path, library: str = "torch", address: str = "") -> Ran:
    """Run a program with `torch` or with `gradwire`, which computes at an address."""
    runner = _runner(library, address)
    assert runner.stdin is not None and runner.stdout is not None
    runner.stdin.write(json.dumps(str(program)) + "\n")
    runner.stdin.flush()
    line = runner.stdout.readline()
    assert line, f"the process that runs programs ended with {runner.wait()}"
    return Ran(*json.loads(line))


def printed(program: Path) -> str:
    """What a program prints with PyTorch. Raises AssertionError with its errors if it fails."""
    done = ran(program)
    assert done.status == 0, f"status {done.status}: {done.errors}"
    return done.output


def _run(program: str) -> NoReturn:
    """In the fork: run the program as `python program` does and end the process."""
    status = 1
    try:
        sys.argv[:] = [program]
        sys.path[0] = os.path.dirname(program)
        runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001  # whatever it is, the caller is told
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _forked(program: str) -> Ran:
    """A program's run in a fork."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        child = os.fork()
        if child == 0:
            signal.alarm(SECONDS)  # ends a program that hangs; its status is then -14
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            _run(program)
        _, status, used = os.wait4(child, 0)
        elapsed = time.perf_counter() - started
        written = []
        for file in (output, errors):
            file.seek(0)
            written.append(file.read().decode())
    return Ran(os.waitstatus_to_exitcode(status), *written, elapsed, used.ru_utime + used.ru_stime)


def _import(library: str) -> None:
    """Import the library, under the name `torch`, and what programs commonly use of it.

    Both get what PyTorch imports with itself: modules that gradwire imports when they are first used. Both get NumPy's
    random numbers, which PyTorch's first optimizer imports. What imports leave is collected before the programs begin.
    """
    if library == "gradwire":
        import gradwire

        gradwire.alias()
    importlib.import_module("numpy.random")
    import torch
    import torch.amp
    import torch.autograd
    import torch.backends.cudnn
    import torch.cuda
    import torch.distributions
    import torch.func
    import torch.linalg
    import torch.nn.functional
    import torch.optim.lr_scheduler
    import torch.sparse
    import torch.utils.data

    if library == "gradwire":
        importlib.import_module("grpc._channel")  # which the first transfer of a large tensor imports
    if library == "torch":
        torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports what every optimizer of PyTorch's imports
    gc.collect()


def main() -> None:
    """Answer until the input ends."""
    _import(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
