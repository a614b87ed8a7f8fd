"""Failed ids: the ids of a failed command's results, each with the cause."""

from dataclasses import dataclass


@dataclass(slots=True)
class Failure:
    """Cause of a poisoned id: the command that failed first."""

    seq: int
    writer: int
    reason: str
    message: str
