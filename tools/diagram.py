"""Draw the layers of client, server and engine: docs/architecture.svg.

The source is the import-linter contracts in pyproject.toml. A column is a package, a box is one layer, and a layer
imports only layers below it. A box shows its sub-package's docstring. With --check nothing is written and a stale
picture is an error.
"""

import argparse
import ast
import sys
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"
# Columns from left to right: the root package, its folder, its name in the picture.
COLUMNS = (
    ("gradwire", "client/gradwire", "client"),
    ("gradwire_server", "server/gradwire_server", "server"),
    ("gradwire_engine", "engine/gradwire_engine", "engine"),
)
STUBS = "gradwire.v1"
STUBS_SENTENCE = "Messages and service stubs, generated from the contract in proto/gradwire/v1."

# Pixels. The letters' widths are estimates, since fonts differ.
COLUMN, GAP, MARGIN, SPACE, PAD = 300, 56, 16, 8, 10
HEAD, NAME_LINE, TEXT_LINE, CHIP = 46, 18, 14, 22
NAME_SIZE, TEXT_SIZE = 13, 11
LETTERS = 46  # of a sentence's line
CHIP_LETTER = 6.6
FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
# Boxes are filled and lines are of a middle grey, so the picture is legible on light and on dark pages.
LINE = "#8a90a2"
FILL, EDGE, INK, FAINT = "#f4f5ff", "#7b83eb", "#1f2350", "#565b78"
HEAD_FILL, HEAD_INK, HEAD_FAINT = "#4f56d3", "#ffffff", "#dfe1ff"
STUB_FILL, STUB_EDGE, STUB_INK = "#e8f8f0", "#2fa36b", "#0e3d27"


class Box(NamedTuple):
    """One layer: a package with its sentence and sub-layers, or several packages side by side."""

    names: tuple[str, ...]
    sentences: tuple[str, ...]
    inner: tuple[str, ...] = ()
    inner_sentences: tuple[str, ...] = ()


def contracts() -> list[dict[str, Any]]:
    """The import-linter contracts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return list(project["tool"]["importlinter"]["contracts"])


def sentence(module: Path) -> str:
    """The first line of a package's or module's docstring."""
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text("utf-8")))
    if not docstring:
        raise SystemExit(f"{file.relative_to(ROOT)} has no docstring")
    return docstring.splitlines()[0].replace("`", "")


def members(layer: str) -> tuple[str, ...]:
    """The packages of one layer: "a | b" has two."""
    return tuple(name.strip() for name in layer.split("|"))


def boxes(root: str, folder: str, layered: dict[str, list[str]]) -> list[Box]:
    """A package's layers, top down."""
    made = []
    for layer in layered[root]:
        names = members(layer)
        inner = [name for each in layered.get(f"{root}.{names[0]}", []) for name in members(each)]
        # Only packages are shown inside a box: modules are too many.
        place = ROOT / folder
        packages = tuple(name for name in inner if (place / names[0] / name).is_dir())
        inside = tuple(sentence(place / names[0] / name) for name in packages)
        made.append(Box(names, tuple(sentence(place / name) for name in names), packages, inside))
    return made


def rows(names: tuple[str, ...], width: float) -> Iterator[list[tuple[str, float]]]:
    """Names with their chips' widths, broken into lines."""
    line: list[tuple[str, float]] = []
    used = 0.0
    for name in names:
        chip = len(name) * CHIP_LETTER + 12
        if line and used + chip > width:
            yield line
            line, used = [], 0.0
        line.append((name, chip))
        used += chip + 5
    yield line


def height(box: Box) -> int:
    """Pixels that a box needs."""
    if len(box.names) > 1:
        return 2 * PAD + CHIP * len(list(rows(box.names, COLUMN - 2 * PAD)))
    chips = CHIP * len(list(rows(box.inner, COLUMN - 2 * PAD))) + 4 if box.inner else 0
    return 2 * PAD + NAME_LINE + TEXT_LINE * len(textwrap.wrap(box.sentences[0], LETTERS)) - 4 + chips


