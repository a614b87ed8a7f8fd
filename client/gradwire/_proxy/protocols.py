"""Protocols: the interfaces of the session and its callbacks, as used by proxies and higher packages.

The session's package is above the proxies, so this module cannot import its class.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from gradwire._proxy.draw_order import DrawOrder
from gradwire._proxy.memo import MemoEntry, Model
from gradwire._proxy.root_reads import RootReads
from gradwire._proxy.shadow_graph import HookHolders
from gradwire._transport.transport import Transport
from gradwire._transport.wire import Value
from gradwire.v1 import commands_pb2, service_pb2


class HookCallback(Protocol):
    """A callback of backward. It returns the replaced gradients, or None to keep them."""

    def __call__(self, hook_arguments: Any) -> Sequence[Any] | None:
        """Run the callback; `hook_arguments` is a `_graph.hook_runner.HookArguments`."""


class RecorderProtocol(Protocol):
    """Records the commands of a function that is being compiled (`_compile.recorder`)."""

    counters: dict[int, Callable[[int], None]]
    counted: dict[int, dict[str, Any]]
    becomes_program: bool

    def add_varying(self, key: object, value: float, now: Callable[[int], float]) -> float:
        """Record a number that differs between calls."""

    def add_arguments(self, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]]) -> None:
        """Record the arguments of an op."""

    def add_handle(self, handle: Any) -> None:
        """Record a new proxy."""

    def check(self, command: service_pb2.Command) -> None:
        """Refuse a command that no program can contain, before it is executed."""

    def add_command(self, command: service_pb2.Command, result: service_pb2.Result | None) -> None:
        """Record a command that succeeded with this result; without one, a command that does not wait."""

    def add_repeated(
        self, entry: MemoEntry, values: Sequence[Value], varying: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """Record a command like one that succeeded before: it does not wait."""

    def count_alike(self, state: dict[str, Any], other: dict[str, Any], names: Sequence[str]) -> None:
        """Let another state's numbers follow those of a state that counts updates."""

    def learn_answer(self, entry: MemoEntry) -> None:
        """Keep a command's answer for further ones with the same key, or with other sizes."""

    def known_answer(self, key: tuple[Any, ...], values: Sequence[Any]) -> MemoEntry | None:
        """What a command with this key and these values gives; None if it must wait."""

    @property
    def must_wait(self) -> bool:
        """Whether each command waits here for its answer."""

    def differentiates_surely(self, root: Any) -> bool:
        """Whether the server can refuse a first backward from a tensor for nothing but a lack of memory."""

    @property
    def models(self) -> Mapping[tuple[Any, ...], Model]:
        """What ops gave in the call, by the memo's keys without call sites, sizes and integers."""

    @property
    def plain_gradients(self) -> set[object]:
        """Families of tensors whose gradients are like the tensors, without history."""


class SegmentsProtocol(Protocol):
    """Replaces the commands of a compiled function by programs (`_compile.segments`)."""

    def close(self) -> None:
        """End the segment that is being made, since the buffered commands are about to be sent."""


class SessionProtocol(Protocol):
    """The session of a proxy (`_session.session.Session`)."""

    @property
    def address(self) -> str:
        """The address of the server that has the session."""

    every_call_waits: bool
    memo: dict[tuple[object, ...], MemoEntry]
    models: dict[tuple[object, ...], Model | None]
    buffer: deque[Any]
    released: deque[int]
    ids: Iterator[int]
    watched: WeakValueDictionary[int, Any]
    hooks: dict[int, HookCallback]
    hook_holders: HookHolders
    recorder: RecorderProtocol | None
    segments: SegmentsProtocol | None
    check_at: int
    root_reads: RootReads
    untracked_writes: int
    hidden_writes: int
    float_writes: int
    in_place_writes: int
    shares_memory: bool
    _session_id: str
    others_may_write: bool
    draws: DrawOrder
    remembered_nodes: int
    redescribed: dict[int, int]
    redescribed_any: int
    programs: OrderedDict[bytes, bytes | None]
    _transport: Transport
    _unusable: Any

    @property
    def session_id(self) -> str:
        """The session's id on the server."""

    @property
    def limits(self) -> service_pb2.Limits:
        """The limits sent by the server."""

    def post(self, command: bytes, entry: MemoEntry) -> None:
        """Buffer a framed, quiet command."""

    def post_op(self, entry: MemoEntry, values: Sequence[Value]) -> None:
        """Buffer an op that succeeded before."""

    def post_large(self, command: bytes, entry: MemoEntry) -> None:
        """Buffer a framed, quiet command with many bytes."""

    def flush_if_full(self) -> None:
        """Send a batch, unless it should grow; called at `check_at` buffered commands."""

    def end_step(self) -> None:
        """Send whole training steps, if enough wait; called when a backward was buffered."""

    def flush(self) -> None:
        """Send all buffered commands."""

    def flush_early(self) -> None:
        """Send the buffered commands early."""

    def remember(self, entry: MemoEntry) -> None:
        """Store an entry, so the next execution of its command is deferred."""

    def remember_model(self, model: Model) -> None:
        """Store a model, so calls with other numbers and sizes than the first are deferred."""

    def wait(
        self,
        command: service_pb2.Command,
        outputs: tuple[int, ...] = (),
        meanwhile: Callable[[], object] | None = None,
    ) -> service_pb2.Result:
        """Send a command after all buffered ones, call `meanwhile`, and wait for the answer."""

    def begin_backward(self) -> None:
        """Note that a backward is about to be sent."""

    def post_recorded(self, command: service_pb2.Command, entry: MemoEntry) -> None:
        """Record a command whose answer is known, and buffer it."""

    def issue(self, command: service_pb2.Command) -> Callable[[], service_pb2.Result]:
        """Send a command after all buffered ones; return the function that waits for its answer."""

    def abandon(self, command: service_pb2.Command) -> None:
        """Send a command that abandons a suspended backward."""

    def raise_if_unusable(self) -> None:
        """Raise the error that made the session unusable, if there was one."""

    def sync(self) -> None:
        """Wait until all issued commands are done."""

    def describe(self) -> commands_pb2.DescribeResponse:
        """The number of tensors with an id in the session, and the bytes they hold."""

    def made_at(self, number: int) -> str | None:
        """The line of the program that issued a command."""

    def next_command(self) -> int:
        """The number that the next command gets."""

    def note_module_call(self, first: int, owner: Any, kind: str) -> None:
        """Note that a module's call issued the commands from `first` on."""

    def module_calls(self, numbers: Sequence[int]) -> tuple[tuple[Any, ...], dict[int, int]]:
        """The calls of modules that issued commands, and the innermost by command."""

    def replace_buffered(self, first: int, replace: Callable[[Sequence[Any]], Sequence[Any]]) -> int:
        """Let `replace` change the commands buffered from position `first` on."""

    def position(self) -> int:
        """The position of the next command."""

    def drop_released(self, ids: Sequence[int]) -> None:
        """Forget the releases of ids that the server never gets to know."""

    def note_program(self, name: bytes, data: bytes | None) -> None:
        """Note that the server has a program."""

    def upload(self, data: memoryview) -> str:
        """Upload a large tensor's bytes."""

    def download(self, transfer_id: str, into: memoryview) -> None:
        """Download a large tensor's bytes."""

    def __enter__(self) -> Any:
        """Make it the session of new tensors."""

    def __exit__(self, *exc: object) -> None:
        """Restore the previous session of new tensors."""
