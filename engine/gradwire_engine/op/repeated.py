"""Repeated calls: calls of ops whose operands are described as in an earlier call, with what follows decided once.

Shapes, layouts, dtypes and flags of the operands decide how an op is checked, computed and recorded. A function,
made from source text (op/repeated_source.py), keeps these decisions. It computes by the same forwards as `Op.apply`,
so its results have the same bits.
Where a check of it does not hold, or a forward raises, it changes nothing, and the caller applies the op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.core.device import cupy
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.tensor import Storage, Tensor
from gradwire_engine.op.admission import needed
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.op import Op, fits_into
from gradwire_engine.op.refusals import check_result, shares_elements
from gradwire_engine.op.repeated_source import (
    GeneralPart,
    Part,
    Repeated,
    Source,
    argument_text,
    array_text,
    call_of,
    change_of,
    has_tensors,
    overwriting_of,
    result_names,
    result_text,
)
from gradwire_engine.op.workload import estimate

_MOST_PARTS = 64  # ops of one composite
_MOST_BYTES = 1 << 10  # of an array that a recipe holds


class Operand(NamedTuple):
    """What a repeated call expects of an argument: a tensor of this description, any float, or this very value."""

    kind: str  # "tensor", "float" or "value"
    value: Any = None
    requires_grad: bool = False
    dtype: Any = None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


class Listing(NamedTuple):
    """What a repeated call computes, for those who join calls (autograd/step_join.py).

    parts: each with the sources of its arguments: ("given", an argument of the call), ("made", the result of an
    earlier part) or ("value", a constant). The last part makes the result. room: bytes; work: operations of one part.
    writer: of a call in place, what changes the first argument; it has no parts. result: describes a new tensor.
    """

    operands: tuple[Operand, ...]
    parts: tuple[tuple[Part, tuple[tuple[str, Any], ...]], ...] = ()
    room: int = 0
    work: float = 0.0
    writer: Any = None
    result: Operand | None = None


def listing_of(repeated: Repeated | None) -> Listing | None:
    """What a repeated call computes; None if it is not known."""
    return getattr(repeated, "listing", None)


class CallRecorder:
    """A tracer that notes the ops of one call. `failed`: the call depends on more than its operands' descriptions."""

    fuses = False
    plain = staticmethod(tuple)

    def __init__(self) -> None:
        self.failed = False
        self.calls: list[tuple[Op, tuple[Any, ...], Any]] = []

    def applied(self, op: Op, args: tuple[Any, ...], made: Any) -> None:
        """Note an op's call."""
        self.calls.append((op, args, made))

    def fail(self, why: str) -> None:
        """Note that the call cannot be repeated."""
        self.failed = True

    def wrote(self, op: Op, args: tuple[Any, ...], recorded: bool) -> None:
        """Called for an in-place op inside the call."""
        self.failed = True

    def created(self, made: Tensor) -> None:
        """Called for a tensor that no op made."""
        self.failed = True

    def observe(self, *about: Any) -> None:
        """Called for a backward inside the call."""
        self.failed = True


def record(
    context: Context, compute: Callable[[], Any], recorder: CallRecorder | None = None
) -> tuple[Any, CallRecorder]:
    """Run `compute` and note the ops that it applies."""
    recorder = recorder or CallRecorder()
    token = CURRENT.set(replace(context, tracer=recorder))
    try:
        return compute(), recorder
    finally:
        CURRENT.reset(token)


def forward_of(op: Op, arrays: Sequence[Any]) -> Callable[..., Any]:
    """What computes an op on arrays of these descriptions: the function that `Op.compute` calls, or that itself."""
    direct = op.direct(*arrays) if op.direct is not None else None
    if direct is not None:
        return direct
    refused = op.unsupported_error(tuple(arrays)) is not None or any(rule.when for rule in op.unsupported_dtypes)
    if op.cast_positions or refused:
        return computed_by(op)
    if op.promotes:
        operands = [arrays[place] for place in op.single_positions]
        found = {each.dtype for each in operands if type(each) is np.ndarray}
        plain = all(type(each) in (np.ndarray, float) for each in operands)
        if not plain or len(found) != 1 or not found <= {dtypes.float32, dtypes.float64}:
            return computed_by(op)
    return op.forward


@cache
def computed_by(op: Op) -> Callable[..., Any]:
    """What computes an op on all arguments: one function for each op."""
    return lambda xp, *args: op.compute(args)


def may_repeat() -> bool:
    """Whether calls may be repeated in this process. Descriptions do not tell a GPU's arrays from those of the host."""
    return cupy() is None


def is_repeatable(op: Any) -> bool:
    """Whether the descriptions of an op's operands decide everything but values."""
    return type(op) is Op and op.list_position < 0 and not op.draws and op.data_dependent is False


