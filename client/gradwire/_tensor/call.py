"""Call: applies an op; the single path of all functions, methods and operators.

The first call at a call site waits for the server's answer. Later calls take the answer from the memo. Their path is
kept short: make the key, pack the bytes, make the proxy.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from sys import _getframe
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from gradwire._base import dtypes
from gradwire._base.call_site import INTERNAL
from gradwire._base.dtypes import float32, get_default_dtype
from gradwire._base.errors import GradwireTypeError, two_sessions
from gradwire._base.modes import GRAD_ENABLED, wire_mode
from gradwire._base.watching import unwatched
from gradwire._proxy.dual_levels import note_changed_dual
from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import DRAWING_OPS, WRITING_OPS, MemoEntry, Model, Spec, read_spec
from gradwire._proxy.results import new_result, pack_results, refresh, update_in_place, update_strides
from gradwire._proxy.shadow_graph import NodeHooks, OpNode
from gradwire._session.sessions import current_session
from gradwire._tensor.arguments import MOST_HALF, MixedListError, Operands, magnitude, write_argument
from gradwire._tensor.batching import BATCHING, DISPATCH
from gradwire._tensor.foretelling import DTYPE_RULES, foretell
from gradwire._tensor.foretelling.indices import has_indices
from gradwire._tensor.foretelling.kinds import PARAMETER_KINDS
from gradwire._tensor.in_place import check_in_place, note_written, writes_in_place
from gradwire._tensor.inference import foresee, holds_anywhere, infer, is_large, learn, modelled, sketch
from gradwire._tensor.known_values.drawn import note_draw
from gradwire._tensor.overrides import OverriddenError, call_override
from gradwire._tensor.repeats import plain_result
from gradwire._tensor.shape_rules import RULES, Rule, Shapes
from gradwire._tensor.warnings import WARNING_OPS, warn, warning_of
from gradwire._transport.wire import Value, make_template
from gradwire.v1 import service_pb2, types_pb2

if TYPE_CHECKING:
    from gradwire._proxy.protocols import RecorderProtocol, SessionProtocol

#: Generated module of the ops' functions. It registers itself, since it imports this module.
OPS: list[ModuleType] = []
#: Shape rules of ops that have one; filled when the generated module is imported.
_RULES: dict[str, Rule] = {}
_grad_enabled = GRAD_ENABLED.get
_NamedValues = Sequence[tuple[str, Any]]
# Number of key items before the arguments: op, grad mode, code, instruction offset.
_KEY_HEAD = 4
# Names of parameters that take a list of tensors.
_LISTS_OF_TENSORS = (("tensors",), ("operands",), ("indices",))
# Ops that refuse numbers as operands: probabilities, deviations.
_CHECKED_OPERANDS = frozenset({"nanquantile", "normal", "quantile"})
# Largest magnitude up to which a double holds all integers exactly.
_MOST_EXACT = 1 << 53


def _call(op: str, args: tuple[Any, ...], kwargs: _NamedValues = (), result: Any = None) -> Any:
    """Apply an op. `args` are in the parameters' order, `kwargs` pairs of name and value.

    `result` is the form of the answer: None for one tensor, "bool", "tuple", or the results' names.
    """
    if BATCHING:
        for dispatch in DISPATCH:
            answer = dispatch(op, args, kwargs, result)
            if answer is not NotImplemented:
                return answer
    frame = _getframe(2)
    code = frame.f_code
    while INTERNAL[code.co_filename]:
        outer = frame.f_back
        if outer is None:
            break
        frame = outer
        code = frame.f_code
    enabled = _grad_enabled()
    default = dtypes._default_dtype
    key: list[Any] = [op, enabled if default is float32 else (enabled, default), id(code), frame.f_lasti]
    values: list[Value] = []
    edges: list[Any] = []
    session: SessionProtocol | None = None
    operands = None
    for value in args:
        if type(value) is float:
            key.append(float if -MOST_HALF <= value <= MOST_HALF else magnitude(value))
            values.append(value)
        elif isinstance(value, Handle):
            owner = value._session
            if owner is not session:
                if session is not None:
                    raise two_sessions(op, session, owner)
                session = owner
            storage = value._storage
            if storage is not None and storage.changes != value._changes_seen:
                refresh(value)
            key.append(value._spec)
            values.append(value._id)
            edge = value._edge
            if edge is not None:
                edges.append(edge)
        elif type(value) is int and operands is None and _may_send_as_float(op, len(key) - _KEY_HEAD, key, value):
            # Each earlier argument added one item to the key, so its length gives this argument's index.
            place = len(key) - _KEY_HEAD
            args = (*args[:place], float(value), *args[place + 1 :])
            key.append(float if -MOST_HALF <= value <= MOST_HALF else magnitude(value))
            values.append(float(value))
        else:
            if operands is None:
                operands = Operands(key, values, edges, session)
            else:
                operands.session = session
            try:
                operands.add(op, value)
            except OverriddenError:
                sent_args, sent_kwargs = _without_defaults(op, args, kwargs)
                return call_override(op, sent_args, sent_kwargs, _getframe(1).f_code.co_varnames[:1] == ("self",))
            session = operands.session
    if kwargs:
        if operands is None:
            operands = Operands(key, values, edges, session)
        for name, value in kwargs:
            key.append(name)
            operands.add(op, value)
        session = operands.session
    if session is None:
        session = current_session()

    entry = session.memo.get(tuple(key))
    if entry is None or (entry.fixed and any(values[place] != value for place, value in entry.fixed)):
        call_site = (code, frame.f_lasti)
        rule = _RULES.get(op)
        shapes = None if rule is None or session.every_call_waits else rule(op, *args, **dict(kwargs))
        if shapes is not None:
            entry = infer(session.models, shapes, key, op, args, values, call_site)
            if entry is None:
                entry = _foretold(session, shapes, key, op, args, kwargs, values, call_site)
            if entry is not None:
                return _inferred_call(session, entry, args, values, edges, op, result)
        first_call = _first_call if session.recorder is None or op in WARNING_OPS else _unwatched_call
        try:
            return first_call(session, key, op, args, kwargs, result, values, edges, call_site)
        except (GradwireTypeError, MixedListError) as refused:
            with_number = _with_number(op, args, kwargs, str(refused))
            if with_number is None:
                raise
        return _call(op, *with_number, result)
    if not entry.plain:
        return _repeat(session, entry, args, values, edges, op, result)
    number = next(session.ids)
    made = plain_result(session, entry, number, edges, values)
    if entry.number:
        buffer = session.buffer
        buffer.append((entry.words(entry.number, *values, number), entry, entry.call_kind))
        if len(buffer) >= session.check_at:
            session.flush_if_full()
    else:
        session.post_op(entry, [*values, number])
    return made if result is None else pack_results(op, (made,), result)


def _inferred_call(
    session: SessionProtocol,
    entry: MemoEntry,
    args: tuple[Any, ...],
    values: list[Value],
    edges: list[Any],
    op: str,
    result: Any,
) -> Any:
    """Apply an op whose results were inferred, and store the entry in the memo."""
    assert entry.model is not None
    assert entry.model.pattern is not None
    in_place = entry.in_place
    if in_place:
        check_in_place(op, args, GRAD_ENABLED.get(), edges)
    ids = [] if in_place else [next(session.ids) for _ in entry.specs]
    drawing = session.draws.begin() if op in DRAWING_OPS else 0
    session.post(entry.model.pattern.fill([*values, *ids], entry.integers), entry)
    session.remember(entry)
    if in_place:
        update_in_place(args[0], entry.specs[0], edges, bool(GRAD_ENABLED.get()))
        if drawing:
            note_draw(session, drawing, op, args, args[0])
        return args[0]
    if op in WRITING_OPS:
        note_written(op, args)
    made = _results(session, ids, entry.specs, (), edges, args, values)
    if drawing:
        note_draw(session, drawing, op, args, made[0])
    return pack_results(op, made, result)


def _repeat(
    session: SessionProtocol,
    entry: MemoEntry,
    args: tuple[Any, ...],
    values: list[Value],
    edges: list[Any],
    op: str,
    result: Any,
) -> Any:
    """Repeat a call known to the memo that does more than make one plain new tensor."""
    if entry.warning:
        warn(entry.warning)
    drawing = session.draws.begin() if op in DRAWING_OPS else 0
    if entry.in_place:
        check_in_place(op, args, GRAD_ENABLED.get(), edges)
        session.post_op(entry, values)
        (update_strides if op == "take_geometry_" else update_in_place)(
            args[0], entry.specs[0], edges, bool(GRAD_ENABLED.get())
        )
        if entry.specs[0].tangents:
            note_changed_dual(args[0], edges, args)
        if drawing:
            note_draw(session, drawing, op, args, args[0])
        return args[0]
    same = entry.same
    if same and min(same) >= 0:
        return pack_results(op, tuple([_input(args, values[place]) for place in same]), result)
    ids = [next(session.ids) for _ in entry.specs]
    session.post_op(entry, [*values, *ids])
    if op in WRITING_OPS:
        note_written(op, args)
    made = _results(session, ids, entry.specs, same, edges, args, values)
    if entry.structural and type(made[0]._edge) is list:
        node = made[0]._edge = OpNode(made[0]._edge)
        node.entry, node.order, node.values = entry, ids[0], values
    if drawing:
        note_draw(session, drawing, op, args, made[0])
    return pack_results(op, made, result)


def _results(
    session: SessionProtocol,
    ids: Sequence[int],
    specs: Sequence[Spec],
    same: Sequence[int],
    edges: list[Any],
    args: Sequence[Any],
    values: Sequence[Value],
) -> tuple[Any, ...]:
    """Proxies of an op's results. A result that is an input itself gets the input's proxy, so both change together."""
    if edges and len(specs) > 1:
        edges = [*edges, NodeHooks()]
    if not same:
        pairs = enumerate(zip(ids, specs, strict=True))
        return tuple([new_result(session, one, spec, edges, args, place) for place, (one, spec) in pairs])
    made: list[Any] = []
    for one, spec, place in zip(ids, specs, same, strict=True):
        if place < 0:
            made.append(new_result(session, one, spec, edges, args, len(made)))
        else:
            made.append(_input(args, values[place]))
            session.released.append(one)
    return tuple(made)


def _input(given: Any, tensor_id: Value) -> Any:
    """Tensor with that id among an op's arguments, which may be lists; None if there is none."""
    for value in given:
        if isinstance(value, Handle):
            if value._id == tensor_id:
                return value
        elif type(value) in (list, tuple):
            found = _input(value, tensor_id)
            if found is not None:
                return found
    return None


