"""Methods: the RPCs that carry one command each, from the contract. Every command of a batch has one."""

from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from gradwire.v1 import service_pb2

_REQUEST = "Request"
_requests: list[Any] = [field.message_type for field in service_pb2.Command.DESCRIPTOR.oneofs_by_name["command"].fields]
#: Request type by method, such as CreateRequest by "Create".
COMMANDS: dict[str, type[Message]] = {
    request.name.removesuffix(_REQUEST): GetMessageClass(request)
    for request in _requests
    if request.name.endswith(_REQUEST)
}
