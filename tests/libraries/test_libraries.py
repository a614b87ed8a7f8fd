"""Libraries for PyTorch run under the alias: a program per library, where the library is installed.

The table in docs/coming-from-pytorch.md has a row per program.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs").rglob("use_*.py"), key=lambda path: path.stem)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-pytorch.md"


def _library(program: Path) -> str:
    return program.stem.removeprefix("use_")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", PROGRAMS, ids=_library)
def test_a_program_that_uses_the_library_runs(program: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec(_library(program)) is None:
        pytest.skip(f"{_library(program)} is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "gradwire", "run", str(program)],
        cwd=tmp_path,  # programs save files
        env={key: value for key, value in os.environ.items() if key != "GRADWIRE_ADDRESS"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_page_has_a_row_per_program() -> None:
    table = PAGE.read_text().partition("## Libraries")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)
    assert sorted(rows) == [_library(program) for program in PROGRAMS]