def _first_call(
    session: SessionProtocol,
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    kwargs: _NamedValues,
    result: Any,
    values: list[Value],
    edges: list[Any],
    call_site: tuple[CodeType, int],
) -> Any:
    """Apply an op, wait for the answer, and store it in the memo. A recorded op whose answer is known does not wait."""
    enabled = GRAD_ENABLED.get()
    in_place = writes_in_place(op)
    if in_place:
        check_in_place(op, args, enabled, edges)
    sent_args, sent_kwargs = _without_defaults(op, args, kwargs)
    if session.recorder is not None:
        session.recorder.add_arguments(sent_args, sent_kwargs)
    names = _parameters(op)[0]
    build_of = partial(_command, op)
    build = partial(build_of, sent_args, sent_kwargs)
    recorder = session.recorder
    known = None if recorder is None else _recorded_answer(recorder, key, op, args, kwargs, values, call_site)
    if recorder is not None and known is not None:
        return _record_again(session, recorder, known, build, args, values, edges, result)
    rule = _RULES.get(op)
    template = foreseen = None

    def prepare_repeats(ids: Sequence[Value]) -> None:
        nonlocal template, foreseen
        template = make_template(build, [*values, *ids])
        if recorder is None and rule is not None and template is not None:
            shapes = rule(op, *args, **dict(kwargs))
            foreseen = foresee(shapes, key, op, args, kwargs, [*values, *ids], build_of)

    # If the number of results is unknown, the server chooses their ids too.
    ids = (next(session.ids),) if not in_place and (result is None or result == "bool") else ()
    meanwhile = partial(prepare_repeats, ids) if in_place or ids else None
    drawing = session.draws.begin() if op in DRAWING_OPS else 0
    outputs = session.wait(build([*values, *ids]), ids, meanwhile).op.outputs
    specs = tuple([read_spec(output) for output in outputs])
    same = _returned_inputs(args, values, outputs)
    warning = warning_of(op, dict([*zip(names, args, strict=False), *kwargs]), specs) if op in WARNING_OPS else ""
    if warning:
        warn(warning)
    if not any(output.data_dependent for output in outputs):
        if meanwhile is None:
            prepare_repeats([output.id for output in outputs])
        if template is not None:
            fixed = _fixed_floats(op, args, kwargs, specs)
            entry = MemoEntry(tuple(key), op, call_site, template, specs, fixed, in_place, same, warning)
            session.remember(entry)
            if recorder is not None and not warning and not same:
                if rule is not None:
                    sketch(rule, key, op, args, kwargs, entry, op not in WARNING_OPS)
                recorder.learn_answer(entry)
            elif not warning and (in_place or not same):
                learn(session, foreseen, entry)
    if in_place:
        (update_strides if op == "take_geometry_" else update_in_place)(args[0], specs[0], edges, bool(enabled))
        if specs[0].tangents:
            note_changed_dual(args[0], edges, args)
        if drawing:
            note_draw(session, drawing, op, args, args[0])
        return args[0]
    if op in WRITING_OPS:
        note_written(op, args)
    made = _results(session, [output.id for output in outputs], specs, same, edges, args, values)
    if drawing:
        note_draw(session, drawing, op, args, made[0])
    return pack_results(op, made, result)


