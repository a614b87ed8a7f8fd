"""How Sphinx builds the documentation: Markdown pages by MyST, the API reference from the docstrings.

`make docs` treats any warning, and with it any link that leads nowhere, as an error.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "client"))

from gradwire import __version__  # noqa: E402

project = "gradwire"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"gradwire {version}"
# A list that takes in pages by pattern may find none.
suppress_warnings = ["toc.empty_glob"]

# Headings of all levels that are used may be linked to.
myst_heading_anchors = 4
# A link into the repository that is no page is a copy of the file.
myst_links_external_new_tab = False

# Docstrings are sentences with `names` in backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
