"""Engine errors: translates the engine's exceptions to refusals. Loaded only in processes that compute."""

from collections.abc import Iterable, Mapping
from typing import Any

from gradwire_engine import Tensor
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.errors import EngineError
from gradwire_server.common.errors import Refusal, extend


def _refusal(error: BaseException) -> Refusal | None:
    if not isinstance(error, EngineError):
        return None
    refusal = Refusal(error.reason.value, error.message)
    refusal.metadata = error.metadata
    return refusal


def describe_operands(error: EngineError, name: str, args: Iterable[Any]) -> None:
    """Add the refused op and its tensors' shapes to an error's metadata, where the engine has not told them.

    "shapes" are those of all tensor operands, "shape" is the first one's.
    """
    told = error.metadata
    told.setdefault("op", name)
    given = [each for value in args for each in (value if type(value) is list else (value,))]
    shapes = [list(each.shape) for each in given if type(each) is Tensor]
    if shapes:
        told.setdefault("shapes", str(shapes))
        told.setdefault("shape", str(shapes[0]))


def _command() -> Mapping[str, Any]:
    """Log details of the running command, if any."""
    log_fields = getattr(CURRENT.get().command, "log_fields", None)
    return {} if log_fields is None else log_fields()


extend(_refusal, _command)
