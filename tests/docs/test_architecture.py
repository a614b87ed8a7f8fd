"""docs/architecture.md names files and functions that exist, at each step of a command's way."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PARTS = {
    "client": ROOT / "client" / "gradwire",
    "server": ROOT / "server" / "gradwire_server",
    "engine": ROOT / "engine" / "gradwire_engine",
}
STEPS = re.findall(r"^\| (\d+) \| (\w+) ([^|]+) \| ([^|]+) \| ", PAGE, re.MULTILINE)
GLOSSARY = re.findall(r"^\| ([^|]+) \| .*\|$", PAGE.partition("## Glossary")[2], re.MULTILINE)[2:]


def defined(path: Path) -> set[str]:
    """Functions of a module, and methods as Class.method and as method."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
            found |= names | {f"{node.name}.{name}" for name in names}
    return found


def files(part: str, names: str) -> list[Path]:
    """The files of a step; one without a folder is beside the one before it."""
    found: list[Path] = []
    for name in re.findall(r"`([^`]+)`", names):
        found.append(PARTS[part] / name if "/" in name else found[-1].with_name(name))
    return found


@pytest.mark.parametrize(("part", "names", "functions"), [step[1:] for step in STEPS], ids=[step[0] for step in STEPS])
def test_a_step_names_functions_of_its_files(part: str, names: str, functions: str) -> None:
    known = set().union(*map(defined, files(part, names)))
    assert [name for name in re.findall(r"`([^`]+)`", functions) if name not in known] == []


def test_there_are_steps_in_order() -> None:
    assert [int(step[0]) for step in STEPS] == list(range(1, len(STEPS) + 1))
    assert len(STEPS) > 10


def test_the_glossary_is_sorted() -> None:
    assert len(GLOSSARY) > 50
    assert sorted(GLOSSARY, key=str.lower) == GLOSSARY


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "architecture").glob("*.md")), ids=lambda page: page.stem)
def test_the_pages_name_modules_that_exist(page: Path) -> None:
    roots = [ROOT, *PARTS.values(), *(part.parent for part in PARTS.values())]
    named = re.findall(r"`([\w/]+/\w+\.py)`", page.read_text("utf-8"))
    assert named
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
