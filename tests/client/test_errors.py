"""Every refusal has a typed exception, and no gRPC exception leaves the library."""

import copy
import pickle
import re

import grpc
import pytest

import gradwire
from gradwire._base import errors
from gradwire.v1 import errors_pb2


def test_every_reason_has_an_exception():
    reasons = {value for name, value in errors_pb2.Reason.items() if name != "REASON_UNSPECIFIED"}
    assert set(errors.EXCEPTIONS) == reasons


def test_every_exception_is_the_one_its_comment_in_the_contract_names(request):
    text = (request.config.rootpath / "proto/gradwire/v1/errors.proto").read_text("utf-8")
    checked = 0
    for comment, name in re.findall(r"^  // (.*\n(?:  // .*\n)*)  (REASON_\w+) = ", text, re.MULTILINE):
        if ": " in comment:
            python = comment.split(": ", 1)[0].split(", ")[1]
            kind = errors.EXCEPTIONS[errors_pb2.Reason.Value(name)]
            assert issubclass(kind, getattr(__builtins__, python, None) or eval(python)), name
            checked += 1
    assert checked == len(errors.EXCEPTIONS)


@pytest.mark.parametrize("kind", sorted(set(errors.EXCEPTIONS.values()), key=lambda kind: kind.__name__))
def test_exceptions_are_of_one_base_and_can_be_copied(kind):
    error = kind("a sentence")
    assert isinstance(error, gradwire.GradwireError)
    assert "a sentence" in str(pickle.loads(pickle.dumps(error)))
    assert "a sentence" in str(copy.copy(error))


def test_a_reason_of_a_later_contract_is_a_runtime_error():
    error = errors.make_error(9999, "new")
    assert isinstance(error, RuntimeError)
    assert error.reason == "9999"


def test_a_refusal_tells_its_reason_and_details(deferring):
    with pytest.raises(RuntimeError) as caught:
        gradwire.ones(2, 3) @ gradwire.ones(2, 3)
    assert caught.value.reason == "SHAPE"
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert caught.value.metadata


def test_an_unreachable_server_is_a_connection_error(monkeypatch):
    monkeypatch.setattr("gradwire._transport.transport._RETRY_WAITS", (0.01,))
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1 cannot be reached") as caught:
        gradwire.connect("127.0.0.1:1")
    assert isinstance(caught.value, gradwire.GradwireError)
    assert caught.value.__cause__ is None


def test_an_expired_or_unknown_session_has_an_error_with_a_reason(server_address, monkeypatch):
    session = gradwire.connect(server_address)
    session._retransmission._session_id = "no-such-session"
    session._retransmission.drop()
    with pytest.raises(gradwire.GradwireError) as caught:
        session.describe()
    assert caught.value.reason in ("SESSION_NOT_FOUND", "SESSION_EXPIRED")
    assert not isinstance(caught.value, grpc.RpcError)


def test_unary_refusals_carry_the_reason_in_their_trailers(server_address):
    session = gradwire.connect(server_address)
    session._session_id = "no-such-session"
    with pytest.raises(gradwire.GradwireError) as caught:
        session.renew_lease()
    assert caught.value.reason == "SESSION_NOT_FOUND"


@pytest.mark.parametrize(
    ("attempt", "kind"),
    [
        (lambda t: t.ones(2).sum(5), IndexError),
        (lambda t: t.ones(2)[7], IndexError),
        (lambda t: t.ones(2, 3).view(5), RuntimeError),
        (lambda t: t._tensor.call._call("no_such_op", (t.ones(1),)), NotImplementedError),
        (lambda t: t.ones(2) + t.ones(3), RuntimeError),
        (lambda t: t.cat("ab"), TypeError),
        (lambda t: t.ones(2).reshape("a"), TypeError),
    ],
)
def test_refusals_have_pythons_types(deferring, attempt, kind):
    import gradwire._tensor.call

    with pytest.raises(kind) as caught:
        attempt(gradwire)
    assert not isinstance(caught.value, grpc.RpcError)
