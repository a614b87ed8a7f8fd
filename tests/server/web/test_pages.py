"""Studio's page: its files, its headers, and that it needs nothing from elsewhere."""

import gzip
import re

import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

from gradwire_server.web.pages import FOLDER, POLICY
from tests.server.web.harness import Running

PARTS = (
    "/studio/studio.js",
    "/studio/studio.css",
    "/studio/layout.worker.js",
    "/studio/icon.svg",
    "/studio/LICENSES.txt",
)
MOST_BYTES = 300_000  # of the first page, compressed


def test_the_page_and_its_parts_are_served(gateway: Running) -> None:
    with gateway.client() as client:
        page = client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "gradwire Studio" in page.text
        for part in PARTS:
            answer = client.get(part)
            assert answer.status_code == 200
            assert answer.content == (FOLDER / part[1:]).read_bytes()
        assert client.get("/studio/studio.js").headers["content-type"].startswith("text/javascript")


def test_the_policy_admits_only_files_of_the_gateway(gateway: Running) -> None:
    with gateway.client() as client:
        for path in ("/", *PARTS):
            assert client.get(path).headers["content-security-policy"] == POLICY
        assert client.get("/healthz").headers["content-security-policy"].startswith("default-src 'none'; base-uri")
    assert "unsafe" not in POLICY
    assert not re.search(r"https?:|\*|data:", POLICY)


def test_the_page_has_no_inline_script_and_names_no_other_host() -> None:
    page = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == [""]
    assert " on" not in re.sub(r"content=\"[^\"]*\"|>[^<]*<", "", page)
    assert "style=" not in page
    for path in FOLDER.rglob("*"):
        if path.suffix in (".html", ".css"):
            assert not re.search(r"https?://|//[a-z]", path.read_text()), path


@pytest.mark.parametrize("path", ["/studio/nothing.js", "/studio/..%2findex.html", "/studio/", "/studio/%2e%2e"])
def test_other_paths_have_nothing(gateway: Running, path: str) -> None:
    with gateway.client() as client:
        answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"


def test_a_browser_gets_compressed_files_and_the_first_page_is_small(gateway: Running) -> None:
    total = 0
    with gateway.client() as client:
        for path in ("/", *PARTS[:4]):
            with client.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
                assert answer.headers["content-encoding"] == "gzip"
                raw = b"".join(answer.iter_raw())
            assert gzip.decompress(raw)
            total += len(raw)
        assert "content-encoding" not in client.get("/", headers={"accept-encoding": "identity"}).headers
    assert total < MOST_BYTES


def test_pages_of_other_origins_do_not_get_it(gateway: Running) -> None:
    with gateway.client() as client:
        assert client.get("/", headers={"origin": "https://evil.example"}).status_code == 403
        assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 403
