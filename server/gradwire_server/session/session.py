"""A session: its tensors by id, each writer's progress, the engine's contexts, and its state for the worker.

Only the compute thread uses a session, with two exceptions. The control thread writes attributes of the cancel token,
which are plain values and only grow, and accesses transfers' bytes. The front keeps leases and numbers the writers.
"""

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias

from gradwire.v1 import types_pb2
from gradwire_engine import Account, Command, Context
from gradwire_engine import Generator as RandomGenerator
from gradwire_engine.autograd.repeated_backward import PassMemo
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.core.context import CURRENT
from gradwire_engine.core.dtypes import FLOAT, category, name_of
from gradwire_server.common import engine_errors  # noqa: F401 - the import teaches refusal_of the engine's exceptions
from gradwire_server.common.errors import Refusal
from gradwire_server.common.futures import Steps
from gradwire_server.common.limits import Limits
from gradwire_server.common.payload import dtype_of
from gradwire_server.common.protocol import EPOCH
from gradwire_server.session.prepared.repeats import RepeatRoom
from gradwire_server.session.prepared.steps import StepMemo
from gradwire_server.session.prepared.templates import Templates
from gradwire_server.session.state.activity import Activity
from gradwire_server.session.state.cancel_token import CancelToken
from gradwire_server.session.state.durability import Durability
from gradwire_server.session.state.graph_walks import GraphWalks
from gradwire_server.session.state.group_table import GroupTable
from gradwire_server.session.state.hook_table import HookTable
from gradwire_server.session.state.op_trace import OpTrace
from gradwire_server.session.state.response_cache import BatchResponses, CachedBytes, ResponseCache
from gradwire_server.session.state.schedule import SchedulingState
from gradwire_server.session.state.tensor_table import TensorTable
from gradwire_server.session.state.transfers import Transfers
from gradwire_server.session.state.usage import Usage
from gradwire_server.session.writers import WRITER_SHIFT, Writer

AnswerCallback: TypeAlias = "Callable[[bytes, Exception | None], None]"

_DISABLED = types_pb2.GRAD_MODE_DISABLED


