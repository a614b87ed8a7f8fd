"""Scripts written for PyTorch print the same with `torch` replaced by gradwire, over the socket, deferred and not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client import program_runs

SCRIPTS = sorted(Path(__file__).with_name("scripts").glob("*.py"))


def printed(command: list[str], **environment: str) -> str:
    """What a script prints, addresses left out."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r"0x[0-9a-f]+", "0x", done.stdout)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_prints_what_pytorch_prints(script: Path, server_address: str) -> None:
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    expected = re.sub(r"0x[0-9a-f]+", "0x", program_runs.printed(script))
    for sync in ("0", "1"):  # deferred, and with every call waiting
        environment = {"GRADWIRE_SYNC": sync, "GRADWIRE_ADDRESS": server_address}  # a server of its own starts slowly
        assert printed(["-m", "gradwire", "run", str(script)], **environment) == expected, f"GRADWIRE_SYNC={sync}"
