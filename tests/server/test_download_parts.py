"""The sizes of a download's messages, and writes that a client's end breaks."""

import asyncio
import gc
from typing import Any

from gradwire.v1 import service_pb2
from gradwire_server.common.pipelined_writer import PipelinedWriter
from gradwire_server.rpc.download_parts import DownloadParts, split


def test_the_oldest_of_many_unfinished_downloads_is_forgotten() -> None:
    parts = DownloadParts(1 << 20)
    assert [parts.begin("s", "first", 0), parts.begin("s", "first", 0)] == [1 << 20, 1 << 19]
    for number in range(1023):
        parts.begin("s", str(number), 0)
    assert parts.begin("s", "first", 0) == 1 << 18
    for number in range(1024):
        parts.begin("s", str(number), 0)
    assert parts.begin("s", "first", 0) == 1 << 20


def test_a_server_with_tiny_chunks_never_sends_larger_ones() -> None:
    parts = DownloadParts(1024)
    assert [parts.begin("s", "t", 0), parts.begin("s", "t", 0)] == [1024, 1024]


def test_split_messages_have_all_bytes_at_their_offsets() -> None:
    data = bytes(range(256)) * 10
    whole = service_pb2.DownloadResponse(offset=77, data=data).SerializeToString()
    parts = [service_pb2.DownloadResponse.FromString(each) for each in split(whole, 1000)]
    assert [(each.offset, len(each.data)) for each in parts] == [(77, 1000), (1077, 1000), (2077, 560)]
    assert b"".join(each.data for each in parts) == data


def test_a_last_write_that_fails_after_the_calls_cancel_is_not_logged() -> None:
    async def told() -> list[dict[str, Any]]:
        logged: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: logged.append(context))
        broken = asyncio.Event()

        async def write(message: bytes) -> None:
            await broken.wait()
            raise ConnectionError("the connection broke")

        async def serve() -> None:
            async with PipelinedWriter(write) as parts:
                await parts.send(b"last")

        call = loop.create_task(serve())
        for _ in range(5):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        broken.set()
        for _ in range(5):
            await asyncio.sleep(0)
        del call
        gc.collect()
        return logged

    assert asyncio.run(told()) == []
