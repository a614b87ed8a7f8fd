"""Handovers: a session given to its user's browser by a code that works once."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

from gradwire_server.web.handovers import MOST_BYTES, Handovers
from tests.server.web.harness import Running, gateway_to, served, token_file

GIVEN = {"session": "secret", "tensor": "1", "names": {"1": "<b>w</b>"}, "lines": {}}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, list[str]]]:
    path, tokens = token_file(tmp_path_factory.mktemp("tokens"), "alice", "bob")
    with served(f"--token-file={path}") as address, gateway_to(address, credentials_required=True) as gateway:
        yield gateway, tokens


def put(gateway: Running, given: Any = GIVEN, **headers: str) -> Any:
    with gateway.client(**headers) as client:
        return client.post("/handovers", json=given)


def take(gateway: Running, code: Any, **headers: str) -> Any:
    with gateway.client(**headers) as client:
        return client.post("/handovers/take", json={"code": code})


def test_a_code_works_once(gateway: Running) -> None:
    code = put(gateway).json()["code"]
    first, second = take(gateway, code), take(gateway, code)
    assert first.json() == GIVEN
    assert second.status_code == 404
    assert "was used" in second.json()["message"]


def test_another_user_cannot_take_it_and_the_owner_still_can(secured: tuple[Running, list[str]]) -> None:
    gateway, (alice, bob) = secured
    assert put(gateway).status_code == 401
    assert put(gateway, authorization="Bearer gradwire_0000000000000000_" + "1" * 43).status_code == 401
    code = put(gateway, authorization=f"Bearer {alice}").json()["code"]
    assert take(gateway, code).status_code == 401
    assert take(gateway, code, authorization=f"Bearer {bob}").status_code == 404
    assert take(gateway, code, authorization=f"Bearer {alice}").json() == GIVEN


@pytest.mark.parametrize("code", ["", "nothing", 3, None, ["x"], "x" * 2000])
def test_an_unknown_code_is_refused(gateway: Running, code: Any) -> None:
    assert take(gateway, code).status_code in (400, 404, 413, 429)


def test_junk_is_refused(gateway: Running) -> None:
    assert put(gateway, ["no", "object"]).status_code == 400
    with gateway.client() as client:
        head = {"content-type": "application/json"}
        assert client.post("/handovers", content=b"{", headers=head).status_code == 400
        assert client.post("/handovers", content=b"[" * 5000, headers=head).status_code == 400
        assert client.post("/handovers", content=b"x=1").status_code == 415
        refused = client.post("/handovers", content=b'"' + b"x" * MOST_BYTES + b'"', headers=head)
        assert refused.is_client_error and "limit" in refused.text.lower()
    assert put(gateway, origin="https://evil.example").status_code == 403


def test_handovers_expire_and_the_oldest_gives_way() -> None:
    now = [0.0]
    handovers = Handovers(lambda: now[0])
    code = handovers.put("a", b"{}")
    now[0] = 121.0
    assert handovers.take("a", code) is None
    codes = [handovers.put("a", b"%d" % i) for i in range(65)]
    assert handovers.take("a", codes[0]) is None
    assert handovers.take("a", codes[1]) == b"1"
