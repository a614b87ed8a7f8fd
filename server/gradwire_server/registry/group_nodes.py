"""Group nodes: groups whose ranks have several servers.

The server of rank 0 keeps a group's record (groups.py), and is its home. The others find it in the directory that all
share (group_homes.py), and pass their ranks' messages on by a link (peer_links.py). Groups that are made from others
have the same home, so that it sees which ranks wait for each other.

Values do not pass the home. Each server has one file for a group, a copy of what its ranks need of the other servers'
ranks. It asks the server of each such rank for a range, which that one sends from the rank's memory.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

from gradwire_server.common.errors import Refusal
from gradwire_server.common.shared_files import location
from gradwire_server.registry.group_homes import Address, Homes
from gradwire_server.registry.group_values import Spread, Transfers
from gradwire_server.registry.groups import Groups, RemoteRank, Session, fields_of, grace_of, notify
from gradwire_server.registry.peer_links import LINK, Link, Peers
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import Worker

_POLL_SECONDS = 0.05  # between looks for a group's home
_KEPT_SECONDS = 5.0  # for which values stay after a group's end: ranks may still read those of the last collective
_MOST_PULLED = 2  # messages that are fetched at once

log = logging.getLogger("gradwire.server")
Entry = SessionEntry[Worker]


class _Membership:
    """A session's place in a group whose home is another server. `tokens` are its requests without an answer."""

    def __init__(self, entry: Entry, name: str, link: Link, grace: float) -> None:
        self.entry = entry
        self.name = name
        self.link = link
        self.grace = grace
        self.number: int | None = None  # the group's, once it has formed
        self.tokens: set[int] = set()


@dataclass
class _Taking:
    """A message for a rank here: its receiver, the link to the group's home, and its file, once it was copied."""

    entry: Entry
    home: Link | None
    fd: int = -1

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            os.close(self.fd)


