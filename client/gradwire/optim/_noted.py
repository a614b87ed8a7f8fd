"""Noted steps: a step's program, made of the ops that updates call on stand-ins, none of which is sent.

An update of this package's by elements calls the same ops at every step, once its state is there. So the first step is
a program already. What a note cannot tell goes op by op, and is recorded later (`_steps`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from gradwire._base.call_site import find_call_site
from gradwire._compile.recorded_run import RECORDING
from gradwire._compile.recorder import Recorder, Varying
from gradwire._proxy.handle import UNKNOWN, Handle
from gradwire._proxy.memo import Spec
from gradwire._proxy.results import fill_proxy
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.call import _command, _number_places, _without_defaults
from gradwire._tensor.tensor import Tensor
from gradwire._transport.wire import Value, varint
from gradwire.optim._alike import kinds_of
from gradwire.v1 import commands_pb2, programs_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradwire._proxy.protocols import SessionProtocol

#: Ops on floating tensors of one description, and on numbers, that give such a tensor. The server refuses none of them.
_IN_PLACE = frozenset({"add_", "addcdiv_", "addcmul_", "copy_", "div_", "lerp_", "mul_", "sqrt_"})
_NEW = frozenset({"abs", "add", "addcmul", "div", "maximum", "mul", "neg", "pow", "sqrt"})
# Tags of Program.inputs and Program.steps.
_INPUT, _STEP = b"\x0a", b"\x1a"
# Stand-ins for slots in a step, which its bytes contain once.
_MARKS = [0x41_5A_E5_9D_5EED_0000 + place for place in range(16)]
#: Where a tensor of an op is from: a given tensor's name, or the number of the new one.
_Source = str | int
_NOTE: ContextVar[_Note | None] = ContextVar("gradwire_optimizer_note", default=None)


class _UnusualError(Exception):
    """An update calls an op, or with an argument, that a note does not tell."""


class NotedStep(NamedTuple):
    """A step that has not been made, though the optimizer's numbers are those after it.

    captures: the program's inputs. changed: those that it writes. numbers: what gives its numbers, and `values` those
    of this step.
    """

    data: bytes
    hash: bytes
    captures: list[Handle]
    changed: list[Handle]
    numbers: list[Callable[[int], float]]
    values: list[float]
    counters: list[Callable[[int], None]]


def note_step(session: SessionProtocol, optimizer: Any) -> NotedStep | None:
    """The next step as a program; None, with nothing done but the state's beginning, if it must go op by op."""
    groups = []
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param._grad is UNKNOWN:
                _ = param.grad
        kinds = kinds_of(optimizer, group, noted=True)
        if kinds is None:
            return None
        groups.append((group, kinds))
    params = [param for group, kinds in groups for kind in kinds for param in kind]
    if not params or not all(_is_usual(param, optimizer.state.get(param) or {}) for param in params):
        return None
    for group, _ in groups:
        for param in group["params"]:
            if param._grad is not None and not optimizer._begin_state(param, group):
                return None
    before = [(state, dict(state)) for state in optimizer.state.values()]
    with RECORDING:
        session.recorder = recorder = _Numbers(session)
        try:
            program = _Program()
            for group, kinds in groups:
                program.add_gradients([param for param in group["params"] if param._grad is not None])
                _add_updates(program, recorder, optimizer, group, [param for kind in kinds for param in kind])
            return program.finish(recorder)
        except BaseException as error:
            for state, values in before:
                state.clear()
                state.update(values)
            if isinstance(error, Exception):  # the update itself raises what is the user's to know
                return None
            raise
        finally:
            session.recorder = None


def _is_usual(param: Tensor, state: dict[str, Any]) -> bool:
    """Whether a parameter and its state are floating tensors of one dtype on one device, which require no more."""
    spec = param._spec
    if not (spec.dtype.is_floating_point and spec.requires_grad) or spec.outdated or spec.tangents:
        return False
    return all(
        value._spec.dtype is spec.dtype and value._spec.device_name == spec.device_name
        for value in state.values()
        if isinstance(value, Handle)
    )


class _First(NamedTuple):
    """The first of alike parameters: the note of its update, its state, and the names of its state's tensors."""

    note: _Note
    state: dict[str, Any]
    tensors: Sequence[str]


