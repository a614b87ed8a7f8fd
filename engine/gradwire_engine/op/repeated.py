"""Repeated calls: calls of ops whose operands are described as in an earlier call, with what follows decided once.

Shapes, layouts, dtypes and flags of the operands decide how an op is checked, computed and recorded. A function,
made from source text, keeps these decisions. It computes by the same forwards as `Op.apply`, so its results have the
same bits.
Where a check of it does not hold, or a forward raises, it changes nothing, and the caller applies the op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT, Context
from gradwire_engine.core.device import cupy
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.graph.graph import Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Storage, Tensor, edge_of
from gradwire_engine.op.admission import needed
from gradwire_engine.op.composite import Composite
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.op import Op, fits_into
from gradwire_engine.op.refusals import REFUSED, check_result, explain, shares_elements
from gradwire_engine.op.workload import check_interrupt, estimate

_MOST_PARTS = 64  # ops of one composite
_MOST_BYTES = 1 << 10  # of an array that a recipe holds
#: Repeats a call: takes the arguments and the context, and returns the result; None if the op itself must be applied.
#: Raises EngineError: CANCELLED, and in place what the op raises.
Repeated: TypeAlias = "Callable[[tuple[Any, ...], Context], Tensor | None]"


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
        return lambda xp, *args: op.compute(args)
    if op.promotes:
        operands = [arrays[place] for place in op.single_positions]
        found = {each.dtype for each in operands if type(each) is np.ndarray}
        plain = all(type(each) in (np.ndarray, float) for each in operands)
        if not plain or len(found) != 1 or not found <= {dtypes.float32, dtypes.float64}:
            return lambda xp, *args: op.compute(args)
    return op.forward


def is_repeatable(op: Any) -> bool:
    """Whether the descriptions of an op's operands decide everything but values."""
    return type(op) is Op and op.list_position < 0 and not op.draws and op.data_dependent is False


class Part:
    """An op of a repeated call: where its arguments are, and how it is computed and recorded.

    Nodes refer to the part that made them: with the same part, everything but values is the same.
    """

    __slots__ = ("forward", "metas", "name", "op", "places", "plan", "told", "work")

    def __init__(self, op: Op, args: Sequence[Any], made: Tensor, told: Sequence[str]) -> None:
        """told: the names of the arguments in the source text of the call."""
        self.op, self.told = op, told
        self.forward = forward_of(op, [each.array if type(each) is Tensor else each for each in args])
        node = made.node
        self.plan: Any = None if node is None else node.saving_plan
        self.metas = () if node is None else node.metas
        self.name = "" if node is None else node.name
        self.work = 0.0 if node is None else float(node.work)
        #: The parameters that get a gradient, -1 where none does; empty if the call is not recorded.
        self.places = () if node is None else tuple(_places(op, self.metas))

    def saved(self, args: Sequence[Any]) -> str:
        """Source text of what the node saves."""
        found = []
        for kind, place in self.plan.getters:
            if kind == "argument" or (kind == "input" and type(args[place]) is not Tensor):
                found.append(self.told[place])
            elif kind == "input":
                found.append(f"Saved({self.told[place]}, -1)")
            elif kind == "output":
                found.append(f"Saved(made, {place})")
            else:
                return f"plan.save(({', '.join(self.told)},), (made,))"
        return f"({', '.join(found)},)" if found else "()"


def _places(op: Op, metas: Sequence[Any]) -> Iterator[int]:
    for place, meta in zip(op.tensor_positions, metas, strict=True):
        yield -1 if meta is None else place


