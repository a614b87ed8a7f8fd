"""Engine errors: translates the engine's exceptions to refusals. Loaded only in processes that compute."""

from collections.abc import Mapping
from typing import Any

from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError
from gradwire_server.common.errors import Refusal, extend


def _refusal(error: BaseException) -> Refusal | None:
    if not isinstance(error, EngineError):
        return None
    refusal = Refusal(error.reason.value, error.message)
    refusal.metadata = error.metadata
    return refusal


def _command() -> Mapping[str, Any]:
    """Log details of the running command, if any."""
    log_fields = getattr(CURRENT.get().command, "log_fields", None)
    return {} if log_fields is None else log_fields()


extend(_refusal, _command)
