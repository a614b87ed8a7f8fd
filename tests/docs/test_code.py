"""The code in the documentation runs and prints what it says.

Every Python block of a page is run, in order, in one namespace. A block of `>>>` lines prints what stands below them.
In others, what follows a `print(…)  #` is among what is printed, unless it begins with "such as". Blocks that cannot
run here are behind a comment `<!--- skip: next -->`; what a block needs and a reader does not may be in an
`<!--- invisible-code-block: python`.
"""

import ast
import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARTS = ROOT / "docs" / "extending.md"  # its blocks are parts of files, which test_extending.py puts there
WITH_CODE = [
    page for page in PAGES if page != PARTS and re.search(r"^```python$", page.read_text("utf-8"), re.MULTILINE)
]
FLAGS = doctest.ELLIPSIS


def run(page: Path) -> None:
    parsers = [PythonCodeBlockParser(doctest_optionflags=FLAGS), SkipParser()]
    for example in Sybil(parsers, encoding="utf-8").parse(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            example.evaluate()
        for said in promises(example.parsed):
            assert said in printed.getvalue(), f"line {example.line} of {page.name} prints {printed.getvalue()!r}"


def promises(code: object) -> list[str]:
    """What a block says of what it prints."""
    if not isinstance(code, str):  # an example of doctest's, which has looked itself, or a comment's directive
        return []
    lines = code.splitlines()
    prints = [
        node for node in ast.parse(code).body if isinstance(node, ast.Expr) and ast.unparse(node).startswith("print(")
    ]
    comments = [lines[node.end_lineno - 1][node.end_col_offset :].strip() for node in prints]
    return [comment[1:].strip() for comment in comments if comment and not comment.startswith("# such as")]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("session")
def test_code_of_a_page_does_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)


def test_semantics_are_pytorchs(tmp_path):
    pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    theirs = tmp_path / "semantics.md"
    text = (ROOT / "docs" / "semantics.md").read_text("utf-8")
    theirs.write_text(text.replace("import gradwire as torch", "import torch"), "utf-8")
    run(theirs)


def test_a_page_that_is_wrong_is_found(tmp_path, session):
    page = tmp_path / "page.md"
    for code in ("print(1 + 1)  # 3", ">>> 1 + 1\n3", "import gradwire\ngradwire.ones(2) + gradwire.ones(3)"):
        page.write_text(f"```python\n{code}\n```\n", "utf-8")
        with pytest.raises(Exception, match=r"line 1|Expected|size of tensor"):
            run(page)