def _command(op: str, args: tuple[Any, ...], kwargs: _NamedValues, values: Sequence[Value]) -> service_pb2.Command:
    """The command of an op. Ids and floats are taken from `values`, the results' ids last."""
    names = _parameters(op)[0]
    remaining = iter(values)
    command = service_pb2.Command()
    request = command.op
    request.op = op
    request.grad_mode = wire_mode(GRAD_ENABLED.get())
    default = get_default_dtype()
    if default is not float32:
        request.default_dtype = default.code  # type: ignore[assignment]
    for place, value in enumerate(args):
        argument = request.args.add()
        if type(value) in (list, tuple) and not value and names[place : place + 1] in _LISTS_OF_TENSORS:
            argument.tensors.SetInParent()  # an empty list does not show its element type
        else:
            write_argument(argument, value, remaining)
    for name, value in kwargs:
        write_argument(request.args.add(name=name), value, remaining)
    request.outputs.extend([int(one) for one in remaining])
    return command


def _foretold(
    session: SessionProtocol,
    shapes: Shapes,
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    kwargs: _NamedValues,
    values: list[Value],
    call_site: tuple[CodeType, int],
) -> MemoEntry | None:
    """The entry of a call whose kind has had no answer, if rules describe its results; None if the call must wait."""
    if not holds_anywhere(key, op, args) and not has_indices(op):
        return None
    session.raise_if_unusable()
    specs = None if is_large(shapes) else foretell(shapes, op, args, kwargs, key[1])
    if specs is None:
        return None
    entry = _described(shapes, specs, key, op, args, kwargs, values, call_site)
    model = entry.model
    if model is None or model.key in session.models:  # a None there: the server refused such a call
        return None
    session.remember_model(model)
    return entry


