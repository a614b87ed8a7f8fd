"""Programs: registers and checks programs, which one command then runs.

Registration decodes every step and checks everything that does not depend on tensors. Slots must be set once and before
their use; ops must exist and accept their arguments; numbers must be among the run's. A run binds the inputs and
executes each step with the handler of the same command outside of programs (interpreter.py).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from google.protobuf.message import DecodeError

from gradwire.v1 import programs_pb2
from gradwire.v1.command_facts import FACTS
from gradwire_engine import EngineError
from gradwire_engine.core.device import CPU, canonical
from gradwire_engine.core.dtypes import float64
from gradwire_engine.graph.tensor import Storage
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import dtype_of
from gradwire_server.session.arguments import NamedOp, named_op
from gradwire_server.session.rules import Rules

if TYPE_CHECKING:
    from gradwire_engine.compile.plan import Plan
    from gradwire_engine.core.dtypes import DType
    from gradwire_server.session.session import Session

MAX_SLOT = 1 << 31
HASH_BYTES = 32
# Estimated memory of a decoded program per serialized byte; counted in the session's bytes.
_DECODED = 16
_GATHERED = frozenset(("add",))  # ops whose in-place forms are updates (the engine's ops/base/updates.py)


class Slot(int):
    """A slot, as the placeholder of a run's tensor in decoded arguments."""


class Number(int):
    """An index into the run's numbers, as a placeholder in decoded arguments."""


Decoded: TypeAlias = "tuple[Any, ...]"


@dataclass(slots=True)
class Input:
    """Required dtype, shape, device and requires_grad of an input, and its name."""

    dtype: "DType"
    shape: tuple[int, ...]
    device: str
    requires_grad: bool
    name: str = ""
    dynamic: bool = False
    state: bool = False

    @property
    def is_counter(self) -> bool:
        """Whether a rule may use it."""
        return self.dtype == float64 and not self.shape and self.device == CPU and not self.requires_grad


@dataclass(slots=True)
class Step:
    """A decoded step: an op with its arguments, or another command's request."""

    which: str
    request: Any
    call: NamedOp | None = None
    args: Decoded = ()
    made: tuple[int, ...] = ()
    used: tuple[int, ...] = ()
    unused_after: tuple[int, ...] = ()  # slots that no later step uses and that are neither inputs nor outputs
    gathers: bool = False  # whether it updates a tensor as the step before or after it does
    goes_on: bool = False  # whether the step after it does


class Program:
    """A registered program."""

    def __init__(self, raw: bytes, session: "Session") -> None:
        """Decode and check a program. Raises Refusal: MALFORMED, PROGRAM_LIMIT and refusals of its steps' arguments."""
        limits = session.limits
        if len(raw) > limits.max_program_bytes:
            raise _over("bytes", len(raw), limits.max_program_bytes)
        try:
            message = programs_pb2.Program.FromString(raw)
        except DecodeError:
            raise Refusal("MALFORMED", "the program's bytes are no Program", argument="program") from None
        if len(message.steps) > limits.max_program_steps:
            raise _over("steps", len(message.steps), limits.max_program_steps)
        session.account.admit(len(raw) * _DECODED)
        self.raw = raw
        self.inputs = [_read_input(item) for item in message.inputs]
        self.by_name = {item.name: index for index, item in enumerate(self.inputs) if item.name}
        if len(self.by_name) < sum(1 for item in self.inputs if item.name):
            raise Refusal("MALFORMED", "two inputs of a program have the same name", argument="inputs")
        #: The first input whose first dimension may have any size; None if all are fixed.
        self.dynamic = next((index for index, item in enumerate(self.inputs) if item.dynamic), None)
        self.numbers = message.numbers
        if message.rules and self.numbers > len(raw):  # each is an argument of a step, or no step needs it
            raise _over("numbers", self.numbers, len(raw))
        counters = frozenset(index for index, item in enumerate(self.inputs) if item.is_counter)
        self.rules = Rules(message.rules, self.numbers, counters) if message.rules else None
        checker = _Checker(len(self.inputs), self.numbers)
        self.steps: list[Step] = []
        for number, step in enumerate(message.steps):
            try:
                self.steps.append(checker.step(step))
            except (Refusal, EngineError) as refusal:
                refusal.metadata["step"] = str(number)
                raise
        self.outputs = tuple(checker.known(slot) for slot in message.outputs)
        self.plans: list[Plan] = []
        self.tries = 0  # runs that were traced for a plan
        self.planned_runs = self.stepwise_runs = 0
        self.stepwise_because = ""
        self._find_last_uses()
        self._find_rows()
        self.storage = Storage(len(raw) * _DECODED, session.account)

    @property
    def not_captured_because(self) -> str:
        """Why runs of the newest plan on a GPU are not one launch of a CUDA graph; empty if they are or may become."""
        return next((plan.uncaptured for plan in reversed(self.plans) if plan.device != CPU), "")

    def _find_last_uses(self) -> None:
        """Find each slot's last use, so that a run holds no tensor longer than needed."""
        needed = {*self.outputs, *range(1, len(self.inputs) + 1)}
        for step in reversed(self.steps):
            touched = dict.fromkeys((*step.used, *step.made))
            step.unused_after = tuple(slot for slot in touched if slot not in needed)
            needed.update(touched)

    def _find_rows(self) -> None:
        """Find steps in a row that update tensors in the same way: a GPU computes each row by one kernel.

        Steps that look up a gradient may stand between them: they compute nothing.
        """
        before: Step | None = None
        for step in self.steps:
            call = step.call
            if call is None or not call.in_place or call.op.name not in _GATHERED:
                before = before if step.which == "grad" else None
                continue
            if before is not None:
                before.gathers = before.goes_on = step.gathers = True
            before = step


