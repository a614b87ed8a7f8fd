"""The front's record of a session: leases, principals, and an id of which the log shows a part."""

import pytest

from gradwire_server.auth.principals import CALLER, Principal
from gradwire_server.common.protocol import EPOCH
from gradwire_server.worker_pool.session_entry import SHORT_ID_LENGTH, SessionEntry


def test_a_new_entry_has_its_lease_and_no_calls() -> None:
    entry = SessionEntry("session-id", 5, "worker", 60.0, 1000.0, "client")
    assert (entry.id, entry.number, entry.worker, entry.client) == ("session-id", 5, "worker", "client")
    assert (entry.opened, entry.expires, entry.lease) == (1000.0, 1060.0, 60.0)
    assert (entry.pending, entry.inflight, entry.sent_calls, entry.sent_bytes, entry.queued_calls) == (
        {},
        0,
        0,
        0,
        None,
    )
    assert (entry.epoch, entry.writers, entry.stored, entry.unstored) == (EPOCH, 1, False, "")


def test_the_log_shows_only_the_beginning_of_an_id() -> None:
    entry = SessionEntry("0123456789abcdef", 1, None, 1.0, 0.0)
    assert entry.short_id == "0123456789abcdef"[:SHORT_ID_LENGTH] == "012345"


@pytest.mark.parametrize("name", ["", "alice", "bob", "jürgen"])
def test_a_session_belongs_to_the_caller_who_opens_it(name: str) -> None:
    token = CALLER.set(Principal(name))
    try:
        entry = SessionEntry("id", 1, None, 1.0, 0.0)
    finally:
        CALLER.reset(token)
    assert entry.owner == name
    assert (entry.owner_number == 0) == (name == "")
    assert entry.owner_number < 1 << 33


def test_numbers_of_principals_differ_and_are_the_same_in_every_process() -> None:
    numbers = []
    for name in ("alice", "bob"):
        entry = SessionEntry("id", 1, None, 1.0, 0.0)
        entry.owner = name
        numbers.append(entry.owner_number)
    assert numbers == [663665736, 4123767105]


def test_entries_do_not_share_what_they_hold() -> None:
    one, other = (SessionEntry("id", number, None, 1.0, 0.0) for number in (1, 2))
    one.pending[1] = ("Op", b"")
    one.traffic.bytes += 10
    assert (other.pending, other.traffic.bytes) == ({}, 0)
