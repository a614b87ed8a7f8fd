"""Generate client/gradwire/v1 from proto/, or with --check compare what is committed with what would be generated.

Uses the oldest grpcio-tools the project supports: stubs of a newer one refuse older runtimes at import.
"""

import argparse
import filecmp
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("gradwire", "v1")
PROTOS = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto" / PACKAGE).glob("*.proto"))


def generate(target: Path) -> None:
    """Write the message modules, their type stubs and the service stub below `target`."""
    messages = [f"--python_out={target}", f"--pyi_out={target}", *PROTOS]
    service = [f"--grpc_python_out={target}", str(PACKAGE / "service.proto")]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    for arguments in (messages, service):
        if protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", *arguments]) != 0:
            raise SystemExit("protoc failed")


def stale_stubs() -> list[str]:
    """Names of the generated files that differ from the committed ones."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh, committed = Path(folder) / PACKAGE, ROOT / "client" / PACKAGE
        names = {path.name for base in (fresh, committed) for path in base.glob("*_pb2*.py*")}
        return sorted(name for name in names if not _same(fresh / name, committed / name))


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and filecmp.cmp(left, right, shallow=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a stub is stale")
    if not parser.parse_args().check:
        generate(ROOT / "client")
    elif stale := stale_stubs():
        sys.exit(f"stale stubs: {', '.join(stale)}; run `make stubs`")


if __name__ == "__main__":
    main()
