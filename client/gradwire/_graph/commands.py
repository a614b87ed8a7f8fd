"""Commands: runs commands other than ops; each waits at its first call at a call site and is deferred later.

It never waits if its result is known beforehand and the server cannot refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from gradwire._base.call_site import find_call_site
from gradwire._base.errors import two_sessions
from gradwire._base.watching import unwatched
from gradwire._proxy.handle import PRESENT, Handle
from gradwire._proxy.memo import MemoEntry, Spec, read_spec
from gradwire._proxy.results import share_storage
from gradwire._transport.wire import Build, Template, Value, make_template
from gradwire.v1 import commands_pb2, hooks_pb2, service_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import RecorderProtocol, SessionProtocol

Read = Callable[[service_pb2.Result], tuple[Spec, ...]]
CallSite = tuple[CodeType, int]
# Commands that draw no random numbers. Backward and runs of programs that may are noted where they begin.
_DRAWING_NOTHING = frozenset(
    {"backward", "grad", "retain_grad", "run_program", "set_data", "set_grad", "set_requires_grad"}
)
# Commands in which nothing but ids and a flag varies, and their templates by name, number of ids and flag.
_OF_IDS = frozenset({"set_grad", "set_requires_grad"})
_TEMPLATES: dict[tuple[str, int, bool | None], Template | None] = {}


def run(
    session: SessionProtocol,
    name: str,
    key: tuple[Any, ...],
    values: Sequence[Value],
    build: Build,
    read: Read | None = None,
    told: Callable[[], tuple[Spec, ...] | None] | None = None,
    call_site: CallSite | None = None,
) -> tuple[Spec, ...] | None:
    """Run a command, and return the specs that `read` takes from its result, or those in the memo.

    `build` makes the command from the values; `key` holds everything else that it depends on. Returns None if `read`
    finds no specs, which is not stored in the memo. `told` gives the specs if they are certain, as is that the server
    does not refuse the command. `call_site` is the user's, if it is known.
    """
    call_site = call_site or find_call_site()
    if name not in _DRAWING_NOTHING:
        session.draws.begin()
    full = (name, id(call_site[0]), call_site[1], *key)
    entry = session.memo.get(full)
    if entry is not None and entry.template is not None:
        session.post(entry.template.fill(values), entry)
        return entry.specs
    if told is not None and session.recorder is None and not session.every_call_waits and full not in session.models:
        specs = told()
        template = None if specs is None else _template(name, key, values, build)
        if specs is not None and template is not None:
            session.raise_if_unusable()
            entry = MemoEntry(full, name, call_site, template, specs)
            session.remember(entry)
            repeat(session, entry, values)
            return specs
    names_gradient = read is _read_gradient
    recorder = session.recorder if name == "set_grad" or names_gradient else None
    known = None if recorder is None else recorder.known_answer(full, values)
    if recorder is not None and known is None and not recorder.must_wait:
        if names_gradient:
            known = _foretold_gradient(recorder, full, call_site, values, build)
        elif told is not None and (specs := told()) is not None:
            known = _learned(recorder, MemoEntry(full, name, call_site, _template(name, key, values, build), specs))
    if known is not None:
        assert recorder is not None
        unwatched(_repeat_recorded, session, recorder, known, values)
        return known.specs
    result = unwatched(session.wait, build(values))
    specs = () if read is None else read(result)
    if read is not None and not specs:
        return None
    template = make_template(build, values)
    if template is not None:
        entry = MemoEntry(full, name, call_site, template, specs)
        session.remember(entry)
        if recorder is not None:
            recorder.learn_answer(entry)
            if names_gradient and specs[0] is key[0].gradient():
                recorder.plain_gradients.add(key[0].family)
    return specs


def record_surely(
    session: SessionProtocol, recorder: RecorderProtocol, name: str, key: tuple[Any, ...], values: Sequence[Value],
    build: Build,
) -> None:  # fmt: skip
    """Run a command in a recorded call, and send it at once. Its answer tells nothing, so nobody waits for it."""
    call_site = find_call_site()
    full = (name, id(call_site[0]), call_site[1], *key)
    entry = recorder.known_answer(full, values)
    if entry is None:
        entry = MemoEntry(full, name, call_site, make_template(build, values), ())
        if entry.template is not None:
            recorder.learn_answer(entry)
    if entry.template is None:
        session.wait(build(values))
    else:
        _repeat_recorded(session, recorder, entry, values)
        session.flush()


def _template(name: str, key: tuple[Any, ...], values: Sequence[Value], build: Build) -> Template | None:
    """The template of a command. Those in which nothing but ids and a flag varies share one."""
    if name not in _OF_IDS:
        return make_template(build, values)
    form = name, len(values), key[0] if key and type(key[0]) is bool else None
    if form not in _TEMPLATES:
        _TEMPLATES[form] = make_template(build, values)
    return _TEMPLATES[form]


def _told_of_ordinary(target: Handle) -> tuple[()] | None:
    """What a command that gives no specs tells of an ordinary tensor."""
    return () if _is_ordinary(target._spec) else None


def _is_ordinary(spec: Spec) -> bool:
    """Whether a tensor is a leaf in the CPU's memory, and no view, of a float dtype."""
    return (
        spec.is_leaf
        and spec.dtype.is_floating_point
        and spec.device_name == "cpu"
        and not (spec.is_view or spec.inference or spec.outdated or spec.tangents)
    )


