"""Groups of several servers: how they find and trust each other, and what they tell when that fails."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import REGION, location
from gradwire_server.registry import peer_links
from gradwire_server.registry.group_homes import Address, Homes
from gradwire_server.registry.group_nodes import GroupNodes
from gradwire_server.registry.group_values import Spread
from gradwire_server.registry.peer_links import LINK, Peers
from tests.certificates import Authority
from tests.server.harness import Id, op
from tests.server.peers import Node
from tests.server.test_collectives import Rank, refused, together

Nodes = Callable[..., list[Node]]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Starts servers that share a folder."""
    started: list[Node] = []

    def start(count: int = 2, **told: Any) -> list[Node]:
        begin = len(started)
        started.extend(Node(tmp_path, f"127.0.0.1:{begin + each + 1}", **told) for each in range(count))
        return started[begin:]

    yield start
    for each in started:
        each.stop()


def address_of(server: Node) -> Address:
    shared = server.backend.group_nodes
    assert isinstance(shared, GroupNodes)
    return shared.peers.address


def ranks_of(servers: list[Node]) -> list[Rank]:
    return [Rank(server, rank, len(servers)) for rank, server in enumerate(servers)]


def test_a_rank_whose_rank_0_does_not_join_is_told_in_time(nodes: Nodes) -> None:
    _, two = ranks_of(nodes())
    reason, message = refused(lambda: two.ask("JOIN", rank=1, size=2, timeout_ms=300))
    assert (reason, message) == ("DEADLINE_EXCEEDED", "rank 1 of group 'g' waited 0.3 s for rank 0 to join")


def test_a_server_s_workers_find_other_servers_ranks_in_its_copy() -> None:
    here, there = Address("a", "127.0.0.1", 1), Address("b", "127.0.0.1", 2)
    own = os.memfd_create("own")
    try:
        spread = Spread([there, here, there], here, [[1, 2, 3], location(own), [4, 5, 6]])
        files = spread.local_files()
        assert spread.nodes() == [0, 1, 0] and files[1] == location(own)
        assert files[0] == [*location(spread.copy), 0] and files[2] == [*location(spread.copy), 4 * REGION]
        spread.close()
        with pytest.raises(FileNotFoundError, match="has closed the file"):
            Spread([here], here, [[os.getpid(), own, 1]])
    finally:
        os.close(own)


def test_a_home_that_is_gone_is_replaced(nodes: Nodes, tmp_path: Path) -> None:
    gone = Address("127.0.0.1:9", "127.0.0.1", 9)
    servers = nodes()
    homes = Homes(tmp_path / "groups")
    assert homes.publish("", "g", gone)
    ranks = ranks_of(servers)
    together(ranks, Rank.join)
    assert homes.find("", "g") == address_of(servers[0])
    together(ranks, lambda rank: rank.ask("LEAVE"))
    # And a server that starts forgets what it left behind.
    assert homes.publish("", "other", Address("127.0.0.1:3", "127.0.0.1", 9))
    nodes(1)
    assert homes.find("", "other") is None


def test_groups_of_several_servers_that_were_crossed_are_refused(nodes: Nodes) -> None:
    """The second group's rank 0 has another server than the first one's, and yet one home sees both."""
    ranks = ranks_of(nodes(3))
    together(ranks, Rank.join)
    pair = ranks[1:]
    together(pair, lambda rank: rank.ask("JOIN", "pair", rank=rank.rank - 1, size=2))
    found = together(pair, lambda rank: refused(lambda: rank.ask("BARRIER", "pair" if rank.rank == 1 else "g")))
    assert [reason for reason, _ in found] == ["COLLECTIVE_MISMATCH"] * 2
    assert "groups g, pair in different orders" in found[0][1]


def test_values_travel_encrypted_and_the_certificate_is_checked(nodes: Nodes, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    servers = nodes(certificate=(certificate, key))
    ranks = ranks_of(servers)
    together(ranks, Rank.join)
    values = [rank.make(np.arange(8000.0) * (1 + rank.rank)) for rank in ranks]
    ones = [rank.ones(400_000) for rank in ranks]
    for numbers in (values, ones):
        together(ranks, lambda rank, n=numbers: rank.ask("ALL_REDUCE", op="REDUCE_OP_SUM", inputs=[n[rank.rank]]))
    for rank, number, one in zip(ranks, values, ones, strict=True):
        assert np.array_equal(rank.read(number), np.arange(8000.0) * 3)
        sums = next(rank.ids)
        rank.stub.Op(op("sum", Id(one), session_id=rank.session, outputs=[sums]))
        assert rank.read(sums) == 800_000
    peers = servers[0].backend.group_nodes.peers
    other = Address("x", "127.0.0.1", address_of(servers[1]).port, "0" * 64)
    with pytest.raises(Refusal, match="another server than x"):
        servers[0].do(peers.connect(other, LINK))


def test_a_connection_without_the_servers_secret_is_closed(nodes: Nodes) -> None:
    (server,) = nodes(1)

    async def stranger() -> bytes:
        peers = Peers("127.0.0.1:7", "127.0.0.1", None)
        peers._key = b"guessed"
        reader, writer = await peers.connect(address_of(server), LINK)
        try:
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()

    assert asyncio.run(stranger()) == b""


def test_a_stranger_s_bytes_are_not_taken_before_it_has_proved_the_secret(nodes: Nodes) -> None:
    """Neither a line without end, nor one that Python's parser follows too deeply."""
    (server,) = nodes(1)
    address = address_of(server)

    def send(data: bytes) -> int:
        """How many bytes the server takes, of what may be more than the kernel's buffers hold."""
        with socket.create_connection((address.host, address.port), 20) as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
            assert stranger.recv(1 << 12).endswith(b"\n")
            taken = 0
            with contextlib.suppress(ConnectionError):
                for begin in range(0, len(data), 1 << 12):
                    stranger.sendall(data[begin : begin + (1 << 12)])
                    taken += 1 << 12
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(1) == b""
            return taken

    assert send(b"[" * 3000 + b"\n") == 4096
    peers = server.backend.group_nodes.peers
    held: list[str] = []
    real = peer_links.read_message

    async def reading(reader: asyncio.StreamReader, most: int = 1 << 20) -> dict[str, Any]:
        try:
            return await real(reader, most)
        except ValueError as error:
            held.append(str(error))
            raise

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(peer_links, "read_message", reading)
        send(b" " * (1 << 20))
    assert held == ["a line has more than 4096 bytes"] and peers._unproved == 0


def test_a_line_longer_than_the_reader_s_memory_is_put_together() -> None:
    async def read(most: int) -> list[Any]:
        reader = asyncio.StreamReader(limit=100)
        message = {"a": "x" * 5000}
        reader.feed_data(peer_links.encoded(message) + peer_links.encoded({}) + peer_links.encoded({"b": 1}))
        reader.feed_eof()
        assert await peer_links.read_message(reader, most) == message
        found = [await peer_links.read_message(reader) for _ in range(2)]
        with pytest.raises(ConnectionResetError):
            await peer_links.read_message(reader)
        return found

    assert asyncio.run(read(1 << 20)) == [{}, {"b": 1}]
    with pytest.raises(ValueError, match="more than 4096 bytes"):
        asyncio.run(read(4096))


def test_a_server_without_file_descriptors_says_so_and_its_group_breaks(nodes: Nodes) -> None:
    ranks = ranks_of(nodes())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        reason, message = refused(lambda: ranks[0].ask("JOIN", "g", rank=0, size=2))
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert reason == "MEMORY_LIMIT" and "256 open files, its limit" in message
    together(ranks, Rank.join)
