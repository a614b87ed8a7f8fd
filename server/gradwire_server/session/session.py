"""A session: its tensors by id, poisoned ids, each writer's progress, and the engine's contexts.

Only the compute thread uses a session, with two exceptions. The control thread writes attributes of the cancel token,
which are plain values and only grow, and accesses transfers' bytes. The front keeps leases and numbers the writers.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeAlias

from gradwire.v1 import types_pb2
from gradwire_engine import Account, Command, Context, Tensor
from gradwire_engine import Generator as RandomGenerator
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.dtypes import FLOAT, category, name_of
from gradwire_engine.graph.graph import AccumulateGrad
from gradwire_server.common import engine_errors  # noqa: F401 - the import teaches refusal_of the engine's exceptions
from gradwire_server.common.budgets import Budget
from gradwire_server.common.errors import Refusal
from gradwire_server.common.limits import Limits
from gradwire_server.common.payload import dtype_of
from gradwire_server.common.protocol import EPOCH
from gradwire_server.common.shared_counters import PrincipalTotals
from gradwire_server.session.meter import Meter
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.failures import Failure
from gradwire_server.session.state.graphs import Snapshots
from gradwire_server.session.state.hook_table import HookTable
from gradwire_server.session.state.response_cache import Memory, Recall, Recalled
from gradwire_server.session.state.transfers import Transfers
from gradwire_server.session.writers import WRITER_SHIFT, Writer

Answered: TypeAlias = "Callable[[bytes, Exception | None], None]"

CLIENT_IDS = 1 << 52  # clients choose ids below; the server chooses ids from here to twice as much
MAX_POISON = 100_000
_MAX_QUOTE = 400
_DISABLED = types_pb2.GRAD_MODE_DISABLED


class Doing(Command):
    """The command that a session executes, with session and principal, for the log."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.names: Mapping[int, tuple[str, str]] = {}

    def told(self) -> dict[str, Any]:
        """Details for a log line; a unary call has no seq."""
        session, principal = self.names.get(self.key, ("", ""))
        writer, seq = divmod(self.number, 1 << WRITER_SHIFT)
        about = {"session": session, "principal": principal, "number": self.key}
        return {**about, "writer": writer, "seq": seq} if seq else about


class Stored(Protocol):
    """A session's interface to its stored files (storage/kept.py)."""

    def use(self) -> None:
        """Note that the session is about to apply commands that no file contains. Raises Refusal: STORAGE."""


class Noted(Protocol):
    """What a session's log records besides commands (storage/write_ahead_log.py)."""

    def retried(self, session: "Session") -> None:
        """Note that the running command is tried a second time."""

    def refused(self, session: "Session", seq: int, refusal: Refusal) -> None:
        """Note a refused command."""


