"""Which sessions compute large ops by machine code."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire_engine.compile.eager.library import LIBRARY
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.ops.base.loops import Loop
from gradwire_server.common.limits import Limits
from gradwire_server.session.session import Session
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.storage.write_ahead_log import Notes


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """A loop that this process has loaded."""
    made = Loop(lambda *_: None, 1, 0, True)
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setitem(LIBRARY.loaded, ("gelu", "f"), made)
    return made


def _loops(session: Session) -> Any:
    return session.grad_context.loops


def test_a_session_without_a_log_uses_loops_in_every_mode(loop: Loop) -> None:
    session = Session(1, Limits(), CancelToken())
    for context in (session.grad_context, session.no_grad_context, session.inference_context):
        assert context.loops.find("gelu", "f") is loop


def test_a_session_with_a_log_computes_by_numpy_since_a_replay_repeats_every_bit(loop: Loop) -> None:
    session = Session(1, Limits(), CancelToken())
    session.durability.log_notes = Notes()
    assert _loops(session).find("gelu", "f") is None
    session.durability.log_notes = None
    assert _loops(session).find("gelu", "f") is loop


def test_a_server_without_machine_code_has_no_loops(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONS, "mode", "off")
    assert _loops(Session(1, Limits(), CancelToken())).find("gelu", "f") is None
