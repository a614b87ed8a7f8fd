"""The committed notebook is the tutorial's script, and prints now what it shows."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_notebook_runs_and_shows_what_the_script_makes(tmp_path):
    check = subprocess.run(
        [sys.executable, ROOT / "tools" / "notebook.py", "--check"],
        cwd=tmp_path,  # the sockets of the kernel are files here
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert check.returncode == 0, check.stdout + check.stderr
