"""Transfers by shared memory: the client verifies the memory, and falls back to the connection."""

import os
import tempfile

import numpy as np
import pytest

import gradwire
from gradwire._transport import bulk, shared
from gradwire.v1 import service_pb2

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no memfd")
VALUES = np.arange(3 << 18, dtype=np.float32)  # 3 MiB


def memory(name: str = "gradwire-word", size: int = 4096, sealed: bool = True) -> int:
    import fcntl

    handle = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, size)
    if sealed:
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return handle


def ring(handle: int, name: str = "word", size: int = 4096) -> service_pb2.Ring:
    return service_pb2.Ring(pid=os.getpid(), fd=handle, name=name, bytes=size)


def test_memory_that_is_what_it_should_be_is_shared() -> None:
    handle = memory()
    opened = shared.open_ring(ring(handle))
    opened[10] = 7
    assert os.pread(handle, 1, 10) == b"\x07"
    os.close(handle)


def test_files_and_memory_of_others_are_not_written_to() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        handles = [memory("gradwire-other"), memory(size=8192), memory(sealed=False)]
        for handle in (file.fileno(), *handles, 999_999):
            with pytest.raises(shared.NotShared):
                shared.open_ring(ring(handle))
        for handle in handles:
            os.close(handle)


def test_a_ring_made_for_another_word_is_not_taken(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared.secrets, "token_hex", lambda count: "abcdefgh")
    first = service_pb2.ShareRequest(session_id=deferring.session_id, upload=service_pb2.UploadStart(total_bytes=100))
    shared.SharedTransfer(deferring._transport, first, {}).cancel()

    class Lying(shared.SharedTransfer):
        def _next(self) -> service_pb2.ShareResponse:
            answer = super()._next()
            answer.ring.name = "ijklmnop"
            return answer

    with pytest.raises(shared.NotShared, match="another request"):
        Lying(deferring._transport, first, {})


def test_without_it_bytes_go_by_the_connection(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ring: service_pb2.Ring) -> None:
        raise shared.NotShared("not today")

    assert deferring._bulk._shares
    monkeypatch.setattr(shared, "open_ring", refuse)
    x = gradwire.tensor(VALUES)
    assert not deferring._bulk._shares
    np.testing.assert_array_equal(x.numpy(), VALUES)


def test_a_share_that_ends_midway_continues_by_the_connection(deferring, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, counted = shared.SharedTransfer.receive_position, []

    def broken(self: shared.SharedTransfer, least: int, most: int) -> int:
        counted.append(least)
        if len(counted) > 2:
            raise shared.NotShared("enough")
        return receive(self, least, most)

    values = np.arange(5 << 20, dtype=np.float32)
    x = gradwire.tensor(values)
    for _ in range(2):
        deferring._bulk._shares = True
        counted.clear()
        with monkeypatch.context() as patched:
            patched.setattr(bulk.SharedTransfer, "receive_position", broken)
            np.testing.assert_array_equal(x.numpy(), values)
            assert len(counted) == 3
            deferring._bulk._shares = True
            counted.clear()
            x = gradwire.tensor(values)
            assert len(counted) == 3


def test_a_session_on_another_machine_does_not_ask(deferring) -> None:
    answer = service_pb2.OpenSessionResponse(machine="0" * 32)
    assert not shared.may_share(answer)
    assert not shared.may_share(service_pb2.OpenSessionResponse())
    answer.machine = shared.machine()
    assert shared.may_share(answer)