class GeneralPart:
    """An op of a repeated call that takes a list, has several results or draws. Its nodes refer to no part.

    several: whether it has several results. first: of these the first that has a node. arrays: names of the arguments,
    where `told` names tensors.
    """

    __slots__ = ("arrays", "first", "forward", "op", "recorded", "several", "told", "work")

    def __init__(self, op: Op, args: Sequence[Any], made: Any, names: tuple[Sequence[str], Sequence[str]], exact: bool):
        """exact: whether it must raise what the op raises."""
        self.op, (self.told, self.arrays) = op, names
        self.forward = forward_of(op, [_arrays_of(each) for each in args]) if not exact else _computed_by(op)
        self.several = type(made) is not Tensor
        nodes = [each.node for each in made] if self.several else [made.node]
        self.first = next((number for number, each in enumerate(nodes) if each is not None), 0)
        self.recorded = nodes[self.first] is not None
        self.work = float(nodes[self.first].work) if self.recorded else 0.0


def _computed_by(op: Op) -> Callable[..., Any]:
    return lambda xp, *args: op.compute(args)


def _arrays_of(value: Any) -> Any:
    """An argument with arrays in place of tensors."""
    if type(value) is Tensor:
        return value.array
    return type(value)(map(_arrays_of, value)) if type(value) in (list, tuple) else value


def _has_tensors(value: Any) -> bool:
    """Whether an argument is a list or tuple with tensors."""
    return type(value) in (list, tuple) and any(type(each) is Tensor for each in value)


class _Source:
    """Source text of a function of a call's arguments and context, and the values that it names.

    A call is a few microseconds, so its checks are one expression over local names, as in dataclasses' methods.
    """

    def __init__(self, args: Sequence[Any], varying: bool, views: bool, same: bool = False) -> None:
        """varying: whether other floats are allowed in place of the arguments that are floats. views: whether operands
        may be views. same: whether operands that are one tensor must be one again.
        """
        self.same = same
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self.told = [f"a{place}" for place in range(len(args))]
        #: Names of the arguments' tensors.
        self.tensors: list[tuple[Tensor, str]] = []
        self.add(f"{', '.join(self.told)}, = args")
        checks = ["context is not CURRENT", "duals.active"]
        for name, each in zip(self.told, args, strict=True):
            if _has_tensors(each):
                items = [f"{name}_{number}" for number in range(len(each))]
                wrong = f"type({name}) is not {type(each).__name__} or len({name}) != {len(each)}"
                self.add(f"if {wrong}:", "    return None", f"{', '.join(items)}, = {name}")
                checks += [self._check(item, one, False, views) for item, one in zip(items, each, strict=True)]
            else:
                checks.append(self._check(name, each, varying, views))
        self.add(f"if {' or '.join(checks)}:", "    return None")

    def _check(self, name: str, value: Any, varying: bool, views: bool) -> str:
        """Source text of whether an argument is not described like a value."""
        if type(value) is Tensor:
            if self.same and any(one is value for one, _ in self.tensors):
                return f"{name} is not {next(first for one, first in self.tensors if one is value)}"
            self.tensors.append((value, name))
            array = value.array
            late = f"(w.written or w.seen != {name}.storage.history)"  # a view that must follow its base first
            return (
                f"type({name}) is not Tensor or (w := {name}.view) is not None{f' and {late}' if views else ''}"
                f" or type({name}.storage) is not Storage or {name}.requires_grad is not {value.requires_grad}"
                f" or (x{name} := {name}.array).dtype is not {self.named(array.dtype)}"
                f" or x{name}.strides != {self.named(array.strides)} or x{name}.shape != {self.named(array.shape)}"
            )
        if varying and type(value) is float:
            return f"type({name}) is not float"
        known = self.named(value)
        return f"{name} is not {known} and not is_same({name}, {known})"

    def named(self, value: Any) -> str:
        """A new name of a value."""
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name

    def add(self, *lines: str) -> None:
        """Add lines to the function's body."""
        self.lines += lines

    def function(self) -> Callable[[Context], Repeated]:
        """What makes the function for a context."""
        text = [
            f"def bound({', '.join(self.names)}):", " def of(CURRENT):",
            "  account, nodes, command, duals = CURRENT.account, CURRENT.nodes, CURRENT.command, CURRENT.duals",
            "  def call(args, context):", *[f"   {line}" for line in self.lines], "  return call", " return of",
        ]  # fmt: skip
        made: Callable[[Context], Repeated] = _compiled("\n".join(text))(*self.names.values())
        return made


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Callable[..., Any]:
    """The function of a source text. Calls that differ in sizes have the same text, and compiling takes 0.4 ms."""
    made: dict[str, Any] = {}
    exec(compile(text, "<repeated call>", "exec"), _GLOBALS, made)
    bound: Callable[..., Any] = made["bound"]
    return bound


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


