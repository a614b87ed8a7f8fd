"""Arguments: every kind that travels is read as its parameter wants it, and every other is refused by name."""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import pytest

from gradwire.v1 import types_pb2
from gradwire_engine import EngineError, tensor
from gradwire_engine.core import dtypes
from gradwire_server.common.errors import Refusal
from gradwire_server.session import arguments
from tests.server.harness import Id, argument, op

X, Y = tensor(np.ones(2)), tensor(np.zeros(2))


class Held:
    """Two tensors by id, and the numbers of a run."""

    def __init__(self) -> None:
        self.store = {1: X, 2: Y}

    def tensor(self, tensor_id: int) -> Any:
        if tensor_id not in self.store:
            raise Refusal("TENSOR_NOT_FOUND", f"no tensor {tensor_id}")
        return self.store[tensor_id]

    def tensors(self, ids: Sequence[int]) -> list[Any]:
        return [self.tensor(each) for each in ids]

    def number(self, place: int) -> float:
        return 100.0 + place


HELD = Held()


def decode(name: str, *args: Any, **named: Any) -> tuple[Any, ...]:
    return arguments.named_op(name).decode(op(name, *args, named=named).args, HELD)


def A(**fields: Any) -> types_pb2.Argument:
    return types_pb2.Argument(**fields)


@pytest.mark.parametrize(
    ("name", "args", "named", "found"),
    [
        ("add", (Id(1), Id(2)), {}, (X, Y, 1)),
        ("add", (Id(1), 2.5), {"alpha": 3}, (X, 2.5, 3)),
        ("add", (Id(1), True), {}, (X, True, 1)),
        ("sum", (Id(1),), {"keepdim": True}, (X, None, True, None)),
        ("sum", (), {"dim": 0, "input": Id(1)}, (X, 0, False, None)),
        ("sum", (Id(1), types_pb2.Argument(none=types_pb2.NoneValue())), {}, (X, None, False, None)),
    ],
)
def test_arguments_by_place_and_by_name_fill_the_parameters_and_defaults_the_rest(name, args, named, found) -> None:
    assert decode(name, *args, **named) == found


def test_an_integer_is_read_as_a_float_where_one_is_wanted_and_never_the_other_way() -> None:
    assert decode("softplus", Id(1), 2)[1] == 2.0
    assert type(decode("softplus", Id(1), 2)[1]) is float
    with pytest.raises(
        Refusal, match=r"select\(\): argument 'dim' \(position 2\) must be int, not float \(1.0\)"
    ) as refusal:
        decode("select", Id(1), 1.0, 0)
    assert refusal.value.reason == "ARGUMENT_TYPE"
    assert refusal.value.metadata == {"op": "select", "argument": "dim"}


def _lists() -> types_pb2.Argument:
    made = A()
    made.tensors.ids.extend([1, 2, 1])
    return made


def test_lists_of_tensors_and_of_numbers_are_read() -> None:
    assert decode("stack", _lists())[0] == [X, Y, X]
    sizes = A()
    sizes.integers.values.extend([1, 2])
    assert decode("reshape", Id(1), sizes)[1] == (1, 2)
    assert decode("split", Id(1), 2)[1] == 2
    floats = A(name="scale_factor")
    floats.floats.values.extend([0.5, 2.0])
    assert arguments.named_op("interpolate").decode([A(tensor=1), floats], HELD)[2] == [0.5, 2.0]


def test_complex_numbers_dtypes_and_a_runs_numbers_are_read() -> None:
    value = A()
    value.complex.real, value.complex.imag = 1.0, -2.0
    assert decode("add", Id(1), value)[1] == 1 - 2j
    assert decode("to", Id(1), A(dtype=types_pb2.DTYPE_FLOAT64))[1] == dtypes.float64
    assert decode("add", Id(1), A(number=3))[1] == 103.0


@pytest.mark.parametrize(
    ("fields", "found", "kind"),
    [
        ({"integer": -3}, -3, int),
        ({"slice": types_pb2.Slice(start=1, stop=5)}, slice(1, 5, None), slice),
        ({"slice": types_pb2.Slice(step=2)}, slice(None, None, 2), slice),
        ({"tensor": 2}, Y, type(Y)),
        ({"ellipsis": True}, Ellipsis, EllipsisType),
        ({"new_axis": True}, None, type(None)),
        ({"boolean": False}, False, bool),
    ],
)
def test_each_item_of_an_index_is_read(fields: dict, found: Any, kind: type) -> None:
    index = A()
    index.index.items.add(**fields)
    (item,) = arguments.read_index(index, HELD)
    assert (item, type(item)) == (found, kind)


def test_an_index_with_too_many_or_empty_items_is_refused() -> None:
    index = A()
    for _ in range(arguments.MAX_INDEX_ITEMS + 1):
        index.index.items.add(integer=0)
    with pytest.raises(
        Refusal, match=f"at most {arguments.MAX_INDEX_ITEMS} items, not {arguments.MAX_INDEX_ITEMS + 1}"
    ):
        arguments.read_index(index, HELD)
    empty = A()
    empty.index.items.add()
    with pytest.raises(Refusal, match="an item of an index is empty") as refusal:
        arguments.read_index(empty, HELD)
    assert refusal.value.reason == "MALFORMED"


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("add", (), "missing 1 required argument: 'input'"),
        ("neg", (Id(1), 2), "takes 1 positional arguments but 2 were given"),
        ("add", (Id(1), argument(2, "other"), 3), "positional argument follows keyword argument"),
        ("add", (Id(1), argument(2, "input")), "multiple values for argument 'input'"),
        ("add", (Id(1), argument(2, "others")), "unexpected keyword argument 'others'; it has input, other, alpha"),
        ("neg", ("x",), "argument 'input' (position 1) must be Tensor, not str ('x')"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_ops_name(name: str, args: tuple, says: str) -> None:
    with pytest.raises(Refusal) as refusal:
        decode(name, *args)
    assert refusal.value.reason == "ARGUMENT_TYPE"
    assert f"{name}()" in str(refusal.value)
    assert says in str(refusal.value)


def test_an_argument_without_a_value_is_malformed() -> None:
    with pytest.raises(Refusal, match="argument 'input' has no value") as refusal:
        decode("neg", A())
    assert refusal.value.reason == "MALFORMED"


def test_an_unknown_op_is_refused_and_a_long_name_is_cut() -> None:
    with pytest.raises(EngineError, match="there is no op 'ad'; the nearest are"):
        arguments.named_op("ad")
    with pytest.raises(Refusal, match="there is no op") as refusal:
        arguments.named_op("x" * 10_000)
    assert len(str(refusal.value)) < 300
    assert "ad" not in arguments.NAMED_OPS
    assert arguments.named_op("add") is arguments.named_op("add")


def test_an_in_place_call_makes_nothing_and_wants_a_tensor() -> None:
    call = arguments.named_op("add_")
    assert call.in_place
    arguments.check_in_place(call, [], True)
    with pytest.raises(Refusal, match="makes no new tensor"):
        arguments.check_in_place(call, [7], True)
    with pytest.raises(Refusal, match="'input' must be a tensor"):
        arguments.check_in_place(call, [], False)
