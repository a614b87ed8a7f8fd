"""What the server allows: sizes, counts and times, with defaults that suit a server shared by several users."""

import os
import resource
from dataclasses import dataclass, replace
from pathlib import Path

from gradwire.v1 import service_pb2

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# No response passes this unless asked for more: it is what a gRPC client takes when nobody told it otherwise.
RESPONSE_BYTES = 4 * MIB
MIN_SLACK = GIB
# What goes around a payload in its message: ids, a shape of 64 dimensions.
ENVELOPE_BYTES = 4 * KIB
MAX_CAP = 1 << 62


@dataclass(frozen=True)
class Limits:
    """Bytes, counts and seconds.

    `max_session_bytes` and `max_bytes` of 0 mean a share of the machine's memory, a principal's 0 no limit of its own.
    """

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
        """With the memory shares filled in, half for a session, four fifths for all; what a message holds fits it."""
        memory = memory_bytes()
        total = self.max_bytes or memory * 4 // 5
        fitting = self.max_message_bytes - ENVELOPE_BYTES
        return replace(
            self,
            max_bytes=total,
            max_session_bytes=min(self.max_session_bytes or memory // 2, total),
            max_inline_bytes=min(self.max_inline_bytes, fitting),
            chunk_bytes=min(self.chunk_bytes, fitting),
        )

    def message(self) -> service_pb2.Limits:
        """As ServerInfo and OpenSession tell it."""
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
    """Memory that this process may use: the machine's, or its container's if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if path.exists():
            text = path.read_text().strip()
            if text.isdecimal():
                physical = min(physical, int(text))
    return physical


def cap_process(max_bytes: int) -> None:
    """Let the process have what its sessions may hold, and some more for itself, but not all there is.

    A result larger than that is then refused with MemoryError, before its pages are touched; without the cap the
    kernel would grant it and later end the process. For NumPy only: CUDA reserves addresses that this would count.
    """
    held = _data_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    cap = held + max_bytes + max(MIN_SLACK, max_bytes // 8)
    if held and cap < MAX_CAP and (soft == resource.RLIM_INFINITY or cap < soft):
        resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))


def _data_bytes() -> int:
    """Private writable memory that the process has by now, as RLIMIT_DATA counts it; 0 if the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * KIB for line in lines if line.startswith("VmData:")), 0)
