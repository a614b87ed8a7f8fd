"""Programs run with PyTorch, each in a fork of one process that has imported it, which takes five seconds of CPU.

`python -m tests.client.with_pytorch` is that process. It reads a JSON string on each line, the path of a program, and
answers with a line: the exit status, what the program printed, and its errors.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

ROOT = Path(__file__).parents[2]
_SECONDS = 200


@cache
def _runner() -> subprocess.Popen[str]:
    """The process. It ends with this one, which closes its input."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.client.with_pytorch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def printed(program: Path) -> str:
    """What a program prints with PyTorch. Raises AssertionError with its errors if it fails."""
    runner = _runner()
    assert runner.stdin is not None and runner.stdout is not None
    runner.stdin.write(json.dumps(str(program)) + "\n")
    runner.stdin.flush()
    line = runner.stdout.readline()
    assert line, f"the process that runs programs ended with {runner.wait()}"
    status, output, errors = json.loads(line)
    assert status == 0, f"status {status}: {errors}"
    return str(output)


def _run(program: str) -> NoReturn:
    """In the fork: run the program as `python program` does and end the process."""
    status = 1
    try:
        sys.argv[:] = [program]
        sys.path[0] = os.path.dirname(program)
        runpy.run_path(program, run_name="__main__")
        status = 0
    except BaseException:  # noqa: BLE001  # whatever it is, the caller is told
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _forked(program: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a program run in a fork."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            signal.alarm(_SECONDS)  # ends a program that hangs; its status is then -14
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            _run(program)
        _, status = os.waitpid(child, 0)
        written = []
        for file in (output, errors):
            file.seek(0)
            written.append(file.read().decode())
    return os.waitstatus_to_exitcode(status), written[0], written[1]


def main() -> None:
    """Answer until the input ends."""
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # imports what every optimizer of PyTorch's imports
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
