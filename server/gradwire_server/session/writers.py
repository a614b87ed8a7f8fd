"""Writers: how far the commands of each of a session's writers are applied, and their cached answers."""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from gradwire_server.session.prepared.ops import Prepared
from gradwire_server.session.state.response_cache import BatchResponses

WRITER_SHIFT = 40  # a command's number is its writer's number, shifted by these bits, and its seq


class DroppedHooks:
    """Numbers of unreachable hooks, repeated in answers until the client acknowledges one."""

    __slots__ = ("numbers", "reported", "seq")
    MAX_REPORTED = 4096  # in one answer

    def __init__(self) -> None:
        self.numbers: deque[int] = deque()
        self.reported = 0
        self.seq = 0

    def acknowledge(self, seq: int) -> None:
        """Forget the reported numbers if the client has all answers through `seq`."""
        if self.reported and seq >= self.seq:
            for _ in range(self.reported):
                self.numbers.popleft()
            self.reported = 0

    def report(self, seq: int) -> list[int]:
        """Numbers for the answer to the command `seq`."""
        if not self.reported:
            self.reported, self.seq = min(len(self.numbers), self.MAX_REPORTED), seq
        return list(islice(self.numbers, self.reported))


@dataclass(slots=True)
class Writer:
    """One writer: how far its commands are applied, their cached responses, its prepared ops."""

    number: int
    responses: BatchResponses
    applied: int = 0
    durable: int = 0  # its last command that survives a crash of the server
    prepared: dict[int, Prepared] = field(default_factory=dict)
    dropped: DroppedHooks = field(default_factory=DroppedHooks)

    def command_number(self, seq: int) -> int:
        """Number of this writer's command `seq`, unique within the session."""
        return self.number << WRITER_SHIFT | seq
