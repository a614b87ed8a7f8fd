"""A server for the examples that run inside the test process, and a session per test."""

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
def session(server_address: str) -> Iterator[gradwire.Session]:
    """The default session of the test."""
    opened = gradwire.connect(server_address)
    yield opened
    opened.close()
