"""Futures in generators: a generator yields the future that it waits for, and its thread does other work meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
#: The steps of a call. A step that yields a future is continued once the future is done.
Steps = Generator[Future[Any] | None, None, T]


def until_done(future: Future[T]) -> Steps[T]:
    """Yield the future until it is done; return its result or raise its exception."""
    while not future.done():
        yield future
    return future.result()