def _arrays_of(value: Any) -> Any:
    """An argument with arrays in place of tensors."""
    if type(value) is Tensor:
        return value.array
    return type(value)(map(_arrays_of, value)) if type(value) in (list, tuple) else value


class Recipe:
    """What makes the repeated calls of a description, one for each context with the same settings.

    listing: what they compute, if that can be joined with other calls.
    """

    __slots__ = ("_of", "is_small", "listing")

    def __init__(
        self, of: Callable[[Context], Repeated], listing: Listing | None, parts: Sequence[Part | GeneralPart] = ()
    ) -> None:
        self._of, self.listing = of, listing
        #: Whether it holds no arrays, so that it may be kept beside the sessions' memory.
        self.is_small = not any(_holds_arrays(part.forward) for part in parts)

    def repeated(self, context: Context) -> Repeated:
        """The repeated call of a context."""
        made = self._of(context)
        made.listing = self.listing  # type: ignore[attr-defined]
        return made


def _holds_arrays(function: Any) -> bool:
    """Whether a function's variables are large arrays."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return any(isinstance(each, np.ndarray) and each.nbytes > _MOST_BYTES for each in cells)


def _plain_tensors(args: Sequence[Any], views: bool) -> bool:
    """Whether all tensors are ordinary ones, or views that have followed their base, and other arguments are fixed.

    views: whether tensors may be views, and in lists.
    """
    for each in args:
        if type(each) is Tensor:
            if type(each.storage) is not Storage or type(each.array) is not np.ndarray:
                return False
            held = each.view
            if held is not None and (not views or held.written or held.seen != each.storage.history):
                return False
        elif views and has_tensors(each):
            if not _plain_tensors(each, views):
                return False
        elif not _is_fixed(each):
            return False
    return True


def _is_fixed(value: Any) -> bool:
    """Whether an argument is no tensor and has none, and can be compared with another."""
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    return not isinstance(value, (Tensor, list, complex, np.ndarray, np.generic))


def recipe_of_change(op: Op | Composite, args: tuple[Any, ...], context: Context) -> Recipe | None:
    """What makes that which repeats an in-place call with such arguments; None if the op itself must run each time."""
    if not is_repeatable(op) or not may_repeat() or context.inference:
        return None
    if context.grad_enabled and any(type(each) is Tensor and each.requires_grad for each in args):
        return None  # it is recorded, or refused
    views = not context.grad_enabled  # else a view may have to follow its base
    if not _plain_tensors(args, views) or context.duals.active or context.tracer is not None:
        return None
    assert isinstance(op, Op)
    arrays = tuple([each.array if type(each) is Tensor else each for each in args])
    if op.no_overlap or shares_elements(arrays[0]) or type(args[0]) is not Tensor:
        return None
    source = Source(args, bool(op.promotes), views)
    fits = op.writer is not None and fits_into(arrays[0], arrays, op.tensor_positions)
    if op.writes_always or (fits and not op.cast_positions):
        change_of(source, op, args)
        operands = tuple([_operand(each, bool(op.promotes)) for each in args])
        return Recipe(source.function(), Listing(operands, writer=op.writer) if fits else None)
    if fits:
        return None
    return _overwriting(source, op, args, arrays, context)


def _overwriting(
    source: Source, op: Op, args: tuple[Any, ...], arrays: tuple[Any, ...], context: Context
) -> Recipe | None:
    """What makes that which repeats an in-place call by the op's forward."""
    forward, work, room = forward_of(op, arrays), estimate(op, list(arrays)), needed(op, list(arrays))
    account = context.account
    if work >= LONG or work > account.operations or (account.limit and account.bytes + room > account.limit):
        return None
    try:
        result = forward(np, *arrays)
        check_result(op.name, args[0], result)
    except Exception:  # noqa: BLE001 - the op is applied next, and refuses the call
        return None
    overwriting_of(source, op, args, forward, float(room), float(work))
    return Recipe(source.function(), None)


