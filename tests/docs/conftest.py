"""A server for the documentation's code, and its address where that code looks for one."""

from collections.abc import Iterator

import pytest

import gradwire
from gradwire._transport.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def server_address() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENBLAS_NUM_THREADS", "1")  # a process tests on each core already, and waiting threads spin
        server = EmbeddedServer()
    yield server.address
    server.stop()


@pytest.fixture
def session(server_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[gradwire.Session]:
    """The default session; what connects without an address gets another one on the same server."""
    monkeypatch.setenv("GRADWIRE_ADDRESS", server_address)
    opened = gradwire.connect()
    yield opened
    opened.close()
