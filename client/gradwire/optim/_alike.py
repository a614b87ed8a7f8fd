"""Alike parameters: the first one's update goes op by op; the others' are its commands with other ids.

Parameters are alike if they, their gradients and their state differ in sizes alone. An update by elements then calls
the same ops on each. A tape notes those of the first one. What it cannot note is updated op by op, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gradwire._base.call_site import find_call_site
from gradwire._base.timeouts import TIMEOUT
from gradwire._compile.recorder import Varying
from gradwire._graph.sparse_gradients import sparse_part
from gradwire._proxy.handle import PRESENT, Handle
from gradwire._proxy.memo import DRAWING_OPS, WRITING_OPS, MemoEntry, Spec
from gradwire._proxy.results import new_proxy, update_in_place
from gradwire._proxy.transforms import TRANSFORM
from gradwire._tensor.arguments import Operands
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.call import _call, _command, _without_defaults
from gradwire._tensor.in_place import writes_in_place
from gradwire._tensor.inference import is_large
from gradwire._tensor.tensor import Tensor
from gradwire._tensor.warnings import WARNING_OPS
from gradwire._transport.wire import Value, make_template
from gradwire.nn._parameter import Parameter
from gradwire.optim._plain_updates import NUMBERS, has_own_methods, has_plain_options, is_of_package

if TYPE_CHECKING:
    from gradwire._proxy.protocols import SessionProtocol

_LEAST = 3  # parameters of a group, from which the first one's tape is worth its time
#: Ops that may warn of real numbers, too.
_WARNING = WARNING_OPS - {"copy_"}
#: Where a value of a command is from: a number, a given tensor's name, or the op on the tape that made it.
_Source = float | str | int
_TAPE: ContextVar[_Tape | None] = ContextVar("gradwire_optimizer_tape", default=None)


def update_alike(optimizer: Any, group: dict[str, Any]) -> bool:
    """Update a group's parameters; False, with nothing done, if each must be updated op by op."""
    kinds = kinds_of(optimizer, group)
    if kinds is None:
        return False
    params, held = group["params"], set(map(id, optimizer.state))
    try:
        for first, *others in kinds:
            group["params"] = [first]
            if not others:
                optimizer._update(group)
                continue
            given = _given(optimizer, first)
            tape = _Tape(first._session, given)
            with tape.taking():
                optimizer._update(group)
            state = optimizer.state.get(first) or {}
            if tape.shows(state):
                for other in others:
                    tape.repeat(other, _given(optimizer, other), state, optimizer.state[other] if state else {})
            else:
                group["params"] = others
                optimizer._update(group)
    finally:
        group["params"] = params
    for param in params if len(kinds) > 1 else ():  # the state has its parameters in the order of their updates
        if id(param) not in held and param in optimizer.state:
            optimizer.state[param] = optimizer.state.pop(param)
    return True


def _given(optimizer: Any, param: Tensor) -> dict[str, Tensor]:
    """The tensors that an update begins with, by name."""
    state = optimizer.state.get(param) or {}
    held = {f"state {name}": value for name, value in state.items() if isinstance(value, Handle)}
    return {"param": param, "grad": param.grad, **held}


def kinds_of(optimizer: Any, group: dict[str, Any], noted: bool = False) -> list[list[Tensor]] | None:
    """The parameters with gradients, those of a kind together; None if one is unusual, or they are few.

    noted: for `_noted`, which names no gradients, and takes few.
    """
    params, least = group["params"], 0 if noted else _LEAST
    if len(params) < least or BATCHING or TIMEOUT.get() is not None or not optimizer._is_alike:
        return None
    if TRANSFORM.get() is not None:  # it refuses changes of tensors from outside, one by one
        return None
    if not params:
        return []
    session, recorder = params[0]._session, params[0]._session.recorder
    if session.every_call_waits if recorder is None else recorder.must_wait:
        return None
    if session.segments is not None:  # it reads descriptions of operands from the keys of entries
        return None
    if not _is_plain(optimizer, group):
        return None
    kinds: dict[tuple[Any, ...], list[Tensor]] = {}
    changed: list[int] = []  # the memories that the updates change
    read: set[int] = set()
    for param in params:
        if type(param) not in (Tensor, Parameter) or param._session is not session or sparse_part(param) is not None:
            return None
        grad = param._grad if noted else param.grad
        if grad is None:
            continue
        state = optimizer.state.get(param)
        kind = _kind(param, None if grad is PRESENT else grad, state or {})
        if kind is None:
            return None
        held = [param] if state is None else [param, *(value for value in state.values() if type(value) is Tensor)]
        changed += map(_memory, held)
        if state is not None:
            changed.append(id(state))
        if grad is not PRESENT:
            read.add(_memory(grad))
        kinds.setdefault(kind, []).append(param)
    if len(changed) != len(set(changed)) or not read.isdisjoint(changed):
        return None  # one update sees what another has changed, so that their order matters
    return list(kinds.values()) if sum(map(len, kinds.values())) >= least else None


