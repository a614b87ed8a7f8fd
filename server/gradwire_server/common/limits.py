"""Limits: sizes, counts and times that the server allows. The defaults suit a server shared by several users."""

import os
import resource
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from gradwire.v1 import service_pb2

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Most bytes of a response, unless the client asks for more: the default limit of gRPC clients.
RESPONSE_BYTES = 4 * MIB
MIN_SLACK = GIB
# Room for the message around a payload: ids, a shape of 64 dimensions.
ENVELOPE_BYTES = 4 * KIB
MAX_CAP = 1 << 62


@dataclass(frozen=True)
class Limits:
    """Limits in bytes, counts and seconds, and what else a worker is started with: `jit`.

    0 for `max_session_bytes` and `max_bytes` means a share of the machine's memory; for a principal, no limit.
    """

    jit: Literal["on", "off", "verify"] = "on"
    max_connections: int = 4096
    max_connection_calls: int = 256
    max_calls: int = 20_000
    handshake_seconds: float = 10.0
    idle_connection_seconds: float = 300.0
    max_message_bytes: int = 8 * MIB
    max_inline_bytes: int = MIB
    max_tensor_bytes: int = 4 * GIB
    max_session_bytes: int = 0
    max_bytes: int = 0
    max_session_tensors: int = 1_000_000
    max_sessions: int = 10_000
    max_principal_sessions: int = 0
    max_principal_bytes: int = 0
    max_principal_tensors: int = 0
    max_principal_programs: int = 0
    max_session_compute_seconds: float = 0.0
    max_principal_compute_seconds: float = 0.0
    max_op_operations: int = 60_000_000_000
    hold_seconds: float = 60.0
    max_session_inflight_bytes: int = 64 * MIB
    max_principal_inflight_bytes: int = 0
    max_batch_commands: int = 10_000
    chunk_bytes: int = MIB
    max_programs: int = 256
    max_program_bytes: int = MIB
    max_program_steps: int = 50_000
    max_shared_bytes: int = 128 * MIB
    lease_seconds: float = 300.0
    max_lease_seconds: float = 86_400.0
    gap_seconds: float = 5.0
    remembered_bytes: int = 32 * MIB
    remembered_responses: int = 4096
    tombstones: int = 100_000
    writers: int = 256
    max_prepared: int = 4096

    def resolved(self) -> "Limits":
        """Fill in the memory shares, half for a session, four fifths for all. Fit payloads and chunks to a message.

        With GPUs, the memory is that of all cards if the machine has more, and a session gets nine tenths of one card
        at most.
        """
        memory = memory_bytes()
        cards = _card_bytes()
        share = memory // 2
        if cards:
            memory = min(memory, sum(cards))
            share = min(share, max(cards) * 9 // 10)
        total = self.max_bytes or memory * 4 // 5
        fitting = self.max_message_bytes - ENVELOPE_BYTES
        return replace(
            self,
            max_bytes=total,
            max_session_bytes=min(self.max_session_bytes or share, total),
            max_inline_bytes=min(self.max_inline_bytes, fitting),
            chunk_bytes=min(self.chunk_bytes, fitting),
        )

    def message(self) -> service_pb2.Limits:
        """The message of ServerInfo and OpenSession."""
        return service_pb2.Limits(
            max_message_bytes=self.max_message_bytes,
            max_inline_bytes=self.max_inline_bytes,
            max_tensor_bytes=self.max_tensor_bytes,
            max_session_bytes=self.max_session_bytes,
            max_session_tensors=self.max_session_tensors,
            max_sessions=self.max_sessions,
            max_principal_sessions=self.max_principal_sessions,
            max_principal_bytes=self.max_principal_bytes,
            max_principal_tensors=self.max_principal_tensors,
            max_batch_commands=self.max_batch_commands,
            chunk_bytes=self.chunk_bytes,
            max_prepared=self.max_prepared,
            max_principal_programs=self.max_principal_programs,
            max_session_compute_seconds=self.max_session_compute_seconds,
            max_principal_compute_seconds=self.max_principal_compute_seconds,
            max_op_operations=self.max_op_operations,
            max_session_inflight_bytes=self.max_session_inflight_bytes,
            max_principal_inflight_bytes=self.max_principal_inflight_bytes,
            max_programs=self.max_programs,
            max_program_bytes=self.max_program_bytes,
            max_program_steps=self.max_program_steps,
        )


def memory_bytes() -> int:
    """Bytes of memory that this process may use: the smaller of the machine's and its container's."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if path.exists():
            text = path.read_text().strip()
            if text.isdecimal():
                physical = min(physical, int(text))
    return physical


def _card_bytes() -> tuple[int, ...]:
    """Memory of each GPU."""
    if find_spec("cupy") is None:  # no GPUs without CuPy; the front need not load the engine
        return ()
    from gradwire_engine.core.device import card_bytes

    return card_bytes()


def cap_process(max_bytes: int) -> None:
    """Cap the process's data at what it holds now, plus `max_bytes`, plus slack.

    A larger result then raises MemoryError before its pages are touched. Without the cap, the kernel would grant the
    memory and later kill the process. For NumPy only: CUDA reserves addresses that RLIMIT_DATA would count.
    """
    held = _data_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    cap = held + max_bytes + max(MIN_SLACK, max_bytes // 8)
    if held and cap < MAX_CAP and (soft == resource.RLIM_INFINITY or cap < soft):
        resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))


def _data_bytes() -> int:
    """The process's private writable memory in bytes, as RLIMIT_DATA counts it; 0 if unknown."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * KIB for line in lines if line.startswith("VmData:")), 0)
