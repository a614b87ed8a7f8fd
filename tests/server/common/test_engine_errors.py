"""The engine's errors become refusals with reason, message and metadata; commands tell the log of themselves."""

import logging
from dataclasses import replace

import pytest

from gradwire_engine.core.context import Command, Context, activate
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_server.common import engine_errors, errors


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_of_the_engine_has_a_status(reason: Reason) -> None:
    refusal = errors.refusal_of(EngineError(reason, "so it is", op="add", dim=3), "Op")
    assert (refusal.reason, str(refusal)) == (reason.value, "so it is")
    assert refusal.metadata == {"op": "add", "dim": "3"}
    assert refusal.reason in errors.CODES


def test_other_errors_are_not_the_engines() -> None:
    assert engine_errors._refusal(ValueError("x")) is None


def test_an_unforeseen_error_is_logged_with_the_command_that_runs(caplog: pytest.LogCaptureFixture) -> None:
    class Told(Command):
        def log_fields(self) -> dict[str, int]:
            return {"seq": 7}

    assert engine_errors._command() == {}
    with activate(replace(Context(), command=Told())), caplog.at_level(logging.ERROR, "gradwire.server"):
        assert engine_errors._command() == {"seq": 7}
        refusal = errors.refusal_of(ValueError("secret"), "Op")
    assert refusal.reason == "INTERNAL"
    assert "secret" not in str(refusal)
    assert [record.seq for record in caplog.records] == [7]
