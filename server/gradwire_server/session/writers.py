"""Writers: how far the commands of each of a session's writers are applied, and what the writer may ask again."""

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from gradwire_server.session.prepared_ops import Prepared
from gradwire_server.session.state.response_cache import Recall

WRITER_SHIFT = 40  # a command's number is its writer's number, shifted by these bits, and its seq


class DroppedHooks:
    """Numbers of unreachable hooks, repeated in answers until the client acknowledges one."""

    __slots__ = ("gone", "seq", "told")
    MOST = 4096  # in one answer

    def __init__(self) -> None:
        self.gone: deque[int] = deque()
        self.told = 0
        self.seq = 0

    def acknowledge(self, seq: int) -> None:
        """Forget the told numbers if the client has all answers through `seq`."""
        if self.told and seq >= self.seq:
            for _ in range(self.told):
                self.gone.popleft()
            self.told = 0

    def tell(self, seq: int) -> list[int]:
        """Numbers for the answer to the command `seq`."""
        if not self.told:
            self.told, self.seq = min(len(self.gone), self.MOST), seq
        return list(islice(self.gone, self.told))


@dataclass(slots=True)
class Writer:
    """One writer: how far its commands are applied, their cached responses, its prepared ops."""

    number: int
    recall: Recall
    applied: int = 0
    durable: int = 0  # its last command that survives a crash of the server
    prepared: dict[int, Prepared] = field(default_factory=dict)
    dropped: DroppedHooks = field(default_factory=DroppedHooks)

    def command_number(self, seq: int) -> int:
        """Number of this writer's command `seq`, unique within the session."""
        return self.number << WRITER_SHIFT | seq