def _is_plain(optimizer: Any, group: dict[str, Any]) -> bool:
    """Whether the update of each parameter is this package's code alone, and reads no tensor's value."""
    if type(group) is not dict or not (is_of_package(optimizer) and has_plain_options(group) and has_own_methods()):
        return False
    options = [each for option in group.values() for each in (option if type(option) is tuple else (option,))]
    return not any(isinstance(each, Handle) for each in options)


def _memory(tensor: Tensor) -> int:
    """A number of a tensor's memory."""
    shared = tensor.__dict__.get("_memory") or tensor._storage
    return tensor._id if shared is None else id(shared)


def _kind(param: Tensor, grad: Tensor | None, state: dict[str, Any]) -> tuple[Any, ...] | None:
    """What parameters of a kind have in common; None for an unusual one. grad: None for one without a proxy."""
    spec = param._fresh()
    kind: list[Any] = [spec.family]
    if not spec.is_leaf or spec.is_view or spec.dtype.is_complex or spec.inference or spec.strides:
        return None
    given = () if grad is None else (("grad", grad),)
    for name, value in (*given, *state.items()):
        if type(value) is Tensor and name not in NUMBERS:
            other = value._fresh()
            if other.shape != spec.shape or other.requires_grad or other.is_view or other.strides:
                return None
            if other.family is None:
                return None
            kind += name, other.family
        elif type(value) in (int, float, bool):
            kind += name, type(value), repr(value)
        else:
            return None
    if grad is not None and not state and is_large(((spec.shape, ()),)):
        kind.append(param._id)  # alone: the server may lack memory for its state, which is said in the call
    return tuple(kind) if spec.family is not None else None


class _Op(NamedTuple):
    """An op on a tape. target: of an in-place op. varying: as the recorder takes it (`Recorder.add_repeated`)."""

    entry: MemoEntry
    sources: Sequence[_Source]
    target: _Source | None
    spec: Spec
    varying: list[tuple[int, int]]


