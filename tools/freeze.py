"""Keep the contract of this version below tests/contract, where tests hold later ones to it.

For when a version is tagged. A version that is frozen is not written again. What to add by hand is a client.py beside
it, built from descriptors.binpb alone; the one of the version before is where to begin.
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gradwire_server import __version__
from tools.stubs import ROOT, compile_protos, protos


def contract() -> FileDescriptorSet:
    """What messages follow now."""
    with tempfile.TemporaryDirectory() as folder:
        names, made = protos(Path(folder)), Path(folder, "descriptors")
        compile_protos(Path(folder), f"--descriptor_set_out={made}", *names)
        return FileDescriptorSet.FromString(made.read_bytes())


def main() -> None:
    folder = ROOT / "tests/contract" / f"v{__version__.replace('.', '_')}"
    path = folder / "descriptors.binpb"
    if path.exists():
        sys.exit(f"{path.relative_to(ROOT)} is there already: a frozen contract is not changed; raise the version")
    folder.mkdir(exist_ok=True)
    path.write_bytes(contract().SerializeToString())


if __name__ == "__main__":
    main()
