"""The engine's exceptions as refusals: loaded by whatever computes, and not by the front of worker processes."""

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
    """The session's command that is being carried out here, if any."""
    told = getattr(CURRENT.get().command, "told", None)
    return {} if told is None else told()


extend(_refusal, _command)
