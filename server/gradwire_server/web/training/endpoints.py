"""Training: answers Studio's page about the event files below the gateway's `--logdir`.

All callers whom the server admits see all runs. A run is looked up by its name among those that were found, so no name
is ever a path. Files are read by one thread, and only when a page asks.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.responses import Response

from gradwire_server.common.errors import Refusal
from gradwire_server.web.bodies import read_body
from gradwire_server.web.gateway import Gateway, HttpRequest
from gradwire_server.web.status import http_refusal
from gradwire_server.web.training.event_files import EventFiles

MOST_BYTES = 64 << 10
MOST_SERIES = 64  # of one request

T = TypeVar("T")


class TrainingEndpoints:
    """The three endpoints of the page. Without a folder the list says so."""

    def __init__(self, logdir: str) -> None:
        self._files = EventFiles(logdir) if logdir else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="event-files")

    async def list(self, gateway: Gateway, request: HttpRequest) -> None:
        """Answer the runs and their tags. Raises Refusal, AioRpcError for an unknown token."""
        await _asked(gateway, request)
        files = self._files
        if files is None:
            await request.answer(_json({"configured": False, "runs": [], "problems": [], "more": False}))
            return

        def look() -> Response:
            files.look()
            return _json({"configured": True, **files.listing()})

        await request.answer(await self._call(look))

    async def read(self, gateway: Gateway, request: HttpRequest) -> None:
        """Answer the points of series, in order; null for those that there are not. Raises Refusal, AioRpcError."""
        wanted = _series(await _asked(gateway, request))
        files = self._wanted_files()
        answer = await self._call(lambda: _json({"series": [files.points(*each) for each in wanted]}))
        await request.answer(answer)

    async def image(self, gateway: Gateway, request: HttpRequest) -> None:
        """Answer an image as it was written. Raises Refusal, AioRpcError."""
        asked = await _asked(gateway, request)
        run, tag, step = asked.get("run"), asked.get("tag"), asked.get("step")
        if not (isinstance(run, str) and isinstance(tag, str) and type(step) is int):
            raise Refusal("MALFORMED", "an image has a run, a tag and a step")
        files = self._wanted_files()
        found = await self._call(lambda: files.image(run, tag, step))
        if found is None:
            raise http_refusal(404, "ARGUMENT_VALUE", "there is no such image")
        await request.answer(Response(found, media_type="application/octet-stream"))

    def _wanted_files(self) -> EventFiles:
        if self._files is None:
            raise http_refusal(404, "NOT_SUPPORTED", "the gateway has no --logdir")
        return self._files

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _asked(gateway: Gateway, request: HttpRequest) -> dict[str, Any]:
    """The body of a caller whom the server admits: a JSON object. Raises Refusal, AioRpcError."""
    caller = gateway.access.caller(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise http_refusal(415, "MALFORMED", "the request is a JSON object")
    async with gateway.upstream.user(caller.token):
        await gateway.upstream.limits(caller.token)  # no other call would tell that the token is revoked by now
        body = await read_body(request, MOST_BYTES, gateway.options.body_seconds)
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise Refusal("MALFORMED", "the request is a JSON object")
    return asked


def _series(asked: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Kind, run and tag of the wanted series. Raises Refusal: MALFORMED."""
    wanted = asked.get("series")
    if not isinstance(wanted, list) or len(wanted) > MOST_SERIES:
        raise Refusal("MALFORMED", f"series is a list of at most {MOST_SERIES}")
    for each in wanted:
        if not (isinstance(each, list) and len(each) == 3 and all(isinstance(name, str) for name in each)):
            raise Refusal("MALFORMED", "each of the series is [kind, run, tag]")
    return [(kind, run, tag) for kind, run, tag in wanted]


def _json(told: dict[str, Any]) -> Response:
    """JSON in ASCII, since names of files may be no UTF-8. Megabytes take long: never on the loop."""
    return Response(json.dumps(told, allow_nan=False), media_type="application/json")
