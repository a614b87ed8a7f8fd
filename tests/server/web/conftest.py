"""One server without tokens and a gateway to it, for the tests that change neither."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def open_server() -> Iterator[str]:
    harness = pytest.importorskip("tests.server.web.harness", reason="the gateway needs the extra [web]")
    with harness.served("--max-session-bytes=512MiB") as address:
        yield address


@pytest.fixture(scope="module")
def gateway(open_server: str) -> Iterator[Any]:
    harness = pytest.importorskip("tests.server.web.harness", reason="the gateway needs the extra [web]")
    with harness.gateway_to(open_server) as started:
        yield started
