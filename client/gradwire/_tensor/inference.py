"""Inference: describes the results of calls that differ from an earlier one in numbers and sizes alone.

The first call of an op at a call site waits. If its shape rule (shape_rules/) gives the sizes that the server
answered, a `Model` keeps the rest of the answer: dtype, flags, nodes. Another call there with operands of the same
kinds gets the rule's sizes and the model's rest, and does not wait. Without a rule, or where the rule does not know,
the call waits as before, so an error that PyTorch raises at once is raised at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from gradwire._proxy.handle import Handle
from gradwire._proxy.memo import MEMO_LIMIT, MemoEntry, Model, Spec
from gradwire._proxy.protocols import SessionProtocol
from gradwire._tensor.in_place import writes_in_place
from gradwire._tensor.indexing import Index
from gradwire._tensor.shape_rules import MAY_COPY, RULES, Rule, Shapes, item_kinds
from gradwire._tensor.warnings import WARNING_OPS
from gradwire._transport.wire import Pattern, Value, make_pattern
from gradwire.v1 import service_pb2

# Number of key items before the arguments: op, grad mode, code, instruction offset.
_KEY_HEAD = 4
# Elements of a result above which a call waits at each call site.
_MOST_ELEMENTS = 1 << 18
_INT64 = range(-(1 << 63), 1 << 63)
# Ops and rules whose attributes of type float may vary: a rule checks them, or no value is refused.
_FREE_FLOATS = frozenset({"dropout", "uniform_", "normal_", "leaky_relu"})
# Ops that the server may refuse for the values of tensors, or of tensors of integers: an index out of range, a division
# by zero. A call site's first such call waits.
_REFUSING_VALUES = frozenset({"cross_entropy", "embedding", "embedding_bag", "gather", "index_select", "nll_loss"})
_REFUSING_INTEGERS = frozenset(
    {"bitwise_left_shift", "bitwise_right_shift", "div", "float_power", "floor_divide", "fmod", "pow", "remainder"}
)
_NamedValues = Sequence[tuple[str, Any]]
# Patterns of commands by their forms. To cut a message into a pattern takes 0.1 ms.
_PATTERNS: dict[tuple[Any, ...], Pattern] = {}


def infer(
    models: Mapping[tuple[Any, ...], Model | None],
    shapes: Shapes,
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    values: list[Value],
    call_site: tuple[CodeType, int],
    anywhere: bool | None = None,
) -> MemoEntry | None:
    """The entry of a call whose results a model describes, with the sizes of the op's rule; None if it must wait.

    anywhere: whether the models are those of all call sites. None: of all, unless values decide a refusal.
    """
    found = model_key(key, op, args, holds_anywhere(key, op, args) if anywhere is None else anywhere)
    if found is None:
        return None
    model = models.get(found[0])
    if model is None or shapes is None or len(shapes) != len(model.specs):
        return None
    if is_large(shapes) and model.call_site != call_site:
        return None
    if model.specs[0].device_name != "cpu" and any(strides for _, strides in shapes):
        return None
    fixed = model.fixed
    if fixed and any(values[place] != value for place, value in fixed):
        if op not in _FREE_FLOATS:
            return None
        fixed = tuple([(place, float(values[place])) for place, _ in fixed])
    specs = tuple([spec.of_sizes(sizes, strides) for spec, (sizes, strides) in zip(model.specs, shapes, strict=True)])
    return modelled(model, found[1], key, op, call_site, specs, fixed)


def modelled(
    model: Model,
    integers: Sequence[int],
    key: list[Any],
    op: str,
    call_site: tuple[CodeType, int],
    specs: tuple[Spec, ...],
    fixed: tuple[tuple[int, float], ...],
) -> MemoEntry:
    """The entry of a call that a model's pattern makes with these integers."""
    entry = MemoEntry(tuple(key), op, call_site, None, specs, fixed, writes_in_place(op))
    entry.model = model
    entry.integers = integers
    return entry


class Foreseen(NamedTuple):
    """What is known of a call before its answer: the results' sizes, and its model's key, integers and pattern."""

    shapes: Shapes
    key: tuple[Any, ...]
    integers: Sequence[int]
    pattern: Pattern


def foresee(
    shapes: Shapes,
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    kwargs: _NamedValues,
    values: Sequence[Value],
    build: Callable[..., service_pb2.Command],
) -> Foreseen | None:
    """What is known of a call before its answer, from the sizes of the op's rule; None if it has no model.

    `build` makes the command from arguments, named arguments and values.
    """
    found = None if shapes is None else model_key(key, op, args, holds_anywhere(key, op, args))
    if found is None:
        return None

    def build_with(stand_ins: Sequence[Value], integers: Sequence[int]) -> service_pb2.Command:
        numbers = iter(integers)
        replaced = tuple([_with_integers(value, numbers) for value in args])
        return build(replaced, [(name, _with_integers(value, numbers)) for name, value in kwargs], stand_ins)

    form = _form(key, found[1], values)
    pattern = _PATTERNS.get(form)
    if pattern is None:
        pattern = make_pattern(build_with, values, len(found[1]))
        if pattern is None:
            return None
        if len(_PATTERNS) >= MEMO_LIMIT:
            _PATTERNS.clear()
        _PATTERNS[form] = pattern
    return Foreseen(shapes, found[0], found[1], pattern)


