"""What proxies, and all that is built on them, know of their session and of what it calls back.

The session stands above the proxies, so its class cannot be named here.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from gradwire._proxy.memo import Entry
from gradwire._transport.transport import Transport
from gradwire._transport.wire import Value
from gradwire.v1 import commands_pb2, service_pb2


class Runner(Protocol):
    """Something that backward may ask for: the answer is the gradients from now on, None where they stay."""

    def __call__(self, asked: Any) -> Sequence[Any] | None:
        """Run it; `asked` is a `_graph.hook_runner.Asked`."""


class Recorder(Protocol):
    """What notes the commands of a function that is being compiled (`_compile.recorder`)."""

    counters: dict[int, Callable[[int], None]]

    def vary(self, key: object, value: float, now: Callable[[int], float]) -> float:
        """Note a number that another call has another value of."""

    def see(self, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]]) -> None:
        """Note the arguments of an op."""

    def born(self, handle: Any) -> None:
        """Note a new proxy."""

    def check(self, command: service_pb2.Command) -> None:
        """Refuse what no program holds, before it is done."""

    def note(self, command: service_pb2.Command, result: service_pb2.Result) -> None:
        """Note a command that went well."""


class Session(Protocol):
    """The session of a proxy (`_session.session.Session`)."""

    address: str
    every_call_waits: bool
    memo: dict[tuple[object, ...], Entry]
    buffer: deque[Any]
    released: deque[int]
    ids: Iterator[int]
    watched: WeakValueDictionary[int, Any]
    hooks: dict[int, Runner]
    recorder: Recorder | None
    programs: OrderedDict[bytes, None]
    _transport: Transport
    _unusable: Any

    @property
    def session_id(self) -> str:
        """What the server knows the session by."""

    @property
    def limits(self) -> service_pb2.Limits:
        """The limits that the server told."""

    def post(self, command: bytes, entry: Entry) -> None:
        """Send a framed, quiet command some time soon."""

    def post_op(self, entry: Entry, values: Sequence[Value]) -> None:
        """Send an op that has succeeded before some time soon."""

    def post_large(self, command: bytes, entry: Entry) -> None:
        """Send a framed, quiet command that carries many bytes."""

    def press(self) -> None:
        """Send a batch, unless it should grow while others are under way."""

    def urge(self) -> None:
        """Send soon what is buffered."""

    def remember(self, entry: Entry) -> None:
        """Let the next execution of a command go without waiting."""

    def wait(self, command: service_pb2.Command, outputs: tuple[int, ...] = ()) -> service_pb2.Result:
        """Send a command with all that is buffered and wait for its answer."""

    def abandon(self, command: service_pb2.Command) -> None:
        """Let the server drop what was to be gone on with."""

    def sync(self) -> None:
        """Wait until everything issued so far is done."""

    def describe(self) -> commands_pb2.DescribeResponse:
        """How many tensors the session names and how many bytes they hold."""

    def made_at(self, number: int) -> str | None:
        """The line of this program that issued a command."""

    def upload(self, data: memoryview) -> str:
        """Bring a large tensor's bytes to the server."""

    def download(self, transfer_id: str, into: memoryview) -> None:
        """Fetch a large tensor's bytes."""

    def __enter__(self) -> Any:
        """Make it the session of new tensors."""

    def __exit__(self, *exc: object) -> None:
        """Undo that."""