def _add_updates(
    program: _Program, recorder: _Numbers, optimizer: Any, group: dict[str, Any], params: Sequence[Tensor]
) -> None:
    """Add the updates of parameters: the first one's is noted, those of alike ones have the same ops."""
    known: dict[tuple[Any, ...], _First] = {}
    for param in params:
        state = optimizer.state.get(param) or {}
        numbers = [name for name, value in state.items() if not isinstance(value, Handle)]
        spec = param._spec
        alike = (spec.dtype, spec.device_name, *state, *[repr(state[name]) for name in numbers])
        first = known.get(alike)
        if first is None:
            first = known[alike] = _noted(optimizer, group, param, state)
        else:
            state.update({name: first.state[name] for name in numbers})
            recorder.count_alike(first.state, state, numbers)
        program.add(param, {f"state {name}": state[name] for name in first.tensors}, first.note)


def _noted(optimizer: Any, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> _First:
    """The note of a parameter's update, which changes the numbers of its state."""
    params, states = group["params"], optimizer.state
    tensors = {name: value for name, value in state.items() if isinstance(value, Handle)}
    stand_in = _stand_in(param, -1, param._spec)
    grad = stand_in._grad = _stand_in(param, -2, param._spec.gradient())
    given = {f"state {name}": value for name, value in tensors.items()}
    note = _Note({"param": stand_in, "grad": grad, **given}, grad._spec)
    group["params"] = [stand_in]
    if state:
        states[stand_in] = state
    try:
        with note.taking():
            optimizer._update(group)
        left = states.get(stand_in) or {}
    finally:
        group["params"] = params
        states.pop(stand_in, None)
    if {name: value for name, value in left.items() if isinstance(value, Handle)} != tensors:
        raise _UnusualError
    return _First(note, state, [*tensors])


class _StandIn(Tensor):
    """Stands for a tensor that no session has."""

    __slots__ = ()

    def __del__(self) -> None:
        """Release no id."""


def _stand_in(like: Handle, number: int, spec: Spec) -> _StandIn:
    made = object.__new__(_StandIn)
    fill_proxy(made, like._session, number, spec)
    return made


class _Numbers(Recorder):
    """Takes the numbers of the program, with their values in the step."""

    def __init__(self, session: SessionProtocol) -> None:
        super().__init__(session)
        self.values: list[float] = []

    def add_varying(self, key: object, value: Any, now: Callable[[int], float]) -> float:
        made = super().add_varying(key, value, now)
        if len(self.numbers) > len(self.values):
            self.values.append(float(made))
        return made

    def _is_elsewhere(self) -> bool:
        """True: no command is the step's, so that those of finalizers are what they are elsewhere."""
        return True


class _Noted(NamedTuple):
    """An op: its step cut at the slots, the tensors there, and whether the last one is new."""

    pieces: Sequence[bytes]
    sources: Sequence[_Source]
    makes: bool


class _Note:
    """The ops of one parameter's update. spec: of the new tensors."""

    def __init__(self, given: dict[str, Handle], spec: Spec) -> None:
        self.ops: list[_Noted] = []
        self.written: set[str] = set()
        self._call_site = find_call_site()
        self._like, self._spec = given["param"], spec
        self._sources: dict[int, _Source] = {value._id: name for name, value in given.items()}
        self._made: list[Handle] = []
        self._ids = count(-3, -1)
        if len(self._sources) != len(given):
            raise _UnusualError

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Note the ops of this thread."""
        token = _NOTE.set(self)
        BATCHING.append(self)
        try:
            yield
        finally:
            BATCHING.remove(self)
            _NOTE.reset(token)

    def call(self, op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
        """Note an op, and return what it gives; NotImplemented for an op of a signal handler or a finalizer."""
        if find_call_site() != self._call_site:
            return NotImplemented
        in_place = op in _IN_PLACE
        if result is not None or not (in_place or op in _NEW):
            raise _UnusualError(op)
        args, kwargs = _without_defaults(op, args, kwargs)
        places = _number_places(op)
        args = tuple([float(each) if type(each) is int and at in places else each for at, each in enumerate(args)])
        sent = [*args, *[value for _, value in kwargs]]
        sources = [self._source(value) for value in sent if isinstance(value, Handle)]
        if not all(type(value) in (int, float, Varying) or isinstance(value, Handle) for value in sent):
            raise _UnusualError(op)
        made = args[0]
        if in_place:
            name = sources[0]
            if name == "grad":  # which others may read
                raise _UnusualError(op)
            if type(name) is str:
                self.written.add(name)
        else:
            made = _stand_in(self._like, next(self._ids), self._spec)
            self._sources[made._id] = len(self._made)
            sources.append(len(self._made))
            self._made.append(made)
        self.ops.append(_Noted(_pieces(op, args, kwargs, sent, len(sources)), sources, not in_place))
        return made

    def _source(self, value: Handle) -> _Source:
        found = self._sources.get(value._id)
        if found is None:
            raise _UnusualError
        return found


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Note an op if this thread takes a note; NotImplemented otherwise."""
    note = _NOTE.get()
    return NotImplemented if note is None else note.call(op, args, kwargs, result)


DISPATCH.append(_dispatch)


def _pieces(
    op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], sent: Sequence[Any], slots: int
) -> list[bytes]:
    """The step of an op, with its place among a program's steps, cut at its slots."""
    marks = iter(_MARKS[:slots])
    values: list[Value] = [next(marks) if isinstance(each, Handle) else each for each in sent if type(each) is not int]
    command = _command(op, args, kwargs, [*values, *marks])
    for place, value in enumerate(sent):
        if type(value) is Varying:
            command.op.args[place].number = value.place
    return _cut(programs_pb2.ProgramStep(op=command.op), slots)