class RunningCommand(Command):
    """The command that a session executes, with session and principal, for the log."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.session = ""  # the part of the session's id that logs may contain
        self.principal = ""

    @property
    def seq(self) -> int:
        """The command's seq in its writer's order; 0 for a unary call."""
        return self.number & ((1 << WRITER_SHIFT) - 1)

    def log_fields(self) -> dict[str, Any]:
        """Details for a log line; a unary call has no seq."""
        writer, seq = divmod(self.number, 1 << WRITER_SHIFT)
        about = {"session": self.session, "principal": self.principal, "number": self.key}
        return {**about, "writer": writer, "seq": seq} if seq else about


class Session(TensorTable):
    """The state behind a session id: a `TensorScope` whose ids last until they are released.

    The session has what commands change: tensors, writers, programs, hooks, transfers, the random generator. What the
    worker keeps about it is in `schedule`, `usage` and `durability`; each of them names who writes it.

    Invariants: `current` is the active context while a command runs. A writer's seqs are applied in order, each once.
    """

    def __init__(self, key: int, limits: Limits, cancel_token: CancelToken) -> None:
        super().__init__(limits.max_session_tensors)
        self.key = key
        self.limits = limits
        self.epoch = EPOCH
        self.schedule: SchedulingState[PendingCall] = SchedulingState()
        self.usage = Usage()
        self.activity = Activity()
        self.durability = Durability()
        self.writers: dict[int, Writer] = {}
        self.cached_bytes = CachedBytes()
        self.response_cache = ResponseCache(limits.remembered_bytes // 2, limits.remembered_responses)
        self.max_programs = limits.max_programs
        operations = limits.max_op_operations or math.inf
        self.account = cancel_token.account = Account(limit=limits.max_session_bytes, operations=operations)
        self.transfers = Transfers(self.account)
        self.graph_walks = GraphWalks()
        self.passes: PassMemo | None = PassMemo()
        self.steps: StepMemo | None = StepMemo()
        self.repeat_room = RepeatRoom()
        self.kept_ids: list[int] = []  # unused ids that are not released before a step is noted
        self.templates = Templates()
        self.programs: OrderedDict[bytes, Any] = OrderedDict()  # the most recently run is last
        self.hooks = HookTable()
        self.cancel_token = cancel_token
        self.groups = GroupTable(key, self.account, cancel_token, self.durability)
        self.unary_commands = 0  # commands applied by unary calls
        #: Of the last long step of the batch that was computed at once: its commands and seconds.
        self.joined: tuple[int, float] | None = None
        self.inline_left = 0  # bytes of values that the current response may still hold
        self.command = RunningCommand(key)
        durability = self.durability
        self.grad_context = Context(
            account=self.account,
            generator=RandomGenerator(),
            interrupt=self.cancel_token,
            command=self.command,
            # A replay of the log must repeat every bit, perhaps on another machine.
            loops=SessionLoops(lambda: durability.log_notes is None),
        )
        self.no_grad_context = replace(self.grad_context, grad_enabled=False)
        self.inference_context = replace(self.no_grad_context, inference=True)
        self.current = self.grad_context
        self.contexts: dict[tuple[int, int], Context] = {}

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        """Engine context for a grad mode and default dtype. Raises Refusal: ARGUMENT_VALUE, DTYPE."""
        if default_dtype:
            return self._with_default(grad_mode, default_dtype)
        if grad_mode < _DISABLED:
            return self.grad_context
        if grad_mode == types_pb2.GRAD_MODE_INFERENCE:
            return self.inference_context
        if grad_mode != _DISABLED:
            raise Refusal("ARGUMENT_VALUE", f"there is no grad_mode {grad_mode}", argument="grad_mode")
        return self.no_grad_context

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

    def expect_repeats(self, expected: bool) -> None:
        """Whether the next commands may come again one by one. Else nothing is made ready to repeat them."""
        self.repeat_room.is_open = expected
        if self.passes is not None:
            self.passes.notes = expected

    def choose_watch(self) -> None:
        """Begin a call of a watched session: its ops are counted, or are not."""
        times = self.activity.watched
        if times is not None:
            chosen = times.choose()
            self.activity.op_times = times if chosen else None
            self.cancel_token.node_began = times.node if chosen else None

    def begin_trace(self) -> OpTrace:
        """Time each op of a batch, in place of a watch."""
        earlier = self.activity.watched
        if earlier is not None:
            earlier.pause()
        trace = OpTrace(earlier)
        self.activity.watched = trace
        self.choose_watch()
        return trace

    def end_trace(self, trace: OpTrace) -> None:
        """End a trace, and go on with the watch that it replaced."""
        trace.pause()
        self.activity.watched = trace.earlier
        self.activity.op_times = self.cancel_token.node_began = None
        if trace.earlier is not None:
            trace.earlier.resume()

    def pause_watch(self) -> None:
        """Count no op times while others compute; end the watch that no client has asked for lately."""
        times = self.activity.watched
        if times is not None:
            times.pause()
            if time.monotonic() > times.ends:
                self.activity.watched = self.activity.op_times = self.cancel_token.node_began = None

    @property
    def commands(self) -> int:
        """Number of commands applied or refused. Thread-safe."""
        return self.unary_commands + sum(writer.applied for writer in list(self.writers.values()))

    def attach(self, number: int) -> None:
        """Add a writer; the front numbers writers."""
        responses = BatchResponses(
            self.limits.remembered_bytes // 2, self.limits.remembered_responses, self.cached_bytes
        )
        self.writers[number] = Writer(number, responses)

    def writer(self, number: int) -> Writer:
        """The writer of that number. Raises Refusal: ARGUMENT_VALUE."""
        writer = self.writers.get(number)
        if writer is None:
            raise Refusal(
                "ARGUMENT_VALUE", f"the session has no writer {number}; OpenSession gives one", argument="writer"
            )
        return writer

    def number(self, index: int) -> NoReturn:
        """Refuse an input number, which exists only in a program's run. Raises Refusal: ARGUMENT_TYPE."""
        raise Refusal("ARGUMENT_TYPE", f"number {index}: only a step of a program takes the numbers of its run")

    def issuer(self) -> Writer:
        """The writer of the batch's command in progress."""
        return self.writers[self.command.number >> WRITER_SHIFT]

    def dropped_hook_queue(self, number: int) -> "deque[int]":
        """Queue for the number of a dropped hook: its writer's, or a dummy if there is no such writer."""
        writer = self.writers.get(number >> WRITER_SHIFT)
        return deque(maxlen=0) if writer is None else writer.dropped.numbers

    def drop(self) -> int:
        """Free everything and break reference cycles made by `create_graph`; return the bytes held before."""
        held = self.account.bytes
        self.transfers.clear()
        self.groups.clear()
        self.clear()
        self.graph_walks.clear()
        self.programs.clear()
        self.templates.drop()
        self.hooks.clear()
        self.response_cache.clear()
        self.writers.clear()
        return held


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call that has arrived and is not answered. Tickets rise in the order of arrival.

    `sent`, by time.monotonic(), is when the front passed the call on; `queued` is the seconds until it began. `steps`
    is the rest of a begun call; `park_deadline` is when a parked call times out.
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
    steps: Steps[bytes] | None = None
    park_deadline: float | None = None
    #: Set if the answer waits for the disk: takes the callback for that time, and the answer.
    hold: "Callable[[AnswerCallback, bytes], None] | None" = None
