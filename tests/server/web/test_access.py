"""Who may call the gateway: tokens, logins, CSRF, origins and hosts."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

import httpx
from websockets.exceptions import InvalidStatus

from gradwire_server.auth import tokens as token_lines
from gradwire_server.web.logins import Logins
from tests.server.harness import until
from tests.server.web.harness import SERVICE, Running, gateway_to, served, token_file

INFO = f"{SERVICE}/ServerInfo"
OTHER = "https://evil.example"


class Secured:
    """A gateway to a server with tokens, and two users' tokens."""

    def __init__(self, running: Running, alice: str, bob: str, path: Path) -> None:
        self.running, self.alice, self.bob, self.path = running, alice, bob, path
        self.url = running.url

    def login(self, token: str) -> tuple[httpx.Client, str]:
        """A client with a cookie, and the CSRF token."""
        with self.running.client() as client:
            answer = client.post("/login", json={"token": token})
            assert answer.status_code == 200, answer.text
        again = self.running.client()
        again.cookies = client.cookies
        return again, answer.json()["csrfToken"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    path, (alice, bob) = token_file(tmp_path_factory.mktemp("tokens"), "alice", "bob")
    with (
        served(f"--token-file={path}") as server,
        gateway_to(server, credentials_required=True, origins=("https://lab.example",)) as running,
    ):
        yield Secured(running, alice, bob, path)


def test_a_token_is_needed_and_suffices(secured: Secured) -> None:
    with secured.running.client() as client:
        refused = client.post(INFO, json={})
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert "www-authenticate" in refused.headers
        for bad in ("Bearer nonsense", "Bearer gradwire_0000000000000000_" + "0" * 43, "Basic YTpi", "Bearer"):
            assert client.post(INFO, json={}, headers={"authorization": bad}).status_code == 401
        assert client.post(INFO, json={}, headers={"authorization": f"Bearer {secured.alice}"}).status_code == 200


def test_each_user_has_a_channel_and_its_own_sessions(secured: Secured) -> None:
    headers = [{"authorization": f"Bearer {token}"} for token in (secured.alice, secured.bob)]
    with secured.running.client() as client:
        session = client.post(f"{SERVICE}/OpenSession", json={}, headers=headers[0]).json()["sessionId"]
        mine = client.post(f"{SERVICE}/KeepAlive", json={"sessionId": session}, headers=headers[0])
        other = client.post(f"{SERVICE}/KeepAlive", json={"sessionId": session}, headers=headers[1])
    assert (mine.status_code, other.status_code) == (200, 404)
    users = secured.running.gateway.upstream._users
    assert len({user.channel for user in users.values()}) == len(users) >= 2


def test_unknown_tokens_make_no_channels(secured: Secured) -> None:
    before = secured.running.gateway.upstream.open_channels
    with secured.running.client() as client:
        for number in range(20):
            token = f"gradwire_{number:016x}_" + "0" * 43
            assert client.post(INFO, json={}, headers={"authorization": f"Bearer {token}"}).status_code == 401
    assert secured.running.gateway.upstream.open_channels <= before


def test_a_login_gives_a_cookie_that_scripts_cannot_read(secured: Secured) -> None:
    with secured.running.client() as client:
        answer = client.post("/login", json={"token": secured.alice})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/" in cookie
        assert secured.alice not in answer.headers["set-cookie"]
        csrf = answer.json()["csrfToken"]
        assert client.post(INFO, json={}, headers={"x-csrf-token": csrf}).status_code == 200


def test_a_cookie_without_its_csrf_token_is_refused(secured: Secured) -> None:
    client, csrf = secured.login(secured.alice)
    other, others = secured.login(secured.bob)
    with client, other:
        refused = client.post(INFO, json={})
        assert (refused.status_code, refused.json()["code"]) == (403, "permission_denied")
        for wrong in ("guess", others):  # as by a tab whose login was replaced: it offers to log in again
            refused = client.post(INFO, json={}, headers={"x-csrf-token": wrong})
            assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
            assert "log in again" in refused.json()["message"]
        assert client.get("/downloads/x", headers={"gradwire-session": "s"}).status_code == 403
        assert client.post("/logout").status_code == 403
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        with pytest.raises(InvalidStatus) as denied:
            secured.running.socket(additional_headers={"cookie": cookie})
        assert denied.value.response.status_code == 403
        opened = secured.running.socket(f"gradwire.csrf.{csrf}", additional_headers={"cookie": cookie})
        assert opened.subprotocol == "gradwire.v1"
        opened.close()


def test_a_stolen_cookie_is_useless_from_another_origin(secured: Secured) -> None:
    client, csrf = secured.login(secured.alice)
    with client:
        for origin in (OTHER, "null", "http://localhost:1", secured.url.replace("http", "https")):
            answer = client.post(INFO, json={}, headers={"origin": origin, "x-csrf-token": csrf})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
        # Even a configured origin gets nothing by the cookie.
        allowed = {"origin": "https://lab.example", "x-csrf-token": csrf}
        assert client.post(INFO, json={}, headers=allowed).status_code == 403
        own = {"origin": secured.url, "x-csrf-token": csrf}
        assert client.post(INFO, json={}, headers=own).status_code == 200


def test_logging_out_ends_the_login_and_its_streams(secured: Secured) -> None:
    client, csrf = secured.login(secured.alice)
    with client:
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        socket = secured.running.socket(f"gradwire.csrf.{csrf}", additional_headers={"cookie": cookie})
        assert client.post("/logout", headers={"x-csrf-token": csrf}).status_code == 200
        assert "unauthenticated" in str(socket.recv(30))
        answer = httpx.post(secured.url + INFO, json={}, headers={"cookie": cookie, "x-csrf-token": csrf})
        assert answer.status_code == 401
        socket.close()


def test_an_expired_login_is_refused() -> None:
    now = [100.0]
    logins = Logins(60.0, 3, lambda: now[0])
    cookie, login = logins.begin("token")
    assert logins.find(cookie) is login
    now[0] += 60.0
    assert logins.find(cookie) is None
    assert login.ended.is_set()
    first, _ = logins.begin("one")
    cookies = [logins.begin(f"more {number}")[0] for number in range(3)]
    assert logins.find(first) is None
    assert all(map(logins.find, cookies))
    assert len(logins) == 3


def test_an_expired_cookie_is_refused(secured: Secured) -> None:
    with gateway_to(secured.running.server, credentials_required=True, login_seconds=0.5) as running:
        with running.client() as client:
            csrf = client.post("/login", json={"token": secured.alice}).json()["csrfToken"]
            cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
            time.sleep(0.6)
        answer = httpx.post(running.url + INFO, json={}, headers={"cookie": cookie, "x-csrf-token": csrf})
        assert answer.status_code == 401


def test_another_tab_that_logs_in_with_the_same_token_leaves_the_first_its_login(secured: Secured) -> None:
    client, csrf = secured.login(secured.alice)
    with client:
        again = client.post("/login", json={"token": secured.alice}).json()["csrfToken"]
        for each in (csrf, again):
            assert client.post(INFO, json={}, headers={"x-csrf-token": each}).status_code == 200
        others = client.post("/login", json={"token": secured.bob}).json()["csrfToken"]
        assert client.post(INFO, json={}, headers={"x-csrf-token": others}).status_code == 200
        assert client.post(INFO, json={}, headers={"x-csrf-token": csrf}).status_code == 401


def test_a_login_that_is_renewed_lasts_longer() -> None:
    now = [0.0]
    logins = Logins(10.0, 10, lambda: now[0])
    cookie, login = logins.begin("a")
    now[0] = 9.0
    assert logins.begin("a", cookie) == (cookie, login) and logins.begin("b", cookie)[1] is not login
    now[0] = 18.0
    assert logins.find(cookie) is login
    now[0] = 19.0
    assert logins.begin("a", cookie)[1] is not login


def test_a_bad_token_cannot_log_in(secured: Secured) -> None:
    with secured.running.client() as client:
        for body in ({"token": "nonsense"}, {"token": "gradwire_0000000000000000_" + "0" * 43}):
            assert client.post("/login", json=body).status_code == 401
        for broken in ({}, {"token": 5}, [], {"token": "a b"}):
            assert client.post("/login", json=broken).status_code == 400
        assert client.post("/login", data={"token": secured.alice}).status_code == 415
        headers = {"origin": OTHER}
        assert client.post("/login", json={"token": secured.alice}, headers=headers).status_code == 403


def test_an_expiring_token_ends(secured: Secured, tmp_path: Path) -> None:
    token, line = token_lines.make("carol", expires=datetime.now(timezone.utc) + timedelta(hours=1))
    token_lines.append(secured.path, line)
    with secured.running.client(authorization=f"Bearer {token}") as client:
        until(lambda: client.post(INFO, json={}).status_code == 200, "the token is known")
        soon = datetime.now(timezone.utc) + timedelta(seconds=1)
        ending = f"{line.rpartition('=')[0]}={soon.isoformat(timespec='seconds')}"
        changed = tmp_path / "tokens"
        changed.write_text(secured.path.read_text("utf-8").replace(line, ending), "utf-8")
        changed.chmod(0o600)
        changed.replace(secured.path)
        until(lambda: client.post(INFO, json={}).status_code != 200, "the token has expired")
        assert client.post(INFO, json={}).json()["code"] == "unauthenticated"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "a b", "127.0.0.1@x"]
)
def test_other_hosts_are_refused(gateway: Running, host: str) -> None:
    with gateway.client() as client:
        for answer in (client.get("/", headers={"host": host}), client.post(INFO, json={}, headers={"host": host})):
            assert answer.status_code in (400, 421)


