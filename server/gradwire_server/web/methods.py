"""Methods: the contract's unary methods by path, from the descriptors of all its services."""

from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from gradwire.v1 import service_pb2


@dataclass(frozen=True)
class Method:
    """A unary method: its path, such as "/gradwire.v1.AutogradService/Create", and its messages' types."""

    path: str
    request: type[Message]
    response: type[Message]


def _files() -> list[FileDescriptor]:
    """The contract's files: the service's and what it imports of the same package."""
    found: dict[str, FileDescriptor] = {}
    waiting: list[Any] = [service_pb2.DESCRIPTOR]
    while waiting:
        file = waiting.pop()
        if file.name not in found and file.package == service_pb2.DESCRIPTOR.package:
            found[file.name] = file
            waiting.extend(file.dependencies)
    return list(found.values())


def _methods() -> list[MethodDescriptor]:
    services = [service for file in _files() for service in file.services_by_name.values()]
    return [method for service in services for method in service.methods]


def _path(method: Any) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


#: Unary methods by path.
UNARY: dict[str, Method] = {
    _path(method): Method(_path(method), GetMessageClass(method.input_type), GetMessageClass(method.output_type))
    for method in _methods()
    if not method.client_streaming and not method.server_streaming
}
#: Paths of the methods with a stream of messages.
STREAMING: frozenset[str] = frozenset(map(_path, _methods())) - UNARY.keys()
