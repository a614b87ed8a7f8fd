"""The protos are the manual for other languages: every part is explained, and named by buf's STANDARD rules.

`npx @bufbuild/buf lint proto` checks the same names (proto/buf.yaml); this needs nothing but grpcio-tools.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

from gradwire.v1.command_facts import FACTS
from tests.rpcs import WITHOUT_SESSION
from tools.stubs import PROTOS, ROOT

# One element of the contract: its dotted name, its descriptor, its path in SourceCodeInfo.
Element = tuple[str, object, tuple[int, ...]]


def _snake(camel: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", camel).upper()


def _message_elements(name: str, message: DescriptorProto, path: tuple[int, ...]) -> Iterator[Element]:
    yield name, message, path
    for i, field in enumerate(message.field):
        yield f"{name}.{field.name}", field, (*path, DescriptorProto.FIELD_FIELD_NUMBER, i)
    for i, oneof in enumerate(message.oneof_decl):
        # protoc adds a oneof for each `optional` field.
        if not oneof.name.startswith("_"):
            yield f"{name}.{oneof.name}", oneof, (*path, DescriptorProto.ONEOF_DECL_FIELD_NUMBER, i)
    for i, enum in enumerate(message.enum_type):
        yield from _enum_elements(f"{name}.{enum.name}", enum, (*path, DescriptorProto.ENUM_TYPE_FIELD_NUMBER, i))
    for i, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            inner = (*path, DescriptorProto.NESTED_TYPE_FIELD_NUMBER, i)
            yield from _message_elements(f"{name}.{nested.name}", nested, inner)


def _enum_elements(name: str, enum: EnumDescriptorProto, path: tuple[int, ...]) -> Iterator[Element]:
    yield name, enum, path
    for i, value in enumerate(enum.value):
        yield f"{name}.{value.name}", value, (*path, EnumDescriptorProto.VALUE_FIELD_NUMBER, i)


def elements(file: FileDescriptorProto) -> Iterator[Element]:
    """Everything a file declares: messages, fields, oneofs, enums, their values, services, rpcs."""
    for i, message in enumerate(file.message_type):
        yield from _message_elements(message.name, message, (FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER, i))
    for i, enum in enumerate(file.enum_type):
        yield from _enum_elements(enum.name, enum, (FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER, i))
    for i, service in enumerate(file.service):
        path = (FileDescriptorProto.SERVICE_FIELD_NUMBER, i)
        yield service.name, service, path
        for j, method in enumerate(service.method):
            yield f"{service.name}.{method.name}", method, (*path, 2, j)


def parse(folder: Path, out: Path) -> list[FileDescriptorProto]:
    """The protos of `folder`, with their comments."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    options = [f"-I{folder}", f"-I{well_known}", "--include_source_info", f"--descriptor_set_out={out}"]
    assert protoc.main(["protoc", *options, *PROTOS]) == 0
    return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def uncommented(file: FileDescriptorProto) -> list[str]:
    comments = {
        tuple(location.path): location.leading_comments or location.trailing_comments
        for location in file.source_code_info.location
    }
    return [name for name, _, path in elements(file) if not comments.get(path, "").strip()]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[FileDescriptorProto]:
    return parse(ROOT / "proto", tmp_path_factory.mktemp("proto") / "descriptors")


@pytest.fixture(scope="module")
def messages(files: list[FileDescriptorProto]) -> dict[str, DescriptorProto]:
    return {message.name: message for file in files for message in file.message_type}


@pytest.fixture(scope="module")
def methods(files: list[FileDescriptorProto]) -> list[MethodDescriptorProto]:
    return [method for file in files for service in file.service for method in service.method]


def test_everything_has_a_comment(files: list[FileDescriptorProto]) -> None:
    assert [name for file in files for name in uncommented(file)] == []


def test_a_missing_comment_is_found(tmp_path: Path) -> None:
    for proto in PROTOS:
        target = tmp_path / proto
        target.parent.mkdir(parents=True, exist_ok=True)
        source = (ROOT / "proto" / proto).read_text()
        target.write_text(re.sub(r" *// Real part\.\n", "", source))
    bare = [name for file in parse(tmp_path, tmp_path / "descriptors") for name in uncommented(file)]
    assert bare == ["Complex.real"]


def test_enum_values_are_prefixed_and_begin_unspecified(files: list[FileDescriptorProto]) -> None:
    wrong = [
        f"{enum.name}.{value.name}"
        for file in files
        for enum in (item for _, item, _ in elements(file) if isinstance(item, EnumDescriptorProto))
        for value in enum.value
        if not value.name.startswith(_snake(enum.name) + "_")
        or (value.number == 0) != value.name.endswith("_UNSPECIFIED")
    ]
    assert wrong == []


def test_rpcs_have_their_own_request_and_response(methods: list[MethodDescriptorProto]) -> None:
    assert methods
    for method in methods:
        assert method.input_type == f".gradwire.v1.{method.name}Request"
        assert method.output_type == f".gradwire.v1.{method.name}Response"


def test_names_are_cased_as_buf_standard_asks(files: list[FileDescriptorProto]) -> None:
    wrong = []
    for file in files:
        assert file.package == "gradwire.v1"
        assert all(service.name.endswith("Service") for service in file.service)
        for name, item, _ in elements(file):
            if isinstance(item, FieldDescriptorProto):
                pattern = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
            elif isinstance(item, (DescriptorProto, EnumDescriptorProto, MethodDescriptorProto)):
                pattern = r"([A-Z][a-z0-9]*)+"
            else:
                continue
            if not re.fullmatch(pattern, item.name):
                wrong.append(name)
    assert wrong == []


def test_first_field_of_every_session_request_is_the_session(
    methods: list[MethodDescriptorProto], messages: dict[str, DescriptorProto]
) -> None:
    # An upload and a stream have parts: the first names the session.
    begins = {"Upload": "UploadStart", "Stream": "StreamAttach"}
    requests = {m.name: messages[begins.get(m.name, f"{m.name}Request")] for m in methods}
    for name, request in requests.items():
        by_number = {field.number: field.name for field in request.field}
        assert (by_number.get(1) == "session_id") == (name not in WITHOUT_SESSION), name


def test_every_mutating_command_can_be_retried(messages: dict[str, DescriptorProto]) -> None:
    for command, facts in FACTS.items():
        if facts.has_rpc:  # in batches seq does what request_id does elsewhere
            numbers = {field.name: field.number for field in messages[f"{facts.method}Request"].field}
            assert numbers.get("request_id") == (None if facts.read_only else 2), command


def test_batches_and_unary_calls_share_their_messages(
    methods: list[MethodDescriptorProto], messages: dict[str, DescriptorProto]
) -> None:
    unary = {method.input_type for method in methods}
    results = {field.name: field.type_name for field in messages["Result"].field}
    for field in messages["Command"].field:
        if field.type_name and FACTS[field.name].has_rpc:
            assert field.type_name in unary
            assert results[field.name] == field.type_name.removesuffix("Request") + "Response"


def test_bulk_bytes_are_the_last_field(messages: dict[str, DescriptorProto]) -> None:
    for name in ("Payload", "UploadRequest", "DownloadResponse"):
        last = max(messages[name].field, key=lambda field: field.number)
        assert (last.name, last.type) == ("data", FieldDescriptorProto.TYPE_BYTES)
