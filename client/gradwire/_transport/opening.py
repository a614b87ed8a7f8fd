"""Opening: opens a session at a server, or at the server of the cluster that it names."""

from __future__ import annotations

from gradwire._transport.transport import PROTOCOL, Transport, client_name
from gradwire.v1 import service_pb2, snapshots_pb2


def open_session(transport: Transport, device_type: str = "") -> service_pb2.OpenSessionResponse:
    """Open a session. The transport then uses the server that has it. Raises GradwireError."""
    request = service_pb2.OpenSessionRequest(
        min_protocol=PROTOCOL, max_protocol=PROTOCOL, client=client_name(), follows_endpoint=True,
        device_type=device_type,
    )  # fmt: skip
    answer = transport.call("OpenSession", request, service_pb2.OpenSessionResponse)
    if _follow(transport, answer):
        request.follows_endpoint = False
        answer = transport.call("OpenSession", request, service_pb2.OpenSessionResponse)
    return answer


def restore_session(transport: Transport, name: str, device_type: str = "") -> service_pb2.RestoreSessionResponse:
    """Open a session from a named snapshot, as `open_session` does. Raises GradwireError."""
    request = snapshots_pb2.RestoreSessionRequest(
        name=name, client=client_name(), named_only=True, follows_endpoint=True, device_type=device_type
    )
    answer = transport.call("RestoreSession", request, service_pb2.RestoreSessionResponse, timeout=None)
    if _follow(transport, answer.session):
        request.follows_endpoint = False
        answer = transport.call("RestoreSession", request, service_pb2.RestoreSessionResponse, timeout=None)
    return answer


def _follow(transport: Transport, answer: service_pb2.OpenSessionResponse) -> bool:
    """Use the server that is to open the session; whether the answer names one."""
    if not answer.endpoint or answer.session_id:
        return False
    transport.servers.move(transport.address, answer.endpoint)
    return True