def _over(what: str, given: int, limit: int) -> Refusal:
    return Refusal(
        "PROGRAM_LIMIT", f"a program has at most {limit} {what}, not {given}", limit=limit, given=given, what=what
    )


def _read_input(item: programs_pb2.ProgramInput) -> Input:
    if any(size < 0 for size in item.shape) or len(item.shape) > 64:
        raise Refusal("MALFORMED", "a program's input has a shape that no tensor has", argument="inputs")
    if item.dynamic and not item.shape:
        raise Refusal("MALFORMED", "a program's dynamic input has no dimension", argument="inputs")
    device = canonical(item.device or None)
    facts = item.requires_grad, item.name, item.dynamic, item.state
    return Input(dtype_of(item.dtype), tuple(item.shape), device, *facts)


class _Checker:
    """Replaces a session while steps are decoded: ids are slots, each of which must have been set."""

    def __init__(self, inputs: int, numbers: int) -> None:
        self.slots = set(range(1, inputs + 1))
        self.numbers = numbers
        self.store: dict[int, Any] = {}
        self.used: list[int] = []

    def tensor(self, slot: int) -> Slot:
        """Placeholder of a slot. Raises Refusal: MALFORMED."""
        self.used.append(self.known(slot))
        return Slot(slot)

    def tensors(self, slots: Sequence[int]) -> list[Slot]:
        """Placeholders of slots. Raises Refusal: MALFORMED."""
        return [self.tensor(slot) for slot in slots]

    def number(self, index: int) -> Number:
        """Placeholder of a run's number. Raises Refusal: MALFORMED."""
        if index >= self.numbers:
            raise Refusal("MALFORMED", f"the program has {self.numbers} numbers and none of index {index}")
        return Number(index)

    def known(self, slot: int) -> int:
        """Check that a slot was set. Raises Refusal: MALFORMED."""
        if slot not in self.slots:
            raise Refusal("MALFORMED", f"slot {slot} is used before it is made", slot=slot)
        return slot

    def make(self, slot: int) -> int:
        """Mark a slot as set by a step. Raises Refusal: MALFORMED."""
        if not 0 < slot < MAX_SLOT:
            raise Refusal("MALFORMED", f"a slot is a number from 1 to 2^31 - 1, not {slot}", slot=slot)
        if slot in self.slots:
            raise Refusal("MALFORMED", f"slot {slot} is made twice", slot=slot)
        self.slots.add(slot)
        return slot

    def step(self, message: programs_pb2.ProgramStep) -> Step:
        """Decode and check one step. Raises Refusal."""
        which = message.WhichOneof("step")
        if which is None:
            raise Refusal("MALFORMED", "an empty step, or one that this server does not support")
        request: Any = getattr(message, which)
        if request.session_id or request.request_id:
            raise Refusal("MALFORMED", "a step names no session and no request_id")
        self.used = []
        step = self._op(request) if which == "op" else self._other(which, request)
        step.used = tuple(self.used)
        return step

    def _op(self, request: Any) -> Step:
        call = named_op(request.op)
        args = call.decode(request.args, self)
        if call.in_place:
            if request.outputs:
                raise Refusal("ARGUMENT_VALUE", f"{call.name}() works in place and makes no new tensor")
            if type(args[0]) is not Slot:
                raise Refusal("ARGUMENT_TYPE", f"{call.name}() works in place: its first argument must be a tensor")
        return Step("op", request, call, args, tuple(self.make(slot) for slot in request.outputs))

    def _other(self, which: str, request: Any) -> Step:
        facts = FACTS[which]
        made: Sequence[int] = ()
        for field in request.DESCRIPTOR.fields:
            if field.type != field.TYPE_FIXED64:  # all ids are fixed64
                continue
            value = getattr(request, field.name)
            slots = value if field.is_repeated else (value,)
            if field.name == facts.makes:
                made = slots
                continue
            for slot in slots:
                if slot or field.name not in facts.zero_is_none:
                    self.tensor(slot)
        if facts.step_sets and not any(request.HasField(name) for name in facts.step_sets):
            raise Refusal("MALFORMED", f"a program's {which} must set {' or '.join(facts.step_sets)}")
        return Step(which, request, made=tuple(self.make(slot) for slot in made))


