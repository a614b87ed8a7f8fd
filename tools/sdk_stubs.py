"""Generate the other languages' stubs from proto/, or with --check compare them with what is committed.

A language whose plugins of protoc are not installed is skipped, with a sentence. Go's come by

    go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
    go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

TypeScript's comes by `npm ci` in client/typescript.
Rust's come by

    cargo install protoc-gen-prost@0.5.0 protoc-gen-tonic@0.5.0

A new language adds a module with `missing` and `generate` to `sdk`, and its name to LANGUAGES.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tools.sdk import go, rust, typescript

LANGUAGES = (go, typescript, rust)
# Versions of protoc and its plugins, which a developer need not have in common with another.
_VERSIONS = re.compile(r"^// (- |\t)protoc.*\n", re.MULTILINE)


def stale(fresh: Path, committed: Path, patterns: tuple[str, ...]) -> list[str]:
    """Names of files that differ in more than versions of tools."""
    names = {
        path.relative_to(base) for base in (fresh, committed) for pattern in patterns for path in base.glob(pattern)
    }
    return sorted(str(name) for name in names if _text(fresh / name) != _text(committed / name))


def _text(path: Path) -> str:
    return _VERSIONS.sub("", path.read_text("utf-8")) if path.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a stub is stale")
    check = parser.parse_args().check
    for language in LANGUAGES:
        if absent := language.missing():
            print(f"{language.LANGUAGE}'s stubs are not compared: {absent}", file=sys.stderr)
        elif not check:
            language.generate(language.FOLDER)
        else:
            with tempfile.TemporaryDirectory() as folder:
                language.generate(Path(folder))
                if names := stale(Path(folder), language.FOLDER, language.STUBS):
                    sys.exit(f"stale stubs of {language.LANGUAGE}: {', '.join(names)}; run `python -m tools.sdk_stubs`")


if __name__ == "__main__":
    main()
