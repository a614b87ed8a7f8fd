"""Traces: a call that belongs to a client's trace has spans there; others have none, and cost nothing."""

import itertools
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import gradwire
from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2
from gradwire_server.common.timings import read_timings
from gradwire_server.rpc.traces import Traces
from tests.server.harness import Id, Running, command, op, payload, refused, running
from tests.server.test_process import process

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Traced:
    """A server and the spans that it has made."""

    def __init__(self, server: Running, exporter: InMemorySpanExporter, traces: Traces) -> None:
        self.server, self.exporter, self.traces = server, exporter, traces

    def spans(self) -> list[Any]:
        self.traces.flush()
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found


@pytest.fixture(scope="module", params=[0, 1], ids=["in-process", "1-worker"])
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    exporter = InMemorySpanExporter()
    traces = Traces(exporter)
    with running(workers=request.param, traces=traces) as server:
        yield Traced(server, exporter, traces)
    traces.close()


def batch() -> list[service_pb2.Command]:
    return [
        command(c.CreateRequest(id=1, payload=payload(np.ones(10, np.float32)))),
        command(op("exp", Id(1), outputs=[2])),
    ]


def test_a_batch_has_a_span_of_queue_compute_and_serialize_in_its_clients_trace(traced: Traced) -> None:
    session = traced.server.open()
    answer = session.stub.Run(session.batch(*batch()), metadata=[("traceparent", PARENT)])
    assert len(answer.results) == 2
    spans = {span.name: span for span in traced.spans()}
    whole = spans.pop("gradwire Run")
    assert (f"{whole.context.trace_id:032x}", f"{whole.parent.span_id:016x}") == (TRACE, SPAN)
    assert whole.kind is SpanKind.SERVER and whole.parent.is_remote
    assert whole.attributes["rpc.method"] == "Run"
    assert whole.attributes["gradwire.session"] == session.id[:6]
    assert session.id not in str(whole.to_json())
    assert set(spans) == {"queue", "compute", "serialize"}
    ordered = [spans[name] for name in ("queue", "compute", "serialize")]
    assert all(part.parent.span_id == whole.context.span_id for part in ordered)
    assert whole.start_time == ordered[0].start_time
    for before, after in itertools.pairwise(ordered):
        assert before.start_time <= before.end_time == after.start_time
    assert ordered[-1].end_time <= whole.end_time


def test_a_unary_command_has_a_span_and_a_refusal_says_so(traced: Traced) -> None:
    session = traced.server.open()
    request = op("exp", Id(77), session_id=session.id)
    refused(session.stub.Op, request, metadata=[("traceparent", PARENT)])
    (span,) = traced.spans()
    assert span.name == "gradwire Op"
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["gradwire.reason"] == "TENSOR_NOT_FOUND"


@pytest.mark.parametrize("parent", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", f"00-{TRACE}-{SPAN}-00"])
def test_calls_of_no_recorded_trace_make_no_span(traced: Traced, parent: str) -> None:
    session = traced.server.open()
    session.stub.Run(session.batch(*batch()), metadata=[("traceparent", parent)] if parent else [])
    assert traced.spans() == []


def test_batches_of_a_stream_belong_to_the_trace_they_name_wherever_they_name_it(traced: Traced) -> None:
    session = traced.server.open()
    attach = service_pb2.StreamRequest(attach=service_pb2.StreamAttach(session_id=session.id, writer=1))
    first = service_pb2.StreamRequest(batch=service_pb2.RunRequest(first_seq=1, commands=batch())).SerializeToString()
    second = service_pb2.RunRequest(first_seq=3, commands=[command(op("exp", Id(2), outputs=[3]))])
    parent = service_pb2.StreamRequest(traceparent=PARENT).SerializeToString()
    stream = session.channel.stream_stream(
        "/gradwire.v1.AutogradService/Stream", response_deserializer=service_pb2.StreamResponse.FromString
    )
    whole = service_pb2.StreamRequest(batch=second, traceparent=PARENT).SerializeToString()
    answers = list(stream(iter([attach.SerializeToString(), parent + first, whole])))
    assert [answer.batch.applied_seq for answer in answers[1:]] == [2, 3]
    spans = traced.spans()
    assert sorted(span.name for span in spans) == sorted(2 * ["gradwire Run", "queue", "compute", "serialize"])
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}


def test_the_python_client_hands_its_current_span_on(traced: Traced) -> None:
    tracer = TracerProvider().get_tracer("test")
    with gradwire.connect(traced.server.address) as session, session:
        x = gradwire.ones(3)
        x.exp().tolist()
        assert traced.spans() == []
        with tracer.start_as_current_span("mine") as mine:
            x.sin().tolist()
            trace_id = mine.get_span_context().trace_id
        found = traced.spans()
        x.cos().tolist()
        assert traced.spans() == []
    assert {span.context.trace_id for span in found} == {trace_id}
    assert {"gradwire Run", "queue", "compute", "serialize"} <= {span.name for span in found}


def test_a_server_without_traces_takes_calls_of_traces() -> None:
    tracer = TracerProvider().get_tracer("test")
    with running() as server, gradwire.connect(server.address) as session, session:
        with tracer.start_as_current_span("mine"):
            assert gradwire.ones(2).exp().shape == (2,)
        remote = server.open()
        assert remote.stub.Run(remote.batch(*batch()), metadata=[("traceparent", PARENT)]).applied_seq == 2


def test_timings_come_where_they_are_asked_for_and_nowhere_else(traced: Traced) -> None:
    session = traced.server.open()
    plain = session.stub.Run(session.batch(*batch()))
    assert not plain.HasField("timings")
    asked = session.batch(command(op("exp", Id(2), outputs=[3])), timings=True)
    raw = session.stub_bytes("Run")(asked.SerializeToString())
    told = service_pb2.RunResponse.FromString(raw).timings
    times = (told.queue_seconds, told.compute_seconds, told.serialize_seconds)
    assert read_timings(raw) == times
    assert all(0 <= each < 60 for each in times) and told.compute_seconds > 0
    again = service_pb2.RunResponse.FromString(session.stub_bytes("Run")(asked.SerializeToString()))
    assert again.HasField("timings") and again.applied_seq == 3


@pytest.mark.parametrize("listens", [False, True])
def test_a_collector_that_cannot_be_reached_or_never_answers_harms_nobody(listens: bool) -> None:
    with socket.socket() as collector:
        collector.bind(("127.0.0.1", 0))
        if listens:
            collector.listen()
        _trace_to(f"http://127.0.0.1:{collector.getsockname()[1]}/v1/traces")


def _trace_to(collector: str) -> None:
    with process("--port=0", "--workers=0", f"--traces={collector}") as started:
        from tests.server.test_process import opened, ready

        with grpc.insecure_channel(ready(started)) as channel:
            session = opened(channel)
            session.stub.Run(session.batch(*batch()), metadata=[("traceparent", PARENT)])
        started.terminate()
        assert started.wait(60) == 0
