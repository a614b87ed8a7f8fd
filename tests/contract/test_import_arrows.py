"""Imports between the packages: client -> stubs; server -> engine, stubs; engine -> array modules; nothing else.

import-linter checks the contracts in pyproject.toml, also through chains of imports. The imports of other distributions
are checked here on the syntax tree, so an import inside a function counts too.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"gradwire": "client", "gradwire_engine": "engine", "gradwire_server": "server"}
ALLOWED = {
    # IPython only inside a notebook. safetensors for files. PyTorch for from_torch and to_torch. tqdm for bars. rich
    # for `gradwire top`. matplotlib for figures in utils.tensorboard.
    "gradwire": {
        "gradwire",
        "grpc",
        "google",
        "numpy",
        "IPython",
        "matplotlib",
        "rich",
        "safetensors",
        "torch",
        "tqdm",
    },
    "gradwire_engine": {"gradwire_engine", "numpy", "cupy", "cupyx", "scipy", "ml_dtypes", "llvmlite"},
}


def imported_names(source: str) -> Iterator[str]:
    """Absolute dotted names of all modules a source text imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


@pytest.mark.parametrize("contract", ["client", "engine", "server"])
def test_contract_of_imports_holds(contract: str) -> None:
    # In a separate process: import-linter configures logging anew, which disables all existing loggers.
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--config=pyproject.toml", "--no-cache", "--contract", contract]
    answer = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_package_takes_from_outside_only_what_its_arrows_allow(package: str) -> None:
    foreign = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / FOLDERS[package] / package).rglob("*.py")
        for name in imported_names(path.read_text())
        if (top := name.partition(".")[0]) not in sys.stdlib_module_names and top not in ALLOWED[package]
    }
    assert not foreign


def test_imports_inside_functions_are_seen() -> None:
    source = (
        "def f():\n    import gradwire_server.app.cli\n    from gradwire_engine import ops\n    from . import here\n"
    )
    assert sorted(imported_names(source)) == ["gradwire_engine", "gradwire_server.app.cli"]


def test_importing_the_stubs_loads_no_client_module() -> None:
    program = (
        "import json, sys, gradwire.v1.service_pb2_grpc\n"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0].startswith('gradwire')]))"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=200)
    loaded = json.loads(answer.stdout)
    assert "gradwire.v1.service_pb2" in loaded
    assert [name for name in loaded if name != "gradwire" and not name.startswith("gradwire.v1")] == []
