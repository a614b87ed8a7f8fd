"""Pages: Studio's built files (client/studio), read once and served with their own security headers.

Its scripts and styles are files of this origin. The browser refuses inline scripts, other origins, and text used as
markup (Trusted Types), so a name chosen by another user cannot become code.
"""

import gzip
from pathlib import Path

from starlette.responses import Response

from gradwire_server.web.gateway import Gateway, HttpRequest
from gradwire_server.web.status import http_refusal

FOLDER = Path(__file__).with_name("static")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types studio"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class _Page:
    """A file, as it is and compressed."""

    def __init__(self, path: Path) -> None:
        self.type = _TYPES[path.suffix]
        self.plain = path.read_bytes()
        self.compressed = gzip.compress(self.plain, mtime=0)


class Pages:
    """Studio's files by their path below the gateway's address. Reads them all at once. Raises OSError."""

    def __init__(self, folder: Path = FOLDER) -> None:
        names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        self._pages = {f"/{name}": _Page(path) for name, path in names.items()}
        self._pages["/"] = self._pages.pop("/index.html")

    async def __call__(self, gateway: Gateway, request: HttpRequest) -> None:
        """Answer a GET. Raises Refusal: NOT_SUPPORTED for an unknown path."""
        page = self._pages.get(request.scope["path"])
        if page is None:
            raise http_refusal(404, "NOT_SUPPORTED", "there is nothing at this path")
        headers = {"content-type": page.type, "content-security-policy": POLICY}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            await request.answer(Response(page.compressed, headers=headers))
        else:
            await request.answer(Response(page.plain, headers=headers))
