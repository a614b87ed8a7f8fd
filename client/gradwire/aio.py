"""asyncio: sessions whose waits do not block the event loop.

    async with aio.connect("host:50051") as session:
        loss = model(x).square().mean()     # commands are issued as everywhere
        await session.run(loss.backward)    # in a thread, for what may wait
        print(await session.item(loss))

The sessions and tensors are those of the rest of the client; only the waits are in threads. A thread belongs to a
session, so a session whose server is slow delays no other. Tensors that a coroutine makes are in the session that its
task entered last.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from numpy import ndarray

from gradwire._base.errors import GradwireError
from gradwire._session.entered import ENTERED, enter, leave
from gradwire._session.session import Session
from gradwire._session.sessions import open_session
from gradwire._tensor.tensor import Tensor

__all__ = ["AsyncSession", "connect"]

_Value = TypeVar("_Value")
# Calls of one session that may wait at the same time. Their answers arrive in one order, so more would gain nothing.
_THREADS = 4
# A cancelled call's thread ends when the server has told what became of it; after this time nobody looks any more.
_CANCEL_SECONDS = 5.0


class AsyncSession:
    """A session for coroutines, as returned by connect(): an asynchronous context manager.

    Inside the block it is the session of new tensors, for this task and the tasks that it starts. `session` is the
    gradwire.Session, for everything that does not wait. At the end of the block the session is closed.
    """

    def __init__(self, opening: Callable[[], Session]) -> None:
        self._opening = opening
        self._session: Session | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def session(self) -> Session:
        """The session itself. Raises RuntimeError outside of the block."""
        if self._session is None:
            raise RuntimeError("the session is open only inside `async with`")
        return self._session

    async def __aenter__(self) -> AsyncSession:
        if self._threads is not None:
            raise RuntimeError("a session is entered once; call gradwire.aio.connect() again")
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="gradwire-aio")
        opening = self._threads.submit(self._opening)
        try:
            self._session = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            # The thread cannot be stopped; what it opens is closed there.
            opening.add_done_callback(_close_opened)
            self._threads.shutdown(wait=False)
            raise
        except BaseException:
            self._threads.shutdown(wait=False)
            raise
        enter(self._session)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, at: object) -> None:
        session, threads = self.session, self._threads
        assert threads is not None
        leave(session)
        try:
            # Not in the session's threads: calls that wait there end only when the session closes.
            await asyncio.shield(asyncio.to_thread(session.close))
        except GradwireError as refused:
            if error is None:
                raise
            # What left the block stays: a cancellation or timeout that were replaced here would be lost.
            _add_context(error, refused)
        finally:
            self._session = None
            threads.shutdown(wait=False)

    async def run(self, function: Callable[..., _Value], /, *args: Any, **kwargs: Any) -> _Value:
        """Call a function in a thread, with this task's session and modes, and return what it returns.

        For code that may wait, such as a training step, Tensor.backward with hooks, Session.save or an epoch. If the
        task is cancelled, so are the session's commands that are not done, as by Session.cancel(): independent tasks
        had better have a session each. Raises what the function raises, but RuntimeError for StopIteration.
        """
        session, threads = self.session, self._threads
        assert threads is not None
        context = contextvars.copy_context()
        call = threads.submit(context.run, _entered, session, function, args, kwargs)
        waiting = asyncio.wrap_future(call)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError as cancelled:
            if waiting.cancelled() or call.cancel():  # it had not begun
                raise
            with contextlib.suppress(GradwireError):  # a closed session runs nothing
                session.cancel()
            await asyncio.wait([waiting], timeout=_CANCEL_SECONDS)
            if waiting.done() and not waiting.cancelled():
                _add_context(cancelled, waiting.exception())
            raise

    async def item(self, tensor: Tensor) -> Any:
        """The Python number of a tensor with one element (Tensor.item). Raises the errors of what made it."""
        return await self.run(tensor.item)

    async def tolist(self, tensor: Tensor) -> Any:
        """The values as nested lists (Tensor.tolist). Raises the errors of what made the tensor."""
        return await self.run(tensor.tolist)

    async def numpy(self, tensor: Tensor, *, force: bool = False) -> ndarray[Any, Any]:
        """The values as an array (Tensor.numpy). Raises the errors of what made the tensor."""
        return await self.run(tensor.numpy, force=force)

    async def sync(self) -> None:
        """Wait until all issued commands are done. Raises GradwireError if one of them was refused."""
        await self.run(self.session.sync)


def connect(
    address: str | None = None,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    tls: bool | None = None,
    patience: float | None = None,
    device_type: str | None = None,
) -> AsyncSession:
    """A session for `async with`, which opens it. The arguments and errors equal those of gradwire.connect().

    It is the default of no other task or thread. Each such session without an address has an embedded server of its
    own.
    """

    def opening() -> Session:
        return open_session(
            address, token=token, ca=ca, cert=cert, key=key, tls=tls, patience=patience, device_type=device_type
        )

    return AsyncSession(opening)


def _entered(session: Session, function: Callable[..., _Value], args: Any, kwargs: Any) -> _Value:
    """Call in a context of its own, where the session is the current one."""
    if (ENTERED.get() or (None,))[-1] is not session:
        enter(session)
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        # No future can hold one: the task would wait for ever.
        raise RuntimeError("the function of AsyncSession.run raised StopIteration") from error


def _add_context(error: BaseException, other: BaseException | None) -> None:
    """Tell of another error at the end of an error's traceback."""
    seen = {id(error)}
    while error.__context__ is not None and id(error.__context__) not in seen:
        error = error.__context__
        seen.add(id(error))
    if other is not None and id(other) not in seen:
        other.__context__ = None  # Python has linked it to the first one, of which it is a part now
        error.__context__ = other


def _close_opened(opening: Any) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
