"""Prepared ops: decodes an op's message once; a call then sends only the op's number and its inputs.

Decoding dominates the cost of a loop of small ops. prepared_calls.py applies the calls.
"""

from typing import Any, Protocol, TypeAlias

from gradwire.v1 import commands_pb2, types_pb2
from gradwire_engine import Context
from gradwire_server.session.arguments import Tensors, call_of, check_in_place, read_index

Words: TypeAlias = list[int]


class OpScope(Tensors, Protocol):
    """The session in which an op is prepared."""

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        """Engine context of an op. Raises Refusal."""


class Prepared:
    """A decoded op with places to fill: pairs of parameter position and word number, for tensors and doubles."""

    __slots__ = ("call", "context", "indices", "lists", "numbers", "outputs", "raw", "tensors", "values", "width")

    def __init__(self, request: commands_pb2.OpRequest, session: OpScope) -> None:
        """Decode an op. Raises Refusal: ARGUMENT_TYPE, MALFORMED, ARGUMENT_VALUE; OP_UNKNOWN."""
        self.call = call = call_of(request.op)
        self.raw = request.SerializeToString()
        self.context = session.context(request.grad_mode, request.default_dtype)
        self.values: list[Any] = list(call.defaults)
        self.tensors: list[tuple[int, int]] = []
        self.numbers: list[tuple[int, int]] = []
        self.lists: list[tuple[int, int, int]] = []
        self.indices: list[tuple[int, tuple[Any, ...], list[tuple[int, int]]]] = []
        self.width = 1
        for place, argument in zip(call.places(request.args), request.args, strict=True):
            self._place(place, argument, session)
        self.outputs = len(request.outputs)
        self.width += self.outputs
        call.check_complete(self.values)
        if call.in_place:
            check_in_place(call, request.outputs, bool(self.tensors) and self.tensors[0][0] == 0)

    def _place(self, place: int, argument: types_pb2.Argument, session: Tensors) -> None:
        kind = argument.WhichOneof("kind")
        read = self.call.reader(place, argument)
        self.values[place] = None  # filled by each call
        if kind == "tensor":
            self.tensors.append((place, self._take(1)))
        elif kind == "float":
            self.numbers.append((place, self._take(1)))
        elif kind == "tensors":
            count = len(argument.tensors.ids)
            self.lists.append((place, self._take(count), count))
        elif kind == "index":
            self._place_index(place, argument, session)
        else:
            self.values[place] = read(argument, session)

    def _place_index(self, place: int, argument: types_pb2.Argument, session: Tensors) -> None:
        constant = types_pb2.Argument()
        constant.index.CopyFrom(argument.index)
        holes: list[tuple[int, int]] = []
        for number, item in enumerate(constant.index.items):
            if item.WhichOneof("item") == "tensor":
                item.new_axis = True
                holes.append((number, self._take(1)))
        self.indices.append((place, read_index(constant, session), holes))

    def _take(self, count: int) -> int:
        first = self.width
        self.width += count
        return first

    def new_ids(self, ids: Words, at: int) -> Words:
        """Result ids of the call that begins at word `at`."""
        end = at + self.width
        return ids[end - self.outputs : end]

    def arguments(self, session: Tensors, ids: Words, numbers: list[float], at: int) -> tuple[Any, ...]:
        """Arguments of the call that begins at word `at`. Raises Refusal: TENSOR_NOT_FOUND, DEPENDENCY_FAILED."""
        values = self.values.copy()
        store = session.store
        for place, word in self.tensors:
            tensor_id = ids[at + word]
            found = store.get(tensor_id)
            values[place] = session.tensor(tensor_id) if found is None else found
        for place, word in self.numbers:
            values[place] = numbers[at + word]
        if self.lists:
            for place, word, count in self.lists:
                values[place] = session.tensors(ids[at + word : at + word + count])
        if self.indices:
            for place, items, holes in self.indices:
                filled = list(items)
                for number, word in holes:
                    filled[number] = session.tensor(ids[at + word])
                values[place] = tuple(filled)
        return tuple(values)
