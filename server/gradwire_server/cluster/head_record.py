"""Head record: the address of a cluster's head, where all machines find it. So a second head is noticed.

The state directory has one, and Redis if it is the head's storage. Who starts a head writes its address first, then
asks the former one whether it runs, and looks at the address again once its own head runs. Of two that start at once,
the later writer goes on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gradwire_server.cluster.checks import CheckFailed
from gradwire_server.cluster.head_probe import why_no_head

_FILE = "head"


class Record(Protocol):
    """Where an address is kept."""

    where: str

    def swap(self, address: str) -> str:
        """Write an address; the former one, "" for none. Raises OSError."""

    def read(self) -> str:
        """The address. Raises OSError."""


class FileRecord:
    """A record in a state directory."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.where = f"the state directory {folder}"

    def swap(self, address: str) -> str:
        """Write an address; the former one, "" for none. Raises OSError."""
        former = self.read()
        made = self._path.with_name(f".{_FILE}-{os.getpid()}")
        made.write_text(address)
        made.replace(self._path)
        return former

    def read(self) -> str:
        """The address. Raises OSError."""
        try:
            return self._path.read_text().strip()
        except FileNotFoundError:
            return ""


def claim_head(address: str, token: Path, records: Sequence[Record]) -> None:
    """Write the address of a head that is to be started. Raises CheckFailed if another one runs, and OSError."""
    for record in records:
        former = record.swap(address)
        if former and former != address and not why_no_head(former, token):
            record.swap(former)
            raise CheckFailed(
                f"this cluster runs already: its Ray's head is at {former}, as {record.where} says. Join it: "
                f"gradwire cluster join {former} …. Another cluster needs another token and state directory"
            )


def check_head(address: str, records: Sequence[Record]) -> None:
    """Check that no other head was started while this one was. Raises CheckFailed, OSError."""
    for record in records:
        if (found := record.read()) != address:
            raise CheckFailed(f"another head of this cluster was started meanwhile, at {found}, says {record.where}")