def recipe_of_call(op: Op | Composite, args: tuple[Any, ...], context: Context) -> tuple[Any, Recipe | None]:
    """Apply an op; also return what makes that which repeats the call, or None if the op must run each time."""
    if not may_repeat() or context.duals.active or context.tracer is not None or not _plain_tensors(args, True):
        return op.apply(args), None
    if isinstance(op, Composite) and (op.reads_values or _depends_on_data(op, args)):
        return op.apply(args), None
    recorder, first, made = CallRecorder(), context.nodes.next, None
    state = context.generator.get_state() if op.draws else None
    try:
        made, _ = record(context, lambda: op.apply(args), recorder)
    except EngineError as error:
        if error.reason is not Reason.MEMORY_LIMIT or recorder.failed or not recorder.calls:
            raise
    if made is None:
        # The recorder holds the results of a composite's ops, so without it the call takes less memory.
        recorder.calls.clear()
        context.nodes.next = first
        if state is not None:
            context.generator.set_state(state)
        return op.apply(args), None
    if context.duals.active:  # the call gave its result a tangent, which no recorded op does
        return made, None
    if recorder.failed or len(recorder.calls) > _MOST_PARTS:
        return made, None
    alone = len(recorder.calls) == 1 and recorder.calls[0][0] is op and recorder.calls[0][1] is args
    varying = alone and isinstance(op, Op) and bool(op.promotes)
    return made, _of_calls(recorder, args, made, varying)


def _depends_on_data(op: Op | Composite, args: Sequence[Any]) -> bool:
    """Whether values decide a result's shape. A function of arguments without tensors in tuples tells it for all."""
    return bool(op.data_dependent(*args)) if callable(op.data_dependent) else op.data_dependent


def _of_calls(recorder: CallRecorder, args: tuple[Any, ...], made: Any, varying: bool) -> Recipe | None:
    alone = len(recorder.calls) == 1 and recorder.calls[0][1] is args
    source = Source(args, varying, True, not alone)  # which of two equal operands an op was given is not known
    known = {id(each): name for each, name in source.tensors}
    parts: list[Part | GeneralPart] = []
    room, work, drawn = 0, 0.0, False
    for number, (op, given, result) in enumerate(recorder.calls):
        told = source.told if alone else [argument_text(source, known, each) for each in given]
        if not _may_repeat(op, given, result) or None in told:
            return None
        arrays = [_arrays_of(each) for each in given]
        work = max(work, estimate(op, arrays))
        room += max(needed(op, arrays), *_sizes(arrays), 0)
        drawn = drawn or op.draws
        if is_repeatable(op) and type(result) is Tensor and not drawn and not any(map(has_tensors, given)):
            parts.append(Part(op, forward_of(op, arrays), result, told))  # type: ignore[arg-type]
        else:
            # Alone, it takes items by their places: one tensor given twice may be two in the next call.
            items = {} if alone else known
            texts = [array_text(source, items, *pair) for pair in zip(given, told, strict=True)]  # type: ignore[arg-type]
            forward = computed_by(op) if drawn else forward_of(op, arrays)  # a drawn part raises what the op raises
            parts.append(GeneralPart(op, forward, result, told, texts))  # type: ignore[arg-type]
        for name, each in result_names(f"r{number}", result):
            known[id(each)] = name
    answer = result_text(known, made)
    if work >= LONG or answer is None:
        return None
    call_of(source, parts, [each for _, each, _ in recorder.calls], int(room), float(work), answer)
    plain = all(type(each) is Part for each in parts) and not any(map(has_tensors, args))
    plain = plain and len(parts) > 0 and made is recorder.calls[-1][2]
    listing = _listed(source, parts, args, varying, int(room), float(work), made) if plain else None  # type: ignore[arg-type]
    return Recipe(source.function(), listing, parts)


def _may_repeat(op: Any, given: Sequence[Any], result: Any) -> bool:
    """Whether a call may be a part: the descriptions of its operands decide those of its results."""
    results = [result] if type(result) is Tensor else result if type(result) in (list, tuple) else [None]
    if type(op) is not Op or _depends_on_data(op, given) or not results:
        return False
    return all(type(each) is Tensor and type(each.array) is np.ndarray for each in results)


def _sizes(arrays: Sequence[Any]) -> Iterator[int]:
    for each in arrays:
        if type(each) is np.ndarray:
            yield each.nbytes
        elif type(each) in (list, tuple):
            yield from _sizes(each)


def _listed(
    source: Source, parts: Sequence[Part], args: Sequence[Any], varying: bool, room: int, work: float, made: Tensor
) -> Listing:
    """The listing of a call; before its function is made."""
    given = {name: ("given", place) for place, name in enumerate(source.told)}
    earlier = {f"r{number}": ("made", number) for number in range(len(parts))}
    known: dict[str, tuple[str, Any]] = {**given, **earlier}
    sources = [tuple([known.get(name) or ("value", source.names[name]) for name in part.told]) for part in parts]
    operands = [_operand(each, varying) for each in args]
    listed = tuple(zip(parts, sources, strict=True))
    return Listing(tuple(operands), listed, room, work, None, _operand(made, False))


def _operand(value: Any, varying: bool) -> Operand:
    if type(value) is Tensor:
        array = value.array
        return Operand("tensor", None, value.requires_grad, array.dtype, array.shape, array.strides)
    return Operand("float") if varying and type(value) is float else Operand("value", value)
