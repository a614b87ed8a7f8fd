"""The committed stubs equal what tools/stubs.py generates from proto/."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import stubs

ROOT = Path(__file__).resolve().parents[2]


def test_committed_stubs_equal_a_regeneration() -> None:
    assert stubs.stale_stubs() == []


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the protos, beside the committed stubs, that the tool reads."""
    for proto in stubs.PROTOS:
        (tmp_path / "proto" / proto).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proto" / proto).write_text((ROOT / "proto" / proto).read_text())
    (tmp_path / "client").symlink_to(ROOT / "client")
    monkeypatch.setattr(stubs, "ROOT", tmp_path)
    return tmp_path / "proto/gradwire/v1"


def test_a_changed_proto_makes_the_stubs_stale(copied: Path) -> None:
    types = copied / "types.proto"
    types.write_text(types.read_text() + "\nmessage Newcomer {}\n")
    assert stubs.stale_stubs() == ["types_pb2.py", "types_pb2.pyi"]


def test_a_changed_fact_makes_the_table_stale_and_no_stub(copied: Path) -> None:
    change(copied / "service.proto", 'makes: "edge", ', "")
    assert stubs.stale_stubs() == [stubs.TABLE]


def test_a_fact_that_names_no_field_is_refused(copied: Path) -> None:
    change(copied / "service.proto", 'makes: "edge"', 'makes: "edges"')
    with pytest.raises(SystemExit, match="name_edge: edges is no field of NameEdgeRequest"):
        stubs.stale_stubs()


def change(path: Path, before: str, now: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, now))


def test_the_stubs_load_no_descriptors_of_options() -> None:
    program = "import gradwire.v1.service_pb2, sys; print('google.protobuf.descriptor_pb2' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.stdout == "False\n", answer.stderr


def test_the_check_command_agrees() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "tools" / "stubs.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