def _described(
    shapes: Shapes,
    specs: tuple[Spec, ...],
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    kwargs: _NamedValues,
    values: list[Value],
    call_site: tuple[CodeType, int],
) -> MemoEntry:
    """The entry of a call with these results, with a model of its own if it may have one."""
    fixed = _fixed_floats(op, args, kwargs, specs)
    outputs = [] if writes_in_place(op) else [*range(1, 1 + len(specs))]
    foreseen = None
    if not is_large(shapes):
        foreseen = foresee(shapes, key, op, args, kwargs, [*values, *outputs], partial(_command, op))
    if foreseen is None:
        return MemoEntry(tuple(key), op, call_site, None, specs, fixed, writes_in_place(op))
    model = Model(foreseen.key, call_site, foreseen.pattern, specs, fixed)
    return modelled(model, foreseen.integers, key, op, call_site, specs, fixed)


def _unwatched_call(*call: Any) -> Any:
    """`_first_call` in a recording: it runs none of the function's code."""
    return unwatched(_first_call, *call)


def _recorded_answer(
    recorder: RecorderProtocol,
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    kwargs: _NamedValues,
    values: list[Value],
    call_site: tuple[CodeType, int],
) -> MemoEntry | None:
    """What a recorded op gives: as an equal call, as one that differs in sizes, or by itself; None if it must wait."""
    known, rule = recorder.known_answer(tuple(key), values), _RULES.get(op)
    if known is not None or rule is None:
        return known
    if recorder.must_wait:
        return None
    shapes = rule(op, *args, **dict(kwargs))
    if shapes is None:
        return None
    entry = infer(recorder.models, shapes, key, op, args, values, call_site, op not in WARNING_OPS)
    specs = None
    if entry is None:  # a number that varies is a float here
        plain = tuple([_plain_number(value) for value in args])
        specs = foretell(shapes, op, plain, [(name, _plain_number(value)) for name, value in kwargs], key[1])
    return entry if specs is None else _described(shapes, specs, key, op, args, kwargs, values, call_site)