def text(x: float, y: float, content: str, size: int, ink: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{ink}"{more}>{escape(content)}</text>'


def rect(x: float, y: float, width: float, tall: float, fill: str, edge: str) -> str:
    shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{tall:g}" rx="6"'
    return f'<rect {shape} fill="{fill}" stroke="{edge}" stroke-width="1.2"/>'


def chips(names: tuple[str, ...], titles: tuple[str, ...], x: float, y: float) -> Iterator[str]:
    """Names side by side, each with its sentence as the tooltip."""
    known = dict(zip(names, titles, strict=True))
    for i, line in enumerate(rows(names, COLUMN - 2 * PAD)):
        left = x
        for name, width in line:
            title = f"<title>{escape(f'{name}: {known[name]}')}</title>"
            top = y + i * CHIP
            label = text(left + width / 2, top + 13, name, TEXT_SIZE, INK, ' text-anchor="middle"')
            yield f"<g>{title}{rect(left, top, width, CHIP - 4, '#ffffff', EDGE)}{label}</g>"
            left += width + 5


def drawn(box: Box, x: float, y: float) -> Iterator[str]:
    """A layer's box."""
    if len(box.names) > 1:
        yield rect(x, y, COLUMN, height(box), FILL, EDGE)
        yield from chips(box.names, box.sentences, x + PAD, y + PAD + 2)
        return
    yield f"<g><title>{escape(f'{box.names[0]}: {box.sentences[0]}')}</title>"
    yield rect(x, y, COLUMN, height(box), FILL, EDGE)
    yield text(x + PAD, y + PAD + 11, box.names[0], NAME_SIZE, INK, ' font-weight="600"')
    lines = textwrap.wrap(box.sentences[0], LETTERS)
    for i, line in enumerate(lines):
        yield text(x + PAD, y + PAD + 11 + NAME_LINE - 2 + TEXT_LINE * i, line, TEXT_SIZE, FAINT)
    yield from chips(box.inner, box.inner_sentences, x + PAD, y + PAD + NAME_LINE + TEXT_LINE * len(lines) + 4)
    yield "</g>"


def header(name: str, module: str, about: str, x: float) -> Iterator[str]:
    """The head of a column."""
    yield f"<g><title>{escape(about)}</title>"
    yield rect(x, MARGIN, COLUMN, HEAD, HEAD_FILL, HEAD_FILL)
    yield text(x + PAD, MARGIN + 20, name, 15, HEAD_INK, ' font-weight="600"')
    yield text(x + PAD, MARGIN + 37, module, TEXT_SIZE, HEAD_FAINT)
    yield "</g>"


def arrow(path: str, label: str, x: float, y: float, dashed: bool = False) -> Iterator[str]:
    """A line with a head at its end, and what it means."""
    style = ' stroke-dasharray="5 4"' if dashed else ""
    yield f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.6" marker-end="url(#head)"{style}/>'
    yield text(x, y, label, TEXT_SIZE, LINE, ' text-anchor="middle"')


def permitted(all_contracts: list[dict[str, Any]]) -> tuple[set[tuple[str, str]], set[str]]:
    """Which root packages may import which others, and which may import the stubs: what no contract forbids."""
    roots = [root for root, _, _ in COLUMNS]
    allowed = {(one, other) for one in roots for other in roots if one != other}
    stubs = {roots[0]}
    for contract in all_contracts:
        if contract["type"] != "forbidden":
            continue
        allowed -= {(one, other) for one in contract["source_modules"] for other in contract["forbidden_modules"]}
        if any(line.partition("->")[2].strip().startswith(STUBS) for line in contract.get("ignore_imports", [])):
            stubs |= set(contract["source_modules"])
    return allowed, stubs


def arrows(all_contracts: list[dict[str, Any]], bottoms: Sequence[float], stubs_y: float) -> Iterator[str]:
    """Imports between the packages as full lines; what travels between client and server as a dashed one."""
    allowed, importing = permitted(all_contracts)
    left = {root: MARGIN + i * (COLUMN + GAP) for i, (root, _, _) in enumerate(COLUMNS)}
    middle = MARGIN + HEAD / 2
    for one, other in sorted(allowed):
        begin, end = left[one] + COLUMN, left[other] - 2
        if end - begin > GAP:
            raise SystemExit(f"{one} may import {other}, which does not stand right of it: draw that arrow")
        yield from arrow(f"M{begin:g} {middle:g}H{end - 5:g}", "imports", (begin + end) / 2 - 2, middle - 6)
    for (root, _, _), bottom in zip(COLUMNS, bottoms, strict=True):
        if root in importing:
            x = left[root] + COLUMN / 2
            yield from arrow(f"M{x:g} {bottom:g}V{stubs_y - 7:g}", "imports", x + 26, (bottom + stubs_y) / 2 + 4)
    begin, end = left[COLUMNS[0][0]] + COLUMN, left[COLUMNS[1][0]] - 2
    yield from arrow(f"M{begin:g} {middle:g}H{end - 5:g}", "gRPC", (begin + end) / 2 - 2, middle - 6, dashed=True)


def picture() -> str:
    """The whole SVG."""
    all_contracts = contracts()
    layered = {
        container: contract["layers"]
        for contract in all_contracts
        if contract["type"] == "layers"
        for container in contract["containers"]
    }
    parts: list[str] = []
    bottoms = []
    for i, (root, folder, name) in enumerate(COLUMNS):
        x, y = MARGIN + i * (COLUMN + GAP), MARGIN + HEAD + SPACE
        parts += header(name, folder, sentence(ROOT / folder), x)
        for box in boxes(root, folder, layered):
            parts += drawn(box, x, y)
            y += height(box) + SPACE
        bottoms.append(y - SPACE)
    stubs_y = max(bottoms[:2]) + 34
    stubs_width = 2 * COLUMN + GAP
    parts += arrows(all_contracts, bottoms, stubs_y)
    parts.append(rect(MARGIN, stubs_y, stubs_width, 44, STUB_FILL, STUB_EDGE))
    parts.append(text(MARGIN + PAD, stubs_y + 18, STUBS, NAME_SIZE, STUB_INK, ' font-weight="600"'))
    parts.append(text(MARGIN + PAD, stubs_y + 34, STUBS_SENTENCE, TEXT_SIZE, STUB_INK))
    wide = 2 * MARGIN + len(COLUMNS) * COLUMN + (len(COLUMNS) - 1) * GAP
    tall = max(stubs_y + 44, *bottoms) + MARGIN
    about = "Layers of client, server and engine: each package imports only packages below it."
    head = f'<path d="M0 0L8 4L0 8Q2 4 0 0Z" fill="{LINE}"/>'
    marker = 'id="head" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="6" markerHeight="6" orient="auto"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:g}" height="{tall:g}" '
            f'viewBox="0 0 {wide:g} {tall:g}" role="img" aria-label="{about}" font-family="{FONT}">',
            "<!-- Generated by tools/diagram.py from the contracts in pyproject.toml; do not edit. -->",
            f"<title>{about}</title>",
            f"<defs><marker {marker}>{head}</marker></defs>",
            *parts,
            "</svg>\n",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="fail if the picture is stale")
    check = parser.parse_args().check
    made = picture()
    if not check:
        PICTURE.write_text(made, "utf-8")
        return 0
    if PICTURE.exists() and PICTURE.read_text("utf-8") == made:
        return 0
    print(f"{PICTURE.relative_to(ROOT)} is stale: run `make diagram`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
