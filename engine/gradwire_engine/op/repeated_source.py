"""Source text of repeated calls: the checks of the operands' descriptions, the parts' forwards and their nodes.

The text is one function of a call's arguments and context, whose values are bound by name.
Calls that differ only in these values share the compiled text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, TypeAlias

import numpy as np

from gradwire_engine.core.context import Context
from gradwire_engine.graph.graph import Node
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import Storage, Tensor, edge_of
from gradwire_engine.op.op import Op
from gradwire_engine.op.refusals import REFUSED, explain
from gradwire_engine.op.workload import check_interrupt

#: Repeats a call: takes the arguments and the context, and returns the result; None if the op itself must be applied.
#: Raises EngineError: CANCELLED, and in place what the op raises.
Repeated: TypeAlias = "Callable[[tuple[Any, ...], Context], Tensor | None]"


class Part:
    """An op of a repeated call: where its arguments are, and how it is computed and recorded.

    Nodes refer to the part that made them: with the same part, everything but values is the same.
    """

    __slots__ = ("forward", "metas", "name", "op", "places", "plan", "told", "work")

    def __init__(self, op: Op, forward: Callable[..., Any], made: Tensor, told: Sequence[str]) -> None:
        """told: the names of the arguments in the source text of the call."""
        self.op, self.forward, self.told = op, forward, told
        node = made.node
        self.plan: Any = None if node is None else node.saving_plan
        self.metas = () if node is None else node.metas
        self.name = "" if node is None else node.name
        self.work = 0.0 if node is None else float(node.work)
        #: The parameters that get a gradient, -1 where none does; empty if the call is not recorded.
        self.places: tuple[int, ...] = ()
        if node is not None:
            places = zip(op.tensor_positions, node.metas, strict=True)
            self.places = tuple([-1 if meta is None else place for place, meta in places])

    def saved(self, args: Sequence[Any], plan: str) -> str:
        """Source text of what the node saves; `plan` names the plan."""
        found = []
        for kind, place in self.plan.getters:
            if kind == "argument" or (kind == "input" and type(args[place]) is not Tensor):
                found.append(self.told[place])
            elif kind == "input":
                found.append(f"Saved({self.told[place]}, -1)")
            elif kind == "output":
                found.append(f"Saved(made, {place})")
            else:
                return f"{plan}.save(({', '.join(self.told)},), (made,))"
        return f"({', '.join(found)},)" if found else "()"


class GeneralPart:
    """An op of a repeated call that takes a list, has several results or draws. Its nodes refer to no part.

    several: whether it has several results. first: of these the first that has a node. arrays: names of the arguments,
    where `told` names tensors.
    """

    __slots__ = ("arrays", "first", "forward", "op", "recorded", "several", "told", "work")

    def __init__(
        self, op: Op, forward: Callable[..., Any], made: Any, told: Sequence[str], arrays: Sequence[str]
    ) -> None:
        self.op, self.forward, self.told, self.arrays = op, forward, told, arrays
        self.several = type(made) is not Tensor
        nodes = [each.node for each in made] if self.several else [made.node]
        self.first = next((number for number, each in enumerate(nodes) if each is not None), 0)
        self.recorded = nodes[self.first] is not None
        self.work = float(nodes[self.first].work) if self.recorded else 0.0


def has_tensors(value: Any) -> bool:
    """Whether an argument is a list or tuple with tensors."""
    return type(value) in (list, tuple) and any(type(each) is Tensor for each in value)


class Source:
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
            if has_tensors(each):
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
            first = next((first for one, first in self.tensors if one is value), None) if self.same else None
            if first is not None:
                return f"{name} is not {first}"
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
        made: Callable[[Context], Repeated] = _bound_of("\n".join(text))(*self.names.values())
        return made


class Codes:
    """Compiled texts. known: those of earlier processes. noted: is called with those that this process compiles."""

    def __init__(self) -> None:
        self.known: dict[str, CodeType] = {}
        self.noted: Callable[[str, CodeType], object] | None = None

    def of(self, text: str) -> CodeType:
        """The code of a text."""
        code = self.known.get(text)
        if code is None:
            code = compile(text, "<repeated call>", "exec")
            if self.noted is not None:
                self.noted(text, code)
        return code


#: The compiled texts of this process (compile/eager/call_codes.py).
CODES = Codes()


#: Characters of a text that is kept for other calls: one with 100 tensors. A code takes three times as many bytes.
LONGEST_KEPT = 1 << 15


def _bound_of(text: str) -> Callable[..., Any]:
    """The function of a source text, which is kept unless it is long, as for lists of many tensors."""
    return _compiled(text) if len(text) <= LONGEST_KEPT else _compiled.__wrapped__(text)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Callable[..., Any]:
    """The function of a source text. Calls that differ in sizes have the same text, and compiling takes 0.4 ms."""
    made: dict[str, Any] = {}
    exec(CODES.of(text), _GLOBALS, made)
    bound: Callable[..., Any] = made["bound"]
    return bound


def call_of(
    source: Source,
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
        f"if {_exceeds(source, room, work)}:",
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


def _add_part(source: Source, number: int, part: Part, args: Sequence[Any]) -> None:
    """Add the computation of a part, and its node."""
    source.add(f"    array = {source.named(part.forward)}(np, {_arrays(part.told, args)})")
    _add_tensor(source, number, part)
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
    saved = part.saved(args, plan)
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


def _add_general(source: Source, number: int, part: GeneralPart) -> None:
    """Add the computation of a general part, which the op wraps and records."""
    op, name, args = source.named(part.op), f"r{number}", f"({', '.join(part.told)},)"
    source.add(f"    array = {source.named(part.forward)}(np, {', '.join(part.arrays)})")
    if part.several:
        source.add(f"    {name} = {op}.wrap_many({args}, array, {part.recorded}, context)")
        if part.work:
            source.add(f"    {name}[{part.first}].node.work = {source.named(part.work)}")
        return
    _add_tensor(source, number, part)
    if part.recorded:
        source.add(
            f"    node = made.node = {op}.record({args}, (made,))",
            "    node.command = command.number",
            "    node.seq = nodes.next",
            "    nodes.next += 1",
            "    made.requires_grad = True",
            *([f"    node.work = {source.named(part.work)}"] if part.work else []),
        )


def _add_tensor(source: Source, number: int, part: Part | GeneralPart) -> None:
    """Add the tensor of a part's array: of a view's as the op makes it, with the base's storage."""
    made = "Tensor(array, False, None, context)"
    if part.op.view:
        made = f"{source.named(part.op.wrap)}(({', '.join(part.told)},), array, context)"
    source.add(
        "    if type(array) is not ndarray:",
        "        array = as_array(array)",
        f"    made = r{number} = {made}",
    )


