"""Messages: values that one rank sends to another one, which receives them."""

import math
import os
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from gradwire.v1 import collectives_pb2 as pb
from gradwire_engine.core.device import host
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import location
from gradwire_server.session.collectives.meeting import answer_of
from gradwire_server.session.collectives.membership import no_file
from gradwire_server.session.collectives.operands import (
    COPIED,
    ExchangeScope,
    check_written,
    count_of,
    described,
    one_dtype,
)
from gradwire_server.session.collectives.received import note_received, put, room_to_log
from gradwire_server.session.state.group_table import GroupTable, Membership


def _other_rank(member: Membership, rank: int) -> None:
    if rank >= member.size or rank == member.rank:
        raise Refusal(
            "ARGUMENT_VALUE",
            f"rank {member.rank} of {member.size} can exchange a message with each other rank, not with rank {rank}",
            argument="peer",
        )


def send(scope: ExchangeScope, member: Membership, request: pb.CollectiveRequest) -> Iterator[None]:
    """Send values to a rank, whose worker copies them at once."""
    _other_rank(member, request.peer)
    tensors = scope.tensors(request.inputs)
    dtype = one_dtype(tensors)
    groups = scope.groups
    size = count_of(tensors) * dtype.itemsize
    groups.account.admit(size)
    try:
        fd = os.memfd_create("gradwire-message", os.MFD_CLOEXEC)
    except OSError as error:
        raise Refusal("MEMORY_LIMIT", f"the message cannot be sent: {no_file(error)}") from None
    try:
        for each in tensors:
            data = np.ascontiguousarray(host(each.array)).reshape(-1).view(np.uint8).data
            while data:
                data = data[os.write(fd, data[: COPIED * 4]) :]
                if time.monotonic() >= groups.cancel_token.at:
                    yield
        yield from answer_of(groups, groups.require_channel().ask(
            groups.session, "send", group=member.number, to=request.peer, timeout=request.timeout_ms,
            message={
                "sender": member.rank, "tag": request.tag, "about": described("", tensors).strip(), "size": size,
                "file": location(fd),
            },
        ))  # fmt: skip
    finally:
        os.close(fd)


def receive(scope: ExchangeScope, member: Membership, request: pb.CollectiveRequest) -> Generator[None, None, int]:
    """Wait for a message and write its values; return the rank that sent it. Raises Refusal: COLLECTIVE_MISMATCH."""
    sender = None if request.any_peer else request.peer
    if sender is not None:
        _other_rank(member, sender)
    tensors = scope.tensors(request.outputs)
    dtype = one_dtype(tensors)
    check_written(tensors)
    groups = scope.groups
    room = room_to_log(groups, tensors)
    message = member.pop(sender, request.tag)
    if message is None:
        message = yield from _awaited(groups, member, sender, request)
    about = described("", tensors).strip()
    if message.data.nbytes != count_of(tensors) * dtype.itemsize or message.about.split()[1] != about.split()[1]:
        refusal = Refusal(
            "COLLECTIVE_MISMATCH",
            f"rank {message.sender} sent a message {message.about}, but rank {member.rank} receives one {about}",
        )
        refusal.in_step = True  # the group is whole: the sender does not wait for this rank
        raise refusal
    values, begin = message.data.view(dtype), 0
    for target in tensors:
        count = math.prod(target.shape)
        put(target, values[begin : begin + count])
        begin += count
    note_received(groups, tensors, room, message.sender)
    return message.sender


def _awaited(
    groups: GroupTable, member: Membership, sender: int | None, request: pb.CollectiveRequest
) -> Generator[None, None, Any]:
    """Wait until a message is there. The front tells if the time is over."""
    channel = groups.require_channel()
    limit: Future[Any] | None = None
    if request.timeout_ms:
        limit = channel.ask(groups.session, "wait", group=member.number, timeout=request.timeout_ms)
    while True:
        if member.broken is not None:
            raise member.broken.copy()
        arrived: Future[Any] = Future()
        member.receiving = arrived
        if limit is not None:
            limit.add_done_callback(partial(_pass_on, arrived))
        try:
            yield from answer_of(groups, arrived)
        finally:
            member.receiving = None
        message = member.pop(sender, request.tag)
        if message is not None:
            if limit is not None:
                channel.tell(groups.session, "waited", group=member.number)
            return message


def _pass_on(waiting: Future[Any], done: Future[Any]) -> None:
    if not waiting.done():
        waiting.set_exception(done.exception() or Refusal("DEADLINE_EXCEEDED", "no message came in time"))
