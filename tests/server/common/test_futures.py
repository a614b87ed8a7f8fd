"""Futures in generators: a generator yields a future until it is done, then has its result or its exception."""

from concurrent.futures import Future

import pytest

from gradwire_server.common.futures import until_done


def test_a_future_is_yielded_until_it_is_done() -> None:
    future: Future[int] = Future()
    steps = until_done(future)
    assert next(steps) is future
    assert next(steps) is future
    future.set_result(3)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == 3


def test_a_future_that_is_done_is_not_yielded_and_its_exception_is_raised() -> None:
    future: Future[int] = Future()
    future.set_exception(OSError("down"))
    with pytest.raises(OSError, match="down"):
        next(until_done(future))