def _plain_number(value: Any) -> Any:
    """A number of a class of its own as a plain one; any other value itself."""
    return float(value) if isinstance(value, float) else value


def _record_again(
    session: SessionProtocol,
    recorder: RecorderProtocol,
    entry: MemoEntry,
    build: Callable[[Sequence[Value]], service_pb2.Command],
    args: tuple[Any, ...],
    values: list[Value],
    edges: list[Any],
    result: Any,
) -> Any:
    """Apply an op in a recorded call whose results are known; do not wait for the answer."""
    ids = [] if entry.in_place else [next(session.ids) for _ in entry.specs]
    if entry.name in DRAWING_OPS:
        session.draws.begin()
    sent = [*values, *ids]
    if entry.template is None and entry.model is not None and entry.model.pattern is not None:
        # Described by rules. The next one is a call of a prepared op.
        session.raise_if_unusable()
        recorder.add_repeated(entry, sent)
        session.post(entry.make_template().fill(sent), entry)
        recorder.learn_answer(entry)
    elif entry.template is None:
        # Inferred. Its template serializes the next one.
        session.post_recorded(build(sent), entry)
        entry.template = make_template(build, sent)
        if entry.template is not None:
            entry.words = entry.template.words
            recorder.learn_answer(entry)
    else:
        session.raise_if_unusable()
        recorder.add_repeated(entry, sent)
        session.post_op(entry, sent)
    if entry.in_place:
        update = update_strides if entry.name == "take_geometry_" else update_in_place
        update(args[0], entry.specs[0], edges, bool(GRAD_ENABLED.get()))
        if entry.specs[0].tangents:
            note_changed_dual(args[0], edges, args)
        return args[0]
    if entry.name in WRITING_OPS:
        note_written(entry.name, args)
    return pack_results(entry.name, _results(session, ids, entry.specs, (), edges, args, values), result)


