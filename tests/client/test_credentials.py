"""Credentials of a client: tokens and certificates are used for every kind of call, and no secret is printed."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gradwire
from gradwire._transport import link, transport
from gradwire._transport.credentials import Credentials, from_environment
from gradwire_server.auth.tls import Tls
from gradwire_server.auth.tokens import Tokens, append, make
from tests.certificates import Authority
from tests.server.harness import Running, running

LARGE = np.arange(1 << 19, dtype=np.float64)  # beyond one message


@pytest.fixture
def token(tmp_path: Path) -> str:
    made, line = make("alice")
    append(tmp_path / "tokens", line)
    return made


@pytest.fixture(params=[0, 128 << 20], ids=["chunks", "shared"])
def guarded(tmp_path: Path, token: str, request: pytest.FixtureRequest) -> Iterator[Running]:
    with running(tokens=Tokens(tmp_path / "tokens"), max_shared_bytes=request.param) as started:
        yield started


def works(session: gradwire.Session) -> None:
    """Use each kind of call: unary, stream, transfers both ways, and what is told on closing."""
    with session:
        x = gradwire.tensor(LARGE, requires_grad=True)
        for _ in range(3):
            y = (x * 2).sum()
        y.backward()
        assert y.item() == 2 * LARGE.sum()
        assert (x.grad.numpy() == 2).all()
        assert session.server_info().sessions == 1
        session.cancel()
        session.renew_lease()
    session.close()


@pytest.mark.parametrize("lower", [True, False], ids=["lower", "public"])
def test_a_token_goes_with_every_call(
    guarded: Running, token: str, lower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_cython_works", lower)
    works(gradwire.connect(guarded.address, token=token))
    assert guarded.backend.registry.entries == {}


def test_a_token_may_come_from_the_environment(guarded: Running, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_TOKEN", f"{token}\n")
    works(gradwire.connect(guarded.address))


def test_without_a_token_the_server_is_not_to_be_had(guarded: Running) -> None:
    for token in (None, make("alice")[0]):
        with pytest.raises(PermissionError, match="token") as caught:
            gradwire.connect(guarded.address, token=token)
        assert isinstance(caught.value, gradwire.GradwireError) and caught.value.reason == "UNAUTHENTICATED"
        assert token is None or token not in str(caught.value)


def test_certificates_of_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with running(tls=Tls(*authority.issue("localhost"), authority.path)) as server:
        cert, key = authority.issue("alice")
        address = f"localhost:{server.address.rpartition(':')[2]}"
        works(gradwire.connect(address, ca=authority.path, cert=cert, key=key))


def test_tls_by_the_environment_with_a_token(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    with running(tokens=Tokens(tmp_path / "tokens"), tls=Tls(*authority.issue("localhost"))) as server:
        monkeypatch.setenv("GRADWIRE_TOKEN", token)
        monkeypatch.setenv("GRADWIRE_CA", str(authority.path))
        works(gradwire.connect(f"localhost:{server.address.rpartition(':')[2]}"))


def test_a_server_that_the_authority_does_not_know_gets_no_token(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_RETRY_WAITS", (0.01,) * 6)
    folders = tmp_path / "ours", tmp_path / "theirs"
    for folder in folders:
        folder.mkdir()
    ours, theirs = (Authority(folder) for folder in folders)
    with running(tls=Tls(*theirs.issue("localhost"))) as server:
        address = f"localhost:{server.address.rpartition(':')[2]}"
        with pytest.raises(ConnectionError) as caught:
            gradwire.connect(address, token=token, ca=ours.path)
        assert token not in str(caught.value)
        assert server.backend.registry.entries == {}


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "gönnen", "x" * 5000])
def test_a_token_that_cannot_be_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match="token") as caught:
        gradwire.connect("127.0.0.1:1", token=token)
    assert token not in str(caught.value)


def test_no_secret_is_in_a_repr(guarded: Running, token: str) -> None:
    session = gradwire.connect(guarded.address, token=token)
    shown = [repr(session), repr(session._transport), repr(Credentials(token))]
    session.close()
    assert not any(token in each for each in shown)
    assert shown[2] == "<Credentials with token>"


def test_a_token_that_travels_readable_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"unencrypted") as caught:
        Credentials("secret-token").channel("gradwire.example:50051", []).close()
    assert "secret-token" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for address in ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/nowhere"):
            Credentials("secret-token").channel(address, []).close()
        Credentials("secret-token", tls=True).channel("gradwire.example:50051", []).close()


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    for wrong in ({"cert": "c"}, {"key": "k"}, {"tls": False, "ca": "a"}):
        with pytest.raises(ValueError):
            Credentials(**wrong)
    with pytest.raises(FileNotFoundError):
        Credentials(ca=tmp_path / "none")


def test_what_is_given_wins_over_the_environment(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    environment = {"GRADWIRE_TOKEN": "theirs", "GRADWIRE_CA": str(tmp_path / "a"), "GRADWIRE_TLS": "1"}
    both = from_environment(token="ours", ca=tmp_path / "b", environment=environment)
    assert both.metadata == (("authorization", "Bearer ours"),) and both._files[0] == b"b"
    plain = from_environment(tls=False, environment=environment)
    assert not plain.tls and plain.metadata
    assert not from_environment(environment={"GRADWIRE_TLS": "0", "GRADWIRE_TOKEN": ""}).tls


def test_credentials_are_for_a_server_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADWIRE_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="address"):
        gradwire.connect(token="x")


def test_an_embedded_server_minds_no_credentials_of_the_environment() -> None:
    code = "import gradwire; print(gradwire.ones(2).sum().item())"
    environment = {"GRADWIRE_TOKEN": "x", "GRADWIRE_TLS": "1", "GRADWIRE_CA": "/nowhere"}

    shown = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=200,
        check=True,
    )  # fmt: skip
    assert shown.stdout.strip() == "2.0"
