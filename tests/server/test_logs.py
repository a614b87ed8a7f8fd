"""The log: what went wrong is told with whose it was and which command, and never with a secret."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2
from gradwire_server.auth import tokens as token_files
from gradwire_server.auth.tokens import Tokens
from gradwire_server.common.limits import Limits
from gradwire_server.common.logging import JsonFormatter
from gradwire_server.common.shared_counters import SharedCounters
from gradwire_server.storage.instructions import StorageInstruction
from gradwire_server.worker.runtime import Runtime
from tests.server.harness import Remote, command, running


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_of_a_session_tell_session_principal_and_seq_but_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradwire_server.session import commands

    def broken(*_: Any) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(commands.COMMANDS["grad"], "handler", broken)
    token, line = token_files.make("alice", frozenset(), None)
    token_files.append(tmp_path / "tokens", line)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("gradwire.server")
    log.addHandler(handler)
    level = log.level
    log.setLevel(logging.INFO)
    try:
        with running(tokens=Tokens(tmp_path / "tokens")) as server:
            metadata = [("authorization", f"Bearer {token}")]
            answer = server.stub.OpenSession(service_pb2.OpenSessionRequest(), metadata=metadata)
            session = Remote(server.channel, answer)
            batch = session.batch(command(c.DescribeRequest()), command(c.GradRequest(tensor=1)))
            server.stub.Run(batch, metadata=metadata)
            with pytest.raises(grpc.RpcError):
                server.stub.Grad(c.GradRequest(session_id=session.id, tensor=1), metadata=metadata)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    told = lines(stream)
    whose = {"session": session.id[:6], "principal": "alice"}
    (opened,) = [line for line in told if line["message"] == "session opened"]
    assert whose.items() <= opened.items()
    in_batch, alone = [line for line in told if line["message"].startswith("unexpected error")]
    assert {**whose, "writer": 1, "seq": 2}.items() <= in_batch.items()
    assert whose.items() <= alone.items() and "seq" not in alone
    assert all("KeyError" in line["stack"] for line in (in_batch, alone))
    for secret in (token, token.split("_", 2)[2], session.id, line.split()[2]):
        assert secret not in stream.getvalue()


def test_a_worker_is_told_whose_its_sessions_are() -> None:
    host = Runtime(Limits().resolved(), SharedCounters(1))
    order = StorageInstruction(short_id="abcdef", principal="alice")
    for _ in host.execute(host.make_call("Open", 1, order.pack(), 1, None)):
        pass
    assert host.sessions[1].command.log_fields() == {"session": "abcdef", "principal": "alice", "number": 1}
