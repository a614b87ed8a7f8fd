"""Groups of several servers when something fails halfway: nothing stays open, and no rank waits for ever."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gradwire_server.registry import peer_links
from gradwire_server.registry.group_homes import Address, Homes
from gradwire_server.registry.group_nodes import GroupNodes, _Membership, _Taking, _waited
from gradwire_server.registry.group_values import _MOST_TRANSFERS, Transfers, _fill
from gradwire_server.registry.groups import Groups, RemoteRank
from gradwire_server.registry.peer_links import TRANSFER, Link, Peers, encoded
from tests.certificates import Authority

SECONDS = 20
HERE, THERE = Address("a", "127.0.0.1", 1), Address("b", "127.0.0.1", 2)


class _Link(SimpleNamespace):
    """A connection to another server that keeps what is sent."""

    def __init__(self, closed: bool = False) -> None:
        super().__init__(peer=THERE, closed=closed, sent=[])

    def send(self, **message: Any) -> None:
        self.sent.append(message)

    def is_closing(self) -> bool:
        return bool(self.closed)

    __hash__ = object.__hash__  # type: ignore[assignment]


class _Entry(SimpleNamespace):
    """A session whose worker has ended."""

    number, owner, id, worker = 1, "", "s", SimpleNamespace(alive=False)
    __hash__ = object.__hash__  # type: ignore[assignment]


def group_nodes(folder: Path) -> GroupNodes:
    homes, peers = Homes(folder), Peers("a", "127.0.0.1", None)
    peers.address = HERE
    homes.open("a")
    groups = Groups(lambda number: None)
    groups.nodes = nodes = GroupNodes(groups, homes, peers)
    return nodes


def joining(rank: int = 0) -> dict[str, Any]:
    return {
        "do": "join",
        "group": "g",
        "rank": rank,
        "size": 2,
        "token": 1,
        "timeout": 0,
        "grace": 0,
        "file": [1, 2, 3],
    }


def holders(fd: int) -> int:
    """How many of this process's descriptors are of this file."""
    file, found = os.fstat(fd), 0
    for each in os.listdir("/proc/self/fd"):
        try:
            found += os.path.samestat(os.fstat(int(each)), file)
        except OSError:
            continue
    return found


def test_a_transfer_that_is_cancelled_before_it_begins_closes_its_file() -> None:
    async def use() -> None:
        transfers, busy = Transfers(Peers("a", "127.0.0.1", None)), threading.Event()
        fd = os.memfd_create("values")
        try:
            for _ in range(_MOST_TRANSFERS):
                transfers._threads.submit(busy.wait, SECONDS)
            waiting = asyncio.create_task(transfers._copy(THERE, {"count": 1}, fd, 0))
            await asyncio.sleep(0)
            assert holders(fd) == 2
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert holders(fd) == 1
        finally:
            busy.set()
            transfers.close()
            os.close(fd)

    asyncio.run(use())


class Answering(Peers):
    """Other servers, played by threads: each connection answers so many requests with `sent`, and then ends."""

    def __init__(self, requests: int, sent: bytes, begun: threading.Event | None = None) -> None:
        super().__init__("a", "127.0.0.1", None)
        self.requests, self.sent, self.begun = requests, sent, begun
        self.connections = 0

    def connect_blocking(self, peer: Address, kind: str) -> socket.socket:
        """A connection to such a thread. One to the server "silent" gets no answer until `begun` is set."""
        self.connections += 1
        mine, other = socket.socketpair()
        threading.Thread(target=self._answer, args=(other, peer.endpoint == "silent"), daemon=True).start()
        return mine

    def _answer(self, connection: socket.socket, silent: bool) -> None:
        with connection, connection.makefile("rb") as asked:
            for _ in range(self.requests):
                asked.readline()
                if silent and self.begun is not None:
                    self.begun.wait(SECONDS)
                connection.sendall(self.sent)


def test_a_transfer_on_a_connection_that_was_closed_meanwhile_takes_another() -> None:
    async def use() -> None:
        peers = Answering(1, struct.pack("!q", 4) + b"abcd")
        transfers, fd = Transfers(peers), os.memfd_create("values")
        try:
            for place in range(3):
                await asyncio.wait_for(transfers._copy(THERE, {"count": 4}, fd, 4 * place), SECONDS)
            assert os.pread(fd, 100, 0) == b"abcd" * 3 and peers.connections == 3
        finally:
            transfers.close()
            os.close(fd)

    asyncio.run(use())


def test_an_answer_of_another_size_than_was_asked_for_is_refused() -> None:
    async def use() -> None:
        transfers, fd = Transfers(Answering(1, struct.pack("!q", 1 << 40) + b"abcd")), os.memfd_create("values")
        try:
            with pytest.raises(ConnectionError, match="sends 1099511627776 bytes, but 4 were asked for"):
                await transfers._copy(THERE, {"count": 4}, fd, 0)
            assert os.fstat(fd).st_size == 0
        finally:
            transfers.close()
            os.close(fd)

    asyncio.run(use())


