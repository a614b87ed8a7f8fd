"""Long commands pause when a slice of their session's turn is over: others go on, and nothing of the session does."""

import hashlib
import itertools
import math
import time

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import programs_pb2, service_pb2, types_pb2
from gradwire_engine.graph.graph import Node
from gradwire_server.common.errors import Refusal
from gradwire_server.session.session import Session
from gradwire_server.worker.offload import OpOffloader
from tests.server.harness import Id, command, op, payload
from tests.server.test_workers import Playing

NODES = 300
X, LAST, GRAD = 1, 900, 901


def run(playing: Playing, number: int, ticket: int, first: int, *commands: service_pb2.Command) -> None:
    """Hand a batch over."""
    request = service_pb2.RunRequest(writer=1, first_seq=first, commands=commands)
    playing.add("Run", number, request.SerializeToString(), ticket)


def with_chain(noted: bool = False) -> Playing:
    """Session 1 has a leaf and the end of a long chain of ops that comes of it; each look at the clock is a pause.

    noted: whether passes are noted; the ordinary one shows by freed nodes how far it is.
    """
    playing = Playing()
    if not noted:
        playing.runtime.sessions[1].passes = None
    playing.scheduler.extend_slice = lambda: False  # type: ignore[method-assign]
    ids = [X, *range(2, 1 + NODES), LAST]
    create = command(c.CreateRequest(id=X, payload=payload(np.array([0.5])), requires_grad=True))
    ops = [command(op("sin", Id(a), outputs=[b])) for a, b in itertools.pairwise(ids)]
    run(playing, 1, 1, 1, create, *ops)
    playing.play()
    playing.done.clear()
    return playing


def passed(session: Session) -> int:
    """Nodes of the chain that a backward has passed."""
    node: Node = session.store[LAST].grad_fn
    count = 0
    while node.freed:
        node = node.edges[0][0]
        count += 1
        if not isinstance(node, Node):
            break
    return count


def test_a_long_backward_does_not_keep_another_session_waiting() -> None:
    playing = with_chain()
    backward = c.BackwardRequest(tensors=[LAST])
    run(playing, 1, 2, NODES + 2, command(backward), command(c.GradRequest(tensor=X, id=GRAD)))
    for _ in range(10):
        playing.scheduler.slice()
    began = passed(playing.runtime.sessions[1])
    assert 0 < began < 15  # a node or so for each slice of no time
    playing.batch(2, 3, 5)
    while not playing.done:
        playing.scheduler.slice()
    assert playing.done == [3]
    assert passed(playing.runtime.sessions[1]) < 50
    playing.play()
    assert playing.done == [3, 2]
    value, slope = np.float64(0.5), np.float64(1.0)
    for _ in range(NODES):
        value, slope = np.sin(value), slope * np.cos(value)
    np.testing.assert_allclose(playing.runtime.sessions[1].store[GRAD].array, [slope], rtol=1e-12)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_noted_backward_pauses_and_is_done_or_has_no_effect(cancelled: bool) -> None:
    playing = with_chain(noted=True)
    session = playing.runtime.sessions[1]
    run(playing, 1, 2, NODES + 2, command(c.BackwardRequest(tensors=[LAST])))
    for _ in range(20):
        playing.scheduler.slice()
    playing.batch(2, 3, 5)
    while not playing.done:
        playing.scheduler.slice()
    assert playing.done == [3]
    assert session.store[X].grad is None
    if cancelled:
        playing.runtime.cancel(1, ticket=2)
    playing.play()
    assert playing.done == [3, 2]
    assert passed(session) == (0 if cancelled else NODES)
    assert (session.store[X].grad is None) == cancelled


def test_nothing_else_of_a_session_runs_while_its_backward_pauses() -> None:
    playing = with_chain()
    first = NODES + 2
    run(playing, 1, 2, first, command(c.BackwardRequest(tensors=[LAST])))
    for _ in range(5):
        playing.scheduler.slice()
    run(playing, 1, 3, first + 1, command(c.GradRequest(tensor=X, id=GRAD)))
    alone = c.GradRequest(tensor=X, id=GRAD + 1)
    playing.add("Grad", 1, alone.SerializeToString(), 4)
    playing.add("Attach", 2, (2).to_bytes(8, "little"), 5)
    while not playing.done:
        playing.scheduler.slice()
        assert not {GRAD, GRAD + 1} & set(playing.runtime.sessions[1].store)
    assert playing.done == [5]
    playing.play()
    assert playing.done == [5, 2, 3, 4]
    assert not any(playing.failures)
    assert {GRAD, GRAD + 1} <= set(playing.runtime.sessions[1].store)