def _form(key: list[Any], integers: Sequence[int], values: Sequence[Value]) -> tuple[Any, ...]:
    """All that decides a command's bytes but for its values and integers: what a call's tensors are does not."""
    kinds = tuple([type(value) for value in values])
    parts = [Spec if type(part) is Spec else int if type(part) is int else part for part in key[_KEY_HEAD:]]
    return (*key[: _KEY_HEAD - 2], len(integers), kinds, *parts)


def learn(session: SessionProtocol, foreseen: Foreseen | None, answer: MemoEntry) -> None:
    """Store the model of a call that was answered, if the answer has the sizes that were foreseen."""
    if foreseen is not None and foreseen.shapes == _shapes_of(answer):
        call_site = answer.code, answer.offset
        answer.model = Model(foreseen.key, call_site, foreseen.pattern, answer.specs, answer.fixed)
        session.remember_model(answer.model)


def sketch(
    rule: Rule,
    key: list[Any],
    op: str,
    args: tuple[Any, ...],
    kwargs: _NamedValues,
    answer: MemoEntry,
    anywhere: bool,
) -> None:
    """Give a recorded call's entry a model that makes no commands, if the op's rule gives the sizes of the answer.

    anywhere: whether it holds at all call sites.
    """
    shapes = rule(op, *args, **dict(kwargs))
    if shapes is None or shapes != _shapes_of(answer):
        return
    found = model_key(key, op, args, anywhere)
    if found is not None:
        answer.model = Model(found[0], (answer.code, answer.offset), None, answer.specs, answer.fixed)


def _shapes_of(answer: MemoEntry) -> Shapes:
    """Sizes and strides of the results."""
    return tuple([(tuple(spec.shape), spec.strides) for spec in answer.specs])


def is_large(shapes: Shapes) -> bool:
    """Whether results are so large that the server may lack the memory, which PyTorch says in the call."""
    return shapes is not None and any(math.prod(sizes) > _MOST_ELEMENTS for sizes, _ in shapes)


def holds_anywhere(key: list[Any], op: str, args: tuple[Any, ...]) -> bool:
    """Whether a model of such calls holds at all call sites: the server refuses none of them for a tensor's values."""
    if op in _REFUSING_VALUES or (op in WARNING_OPS and any(type(p) is Spec and p.dtype.is_complex for p in key)):
        return False
    if op.removesuffix("_") in _REFUSING_INTEGERS:
        return any(type(part) is Spec and part.dtype.is_floating_point for part in key[_KEY_HEAD:])
    return len(args) < 2 or type(args[1]) is not Index or not any(isinstance(one, Handle) for one in args[1].items)


def model_key(
    key: list[Any], op: str, args: tuple[Any, ...], anywhere: bool
) -> tuple[tuple[Any, ...], list[int]] | None:
    """The memo's key without sizes and integers, and the integers; None if a call like this is never inferred.

    anywhere: whether to leave out the call site, and the nodes that made the operands.
    """
    general = key[: _KEY_HEAD - 2] if anywhere else key[:_KEY_HEAD]
    integers = []
    for part in key[_KEY_HEAD:]:
        kind = type(part)
        if kind is int:
            if part not in _INT64:
                return None
            integers.append(part)
            general.append(int)
        elif kind is Spec:
            if part.kind is None or (part.strides and part.device_name != "cpu"):
                return None  # CuPy may choose other strides than NumPy for the results
            general.append(part.family if anywhere else part.kind)
        else:
            general.append(part)
    if op in MAY_COPY and isinstance(args[0], Handle) and args[0]._spec.strides:
        shapes = RULES[op](op, *args)
        general.append(shapes is not None and bool(shapes[0][1]))
    if len(args) > 1 and type(args[1]) is Index:
        general.append(item_kinds(args[0]._spec, args[1]))
    return tuple(general), integers


def _with_integers(value: Any, numbers: Iterator[int]) -> Any:
    """An argument with other integers, in the order of the memo's key."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return next(numbers)
    if isinstance(value, (list, tuple)):
        return [_with_integers(item, numbers) for item in value]
    if isinstance(value, Index):
        return Index(tuple([_with_integers(item, numbers) for item in value.items]))
    if isinstance(value, slice):
        return slice(*[_with_integers(part, numbers) for part in (value.start, value.stop, value.step)])
    return value