def test_a_slow_server_does_not_hold_the_transfers_of_others() -> None:
    async def use() -> None:
        ends = threading.Event()
        transfers, fd = Transfers(Answering(1, struct.pack("!q", 4) + b"abcd", ends)), os.memfd_create("values")
        slow = Address("silent", "127.0.0.1", 1)
        waiting = [asyncio.create_task(transfers._copy(slow, {"count": 4}, fd, 0)) for _ in range(40)]
        try:
            await asyncio.wait_for(transfers._copy(THERE, {"count": 4}, fd, 0), SECONDS)
            assert not any(each.done() for each in waiting)
            ends.set()
            await asyncio.wait_for(asyncio.gather(*waiting), SECONDS)
        finally:
            ends.set()
            transfers.close()
            os.close(fd)

    asyncio.run(use())


def test_a_greeting_that_does_not_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_links, "_HANDSHAKE_SECONDS", 0.5)
    listening, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def dripping() -> None:
        with listening.accept()[0] as accepted, contextlib.suppress(OSError):
            while not stop.wait(0.05):
                accepted.sendall(b"x")

    thread = threading.Thread(target=dripping, daemon=True)
    thread.start()
    try:
        with pytest.raises(OSError, match=r"does not answer|timed out"):
            Peers("a", "127.0.0.1", None).connect_blocking(
                Address("b", "127.0.0.1", listening.getsockname()[1]), TRANSFER
            )
    finally:
        stop.set()
        thread.join(SECONDS)
        listening.close()


def test_an_encrypted_transfer_from_a_silent_server_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listening, done, failures = socket.create_server(("127.0.0.1", 0)), threading.Event(), []
    monkeypatch.setattr(peer_links, "_SILENT_SECONDS", 1)

    def silent() -> None:
        with context.wrap_socket(listening.accept()[0], server_side=True) as accepted:
            accepted.sendall(encoded({"version": peer_links.VERSION, "nonce": "1"}))
            done.wait(SECONDS)

    def read() -> None:
        digest = peer_links._digest(ssl.PEM_cert_to_DER_cert(certificate.read_text()))
        place = Address("b", "127.0.0.1", listening.getsockname()[1], digest)
        connection = Peers("a", "127.0.0.1", None).connect_blocking(place, TRANSFER)
        with connection, pytest.raises(ConnectionError, match="the other server sends nothing"):
            _fill(connection, memoryview(bytearray(8)))
        failures.append("told")

    threads = [threading.Thread(target=each, daemon=True) for each in (silent, read)]
    for each in threads:
        each.start()
    threads[1].join(SECONDS)
    done.set()
    threads[0].join(SECONDS)
    listening.close()
    assert failures == ["told"]


def test_a_file_with_the_key_before_the_certificate_names_the_certificate(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text() * 2)

    async def started() -> str:
        async def never(*connection: Any) -> None:
            raise AssertionError

        peers = Peers("127.0.0.1:1", "127.0.0.1", (both, both))
        await peers.start(b"secret", never, never)
        await peers.stop()
        return peers.address.certificate

    assert asyncio.run(started()) == peer_links._digest(ssl.PEM_cert_to_DER_cert(certificate.read_text()))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the system has no IPv6")
def test_servers_that_listen_at_all_addresses_reach_each_other_by_ipv4() -> None:
    async def reached() -> None:
        async def close(*connection: Any) -> None:
            pass

        peers = Peers("127.0.0.1:1", "::", None)
        await peers.start(b"secret", close, close)
        try:
            _, writer = await peers.connect(peers.address, TRANSFER)
            writer.close()
        finally:
            await peers.stop()

    asyncio.run(asyncio.wait_for(reached(), SECONDS))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"endpoint": "a"}'])
def test_a_damaged_file_of_a_group_keeps_no_server_from_starting(tmp_path: Path, content: bytes) -> None:
    damaged = tmp_path / ("0" * 64)
    damaged.write_bytes(content)
    key = Homes(tmp_path).open("a")
    assert len(key) == 32 and not damaged.exists()


def test_a_damaged_secret_is_refused(tmp_path: Path) -> None:
    """An empty one would let everybody prove it."""
    (tmp_path / "key").write_bytes(b"")
    with pytest.raises(OSError, match="it has 0 bytes, not 32"):
        Homes(tmp_path).open("a")


def test_a_message_s_file_is_closed_when_its_receiver_s_worker_has_ended(tmp_path: Path) -> None:
    nodes, entry = group_nodes(tmp_path), _Entry()
    fields = {"session": 1, "group": 5, "message": {"file": [1, 2, 3], "size": 1}, "number": 7}
    assert not nodes.deliver(entry, fields)  # type: ignore[arg-type]
    fd = os.memfd_create("message")
    nodes._taking[7].fd = os.dup(fd)
    try:
        assert holders(fd) == 2
        nodes.left(entry, "its worker has ended")  # type: ignore[arg-type]
        assert holders(fd) == 1 and not nodes._taking
    finally:
        os.close(fd)