def test_hosts_of_this_machine_and_of_origins_are_served(secured: Secured) -> None:
    with secured.running.client() as client:
        for host in ("localhost:1234", "127.0.0.1", "[::1]:80", "lab.example"):
            assert client.get("/", headers={"host": host}).status_code == 200


def test_other_origins_are_refused_everywhere(gateway: Running) -> None:
    with gateway.client() as client:
        for origin in (OTHER, "null", "http://127.0.0.1:1", "file://", f"{gateway.url}, {OTHER}"):
            for verb, path in (
                ("POST", INFO),
                ("GET", "/"),
                ("GET", "/healthz"),
                ("PUT", "/uploads/a"),
                ("OPTIONS", INFO),
            ):
                assert client.request(verb, path, headers={"origin": origin}).status_code == 403
        cross = {"sec-fetch-site": "cross-site"}
        assert client.post(INFO, json={}, headers=cross).status_code == 403
        assert client.post(INFO, json={}, headers={"sec-fetch-site": "same-site"}).status_code == 403
        assert client.post(INFO, json={}, headers={"origin": gateway.url}).status_code == 200
    with pytest.raises(InvalidStatus) as denied:
        gateway.socket(origin=OTHER)
    assert denied.value.response.status_code == 403


def test_a_configured_origin_sends_tokens(secured: Secured) -> None:
    origin = {"origin": "https://lab.example"}
    with secured.running.client() as client:
        preflight = client.options(INFO, headers={**origin, "access-control-request-method": "POST"})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://lab.example"
        assert "access-control-allow-credentials" not in preflight.headers
        answer = client.post(INFO, json={}, headers={**origin, "authorization": f"Bearer {secured.alice}"})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://lab.example"
        assert client.post("/login", json={"token": secured.alice}, headers=origin).status_code == 403


def test_every_answer_has_the_security_headers(gateway: Running) -> None:
    with gateway.client() as client:
        answers = [
            client.get("/"),
            client.get("/nothing"),
            client.post(INFO, json={}),
            client.post(INFO, json={"x": 1}),
            client.get("/", headers={"host": "evil.example"}),
            client.post(INFO, json={}, headers={"origin": OTHER}),
        ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
