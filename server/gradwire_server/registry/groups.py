"""Groups: the front's record of the groups that sessions form, and of the ranks that wait for each other.

Workers tell of each rank that arrives at a collective, and get an answer when all ranks have arrived or the collective
is refused. Values pass from worker to worker (session/collectives/exchange.py). The front sees only what the ranks
agree on. It also knows who is gone: sessions that ended, workers that ended, and ranks without a stream.

Ranks may have several servers, which share a state directory. One of them keeps the group's record, with a `RemoteRank`
for each rank at another one. `Nodes` takes messages from server to server (registry/group_nodes.py).
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from gradwire_server.common.errors import Refusal
from gradwire_server.worker_pool.session_entry import SessionEntry
from gradwire_server.worker_pool.worker import Worker

_GRACE_SECONDS = 0.7  # for which a rank may have no stream
_MOST_ENDED = 1000  # groups whose end is remembered
log = logging.getLogger("gradwire.server")


class RemoteRank:
    """A session at another server, whose group is kept here. `send` takes messages for it, `node` is its server."""

    def __init__(self, node: object, number: int, owner: str, send: Callable[[int, dict[str, Any]], None]) -> None:
        self.node = node
        self.number = number
        self.owner = owner
        self.id = ""  # its streams are the other server's
        self.send = send


Session: TypeAlias = SessionEntry[Worker] | RemoteRank


class Nodes(Protocol):
    """Groups whose ranks have several servers."""

    def takes(self, entry: SessionEntry[Worker], message: dict[str, Any]) -> bool:
        """Whether a worker's message is for another server, or about values there. Then it was taken."""

    def took(self, message: dict[str, Any]) -> bool:
        """The same of the answer to a message from rank to rank."""

    def places(self, members: Iterable[Session]) -> list[list[Any]] | None:
        """Where the servers of ranks are reached; None if all have this one."""

    def deliver(self, entry: SessionEntry[Worker], fields: dict[str, Any]) -> bool:
        """Whether a message for a session of this server is delivered later, or not as it is. Then it was taken."""

    def left(self, entry: SessionEntry[Worker], why: str) -> None:
        """Note that a session ended."""

    def graces(self, entry: SessionEntry[Worker]) -> list[float]:
        """Seconds for which the session's groups of other servers bear it without a stream."""

    def over(self, number: int, owner: str, name: str, members: Iterable[Session]) -> None:
        """Note that a group kept here has ended."""


@dataclass(slots=True, eq=False)
class _Member:
    """A rank: its session, and whether it has left."""

    rank: int
    entry: Session
    token: int  # of its request to join
    file: list[int]  # where other workers find its memory
    grace: float
    left: bool = False
    receiving: list[asyncio.TimerHandle] = field(default_factory=list)  # the time limit of its RECV


@dataclass(slots=True, eq=False)
class _Meeting:
    """One collective: who has arrived, with which description and token, and why it was refused."""

    about: dict[int, str] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    arrived: set[int] = field(default_factory=set)
    offers: dict[int, Any] = field(default_factory=dict)  # of ranks that could exchange without the host's memory
    refused: Refusal | None = None


@dataclass(slots=True, eq=False)
class _Group:
    """A group of `size` ranks; it is formed once all of them are in `members`."""

    number: int
    owner: str
    name: str
    size: int
    members: dict[int, _Member] = field(default_factory=dict)
    meetings: dict[int, _Meeting] = field(default_factory=dict)  # by their place in the group's order
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    formed: bool = False

    def member(self, entry: Session) -> _Member | None:
        return next((each for each in self.members.values() if each.entry is entry), None)


