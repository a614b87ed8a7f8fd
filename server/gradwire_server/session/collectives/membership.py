"""Membership: a session joins a group and leaves it."""

import errno
import resource
from collections.abc import Iterator

from gradwire.v1 import collectives_pb2 as pb
from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import location
from gradwire_server.session.collectives.meeting import answer_of, meet
from gradwire_server.session.state.group_table import MAX_GROUPS, GroupTable, Membership, PeerMemory, RankMemory

MAX_RANKS = 1024
_MAX_NAME = 200


def _check_name(name: str) -> None:
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise Refusal("ARGUMENT_VALUE", f"a group's name has 1 to {_MAX_NAME} printable characters", argument="group")


def join(groups: GroupTable, request: pb.CollectiveRequest) -> Iterator[None]:
    """Join a group, and wait until all its ranks have. Raises Refusal."""
    channel = groups.require_channel()
    _check_name(request.group)
    if not 0 < request.size <= MAX_RANKS:
        raise Refusal("ARGUMENT_VALUE", f"a group has 1 to {MAX_RANKS} ranks, not {request.size}", argument="size")
    if request.rank >= request.size:
        message = f"rank {request.rank} is not below the group's size of {request.size}"
        raise Refusal("ARGUMENT_VALUE", message, argument="rank")
    former = groups.joined.get(request.group)
    if former is not None and former.broken is None:
        message = f"this session is rank {former.rank} of group {request.group!r} already"
        raise Refusal("ARGUMENT_VALUE", message, argument="group")
    if former is not None:
        former.close()
        del groups.joined[request.group]
    if len(groups.joined) >= MAX_GROUPS:
        raise Refusal("ARGUMENT_VALUE", f"a session is in at most {MAX_GROUPS} groups", argument="group")
    try:
        memory = RankMemory(groups.account)
    except OSError as error:
        raise Refusal("MEMORY_LIMIT", f"no group can be joined: {no_file(error)}") from None
    peers: list[PeerMemory] = []
    try:
        formed = yield from answer_of(groups, channel.ask(
            groups.session, "join", group=request.group, rank=request.rank, size=request.size,
            file=location(memory.fd), timeout=request.timeout_ms, grace=request.grace_ms,
        ))  # fmt: skip
        member = Membership(request.group, formed["group"], request.rank, request.size, memory)
        groups.joined[request.group] = member
        try:
            for where in formed["files"]:
                peers.append(PeerMemory(where))  # noqa: PERF401 - those opened are closed if one fails
        except OSError as error:
            raise Refusal("GROUP_BROKEN", f"another rank's memory cannot be opened: {no_file(error)}") from None
        member.peers, member.nodes = peers, formed.get("nodes", [])
        member.processes = [where[0] for where in formed["files"]]
        # No rank may end before all have opened its memory.
        yield from meet(groups, member, "join", request.timeout_ms)
    except BaseException:
        groups.joined.pop(request.group, None)
        channel.tell(groups.session, "withdraw", group=request.group)
        memory.close()
        for peer in peers:
            peer.close()
        raise


def no_file(error: OSError) -> str:
    """Why a file cannot be opened, and what to do about it."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"the server's process has {limit} open files, its limit. A rank needs one for each rank of its groups: "
            "leave groups, or start the server with a higher limit (ulimit -n)"
        )
    return str(error)


def leave(groups: GroupTable, name: str) -> None:
    """Leave a group, and give its memory back. Raises Refusal: GROUP_BROKEN."""
    member = groups.joined.pop(name, None)
    if member is None:
        raise Refusal("GROUP_BROKEN", f"this session is in no group {name[:_MAX_NAME]!r}")
    member.close()
    groups.require_channel().tell(groups.session, "leave", group=member.number)
