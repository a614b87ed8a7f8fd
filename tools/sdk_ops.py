"""Write the other languages' typed functions from the answer to ListOps, or with --check name the stale files.

`sdk.functions` says what every language needs. A new language adds a module with `files`, and its name to LANGUAGES.
"""

import argparse
import sys

from tools.sdk import cpp, go, java, rust, typescript
from tools.sdk.functions import ROOT

LANGUAGES = (go, typescript, rust, java, cpp)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is stale")
    check = parser.parse_args().check
    files = {path: text for language in LANGUAGES for path, text in language.files().items()}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"stale functions of other languages: {names}; run `python -m tools.sdk_ops`")
    if not check:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8")


if __name__ == "__main__":
    main()