def as_array(value: Any) -> Any:
    """The result of a forward as an array. Raises TypeError for what is none."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise TypeError("a result that is no array")


def _call_of(
    source: _Source,
    parts: Sequence[Part | GeneralPart],
    given: Sequence[Sequence[Any]],
    room: int,
    work: float,
    answer: str,
) -> None:
    """Add the computation of the parts; `given` has the arguments that they had."""
    recorded = any(each.plan is not None if isinstance(each, Part) else each.recorded for each in parts)
    draws = [number for number, each in enumerate(parts) if each.op.draws]
    source.add(
        f"if account.limit and account.bytes + {source.named(room)} > account.limit"
        f" or {source.named(work)} > account.operations:",
        "    return None",
        "if account.pressed:",
        "    check_interrupt(context)",
        *(["first = nodes.next"] if recorded else []),
        *(["drawn = False"] if draws else []),
        "try:",
    )
    for number, (part, args) in enumerate(zip(parts, given, strict=True)):
        if number in draws[:1]:
            source.add("    drawn = True")
        if isinstance(part, Part):
            _add_part(source, number, part, args)
        else:
            _add_general(source, number, part)
    source.add(
        f"    return {answer}",
        "except Exception:",
        *(["    if drawn:", "        raise"] if draws else []),  # the op would draw other numbers
        *(["    nodes.next = first"] if recorded else []),
        "    return None",
    )


def _add_part(source: _Source, number: int, part: Part, args: Sequence[Any]) -> None:
    """Add the computation of a part, and its node."""
    told = [_array(name) if type(each) is Tensor else name for name, each in zip(part.told, args, strict=True)]
    source.add(
        f"    array = {source.named(part.forward)}(np, {', '.join(told)})",
        "    if type(array) is not ndarray:",
        "        array = as_array(array)",
        f"    made = r{number} = {_wrapped(source, part)}",
    )
    if part.plan is None:
        return
    edges = [
        "None"
        if place < 0
        else f"((n, {part.told[place]}.index) if (n := {part.told[place]}.node) is not None "
        f"else edge_of({part.told[place]}))"
        for place in part.places
    ]
    plan = source.named(part.plan)
    saved = part.saved(args).replace("plan.save", f"{plan}.save")
    source.add(
        f"    node = Node({source.named(part.op)}, {part.name!r}, {plan}, {saved}, ({', '.join(edges)},), "
        f"{source.named(part.metas)}, nodes.next)",
        "    nodes.next += 1",
        "    node.command = command.number",
        f"    node.part = {source.named(part)}",
        *([f"    node.work = {source.named(part.work)}"] if part.work else []),
        "    made.node = node",
        "    made.requires_grad = True",
    )


def _add_general(source: _Source, number: int, part: GeneralPart) -> None:
    """Add the computation of a general part, which the op wraps and records."""
    op, name, args = source.named(part.op), f"r{number}", f"({', '.join(part.told)},)"
    source.add(f"    array = {source.named(part.forward)}(np, {', '.join(part.arrays)})")
    if part.several:
        source.add(f"    {name} = {op}.wrap_many({args}, array, {part.recorded}, context)")
        if part.work:
            source.add(f"    {name}[{part.first}].node.work = {source.named(part.work)}")
        return
    source.add(
        "    if type(array) is not ndarray:",
        "        array = as_array(array)",
        f"    made = {name} = {_wrapped(source, part)}",
    )
    if part.recorded:
        source.add(
            f"    node = made.node = {op}.record({args}, (made,))",
            "    node.command = command.number",
            "    node.seq = nodes.next",
            "    nodes.next += 1",
            "    made.requires_grad = True",
            *([f"    node.work = {source.named(part.work)}"] if part.work else []),
        )


def _array(name: str) -> str:
    """Source text of a tensor's array; the checks have named those of the arguments."""
    return f"x{name}" if name[0] == "a" else f"{name}.array"


