"""A server for the tests of one process, and a session per test: once deferring, once with every call waiting."""

from collections.abc import Iterator

import pytest

import gradwire
from gradwire._session import sessions
from gradwire._transport.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def server_address() -> Iterator[str]:
    server = EmbeddedServer()
    yield server.address
    server.stop()


@pytest.fixture(params=["deferring", "waiting"])
def session(request, server_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[gradwire.Session]:
    """The default session of the test, with and without GRADWIRE_SYNC=1."""
    monkeypatch.setenv("GRADWIRE_SYNC", "1" if request.param == "waiting" else "0")
    opened = gradwire.connect(server_address)
    yield opened
    opened.close()


@pytest.fixture
def deferring(server_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[gradwire.Session]:
    """The default session of the test, which waits only where it must."""
    monkeypatch.setenv("GRADWIRE_SYNC", "0")
    opened = gradwire.connect(server_address)
    yield opened
    opened.close()


@pytest.fixture
def without_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the maintenance thread from sending anything: only the test sends."""
    monkeypatch.setattr(sessions, "_maintain_sessions", lambda renewed: None)
