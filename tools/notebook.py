"""Makes examples/leaves.ipynb, with what it prints and draws, from examples/leaves.py.

    python tools/notebook.py [--check]

The script is the source; its `# %%` lines are the notebook's cells. `--check` changes nothing, and fails where the
notebook's cells or what they print are not what the script has and prints now.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "examples" / "leaves.py"
TARGET = SOURCE.with_suffix(".ipynb")
_SECONDS_PER_CELL = 60
_CELL_FILE = re.compile(r"[^\s\"'>;]*ipykernel_\d+[/\\]\d+\.py")


def cells_of(source: str) -> nbformat.NotebookNode:
    """The script as a notebook that was not run."""
    notebook = jupytext.reads(source, fmt="py:percent")
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same at every run
        cell.metadata = {}
    return notebook


def run(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with its outputs. Raises nbclient's CellExecutionError, which holds the traceback."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=_SECONDS_PER_CELL,
        record_timing=False,
        coalesce_streams=True,  # what is printed arrives in pieces, at the whim of the clock
    )
    manager = client.create_kernel_manager()
    with tempfile.TemporaryDirectory() as folder:
        # Sockets that are files of this run: no port, and no other run's sockets, can be taken for them.
        manager.transport, manager.ip = "ipc", f"{folder}/kernel"
        return client.execute()


def without_paths(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without the names of the files as which the kernel kept its cells."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            for kind, text in output.get("data", {}).items():
                output.data[kind] = _CELL_FILE.sub("leaves.ipynb", text)
    return notebook


def said(notebook: nbformat.NotebookNode) -> list[str]:
    """What a reader sees, line by line, of a picture only that it is there."""
    lines: list[str] = []
    for cell in notebook.cells:
        lines += [f"# {cell.cell_type}", *cell.source.splitlines()]
        for output in cell.get("outputs", ()):
            lines += output.text.splitlines() if output.output_type == "stream" else [*sorted(output.data)]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args()
    fresh = run(cells_of(SOURCE.read_text("utf-8")))
    if not options.check:
        TARGET.write_text(nbformat.writes(without_paths(fresh)) + "\n", "utf-8")
        return 0
    kept = nbformat.read(TARGET, as_version=4)
    nbformat.validate(kept)
    difference = list(difflib.unified_diff(said(kept), said(fresh), "the notebook", "the script", lineterm=""))
    if difference:
        print(*difference, sep="\n")
        print(f"{TARGET.name} is not what {SOURCE.name} makes: run `make notebook`", file=sys.stderr)
    return 1 if difference else 0


if __name__ == "__main__":
    raise SystemExit(main())
