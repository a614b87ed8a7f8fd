"""Retry: retries a command that failed for lack of memory, and turns other failures into refusals."""

import gc
from collections.abc import Callable, Generator, Iterator

from gradwire_engine import EngineError, Reason
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.session.session import Session


def retry_or_refuse(
    session: Session, method: str, error: Exception, again: Callable[[], Iterator[None] | None]
) -> Refusal | None:
    """Refusal of a command that raised, or None if its retry succeeded.

    The refusal has no traceback: its frames would keep the command's tensors alive.
    """
    steps = retry_in_steps(session, method, error, again)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def retry_in_steps(
    session: Session, method: str, error: Exception, again: Callable[[], Iterator[None] | None]
) -> Generator[None, None, Refusal | None]:
    """As `retry_or_refuse`, for a command that takes steps: its retry also yields between them.

    The generator returns the refusal or None.
    """
    failed: Exception | None = error
    if _is_out_of_memory(error):
        _drop_frames(error)  # frees intermediate results that its frames hold
    if _is_out_of_memory(error) and _free_memory(session):
        if session.durability.log_notes is not None:
            session.durability.log_notes.retried(session, session.command.seq)
        try:
            yield from again() or ()
            failed = None
        except Exception as second:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
            # A backward's first try may have freed what the retry needs; the cause is still the lack of memory.
            freed = isinstance(second, EngineError) and second.reason is Reason.GRAPH_FREED
            failed = error if freed else second
    if failed is None:
        return None
    if isinstance(failed, EngineError) and failed.reason is Reason.CANCELLED:
        refusal = session.cancel_token.refusal()
    else:
        refusal = refusal_of(failed, method)
    failed = None  # breaks the reference cycle of its traceback and this frame
    _drop_frames(refusal)
    return refusal


def _drop_frames(error: Exception) -> None:
    """Drop an exception's traceback and chained exceptions, whose frames hold tensors."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, EngineError) and error.reason is Reason.MEMORY_LIMIT)


def _free_memory(session: Session) -> bool:
    """Collect reference cycles made by `create_graph` and drop what is kept for speed; return whether bytes were freed.

    That are programs' plans, and released tensors with which a step would be noted.
    """
    held = session.account.bytes
    session.release_all(session.kept_ids)
    session.kept_ids.clear()
    for program in session.programs.values():
        program.plans.clear()
    gc.collect()
    return session.account.bytes < held
