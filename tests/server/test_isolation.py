"""Two principals on one server: with another's ids, names and numbers there is nothing to learn and nothing to change.

Every RPC has a line in REQUESTS and every field of a request a kind, so that a new one needs a decision. Whatever is
asked with another's values is answered as with values that nobody has.
"""

import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from gradwire.v1 import collectives_pb2 as g
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import files_pb2 as f
from gradwire.v1 import hooks_pb2 as h
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import snapshots_pb2 as n
from gradwire.v1 import types_pb2 as t
from gradwire_server.app.metrics import Metrics
from gradwire_server.registry.files import FileDirectory
from gradwire_server.registry.process_backend import WorkersBackend
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.registry.thread_backend import InProcessBackend
from gradwire_server.rpc.server import Server
from tests.server.harness import LIMITS, Id, Running, argument, op, refusal, upload_parts
from tests.server.test_principals import SERVICE, House, Metadata
from tests.server.test_process import WAIT

BIG = 100_000  # floats, which are read by a transfer
PROGRAM = p.Program(
    inputs=[p.ProgramInput(dtype=t.DTYPE_FLOAT32, shape=[3])],
    steps=[p.ProgramStep(op=op("mul", Id(1), Id(1), outputs=[2]))],
    outputs=[2],
).SerializeToString()


@dataclass(frozen=True)
class Values:
    """All that names something."""

    session: str
    tensor: int
    download: str  # a transfer that Read gave
    upload: str  # one that is not finished
    upload_name: str  # the request_id that it began with
    received: str  # one that is
    program: bytes
    snapshot: str
    file: str
    hook: int
    node: int
    backward: int
    request: str  # the request_id of a command that was applied
    number: int  # as administrators know the session

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__dict__.values())


NOBODYS = Values(
    "n" * 43, 77_001, "n" * 22, "o" * 22, "nobodys-upload", "p" * 22, b"n" * 32, "nobodys", "nobodys", 77_002, 77_003,
    77_004, "nobodys-request", 77_005,
)  # fmt: skip
Make = Callable[[Values], list[Any]]


def create(v: Values) -> list[Any]:
    told = c.Transfer(dtype=t.DTYPE_FLOAT32, shape=[25], transfer_id=v.received, total_bytes=100)
    values = t.Payload(dtype=t.DTYPE_FLOAT32, shape=[1], data=bytes(4))
    return [
        c.CreateRequest(session_id=v.session, id=501, transfer=told),
        c.CreateRequest(session_id=v.session, id=502, request_id=v.request, payload=values),
    ]


def shares(v: Values) -> list[Any]:
    fields = {"session_id": v.session, "nonce": "nonce1234"}
    start = s.UploadStart(session_id=v.session, transfer_id=v.upload, total_bytes=100, offset=50)
    return [
        s.ShareRequest(**fields, download=s.DownloadRequest(session_id=v.session, transfer_id=v.download)),
        s.ShareRequest(**fields, upload=start),
    ]


def uploads(v: Values) -> list[Any]:
    start = {"session_id": v.session, "total_bytes": 100, "offset": 50}
    return [
        s.UploadRequest(start=s.UploadStart(**start, transfer_id=v.upload)),
        s.UploadRequest(start=s.UploadStart(**start, request_id=v.upload_name)),
    ]


def op_with(v: Values) -> list[Any]:
    index = argument([Id(v.tensor)])
    return [op("exp", Id(v.tensor), session_id=v.session), op("stack", index, session_id=v.session)]


