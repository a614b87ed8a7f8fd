"""The pipelined writer: order, one write at a time, and what happens on errors and cancellation."""

import asyncio

import pytest

from gradwire_server.common import pipelined_writer
from gradwire_server.common.pipelined_writer import PipelinedWriter


class _Sink:
    """Writes that end when they are let; it notes how many run at once."""

    def __init__(self, fails: str = "") -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.most = 0
        self.gate = asyncio.Event()
        self.fails = fails

    async def write(self, message: str) -> None:
        self.begun.append(message)
        self.most = max(self.most, len(self.begun) - len(self.done))
        await self.gate.wait()
        self.done.append(message)
        if message == self.fails:
            raise ConnectionError(message)


def test_a_write_runs_while_the_next_message_is_prepared_and_only_one_at_a_time() -> None:
    async def run() -> _Sink:
        sink = _Sink()
        async with PipelinedWriter(sink.write) as writer:
            await writer.send("a")
            assert (sink.begun, sink.done) == (["a"], [])
            sink.gate.set()
            await writer.send("b")
            await writer.send("c")
        return sink

    sink = asyncio.run(run())
    assert sink.done == ["a", "b", "c"]
    assert sink.most == 1


def test_a_failed_write_is_raised_by_the_next_send_or_at_the_end() -> None:
    async def run(more: bool) -> None:
        sink = _Sink(fails="a")
        sink.gate.set()
        async with PipelinedWriter(sink.write) as writer:
            await writer.send("a")
            if more:
                await writer.send("b")

    for more in (True, False):
        with pytest.raises(ConnectionError, match="a"):
            asyncio.run(run(more))


def test_after_an_error_in_the_block_the_write_is_waited_for() -> None:
    async def failing(sink: _Sink) -> None:
        async with PipelinedWriter(sink.write) as writer:
            await writer.send("a")
            raise KeyError

    async def run() -> list[str]:
        sink = _Sink()
        asyncio.get_running_loop().call_later(0.01, sink.gate.set)
        with pytest.raises(KeyError):
            await failing(sink)
        return sink.done

    assert asyncio.run(run()) == ["a"]


def test_a_cancelled_call_ends_before_its_write_and_all_sent_waits_for_it() -> None:
    async def run() -> tuple[list[str], list[str]]:
        sink = _Sink()

        async def call() -> None:
            try:
                async with PipelinedWriter(sink.write) as writer:
                    await writer.send("a")
                    await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append(list(sink.done))
                sink.gate.set()
                await pipelined_writer.all_sent()
                ended.append(list(sink.done))

        ended: list[list[str]] = []
        task = asyncio.ensure_future(call())
        await asyncio.sleep(0.01)
        task.cancel()
        await task
        return ended[0], ended[1]

    assert asyncio.run(run()) == ([], ["a"])


def test_an_abandoned_write_that_fails_is_not_logged_by_asyncio(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        sink = _Sink(fails="a")
        writing = asyncio.ensure_future(sink.write("a"))
        pipelined_writer.abandon(writing)
        sink.gate.set()
        await pipelined_writer.all_sent()

    asyncio.run(run())
    assert caplog.records == []


def test_nothing_abandoned_is_nothing_to_wait_for() -> None:
    asyncio.run(asyncio.wait_for(pipelined_writer.all_sent(), 5))
