"""What becomes of a command that raised: a second try where memory was short, else a refusal."""

import gc
from collections.abc import Callable, Generator, Iterator

from gradwire_engine import EngineError, Reason
from gradwire_server.common.errors import Refusal, refusal_of
from gradwire_server.session.session import Session


def settle(
    session: Session, method: str, error: Exception, again: Callable[[], Iterator[None] | None]
) -> Refusal | None:
    """What to answer to a command that raised, or None if it went well at a second try.

    The refusal has no traceback: its frames would keep the command's tensors alive.
    """
    steps = settling(session, method, error, again)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def settling(
    session: Session, method: str, error: Exception, again: Callable[[], Iterator[None] | None]
) -> Generator[None, None, Refusal | None]:
    """As `settle`, for a command that takes steps: its second try pauses between them as its first did."""
    failed: Exception | None = error
    if _scarce(error):
        _forget(error)  # what was computed up to there is room, too
    if _scarce(error) and _make_room(session):
        if session.notes is not None:
            session.notes.resumed(session.cancel_token.seq - 1, session.recording.generator.get_state())
        try:
            yield from again() or ()
            failed = None
        except Exception as second:  # noqa: BLE001 - becomes a refusal; the unforeseen is logged
            # The first try of a backward may have freed what the second would need: memory was why.
            freed = isinstance(second, EngineError) and second.reason is Reason.GRAPH_FREED
            failed = error if freed else second
    if failed is None:
        return None
    if isinstance(failed, EngineError) and failed.reason is Reason.CANCELLED:
        refusal = session.cancel_token.refusal()
    else:
        refusal = refusal_of(failed, method)
    failed = None  # or its traceback and this frame would hold each other
    _forget(refusal)
    return refusal


def _forget(error: Exception) -> None:
    """Let go of the frames that an exception came through, and of the exceptions before it."""
    error.__traceback__ = error.__context__ = error.__cause__ = None


def _scarce(error: Exception) -> bool:
    return isinstance(error, MemoryError) or (isinstance(error, EngineError) and error.reason is Reason.MEMORY_LIMIT)


def _make_room(session: Session) -> bool:
    """Collect the cycles that `create_graph` leaves, and give up what programs are prepared with; whether that gave
    bytes back."""
    held = session.account.bytes
    for program in session.programs.values():
        program.plans.clear()
    gc.collect()
    return session.account.bytes < held
