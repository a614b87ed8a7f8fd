"""The Python classes that stand for the engine's reasons, as clients raise them."""

from collections.abc import Iterator
from contextlib import contextmanager

from gradwire_engine.core.errors import EngineError, Reason

#: All reasons that are missing here are RuntimeError.
CLASSES: dict[Reason, type[Exception]] = {
    Reason.DIM_OUT_OF_RANGE: IndexError,
    Reason.INDEX_OUT_OF_RANGE: IndexError,
    Reason.ARGUMENT_TYPE: TypeError,
    Reason.ARGUMENT_VALUE: ValueError,
    Reason.NOT_SUPPORTED: NotImplementedError,
}


@contextmanager
def as_python() -> Iterator[None]:
    """Raise the engine's refusals as the exceptions that PyTorch raises."""
    try:
        yield
    except EngineError as error:
        raise CLASSES.get(error.reason, RuntimeError)(error.message) from error
