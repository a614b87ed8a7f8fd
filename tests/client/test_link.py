"""A link behaves the same on grpc's lower layer and on its public stream, which replaces a changed lower layer."""

from typing import Any

import pytest

import gradwire
from gradwire._transport import link as _link


class Unlike:
    """A lower layer that a later grpc may have: one thing in it has gone."""

    def __init__(self, lower: Any, gone: str) -> None:
        self._lower, self._gone = lower, gone

    def __getattr__(self, name: str) -> Any:
        if name == self._gone:
            raise AttributeError(name)
        return getattr(self._lower, name)


@pytest.fixture(autouse=True)
def by_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")


def public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_link, "_cython_works", False)


def use(session: gradwire.Session) -> None:
    w = gradwire.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(300):
        (w * 2.0).sum().backward()
    assert w.grad.tolist() == [600.0, 600.0]
    large = gradwire.zeros(1 << 16) + 1.0
    assert large.sum().item() == 1 << 16
    with pytest.raises(RuntimeError, match="size"):
        gradwire.ones(3) @ gradwire.ones(4)
    session.close()
    with pytest.raises(gradwire.GradwireError, match="closed"):
        w.tolist()


@pytest.mark.parametrize(
    "gone", ["SendInitialMetadataOperation", "SendMessageOperation", "ReceiveMessageOperation", "OperationType"]
)
def test_a_grpc_whose_lower_layer_is_unlike_the_known_one_is_used_by_its_public_stream(
    server_address: str, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(_link, "_cython_works", True)
    monkeypatch.setattr(_link, "cygrpc", Unlike(_link.cygrpc, gone))
    use(gradwire.connect(server_address))
    assert not _link._cython_works


def test_a_lower_call_that_takes_other_arguments_gives_way_to_the_public_stream(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_link, "_cython_works", True)

    def other(self: Any, channel: Any) -> None:
        channel._channel.segregated_call(0)

    monkeypatch.setattr(_link._CythonCall, "__init__", other)
    use(gradwire.connect(server_address))
    assert not _link._cython_works


def test_by_the_public_stream_a_connection_that_ended_is_gone_on_with(
    server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(monkeypatch)
    session = gradwire.connect(server_address)
    x = gradwire.zeros(2)
    for turn in range(20):
        x += 1.0
        if turn % 5 == 0:
            session._retransmission.drop()
    assert x.tolist() == [20.0, 20.0]
    assert session._retransmission._attempts > 1
    session.close()


def test_by_the_public_stream_an_interrupted_wait_loses_nothing(
    untold: None, server_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(monkeypatch)
    session = gradwire.connect(server_address)
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    take = _link._PublicCall.take_event

    def interrupted(call: Any) -> None:
        monkeypatch.setattr(_link._PublicCall, "take_event", take)
        raise KeyboardInterrupt

    monkeypatch.setattr(_link._PublicCall, "take_event", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x * 3.0
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]
    session.close()


def test_a_public_stream_that_is_dropped_leaves_no_thread(server_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    public(monkeypatch)
    session = gradwire.connect(server_address)
    link = session._transport._link
    assert link is not None
    assert isinstance(link._call, _link._PublicCall)
    session.close()
    link._call.drain()
    assert link._call.status is not None
    assert not link.alive