class GroupNodes:
    """This server's part in groups of several servers."""

    def __init__(self, groups: Groups, homes: Homes, peers: Peers, most_bytes: int = 0) -> None:
        """most_bytes: of a session; no larger message is copied. 0 for no limit."""
        self.groups = groups
        self._most_bytes = most_bytes
        self.homes = homes
        self.peers = peers
        self.transfers = Transfers(peers)
        self._links: dict[str, asyncio.Future[Link]] = {}  # to homes, by endpoint
        self._memberships: dict[Entry, dict[str, _Membership]] = {}
        self._joining: dict[tuple[Entry, str], asyncio.Task[None]] = {}
        self._joined: dict[tuple[Link, int, int], asyncio.Future[bool]] = {}  # by session and token
        self._spreads: dict[int, tuple[Spread, Link | None]] = {}  # by group, with the link to its home
        self._taking: dict[int, _Taking] = {}  # messages for ranks here
        self._making: set[tuple[Link, int, str]] = set()  # groups that become this server's: by link, session, name
        self._withdrawals: dict[tuple[str, str], asyncio.Task[None]] = {}  # of homes' files, by owner and name
        self._pulls = asyncio.Semaphore(_MOST_PULLED)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Listen for other servers. Raises OSError."""
        key = await self._in_thread(self.homes.open, self.peers.endpoint)
        await self.peers.start(key, self._accepted, self.transfers.serve)

    async def stop(self) -> None:
        """Close all connections and files."""
        for task in [*self._tasks, *self._joining.values()]:
            task.cancel()
        for link in self._links.values():
            if link.done() and not link.cancelled() and link.exception() is None:
                link.result().close()
        await self.peers.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.transfers.close()
        for number in list(self._spreads):
            self._close_spread(number)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task for groups of several servers failed", exc_info=error)

    @staticmethod
    async def _in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)

    # Messages of this server's workers.

    def takes(self, entry: Entry, message: dict[str, Any]) -> bool:
        """Whether a worker's message is for another server, or about values there. Then it was taken."""
        do = message["do"]
        if do == "join":
            key = entry, message["group"]
            self._joining[key] = task = self._start(self._join(entry, message))
            task.add_done_callback(lambda done: self._joining.get(key) is done and self._joining.pop(key))
            return True
        if do == "fetch":
            self._start(self._fetch(entry, message))
            return True
        held = self._memberships.get(entry, {})
        if do == "withdraw":
            joining = self._joining.pop((entry, message["group"]), None)
            if joining is not None:
                joining.cancel()
            found = held.get(message["group"])
        else:
            found = next((each for each in held.values() if each.number == message["group"]), None)
            if do == "send":
                self.transfers.offer(entry, message["token"], message["message"]["file"])
        if found is None:
            return False
        self._pass_on(found, message)
        if do in ("leave", "withdraw"):
            self._drop(found)
        return True

    def _pass_on(self, member: _Membership, message: dict[str, Any], **more: Any) -> None:
        if "token" in message:
            member.tokens.add(message["token"])
        member.link.send(do="from", session=member.entry.number, owner=member.entry.owner, message=message, **more)

    def _drop(self, member: _Membership) -> None:
        held = self._memberships.get(member.entry, {})
        if held.get(member.name) is member:
            del held[member.name]
            if not held:
                del self._memberships[member.entry]
        self._close_if_idle(member.link)

    def _close_if_idle(self, link: Link) -> None:
        used = any(member.link is link for held in self._memberships.values() for member in held.values())
        if not used and all(home is not link for _, home in self._spreads.values()):
            link.close()

    def left(self, entry: Entry, why: str) -> None:
        """Note that a session ended: its groups' homes break them."""
        for key in [key for key in self._joining if key[0] is entry]:
            self._joining.pop(key).cancel()
        held = list(self._memberships.get(entry, {}).values())
        for link in {member.link for member in held}:
            link.send(do="ended", session=entry.number, why=why)
        for member in held:
            self._drop(member)
        self.transfers.withdraw(entry)
        for number in [number for number, each in self._taking.items() if each.entry is entry]:
            self._taking.pop(number).close()  # its worker may have ended, and never answer

    def graces(self, entry: Entry) -> list[float]:
        """Seconds for which the session's groups of other servers bear it without a stream."""
        return [member.grace for member in self._memberships.get(entry, {}).values()]

    # Joining.

    async def _join(self, entry: Entry, message: dict[str, Any]) -> None:
        timeout, trouble = message["timeout"] / 1000, list[str]()
        try:
            if not await asyncio.wait_for(self._reach_home(entry, message, trouble), timeout or None):
                self.groups.handle(entry, message)
            return
        except asyncio.TimeoutError:
            refusal = _waited(message, trouble)
        except (OSError, ValueError, TypeError) as error:
            refusal = Refusal("UNAVAILABLE", f"the servers' directory of groups cannot be used: {error}")
        except Refusal as refused:
            refusal = refused
        notify(entry, {"token": message["token"], "refusal": fields_of(refusal)})

    async def _reach_home(self, entry: Entry, message: dict[str, Any], trouble: list[str]) -> bool:
        """Join at the group's home; False if that is this server. Raises OSError, Refusal: NOT_SUPPORTED.

        trouble: receives why the home cannot be reached, while that is so.
        """
        name, owner, is_first = message["group"], entry.owner, message["rank"] == 0
        older = next(iter(self._memberships.get(entry, {}).values()), None)
        if is_first and older is not None:
            with contextlib.suppress(ConnectionError):  # the older group breaks with its home; this one has another
                if await self._join_at(older.link, entry, message, makes=True):
                    return True
        while True:
            await self._withdrawn(owner, name)
            if is_first and await self._in_thread(self.homes.publish, owner, name, self.peers.address):
                return False
            found = await self._in_thread(self.homes.find, owner, name)
            if found == self.peers.address:
                if is_first or self.groups.has(owner, name):
                    return False
            elif found is not None:
                try:
                    if await self._join_at(await self._link(found), entry, message):
                        return True
                    trouble.clear()
                except OSError as error:
                    why = f"the server {found.endpoint}, which keeps the group's record, cannot be reached: {error}"
                    if trouble != [why]:  # each try would be logged
                        log.warning(why)
                        trouble[:] = [why]
                if is_first:  # a server that ended has left it behind
                    await self._in_thread(self.homes.withdraw, owner, name, found)
                    continue
            await asyncio.sleep(_POLL_SECONDS)

    async def _join_at(self, link: Link, entry: Entry, message: dict[str, Any], makes: bool = False) -> bool:
        """Ask a home to add a rank; whether it has the group, or `makes` it. Raises OSError if the link ends."""
        if link.is_closing():  # its end was or will be noted without this request
            raise ConnectionError(f"the connection to server {link.peer.endpoint} has ended")
        key = link, entry.number, message["token"]
        self._joined[key] = known = asyncio.get_running_loop().create_future()
        member = _Membership(entry, message["group"], link, grace_of(message))
        self._memberships.setdefault(entry, {})[member.name] = member  # before the answer, which may follow at once
        accepted = False
        try:
            self._pass_on(member, message, makes=makes)
            accepted = bool(await known)
        finally:
            del self._joined[key]
            if not accepted:
                member.tokens.clear()
                self._drop(member)
        return accepted

    async def _link(self, home: Address) -> Link:
        """The link to a home. Raises OSError, Refusal."""
        found = self._links.get(home.endpoint)
        if found is None:
            self._links[home.endpoint] = found = asyncio.ensure_future(self._open_link(home))
        try:
            return await asyncio.shield(found)
        except (OSError, Refusal):
            if self._links.get(home.endpoint) is found:
                del self._links[home.endpoint]
            raise

    async def _open_link(self, home: Address) -> Link:
        link = Link(*await self.peers.connect(home, LINK), home)
        self._start(self._follow(link))
        return link

    async def _follow(self, link: Link) -> None:
        """Take a home's messages until the link ends. The groups that it keeps are then broken."""
        try:
            await link.run(self._from_home)
        finally:
            self._links.pop(link.peer.endpoint, None)
            why = f"the server {link.peer.endpoint}, which keeps the group's record, is gone"
            for key, known in self._joined.items():
                if key[0] is link and not known.done():
                    known.set_exception(ConnectionError(why))
            refusal = Refusal("GROUP_BROKEN", why)
            for member in [each for held in self._memberships.values() for each in held.values() if each.link is link]:
                for token in member.tokens:
                    self.transfers.forget(member.entry, token)
                    notify(member.entry, {"token": token, "refusal": fields_of(refusal)})
                if member.number is not None:
                    self._tell_broken(member, refusal)
                self._drop(member)
            for number in [number for number, (_, home) in self._spreads.items() if home is link]:
                self._close_later(number)

    def _tell_broken(self, member: _Membership, refusal: Refusal) -> None:
        assert member.number is not None
        self.groups.note_end(member.number, refusal)
        notify(member.entry, {"session": member.entry.number, "group": member.number, "refusal": fields_of(refusal)})

    # Messages of homes.

    def _from_home(self, link: Link, message: dict[str, Any]) -> None:
        do = message["do"]
        if do == "over":
            self._close_later(message["group"])
            return
        if do == "joined":
            known = self._joined.get((link, message["session"], message["token"]))
            if known is not None and not known.done():
                known.set_result(message["known"])
            return
        fields, number = message["fields"], message["session"]
        held = [each for some in self._memberships.values() for each in some.values()]
        mine = [each for each in held if each.link is link and each.entry.number == number]
        if not mine:
            return  # the session has ended, and the home was told
        entry = mine[0].entry
        if "token" in fields:
            of_token = next((each for each in mine if fields["token"] in each.tokens), None)
            if of_token is None:
                return
            of_token.tokens.discard(fields["token"])
            if "group" in fields.get("answer", ()):
                of_token.number = fields["answer"]["group"]
        elif "refusal" in fields:
            broken = next((each for each in mine if each.number == fields["group"]), None)
            if broken is not None:
                refusal = Refusal(fields["refusal"][0], fields["refusal"][1])
                refusal.metadata = fields["refusal"][2]
                self._tell_broken(broken, refusal)
                self._drop(broken)
            return
        if not self.deliver(entry, fields, link):
            notify(entry, fields)

    def deliver(self, entry: Entry, fields: dict[str, Any], home: Link | None = None) -> bool:
        """Whether a message for a session of this server is delivered later, or not as it is. Then it was taken."""
        if "token" in fields:
            self.transfers.forget(entry, fields["token"])
            if "places" not in fields.get("answer", ()):
                return False
            answer = fields["answer"]
            try:
                spread = self._spread(answer, home)
            except OSError as error:
                what = f"the server cannot open the group's memory: {error.strerror}"
                notify(entry, {"token": fields["token"], "refusal": fields_of(Refusal("MEMORY_LIMIT", what))})
            else:
                answer = {"group": answer["group"], "files": spread.local_files(), "nodes": spread.nodes()}
                notify(entry, {"token": fields["token"], "answer": answer})
            return True
        if "message" in fields:
            place = Address(*fields["place"]) if "place" in fields else self.peers.address
            self._taking[fields["number"]] = _Taking(entry, home)
            if place != self.peers.address:
                self._start(self._pull(entry, fields, place))
                return True
        return False

    def took(self, message: dict[str, Any]) -> bool:
        """Whether a worker's answer to a message is for another server. Then it was taken."""
        taking = self._taking.pop(message["message"], None)
        if taking is None:
            return False
        taking.close()
        if taking.home is not None:
            taking.home.send(do="took", message=message)
        return taking.home is not None

    # Values.

    def _spread(self, answer: dict[str, Any], home: Link | None) -> Spread:
        """What this server knows of a group that has formed. Raises OSError if no file can be opened."""
        number = answer["group"]
        if number not in self._spreads:
            places = [Address(*each) for each in answer["places"]]
            self._spreads[number] = Spread(places, self.peers.address, answer["files"]), home
            self.transfers.spreads[number] = self._spreads[number][0]
        return self._spreads[number][0]

    def _close_later(self, number: int) -> None:
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._close_spread, number)

    def _close_spread(self, number: int) -> None:
        self.transfers.spreads.pop(number, None)
        spread, home = self._spreads.pop(number, (None, None))
        if spread is not None:
            spread.close()
            self.transfers.close_unused()
        if home is not None:
            self._close_if_idle(home)

    async def _fetch(self, entry: Entry, message: dict[str, Any]) -> None:
        """Copy ranges of other servers' ranks, and tell the worker."""
        spread = self._spreads.get(message["group"], (None,))[0]
        fields: dict[str, Any] = {"token": message["token"]}
        try:
            if spread is None:
                raise Refusal("GROUP_BROKEN", "the group has ended")
            await self.transfers.fetch(message["group"], spread, message["place"], message["turn"], message["parts"])
            notify(entry, {**fields, "answer": {}})
        except Refusal as refusal:
            notify(entry, {**fields, "refusal": fields_of(refusal)})
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a rank waits for the answer
            what = f"values of the other servers' ranks cannot be fetched: {error}"
            notify(entry, {**fields, "refusal": fields_of(Refusal("GROUP_BROKEN", what))})

    async def _pull(self, entry: Entry, fields: dict[str, Any], place: Address) -> None:
        """Copy a message of another server's rank, and pass it on to the worker."""
        number, message = fields["number"], fields["message"]
        try:
            if 0 < self._most_bytes < message["size"]:
                raise MemoryError(f"it has {message['size']} bytes, and a session may hold {self._most_bytes}")
            async with self._pulls:
                fd = await self.transfers.pull(place, message["file"], message["size"])
        except Exception as error:  # noqa: BLE001 - the sender waits for the answer
            what = f"the message from server {place.endpoint} cannot be taken: {error}"
            answer = {"do": "took", "message": number, "refusal": fields_of(Refusal("MEMORY_LIMIT", what))}
            if not self.took(answer):
                self.groups.took(answer)
            return
        taking = self._taking.get(number)
        if taking is None:  # the receiver has ended meanwhile
            os.close(fd)
            return
        taking.fd = fd
        told = {key: value for key, value in fields.items() if key != "place"}
        if entry.worker.alive:
            notify(entry, {**told, "message": {**message, "file": location(fd)}})
        else:
            self.took({"message": number})

    # Messages of other servers, for groups that are kept here.

    async def _accepted(self, link: Link) -> None:
        ranks: dict[int, RemoteRank] = {}
        try:
            await link.run(partial(self._from_node, ranks))
        finally:
            for rank in list(ranks.values()):
                self.groups.session_ended(rank, f"its server {link.peer.endpoint} is gone")

    def _from_node(self, ranks: dict[int, RemoteRank], link: Link, envelope: dict[str, Any]) -> None:
        do = envelope["do"]
        if do == "took":
            self.groups.took(envelope["message"])
            return
        number = envelope["session"]
        if do == "ended":
            self._making = {each for each in self._making if each[:2] != (link, number)}
            gone = ranks.pop(number, None)
            if gone is not None:
                self.groups.session_ended(gone, envelope["why"])
            return
        message, owner = envelope["message"], envelope["owner"]
        rank = ranks.get(number)
        if rank is None:
            rank = RemoteRank(link, number, owner, lambda session, fields: _tell(link, session, fields))
        if message["do"] == "join":
            if envelope.get("makes"):
                ranks[number] = rank
                self._making.add((link, number, message["group"]))
                self._start(self._make(ranks, rank, message, link))
                return
            if not self.groups.has(owner, message["group"]):
                self._start(self._deny(link, number, message, owner))
                return
            link.send(do="joined", session=number, token=message["token"], known=True)
        if message["do"] == "withdraw":
            self._making.discard((link, number, message["group"]))
        ranks[number] = rank
        self.groups.handle(rank, message)
        if not self.groups.is_member(rank):
            ranks.pop(number, None)

    async def _deny(self, link: Link, number: int, message: dict[str, Any], owner: str) -> None:
        """Tell that a group is not kept here, once no file says so."""
        await self._withdrawn(owner, message["group"])
        link.send(do="joined", session=number, token=message["token"], known=False)

    async def _make(self, ranks: dict[int, RemoteRank], rank: RemoteRank, message: dict[str, Any], link: Link) -> None:
        """Become the home of a group whose rank 0 has another server, unless it gives up meanwhile."""
        name, own = message["group"], self.peers.address
        await self._withdrawn(rank.owner, name)
        try:
            known = await self._in_thread(self.homes.publish, rank.owner, name, own)
            known = known or await self._in_thread(self.homes.find, rank.owner, name) == own
        except (OSError, ValueError, TypeError) as error:
            log.warning("the home of a group cannot be published: %s", error)
            known = False
        key = link, rank.number, name
        if link.is_closing() or key not in self._making:
            self._making.discard(key)
            if known and not self.groups.has(rank.owner, name):
                await self._withdraw(rank.owner, name)
            return
        self._making.remove(key)
        link.send(do="joined", session=rank.number, token=message["token"], known=known)
        if known:
            self.groups.handle(ranks.setdefault(rank.number, rank), message)

    def places(self, members: Iterable[Session]) -> list[list[Any]] | None:
        """Where the servers of ranks are reached; None if all have this one."""
        links = [each.node if isinstance(each, RemoteRank) else None for each in members]
        if not any(links):
            return None
        return [list(astuple(each.peer if isinstance(each, Link) else self.peers.address)) for each in links]

    def over(self, number: int, owner: str, name: str, members: Iterable[Session]) -> None:
        """Note that a group kept here has ended."""
        for link in {each.node for each in members if isinstance(each, RemoteRank)}:
            assert isinstance(link, Link)
            link.send(do="over", group=number)
        if number in self._spreads:
            self._close_later(number)
        key = owner, name
        self._withdrawals[key] = task = self._start(self._withdraw(owner, name))
        task.add_done_callback(lambda done: self._withdrawals.get(key) is done and self._withdrawals.pop(key))

    async def _withdraw(self, owner: str, name: str) -> None:
        try:
            await self._in_thread(self.homes.withdraw, owner, name, self.peers.address)
        except OSError as error:
            log.warning("the home of a group cannot be withdrawn: %s", error)

    async def _withdrawn(self, owner: str, name: str) -> None:
        """Wait until the file of a former group of this name is gone: it must not be taken for that of a new one."""
        task = self._withdrawals.get((owner, name))
        if task is not None:
            await asyncio.wait((task,))


def _waited(message: dict[str, Any], trouble: list[str]) -> Refusal:
    """Why a rank did not find its group's home in time."""
    rank, seconds = message["rank"], message["timeout"] / 1000
    what = f"rank {rank} of group {message['group']!r} waited {seconds:g} s for rank 0 to join"
    return Refusal("DEADLINE_EXCEEDED", "; ".join([what, *trouble]), rank=rank)


def _tell(link: Link, session: int, fields: dict[str, Any]) -> None:
    link.send(do="tell", session=session, fields=fields)
