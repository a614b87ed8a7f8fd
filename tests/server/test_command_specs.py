"""The table of commands has all commands of the contract, and each fact about a command is how the command behaves."""

import hashlib
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from gradwire.v1 import collectives_pb2 as g
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2
from gradwire.v1 import hooks_pb2 as h
from gradwire.v1 import programs_pb2 as p
from gradwire.v1 import service_pb2 as s
from gradwire.v1 import types_pb2 as t
from gradwire.v1.command_facts import FACTS
from gradwire_server.common.limits import Limits
from gradwire_server.common.protocol import CLIENT_IDS
from gradwire_server.common.shared_files import location
from gradwire_server.registry.session_catalog import SessionCatalog
from gradwire_server.session.batch import run_batch
from gradwire_server.session.commands import BY_METHOD, COMMANDS
from gradwire_server.session.session import PendingCall, Session
from gradwire_server.session.specs import fill_spec
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.group_table import Membership, PeerMemory, RankMemory
from tests.server.harness import Id, op
from tests.server.memory_stores import MemoryLogs, MemorySnapshots
from tests.server.program_files import file_of, file_payload
from tests.server.test_stores import STATE, Stored, order_of

# Ids of a session that each command is tried in. NEW is the first that is free.
X, SQUARE, SUM, PLAIN, HELD, OTHER, HOOKED, END, INNER, OUTER, FILE, NEW = range(1, 13)
HOOK = 1000
VALUES = t.Payload(dtype=t.DTYPE_FLOAT32, shape=[2], data=bytes(range(8)))
FLOAT32 = t.DTYPE_FLOAT32


def step(**fields: Any) -> p.ProgramStep:
    return p.ProgramStep(**fields)


PROGRAM = p.Program(
    inputs=[p.ProgramInput(dtype=FLOAT32, shape=[2], requires_grad=True)],
    steps=[step(op=op("sum", Id(1), outputs=[2])), step(backward=c.BackwardRequest(tensors=[2]))],
    outputs=[2],
).SerializeToString()
OTHER_PROGRAM = p.Program(numbers=1).SerializeToString()


NAMED_PROGRAM = p.Program(inputs=[p.ProgramInput(dtype=FLOAT32, shape=[2], name="w", state=True)])
PROGRAM_FILE = file_of({"w": np.ones(2, np.float32)}, {"none": NAMED_PROGRAM})


def leaf(number: int, requires_grad: bool = True) -> s.Command:
    return s.Command(create=c.CreateRequest(id=number, requires_grad=requires_grad, payload=VALUES))


def applied(name: str, *args: Any, outputs: list[int]) -> s.Command:
    return s.Command(op=op(name, *args, outputs=outputs))


def registration(raw: bytes) -> p.RegisterProgramRequest:
    return p.RegisterProgramRequest(hash=hashlib.sha256(raw).digest(), program=raw)


#: Makes the ids above, a tensor that keeps its gradient, a program, a backward that waits at a hook, and a value
#: (INNER) that only a node holds.
PREPARATION = [
    leaf(X),
    applied("mul", Id(X), Id(X), outputs=[SQUARE]),
    applied("sum", Id(SQUARE), outputs=[SUM]),
    s.Command(retain_grad=c.RetainGradRequest(tensor=SQUARE)),
    leaf(PLAIN, requires_grad=False),
    leaf(HELD),
    s.Command(set_grad=c.SetGradRequest(tensor=HELD, grad=PLAIN)),
    leaf(OTHER),
    applied("mul", Id(OTHER), Id(OTHER), outputs=[HOOKED]),
    s.Command(register_hook=h.RegisterHookRequest(hook=HOOK, tensor=HOOKED, kind=t.HOOK_KIND_TENSOR)),
    s.Command(register_hook=h.RegisterHookRequest(hook=HOOK + 1, tensor=HELD, kind=t.HOOK_KIND_TENSOR)),
    applied("sum", Id(HOOKED), outputs=[END]),
    s.Command(backward=c.BackwardRequest(tensors=[END], answers_hooks=True, retain_graph=True)),
    s.Command(register_program=registration(PROGRAM)),
    applied("exp", Id(PLAIN), outputs=[INNER]),
    applied("mul", Id(INNER), Id(X), outputs=[OUTER]),
    s.Command(release=c.ReleaseRequest(tensors=[INNER])),
    s.Command(create=c.CreateRequest(id=FILE, payload=file_payload(PROGRAM_FILE))),
]

