"""Arguments: decodes an op's Argument messages to the tuple that the engine's op takes.

Each parameter's kind determines, once per op, a table from wire kinds to readers. A float for an integer parameter has
no reader and is refused, for every op.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol, TypeAlias

from gradwire.v1 import types_pb2
from gradwire_engine import Composite, Op, lookup
from gradwire_engine.core.schema import REQUIRED, Kind, Param
from gradwire_server.common.errors import Refusal
from gradwire_server.common.payload import dtype_of

Argument: TypeAlias = types_pb2.Argument
Reader: TypeAlias = "Callable[[Argument, Tensors], Any]"

# More items than any tensor's index needs: 64 dimensions, 64 new axes, and 0-dimensional masks between them.
MAX_INDEX_ITEMS = 256
# What PyTorch calls the kinds of arguments in its refusals.
_KINDS = {
    "tensor": "Tensor", "float": "float", "integer": "int", "boolean": "bool", "string": "str",
    "dtype": "torch.dtype", "integers": "tuple of ints", "tensors": "tuple of Tensors", "index": "index",
    "complex": "complex", "number": "number of the run", "floats": "tuple of floats", "none": "NoneType",
}  # fmt: skip


class Tensors(Protocol):
    """Resolves ids in arguments: to tensors of a session or a run, or to slots of a program being checked."""

    @property
    def store(self) -> Mapping[int, Any]:
        """Known tensors by id; for a missing id `tensor` raises the refusal."""

    def tensor(self, tensor_id: int, /) -> Any:
        """The tensor of an id. Raises Refusal."""

    def tensors(self, ids: Sequence[int], /) -> list[Any]:
        """The tensors of several ids. Raises Refusal."""

    def number(self, position: int, /) -> Any:
        """A number of a program's run. Raises Refusal."""


def _read_dtype(argument: Argument, session: Tensors) -> Any:
    return dtype_of(argument.dtype)


def read_index(argument: Argument, session: Tensors) -> tuple[Any, ...]:
    """Decode an index for the engine. Raises Refusal: ARGUMENT_VALUE, TENSOR_NOT_FOUND, MALFORMED."""
    given = len(argument.index.items)
    if given > MAX_INDEX_ITEMS:
        raise Refusal("ARGUMENT_VALUE", f"an index has at most {MAX_INDEX_ITEMS} items, not {given}", argument="index")
    return tuple([_read_item(item, session) for item in argument.index.items])


def _read_item(item: types_pb2.IndexItem, session: Tensors) -> Any:
    kind = item.WhichOneof("item")
    if kind == "integer":
        return item.integer
    if kind == "slice":
        part = item.slice
        start = part.start if part.HasField("start") else None
        stop = part.stop if part.HasField("stop") else None
        return slice(start, stop, part.step if part.HasField("step") else None)
    if kind == "tensor":
        return session.tensor(item.tensor)
    if kind == "ellipsis":
        return Ellipsis
    if kind == "new_axis":
        return None
    if kind == "boolean":
        return item.boolean
    raise Refusal("MALFORMED", "an item of an index is empty")


