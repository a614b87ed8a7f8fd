"""Abort: ends a call of gRPC with a refusal. errors.py itself does not load gRPC, for workers make refusals, too."""

import asyncio
from typing import Any, NoReturn

import grpc

from gradwire_server.common.errors import MAX_TEXT, Refusal, cut
from gradwire_server.common.pipelined_writer import all_sent


def status_code(refusal: Refusal) -> grpc.StatusCode:
    """gRPC's status code of a refusal."""
    return grpc.StatusCode[refusal.code.name]


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", refusal: Refusal) -> NoReturn:
    """End a call with the refusal as its status. Always raises, as gRPC's abort does."""
    await all_sent()
    try:
        await context.abort(status_code(refusal), cut(refusal.message, MAX_TEXT), refusal.trailers())
    except grpc.aio.InternalError:  # the call has ended
        raise asyncio.CancelledError from None