def _wrapped(source: _Source, part: Part | GeneralPart) -> str:
    """Source text of the tensor of a part's array: of a view's as the op makes it, with the base's storage."""
    if not part.op.view:
        return "Tensor(array, False, None, context)"
    return f"{source.named(part.op.wrap)}(({', '.join(part.told)},), array, context)"


def _change_of(source: _Source, op: Op, args: Sequence[Any]) -> None:
    """Add the in-place computation of an op by its writer."""
    told = [_array(name) if type(each) is Tensor else name for name, each in zip(source.told, args, strict=True)]
    writer, named = source.named(op.writer), source.named(op)
    _add_separate(source, args)
    source.add(
        "try:",
        f"    {writer}(np, {', '.join(told)})",
        "except REFUSED as error:",
        f"    raise explain({named}, args, error) from error",
        "storage.changed()",
        "return a0",
    )


def _add_separate(source: _Source, args: Sequence[Any]) -> None:
    """Add the check that no other operand shares the first one's memory."""
    source.add("storage = a0.storage")
    for name, each in zip(source.told[1:], args[1:], strict=True):
        if type(each) is Tensor:
            source.add(f"if {name}.storage is storage:", "    return None")


def _overwriting_of(source: _Source, op: Op, args: Sequence[Any], forward: Any, room: float, work: float) -> None:
    """Add the in-place computation of an op by its forward, whose result is copied."""
    told = [_array(name) if type(each) is Tensor else name for name, each in zip(source.told, args, strict=True)]
    _add_separate(source, args)
    source.add(
        f"if account.limit and account.bytes + {source.named(room)} > account.limit"
        f" or {source.named(work)} > account.operations or not xa0.flags.writeable:",
        "    return None",
        "try:",
        f"    array = {source.named(forward)}(np, {', '.join(told)})",
        "except Exception:",
        "    return None",
        "xa0[...] = array",
        "storage.changed()",
        "return a0",
    )


_GLOBALS: dict[str, Any] = {
    "Tensor": Tensor, "Storage": Storage, "Saved": Saved, "Node": Node, "np": np, "ndarray": np.ndarray,
    "REFUSED": REFUSED, "explain": explain, "edge_of": edge_of, "check_interrupt": check_interrupt,
    "as_array": as_array,
}  # fmt: skip


def is_same(one: Any, other: Any) -> bool:
    """Whether two arguments that are no tensors are alike; 0.0 and -0.0 are not."""
    if type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and bool(one == other) and (type(one) is not float or repr(one) == repr(other))


_GLOBALS["is_same"] = is_same


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
        elif views and _has_tensors(each):
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


def repeated_change(op: Op | Composite, args: tuple[Any, ...], context: Context) -> Repeated | None:
    """What repeats an in-place call with such arguments; None if the op itself must run each time."""
    recipe = recipe_of_change(op, args, context)
    return None if recipe is None else recipe.repeated(context)


def repeated_call(op: Op | Composite, args: tuple[Any, ...], context: Context) -> tuple[Any, Repeated | None]:
    """Apply an op; also return what repeats the call, or None if the op itself must run each time."""
    made, recipe = recipe_of_call(op, args, context)
    return made, None if recipe is None else recipe.repeated(context)


def recipe_of_change(op: Op | Composite, args: tuple[Any, ...], context: Context) -> Recipe | None:
    """What makes that which repeats an in-place call with such arguments; None if the op itself must run each time."""
    if not is_repeatable(op) or cupy() is not None or context.inference:
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
    source = _Source(args, bool(op.promotes), views)
    fits = op.writer is not None and fits_into(arrays[0], arrays, op.tensor_positions)
    if op.writes_always or (fits and not op.cast_positions):
        _change_of(source, op, args)
        operands = tuple([_operand(each, bool(op.promotes)) for each in args])
        return Recipe(source.function(), Listing(operands, writer=op.writer) if fits else None)
    if fits:
        return None
    return _overwriting(source, op, args, arrays, context)


