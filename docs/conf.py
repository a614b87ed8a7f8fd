"""How Sphinx builds the documentation: Markdown pages by MyST, the API reference from the docstrings.

`make docs` treats any warning, and with it any link that leads nowhere, as an error.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "client"))

import gradwire  # noqa: E402

project = "gradwire"
version = release = gradwire.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"gradwire {version}"
# Headings of these levels may be linked to.
myst_heading_anchors = 4

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

_CODE = re.compile(r"(`[^`]*`)")


def as_text(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain sentences with `names` in backticks: what else reStructuredText would read is escaped."""
    for i, line in enumerate(lines):
        parts = _CODE.split(line)
        parts[::2] = [re.sub(r"(\*|\||_(?=\W|$)|\\)", r"\\\1", part) for part in parts[::2]]
        lines[i] = "".join(parts)


def is_noise(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Methods whose docstring says that there is nothing to say of them, such as a module's forward."""
    return True if getattr(thing, "__doc__", None) in ("See the class.", "As PyTorch prints it.") else None


def homes_without_page() -> set[str]:
    """The private modules whose names no page of the reference asks for."""
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    asked = {home for line in re.findall(r"^\.\. names:: (.*)$", pages, re.MULTILINE) for home in line.split()}
    by_hand = set(re.findall(r"^\.\. autoclass:: gradwire\.([A-Za-z]\w*)\b(?!\.)", pages, re.MULTILINE))
    private = {home for home in gradwire._NAMES if home.startswith("_") or "._" in home}
    return private - asked - {gradwire._HOMES[name] for name in by_hand}


class Names(SphinxDirective):
    """`.. names:: _session.sessions _base.timeouts`: what `gradwire` offers and these modules of it define.

    `.. names:: gradwire.optim` is a module's `__all__`. `rest` is what no other page of the reference names.
    """

    required_arguments = 1
    final_argument_whitespace = True
    shown: ClassVar[dict[object, tuple[str, str]]] = {}

    def run(self) -> list[nodes.Node]:
        lines: list[str] = []
        for place in self.arguments[0].split():
            if place.startswith("gradwire"):
                module = importlib.import_module(place)
                listed = list(getattr(module, "__all__", []))
            elif place == "rest":
                place, module = "gradwire", gradwire
                listed = [name for home in homes_without_page() for name in self.names_of(home)]
            else:
                listed, place, module = self.names_of(place), "gradwire", gradwire
            for name in sorted(set(listed), key=lambda name: (name.lower(), name)):
                lines += self.entry(place, name, getattr(module, name))
        return self.parse_content_to_nodes(lines)

    def names_of(self, home: str) -> list[str]:
        return gradwire._NAMES[home].split()

    def entry(self, place: str, name: str, thing: object) -> list[str]:
        if inspect.ismodule(thing):
            return []
        if not callable(thing):
            return [f".. py:data:: {place}.{name}", ""]
        # Under its other names a class is shown, but not listed again.
        again = [] if self.shown.setdefault(thing, (place, name)) == (place, name) else ["   :no-index:"]
        if inspect.isclass(thing):
            return [f".. autoclass:: {place}.{name}", "   :members:", *again, ""]
        return [f".. autofunction:: {place}.{name}", *again, ""]

    def parse_content_to_nodes(self, lines: list[str]) -> list[nodes.Node]:
        holder = nodes.Element()
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), self.content_offset, holder)
        return holder.children


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", as_text)
    app.connect("autodoc-skip-member", is_noise)
    app.add_directive("names", Names)