#: What each RPC can be asked with values of somebody.
REQUESTS: dict[str, Make] = {
    "OpenSession": lambda v: [s.OpenSessionRequest(session_id=v.session)],
    "KeepAlive": lambda v: [s.KeepAliveRequest(session_id=v.session)],
    "CloseSession": lambda v: [s.CloseSessionRequest(session_id=v.session)],
    "Create": create,
    "Op": op_with,
    "Backward": lambda v: [c.BackwardRequest(session_id=v.session, tensors=[v.tensor], inputs=[v.tensor])],
    "RetainGrad": lambda v: [c.RetainGradRequest(session_id=v.session, tensor=v.tensor)],
    "Grad": lambda v: [c.GradRequest(session_id=v.session, tensor=v.tensor)],
    "Gradients": lambda v: [
        c.GradientsRequest(session_id=v.session, outputs=[v.tensor], inputs=[v.tensor]),
        c.GradientsRequest(session_id=v.session, outputs=[v.tensor], called_node=v.node),
    ],
    "SetGrad": lambda v: [c.SetGradRequest(session_id=v.session, tensor=v.tensor)],
    "SetRequiresGrad": lambda v: [c.SetRequiresGradRequest(session_id=v.session, tensor=v.tensor)],
    "SetData": lambda v: [c.SetDataRequest(session_id=v.session, tensor=v.tensor, data=v.tensor)],
    "ManualSeed": lambda v: [c.ManualSeedRequest(session_id=v.session, request_id=v.request, seed=3)],
    "Describe": lambda v: [c.DescribeRequest(session_id=v.session, tensors=[v.tensor])],
    "Read": lambda v: [c.ReadRequest(session_id=v.session, tensor=v.tensor)],
    "Release": lambda v: [c.ReleaseRequest(session_id=v.session, tensors=[v.tensor])],
    "Graph": lambda v: [
        c.GraphRequest(session_id=v.session, tensors=[v.tensor]),
        c.GraphRequest(session_id=v.session, page_token=str(v.node)),
    ],
    "Upload": uploads,
    "Download": lambda v: [
        s.DownloadRequest(session_id=v.session, transfer_id=each) for each in (v.download, v.upload, v.received)
    ],
    "Share": shares,
    "Run": lambda v: [s.RunRequest(session_id=v.session, writer=1, first_seq=1, commands=[s.Command()])],
    "Stream": lambda v: [s.StreamRequest(attach=s.StreamAttach(session_id=v.session, writer=1))],
    "RegisterProgram": lambda v: [
        p.RegisterProgramRequest(session_id=v.session, hash=hashlib.sha256(PROGRAM).digest(), program=PROGRAM)
    ],
    "RunProgram": lambda v: [p.RunProgramRequest(session_id=v.session, hash=v.program, inputs=[v.tensor], outputs=[9])],
    "LoadProgram": lambda v: [p.LoadProgramRequest(session_id=v.session, file=v.tensor)],
    "SaveProgram": lambda v: [p.SaveProgramRequest(session_id=v.session, file=v.tensor, id=9)],
    "RegisterHook": lambda v: [
        h.RegisterHookRequest(session_id=v.session, hook=v.hook, tensor=v.tensor, kind=kind) for kind in (1, 2)
    ] + [h.RegisterHookRequest(session_id=v.session, hook=v.hook, node=v.node, kind=kind) for kind in (3, 4)],
    "RemoveHook": lambda v: [h.RemoveHookRequest(session_id=v.session, hook=v.hook)],
    "ResumeBackward": lambda v: [h.ResumeBackwardRequest(session_id=v.session, backward=v.backward, abandon=True)],
    "RecordFunction": lambda v: [
        h.RecordFunctionRequest(
            session_id=v.session, hook=v.hook, inputs=[v.tensor], outputs=[v.tensor], saved=[v.tensor]
        )
    ],
    "Checkpoint": lambda v: [
        h.CheckpointRequest(session_id=v.session, hook=v.hook, mark=mark, outputs=[v.tensor]) for mark in (1, 2, 3, 4)
    ],
    "NameEdge": lambda v: [h.NameEdgeRequest(session_id=v.session, tensor=v.tensor, edge=9)],
    "PackSaved": lambda v: [h.PackSavedRequest(session_id=v.session, number=v.hook, step=step) for step in (1, 2, 3)],
    "Collective": lambda v: [
        g.CollectiveRequest(session_id=v.session, kind=g.COLLECTIVE_KIND_BARRIER, group="group"),
        g.CollectiveRequest(
            session_id=v.session, kind=g.COLLECTIVE_KIND_ALL_REDUCE, group="group", op=g.REDUCE_OP_SUM,
            inputs=[v.tensor], outputs=[v.tensor],
        ),
    ],
    "SavedValue": lambda v: [
        h.SavedValueRequest(session_id=v.session, tensor=v.tensor, name="self"),
        h.SavedValueRequest(session_id=v.session, node=v.node, name="self"),
        h.SavedValueRequest(session_id=v.session, tensor=v.tensor, name="self", pack=[v.hook], recomputed=v.hook),
    ],
    "SetCounters": lambda v: [
        c.SetCountersRequest(session_id=v.session, tensor=v.tensor, version=3),
        c.SetCountersRequest(session_id=v.session, node=v.node, sequence=3),
    ],
    "Cancel": lambda v: [
        s.CancelRequest(session_id=v.session), s.CancelRequest(session_id=v.session, writer=1, through_seq=9)
    ],
    "SaveSession": lambda v: [
        n.SaveSessionRequest(session_id=v.session, name=v.snapshot, tensors=[n.NamedTensor(name="w", id=v.tensor)])
    ],
    "RestoreSession": lambda v: [n.RestoreSessionRequest(name=v.snapshot)],
    "ListSnapshots": lambda v: [n.ListSnapshotsRequest()],
    "DeleteSnapshot": lambda v: [n.DeleteSnapshotRequest(name=v.snapshot)],
    "SaveFile": lambda v: [
        f.SaveFileRequest(session_id=v.session, name="mine", tensors=[n.NamedTensor(name="w", id=v.tensor)])
    ],
    "LoadFile": lambda v: [f.LoadFileRequest(session_id=v.session, name=v.file, ids=[9])],
    "ListFiles": lambda v: [f.ListFilesRequest()],
    "DeleteFile": lambda v: [f.DeleteFileRequest(name=v.file)],
    "ServerInfo": lambda v: [s.ServerInfoRequest()],
    "ListOps": lambda v: [s.ListOpsRequest(prefix="zer")],
    "ListSessions": lambda v: [s.ListSessionsRequest(principal="alice"), s.ListSessionsRequest(stored=True)],
    "EndSession": lambda v: [s.EndSessionRequest(number=v.number), s.EndSessionRequest(number=v.number, stored=True)],
}  # fmt: skip
#: Fields of requests by name: those that name something of somebody's, and those that are the caller's own.
NAMES = {
    "session_id", "transfer_id", "request_id", "name", "hash", "number", "hook", "hooks", "node", "backward", "edge",
    "tensor", "tensors", "id", "ids", "inputs", "outputs", "grad_outputs", "gradients", "results", "grad", "data",
    "saved", "dirty", "group", "non_differentiable", "unpacked", "pack", "page_token", "principal", "file",
    "recomputed", "called_node",
}  # fmt: skip
# A gang has the caller in its name at the server.
OWN = {
    "acknowledged_seq", "after", "any_peer", "attempt", "client", "count", "device", "device_type", "epoch", "first",
    "first_seq", "gang", "gang_size", "grace_ms", "key", "known_hash", "lease_ms", "max_protocol", "min_protocol",
    "moved", "nonce", "numbers", "offset", "op", "page_size", "peer", "prefix", "program", "rank", "repeat", "seed",
    "sequence", "size", "sliced", "state", "string", "tag", "through_seq", "timeout_ms", "total_bytes", "traceparent",
    "ttl_ms", "value", "version", "words", "writer",
}  # fmt: skip
_NAMING = {
    FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32,
}  # fmt: skip


