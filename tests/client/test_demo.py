"""The demo keeps its promises: a model that has learnt, and its two pictures."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "digits_mlp.py"


def test_demo_learns_the_digits_and_draws(tmp_path):
    for needed in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(needed, reason=f"the demo needs {needed}, of the extra [demo]")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--epochs", "15", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"test accuracy (\d\.\d+) on 360 images, \d+ steps/s", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) >= 0.95
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "step.svg").read_text("utf-8")
    assert "<svg" in drawing
    assert "0.weight" in drawing