#: A request of each command. Each changes something but those of read-only commands, and one of a command that
#: differentiates reaches a leaf or a tensor that keeps its gradient.
REQUESTS: dict[str, Message] = {
    "create": c.CreateRequest(id=NEW, payload=VALUES),
    "op": op("mul", Id(X), Id(X), outputs=[NEW]),
    "backward": c.BackwardRequest(tensors=[SUM], retain_graph=True),
    "retain_grad": c.RetainGradRequest(tensor=SUM),
    "grad": c.GradRequest(tensor=HELD, id=NEW),
    "gradients": c.GradientsRequest(outputs=[SUM], inputs=[X], results=[NEW], retain_graph=True),
    "set_grad": c.SetGradRequest(tensor=X, grad=PLAIN),
    "set_requires_grad": c.SetRequiresGradRequest(tensor=PLAIN, requires_grad=True),
    "set_data": c.SetDataRequest(tensor=OTHER, data=SQUARE),
    "manual_seed": c.ManualSeedRequest(seed=7),
    "describe": c.DescribeRequest(tensors=[X, SQUARE]),
    "read": c.ReadRequest(tensor=SQUARE),
    "release": c.ReleaseRequest(tensors=[PLAIN]),
    "graph": c.GraphRequest(tensors=[SUM], page_size=1, with_saved=True),
    "prepare": c.Prepare(number=1, op=op("mul", Id(0), Id(0), outputs=[0])),
    "register_program": registration(OTHER_PROGRAM),
    "run_program": p.RunProgramRequest(hash=hashlib.sha256(PROGRAM).digest(), inputs=[X], outputs=[NEW]),
    "register_hook": h.RegisterHookRequest(hook=NEW, tensor=SQUARE, kind=t.HOOK_KIND_TENSOR),
    "remove_hook": h.RemoveHookRequest(hook=HOOK + 1),
    "resume_backward": h.ResumeBackwardRequest(backward=1),
    "record_function": h.RecordFunctionRequest(hook=NEW, name="F", inputs=[X], outputs=[PLAIN]),
    "checkpoint": h.CheckpointRequest(hook=NEW, mark=h.CHECKPOINT_MARK_BEGIN),
    "name_edge": h.NameEdgeRequest(tensor=SQUARE, edge=NEW),
    "pack_saved": h.PackSavedRequest(number=NEW, step=h.PACK_STEP_BEGIN),
    "saved_value": h.SavedValueRequest(tensor=OUTER, name="self"),
    "set_counters": c.SetCountersRequest(tensor=SQUARE, version=3, sequence=7),
    "collective": g.CollectiveRequest(
        kind=g.COLLECTIVE_KIND_ALL_REDUCE, group="alone", op=g.REDUCE_OP_SUM, inputs=[PLAIN]
    ),
    "load_program": p.LoadProgramRequest(file=FILE, ids=[NEW]),
    "save_program": p.SaveProgramRequest(file=FILE, id=NEW),
}
each_command = pytest.mark.parametrize("name", list(COMMANDS))
each_step = pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if facts.is_step])


def message(name: str) -> s.Command:
    return s.Command(**{name: REQUESTS[name]})


class Alone:
    """The front of a group of one rank, which waits for no other."""

    def ask(self, session: int, do: str, **fields: Any) -> "Future[dict[str, Any]]":
        answered: Future[dict[str, Any]] = Future()
        answered.set_result({})
        return answered

    def tell(self, session: int, do: str, **fields: Any) -> None:
        pass


