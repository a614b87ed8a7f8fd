"""A session without a server, for tests that call a command's function directly."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradwire_engine import Tensor, activate, tensor
from gradwire_server.common.limits import Limits
from gradwire_server.session.session import CancelToken, Session


@contextmanager
def opened(**limits: Any) -> Iterator[Session]:
    """A session whose recording context is active. limits: those that differ from the defaults."""
    session = Session(1, Limits(**limits).resolved(), CancelToken())
    with activate(session.grad_context):
        yield session


def bound(session: Session, tensor_id: int, *values: float, grad: bool = True) -> Tensor:
    """A leaf that the session knows by this id."""
    made = tensor(np.array(values), grad)
    session.bind(tensor_id, made)
    return made


def ended(steps: Iterator[None]) -> None:
    """Take all steps of a command."""
    for _ in steps:
        pass
