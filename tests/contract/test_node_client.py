"""Another language uses the contract: a Node.js client that loads the protos, and the published example.

The npm packages come from examples/node's lock file into a folder of the virtual environment, once per lock file.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "node"
CLIENT = ROOT / "tests" / "contract" / "node" / "client.js"
MANIFEST = ("package.json", "package-lock.json")


@pytest.fixture(scope="module")
def node_modules() -> Path:
    """The example's npm packages, exactly as locked; skips where this machine has no Node.js."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("needs Node.js: node and npm are not on the PATH")
    digest = hashlib.sha256(b"".join((EXAMPLE / name).read_bytes() for name in MANIFEST)).hexdigest()[:16]
    target = Path(sys.prefix) / "node" / digest
    if not target.exists():
        _install(target)
    return target / "node_modules"


def _install(target: Path) -> None:
    """Installs aside and renames, so that test processes side by side never see half an installation."""
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        aside = Path(folder) / "packages"
        aside.mkdir()
        for name in MANIFEST:
            shutil.copy(EXAMPLE / name, aside)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        answer = subprocess.run(npm, cwd=aside, capture_output=True, text=True, timeout=200)
        assert answer.returncode == 0, answer.stderr
        try:
            aside.rename(target)
        except OSError:
            # Another process was first; a folder that is there is complete.
            assert (target / "node_modules").is_dir()


def run_node(script: Path, address: str, node_modules: Path) -> str:
    answer = subprocess.run(
        ["node", script, address],
        env={**os.environ, "NODE_PATH": str(node_modules)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_node_client_gets_numbers_gradients_and_reasons(server_address: str, node_modules: Path) -> None:
    kept = run_node(CLIENT, server_address, node_modules).splitlines()
    assert kept == [
        "OK square retains its gradient",
        "OK broadcast gradient has the leaf's shape",
        "OK a large id survives as a number",
        "OK a refusal tells its reason and harms nothing",
        "OK a batch goes on after a refused command",
        "OK the ops describe themselves",
    ]


def test_node_example_fits_its_line(server_address: str, node_modules: Path) -> None:
    assert run_node(EXAMPLE / "example.js", server_address, node_modules) == "y = 3.000 x + -1.000\n"


def test_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (EXAMPLE / "package-lock.json").read_text()
