"""Recorder: records the commands of one call of a function and makes a program of them.

While a session has a recorder, a command waits for its answer and is recorded with it. An op does not wait if the call
had its answer before there, or one that gives it but for sizes. Ids of tensors that the call made become slots of the
program. Ids of outside tensors become its inputs: first the arguments, then the tensors that the function closes over.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import describe_call_site, find_call_site
from gradwire._base.dtypes import dtype, float32, float64
from gradwire._base.errors import GradwireError, make_error
from gradwire._base.signals import handlers_running
from gradwire._base.timeouts import TIMEOUT
from gradwire._compile.symbolic import Formula, formula_of, value_of
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import STRUCTURAL_OPS, WRITING_OPS
from gradwire._transport.wire import Value, unframed
from gradwire.v1 import commands_pb2, errors_pb2, programs_pb2, service_pb2
from gradwire.v1.command_facts import FACTS

if TYPE_CHECKING:
    from gradwire._proxy.memo import MemoEntry, Model
    from gradwire._proxy.protocols import SessionProtocol

# Kinds of an op's arguments that may hold several ids.
_WITH_IDS = ("tensors", "index")
# Why a request is refused that is no step, of a command that others are steps of.
_UNFIT = {
    "create": "a large tensor is made of values in a compiled function; make it outside",
    "manual_seed": "the random generator's state is read in a compiled function; use the session's generator",
}
# Ops whose derivatives the server refuses for no values and no arguments, and other commands of a graph that is made.
_PLAIN = STRUCTURAL_OPS | {
    "adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "binary_cross_entropy_with_logits", "chunk", "conv1d", "conv2d",
    "cross_entropy", "detach", "dropout", "embedding", "flatten", "gelu", "layer_norm", "log_softmax", "lstm",
    "max_pool2d", "nll_loss", "ones_like", "randn_like", "scaled_dot_product_attention", "split", "t", "unbind",
    "zeros", "zeros_like", "create", "grad", "set_grad",
}  # fmt: skip


class Varying(float):
    """Number whose value differs between calls of the function: a learning rate, a bias correction."""

    place: int


class KnownAnswers:
    """Answers that commands have had in recorded calls of one session, for further ones with the same key or model.

    `earlier` is the session's memo, if what it has of calls that were not recorded may be used.
    """

    def __init__(self, session: SessionProtocol, earlier: Mapping[tuple[Any, ...], MemoEntry] | None = None) -> None:
        self._session = weakref.ref(session)
        self.earlier = earlier or {}
        self.answers: dict[tuple[Any, ...], MemoEntry] = {}
        self.models: dict[tuple[Any, ...], Model] = {}
        self.plain_gradients: set[object] = set()

    def are_of(self, session: SessionProtocol) -> bool:
        """Whether this session gave them."""
        return self._session() is session


class RecordedStep:
    """A command of a recorded call: its message, or the entry that serializes it with these values.

    numbers: pairs of an argument's place and the number of the program that replaces it.
    """

    __slots__ = ("_entry", "_message", "_numbers", "_values")

    def __init__(
        self,
        message: service_pb2.Command | None,
        entry: MemoEntry | None = None,
        values: Sequence[Value] = (),
        numbers: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._message, self._entry, self._values, self._numbers = message, entry, values, numbers
        if message is not None:
            self._set_numbers(message)

    @property
    def command(self) -> service_pb2.Command:
        """The message. It is made when it is first asked for: most calls of an op repeat another one."""
        if self._message is None:
            assert self._entry is not None
            assert self._entry.template is not None
            made = service_pb2.Command.FromString(unframed(self._entry.template.fill(self._values)))
            self._set_numbers(made)
            self._message = made
        return self._message

    def _set_numbers(self, command: service_pb2.Command) -> None:
        for place, number in self._numbers if command.HasField("op") else ():
            command.op.args[place].number = number


class Recorder:
    """Commands of one call. `refused` is the error if they cannot become a program.

    With `fallback`, nothing is refused: `breaks` says why the call cannot become a program, and it continues.
    becomes_program: whether later calls are to run the program, so that these commands hardly come again one by one.
    """

    def __init__(self, session: SessionProtocol, fallback: bool = False, becomes_program: bool = True) -> None:
        self.session = session
        self.becomes_program = becomes_program
        self._fallback = fallback
        #: What no program can hold, each place once, with its line.
        self.breaks: list[str] = []
        self.steps: list[RecordedStep] = []
        self.call_sites: list[tuple[Any, int]] = []
        #: By id: tensors from outside the call.
        self.handles: dict[int, Handle] = {}
        self.refused: GradwireError | None = None
        #: The first thing the call did that a replay cannot repeat, with its line.
        self.obstacle: str | None = None
        #: Per number of the program: a function from repetitions ahead to the number's value.
        self.numbers: list[Callable[[int], float]] = []
        #: Per number: its formula, where optimizers and schedulers have symbolic numbers (export).
        self.formulas: list[Formula] = []
        #: Counters of repetitions, called with the number of new repetitions.
        self.counters: dict[int, Callable[[int], None]] = {}
        #: By id: the dicts whose numbers the counters advance.
        self.counted: dict[int, dict[str, Any]] = {}
        self._numbered: dict[object, int] = {}
        self._varying: list[tuple[int, int]] = []
        self._created: list[weakref.ref[Handle]] = []
        self._created_ids: set[int] = set()
        #: What this call, and perhaps earlier ones, have had answered. None: each op waits for its answer.
        self.known: KnownAnswers | None = None
        #: Whether a command did not wait.
        self.pipelined = False
        #: Whether the call has made its graphs by plain ops, and changed nothing that their nodes may have saved.
        self._is_plain = True
        #: Ids of tensors that ops have used, and of bases that they showed; arguments of the op that is recorded next.
        self._used: set[int] = set()
        self._arguments: Sequence[Any] = ()
        self._thread = threading.get_ident()
        self._handlers = handlers_running()

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread or a signal handler, whose commands are not the function's."""
        return threading.get_ident() != self._thread or handlers_running() != self._handlers

    # Called by the session and by calls of ops.

    def add_arguments(self, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]]) -> None:
        """Record the tensors among an op's arguments, and which arguments vary between calls."""
        if self._is_elsewhere():
            return
        values = [*args, *(value for _, value in kwargs)]
        self._varying = [(place, value.place) for place, value in enumerate(values) if type(value) is Varying]
        self._arguments = args
        for handle in _handles(values):
            if handle._id not in self._created_ids:
                self.handles[handle._id] = handle
                spec = handle._spec
                is_made = spec.requires_grad and not spec.is_leaf  # by a node from outside
                self._is_plain = self._is_plain and not is_made and _is_of_usual(spec.dtype)

    def add_handle(self, handle: Handle) -> None:
        """Record a new proxy."""
        if not self._is_elsewhere():
            self._created.append(weakref.ref(handle))
            self._created_ids.add(handle._id)
            self._is_plain = self._is_plain and _is_of_usual(handle._spec.dtype)

    def check(self, command: service_pb2.Command) -> None:
        """Refuse a command that no program can hold, before it is sent.

        Raises GradwireError, unless there is a fallback: NOT_SUPPORTED.
        """
        if self._is_elsewhere():
            return
        which = _name(command)
        facts = FACTS[which]
        if facts.answers_values:
            self._refuse(
                "a value is read in the middle of a compiled function (item, tolist, bool, float, print, an index "
                "that is a tensor of one element, ...); return the tensor and read it outside"
            )
        if facts.runs_client_code:
            self._refuse(
                "a hook, a checkpoint or a custom function (autograd.Function) in a compiled function: its Python "
                "would have to run in the middle of the program; keep it outside"
            )
        if facts.step_sets and not any(getattr(command, which).HasField(name) for name in facts.step_sets):
            self._refuse(_UNFIT[which])

    def add_command(self, command: service_pb2.Command, result: service_pb2.Result | None) -> None:
        """Record a command that succeeded with this result; without one, a command that does not wait.

        Then the message is kept.
        """
        if self._is_elsewhere():
            return
        which = _name(command)
        facts = FACTS[which]
        if which == "describe" and command.describe.tensors:
            self._obstruct("it asks how often a tensor was changed in place (_version)")
        if not facts.is_step and not facts.left_out_of_programs:
            self._obstruct(f"it uses {which}, which is no step of a program")
        if not facts.is_step or (which == "grad" and result is not None and not result.grad.HasField("grad")):
            return
        kept = command
        if result is None:
            self.pipelined = True
        else:
            kept = service_pb2.Command()
            kept.CopyFrom(command)
        if which == "op" and result is not None:
            outputs = result.op.outputs
            if any(output.data_dependent for output in outputs):
                self._refuse(f"{command.op.op}(): the shape of its result follows from values, which vary")
            if not (command.op.op.endswith("_") and len(outputs) == 1 and not command.op.outputs):
                del kept.op.outputs[:]
                kept.op.outputs.extend([output.id for output in outputs])
        self._add(RecordedStep(kept, numbers=self._varying), find_call_site(), command.op.op or which)

    def add_repeated(
        self, entry: MemoEntry, values: Sequence[Value], varying: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """Record a command like one that succeeded in this call, or in an earlier one: it does not wait.

        varying: pairs of an argument's place and a number of the program; None for those of the last arguments added.
        """
        self.pipelined = True
        numbers = self._varying if varying is None else varying
        self._add(RecordedStep(None, entry, values, numbers), (entry.code, entry.offset), entry.name)

    def _add(self, step: RecordedStep, call_site: tuple[Any, int], name: str) -> None:
        """Add a command. name: of its op, or of another command."""
        self._varying = []
        self._is_plain = self._is_plain and name in _PLAIN and not self._changes_used(name)
        for handle in _handles(self._arguments):
            view = handle.__dict__.get("_view")
            self._used.add(handle._id if view is None else view.base._id)
        self._arguments = ()
        self.steps.append(step)
        self.call_sites.append(call_site)

    def _changes_used(self, name: str) -> bool:
        """Whether an op may write to an argument that an earlier op has used."""
        for place, _ in WRITING_OPS.get(name, ()):
            for handle in _handles(self._arguments[place : place + 1]):
                if "_view" in handle.__dict__ or handle._id in self._used:
                    return True
        return False

    @property
    def commands(self) -> Iterator[service_pb2.Command]:
        """The messages of the commands, in order."""
        return (step.command for step in self.steps)

    def learn_answer(self, entry: MemoEntry) -> None:
        """Keep a command's answer for further ones with the same key, or with other sizes.

        A model with a pattern is made by rules, which also tell other sizes.
        """
        known = self.known
        if known is not None and not self._is_elsewhere():
            known.answers[entry.key] = entry
            if entry.model is not None and entry.model.pattern is None:
                known.models.setdefault(entry.model.key, entry.model)

    def known_answer(self, key: tuple[Any, ...], values: Sequence[Any]) -> MemoEntry | None:
        """What a command with this key and these values gives; None if it must wait."""
        if self.known is None or self.must_wait:
            return None
        found = self.known.answers.get(key) or self.known.earlier.get(key)
        if found is None or found.warning or found.same or any(values[place] != value for place, value in found.fixed):
            return None
        return found

    @property
    def must_wait(self) -> bool:
        """Whether each command waits here for its answer."""
        return self.known is None or self._is_elsewhere() or TIMEOUT.get() is not None

    def differentiates_surely(self, root: Handle) -> bool:
        """Whether the server can refuse a first backward from a tensor for nothing but a lack of memory.

        The call has made the whole graph, and nothing that its nodes saved has changed.
        """
        return self._is_plain and not self.must_wait and root._id in self._created_ids

    @property
    def models(self) -> Mapping[tuple[Any, ...], Model]:
        """What ops gave in the call, by the memo's keys without call sites, sizes and integers."""
        return {} if self.known is None else self.known.models

    @property
    def plain_gradients(self) -> set[object]:
        """Families of tensors whose gradients are like the tensors, without history."""
        return set() if self.known is None else self.known.plain_gradients

    def _obstruct(self, why: str) -> None:
        if self.obstacle is None:
            self.obstacle = f"{why}\n  {describe_call_site(*find_call_site(3))}"

    def _refuse(self, why: str) -> None:
        where = f"{why}\n  {describe_call_site(*find_call_site(3))}"
        if not self._fallback:
            self.refused = make_error(errors_pb2.REASON_NOT_SUPPORTED, where, 12)
            raise self.refused
        if where not in self.breaks:
            self.breaks.append(where)
        if self.obstacle is None:
            self.obstacle = where

    # Called by optimizers.

    def add_varying(self, key: object, value: Any, now: Callable[[int], float]) -> float:
        """Register a varying number of the program. `now(ahead)` is its value `ahead` repetitions after a call."""
        if key not in self._numbered:
            self._numbered[key] = len(self.numbers)
            self.numbers.append(now)
            self.formulas.append(formula_of(value))
        made = Varying(value_of(value))
        made.place = self._numbered[key]
        return made

    def count_alike(self, state: dict[str, Any], other: dict[str, Any], names: Sequence[str]) -> None:
        """Let another state's numbers of these names follow those of one that counts updates, if it does."""
        if id(state) not in self.counters:
            return

        def follow(updates: int) -> None:
            for name in names:
                other[name] = state[name]

        self.counters.pop(id(other), None)  # so that it follows after the other has counted
        self.counters[id(other)] = follow
        self.counted[id(other)] = other

    # Called after the function returned.

    def live_handles(self) -> list[Handle]:
        """Proxies made during the call that are still alive."""
        return [handle for reference in self._created if (handle := reference()) is not None]

    def differentiates(self) -> bool:
        """Whether a command was recorded that may add to gradients."""
        return any(FACTS[_name(command)].differentiates for command in self.commands)


class RecordedProgram:
    """Program of a recorder's commands, with `feeds` as its first inputs and `results` as its outputs.

    `captures` are the outside tensors that are not feeds. `further` inputs may be added to the program behind these.
    Raises GradwireError if the handle of one is unknown.
    """

    def __init__(
        self, recorder: Recorder, feeds: Sequence[Handle], results: Sequence[Handle], further: int = 0
    ) -> None:
        self.recorder = recorder
        made: set[int] = set()
        known = {handle._id for handle in feeds}
        outside: list[int] = []
        for command in recorder.commands:
            which = _name(command)
            request = getattr(command, which)
            for is_made, tensor_id in _op_ids(request) if which == "op" else _ids(request, FACTS[which].makes):
                if is_made:
                    made.add(tensor_id)
                elif tensor_id not in made and tensor_id not in known:
                    known.add(tensor_id)
                    outside.append(tensor_id)
        self.captures = [self._handle(tensor_id) for tensor_id in outside]
        self.feeds = list(feeds)
        #: Per result: its index among the outputs, or the handle if it is an outside tensor.
        self.results: list[int | Handle] = []
        self.slots: dict[int, int] = {}
        for place, handle in enumerate((*feeds, *self.captures)):
            self.slots.setdefault(handle._id, place + 1)
        self._next = itertools.count(len(feeds) + len(self.captures) + further + 1)
        self.program = programs_pb2.Program(numbers=len(recorder.numbers))
        for handle in (*feeds, *self.captures):
            self._add_input(handle)
        for command in recorder.commands:
            self._add_step(command)
        for handle in results:
            if handle._id in made:
                self.results.append(len(self.program.outputs))
                self.program.outputs.append(self.slots[handle._id])
            else:
                self.results.append(handle)
        self.replace(self.program)

    def replace(self, program: programs_pb2.Program) -> None:
        """Take another program with the same inputs, and perhaps further ones, and as many outputs."""
        self.program = program
        self.data = program.SerializeToString(deterministic=True)
        self.hash = hashlib.sha256(self.data).digest()

    def release_handles(self) -> None:
        """Drop the tensors passed to the recorded call, so the recording does not keep them alive."""
        self.feeds.clear()
        self.recorder.handles.clear()
        self.recorder._varying.clear()

    def _handle(self, tensor_id: int) -> Handle:
        session = self.recorder.session
        found: Any = self.recorder.handles.get(tensor_id)
        if found is None:
            found = session.watched.get(tensor_id)
        if found is None or found._id != tensor_id:
            raise make_error(
                errors_pb2.REASON_NOT_SUPPORTED,
                "a compiled function uses an outside tensor that it replaces (detach_), or that was freed: keep "
                "a reference to it as long as the function exists",
                12,
            )
        handle: Handle = found
        return handle

    def _add_input(self, handle: Handle) -> None:
        spec = handle._spec
        self.program.inputs.add(
            dtype=spec.dtype.code,
            shape=spec.shape,
            device="" if spec.device_name == "cpu" else spec.device_name,
            requires_grad=spec.requires_grad,
        )

    def _add_step(self, command: service_pb2.Command) -> None:
        which = _name(command)
        step = self.program.steps.add()
        request: Any = getattr(step, which)
        request.CopyFrom(getattr(command, which))
        (_rename_op if which == "op" else _rename)(request, self._slot)

    def _slot(self, tensor_id: int) -> int:
        if tensor_id and tensor_id not in self.slots:
            self.slots[tensor_id] = next(self._next)
        return self.slots[tensor_id] if tensor_id else 0


def _is_of_usual(kind: dtype) -> bool:
    """Whether the derivatives of tensors of a dtype are refused for no dtype."""
    return kind in (float32, float64) or not (kind.is_floating_point or kind.is_complex)


def _handles(values: Iterable[Any]) -> Iterator[Handle]:
    for value in values:
        if isinstance(value, Handle):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _handles(value)
        elif hasattr(value, "items") and isinstance(value.items, (list, tuple)):  # an Index
            yield from _handles(value.items)


def _name(command: service_pb2.Command) -> str:
    which: str | None = command.WhichOneof("command")
    assert which is not None
    return which


def _ids(message: Any, makes: str) -> list[tuple[bool, int]]:
    """Tensor ids in a request as pairs (whether the command makes it, id), used ids first.

    `makes` is the field with the ids of tensors that the command makes; all other fixed64 fields hold ids that it uses.
    """
    found: list[tuple[bool, int]] = []
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                found.extend(_ids(part, ""))
        elif field.type == field.TYPE_FIXED64:
            found.extend((field.name == makes, each) for each in (value if field.is_repeated else (value,)) if each)
    return sorted(found, key=lambda pair: pair[0])


def _op_ids(request: commands_pb2.OpRequest) -> list[tuple[bool, int]]:
    """`_ids` of an op, of which a call has many."""
    found: list[tuple[bool, int]] = []
    for argument in request.args:
        kind = argument.WhichOneof("kind")
        if kind == "tensor":
            found.append((False, argument.tensor))
        elif kind in _WITH_IDS:
            found.extend(_ids(argument, ""))
    found.extend((True, each) for each in request.outputs)
    return [pair for pair in found if pair[1]]


def _rename_op(request: commands_pb2.OpRequest, slot: Callable[[int], int]) -> None:
    """`_rename` of an op."""
    for argument in request.args:
        kind = argument.WhichOneof("kind")
        if kind == "tensor":
            argument.tensor = slot(argument.tensor)
        elif kind in _WITH_IDS:
            _rename(argument, slot)
    if request.outputs:
        request.outputs[:] = [slot(each) for each in request.outputs]


def _rename(message: Any, slot: Callable[[int], int]) -> None:
    """Replace ids by slots."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                _rename(part, slot)
        elif field.type == field.TYPE_FIXED64:
            if field.is_repeated:
                value[:] = [slot(each) for each in value]
            else:
                setattr(message, field.name, slot(value))


def varying(tensor: Handle, key: object, now: Callable[[int], float]) -> float:
    """Return `now(0)`, a number in an update of `tensor` that differs between calls.

    While a call is recorded, the number becomes a parameter of the program. `now(ahead)` is its value `ahead`
    repetitions later. Numbers with the same key are one parameter.
    """
    recorder = tensor._session.recorder
    return now(0) if recorder is None else recorder.add_varying(key, now(0), now)


def counting(tensor: Handle, state: dict[str, Any], name: str, also: Callable[[int], None] | None = None) -> None:
    """Let `state[name]` also count the updates of `tensor` that runs of the program make.

    `also` is called first, with the number of updates.
    """
    recorder = tensor._session.recorder
    if recorder is not None:

        def count(updates: int) -> None:
            if also is not None:
                also(updates)
            state[name] += updates

        recorder.counters[id(state)] = count
        recorder.counted[id(state)] = state
