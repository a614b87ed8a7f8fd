"""Saved files: writes, reads, lists and deletes files on the server's disk, without transfer of tensors."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from gradwire._base.errors import refuse
from gradwire._base.modes import is_inference_mode_enabled
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import read_spec
from gradwire._proxy.results import new_proxy
from gradwire._session.sessions import current_session
from gradwire.v1 import files_pb2, types_pb2


@dataclass(frozen=True)
class SavedFile:
    """A file on the server's disk: name, size in bytes, and time of writing."""

    name: str
    nbytes: int
    saved: datetime


def write_file(name: str, tensors: Mapping[str, Handle], metadata: Mapping[str, str]) -> None:
    """Write tensors to a file on the server. Raises RuntimeError for tensors of two sessions, and GradwireError."""
    session = next((each._session for each in tensors.values()), None) or current_session()
    request = files_pb2.SaveFileRequest(session_id=session._session_id, name=name, metadata=metadata)
    for key, tensor in tensors.items():
        if tensor._session is not session:
            raise refuse(f"save(): {key!r} is a tensor of another session than those before it")
        request.tensors.add(name=key, id=tensor._id)
    session.sync()
    session._transport.call("SaveFile", request, files_pb2.SaveFileResponse, timeout=None)


def read_file(name: str, device: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Load a file on the server as leaves. Returns the tensors by name, and the file's metadata."""
    session = current_session()
    request = files_pb2.LoadFileRequest(
        session_id=session._session_id, request_id=secrets.token_urlsafe(12), name=name, device=device
    )
    if is_inference_mode_enabled():
        request.grad_mode = types_pb2.GRAD_MODE_INFERENCE
    session.sync()
    answer = session._transport.call("LoadFile", request, files_pb2.LoadFileResponse, timeout=None)
    made = {each.name: new_proxy(session, each.spec.id, read_spec(each.spec)) for each in answer.tensors}
    return made, dict(answer.metadata)


def saved_files() -> list[SavedFile]:
    """The caller's files on the current session's server, by name."""
    request = files_pb2.ListFilesRequest()
    answer = current_session()._transport.call("ListFiles", request, files_pb2.ListFilesResponse)
    return [
        SavedFile(each.name, each.bytes, datetime.fromtimestamp(each.saved_unix_ms / 1000, timezone.utc))
        for each in answer.files
    ]


def delete_saved_file(name: str) -> None:
    """Delete a file on the current session's server. Raises RuntimeError if the caller has none of that name."""
    request = files_pb2.DeleteFileRequest(name=name)
    current_session()._transport.call("DeleteFile", request, files_pb2.DeleteFileResponse)
