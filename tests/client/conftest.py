"""A server for the tests of one process, and a session per test: once deferring, once with every call waiting.

Of a test with parameters one set in four runs with every call waiting. GRADWIRE_WAITING=all runs all of them
(`make waiting`). What waits is the session, the same for every layer and optimizer.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire._proxy.memo import read_spec
from gradwire._session import sessions
from gradwire._tensor import call
from gradwire._transport.embedded import EmbeddedServer
from gradwire.v1 import commands_pb2, service_pb2

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


@pytest.fixture(autouse=bool(os.environ.get("GRADWIRE_CHECK_INFERENCE")))
def checked_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare each inferred result with the server's description. Tests that count waits fail with it."""
    inferred_call = call._inferred_call

    def checked(*args: Any) -> Any:
        made = inferred_call(*args)
        results = made if isinstance(made, tuple) else (made,)
        tensors = [each for each in results if isinstance(each, gradwire.Tensor)]
        if tensors:
            request = commands_pb2.DescribeRequest(tensors=[each._id for each in tensors])
            answer = tensors[0]._session.wait(service_pb2.Command(describe=request)).describe
            assert [each._spec for each in tensors] == [read_spec(message) for message in answer.tensors]
            counted = [
                (each._version, message.version)
                for each, message in zip(tensors, answer.tensors, strict=True)
                if not each._spec.inference  # they have no version
            ]
            assert all(own == described for own, described in counted)
        return made

    monkeypatch.setattr(call, "_inferred_call", checked)


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe results by answers alone: the first op of a kind waits."""
    monkeypatch.setattr(call, "foretell", lambda *args: None)


@pytest.fixture
def without_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the maintenance thread from sending anything: only the test sends."""
    monkeypatch.setattr(sessions, "_maintain_sessions", lambda renewed: None)


@pytest.fixture
def reads(deferring: gradwire.Session, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values that were read, in a list of one item."""
    counted, wait = [0], deferring.wait

    def watched(command: Any, *args: Any) -> Any:
        counted[0] += command.WhichOneof("command") == "read"
        return wait(command, *args)

    monkeypatch.setattr(deferring, "wait", watched)
    return counted