class Guarded(Running):
    """A server that stores sessions and files, and asks who calls."""

    def __init__(self, root: Path, house: House, workers: int) -> None:
        self.root = root
        super().__init__(LIMITS, workers, tokens=house.known, counts=True)

    async def _start(self) -> tuple[Any, Server, str]:
        if self.workers:
            backend: Any = WorkersBackend(self.limits, self.workers, self.clock, counts=True)
        else:
            backend = InProcessBackend(self.limits, self.clock, counts=True)
        await backend.persist_in(SessionCatalog(self.root / "state", 1000.0, 100, 0), False, 0.0)
        await backend.files.use_directory(FileDirectory(self.root / "files"))
        server = Server(backend, *self.guards)
        return backend, server, await server.start("127.0.0.1:0")


class Party:
    """A principal's calls."""

    def __init__(self, server: Running, metadata: Metadata) -> None:
        self.server, self.metadata = server, metadata
        self.session = server.stub.OpenSession(s.OpenSessionRequest(client="secretive"), metadata=metadata).session_id
        self.stub = server.stub
        self.say(c.DescribeRequest(session_id=self.session))  # the session has reached the thread that computes

    def ask(self, method: str, *requests: Any) -> list[bytes]:
        """The answers of a call of any kind. Raises grpc.RpcError."""
        described = SERVICE.methods_by_name[method]
        kinds = ("stream" if each else "unary" for each in (described.client_streaming, described.server_streaming))
        call = getattr(self.server.channel, "_".join(kinds))(f"/{SERVICE.full_name}/{method}")
        raw = [each.SerializeToString() for each in requests]
        answer = call(iter(raw) if described.client_streaming else raw[0], metadata=self.metadata, timeout=WAIT)
        return list(answer) if described.server_streaming else [answer]

    def say(self, request: Any, method: str = "") -> Any:
        """A unary call's answer."""
        name = method or type(request).__name__.removesuffix("Request")
        return getattr(self.stub, name)(request, metadata=self.metadata)