@pytest.mark.parametrize("alone", [False, True])
def test_no_node_is_passed_after_a_cancel(alone: bool) -> None:
    playing = with_chain()
    backward = c.BackwardRequest(tensors=[LAST])
    if alone:
        playing.add("Backward", 1, backward.SerializeToString(), 2)
    else:
        run(playing, 1, 2, NODES + 2, command(backward))
    for _ in range(20):
        playing.scheduler.slice()
    session = playing.runtime.sessions[1]
    before = passed(session)
    assert 0 < before < 30
    playing.runtime.cancel(1, ticket=2)
    playing.play()
    assert passed(session) == before
    assert session.store[X].grad is None
    assert playing.done == [2]
    if alone:
        assert isinstance(playing.failures[-1], Refusal)
        assert playing.failures[-1].reason == "CANCELLED"


def test_a_cancel_is_seen_at_once_however_long_the_slice() -> None:
    playing = with_chain()
    session = playing.runtime.sessions[1]
    playing.scheduler.slice_seconds = 3600.0
    stop_at = session.store[LAST].grad_fn
    for _ in range(100):
        stop_at = stop_at.edges[0][0]
    free = Node.free

    def free_and_cancel(node: Node) -> None:
        free(node)
        if node is stop_at:
            playing.runtime.cancel(1, ticket=2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "free", free_and_cancel)
        run(playing, 1, 2, NODES + 2, command(c.BackwardRequest(tensors=[LAST])))
        playing.play()
    assert passed(session) == 101
    assert session.store[X].grad is None


def extending(playing: Playing, offloads: bool = True) -> None:
    """Slices may be extended, as in a worker process; or as in a worker thread, which offloads nothing."""
    del playing.scheduler.extend_slice  # type: ignore[method-assign]
    if offloads:
        playing.scheduler.offloader = OpOffloader(playing.scheduler, lambda: None, max_forks=1)


@pytest.mark.parametrize("offloads", [False, True])
def test_a_backward_alone_does_not_pause(offloads: bool) -> None:
    playing = with_chain()
    extending(playing, offloads)
    run(playing, 1, 2, NODES + 2, command(c.BackwardRequest(tensors=[LAST])))
    playing.scheduler.slices = 0
    while not playing.done:
        before = passed(playing.runtime.sessions[1])
        playing.scheduler.slice()
        assert before in (0, NODES)
    assert passed(playing.runtime.sessions[1]) == NODES
    assert playing.scheduler.slices > NODES  # extensions count: the command shows that it is not stuck
    assert not any(playing.failures)


def test_a_slice_is_not_extended_beyond_its_turns() -> None:
    playing = with_chain()
    extending(playing)
    scheduler = playing.scheduler
    scheduler.running = playing.runtime.sessions[1]
    scheduler._extensible_until = math.inf
    assert scheduler.extend_slice()
    scheduler._extensible_until = time.monotonic()
    assert not scheduler.extend_slice()


@pytest.mark.parametrize("offloads", [False, True])
@pytest.mark.parametrize("why", ["arrived", "light", "in turn", "awaiting"])
def test_a_backward_pauses_if_anything_else_is_to_be_done(why: str, offloads: bool) -> None:
    playing = with_chain()
    extending(playing, offloads)
    scheduler, other = playing.scheduler, playing.runtime.sessions[2]
    run(playing, 1, 2, NODES + 2, command(c.BackwardRequest(tensors=[LAST])))
    scheduler.slices = 0
    if why == "arrived":
        scheduler.has_calls = lambda: True
    elif why == "light":
        playing.batch(2, 3, 1)
        scheduler.light_queue.clear()
        scheduler.run_queue.clear()
        scheduler.run_queue.append(playing.runtime.sessions[1])
        scheduler.light_queue.append(other)
    elif why == "in turn":
        playing.batch(2, 3, 100)
        scheduler.light_queue.clear()
        scheduler.run_queue.clear()
        scheduler.run_queue.extend((playing.runtime.sessions[1], other))
    else:
        scheduler.awaiting.append(other)
    for _ in range(5):
        scheduler._light_seconds = 1.0  # a light session has had its share
        scheduler.slice()
    assert scheduler.slices == 5
    assert passed(playing.runtime.sessions[1]) < 10