def _is_special(spec: Spec) -> bool:
    """Whether more than dtype, sizes and strides would be taken over from a tensor."""
    return bool(spec.inference or spec.outdated or spec.tangents)


def _repeat_recorded(
    session: SessionProtocol, recorder: RecorderProtocol, entry: MemoEntry, values: Sequence[Value]
) -> None:
    session.raise_if_unusable()
    recorder.add_repeated(entry, values)
    repeat(session, entry, values)


def _foretold_gradient(
    recorder: RecorderProtocol, key: tuple[Any, ...], call_site: tuple[Any, int], values: Sequence[Value], build: Build
) -> MemoEntry | None:
    """What naming a gradient gives, if that of another tensor of the same family was like the tensor.

    That of an ordinary row-major leaf is: backward makes row-major gradients.
    """
    spec = key[-1]
    if not (spec.family in recorder.plain_gradients or (_is_ordinary(spec) and not spec.strides)):
        return None
    return _learned(recorder, MemoEntry(key, "grad", call_site, make_template(build, values), (spec.gradient(),)))


def _learned(recorder: RecorderProtocol, entry: MemoEntry) -> MemoEntry | None:
    """The entry of a command that a recorded call need not wait for; None if its messages have no fixed form."""
    if entry.template is None:
        return None
    recorder.learn_answer(entry)
    return entry


def repeat(session: SessionProtocol, entry: MemoEntry, values: Sequence[Value]) -> None:
    """Repeat a command that the memo knows."""
    assert entry.template is not None
    session.post(entry.template.fill(values), entry)


def common_session(name: str, handles: Sequence[Handle]) -> SessionProtocol:
    """The common session of the tensors. Raises GradwireValueError if they are from different sessions."""
    session = handles[0]._session
    for handle in handles:
        if handle._session is not session:
            raise two_sessions(name, session, handle._session)
    return session


def _kind(target: Handle) -> object:
    """What decides whether a flag or an empty gradient is refused: all of a tensor's description but sizes."""
    spec = target._spec
    return spec if spec.kind is None else spec.kind


def set_requires_grad(target: Handle, flag: bool) -> None:
    """Set a leaf's requires_grad flag on the server."""

    def build(values: Sequence[Value]) -> service_pb2.Command:
        request = commands_pb2.SetRequiresGradRequest(tensor=int(values[0]), requires_grad=flag)
        return service_pb2.Command(set_requires_grad=request)

    told = partial(_told_of_ordinary, target)
    run(target._session, "set_requires_grad", (flag, _kind(target)), [target._id], build, told=told)


def retain_grad(target: Handle) -> None:
    """Retain a non-leaf's gradient on the server."""

    def build(values: Sequence[Value]) -> service_pb2.Command:
        return service_pb2.Command(retain_grad=commands_pb2.RetainGradRequest(tensor=int(values[0])))

    run(target._session, "retain_grad", (target._spec,), [target._id], build)


def set_grad(target: Handle, grad: Handle | None) -> None:
    """Set or clear a gradient on the server."""
    if grad is None:
        clear_grad(target)
    else:
        session = common_session("set_grad", (target, grad))
        share_storage(grad, grad)  # backward may add to it, as `known_values` must know
        session.untracked_writes += 1
        run(session, "set_grad", (target._spec, grad._spec), [target._id, grad._id], _setting_of_grad)