@pytest.fixture(params=[0, 1], ids=["in-process", "1-worker"])
def house_and_server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[House, Guarded]]:
    house = House(tmp_path)
    server = Guarded(tmp_path, house, request.param)
    try:
        yield house, server
    finally:
        server.stop()


def settled(party: Party) -> Values:
    """A session with something of everything."""
    session = party.session
    say = party.say
    say(op("full", [3], 2.0, session_id=session, outputs=[41], request_id="alices-request"))
    say(c.SetRequiresGradRequest(session_id=session, tensor=41, requires_grad=True))
    for _ in range(100):  # so that the node's number is not any number
        say(op("exp", Id(41), session_id=session, outputs=[42]))
        say(c.ReleaseRequest(session_id=session, tensors=[42]))
    say(op("exp", Id(41), session_id=session, outputs=[42]))
    say(op("ones", [BIG], session_id=session, outputs=[43]))
    download = say(c.ReadRequest(session_id=session, tensor=43)).transfer.transfer_id
    start = s.UploadStart(session_id=session, total_bytes=100, request_id="alices-upload")
    parts = [s.UploadRequest(start=start), s.UploadRequest(data=bytes(50))]
    upload = s.UploadResponse.FromString(party.ask("Upload", *parts)[0]).transfer_id
    received = s.UploadResponse.FromString(party.ask("Upload", *upload_parts(session, bytes(100)))[0]).transfer_id
    name = hashlib.sha256(PROGRAM).digest()
    say(p.RegisterProgramRequest(session_id=session, hash=name, program=PROGRAM))
    say(h.RegisterHookRequest(session_id=session, hook=55, tensor=42, kind=t.HOOK_KIND_TENSOR))
    node = say(c.GraphRequest(session_id=session, tensors=[42])).nodes[0].id
    backward = c.BackwardRequest(
        session_id=session, tensors=[42], gradients=[41], answers_hooks=True, retain_graph=True
    )
    due = say(backward).due.backward
    say(h.ResumeBackwardRequest(session_id=session, backward=due, abandon=True))
    say(n.SaveSessionRequest(session_id=session, name="alices", tensors=[n.NamedTensor(name="w", id=41)]))
    say(f.SaveFileRequest(session_id=session, name="alices", tensors=[n.NamedTensor(name="w", id=41)]))
    return Values(
        session, 41, download, upload, "alices-upload", received, name, "alices", "alices", 55, node, due,
        "alices-request", 1,
    )  # fmt: skip


