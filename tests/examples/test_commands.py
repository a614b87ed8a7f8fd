"""The examples keep their promises: each runs by its command, learns and draws, or prints what PyTorch prints."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client import program_runs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*command, folder=ROOT):
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=200,
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


def test_ranks_learn_the_spirals_together():
    printed = run("-m", "gradwire", "run", "--nproc", "2", EXAMPLES / "ddp.py", "--epochs", "15")
    found = re.findall(r"rank (\d) of 2: accuracy (\d\.\d+), weights (\w+)", printed)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"], printed
    assert len({weights for _, _, weights in found}) == 1
    assert min(float(accuracy) for _, accuracy, _ in found) > 0.9


def test_digits_cnn_learns(tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn, of the extra [demo]")
    printed = run(EXAMPLES / "digits_cnn.py", "--epochs", "3", folder=tmp_path)
    found = re.search(r"test accuracy (\d\.\d+) on 360 images", printed)
    assert found is not None, printed
    assert float(found[1]) >= 0.9


def test_an_exported_model_is_trained_by_plain_calls(tmp_path):
    printed = run(EXAMPLES / "exported_model.py", "--path", tmp_path / "model.safetensors")
    found = re.search(r"loss (\S+), sin\(pi / 2\) is about (\S+)\nthe file counts 500 steps", printed)
    assert found is not None, printed
    assert float(found[1]) < 0.01
    assert abs(float(found[2]) - 1) < 0.1


def test_heat_pinn_comes_near_the_solution_and_draws_it(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib, of the extra [demo]")
    sizes = ("--points", "100", "--adam", "100", "--lbfgs", "40")
    printed = run(EXAMPLES / "heat_pinn.py", *sizes, "--out", tmp_path, folder=tmp_path)
    found = re.search(r"largest error (\S+); wrote (.*)", printed)
    assert found is not None, printed
    assert float(found[1]) < 0.25  # of temperatures up to 1
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")


def test_char_transformer_learns_and_writes(tmp_path):
    sizes = ("--steps", "30", "--characters", "4000", "--batch", "8", "--write", "40")
    printed = run(EXAMPLES / "char_transformer.py", *sizes, folder=tmp_path)
    (loss,) = re.findall(r"step +30  loss (\d\.\d+)", printed)
    assert float(loss) < 3.4  # a guess among some eighty characters has 4.4
    text = printed.split("steps/s\n", 1)[1]
    assert len(text) == 32 + 40 + 1


def test_threads_find_what_one_thread_finds(tmp_path):
    printed = run(EXAMPLES / "logistic_threads.py", "--threads", "3", "--steps", "20", folder=tmp_path)
    found = re.search(r"3 threads and one differ by (\S+) at most", printed)
    assert float(found[1]) < 1e-12


@pytest.mark.parametrize("name", ["leaves", "rosenbrock_lbfgs"])
def test_prints_what_pytorch_prints(name, tmp_path):
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    story = EXAMPLES / f"{name}.py"
    theirs = tmp_path / story.name
    theirs.write_text(story.read_text("utf-8").replace("import gradwire as torch", "import torch"), "utf-8")
    assert run(story, folder=tmp_path) == program_runs.printed(theirs)
    if name == "leaves":
        check_drawings(tmp_path)


def test_the_tutorial_draws_without_pytorch(tmp_path):
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("the comparison with PyTorch looks at the drawings")
    run(EXAMPLES / "leaves.py", folder=tmp_path)
    check_drawings(tmp_path)


def check_drawings(folder):
    drawings = sorted((folder / "demo-output").glob("leaves-*.svg"))
    assert len(drawings) == 6
    assert all("<svg" in drawing.read_text("utf-8") for drawing in drawings)


def test_the_list_of_examples_names_them_all():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    there = {path.name for path in EXAMPLES.iterdir()} - {"README.md", "node_modules", "__pycache__"}
    assert {name for name in there if f"(./{name}" not in listed} == set()


def test_first_example_of_the_readme_does_what_it_says(tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[1]
    program = tmp_path / "program.py"
    program.write_text("import gradwire\ngradwire.manual_seed(0)\n" + code, "utf-8")
    loss, facts = run(program, folder=tmp_path).splitlines()
    fitted = re.fullmatch(r"tensor\((\S+), grad_fn=<MseLossBackward0>\)", loss)
    assert float(fitted[1]) < 0.01
    assert facts == "True torch.Size([32, 1])"
    assert "<svg" in (tmp_path / "loss.svg").read_text("utf-8")
