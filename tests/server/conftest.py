"""A server per module, and a session per test."""

from collections.abc import Iterator

import pytest

from tests.server.harness import Remote, Running, running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as started:
        yield started


@pytest.fixture
def session(server: Running) -> Iterator[Remote]:
    opened = server.open()
    yield opened
    opened.close()