# Only programs have numbers given by a run.
_GIVEN: dict[str, Reader] = {"number": lambda argument, session: session.number(argument.number)}
_FLOAT: dict[str, Reader] = {
    **_GIVEN,
    "float": lambda argument, session: argument.float,
    "integer": lambda argument, session: float(argument.integer),
}
_INTEGER: dict[str, Reader] = {"integer": lambda argument, session: argument.integer}
_BOOLEAN: dict[str, Reader] = {"boolean": lambda argument, session: argument.boolean}
_STRING: dict[str, Reader] = {"string": lambda argument, session: argument.string}
_TENSOR: dict[str, Reader] = {"tensor": lambda argument, session: session.tensor(argument.tensor)}
_NUMBER: dict[str, Reader] = {
    **_GIVEN,
    "float": lambda argument, session: argument.float,
    "complex": lambda argument, session: complex(argument.complex.real, argument.complex.imag),
    **_INTEGER,
    **_BOOLEAN,
}
_INTEGERS: dict[str, Reader] = {
    "integers": lambda argument, session: tuple(argument.integers.values),
    **_INTEGER,  # not as a list: split(x, 2) differs from split(x, [2])
}
_READERS: dict[Kind, dict[str, Reader]] = {
    Kind.TENSOR: _TENSOR,
    Kind.TENSOR_OR_NUMBER: {**_TENSOR, **_NUMBER},
    Kind.TENSORS: {"tensors": lambda argument, session: session.tensors(argument.tensors.ids)},
    Kind.NUMBER: _NUMBER,
    Kind.FLOAT: _FLOAT,
    Kind.INTEGER: _INTEGER,
    Kind.BOOLEAN: _BOOLEAN,
    Kind.STRING: _STRING,
    Kind.DTYPE: {"dtype": _read_dtype},
    Kind.DEVICE: _STRING,
    Kind.INTEGERS: _INTEGERS,
    Kind.FLOATS: {
        "floats": lambda argument, session: list(argument.floats.values),
        "integers": lambda argument, session: [float(value) for value in argument.integers.values],
    },
    Kind.INDEX: {"index": read_index},
    Kind.NUMBER_OR_STRING: {**_NUMBER, **_STRING},
    Kind.INTEGERS_OR_STRING: {**_INTEGERS, **_STRING},
}
_NONE: dict[str, Reader] = {"none": lambda argument, session: None}


def readers_of(param: Param) -> dict[str, Reader]:
    """A parameter's readers by wire kind."""
    readers = _READERS[param.kind]
    return {**readers, **_NONE} if param.optional or param.default is None else readers


