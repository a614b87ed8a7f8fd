"""The worker's total of bytes follows its sessions, whenever their tensors are freed."""

from google.protobuf.message import Message

from gradwire.v1 import commands_pb2, service_pb2
from gradwire_server.common.limits import Limits
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from tests.server.harness import command, op


def _run(runtime: Runtime, method: str, request: Message | None = None) -> None:
    raw = StorageInstruction().pack() if request is None else request.SerializeToString()
    for _ in runtime.execute(runtime.make_call(method, 1, raw, 1 << 40, None)):
        pass


def test_bytes_freed_between_two_calls_leave_the_total() -> None:
    runtime = Runtime(Limits().resolved(), SharedCounters(1))
    _run(runtime, "Open")
    _run(runtime, "Op", op("zeros", [100], outputs=[5]))
    held = runtime.sessions[1].store[5]  # as a reference cycle holds it, until garbage is collected
    _run(runtime, "Release", commands_pb2.ReleaseRequest(tensors=[5]))
    assert runtime.counters.total() == 400
    del held
    _run(runtime, "Op", op("zeros", [1]))
    assert runtime.counters.total() == 4
    _run(runtime, "Drop")
    assert runtime.counters.total() == 0


def test_bytes_released_after_the_answer_are_counted_when_they_are_released() -> None:
    runtime = Runtime(Limits().resolved(), SharedCounters(1))
    _run(runtime, "Open")
    made = [command(op("zeros", [size], outputs=[size])) for size in (100, 200)]
    last = service_pb2.Command(release=commands_pb2.ReleaseRequest(tensors=[100]), quiet=True)
    read = command(commands_pb2.ReadRequest(tensor=200))
    _run(runtime, "Run", service_pb2.RunRequest(writer=1, first_seq=1, commands=[*made, read, last]))
    assert runtime.sessions[1].deferred_releases
    runtime.apply_deferred_releases(runtime.sessions[1])
    assert runtime.counters.total() == 800