def register_program(
    session: "Session",
    request: programs_pb2.RegisterProgramRequest,
    answer: programs_pb2.RegisterProgramResponse | None,
) -> None:
    """Register a program under its hash; over the limit, drop the least recently run one."""
    name, raw = request.hash, request.program
    if len(name) != HASH_BYTES or hashlib.sha256(raw).digest() != name:
        raise Refusal("ARGUMENT_VALUE", "the hash is not the SHA-256 of the program's bytes", argument="hash")
    programs = session.programs
    if name not in programs:
        keep_programs(session, {name: Program(raw, session)})
    if answer is not None:
        program = programs[name]
        answer.programs = len(programs)
        answer.planned_runs = program.planned_runs
        answer.stepwise_runs = program.stepwise_runs
        answer.stepwise_because = program.stepwise_because
        answer.not_captured_because = program.not_captured_because


def keep_programs(session: "Session", made: dict[bytes, Program]) -> None:
    """Keep new programs by their hashes; over the limit, drop the least recently run ones.

    Raises Refusal: PROGRAM_LIMIT.
    """
    programs = session.programs
    if not session.max_programs:
        limit = session.limits.max_principal_programs
        raise Refusal("PROGRAM_LIMIT", f"the principal's sessions hold {limit} programs, its limit", limit=limit)
    if len(made) > session.max_programs:
        raise Refusal(
            "PROGRAM_LIMIT",
            f"the session keeps at most {session.max_programs} programs, not {len(made)}",
            limit=session.max_programs,
        )
    while len(programs) + len(made) > session.max_programs:
        programs.popitem(last=False)  # clients register a dropped program again
    programs.update(made)


def find_program(session: "Session", name: bytes) -> Program:
    """Find a program by its hash and mark it as the most recently run. Raises Refusal: PROGRAM_UNKNOWN."""
    found: Program | None = session.programs.get(name)
    if found is None:
        shown = name[:HASH_BYTES].hex() or "that is empty"
        raise Refusal("PROGRAM_UNKNOWN", f"the session knows no program of hash {shown}; register it first")
    session.programs.move_to_end(name)
    return found


def filled(value: Any, slot: Callable[[int], Any], number: Callable[[int], float]) -> Any:
    """Replace the placeholders in a decoded argument with tensors and numbers."""
    kind = type(value)
    if kind is Slot:
        return slot(value)
    if kind is Number:
        return number(value)
    if kind is list:
        return [filled(item, slot, number) for item in value]
    if kind is tuple:
        return tuple([filled(item, slot, number) for item in value])
    return value


def refuse_argument(argument: str, message: str) -> NoReturn:
    """Refuse an argument of a run. Raises Refusal: ARGUMENT_VALUE."""
    raise Refusal("ARGUMENT_VALUE", message, argument=argument)


def flat(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    else:
        yield value