class NamedOp:
    """An op under one client-visible name: decodes its arguments and applies it, in place or not."""

    def __init__(self, name: str) -> None:
        """Look up the op. Raises EngineError: OP_UNKNOWN."""
        self.op: Op | Composite
        self.op, self.in_place = lookup(name)
        self.name = name
        params = tuple(self.op.params)
        if self.in_place:
            params = (replace(params[0], kind=Kind.TENSOR), *params[1:])  # what is changed is a tensor
        self.apply: Callable[[tuple[Any, ...]], Any] = self.op.in_place if self.in_place else self.op.apply
        self.params = params
        self.readers = [readers_of(param) for param in params]
        self.takes_tensor = ["tensor" in readers for readers in self.readers]
        self.defaults = list(self.op.defaults)
        self.positional = sum(not param.keyword_only for param in params)
        self.required = max(
            (position + 1 for position, param in enumerate(params) if param.default is REQUIRED), default=0
        )
        self.positions = self.op.positions
        flag = self.op.data_dependent
        self.data_dependent: Callable[..., bool] | None = flag if callable(flag) else None
        self.always_data_dependent = flag is True

    def decode(self, arguments: "Sequence[Argument]", session: Tensors) -> tuple[Any, ...]:
        """Decode all arguments, with defaults. Raises Refusal: ARGUMENT_TYPE, TENSOR_NOT_FOUND, DTYPE, MALFORMED."""
        values = self.defaults.copy()
        store = session.store
        position = 0
        for argument in arguments:
            if argument.name:
                return self._decode_named(arguments, session)
            if position >= self.positional:
                self._refuse_count(len(arguments))
            kind = argument.WhichOneof("kind")
            if kind == "tensor" and self.takes_tensor[position]:
                found = store.get(argument.tensor)
                values[position] = session.tensor(argument.tensor) if found is None else found
            else:
                values[position] = self.reader(position, argument)(argument, session)
            position += 1
        if position < self.required:
            self.check_complete(values)
        return tuple(values)

    def _decode_named(self, arguments: "Sequence[Argument]", session: Tensors) -> tuple[Any, ...]:
        values = self.defaults.copy()
        for position, argument in zip(self.positions_of(arguments), arguments, strict=True):
            values[position] = self.reader(position, argument)(argument, session)
        self.check_complete(values)
        return tuple(values)

    def positions_of(self, arguments: "Sequence[Argument]") -> list[int]:
        """Parameter positions of the arguments. Raises Refusal: ARGUMENT_TYPE."""
        found: list[int] = []
        named = False
        for number, argument in enumerate(arguments):
            position = number
            if argument.name:
                named = True
                position = self._position_of(argument.name)
            elif named:
                self._refuse("positional argument follows keyword argument")
            elif number >= self.positional:
                self._refuse_count(number + 1)
            if position in found:
                self._refuse(
                    f"got multiple values for argument '{self.params[position].name}'", self.params[position].name
                )
            found.append(position)
        return found

    def reader(self, position: int, argument: Argument) -> Reader:
        """The reader for a parameter's argument. Raises Refusal: ARGUMENT_TYPE, MALFORMED."""
        kind = argument.WhichOneof("kind")
        return self.readers[position].get(kind or "") or self._refuse_kind(position, argument, kind)

    def _position_of(self, name: str) -> int:
        position = self.positions.get(name)
        if position is None:
            self._refuse(f"got an unexpected keyword argument '{name}'; it has {', '.join(self.positions)}", name)
        return position

    def check_complete(self, values: list[Any]) -> None:
        """Check that every parameter has a value. Raises Refusal: ARGUMENT_TYPE."""
        for position, value in enumerate(values):
            if value is REQUIRED:
                name = self.params[position].name
                self._refuse(f"missing 1 required argument: '{name}'", name)

    def _refuse_count(self, given: int) -> NoReturn:
        self._refuse(f"takes {self.positional} positional arguments but {given} were given")

    def _refuse_kind(self, position: int, argument: Argument, kind: str | None) -> NoReturn:
        name = self.params[position].name
        if kind is None:
            raise Refusal("MALFORMED", f"{self.name}(): argument '{name}' has no value", op=self.name, argument=name)
        allowed = " or ".join(_KINDS[each] for each in self.readers[position] if each != "number")
        shown = {"float": f" ({argument.float!r})", "string": f" ({argument.string!r})"}.get(kind, "")
        raise Refusal(
            "ARGUMENT_TYPE",
            f"{self.name}(): argument '{name}' (position {position + 1}) must be {allowed}, not {_KINDS[kind]}{shown}",
            op=self.name,
            argument=name,
        )

    def _refuse(self, what: str, argument: str = "") -> NoReturn:
        refusal = Refusal("ARGUMENT_TYPE", f"{self.name}() {what}", op=self.name)
        if argument:
            refusal.metadata["argument"] = argument
        raise refusal


def check_in_place(call: NamedOp, outputs: Sequence[int], on_tensor: bool) -> None:
    """Check that an op can work in place on its first argument. Raises Refusal: ARGUMENT_VALUE, ARGUMENT_TYPE."""
    if outputs:
        raise Refusal("ARGUMENT_VALUE", f"{call.name}() works in place and makes no new tensor", argument="outputs")
    if not on_tensor:
        first = call.params[0].name
        raise Refusal("ARGUMENT_TYPE", f"{call.name}() works in place: '{first}' must be a tensor", argument=first)


NAMED_OPS: dict[str, NamedOp] = {}
MAX_OP_NAME = 200


def named_op(name: str) -> NamedOp:
    """The cached NamedOp of an op's name. Raises Refusal or EngineError: OP_UNKNOWN."""
    found = NAMED_OPS.get(name)
    if found is None:
        if len(name) > MAX_OP_NAME:
            raise Refusal("OP_UNKNOWN", f"there is no op {name[:MAX_OP_NAME]!r}…")
        found = NAMED_OPS[name] = NamedOp(name)
    return found
