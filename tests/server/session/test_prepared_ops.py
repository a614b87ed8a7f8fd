"""Prepared ops: what is decoded once, which words a call fills, and what is refused when it is prepared."""

from typing import Any

import numpy as np
import pytest

from gradwire.v1 import commands_pb2, types_pb2
from gradwire_engine import Context, tensor
from gradwire_server.common.errors import Refusal
from gradwire_server.session.prepared import repeats
from gradwire_server.session.prepared.ops import Prepared
from gradwire_server.session.prepared.repeats import RepeatRoom
from tests.server.harness import Id, argument, op

CONTEXT = Context()


class Scope:
    """Four tensors by id."""

    def __init__(self) -> None:
        self.repeat_room = RepeatRoom()
        self.store = {number: tensor(np.full(2, float(number))) for number in (1, 2, 3, 4)}

    def tensor(self, tensor_id: int) -> Any:
        if tensor_id not in self.store:
            raise Refusal("TENSOR_NOT_FOUND", f"no tensor {tensor_id}")
        return self.store[tensor_id]

    def tensors(self, ids: list[int]) -> list[Any]:
        return [self.tensor(each) for each in ids]

    def context(self, grad_mode: int, default_dtype: int = 0) -> Context:
        return CONTEXT


SCOPE = Scope()


def prepared(name: str, *args: Any, **fields: Any) -> Prepared:
    return Prepared(op(name, *args, **fields), SCOPE)


def test_a_call_fills_tensors_and_doubles_and_keeps_the_rest() -> None:
    made = prepared("add", Id(1), 2.5, named={"alpha": 3}, outputs=[9])
    assert (made.width, made.outputs, made.context) == (4, 1, CONTEXT)
    ids, numbers = [0, 0, 4, 0, 12], [0.0, 0.0, 0.0, 7.5, 0.0]
    assert made.arguments(SCOPE, ids, numbers, 1) == (SCOPE.store[4], 7.5, 3)
    assert made.new_ids(ids, 1) == [12]


def test_calls_do_not_share_what_they_fill() -> None:
    made = prepared("mul", Id(1), Id(2), outputs=[9])
    first = made.arguments(SCOPE, [0, 1, 2, 9], [0.0] * 4, 0)
    second = made.arguments(SCOPE, [0, 3, 4, 9], [0.0] * 4, 0)
    assert (first, second) == ((SCOPE.store[1], SCOPE.store[2]), (SCOPE.store[3], SCOPE.store[4]))


def test_ops_that_differ_in_fixed_arguments_share_a_reader() -> None:
    found = [prepared("softplus", Id(1), 2.0, argument(threshold), outputs=[9]) for threshold in (10, 20)]
    for made, threshold in zip(found, (10, 20), strict=True):
        assert made.arguments(SCOPE, [0, 3, 0, 9], [0.0, 0.0, 1.5, 0.0], 0) == (SCOPE.store[3], 1.5, threshold)
    assert found[0].read.__code__ is found[1].read.__code__  # type: ignore[union-attr]


def test_lists_take_as_many_words_as_they_have_tensors() -> None:
    parts = types_pb2.Argument()
    parts.tensors.ids.extend([1, 2, 3])
    made = prepared("cat", parts, 0, outputs=[9])
    assert made.width == 5
    (tensors, dim) = made.arguments(SCOPE, [0, 4, 4, 1, 9], [0.0] * 5, 0)
    assert (tensors, dim) == ([SCOPE.store[4], SCOPE.store[4], SCOPE.store[1]], 0)


def test_an_index_keeps_its_numbers_and_has_holes_for_tensors() -> None:
    index = types_pb2.Argument()
    index.index.items.add(integer=1)
    index.index.items.add(tensor=2)
    index.index.items.add(ellipsis=True)
    made = prepared("getitem", Id(1), index, outputs=[9])
    assert made.width == 4
    source, key = made.arguments(SCOPE, [0, 3, 4, 9], [0.0] * 4, 0)
    assert (source, key) == (SCOPE.store[3], (1, SCOPE.store[4], Ellipsis))


def test_a_missing_tensor_is_refused_when_it_is_called() -> None:
    made = prepared("neg", Id(99), outputs=[9])
    with pytest.raises(Refusal, match="no tensor 55"):
        made.arguments(SCOPE, [0, 55, 9], [0.0] * 3, 0)


def test_the_message_is_kept_as_it_came() -> None:
    request = op("neg", Id(1), outputs=[9])
    assert commands_pb2.OpRequest.FromString(Prepared(request, SCOPE).raw) == request


@pytest.mark.parametrize(
    ("name", "args", "fields", "says"),
    [
        ("add", (), {}, "missing 1 required argument"),
        ("neg", ("x",), {}, "must be Tensor, not str"),
        ("add_", (Id(1), 1.0), {"outputs": [9]}, "makes no new tensor"),
        ("mul_", (2.0, Id(1)), {}, "'input' .* must be Tensor"),
    ],
)
def test_an_op_that_could_not_be_called_is_not_prepared(name: str, args: tuple, fields: dict, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        prepared(name, *args, **fields)


def test_an_in_place_op_has_no_outputs() -> None:
    made = prepared("add_", Id(1), 1.0)
    assert (made.outputs, made.width, made.new_ids([0, 1, 2], 0)) == (0, 3, [])


def test_a_call_is_kept_to_be_repeated_after_some_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = prepared("mul", Id(1), Id(2), outputs=[9]), []
    monkeypatch.setattr(repeats, "recipe_of_call", lambda op, args, context: (op.apply(args), asked.append(args)))
    for _ in range(repeats._FIRST):
        assert made.apply((SCOPE.tensor(1), SCOPE.tensor(2))).array.tolist() == [2, 2]
    assert not asked
    assert made.apply((SCOPE.tensor(1), SCOPE.tensor(2))).array.tolist() == [2, 2]
    assert len(asked) == 1