class Bench:
    """A prepared session of no worker."""

    def __init__(self) -> None:
        self.session = Session(1, Limits().resolved(), CancelToken())
        self.session.schedule.turn_ends = float("inf")
        self.session.attach(1)
        self.writer = self.session.writers[1]
        self.session.groups.channel = Alone()
        memory = RankMemory(self.session.account)
        self.session.groups.joined["alone"] = group = Membership("alone", 1, 0, 1, memory)
        group.peers = [PeerMemory(location(memory.fd))]
        assert [errors_pb2.Reason.Name(each.error.reason) for each in self.run(*PREPARATION) if each.error.code] == []

    def run(self, *commands: s.Command) -> list[s.Result]:
        """The results of a batch."""
        request = s.RunRequest(writer=1, first_seq=self.writer.applied + 1, commands=commands)
        steps = run_batch(PendingCall("Run", self.session, request.SerializeToString(), 5))
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return list(s.RunResponse.FromString(done.value).results)

    def applies(self, command: s.Command) -> s.Result:
        (result,) = self.run(command)
        assert not result.HasField("error"), result.error
        return result

    def described(self) -> dict[int, tuple[object, ...]]:
        """Each tensor's description, values and gradient."""
        told: dict[int, tuple[object, ...]] = {}
        for number, each in self.session.store.items():
            spec = t.TensorSpec()
            fill_spec(spec, each, number)
            grad = None if each.grad is None else each.grad.array.tobytes()
            told[number] = spec.SerializeToString(), each.array.tobytes(), grad
        return told

    def state(self) -> tuple[object, ...]:
        """What a command may change, but for transfers and walks of the graph."""
        session, hooks = self.session, self.session.hooks
        numbered = (hooks.asks, hooks.suspended, hooks.moments, session.programs, self.writer.prepared)
        kept = [set(each) for each in numbered]
        return self.described(), session.grad_context.generator.get_state(), kept


def test_every_command_of_the_contract_has_a_spec_and_its_messages() -> None:
    members = s.Command.DESCRIPTOR.oneofs_by_name["command"].fields
    assert set(FACTS) == {member.name for member in members}
    assert set(COMMANDS) == set(FACTS) - {"calls"}  # a run of ops, each of which is answered only if it is refused
    for member in members:
        if member.name in COMMANDS:
            spec = COMMANDS[member.name]
            assert (spec.request.DESCRIPTOR, spec.name) == (member.message_type, member.name)
            assert spec.response.DESCRIPTOR is s.Result.DESCRIPTOR.fields_by_name[member.name].message_type
    service = s.DESCRIPTOR.services_by_name["AutogradService"].methods_by_name
    assert set(BY_METHOD) == set(service) & {facts.method for facts in FACTS.values()}
    assert set(REQUESTS) == set(COMMANDS)


@each_command
def test_a_command_changes_something_unless_it_is_read_only(name: str) -> None:
    bench = Bench()
    before = bench.state()
    bench.applies(message(name))
    assert (bench.state() == before) is COMMANDS[name].facts.read_only


@each_command
def test_a_command_makes_the_tensors_that_its_request_names(name: str) -> None:
    bench = Bench()
    before = set(bench.session.store)
    bench.applies(message(name))
    made = {number for number in set(bench.session.store) - before if number < CLIENT_IDS}
    assert made == set(COMMANDS[name].new_ids(REQUESTS[name]))


@each_command
def test_a_cancelled_batch_leaves_out_what_can_be_cancelled_and_poisons_what_it_would_have_made(name: str) -> None:
    bench, spec = Bench(), COMMANDS[name]
    before = bench.state()
    bench.session.cancel_token.cancel_ticket = 5
    (result,) = bench.run(message(name))
    assert (result.error.reason == errors_pb2.REASON_CANCELLED) is spec.cancellable
    assert (bench.state() == before) is spec.cancellable
    assert set(bench.session.failed_ids) == (set(spec.new_ids(REQUESTS[name])) if spec.cancellable else set())


@each_command
def test_gradients_change_only_by_commands_that_differentiate_or_set_them(name: str) -> None:
    bench = Bench()
    before = {number: told[2] for number, told in bench.described().items()}
    bench.applies(message(name))
    after = {number: told[2] for number, told in bench.described().items()}
    changed = {number for number in before.keys() & after.keys() if before[number] != after[number]}
    assert bool(changed) is (COMMANDS[name].facts.differentiates or name == "set_grad")


@each_command
def test_only_some_commands_answer_with_values_or_stop_at_hooks(name: str) -> None:
    facts, answer = COMMANDS[name].facts, COMMANDS[name].response.DESCRIPTOR
    kinds = {field.message_type.name for field in answer.fields if field.message_type is not None}
    assert ("Payload" in kinds) is facts.answers_values
    assert ("HookCall" in kinds) is facts.may_suspend


# Steps of programs.

