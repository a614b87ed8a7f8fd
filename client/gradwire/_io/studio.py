"""studio: opens Studio, the page of a gateway, at the graph of a tensor, with the program's names and lines.

The gateway answers a code for the address. The page exchanges it once, so the session's secret is in no address.
"""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from gradwire._base.errors import GradwireError, GradwireTypeError, GradwireValueError
from gradwire._session.nodes import fetch_nodes
from gradwire._tensor.tensor import Tensor

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol
    from gradwire.v1 import commands_pb2

_SECONDS = 10.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MOST_CALLS = 2000  # each about a hundred bytes; a graph of more calls is not folded
_MOST_LINES = 2000  # each some hundred bytes; a handover has at most a megabyte


def studio(tensor: Tensor, url: str = "http://127.0.0.1:8080", show: bool = True) -> str:
    """Open Studio at the graph of a tensor; return the address, which works once and for two minutes.

    `url` is the gateway's, of `gradwire serve --web` or `gradwire studio`. `show=False` opens no browser. The page
    knows the names of parameters and the line that made each node. Raises TypeError, ValueError for an address where
    others could read the token, GradwireError if the gateway refuses or does not answer.
    """
    if not isinstance(tensor, Tensor):
        raise GradwireTypeError(f"studio() takes a tensor, but got {type(tensor).__name__}")
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in _LOOPBACK):
        raise GradwireValueError(f"studio() sends secrets, so it needs https or this machine, not {url!r}")
    tensor._fresh()
    base = url.rstrip("/")
    credentials = tensor._session._transport.credentials
    code = _post(f"{base}/handovers", dict(credentials.metadata), _handover(tensor))["code"]
    address = f"{base}/#/from/{code}"
    if show:
        webbrowser.open(address)
    return address


def _handover(tensor: Tensor) -> dict[str, Any]:
    """The session, the tensor, names by tensor, lines by node, and the calls of modules with the call of each node."""
    session = tensor._session
    _, nodes = fetch_nodes(session, [tensor])
    owners = {node.leaf.id: session.watched.get(node.leaf.id) for node in nodes if node.leaf.id}
    named = {str(number): getattr(each, "name", None) for number, each in owners.items()}
    names = {number: name for number, name in named.items() if isinstance(name, str)}
    lines = {str(node.id): line for node in nodes[:_MOST_LINES] if (line := session.made_at(node.command))}
    return {
        "session": session.session_id,
        "tensor": str(tensor._id),
        "names": names,
        "lines": lines,
        **_calls(session, nodes),
    }


def _calls(session: SessionProtocol, nodes: Sequence[commands_pb2.GraphNode]) -> dict[str, Any]:
    calls, inner = session.module_calls([node.command for node in nodes])
    if len(calls) > _MOST_CALLS:
        return {"calls": [], "callOf": {}}
    of_node = {str(node.id): inner[node.command] for node in nodes if node.command in inner}
    return {"calls": [asdict(call) for call in calls], "callOf": of_node}


def _post(url: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
    request = Request(url, json.dumps(body).encode(), {**headers, "content-type": "application/json"})
    try:
        with urlopen(request, timeout=_SECONDS) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except HTTPError as error:
        said = error.read()
        raise GradwireError(f"the gateway at {url} refuses: {_message(said) or error.reason}") from None
    except (URLError, OSError) as error:
        raise GradwireError(f"there is no gateway at {url}: {getattr(error, 'reason', error)}") from None


def _message(said: bytes) -> str:
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return ""