def _with_number(
    op: str, args: tuple[Any, ...], kwargs: _NamedValues, refusal: str
) -> tuple[tuple[Any, ...], list[tuple[str, Any]]] | None:
    """The arguments with a number in place of the tensor of one element that the server refused; None if it refused
    something else. PyTorch reads such tensors, too.
    """
    found = re.search(r"argument '(\w+)' .*must be .*not (?:a |a list of |tuple of )?[Tt]ensors?", refusal)
    mixed = refusal.startswith("expected Tensor as element")
    if found is None and not mixed:
        return None
    wanted = "" if found is None else found[1]
    names = _parameters(op)[0]

    def number(name: str, value: Any) -> Any:
        if type(value) in (list, tuple) and (name == wanted or (mixed and name not in ("tensors", "operands"))):
            sizes = [each.item() if _is_size(each) else each for each in value]
            return value if all(one is other for one, other in zip(sizes, value, strict=True)) else tuple(sizes)
        is_number = name == wanted and isinstance(value, Handle) and math.prod(value._spec.shape) == 1
        return value.item() if is_number else value

    changed_args = tuple([number(name, value) for name, value in zip(names, args, strict=False)])
    changed_kwargs = [(name, number(name, value)) for name, value in kwargs]
    before = [*args, *(value for _, value in kwargs)]
    after = [*changed_args, *(value for _, value in changed_kwargs)]
    if len(before) != len(after) or all(one is other for one, other in zip(before, after, strict=True)):
        return None
    return changed_args, changed_kwargs


def _is_size(value: Any) -> bool:
    """Whether a value is a tensor of one whole number, which PyTorch takes for a size."""
    if not isinstance(value, Handle):
        return False
    spec = value._spec
    return math.prod(spec.shape) == 1 and not (spec.dtype.is_floating_point or spec.dtype.is_complex)


def _returned_inputs(
    args: tuple[Any, ...], values: list[Value], outputs: Sequence[types_pb2.TensorSpec]
) -> tuple[int, ...]:
    """Per result: the index in `values` of the input that it is, or -1; empty if no result is an input."""
    if not any(output.same_as for output in outputs):
        return ()
    places = [
        values.index(output.same_as) if output.same_as and _input(args, output.same_as) is not None else -1
        for output in outputs
    ]
    return tuple(places) if max(places) >= 0 else ()


def use_rules(
    names: dict[str, str], dtype_rules: dict[str, tuple[str, str, str]], kinds: dict[str, dict[str, str]]
) -> None:
    """Set the ops' shape rules, by name, their dtype rules, and their parameters' kinds."""
    _RULES.update({op: RULES[name] for op, name in names.items()})
    DTYPE_RULES.update(dtype_rules)
    PARAMETER_KINDS.update(kinds)


@cache
def _number_places(op: str) -> frozenset[int]:
    """Places of an op's positional arguments that are numeric operands."""
    names, _, numbers = _parameters(op)
    return frozenset(place for place, name in enumerate(names) if name in numbers)


def _may_send_as_float(op: str, place: int, key: list[Any], value: int) -> bool:
    """Whether an integer may be sent as a float: with a floating tensor it gets the tensor's dtype anyway.

    Thus a loop's counter can vary without waiting. With an integer tensor it may not: x // 0 is refused there.
    """
    if place not in _number_places(op) or not -_MOST_EXACT <= value <= _MOST_EXACT:
        return False
    first = key[_KEY_HEAD] if place else None
    return isinstance(first, Spec) and first.dtype.is_floating_point


