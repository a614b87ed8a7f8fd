"""The committed stubs are what proto/ generates: nobody's client speaks another contract than the one written down."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import stubs

ROOT = Path(__file__).resolve().parents[2]


def test_committed_stubs_equal_a_regeneration() -> None:
    assert stubs.stale_stubs() == []


def test_a_changed_proto_makes_the_stubs_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for proto in stubs.PROTOS:
        (tmp_path / "proto" / proto).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proto" / proto).write_text((ROOT / "proto" / proto).read_text())
    types = tmp_path / "proto" / "gradwire/v1/types.proto"
    types.write_text(types.read_text() + "\nmessage Newcomer {}\n")
    (tmp_path / "client").symlink_to(ROOT / "client")
    monkeypatch.setattr(stubs, "ROOT", tmp_path)
    assert stubs.stale_stubs() == ["types_pb2.py", "types_pb2.pyi"]


def test_the_check_command_agrees() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "tools" / "stubs.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 0, answer.stderr
