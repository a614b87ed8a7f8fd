"""Opening: opens a session at a server, or at the server of the cluster that it names."""

from __future__ import annotations

from gradwire._transport.transport import PROTOCOL, Transport, client_name
from gradwire.v1 import service_pb2


def open_session(transport: Transport) -> service_pb2.OpenSessionResponse:
    """Open a session. The transport then uses the server that has it. Raises GradwireError."""
    request = service_pb2.OpenSessionRequest(
        min_protocol=PROTOCOL, max_protocol=PROTOCOL, client=client_name(), follows_endpoint=True
    )
    answer = transport.call("OpenSession", request, service_pb2.OpenSessionResponse)
    if answer.endpoint and not answer.session_id:
        transport.servers.move(transport.address, answer.endpoint)
        request.follows_endpoint = False
        answer = transport.call("OpenSession", request, service_pb2.OpenSessionResponse)
    return answer