#: Of each command a step, after others. The program's inputs are a leaf (1) and a tensor that requires no gradient (2).
BEFORE = [step(op=op("mul", Id(1), Id(1), outputs=[3])), step(op=op("sum", Id(3), outputs=[4]))]
STEPS: dict[str, Any] = {
    "create": c.CreateRequest(id=5, payload=VALUES),
    "op": op("mul", Id(2), Id(2), outputs=[5]),
    "backward": c.BackwardRequest(tensors=[4]),
    "retain_grad": c.RetainGradRequest(tensor=3),
    "grad": c.GradRequest(tensor=1, id=5),
    "gradients": c.GradientsRequest(outputs=[4], inputs=[1], results=[5]),
    "set_grad": c.SetGradRequest(tensor=1, grad=2),
    "set_requires_grad": c.SetRequiresGradRequest(tensor=2),
    "set_data": c.SetDataRequest(tensor=2, data=3),
    "manual_seed": c.ManualSeedRequest(seed=1),
    "collective": g.CollectiveRequest(kind=g.COLLECTIVE_KIND_ALL_REDUCE, group="alone", op=g.REDUCE_OP_SUM, inputs=[2]),
}


def program(name: str, request: Message) -> bytes:
    given = [p.ProgramInput(dtype=FLOAT32, shape=[2], requires_grad=each) for each in (True, False)]
    after = [] if FACTS[name].differentiates else [step(backward=c.BackwardRequest(tensors=[4]))]
    return p.Program(inputs=given, steps=[*BEFORE, step(**{name: request}), *after]).SerializeToString()


def registers(bench: Bench, name: str, request: Message) -> bool:
    (result,) = bench.run(s.Command(register_program=registration(program(name, request))))
    assert result.error.reason in (0, errors_pb2.REASON_MALFORMED)
    return not result.HasField("error")


@each_step
def test_a_program_with_a_step_is_planned_if_its_command_can_be(name: str) -> None:
    bench = Bench()
    assert registers(bench, name, STEPS[name])
    raw = registration(program(name, STEPS[name]))
    run = s.Command(run_program=p.RunProgramRequest(hash=raw.hash, inputs=[X, PLAIN]))
    for _ in range(3):
        bench.applies(run)
    told = bench.applies(s.Command(register_program=raw)).register_program
    assert bool(told.planned_runs) is (COMMANDS[name].planned is not None), told.stepwise_because


@each_step
def test_a_step_names_no_slot_0_where_it_needs_a_tensor(name: str) -> None:
    facts, bench = FACTS[name], Bench()
    for field in STEPS[name].DESCRIPTOR.fields:
        if field.type == field.TYPE_FIXED64 and field.name != facts.makes:
            changed = type(STEPS[name])()
            changed.CopyFrom(STEPS[name])
            if field.is_repeated:
                getattr(changed, field.name)[:] = [0]
            else:
                setattr(changed, field.name, 0)
            assert registers(bench, name, changed) is (field.name in facts.zero_is_none), field.name


@pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if facts.step_sets])
def test_a_step_sets_what_a_program_can_know(name: str) -> None:
    bench, choice = Bench(), STEPS[name].DESCRIPTOR.oneofs[0]
    for field in choice.fields:
        request = type(STEPS[name])()
        request.CopyFrom(STEPS[name])
        if field.message_type is None:
            setattr(request, field.name, getattr(request, field.name))
        else:
            getattr(request, field.name).SetInParent()
        assert registers(bench, name, request) is (field.name in FACTS[name].step_sets), field.name
    request.ClearField(choice.fields[-1].name)
    assert not registers(bench, name, request)


# Logs.


# A session with a log is in no group.
@pytest.mark.parametrize(
    "name", [name for name, spec in COMMANDS.items() if spec.facts.has_rpc and name != "collective"]
)
def test_a_unary_call_is_logged_unless_it_leaves_nothing_to_restore(name: str) -> None:
    snapshots, spec = MemorySnapshots(MemoryLogs()), COMMANDS[name]
    worker = Stored(True, snapshots)
    order = order_of(SessionCatalog(STATE, 1000.0, 1, 0, store=snapshots), "one")
    worker.do("Open", order.pack())
    worker.do("Run", s.RunRequest(writer=1, first_seq=1, commands=PREPARATION).SerializeToString())
    (log,) = snapshots.logs.held.values()
    before = bytes(log)
    worker.do(spec.facts.method, REQUESTS[name].SerializeToString())
    assert (bytes(log) != before) is spec.logged
    assert spec.logged or spec.facts.read_only
    worker.end(b"")
