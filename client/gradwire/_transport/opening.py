"""Opening: opens a session at a server, or at the server of the cluster that it names."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gradwire._transport.transport import PROTOCOL, Transport, client_name
from gradwire.v1 import service_pb2, snapshots_pb2


@dataclass(frozen=True)
class Placing:
    """What a new session asks of a cluster: the type of a device, and to be placed together with a gang's others."""

    device_type: str = ""
    gang: str = ""
    gang_size: int = 0

    @classmethod
    def of_this_process(cls, device_type: str = "") -> Placing:
        """Sessions of the processes of one `gradwire run` are a gang."""
        run, size = os.environ.get("GRADWIRE_RUN_ID", ""), os.environ.get("WORLD_SIZE", "")
        if not run or not size.isdecimal():
            return cls(device_type)
        return cls(device_type, f"run/{run}", int(size))


#: A session by itself, on any device.
ANYWHERE = Placing()


def open_session(transport: Transport, placing: Placing = ANYWHERE) -> service_pb2.OpenSessionResponse:
    """Open a session. The transport then uses the server that has it. Raises GradwireError."""
    request = service_pb2.OpenSessionRequest(
        min_protocol=PROTOCOL, max_protocol=PROTOCOL, client=client_name(), follows_endpoint=True,
        device_type=placing.device_type, gang=placing.gang, gang_size=placing.gang_size,
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
