"""The examples keep their promises: the demo learns and draws, the others print what PyTorch prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command, folder=ROOT):
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo_learns_the_digits_and_draws(tmp_path):
    for needed in ("sklearn", "matplotlib", "tqdm"):
        pytest.importorskip(needed, reason=f"the demo needs {needed}, of the extra [demo]")
    printed = run(ROOT / "examples" / "digits_mlp.py", "--epochs", "25", "--out", tmp_path)
    found = re.search(r"test accuracy (\d\.\d+) on 360 images, \d+ steps/s", printed)
    assert found is not None, printed
    assert float(found[1]) >= 0.95
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "step.svg").read_text("utf-8")
    assert "<svg" in drawing
    assert "0.weight" in drawing


def test_leaf_story_prints_what_pytorch_prints(tmp_path):
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    story = ROOT / "examples" / "leaves.py"
    theirs = tmp_path / "leaves.py"
    theirs.write_text(story.read_text("utf-8").replace("import gradwire as torch", "import torch"), "utf-8")
    assert run(story) == run(theirs)


def test_first_example_of_the_readme_does_what_it_says(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[1]
    program = tmp_path / "program.py"
    program.write_text("import gradwire\ngradwire.manual_seed(0)\n" + code, "utf-8")
    loss, facts = run(program, folder=tmp_path).splitlines()
    fitted = re.fullmatch(r"tensor\((\S+), grad_fn=<MseLossBackward0>\)", loss)
    assert float(fitted[1]) < 0.01
    assert facts == "True torch.Size([32, 1])"
    assert "<svg" in (tmp_path / "loss.svg").read_text("utf-8")