def test_a_message_that_no_session_may_hold_is_refused_before_it_is_copied(tmp_path: Path) -> None:
    async def use() -> None:
        nodes, entry, told = group_nodes(tmp_path), _Entry(), []
        nodes._most_bytes = 100
        nodes.groups.took = told.append  # type: ignore[method-assign]
        fields = {"session": 1, "group": 5, "message": {"file": [1, 2, 3], "size": 101}, "number": 7}
        nodes._taking[7] = _Taking(entry, None)  # type: ignore[arg-type]
        await nodes._pull(entry, fields, THERE)  # type: ignore[arg-type]
        assert told[0]["refusal"][0] == "MEMORY_LIMIT"
        assert "it has 101 bytes, and a session may hold 100" in told[0]["refusal"][1]
        assert not nodes._taking

    asyncio.run(use())


def test_a_session_of_another_server_that_leaves_takes_no_session_of_this_one_away() -> None:
    """Servers number their sessions on their own."""
    groups = Groups(lambda number: None)
    here = SimpleNamespace(number=1, owner="", id="s", worker=SimpleNamespace(alive=True, tell=lambda *told: None))
    entry, remote = _Entry(**vars(here)), RemoteRank(_Link(), 1, "", lambda *told: None)
    groups.handle(entry, joining())  # type: ignore[arg-type]
    groups.handle(remote, {**joining(), "group": "other"})
    groups.session_ended(remote, "it ended")
    assert groups._entries == {1: entry}


def test_a_message_is_offered_no_longer_when_the_home_is_gone(tmp_path: Path) -> None:
    async def ended(receive: Any) -> None:
        pass

    nodes, entry, link = group_nodes(tmp_path), _Entry(), _Link()
    link.run, link.close = ended, lambda: None
    member = _Membership(entry, "g", link, 1.0)  # type: ignore[arg-type]
    nodes._memberships[entry] = {"g": member}  # type: ignore[index]
    member.tokens.add(3)
    nodes.transfers.offer(entry, 3, [1, 2, 3])
    asyncio.run(nodes._follow(link))  # type: ignore[arg-type]
    assert not nodes.transfers._offered and not nodes._memberships


def test_an_error_in_a_message_s_handler_is_not_taken_for_the_connection_s_end() -> None:
    """It is logged with its place, as that of any task."""
    abort = Mock()
    transport = SimpleNamespace(abort=abort, get_write_buffer_size=lambda: 0)
    writer: Any = SimpleNamespace(transport=transport, is_closing=lambda: False, write=lambda line: None)

    def receive(link: Link, message: dict[str, Any]) -> None:
        raise ValueError("a mistake")

    async def use() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(encoded({"do": "over"}))
        await Link(reader, writer, THERE).run(receive)

    with pytest.raises(ValueError, match="a mistake"):
        asyncio.run(asyncio.wait_for(use(), SECONDS))
    assert abort.called


def test_no_rank_waits_for_an_answer_of_a_closed_connection(tmp_path: Path) -> None:
    nodes = group_nodes(tmp_path)
    join = nodes._join_at(_Link(closed=True), _Entry(), joining())  # type: ignore[arg-type]
    with pytest.raises(ConnectionError, match="to server b has ended"):
        asyncio.run(asyncio.wait_for(join, SECONDS))


def test_a_rank_is_told_that_the_server_of_rank_0_cannot_be_reached(tmp_path: Path) -> None:
    nodes, trouble = group_nodes(tmp_path), list[str]()
    assert nodes.homes.publish("", "g", Address("127.0.0.1:9", "127.0.0.1", 9))

    async def told_of() -> None:
        while not trouble:
            await asyncio.sleep(0.01)

    async def use() -> None:
        reaching = asyncio.create_task(nodes._reach_home(_Entry(), joining(1), trouble))  # type: ignore[arg-type]
        await asyncio.wait_for(told_of(), SECONDS)
        reaching.cancel()
        await asyncio.wait((reaching,))

    asyncio.run(use())
    told = _waited({**joining(1), "timeout": 1500}, trouble)
    assert (told.reason, told.metadata["rank"]) == ("DEADLINE_EXCEEDED", "1")
    assert told.message.startswith(
        "rank 1 of group 'g' waited 1.5 s for rank 0 to join; the server 127.0.0.1:9, which keeps the group's record, "
        "cannot be reached: "
    )


@pytest.mark.parametrize("end", [{"do": "withdraw", "group": "g"}, {"do": "ended"}])
def test_a_rank_that_gives_up_while_its_group_is_made_leaves_no_group(tmp_path: Path, end: dict[str, Any]) -> None:
    nodes, link, ranks = group_nodes(tmp_path), _Link(), dict[int, Any]()

    def tell(message: dict[str, Any], **more: Any) -> None:
        nodes._from_node(ranks, link, {"session": 1, "owner": "", "message": message, "do": "from", **more})  # type: ignore[arg-type]

    async def use() -> None:
        tell(joining(), makes=True)
        if end["do"] == "ended":
            nodes._from_node(ranks, link, {"do": "ended", "session": 1, "why": ""})  # type: ignore[arg-type]
        else:
            tell(end)
        await asyncio.wait_for(asyncio.gather(*nodes._tasks), SECONDS)

    asyncio.run(use())
    assert not nodes.groups.has("", "g") and nodes.homes.find("", "g") is None
    assert not link.sent
