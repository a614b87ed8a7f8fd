"""A server per module, and a session per test.

The tests of a module with `BACKENDS` run against each: so many worker processes, or for 0 none. Those that reach into
the server, by monkeypatch or otherwise, have `in_process` beside `server` and run in this process alone.
"""

from collections.abc import Iterator

import pytest

from tests.server.harness import Remote, Running, running

_REACHING = {"in_process", "monkeypatch", "gate"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        backends = [0] if _REACHING & set(metafunc.fixturenames) else getattr(metafunc.module, "BACKENDS", [0])
        names = [f"{count}-workers" if count else "in-process" for count in backends]
        metafunc.parametrize("server", backends, ids=names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    with running(workers=request.param) as started:
        yield started


@pytest.fixture
def in_process() -> None:
    """The test reaches into the server: it must be in this process."""


@pytest.fixture
def session(server: Running) -> Iterator[Remote]:
    opened = server.open()
    yield opened
    opened.close()