class Groups:
    """All groups of the server's sessions. `find` finds a session by its number."""

    def __init__(self, find: Callable[[int], SessionEntry[Worker] | None]) -> None:
        self._find = find
        self._groups: dict[int, _Group] = {}
        self._by_name: dict[tuple[str, str], _Group] = {}
        self._entries: dict[int, SessionEntry[Worker]] = {}  # sessions in groups, by number
        self.nodes: Nodes | None = None  # set before the first message
        self._of_session: dict[Session, set[_Group]] = {}
        self._waits: dict[Session, tuple[_Group, _Meeting]] = {}  # where a session waits
        self._ended: dict[int, Refusal] = {}
        # Messages on their way: group, sender, token.
        self._relayed: dict[int, tuple[_Group, Session, int]] = {}
        self._streams: dict[str, int] = {}  # open streams by session id, of sessions in groups and others
        self._graces: dict[str, asyncio.TimerHandle] = {}  # by session id, of ranks without a stream
        self._numbers = secrets.randbits(30) << 20  # servers' groups have different numbers

    # Messages of workers.

    def received(self, worker: Worker, session: int, raw: bytes) -> None:
        """Handle a worker's message about one of its sessions."""
        message = json.loads(raw)
        do = message["do"]
        if do == "took":
            if self.nodes is None or not self.nodes.took(message):
                self.took(message)
            return
        entry = self._entries.get(session) or self._find(session)
        if entry is None or entry.worker is not worker:
            return  # it ended meanwhile, and its groups are broken
        if self.nodes is None or not self.nodes.takes(entry, message):
            self.handle(entry, message)

    def handle(self, entry: Session, message: dict[str, Any]) -> None:
        """Handle a message of a session, of this server or another one, about a group that is kept here."""
        do = message["do"]
        if do == "join":
            self._join(entry, message)
            return
        if do == "withdraw":
            self._withdraw(entry, message)
            return
        group = self._groups.get(message["group"])
        member = None if group is None else group.member(entry)
        if group is None or member is None:
            if "token" in message:
                ended = self._ended.get(message["group"]) or Refusal("GROUP_BROKEN", "the group has ended")
                self._refuse(entry, message["token"], ended)
        elif do == "arrive":
            self._arrive(group, member, message)
        elif do == "fail":
            refusal = Refusal(message["reason"], message["message"], rank=member.rank)
            self._fail(group, self._meeting(group, member, message["place"]), refusal, message["place"])
        elif do == "abandon":
            self._break(group, Refusal("GROUP_BROKEN", message["why"], rank=member.rank))
        elif do == "leave":
            self._leave(group, member)
        elif do == "send":
            self._pass_on(group, member, message)
        elif do == "wait":
            self._limit(group, member, message["timeout"], message["token"], member.receiving)
        elif do == "waited":
            _stop(member.receiving)
            member.receiving.clear()

    def _answer(self, entry: Session, token: int, **fields: Any) -> None:
        self._tell(entry, token=token, answer=fields)

    def _refuse(self, entry: Session, token: int, refusal: Refusal) -> None:
        self._tell(entry, token=token, refusal=fields_of(refusal))

    def _tell(self, entry: Session, **fields: Any) -> None:
        if isinstance(entry, RemoteRank):
            entry.send(entry.number, fields)
        elif self.nodes is None or not self.nodes.deliver(entry, fields):
            notify(entry, fields)

    def has(self, owner: str, name: str) -> bool:
        """Whether a group is kept here."""
        return (owner, name) in self._by_name

    def is_member(self, entry: Session) -> bool:
        """Whether a session is in a group that is kept here."""
        return entry in self._of_session

    def note_end(self, number: int, refusal: Refusal) -> None:
        """Remember why a group ended."""
        self._ended[number] = refusal
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    # Forming.

    def _join(self, entry: Session, message: dict[str, Any]) -> None:
        name, rank, size, token = message["group"], message["rank"], message["size"], message["token"]
        group = self._by_name.get((entry.owner, name))
        if group is None:
            self._numbers += 1
            group = _Group(self._numbers, entry.owner, name, size)
            self._groups[group.number] = self._by_name[entry.owner, name] = group
        elif group.formed or rank in group.members or group.size != size:
            what = (
                f"group {name!r} has formed already"
                if group.formed
                else f"rank {rank} of group {name!r} has joined already"
                if group.size == size
                else f"rank {rank} says that group {name!r} has {size} ranks, but rank {next(iter(group.members))} "
                f"says {group.size}"
            )
            refusal = Refusal("COLLECTIVE_MISMATCH", what, rank=rank)
            self._refuse(entry, token, refusal)
            if not group.formed:
                self._break(group, refusal)
            return
        member = _Member(rank, entry, token, message["file"], grace_of(message))
        group.members[rank] = member
        self._of_session.setdefault(entry, set()).add(group)
        if not isinstance(entry, RemoteRank):
            self._entries[entry.number] = entry
        self._limit(group, member, message["timeout"], token, group.timers)
        if len(group.members) == group.size:
            group.formed = True
            _stop(group.timers)
            ranks = [group.members[each] for each in range(group.size)]
            formed: dict[str, Any] = {"group": group.number, "files": [each.file for each in ranks]}
            places = None if self.nodes is None else self.nodes.places(each.entry for each in ranks)
            if places is not None:
                formed["places"] = places
            for each in group.members.values():
                self._answer(each.entry, each.token, **formed)

    def _withdraw(self, entry: Session, message: dict[str, Any]) -> None:
        """Break a group whose rank gave up to join."""
        group = self._by_name.get((entry.owner, message["group"]))
        member = None if group is None else group.member(entry)
        if group is not None and member is not None:
            self._break(group, Refusal("GROUP_BROKEN", f"rank {member.rank} gave up to join", rank=member.rank))

    def _leave(self, group: _Group, member: _Member) -> None:
        member.left = True
        self._forget(member.entry, group)
        gone = Refusal("GROUP_BROKEN", f"rank {member.rank} has left group {group.name!r}", rank=member.rank)
        if any(member.rank not in meeting.arrived for meeting in group.meetings.values()):
            self._break(group, gone)
        elif all(each.left for each in group.members.values()):
            self._end(group, gone)

    # Meeting.

    def _meeting(self, group: _Group, member: _Member, place: int) -> _Meeting:
        meeting = group.meetings.setdefault(place, _Meeting())
        meeting.arrived.add(member.rank)
        return meeting

    def _arrive(self, group: _Group, member: _Member, message: dict[str, Any]) -> None:
        place, token, about = message["place"], message["token"], message["about"]
        meeting = self._meeting(group, member, place)
        if meeting.refused is None and (gone := next((m for m in group.members.values() if m.left), None)) is not None:
            self._refuse(member.entry, token, Refusal("GROUP_BROKEN", f"rank {gone.rank} has left", rank=gone.rank))
            self._break(group, Refusal("GROUP_BROKEN", f"rank {gone.rank} has left the group", rank=gone.rank))
            return
        if meeting.refused is not None:
            self._refuse(member.entry, token, meeting.refused)
            self._end_if_met(group, meeting, place)
            return
        meeting.tokens[member.rank], meeting.about[member.rank] = token, about
        if message.get("offer") is not None:
            meeting.offers[member.rank] = message["offer"]
        other = next((rank for rank, said in meeting.about.items() if said != about), None)
        if other is not None:
            refusal = Refusal(
                "COLLECTIVE_MISMATCH",
                f"the ranks of group {group.name!r} disagree: rank {other} calls {meeting.about[other]}; rank "
                f"{member.rank} calls {about}",
            )
            self._fail(group, meeting, refusal, place)
        elif len(meeting.arrived) == group.size:
            self._met(group, meeting, place)
        else:
            self._waits[member.entry] = group, meeting
            self._limit(group, member, message["timeout"], token, meeting.timers)
            self._refuse_crossed(member.entry)

    def _met(self, group: _Group, meeting: _Meeting, place: int) -> None:
        del group.meetings[place]
        _stop(meeting.timers)
        offers = [meeting.offers.get(rank) for rank in range(group.size)]
        told = {"offers": offers} if meeting.offers else {}
        for rank, token in meeting.tokens.items():
            entry = group.members[rank].entry
            self._waits.pop(entry, None)
            self._answer(entry, token, **told)

    def _fail(self, group: _Group, meeting: _Meeting, refusal: Refusal, place: int) -> None:
        """Refuse a collective to those who wait and to those who come later."""
        meeting.refused = meeting.refused or refusal
        _stop(meeting.timers)
        for rank, token in meeting.tokens.items():
            entry = group.members[rank].entry
            self._waits.pop(entry, None)
            self._refuse(entry, token, refusal)
        meeting.tokens.clear()
        self._end_if_met(group, meeting, place)

    def _end_if_met(self, group: _Group, meeting: _Meeting, place: int) -> None:
        if len(meeting.arrived) == group.size:
            group.meetings.pop(place, None)

    def _refuse_crossed(self, start: Session) -> None:
        """Refuse the collectives of sessions that wait for each other in different groups, and so would for ever."""
        path: list[Session] = []
        seen: set[Session] = set()

        def leads_back(entry: Session) -> bool:
            if entry in seen or entry not in self._waits:
                return False
            seen.add(entry)
            path.append(entry)
            group, meeting = self._waits[entry]
            for rank, member in group.members.items():
                if rank not in meeting.arrived and (member.entry is start or leads_back(member.entry)):
                    return True
            path.pop()
            return False

        if not leads_back(start):
            return
        crossed = {self._waits[entry] for entry in path}
        names = ", ".join(sorted({group.name for group, _ in crossed}))
        refusal = Refusal(
            "COLLECTIVE_MISMATCH",
            f"ranks wait for each other: they called the collectives of the groups {names} in different orders",
        )
        for group, meeting in crossed:
            place = next(place for place, each in group.meetings.items() if each is meeting)
            self._fail(group, meeting, refusal, place)

    def _limit(
        self, group: _Group, member: _Member, milliseconds: int, token: int, timers: list[asyncio.TimerHandle]
    ) -> None:
        """Break the group if a rank's request is not answered in time."""
        if not milliseconds:
            return

        def late() -> None:
            missing = ""
            if not group.formed:
                absent = [str(rank) for rank in range(group.size) if rank not in group.members]
                missing = f" for ranks {', '.join(absent[:20])} to join"
            elif member.entry in self._waits:
                meeting = self._waits[member.entry][1]
                absent = [str(rank) for rank in range(group.size) if rank not in meeting.arrived]
                missing = f" for ranks {', '.join(absent[:20])}, at {meeting.about[member.rank]}"
            what = f"rank {member.rank} of group {group.name!r} waited {milliseconds / 1000:g} s{missing}"
            self._refuse(member.entry, token, Refusal("DEADLINE_EXCEEDED", what, rank=member.rank))
            self._break(group, Refusal("GROUP_BROKEN", what, rank=member.rank))

        timers.append(asyncio.get_running_loop().call_later(milliseconds / 1000, late))

    # Messages from rank to rank.

    def _pass_on(self, group: _Group, member: _Member, message: dict[str, Any]) -> None:
        receiver = group.members[message["to"]]
        if receiver.left:
            gone = Refusal("GROUP_BROKEN", f"rank {receiver.rank} has left the group", rank=receiver.rank)
            self._refuse(member.entry, message["token"], gone)
            return
        self._numbers += 1
        self._relayed[self._numbers] = group, member.entry, message["token"]
        fields = {"session": receiver.entry.number, "group": group.number, "message": message["message"]}
        places = None if self.nodes is None else self.nodes.places((member.entry, receiver.entry))
        if places is not None:
            fields["place"] = places[0]
        self._tell(receiver.entry, number=self._numbers, **fields)

    def took(self, message: dict[str, Any]) -> None:
        """Answer the sender of a message that its receiver has taken or refused."""
        sender = self._relayed.pop(message["message"], None)
        if sender is not None:
            _, entry, token = sender
            if "refusal" in message:
                self._tell(entry, token=token, refusal=message["refusal"])
            else:
                self._answer(entry, token)

    # Ends.

    def session_ended(self, entry: Session, why: str) -> None:
        """Break the groups of a session that ended."""
        if self.nodes is not None and not isinstance(entry, RemoteRank):
            self.nodes.left(entry, why)
        self._streams.pop(entry.id, None)
        self._end_grace(entry.id)
        for number in [number for number, (_, sender, _) in self._relayed.items() if sender is entry]:
            del self._relayed[number]
        for group in list(self._of_session.get(entry, ())):
            member = group.member(entry)
            assert member is not None
            member.left = True
            self._break(
                group,
                Refusal("GROUP_BROKEN", f"rank {member.rank} of group {group.name!r} is gone: {why}", rank=member.rank),
            )

    def stream_opened(self, session_id: str) -> None:
        """Count a stream of a session."""
        self._streams[session_id] = self._streams.get(session_id, 0) + 1
        self._end_grace(session_id)

    def stream_closed(self, session_id: str, entry: SessionEntry[Worker] | None) -> None:
        """Count the end of a stream. A rank that has no other stream soon is gone."""
        left = self._streams.get(session_id, 1) - 1
        if left:
            self._streams[session_id] = left
            return
        self._streams.pop(session_id, None)
        if entry is None:
            return
        graces = [] if self.nodes is None else self.nodes.graces(entry)
        for group in self._of_session.get(entry, ()):
            member = group.member(entry)
            if member is not None:
                graces.append(member.grace)
        if graces:
            self._end_grace(session_id)
            loop = asyncio.get_running_loop()
            self._graces[session_id] = loop.call_later(max(graces), self._end_without_stream, entry)

    def _end_grace(self, session_id: str) -> None:
        timer = self._graces.pop(session_id, None)
        if timer is not None:
            timer.cancel()

    def _end_without_stream(self, entry: SessionEntry[Worker]) -> None:
        self._graces.pop(entry.id, None)
        if entry in self._of_session or (self.nodes is not None and self.nodes.graces(entry)):
            self.session_ended(entry, "its client has no connection to the server")

    def _break(self, group: _Group, refusal: Refusal) -> None:
        """Refuse all that the ranks wait for, and tell all ranks."""
        for meeting in list(group.meetings.values()):
            _stop(meeting.timers)
            for rank, token in meeting.tokens.items():
                self._refuse(group.members[rank].entry, token, refusal)
                self._waits.pop(group.members[rank].entry, None)
        for member in group.members.values():
            if member.left:
                continue
            if group.formed:
                told = fields_of(refusal)
                self._tell(member.entry, session=member.entry.number, group=group.number, refusal=told)
            else:
                self._refuse(member.entry, member.token, refusal)
        for number in [number for number, (of, _, _) in self._relayed.items() if of is group]:
            _, entry, token = self._relayed.pop(number)  # the receiver's worker may have ended, and never answer
            self._refuse(entry, token, refusal)
        log.info("group broken", extra={"principal": group.owner, "error": refusal.message})
        self._end(group, refusal)

    def _end(self, group: _Group, why: Refusal) -> None:
        _stop(group.timers)
        for member in group.members.values():
            _stop(member.receiving)
        group.meetings.clear()
        self._groups.pop(group.number, None)
        self._by_name.pop((group.owner, group.name), None)
        for member in group.members.values():
            self._forget(member.entry, group)
        self.note_end(group.number, why)
        if self.nodes is not None:
            self.nodes.over(group.number, group.owner, group.name, [each.entry for each in group.members.values()])

    def _forget(self, entry: Session, group: _Group) -> None:
        groups = self._of_session.get(entry)
        if groups is not None:
            groups.discard(group)
            if not groups:
                del self._of_session[entry]
                if self._entries.get(entry.number) is entry:  # other servers' sessions have the same numbers
                    del self._entries[entry.number]


def notify(entry: SessionEntry[Worker], fields: dict[str, Any]) -> None:
    """Send a message to the worker of a session."""
    if entry.worker.alive:
        entry.worker.tell("Group", json.dumps(fields).encode())


def fields_of(refusal: Refusal) -> list[Any]:
    """A refusal in a message."""
    return [refusal.reason, refusal.message, refusal.metadata]


def grace_of(message: dict[str, Any]) -> float:
    """Seconds for which a rank that joins may have no stream."""
    return float(message["grace"] / 1000 or _GRACE_SECONDS)


def _stop(timers: Iterable[asyncio.TimerHandle]) -> None:
    for timer in timers:
        timer.cancel()