def _array(name: str) -> str:
    """Source text of a tensor's array; the checks have named those of the arguments."""
    return f"x{name}" if name[0] == "a" else f"{name}.array"


def _arrays(told: Sequence[str], args: Sequence[Any]) -> str:
    """Source text of arguments, with arrays in place of tensors."""
    return ", ".join([_array(name) if type(each) is Tensor else name for name, each in zip(told, args, strict=True)])


def _exceeds(source: Source, room: float, work: float) -> str:
    """Source text of whether the account refuses a call's bytes or operations."""
    return (
        f"account.limit and account.bytes + {source.named(room)} > account.limit"
        f" or {source.named(work)} > account.operations"
    )


def change_of(source: Source, op: Op, args: Sequence[Any]) -> None:
    """Add the in-place computation of an op by its writer."""
    writer, named = source.named(op.writer), source.named(op)
    _add_separate(source, args)
    source.add(
        "try:",
        f"    {writer}(np, {_arrays(source.told, args)})",
        "except REFUSED as error:",
        f"    raise explain({named}, args, error) from error",
        "storage.changed()",
        "return a0",
    )


def _add_separate(source: Source, args: Sequence[Any]) -> None:
    """Add the check that no other operand shares the first one's memory."""
    source.add("storage = a0.storage")
    for name, each in zip(source.told[1:], args[1:], strict=True):
        if type(each) is Tensor:
            source.add(f"if {name}.storage is storage:", "    return None")


def overwriting_of(source: Source, op: Op, args: Sequence[Any], forward: Any, room: float, work: float) -> None:
    """Add the in-place computation of an op by its forward, whose result is copied."""
    _add_separate(source, args)
    source.add(
        f"if {_exceeds(source, room, work)} or not xa0.flags.writeable:",
        "    return None",
        "try:",
        f"    array = {source.named(forward)}(np, {_arrays(source.told, args)})",
        "except Exception:",
        "    return None",
        "xa0[...] = array",
        "storage.changed()",
        "return a0",
    )


def result_names(name: str, result: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a part makes, and their names."""
    if type(result) is Tensor:
        yield name, result
    else:
        for number, each in enumerate(result):
            yield f"{name}[{number}]", each


def result_text(known: dict[int, str], made: Any) -> str | None:
    """Source text of a call's result; None if it is not known where that is from."""
    if type(made) is Tensor:
        return known.get(id(made))
    if type(made) not in (list, tuple) or not made:
        return None
    items = [known.get(id(each)) if type(each) is Tensor else None for each in made]
    if None in items:
        return None
    return _sequence(made, [each for each in items if each is not None])


def argument_text(source: Source, known: dict[int, str], value: Any) -> str | None:
    """The name of an op's argument; None if it is not known where the argument is from."""
    if type(value) is Tensor:
        return known.get(id(value))
    if has_tensors(value):
        items = [argument_text(source, known, each) for each in value]
        if None in items:
            return None
        return _sequence(value, [each for each in items if each is not None])
    return None if isinstance(value, (Tensor, list, np.ndarray)) else source.named(value)


def array_text(source: Source, known: dict[int, str], value: Any, told: str) -> str:
    """The same name with arrays in place of tensors. An item of a list that is not known has the list's name in its."""
    if type(value) is Tensor:
        return _array(told)
    if not has_tensors(value):
        return told
    items = [
        _array(known.get(id(each), f"{told}_{number}")) if type(each) is Tensor else source.named(each)
        for number, each in enumerate(value)
    ]
    return _sequence(value, items)


def _sequence(like: Any, items: Sequence[str]) -> str:
    """Source text of a list or tuple, whichever a value is."""
    return f"[{', '.join(items)}]" if type(like) is list else f"({', '.join(items)},)"


def as_array(value: Any) -> Any:
    """The result of a forward as an array. Raises TypeError for what is none."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    raise TypeError("a result that is no array")


def is_same(one: Any, other: Any) -> bool:
    """Whether two arguments that are no tensors are alike; 0.0 and -0.0 are not."""
    if type(one) is tuple and type(other) is tuple:
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and bool(one == other) and (type(one) is not float or repr(one) == repr(other))


_GLOBALS: dict[str, Any] = {
    "Tensor": Tensor, "Storage": Storage, "Saved": Saved, "Node": Node, "np": np, "ndarray": np.ndarray,
    "REFUSED": REFUSED, "explain": explain, "edge_of": edge_of, "check_interrupt": check_interrupt,
    "as_array": as_array, "is_same": is_same,
}  # fmt: skip
