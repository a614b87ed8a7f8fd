"""Generate the other languages' stubs from proto/, or with --check compare them with what is committed.

A language whose plugins of protoc are not installed is skipped, with a sentence. Go's come by

    go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
    go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.stubs import PROTOS, ROOT, compile_protos

GO = ROOT / "client" / "go"
GO_MODULE = "github.com/gradwire/gradwire/client/go"
GO_PLUGINS = ("protoc-gen-go", "protoc-gen-go-grpc")
# Versions of protoc and its plugins, which a developer need not have in common with another.
_VERSIONS = re.compile(r"^// (- |\t)protoc.*\n", re.MULTILINE)


def go_plugin(name: str) -> str | None:
    """Where a plugin is: on the PATH, or where `go install` puts it."""
    if found := shutil.which(name):
        return found
    if not shutil.which("go"):
        return None
    asked = subprocess.run(["go", "env", "GOBIN", "GOPATH"], capture_output=True, text=True, check=True)
    own, path = asked.stdout.splitlines()
    return shutil.which(name, path=own or os.path.join(path, "bin"))


def generate_go(target: Path, plugins: list[str]) -> None:
    """Write the package gradwirepb below `target`."""
    options = [f"--{kind}_opt=module={GO_MODULE}" for kind in ("go", "go-grpc")]
    named = [f"--plugin={name}={path}" for name, path in zip(GO_PLUGINS, plugins, strict=True)]
    compile_protos(ROOT / "proto", *named, f"--go_out={target}", f"--go-grpc_out={target}", *options, *PROTOS)


def stale(fresh: Path, committed: Path) -> list[str]:
    """Names of files that differ in more than versions of tools."""
    names = {path.relative_to(base) for base in (fresh, committed) for path in base.rglob("*.pb.go")}
    return sorted(str(name) for name in names if _text(fresh / name) != _text(committed / name))


def _text(path: Path) -> str:
    return _VERSIONS.sub("", path.read_text("utf-8")) if path.exists() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a stub is stale")
    check = parser.parse_args().check
    found = [go_plugin(name) for name in GO_PLUGINS]
    plugins = [path for path in found if path]
    if len(plugins) < len(GO_PLUGINS):
        print(f"Go's stubs are not compared: {' and '.join(GO_PLUGINS)} are not installed", file=sys.stderr)
        return
    if not check:
        generate_go(GO, plugins)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate_go(Path(folder), plugins)
        if names := stale(Path(folder), GO):
            sys.exit(f"stale Go stubs: {', '.join(names)}; run `python -m tools.sdk_stubs`")


if __name__ == "__main__":
    main()