class Session:
    """The state behind a session id. Ids map to engine tensors; several ids may name one tensor."""

    def __init__(self, key: int, limits: Limits, cancel_token: CancelToken) -> None:
        self.key = key
        self.limits = limits
        self.epoch = EPOCH
        self.line: deque[Pending] = deque()  # calls that wait for their turn, in order
        self.parked: list[Pending] = []  # batches that arrived before their predecessor
        self.turn_ends = 0.0
        self.used = 0.0  # seconds computed, less idle time at a rate (worker/scheduler.py)
        self.idle_since = 0.0
        self.credit = 0.0  # seconds left of the turn; negative: taken from other sessions
        self.budget: Budget | None = None
        self.rests = False  # whether it waits for its compute quota
        self.left = False  # whether it computed aside in the current slice
        self.waited = 0.0  # seconds of the slice in which it did not compute
        self.writers: dict[int, Writer] = {}
        self.recalled = Recalled()
        self.memory = Memory(limits.remembered_bytes // 2, limits.remembered_responses)
        self.max_tensors = limits.max_session_tensors
        self.max_programs = limits.max_programs
        self.store: dict[int, Tensor] = {}
        self.names: dict[Tensor, int] = {}
        self.leaving: Sequence[int] = ()  # ids to release once the answer is sent
        self.aliases: dict[Tensor, set[int]] = {}
        self.poison: OrderedDict[int, Failure] = OrderedDict()
        self.next_id = CLIENT_IDS
        operations = limits.max_op_operations or math.inf
        self.account = cancel_token.account = Account(limit=limits.max_session_bytes, operations=operations)
        self.transfers = Transfers(self.account)
        self.snapshots = Snapshots()
        self.programs: OrderedDict[bytes, Any] = OrderedDict()  # the most recently run is last
        self.hooks = HookTable()
        self.broken: Refusal | None = None  # why it could not be restored, or cannot continue
        self.torn = False  # part of a call was applied that is neither answered nor logged
        self.kept: Stored | None = None  # its stored files; None if it is not stored
        self.notes: Noted | None = None  # refusals and retries for its log; None without a log
        self.place = 0  # of its principal in the shared counters; 0 without a quota
        self.told = PrincipalTotals()  # its usage as last published in the shared counters
        self.owner = 0  # its principal's number; 0 without a principal
        self.cancel_token = cancel_token
        self.meter: Meter | None = None  # the worker's, if it counts
        self.alone = 0  # commands applied by unary calls
        self.computed = 0.0  # seconds
        self.inline_left = 0  # bytes of values that the current response may still hold
        self.command = Doing(key)
        self.recording = Context(
            account=self.account, generator=RandomGenerator(), interrupt=self.cancel_token, command=self.command
        )
        self.not_recording = replace(self.recording, grad_enabled=False)
        self.inferring = replace(self.not_recording, inference=True)
        self.current = self.recording
        self.contexts: dict[tuple[int, int], Context] = {}

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        """Engine context for a grad mode and default dtype. Raises Refusal: ARGUMENT_VALUE, DTYPE."""
        if default_dtype:
            return self._with_default(grad_mode, default_dtype)
        if grad_mode < _DISABLED:
            return self.recording
        if grad_mode == types_pb2.GRAD_MODE_INFERENCE:
            return self.inferring
        if grad_mode != _DISABLED:
            raise Refusal("ARGUMENT_VALUE", f"there is no grad_mode {grad_mode}", argument="grad_mode")
        return self.not_recording

    def _with_default(self, grad_mode: int, default_dtype: int) -> Context:
        known = self.contexts.get((grad_mode, default_dtype))
        if known is None:
            dtype = dtype_of(default_dtype)
            if category(dtype) != FLOAT:
                raise Refusal(
                    "ARGUMENT_VALUE",
                    f"only floating-point types are supported as the default type, not {name_of(dtype)}",
                    argument="default_dtype",
                )
            known = replace(self.context(grad_mode), default_dtype=dtype)
            self.contexts[grad_mode, default_dtype] = known
        return known

    def enter(self, context: Context) -> None:
        """Activate a context for the following ops."""
        if context is not self.current:
            CURRENT.set(context)
            self.current = context

    @property
    def commands(self) -> int:
        """Number of commands applied or refused. Thread-safe."""
        return self.alone + sum(writer.applied for writer in list(self.writers.values()))

    def attach(self, number: int) -> None:
        """Add a writer; the front numbers writers."""
        recall = Recall(self.limits.remembered_bytes // 2, self.limits.remembered_responses, self.recalled)
        self.writers[number] = Writer(number, recall)

    def writer(self, number: int) -> Writer:
        """The writer of that number. Raises Refusal: ARGUMENT_VALUE."""
        writer = self.writers.get(number)
        if writer is None:
            raise Refusal(
                "ARGUMENT_VALUE", f"the session has no writer {number}; OpenSession gives one", argument="writer"
            )
        return writer

    def tensor(self, tensor_id: int) -> Tensor:
        """The tensor of that id. Raises Refusal: TENSOR_NOT_FOUND, DEPENDENCY_FAILED."""
        found = self.store.get(tensor_id)
        if found is None:
            raise self.missing(tensor_id)
        return found

    def tensors(self, ids: Iterable[int]) -> list[Tensor]:
        """The tensors of those ids. Raises Refusal as `tensor` does."""
        return [self.tensor(tensor_id) for tensor_id in ids]

    def number(self, place: int) -> NoReturn:
        """Refuse an input number, which exists only in a program's run. Raises Refusal: ARGUMENT_TYPE."""
        raise Refusal("ARGUMENT_TYPE", f"number {place}: only a step of a program takes the numbers of its run")

    def missing(self, tensor_id: int) -> Refusal:
        """Refusal for an id without a tensor: DEPENDENCY_FAILED or TENSOR_NOT_FOUND."""
        failure = self.poison.get(tensor_id)
        if failure is None:
            return Refusal("TENSOR_NOT_FOUND", f"no tensor {tensor_id} in this session", tensor=tensor_id)
        return Refusal(
            "DEPENDENCY_FAILED",
            f"tensor {tensor_id} was to come of command {failure.seq}, which failed: {failure.message}",
            root_seq=failure.seq,
            tensor=tensor_id,
            root_reason=failure.reason,
            root_writer=failure.writer,
        )

    def check_new(self, tensor_id: int) -> None:
        """Check that an id can name a new tensor. Raises Refusal: TENSOR_EXISTS, ARGUMENT_VALUE, TENSOR_LIMIT."""
        store = self.store
        if tensor_id not in store and tensor_id < CLIENT_IDS and len(store) < self.max_tensors:
            return
        if tensor_id in store:
            raise Refusal("TENSOR_EXISTS", f"the session has a tensor {tensor_id} already", tensor=tensor_id)
        if tensor_id >= CLIENT_IDS:
            raise Refusal(
                "ARGUMENT_VALUE", f"a client chooses ids below 2^52, not {tensor_id}", argument="id", tensor=tensor_id
            )
        self.check_room(1)

    def check_room(self, count: int) -> None:
        """Check that `count` more tensors can be named. Raises Refusal: TENSOR_LIMIT."""
        limit, held = self.max_tensors, len(self.store)
        if held + count > limit:
            raise Refusal(
                "TENSOR_LIMIT",
                f"the session names at most {limit} tensors; {held} and {count} more are over it",
                limit=limit,
            )

    def check_all_new(self, ids: Sequence[int]) -> None:
        """Check ids as `check_new` does, for several or no new tensors; the server chooses an id for 0."""
        seen: set[int] = set()
        self.check_room(max(1, len(ids)))
        for tensor_id in ids:
            if tensor_id and tensor_id in seen:
                raise Refusal("TENSOR_EXISTS", f"id {tensor_id} is given to two results", tensor=tensor_id)
            self.check_new(tensor_id)
            seen.add(tensor_id)

    def bind(self, tensor_id: int, tensor: Tensor) -> int:
        """Name a tensor by an id, for 0 one that the server chooses. Call `check_new` first."""
        if not tensor_id:
            tensor_id = self.next_id
            self.next_id += 1
        self.store[tensor_id] = tensor
        if self.names.setdefault(tensor, tensor_id) != tensor_id:
            self.aliases.setdefault(tensor, {self.names[tensor]}).add(tensor_id)
        if self.poison:
            self.poison.pop(tensor_id, None)
        return tensor_id

    def allot(self, ids: Sequence[int], count: int) -> list[int]:
        """Ids for `count` new tensors: the client's, or the server's where the client gave none or 0."""
        allotted = list(ids) + [0] * (count - len(ids))
        for place, tensor_id in enumerate(allotted):
            if not tensor_id:
                allotted[place] = self.next_id
                self.next_id += 1
        return allotted

    def release(self, tensor_id: int) -> bool:
        """Forget an id; return whether it named a tensor."""
        tensor = self.store.pop(tensor_id, None)
        if tensor is None:
            if self.poison:
                self.poison.pop(tensor_id, None)
            return False
        others = self.aliases.get(tensor) if self.aliases else None
        if others is None:
            del self.names[tensor]
            return True
        others.discard(tensor_id)
        self.names[tensor] = min(others)
        if len(others) == 1:
            del self.aliases[tensor]
        return True

    def release_all(self, ids: Iterable[int]) -> int:
        """Forget ids; return how many named a tensor."""
        if self.aliases or self.poison:
            return sum([self.release(tensor_id) for tensor_id in ids])
        forget, names = self.store.pop, self.names
        released = 0
        for tensor_id in ids:
            tensor = forget(tensor_id, None)
            if tensor is not None:
                del names[tensor]
                released += 1
        return released

    def let_go(self) -> None:
        """Forget the ids in `leaving`."""
        leaving, self.leaving = self.leaving, ()
        self.release_all(leaving)

    def ids_of(self, tensors: Iterable[Tensor]) -> list[int]:
        """All ids that name these tensors."""
        ids: list[int] = []
        for tensor in tensors:
            name = self.names.get(tensor)
            if name is not None:
                ids.extend(sorted(self.aliases[tensor]) if tensor in self.aliases else (name,))
        return ids

    def poison_ids(self, ids: Iterable[int], refusal: Refusal, seq: int, writer: int) -> None:
        """Poison the ids of a failed command's results with their root cause."""
        if refusal.reason == "DEPENDENCY_FAILED":
            root = int(refusal.metadata["tensor"])
            failure = self.poison.get(root)
        else:
            failure = None
        if failure is None:
            failure = Failure(seq, writer, refusal.reason, refusal.message[:_MAX_QUOTE])
        for tensor_id in ids:
            if tensor_id and tensor_id not in self.store:
                self.poison[tensor_id] = failure
        while len(self.poison) > MAX_POISON:
            self.poison.popitem(last=False)

    def gone_hooks(self, number: int) -> "deque[int]":
        """Queue for the number of a dropped hook: its writer's, or a dummy if there is no such writer."""
        writer = self.writers.get(number >> WRITER_SHIFT)
        return deque(maxlen=0) if writer is None else writer.dropped.gone

    def leaf_id(self, node: AccumulateGrad) -> int:
        """Id of the leaf tensor of a node, or 0."""
        return self.names.get(node.variable, 0)

    def drop(self) -> int:
        """Free everything and break reference cycles made by `create_graph`; return the bytes held before."""
        held = self.account.bytes
        self.transfers.clear()
        for tensor in self.store.values():
            if tensor.state is not None:
                tensor.state.grad = None
        self.store.clear()
        self.names.clear()
        self.aliases.clear()
        self.poison.clear()
        self.snapshots.clear()
        self.programs.clear()
        self.hooks.clear()
        self.memory.clear()
        self.writers.clear()
        return held


@dataclass(slots=True, eq=False)
class Pending:
    """A call that has arrived and is not answered. Tickets rise in the order of arrival.

    `sent`, by time.monotonic(), is when the front passed the call on; `queued` is the seconds until it began. `steps`
    is the rest of a begun call; `give_up` is when a parked call times out.
    """

    method: str
    session: Session
    raw: bytes
    ticket: int
    deadline: float | None = None
    sent: float = 0.0
    queued: float = 0.0
    resumed: float = 0.0  # when the current step began
    computed: float = 0.0
    size: int = 1  # commands
    steps: "Generator[None, None, bytes] | None" = None
    give_up: float | None = None
    #: Set if the answer waits for the disk: takes the callback for that time, and the answer.
    hold: "Callable[[Answered, bytes], None] | None" = None