def clear_grad(target: Handle, call_site: CallSite | None = None) -> None:
    """Clear a gradient on the server. `call_site` is the user's, if it is known."""
    told = partial(_told_of_ordinary, target)
    key = (_kind(target),)
    run(target._session, "set_grad", key, [target._id], _setting_of_grad, told=told, call_site=call_site)


def _setting_of_grad(values: Sequence[Value]) -> service_pb2.Command:
    return service_pb2.Command(
        set_grad=commands_pb2.SetGradRequest(tensor=int(values[0]), grad=int(values[1]) if len(values) > 1 else 0)
    )


def set_data(target: Handle, source: Handle) -> Spec:
    """Make a tensor share another's values; return its new spec."""

    def build(values: Sequence[Value]) -> service_pb2.Command:
        return service_pb2.Command(set_data=commands_pb2.SetDataRequest(tensor=int(values[0]), data=int(values[1])))

    def read(result: service_pb2.Result) -> tuple[Spec, ...]:
        return (read_spec(result.set_data.tensor),)

    session = common_session("data", (target, source))
    one, other = target._spec, source._spec
    alike = one.dtype is other.dtype and one.shape == other.shape and one.strides == other.strides
    told = (one,) if alike and _is_ordinary(one) and other.device_name == "cpu" and not _is_special(other) else None
    found = run(session, "set_data", (one, other), [target._id, source._id], build, read, lambda: told)
    assert found is not None
    return found[0]


def name_grad(target: Handle, tensor_id: int, known: bool) -> Spec | None:
    """Give a tensor's gradient an id; return its spec, or None without a gradient.

    `known` says that the gradient exists, so the memo may supply its spec.
    """

    values = [target._id, tensor_id]
    if known:
        found = run(target._session, "grad", (target._spec,), values, _naming_of_grad, _read_gradient)
    else:
        found = _read_gradient(target._session.wait(_naming_of_grad(values), (tensor_id,)))
    return found[0] if found else None


def name_grads(session: SessionProtocol, targets: Iterable[Handle]) -> list[tuple[Handle, int, Spec]]:
    """Name the gradients that exist and of which no answer is known, in one round trip; return them, with new ids.

    Of tensors that are described alike, one is asked for: the memo then knows the others, as after `name_grad`.
    """
    call_site = find_call_site()
    unknown: dict[tuple[Any, ...], Handle] = {}
    for target in targets:
        key = ("grad", id(call_site[0]), call_site[1], target._spec)
        if target._grad is PRESENT and key not in session.memo:
            unknown.setdefault(key, target)
    numbers = [next(session.ids) for _ in unknown]
    named = [(key, target, number) for (key, target), number in zip(unknown.items(), numbers, strict=True)]
    answers = [session.issue(_naming_of_grad([target._id, number])) for _, target, number in named]
    try:
        found = [_read_gradient(answer()) for answer in answers]
    except BaseException:
        session.released.extend(numbers)
        raise
    template = _template("grad", (), [0, 0], _naming_of_grad)
    for (key, _, _), specs in zip(named, found, strict=True):
        if specs and template is not None:
            session.remember(MemoEntry(key, "grad", call_site, template, specs))
    return [(target, number, specs[0]) for (_, target, number), specs in zip(named, found, strict=True) if specs]


def _naming_of_grad(values: Sequence[Value]) -> service_pb2.Command:
    return service_pb2.Command(grad=commands_pb2.GradRequest(tensor=int(values[0]), id=int(values[1])))


def _read_gradient(result: service_pb2.Result) -> tuple[Spec, ...]:
    return (read_spec(result.grad.grad),) if result.grad.HasField("grad") else ()


def refresh_view(tensor: Handle) -> None:
    """Update a view on the server. Until then it may still leave the graph together with its base."""
    session = tensor._session
    number = next(session.ids)
    request = hooks_pb2.NameEdgeRequest(tensor=tensor._id, edge=number)
    session.wait(service_pb2.Command(name_edge=request), (number,))
    session.released.append(number)


def counters(
    tensor: Handle, node: int = 0, *, version: int | None = None, sequence: int | None = None
) -> commands_pb2.SetCountersResponse:
    """Ask for a tensor's version and for when a node behind it was made (0: its own), or set them first."""
    request = commands_pb2.SetCountersRequest(tensor=tensor._id, node=node, version=version, sequence=sequence)
    return tensor._session.wait(service_pb2.Command(set_counters=request)).set_counters
