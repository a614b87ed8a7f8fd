"""Batches: order, exactly-once, and what a failed command does to the rest."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import errors_pb2, service_pb2, types_pb2
from tests.server.harness import Id, Remote, Running, command, op, payload, refused, running

BACKENDS = [0, 2]


def increments(tensor_id: int, count: int = 1) -> list[service_pb2.Command]:
    return [command(op("add_", Id(tensor_id), 1.0), quiet=True)] * count


def reason(result: service_pb2.Result) -> str:
    return errors_pb2.Reason.Name(result.error.reason).removeprefix("REASON_")


def values(result: service_pb2.Result) -> list[float]:
    return np.frombuffer(result.read.payload.data, np.float32).tolist()


def test_a_quiet_command_answers_only_when_it_fails(session: Remote) -> None:
    x = session.create([1.0])
    response = session.run(*increments(x, 3), command(op("exp", Id(999)), quiet=True))
    assert [(result.seq, reason(result)) for result in response.results] == [(4, "TENSOR_NOT_FOUND")]
    assert (response.applied_seq, response.durable_seq, response.epoch) == (4, 0, 1)


def test_every_command_has_its_unary_response(session: Remote) -> None:
    response = session.run(
        command(c.CreateRequest(id=1, requires_grad=True, payload=payload(np.array([3.0], np.float32)))),
        command(op("mul", Id(1), Id(1), outputs=[2])),
        command(c.RetainGradRequest(tensor=2)),
        command(op("mul", Id(2), 2.0, outputs=[3])),
        command(c.GradientsRequest(outputs=[3], inputs=[1], results=[4], retain_graph=True)),
        command(c.GraphRequest(tensors=[3])),
        command(c.BackwardRequest(tensors=[3])),
        command(c.GradRequest(tensor=1, id=5)),
        command(c.SetGradRequest(tensor=1)),
        command(c.SetRequiresGradRequest(tensor=1, requires_grad=False)),
        command(c.SetDataRequest(tensor=1, data=4)),
        command(c.ManualSeedRequest(seed=1)),
        command(c.ReadRequest(tensor=5)),
        command(c.DescribeRequest(tensors=[1])),
        command(c.ReleaseRequest(tensors=[1, 2, 3, 4, 5])),
    )
    assert [result.WhichOneof("result") for result in response.results] == [
        "create", "op", "retain_grad", "op", "gradients", "graph", "backward", "grad", "set_grad", "set_requires_grad",
        "set_data", "manual_seed", "read", "describe", "release",
    ]  # fmt: skip
    assert values(response.results[12]) == [12.0]
    assert sorted(response.results[6].backward.accumulated) == [1, 2]
    assert response.results[14].release.released == 5


def test_a_repeated_batch_applies_once(session: Remote) -> None:
    x = session.create([1.0])
    batch = session.batch(*increments(x), command(c.ReadRequest(tensor=x)))
    first = session.stub.Run(batch)
    assert session.stub.Run(batch) == first
    np.testing.assert_array_equal(session.read(x), [2.0])


def test_a_repeat_in_other_portions_applies_the_rest_once(session: Remote) -> None:
    x = session.create([0.0])
    read = command(c.ReadRequest(tensor=x))
    session.stub.Run(session.batch(*increments(x), read, first=1))
    response = session.stub.Run(session.batch(read, *increments(x), read, first=2))
    assert [(result.seq, values(result)) for result in response.results] == [(2, [1.0]), (4, [2.0])]
    again = session.stub.Run(session.batch(*increments(x), read, *increments(x), read, first=1))
    assert [(result.seq, values(result)) for result in again.results] == [(2, [1.0]), (4, [2.0])]
    assert again.applied_seq == 4
    np.testing.assert_array_equal(session.read(x), [2.0])


def test_a_repeat_while_the_first_runs_applies_once(session: Remote) -> None:
    x = session.create([0.0])
    batch = session.batch(*increments(x, 500), command(c.ReadRequest(tensor=x)))
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(session.stub.Run, [batch] * 4))
    assert [values(each.results[0]) for each in responses] == [[500.0]] * 4
    np.testing.assert_array_equal(session.read(x), [500.0])


def test_acknowledged_results_are_forgotten(session: Remote) -> None:
    x = session.create([0.0])
    old = session.batch(*increments(x), command(c.ReadRequest(tensor=x)))
    session.stub.Run(old)
    session.run(*increments(x), acknowledged_seq=2)
    assert refused(session.stub.Run, old)[:2] == ("DATA_LOSS", "RESULT_FORGOTTEN")
    np.testing.assert_array_equal(session.read(x), [2.0])


def test_an_empty_batch_only_acknowledges(session: Remote) -> None:
    x = session.create([0.0])
    old = session.batch(*increments(x))
    session.stub.Run(old)
    response = session.stub.Run(service_pb2.RunRequest(session_id=session.id, writer=1, acknowledged_seq=1))
    assert (response.applied_seq, len(response.results)) == (1, 0)
    assert refused(session.stub.Run, old)[1] == "RESULT_FORGOTTEN"


def test_unacknowledged_results_are_bounded() -> None:
    with running(remembered_bytes=20_000) as server:
        session = server.open()
        x = session.create(np.zeros(1000))
        batches = [session.batch(command(c.ReadRequest(tensor=x))) for _ in range(4)]
        for batch in batches:
            session.stub.Run(batch)
        assert refused(session.stub.Run, batches[0])[1] == "RESULT_FORGOTTEN"
        assert session.stub.Run(batches[3]).results[0].read.payload.data == bytes(4000)


def test_swapped_batches_run_in_order(session: Remote) -> None:
    x = session.create([1.0])
    double = command(op("mul_", Id(x), 2.0), quiet=True)
    batches = [session.batch(*increments(x)), session.batch(double), session.batch(*increments(x))]
    futures = [session.stub.Run.future(batch) for batch in reversed(batches)]
    assert [future.result(60).applied_seq for future in futures] == [3, 2, 1]
    np.testing.assert_array_equal(session.read(x), [5.0])


def test_another_writer_does_not_wait_for_the_gap(session: Remote) -> None:
    x = session.create([1.0])
    second = session.stub.OpenSession(service_pb2.OpenSessionRequest(session_id=session.id))
    assert second.writer == 2
    waiting = session.stub.Run.future(session.batch(*increments(x), first=5))
    session.stub.Run(session.batch(*increments(x), first=1, writer=2))
    np.testing.assert_array_equal(session.read(x), [2.0])
    assert not waiting.done()
    for first in range(1, 5):
        session.stub.Run(session.batch(*increments(x), first=first))
    assert waiting.result(60).applied_seq == 5


def test_a_gap_that_stays_is_refused_and_can_be_closed_later() -> None:
    with running(gap_seconds=0.05) as server:
        session = server.open()
        x = session.create([1.0])
        late = session.batch(*increments(x), first=3)
        code, why, metadata = refused(session.stub.Run, late)
        assert (code, why, metadata["applied_seq"]) == ("FAILED_PRECONDITION", "SEQUENCE_GAP", "0")
        np.testing.assert_array_equal(session.read(x), [1.0])
        session.stub.Run(session.batch(*increments(x, 2), first=1))
        assert session.stub.Run(late).applied_seq == 3
        np.testing.assert_array_equal(session.read(x), [4.0])


def test_closing_a_session_ends_the_wait_for_a_gap(server: Running) -> None:
    session = server.open()
    waiting = session.stub.Run.future(session.batch(*increments(1), first=9))
    session.describe()
    session.close()
    assert refused(waiting.result, 60)[1] in ("SEQUENCE_GAP", "SESSION_NOT_FOUND")


def test_an_error_poisons_what_depends_on_it_and_nothing_else(session: Remote) -> None:
    x = session.create([1.0])
    w = session.create([1.0])
    response = session.run(
        command(op("exp", Id(x), outputs=[10]), quiet=True),
        command(op("reshape", Id(x), [2, 2], outputs=[11]), quiet=True),
        command(op("exp", Id(11), outputs=[12]), quiet=True),
        command(op("add", Id(12), Id(10), outputs=[13]), quiet=True),
        command(op("sub_", Id(w), Id(13)), quiet=True),
        command(op("exp", Id(10), outputs=[14]), quiet=True),
        command(c.ReadRequest(tensor=14)),
    )
    seen = [(result.seq, reason(result), result.error.root_seq) for result in response.results[:4]]
    assert seen == [(2, "SHAPE", 0)] + [(seq, "DEPENDENCY_FAILED", 2) for seq in (3, 4, 5)]
    root = response.results[0].error.message
    assert all(root in result.error.message for result in response.results[1:4])
    assert response.results[1].error.metadata["root_reason"] == "SHAPE"
    assert response.results[4].seq == 7
    np.testing.assert_array_equal(session.read(w), [1.0])


def test_poison_outlives_the_batch_until_it_is_released(session: Remote) -> None:
    session.run(command(op("exp", Id(999), outputs=[20]), quiet=True))
    assert refused(session.read, 20)[:2] == ("FAILED_PRECONDITION", "DEPENDENCY_FAILED")
    assert session.release(20) == 0
    assert refused(session.read, 20)[1] == "TENSOR_NOT_FOUND"


@pytest.mark.parametrize(
    "request_",
    [
        c.CreateRequest(id=30, payload=types_pb2.Payload(dtype=1, shape=[2], data=b"")),
        c.GradRequest(tensor=999, id=30),
        c.GradientsRequest(outputs=[999], inputs=[999], results=[30]),
        op("exp", Id(999), outputs=[30]),
        op("no_such_op", outputs=[30]),
    ],
    ids=["create", "grad", "gradients", "op", "unknown op"],
)
def test_every_command_that_names_results_poisons_them(session: Remote, request_: object) -> None:
    response = session.run(command(request_, quiet=True), command(c.ReadRequest(tensor=30)))
    assert [reason(result) for result in response.results][1] == "DEPENDENCY_FAILED"
    assert session.create([1.0], tensor_id=30) == 30
    np.testing.assert_array_equal(session.read(30), [1.0])


def test_a_taken_id_keeps_its_tensor_when_a_command_fails_for_it(session: Remote) -> None:
    x = session.create([7.0])
    response = session.run(command(op("add", Id(x), 1.0, outputs=[x])), command(c.ReadRequest(tensor=x)))
    assert reason(response.results[0]) == "TENSOR_EXISTS"
    assert values(response.results[1]) == [7.0]


def test_a_unary_failure_poisons_nothing(session: Remote) -> None:
    assert refused(session.op, "exp", Id(999), outputs=[40])[1] == "TENSOR_NOT_FOUND"
    assert refused(session.read, 40)[1] == "TENSOR_NOT_FOUND"


def test_a_retried_unary_request_applies_once(session: Remote) -> None:
    x = session.create([1.0])
    request = op("add_", Id(x), 1.0, session_id=session.id, request_id="r1")
    first = session.stub.Op(request)
    assert session.stub.Op(request) == first
    np.testing.assert_array_equal(session.read(x), [2.0])
    misuse = c.ReleaseRequest(session_id=session.id, request_id="r1", tensors=[x])
    assert refused(session.stub.Release, misuse)[1] == "ARGUMENT_VALUE"
    request.args[1].float = 5.0
    assert refused(session.stub.Op, request)[1] == "ARGUMENT_VALUE"
    request.args[1].float = 1.0
    request.request_id = "r2"
    session.stub.Op(request)
    np.testing.assert_array_equal(session.read(x), [3.0])


def test_retries_at_once_apply_once(session: Remote) -> None:
    x = session.create([0.0])
    request = op("add_", Id(x), 1.0, session_id=session.id, request_id="same")
    together = threading.Barrier(8)

    def send(_: int) -> service_pb2.Result:
        together.wait()
        return session.stub.Op(request)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert all(answer == answers[0] for answer in answers)
    np.testing.assert_array_equal(session.read(x), [1.0])


def test_a_refused_request_may_be_tried_again(session: Remote) -> None:
    request = op("exp", Id(50), session_id=session.id, request_id="early")
    assert refused(session.stub.Op, request)[1] == "TENSOR_NOT_FOUND"
    session.create([0.0], tensor_id=50)
    assert session.stub.Op(request).outputs[0].id


def test_a_batch_of_reads_stays_small_enough_for_any_client(session: Remote) -> None:
    x = session.create(np.ones(16_000))
    response = session.run(*[command(c.ReadRequest(tensor=x))] * 100)
    assert response.ByteSize() < 4 << 20
    kinds = [result.read.WhichOneof("result") for result in response.results]
    assert kinds[0] == "payload"
    assert kinds[-1] == "transfer"
    last = response.results[-1].read.transfer
    parts = session.stub.Download(service_pb2.DownloadRequest(session_id=session.id, transfer_id=last.transfer_id))
    assert b"".join(part.data for part in parts) == np.ones(16_000, np.float32).tobytes()


def test_sessions_do_not_see_each_other(server: Running) -> None:
    one, two = server.open(), server.open()
    one.create([1.0], tensor_id=1)
    two.create([2.0], tensor_id=1)
    assert one.read(1) == [1.0]
    assert two.read(1) == [2.0]
    one.close()
    assert two.read(1) == [2.0]
    two.close()