class _Tape:
    """The ops of one parameter's update."""

    def __init__(self, session: SessionProtocol, given: dict[str, Tensor]) -> None:
        self._session = session
        self._call_site = find_call_site()
        self._sources: dict[int, str | int] = {value._id: name for name, value in given.items()}
        self._ops: list[_Op] = []
        self._made: list[Tensor] = []  # so that no id is released and used again
        self._is_whole = len(self._sources) == len(given)
        self._is_inside = False
        self._kept: dict[str, _Source | None] = {}  # where the state's tensors are from

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Note the ops of this thread."""
        token = _TAPE.set(self)
        BATCHING.append(self)
        try:
            yield
        finally:
            BATCHING.remove(self)
            _TAPE.reset(token)

    def call(self, op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
        """Apply an op and note it; NotImplemented for what an op calls itself, and for ops of the user's code."""
        if self._is_inside:
            return NotImplemented
        if find_call_site() != self._call_site:  # of a signal handler or a finalizer
            self._is_whole = False
            return NotImplemented
        self._is_inside = True
        try:
            made = _call(op, args, kwargs, result)
        finally:
            self._is_inside = False
        if self._is_whole:
            noted = self._noted(op, args, kwargs, made) if result is None else None
            if noted is None:
                self._is_whole = False
            else:
                self._ops.append(noted)
        return made

    def _noted(self, op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], made: Any) -> _Op | None:
        """An op that was applied; None for one that cannot be repeated by its command alone."""
        in_place = writes_in_place(op)
        if type(made) not in (Tensor, Parameter) or op in WRITING_OPS or op in DRAWING_OPS or op in _WARNING:
            return None
        if made._session is not self._session or (not in_place and (made._spec.is_view or made._spec.requires_grad)):
            return None
        sent_args, sent_kwargs = _without_defaults(op, args, kwargs)
        sent = [*sent_args, *(value for _, value in sent_kwargs)]
        values: list[Value] = []
        operands = Operands([], values, [], self._session)
        for value in sent:
            operands.add(op, value)
        sources: list[_Source] = []
        for value in values:
            source = value if isinstance(value, float) else self._sources.get(value)
            if source is None:
                return None
            sources.append(source)
        entry = self._entry(op, partial(_command, op, sent_args, sent_kwargs), values, made, in_place)
        if entry is None:
            return None
        varying = [(place, value.place) for place, value in enumerate(sent) if type(value) is Varying]
        if in_place:
            return _Op(entry, sources, self._sources.get(made._id), made._spec, varying)
        self._sources[made._id] = len(self._ops)
        self._made.append(made)
        return _Op(entry, sources, None, made._spec, varying)

    def _entry(
        self, op: str, build: Callable[[Sequence[Value]], Any], values: list[Value], made: Tensor, in_place: bool
    ) -> MemoEntry | None:
        """What sends the op again; None if its command has no fixed form, or the server has refused it."""
        template = make_template(build, values if in_place else [*values, made._id])
        if template is None:
            return None
        session, (code, offset) = self._session, self._call_site
        recorder = session.recorder
        key = ("alike", id(code), offset, template.pieces)
        if key in session.models:
            return None
        entry = session.memo.get(key) if recorder is None else recorder.known_answer(key, values)
        if entry is None:
            entry = MemoEntry(key, op, self._call_site, template, (made._spec,), in_place=in_place)
            if recorder is None:
                session.remember(entry)
            else:
                recorder.learn_answer(entry)
        return entry

    def shows(self, state: dict[str, Any]) -> bool:
        """Whether the tape tells all that the update did. state: the parameter's, as it is now."""
        if not self._is_whole:
            return False
        held = {name: value for name, value in state.items() if isinstance(value, Handle)}
        self._kept = {name: self._sources.get(value._id) for name, value in held.items()}
        return None not in self._kept.values() and "grad" not in self._kept.values()

    def repeat(self, param: Tensor, given: dict[str, Tensor], state: dict[str, Any], own: dict[str, Any]) -> None:
        """Update another parameter alike. state: the first one's. own: the other's, which is changed."""
        session = self._session
        session.raise_if_unusable()
        recorder = session.recorder
        if recorder is not None:
            recorder.add_arguments(tuple(given.values()), ())
        ids = [0 if op.target is not None else next(session.ids) for op in self._ops]
        known = {name: value._id for name, value in given.items()}
        done = 0
        try:
            for number, op in enumerate(self._ops):
                values = [
                    source if type(source) is float else ids[source] if type(source) is int else known[source]  # type: ignore[index]
                    for source in op.sources
                ]
                if op.target is None:
                    values.append(ids[number])
                if type(op.target) is str:
                    update_in_place(given[op.target], given[op.target]._spec, [], False)
                if recorder is not None:
                    recorder.add_repeated(op.entry, values, op.varying)
                done = number + 1
                session.post_op(op.entry, values)
        except BaseException:  # a signal may end the wait for a batch
            session.released.extend([each for each in ids[:done] if each])
            raise
        self._keep(param, given, ids, state, own)
        kept = set(self._kept.values())
        session.released.extend([each for number, each in enumerate(ids) if each and number not in kept])

    def _keep(
        self, param: Tensor, given: dict[str, Tensor], ids: list[int], state: dict[str, Any], own: dict[str, Any]
    ) -> None:
        """Let the other's state be like the first one's."""
        session = self._session
        for name, value in state.items():
            source = self._kept.get(name)
            if source is None:
                own[name] = value
            elif isinstance(source, int):
                own[name] = new_proxy(session, ids[source], self._ops[source].spec.of_sizes(param._spec.shape, ()))
            else:
                own[name] = given[str(source)]
        if session.recorder is not None:
            numbers = [name for name in state if name not in self._kept]
            session.recorder.count_alike(state, own, numbers)


def _dispatch(op: str, args: tuple[Any, ...], kwargs: Sequence[tuple[str, Any]], result: Any) -> Any:
    """Note an op if this thread takes a tape; NotImplemented otherwise."""
    tape = _TAPE.get()
    return NotImplemented if tape is None else tape.call(op, args, kwargs, result)


DISPATCH.append(_dispatch)