@cache
def _parameters(op: str) -> tuple[tuple[str, ...], dict[str, Any], frozenset[str]]:
    """An op's parameter names in order, their defaults, and the names of numeric operands."""
    ops: Any = OPS[0]
    name = op[:-1] if op.endswith("_") and not hasattr(ops, op) else op
    function = getattr(ops, name.replace(".", "_"), None)
    names = () if function is None else _names_of(function)
    return names, ops.DEFAULTS.get(name, {}), ops.NUMBERS.get(name, frozenset())


def _names_of(function: Any) -> tuple[str, ...]:
    """A function's parameter names. Its code object tells them sooner than its signature, unless it is wrapped."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return tuple(inspect.signature(function).parameters)
    positional = code.co_argcount
    named = positional + code.co_kwonlyargcount
    names: tuple[str, ...] = code.co_varnames
    rest = names[named : named + 1] if code.co_flags & inspect.CO_VARARGS else ()
    return names[:positional] + rest + names[positional:named]


def _without_defaults(op: str, args: tuple[Any, ...], kwargs: _NamedValues) -> tuple[tuple[Any, ...], _NamedValues]:
    """Arguments without those equal to defaults. Floats stay: a template expects them among its values."""
    names, defaults, _ = _parameters(op)

    def is_default(name: str, value: Any) -> bool:
        default = defaults.get(name, _MISSING)
        return type(value) is not float and type(value) is type(default) and value == default

    kwargs = [(name, value) for name, value in kwargs if not is_default(name, value)]
    count = len(args)
    while count and len(names) >= count and is_default(names[count - 1], args[count - 1]):
        count -= 1
    return args[:count], kwargs


_MISSING = object()


def _holds_float(value: Any) -> bool:
    """Whether an argument is, or may have, a float."""
    return isinstance(value, float) or (isinstance(value, (list, tuple)) and value != ())


def _fixed_floats(
    op: str, args: tuple[Any, ...], kwargs: _NamedValues, specs: Sequence[Spec]
) -> tuple[tuple[int, float], ...]:
    """Places and values of floats with which the call succeeds. With another value it might be refused.

    These are floats that are no operands, those of ops that check operands, and all if a result is of integers.
    """
    if not any(map(_holds_float, args)) and not any(_holds_float(value) for _, value in kwargs):
        return ()
    names, _, numbers = _parameters(op)
    named = [*zip([*names, *[""] * len(args)], args, strict=False), *kwargs]
    checked = op in _CHECKED_OPERANDS or any(_is_of_integers(spec) for spec in specs)
    fixed: list[tuple[int, float]] = []
    place = 0
    for name, value in named:
        walked = Operands([], [], [], None)
        walked.add(op, value)
        if checked or name not in numbers:
            fixed.extend((place + at, one) for at, one in enumerate(walked.values) if type(one) is float)
        place += len(walked.values)
    return tuple(fixed)


def _is_of_integers(spec: Spec) -> bool:
    return not (spec.dtype.is_floating_point or spec.dtype.is_complex or spec.dtype.name == "bool")


def _tensors(tensors: tuple[Any, ...]) -> Any:
    """Tensors given as separate arguments or as one list: meshgrid(a, b), meshgrid([a, b])."""
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors


def _renamed(name: str, given: Any, unset: Any, second: str, value: Any) -> Any:
    """Value of a parameter given by its second name. Raises TypeError if it was given by both names."""
    if given != unset:
        raise TypeError(
            f"{second} is another name of {name}: give one of them, not {name}={given} and {second}={value}"
        )
    return value


def _missing_sizes(caller: CodeType) -> GradwireTypeError:
    """The refusal of a call without sizes, by a method that takes them one by one."""
    name = caller.co_varnames[caller.co_argcount + caller.co_kwonlyargcount]
    return GradwireTypeError(f'{caller.co_name}() missing 1 required positional arguments: "{name}"')


def _sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given as separate arguments or as one tuple: zeros(2, 3), zeros((2, 3))."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    if not sizes:
        raise _missing_sizes(_getframe(1).f_code)
    return sizes
