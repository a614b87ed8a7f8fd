"""Clients of earlier versions keep working.

tests/contract/v<version> holds each version's contract, and a client built from it alone. `make freeze` stores the
current contract when a version is tagged.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.contract.wire import breaches
from tools.freeze import contract

FROZEN = sorted(Path(__file__).parent.glob("v*_*/descriptors.binpb"))


@pytest.fixture(scope="module")
def present() -> FileDescriptorSet:
    return contract()


def test_there_are_frozen_versions() -> None:
    assert FROZEN


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.parent.name)
def test_the_contract_has_only_grown_since(frozen: Path, present: FileDescriptorSet) -> None:
    assert breaches(FileDescriptorSet.FromString(frozen.read_bytes()), present) == []


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.parent.name)
def test_a_client_of_then_works_with_the_server_of_now(frozen: Path, server_address: str) -> None:
    ended = subprocess.run(
        [sys.executable, frozen.with_name("client.py"), server_address],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("the contract of ")


def _drop_field(files: FileDescriptorSet) -> None:
    del message(files, "RunRequest").field[2]


def _retype(files: FileDescriptorSet) -> None:
    field = message(files, "RunRequest").field[2]
    field.type = field.TYPE_STRING


def _renumber(files: FileDescriptorSet) -> None:
    message(files, "CloseSessionRequest").field[0].number = 7


def _repeat(files: FileDescriptorSet) -> None:
    field = message(files, "OpenSessionRequest").field[0]
    field.label = field.LABEL_REPEATED


def _leave_oneof(files: FileDescriptorSet) -> None:
    message(files, "Command").field[0].ClearField("oneof_index")


def _drop_message(files: FileDescriptorSet) -> None:
    next(file for file in files.file if file.name.endswith("service.proto")).message_type.pop()


def _drop_enum_value(files: FileDescriptorSet) -> None:
    next(enum for file in files.file for enum in file.enum_type if enum.name == "Dtype").value.pop()


def _drop_method(files: FileDescriptorSet) -> None:
    next(file for file in files.file if file.service).service[0].method.pop()


def _stream(files: FileDescriptorSet) -> None:
    next(file for file in files.file if file.service).service[0].method[0].server_streaming = True


def message(files: FileDescriptorSet, name: str) -> "object":
    return next(each for file in files.file for each in file.message_type if each.name == name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_drop_field, "RunRequest: field 3 (first_seq) is gone"),
        (_retype, "RunRequest: field 3 was"),
        (_renumber, "CloseSessionRequest: field 1 (session_id) is gone"),
        (_repeat, "OpenSessionRequest: field 1 was"),
        (_leave_oneof, "Command: field 1 was"),
        (_drop_message, "message gradwire.v1."),
        (_drop_enum_value, "gradwire.v1.Dtype: value"),
        (_drop_method, "method gradwire.v1.AutogradService."),
        (_stream, "method gradwire.v1.AutogradService.OpenSession was"),
    ],
)
def test_what_breaks_the_contract_is_found(
    present: FileDescriptorSet, change: Callable[[FileDescriptorSet], None], told: str
) -> None:
    changed = FileDescriptorSet.FromString(present.SerializeToString())
    change(changed)
    (found, *_) = breaches(present, changed)
    assert told in found


def test_growth_is_no_breach(present: FileDescriptorSet) -> None:
    grown = FileDescriptorSet.FromString(present.SerializeToString())
    request = next(each for file in grown.file for each in file.message_type if each.name == "KeepAliveRequest")
    request.field.add(name="new", number=99, type=request.field[0].TYPE_STRING, label=request.field[0].LABEL_OPTIONAL)
    request.field[0].name = "renamed"
    assert breaches(present, grown) == []
