"""A program may import any public part of the client first."""

import subprocess
import sys

import pytest

import gradwire

PARTS = sorted({*gradwire._MODULES, "nn.functional", "nn.utils", "optim.lr_scheduler", "utils.data"})
FIRST = """
import os, sys
import numpy  # what all need, once
for name in sys.argv[1:]:
    child = os.fork()  # of a process that has imported nothing of gradwire yet
    if child == 0:
        try:
            __import__(name)
        except BaseException as error:
            print(name, type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_every_part_may_be_imported_first():
    names = [f"gradwire.{part}" for part in PARTS]
    done = subprocess.run(
        [sys.executable, "-c", FIRST, *names], capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