@pytest.mark.parametrize("offloads", [False, True])
@pytest.mark.parametrize("whose", [1, 2])
def test_only_calls_of_other_sessions_make_a_backward_pause(whose: int, offloads: bool) -> None:
    playing = with_chain()
    extending(playing, offloads)
    scheduler, arrived = playing.scheduler, [3]
    run(playing, 1, 2, NODES + 2, command(c.BackwardRequest(tensors=[LAST])))

    def take() -> None:
        run(playing, whose, arrived.pop(), NODES + 3 if whose == 1 else 1, command(c.DescribeRequest()))

    scheduler.has_calls, scheduler.take_calls = lambda: bool(arrived), take
    while arrived:
        scheduler.slice()
    assert (passed(playing.runtime.sessions[1]) == NODES) == (whose == 1)
    playing.play()
    assert playing.done == ([2, 3] if whose == 1 else [3, 2])
    assert not any(playing.failures)


@pytest.mark.parametrize("offloads", [False, True])
def test_a_cancel_is_seen_in_an_extended_slice(offloads: bool) -> None:
    playing = with_chain()
    extending(playing, offloads)
    session, extended = playing.runtime.sessions[1], 0
    extend = playing.scheduler.extend_slice

    def extend_and_cancel() -> bool:
        nonlocal extended
        extended += 1
        if extended == 100:
            playing.runtime.cancel(1, ticket=2)  # before the extension, which sets the time of the next check
        return extend()

    playing.scheduler.extend_slice = extend_and_cancel  # type: ignore[method-assign]
    run(playing, 1, 2, NODES + 2, command(c.BackwardRequest(tensors=[LAST])))
    playing.play()
    assert extended == 100
    assert session.store[X].grad is None
    assert playing.done == [2]
    assert passed(session) < 101


def test_surroundings_of_sessions_do_not_mix_in_pauses() -> None:
    """A backward that records, beside a session that computes without recording: both as if they were alone."""
    playing = with_chain()
    first = c.GradientsRequest(outputs=[LAST], inputs=[X], results=[GRAD], create_graph=True)
    run(playing, 1, 2, NODES + 2, command(first))
    create = c.CreateRequest(id=1, payload=payload(np.array([2.0])), requires_grad=True)
    silent = [command(op("mul", Id(1), Id(1), outputs=[2 + n], grad_mode=2)) for n in range(200)]
    run(playing, 2, 3, 1, command(create), *silent)
    playing.play()
    assert not any(playing.failures)
    slope = playing.runtime.sessions[1].store[GRAD]
    assert slope.requires_grad
    assert all(not each.requires_grad for key, each in playing.runtime.sessions[2].store.items() if key > 1)
    numbers = sorted(node.seq for node in graph_of(slope.grad_fn))
    assert len(numbers) == len(set(numbers))


def graph_of(root: Node) -> set[Node]:
    """All nodes but leaves'."""
    found, waiting = {root}, [root]
    while waiting:
        for edge in waiting.pop().edges:
            if edge is not None and isinstance(edge[0], Node) and edge[0] not in found:
                found.add(edge[0])
                waiting.append(edge[0])
    return found


@pytest.mark.parametrize("planned", [True, False])
def test_a_program_that_is_repeated_pauses_and_draws_its_own_random_numbers(planned: bool) -> None:
    """Each repetition adds random numbers to the input; another session draws some in the pauses."""

    def repeated(others: bool) -> tuple[list[float], int]:
        playing = Playing()
        program = programs_pb2.Program()
        program.inputs.add(dtype=types_pb2.DTYPE_FLOAT32, shape=[4])
        program.steps.add(op=op("rand_like", Id(1), outputs=[2]))
        program.steps.add(op=op("add_", Id(1), Id(2), grad_mode=2))
        if not planned:
            program.steps.add(op=op("nonzero", Id(1), outputs=[3]))  # of a shape that no plan can know
        raw = program.SerializeToString()
        name = hashlib.sha256(raw).digest()
        create = c.CreateRequest(id=1, payload=payload(np.zeros(4, np.float32)))
        run(
            playing, 1, 1, 1,
            command(c.ManualSeedRequest(seed=5)),
            command(create),
            command(programs_pb2.RegisterProgramRequest(hash=name, program=raw)),
            command(programs_pb2.RunProgramRequest(hash=name, inputs=[1], repeat=100)),
        )  # fmt: skip
        if others:
            draws = [command(op("rand", [4], outputs=[10 + n])) for n in range(100)]
            run(playing, 2, 2, 1, *draws)
        slices = 0
        while 1 not in playing.done:
            playing.scheduler.slice()
            slices += 1
        playing.play()
        assert not any(playing.failures)
        return playing.runtime.sessions[1].store[1].array.tolist(), slices

    alone, _ = repeated(False)
    beside, slices = repeated(True)
    assert beside == alone
    assert slices > 150  # about one for each repetition, and as many of the other's