def state_of(party: Party, v: Values) -> Any:
    """What others must not change."""
    say = party.say
    described = say(c.DescribeRequest(session_id=v.session, tensors=[41, 42, 43]))
    read = say(c.ReadRequest(session_id=v.session, tensor=41)).payload.data
    graph = say(c.GraphRequest(session_id=v.session, tensors=[42], with_saved=True))
    told = say(p.RegisterProgramRequest(session_id=v.session, hash=v.program, program=PROGRAM))
    return described, read, graph, told, say(n.ListSnapshotsRequest()), say(f.ListFilesRequest())


def still_has_transfers(party: Party, v: Values) -> bool:
    """Whether a download comes whole, and an upload goes on where it was."""
    parts = party.ask("Download", s.DownloadRequest(session_id=v.session, transfer_id=v.download))
    data = b"".join(s.DownloadResponse.FromString(each).data for each in parts)
    rest = upload_parts(v.session, bytes(100), start=50, transfer_id=v.upload)
    received = s.UploadResponse.FromString(party.ask("Upload", *rest)[0]).received_bytes
    return data == np.ones(BIG, np.float32).tobytes() and received == 100


def outcome(party: Party, method: str, request: Any, values: Values) -> tuple[str, ...]:
    """How a call ended, with the values that it was asked with struck out."""
    try:
        answers = party.ask(method, request)
    except grpc.RpcError as error:
        code, reason, metadata = refusal(error)
        told = [code, reason, str(error.details()), *(f"{key}={value}" for key, value in sorted(metadata.items()))]
    else:
        kind = message_factory.GetMessageClass(SERVICE.methods_by_name[method].output_type)
        told = ["OK", *(str(kind.FromString(answer)) for answer in answers)]
    text = "\n".join(told)
    shown = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
    for value in sorted((each for each in shown if len(each) > 1), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(value[:12])}[\w-]*", "?", text)
    return tuple(re.sub(_RANDOM, r"\1 ?", text).split("\n"))


# What differs from call to call, and is nobody else's.
_RANDOM = re.compile(r"(session_id:|transfer_id:|expires_unix_ms:|saved_unix_ms:|pid:|fd:|backward) \S+")


def test_every_rpc_and_every_field_has_a_line() -> None:
    assert set(REQUESTS) == {method.name for method in SERVICE.methods}
    seen: dict[str, Any] = {}

    def walk(message: Any) -> None:
        if message.full_name not in seen:
            seen[message.full_name] = message
            for field in message.fields:
                if field.message_type is not None:
                    walk(field.message_type)

    for method in SERVICE.methods:
        walk(method.input_type)
    told = {field.name for message in seen.values() for field in message.fields if field.type in _NAMING}
    assert not NAMES & OWN
    assert told <= NAMES | OWN, f"say whether these name something that may be another's: {told - NAMES - OWN}"


def commands_with(values: Values) -> Iterator[s.Command]:
    """The requests that a batch may carry."""
    fields = {field.message_type.name: field.name for field in s.Command.DESCRIPTOR.fields if field.message_type}
    for make in REQUESTS.values():
        for request in make(values):
            if type(request).__name__ in fields:
                yield s.Command(**{fields[type(request).__name__]: request})


