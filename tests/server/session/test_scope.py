"""A session and a program's repetition are scopes of tensors: what a handler asks of one it may ask of the other."""

import inspect

import pytest

from gradwire_engine import Tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session.commands import COMMANDS
from gradwire_server.session.interpreter import RunScope
from gradwire_server.session.scope import TensorScope
from tests.server.session.opened import bound, opened

METHODS = sorted(name for name, each in vars(TensorScope).items() if inspect.isfunction(each) and name[0] != "_")


@pytest.fixture(params=["session", "repetition"])
def scope(request: pytest.FixtureRequest) -> object:
    with opened(max_session_tensors=3) as session:
        yield session if request.param == "session" else RunScope(session, COMMANDS, {}, ())


def test_every_member_is_there(scope: TensorScope) -> None:
    assert len(METHODS) >= 8
    assert [name for name in (*METHODS, *TensorScope.__annotations__) if not hasattr(scope, name)] == []


def test_a_tensor_that_was_bound_is_found(scope: TensorScope) -> None:
    with opened() as other:
        made: Tensor = bound(other, 5, 1.0, 2.0)
    assert scope.bind(2, made) == 2
    assert scope.tensor(2) is made
    assert scope.tensors([2, 2]) == [made, made]
    with pytest.raises(Refusal) as refusal:
        scope.tensor(1)
    assert refusal.value.reason == "TENSOR_NOT_FOUND"


def test_modes_and_dtypes_that_do_not_exist_are_refused(scope: TensorScope) -> None:
    assert not scope.context(1).inference
    with pytest.raises(Refusal, match="grad_mode 99"):
        scope.context(99)
