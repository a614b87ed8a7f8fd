"""A server for the tests of one process, and a session per test: once deferring, once with every call waiting.

Of a test with parameters one set in four runs with every call waiting. GRADWIRE_WAITING=all runs all of them
(`make waiting`). What waits is the session, the same for every layer and optimizer.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradwire
from gradwire._session import sessions
from gradwire._transport.embedded import EmbeddedServer

EVERY = 1 if os.environ.get("GRADWIRE_WAITING") == "all" else 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the sets of parameters that do not run with every call waiting."""
    seen: Counter[str] = Counter()
    left_out = []
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if item.path.parent == Path(__file__).parent and len(params) > 1 and params.get("session") == "waiting":
            test = item.nodeid.partition("[")[0]
            if seen[test] % EVERY:
                left_out.append(item)
            seen[test] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        out = set(left_out)
        items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="session")
def server_address() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENBLAS_NUM_THREADS", "1")  # a process tests on each core already, and waiting threads spin
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