def test_anothers_values_are_answered_as_values_that_nobody_has(house_and_server: tuple[House, Guarded]) -> None:
    house, server = house_and_server
    alice = Party(server, house.metadata("alice"))
    theirs = settled(alice)
    before = state_of(alice, theirs)
    for method, make in REQUESTS.items():
        # In their session, or in one that he has to himself: nothing that he leaves there is to tell the next apart.
        for inside in (False, True):
            told = []
            for values in (theirs, NOBODYS):
                bob = Party(server, house.metadata("bob"))
                asked = replace(values, session=bob.session) if inside else values
                told.append([outcome(bob, method, request, values) for request in make(asked)])
                bob.say(s.CloseSessionRequest(session_id=bob.session))
                for each in bob.say(f.ListFilesRequest()).files:
                    bob.say(f.DeleteFileRequest(name=each.name))
                for each in bob.say(n.ListSnapshotsRequest()).snapshots:
                    bob.say(n.DeleteSnapshotRequest(name=each.name))
            assert told[0] == told[1], f"{method}, {'in his own session' if inside else 'in theirs'}"
            if not inside and any(field.name == "session_id" for field in make(theirs)[0].DESCRIPTOR.fields):
                expected = {"NOT_FOUND"} if method != "CloseSession" else {"OK"}
                assert {each[0] for each in told[0]} == expected, method
    assert state_of(alice, theirs) == before
    assert still_has_transfers(alice, theirs)


def test_a_batch_of_ones_own_reaches_no_session_that_its_commands_name(
    house_and_server: tuple[House, Guarded],
) -> None:
    house, server = house_and_server
    alice = Party(server, house.metadata("alice"))
    theirs = settled(alice)
    before = state_of(alice, theirs)
    count = len(list(commands_with(theirs)))
    assert count >= 20
    for number in range(count):
        told = []
        for values in (theirs, NOBODYS):
            bob = Party(server, house.metadata("bob"))
            one = list(commands_with(values))[number]
            run = s.RunRequest(session_id=bob.session, writer=1, first_seq=1, commands=[one])
            told.append(outcome(bob, "Run", run, values))
            attach = s.StreamRequest(attach=s.StreamAttach(session_id=bob.session, writer=1))
            batch = s.StreamRequest(batch=s.RunRequest(first_seq=1, commands=[one]))
            assert len(bob.ask("Stream", attach, batch)) == 2
            bob.say(s.CloseSessionRequest(session_id=bob.session))
        assert told[0] == told[1], one
    assert state_of(alice, theirs) == before
    assert still_has_transfers(alice, theirs)


def test_random_numbers_do_not_depend_on_others(house_and_server: tuple[House, Guarded]) -> None:
    house, server = house_and_server
    drawn = []
    for disturbs in (False, True):
        alice, bob = Party(server, house.metadata("alice")), Party(server, house.metadata("bob"))
        alice.say(c.ManualSeedRequest(session_id=alice.session, seed=7))
        if disturbs:
            bob.say(c.ManualSeedRequest(session_id=bob.session, seed=8))
            bob.say(op("rand", [5], session_id=bob.session, outputs=[1]))
        alice.say(op("rand", [3], session_id=alice.session, outputs=[1]))
        drawn.append(alice.say(c.ReadRequest(session_id=alice.session, tensor=1)).payload.data)
    assert drawn[0] == drawn[1]
    assert struct.unpack("<3f", drawn[0]) == tuple(np.frombuffer(drawn[1], np.float32).tolist())


def test_pages_of_metrics_and_rings_name_nobody(house_and_server: tuple[House, Guarded]) -> None:
    house, server = house_and_server
    alice = Party(server, house.metadata("alice"))
    theirs = settled(alice)

    async def metrics() -> Metrics:
        return Metrics(server.server, server.backend)

    families = list(server.do(metrics()).collect())
    text = str([(family.name, family.documentation, family.samples) for family in families])
    named = (theirs.session, "alice", "secretive", theirs.download, theirs.upload, theirs.program.hex())
    assert not [value for value in named if value in text]
    assert not [value for value in named if value[:6] in server.backend.local_stream]
    assert not list(Path("/dev/shm").glob("*gradwire*"))
