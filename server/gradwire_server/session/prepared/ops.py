"""Prepared ops: decodes an op's message once; a call then sends only the op's number and its inputs.

Decoding dominates the cost of a loop of small ops. calls.py applies the calls.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from gradwire.v1 import commands_pb2, types_pb2
from gradwire_engine import Context
from gradwire_engine.op.repeated import Listing
from gradwire_server.session.arguments import Tensors, check_in_place, named_op, read_index
from gradwire_server.session.prepared.repeats import Description, Places, RepeatRoom, Repeats, shared_values

Words: TypeAlias = Sequence[int]
Read: TypeAlias = "Callable[[Mapping[int, Any], Words, Sequence[float], int], tuple[Any, ...]]"


def reader_of(values: Sequence[Any], tensors: Sequence[tuple[int, int]], numbers: Sequence[tuple[int, int]]) -> Read:
    """What makes the tuple of a call's arguments. Raises KeyError for a missing tensor.

    values: the fixed arguments. tensors, numbers: pairs of parameter position and word number.
    """
    told = [f"v{place}" for place in range(len(values))]
    for place, word in tensors:
        told[place] = f"store[ids[at + {word}]]"
    for place, word in numbers:
        told[place] = f"numbers[at + {word}]"
    fixed = [place for place, each in enumerate(told) if each == f"v{place}"]
    bound = _reader(", ".join(f"v{place}" for place in fixed), "".join(f"{each}, " for each in told))
    made: Read = bound(*[values[place] for place in fixed])
    return made


@lru_cache(maxsize=1024)
def _reader(fixed: str, told: str) -> Callable[..., Any]:
    """The function of a source text; many ops have the same."""
    made: dict[str, Any] = {}
    exec(f"def bound({fixed}):\n def read(store, ids, numbers, at):\n  return ({told})\n return read", made)
    bound: Callable[..., Any] = made["bound"]
    return bound


class OpScope(Tensors, Protocol):
    """The session in which an op is prepared."""

    repeat_room: RepeatRoom

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        """Engine context of an op. Raises Refusal."""


class Prepared:
    """A decoded op with places to fill: pairs of parameter position and word number, for tensors and doubles."""

    __slots__ = (
        "call",
        "context",
        "indices",
        "lists",
        "numbers",
        "outputs",
        "plainly",
        "raw",
        "read",
        "repeatable",
        "repeats",
        "tensors",
        "values",
        "width",
    )  # fmt: skip

    def __init__(self, request: commands_pb2.OpRequest, session: OpScope) -> None:
        """Decode an op. Raises Refusal: ARGUMENT_TYPE, MALFORMED, ARGUMENT_VALUE; OP_UNKNOWN."""
        self.call = call = named_op(request.op)
        self.raw = request.SerializeToString()
        self.context = session.context(request.grad_mode, request.default_dtype)
        self.values: list[Any] = list(call.defaults)
        self.tensors: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int]] = []
        self.lists: list[tuple[int, int, int]] = []
        self.indices: list[tuple[int, tuple[Any, ...], list[tuple[int, int]]]] = []
        self.width = 1
        for position, argument in zip(call.positions_of(request.args), request.args, strict=True):
            self._prepare_argument(position, argument, session)
        self.outputs = len(request.outputs)
        self.width += self.outputs
        call.check_complete(self.values)
        if call.in_place:
            check_in_place(call, request.outputs, bool(self.tensors) and self.tensors[0][0] == 0)
        #: Whether arguments are tensors and numbers, so that calls may be joined; and whether `apply` may repeat calls.
        self.plainly = not self.lists and not self.indices and (call.in_place or self.outputs == 1)
        self.repeatable = True
        places = Places(
            [place for place, _ in self.tensors],
            [place for place, _ in self.numbers],
            [(place, count) for place, _, count in self.lists],
            [(place, items, [hole for hole, _ in holes]) for place, items, holes in self.indices],
        )
        fixed, self.values = shared_values(call, self.values, places)
        #: Reads the arguments of a call whose tensors exist; None if they have lists or indices.
        self.read = None if self.lists or self.indices else reader_of(self.values, self.tensors, self.numbers)
        self.repeats = Repeats(call, self.context, fixed, places, session.repeat_room)

    def apply(self, arguments: tuple[Any, ...]) -> Any:
        """Apply the op, in its context, to arguments that the likely call did not take. Raises EngineError."""
        return self.repeats.apply(arguments) if self.repeatable else self.call.apply(arguments)

    @property
    def has_operands(self) -> bool:
        """Whether its calls take tensors."""
        return bool(self.tensors or self.lists or self.indices)

    def listing_for(self, operands: Sequence[Description], numbers: Sequence[float]) -> Listing | None:
        """What the repeated call of such operands and numbers, in the words' order, computes; None without one."""
        return self.repeats.listing_for(operands, numbers) if self.plainly else None

    def _prepare_argument(self, position: int, argument: types_pb2.Argument, session: Tensors) -> None:
        kind = argument.WhichOneof("kind")
        read = self.call.reader(position, argument)
        self.values[position] = None  # filled by each call
        if kind == "tensor":
            self.tensors.append((position, self._take(1)))
        elif kind == "float":
            self.numbers.append((position, self._take(1)))
        elif kind == "tensors":
            count = len(argument.tensors.ids)
            self.lists.append((position, self._take(count), count))
        elif kind == "index":
            self._prepare_index(position, argument, session)
        else:
            self.values[position] = read(argument, session)

    def _prepare_index(self, position: int, argument: types_pb2.Argument, session: Tensors) -> None:
        constant = types_pb2.Argument()
        constant.index.CopyFrom(argument.index)
        holes: list[tuple[int, int]] = []
        for number, item in enumerate(constant.index.items):
            if item.WhichOneof("item") == "tensor":
                item.new_axis = True
                holes.append((number, self._take(1)))
        items = read_index(constant, session)
        if holes:
            self.indices.append((position, items, holes))
        else:
            self.values[position] = items

    def _take(self, count: int) -> int:
        first = self.width
        self.width += count
        return first

    def new_ids(self, ids: Words, at: int) -> Words:
        """Result ids of the call that begins at word `at`."""
        end = at + self.width
        return ids[end - self.outputs : end]

    def arguments(self, session: Tensors, ids: Words, numbers: Sequence[float], at: int) -> tuple[Any, ...]:
        """Arguments of the call that begins at word `at`. Raises Refusal: TENSOR_NOT_FOUND, DEPENDENCY_FAILED."""
        store = session.store
        if self.read is not None:
            try:
                return self.read(store, ids, numbers, at)
            except KeyError:
                pass  # what is missing is refused below
        values = self.values.copy()
        for position, word in self.tensors:
            tensor_id = ids[at + word]
            found = store.get(tensor_id)
            values[position] = session.tensor(tensor_id) if found is None else found
        for position, word in self.numbers:
            values[position] = numbers[at + word]
        if self.lists:
            for position, word, count in self.lists:
                values[position] = session.tensors(ids[at + word : at + word + count])
        if self.indices:
            for position, items, holes in self.indices:
                filled = list(items)
                for number, word in holes:
                    filled[number] = session.tensor(ids[at + word])
                values[position] = tuple(filled)
        return tuple(values)
