"""Programs written for PyTorch, like those of tutorials and papers, print the same with gradwire.

Each program runs with PyTorch and by `gradwire run`. Printed words must be equal. Programs of the folder itself compute
in double precision: their numbers must agree to 1e-10. Those of its subfolders are as their users write them, in single
precision. `make programs` runs all programs, `make test` some.
"""

import os
import subprocess
import sys

import pytest

from tests.client import program_runs
from tests.client.program_table import FOLDER, PROGRAMS, difference

SHORT = {
    "data_and_mlp", "embeddings_packed", "gans", "language_models", "parametrizations", "pruning", "reinforcement",
    "generative/mixture_density", "reinforcement/ppo", "text/beam_search", "vision/detection_boxes",
}  # fmt: skip
CHOSEN = [name for name in PROGRAMS if name in SHORT or os.environ.get("GRADWIRE_PROGRAMS") == "all"]


def printed(command, address):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GRADWIRE_ADDRESS": address},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", CHOSEN)
def test_program_does_what_it_does_with_pytorch(name, server_address):
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    program = FOLDER / f"{name}.py"
    expected, found = program_runs.printed(program), printed(["-m", "gradwire", "run", str(program)], server_address)
    assert difference(name, expected, found) is None


def test_a_difference_is_found_in_words_numbers_and_lines():
    assert difference("a/b", "loss 1.2345 of 3\n", "loss 1.2346 of 3\n") is None  # the last digit
    for line in ("loss 1.2645 of 3\n", "less 1.2345 of 3\n", "loss 1.2345 of 4\n", "", "loss 1.2345 of 3\nend\n"):
        assert difference("a/b", "loss 1.2345 of 3\n", line) is not None
    assert difference("basics", "1.2345678901234", "1.2345678801234") is None
    assert difference("gans", "1.2345678901234", "1.2345678801234") is not None
    assert difference("gans", "1.2345678901234", "1.23456789013") is None