def _overwriting(
    source: _Source, op: Op, args: tuple[Any, ...], arrays: tuple[Any, ...], context: Context
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
    _overwriting_of(source, op, args, forward, float(room), float(work))
    return Recipe(source.function(), None)


def recipe_of_call(op: Op | Composite, args: tuple[Any, ...], context: Context) -> tuple[Any, Recipe | None]:
    """Apply an op; also return what makes that which repeats the call, or None if the op must run each time."""
    if cupy() is not None or context.duals.active or context.tracer is not None or not _plain_tensors(args, True):
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
    source = _Source(args, varying, True, not alone)  # which of two equal operands an op was given is not known
    known = {id(each): name for each, name in source.tensors}
    parts: list[Part | GeneralPart] = []
    room, work, drawn = 0, 0.0, False
    for number, (op, given, result) in enumerate(recorder.calls):
        told = source.told if alone else [_told(source, known, each) for each in given]
        if not _may_repeat(op, given, result) or None in told:
            return None
        arrays = [_arrays_of(each) for each in given]
        work = max(work, estimate(op, arrays))
        room += max(needed(op, arrays), *_sizes(arrays), 0)
        drawn = drawn or op.draws
        if is_repeatable(op) and type(result) is Tensor and not drawn and not any(map(_has_tensors, given)):
            parts.append(Part(op, given, result, told))  # type: ignore[arg-type]
        else:
            texts = [_told_array(source, known, *pair) for pair in zip(given, told, strict=True)]  # type: ignore[arg-type]
            parts.append(GeneralPart(op, given, result, (told, texts), drawn))  # type: ignore[arg-type]
        for name, each in _results(f"r{number}", result):
            known[id(each)] = name
    answer = _answer(known, made)
    if work >= LONG or answer is None:
        return None
    _call_of(source, parts, [each for _, each, _ in recorder.calls], int(room), float(work), answer)
    plain = all(type(each) is Part for each in parts) and not any(map(_has_tensors, args))
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


def _results(name: str, result: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a part makes, and their names."""
    if type(result) is Tensor:
        yield name, result
    else:
        for number, each in enumerate(result):
            yield f"{name}[{number}]", each


def _answer(known: dict[int, str], made: Any) -> str | None:
    """Source text of a call's result; None if it is not known where that is from."""
    if type(made) is Tensor:
        return known.get(id(made))
    if type(made) not in (list, tuple) or not made:
        return None
    items = [known.get(id(each)) if type(each) is Tensor else None for each in made]
    if None in items:
        return None
    told = ", ".join([each for each in items if each is not None])
    return f"[{told}]" if type(made) is list else f"({told},)"


def _listed(
    source: _Source, parts: Sequence[Part], args: Sequence[Any], varying: bool, room: int, work: float, made: Tensor
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


def _told(source: _Source, known: dict[int, str], value: Any) -> str | None:
    """The name of an op's argument; None if it is not known where the argument is from."""
    if type(value) is Tensor:
        return known.get(id(value))
    if _has_tensors(value):
        items = [_told(source, known, each) for each in value]
        if None in items:
            return None
        told = ", ".join([each for each in items if each is not None])
        return f"[{told}]" if type(value) is list else f"({told},)"
    return None if isinstance(value, (Tensor, list, np.ndarray)) else source.named(value)


def _told_array(source: _Source, known: dict[int, str], value: Any, told: str) -> str:
    """The same name with arrays in place of tensors. All tensors are known."""
    if type(value) is Tensor:
        return _array(told)
    if not _has_tensors(value):
        return told
    items = [_array(known[id(each)]) if type(each) is Tensor else source.named(each) for each in value]
    return f"[{', '.join(items)}]" if type(value) is list else f"({', '.join(items)},)"