def _cut(step: programs_pb2.ProgramStep, slots: int) -> list[bytes]:
    """A step's bytes, cut at the marks in the slots' places."""
    rest = _element(_STEP, step.SerializeToString(deterministic=True))
    pieces = []
    for mark in _MARKS[:slots]:
        piece, found, rest = rest.partition(mark.to_bytes(8, "little"))
        if not found:
            raise _UnusualError
        pieces.append(piece)
    return [*pieces, rest]


def _element(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


class _Program:
    """A program that is being made: its inputs, and its steps with references to tensors.

    A reference is the number of an input, or ~number of a tensor that a step makes.
    """

    def __init__(self) -> None:
        self._inputs: dict[int, tuple[int, Handle]] = {}
        self._made = 0
        self._gradients: dict[int, int] = {}
        self._steps: list[tuple[Sequence[bytes], list[int]]] = []
        self._written: dict[int, Handle] = {}

    def _input(self, tensor: Handle) -> int:
        return self._inputs.setdefault(tensor._id, (len(self._inputs), tensor))[0]

    def _make(self) -> int:
        self._made += 1
        return -self._made

    def add_gradients(self, params: Sequence[Tensor]) -> None:
        """Add the steps that name the parameters' gradients."""
        request = commands_pb2.GradRequest(tensor=_MARKS[0], id=_MARKS[1])
        pieces = _cut(programs_pb2.ProgramStep(grad=request), 2)
        for param in params:
            self._gradients[param._id] = self._make()
            self._steps.append((pieces, [self._input(param), self._gradients[param._id]]))

    def add(self, param: Tensor, state: dict[str, Tensor], note: _Note) -> None:
        """Add an update of a parameter by the ops of a note. state: its tensors, by the note's names."""
        given = {"param": param, **state}
        made: list[int] = []
        for op in note.ops:
            if op.makes:
                made.append(self._make())
            references = [
                made[source]
                if type(source) is int
                else self._gradients[param._id]
                if source == "grad"
                else self._input(given[source])  # type: ignore[index]
                for source in op.sources
            ]
            self._steps.append((op.pieces, references))
        self._written.update({given[name]._id: given[name] for name in note.written})

    def finish(self, recorder: _Numbers) -> NotedStep:
        """The program's bytes, and what belongs to it."""
        captures = [tensor for _, tensor in self._inputs.values()]
        described: dict[Spec, bytes] = {}
        for tensor in captures:
            if tensor._spec not in described:
                described[tensor._spec] = _element(_INPUT, _described(tensor._spec))
        parts = [described[tensor._spec] for tensor in captures]
        parts.append(programs_pb2.Program(numbers=len(recorder.numbers)).SerializeToString())
        slots = [number.to_bytes(8, "little") for number in range(1, 1 + len(captures) + self._made)]
        made = len(captures) - 1
        for pieces, references in self._steps:
            for piece, at in zip(pieces, references, strict=False):
                parts += piece, slots[at if at >= 0 else made - at]
            parts.append(pieces[-1])
        data = b"".join(parts)
        limits = recorder.session.limits
        if len(data) > limits.max_program_bytes or len(self._steps) > limits.max_program_steps:
            raise _UnusualError
        return NotedStep(
            data,
            hashlib.sha256(data).digest(),
            captures,
            list(self._written.values()),
            recorder.numbers,
            recorder.values,
            list(recorder.counters.values()),
        )


def _described(spec: Spec) -> bytes:
    """The description of an input."""
    return programs_pb2.ProgramInput(
        dtype=spec.dtype.code,  # type: ignore[arg-type]
        shape=spec.shape,
        device="" if spec.device_name == "cpu" else spec.device_name,
        requires_grad=spec.requires_grad,
    ).SerializeToString(deterministic=True)
