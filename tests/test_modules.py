"""Each module of the engine and the server has a test file that imports it directly, so it fails by its own name.

The tests of `gradwire_engine.op.cost` are in tests/engine/op/test_cost.py, those of `gradwire_server.rpc.service` in
tests/server/rpc/test_service.py; a test that covers several modules may lie elsewhere.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"gradwire_engine": ROOT / "engine", "gradwire_server": ROOT / "server"}


def modules(package: str, folder: Path) -> list[str]:
    """Dotted names of a package's modules, without `__init__`."""
    paths = (folder / package).rglob("*.py")
    return sorted(
        ".".join(path.relative_to(folder).with_suffix("").parts) for path in paths if path.name != "__init__.py"
    )


def imported(source: str) -> Iterator[str]:
    """Dotted names that a source text imports, wherever in it: modules, and names that may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module")
def tested() -> set[str]:
    return {name for path in (ROOT / "tests").rglob("test_*.py") for name in imported(path.read_text())}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_module_is_imported_by_a_test_file(package: str, tested: set[str]) -> None:
    known = modules(package, PACKAGES[package])
    assert len(known) > 50
    untested = [name for name in known if name not in tested]
    assert not untested, f"write a test that imports {', '.join(untested)}"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b", {"a.b"}),
        ("from a import b, c", {"a", "a.b", "a.c"}),
        ("def f():\n    from a.b import c as d", {"a.b", "a.b.c"}),
        ("from . import b", set()),
        ("import_module('a.b')  # from a import c", set()),
    ],
)
def test_only_import_statements_count(source: str, names: set[str]) -> None:
    assert set(imported(source)) == names
