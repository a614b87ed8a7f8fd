"""Programs written for PyTorch, like those of tutorials and papers, print the same numbers with gradwire.

Each program runs with PyTorch and by `gradwire run`, from the same weights. Printed words must be equal. Numbers must
agree within their printed precision. `make programs` runs all programs, `make test` some.
"""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client import with_pytorch

PROGRAMS = sorted(path for path in Path(__file__).with_name("programs").glob("*.py") if path.stem != "_kit")
SHORT = ("data_and_mlp", "embeddings_packed", "gans", "language_models", "parametrizations", "pruning", "reinforcement")
CHOSEN = [path for path in PROGRAMS if path.stem in SHORT or os.environ.get("GRADWIRE_PROGRAMS") == "all"]
NUMBER = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]\d+)")
# Of single precision, and where a norm at zero or a divergence doubles the last digits.
TOLERANCES = {"autograd_tutorial": 1e-6, "architectures": 1e-7, "basics": 1e-6}


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


@pytest.mark.parametrize("program", CHOSEN, ids=lambda path: path.stem)
def test_program_does_what_it_does_with_pytorch(program, server_address):
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    answers = with_pytorch.printed(program), printed(["-m", "gradwire", "run", str(program)], server_address)
    expected, found = (re.sub(r"0x[0-9a-f]+", "0x", each).splitlines() for each in answers)
    tolerance = TOLERANCES.get(program.stem, 1e-10)
    for number, (line, other) in enumerate(zip(expected, found, strict=True), 1):
        one, two = NUMBER.split(line), NUMBER.split(other.replace("gradwire", "torch"))
        assert two[::2] == one[::2], f"line {number}: {other[:200]}\n is not {line[:200]}"
        for mine, its in zip(two[1::2], one[1::2], strict=True):
            close = math.isclose(float(mine), float(its), rel_tol=tolerance, abs_tol=tolerance)
            assert close, f"line {number}: {mine} is not {its} in {line[:200]}"
