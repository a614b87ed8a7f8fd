"""The Graph command: pages of a walk, edges by number, and what saved values are told."""

from collections.abc import Iterator
from typing import Any

import pytest

from gradwire.v1 import commands_pb2, types_pb2
from gradwire_engine import Tensor, retain_grad
from gradwire_server.common.errors import Refusal
from gradwire_server.session import graph_commands
from tests.server.session.opened import bound, opened


@pytest.fixture
def session() -> Iterator[Any]:
    with opened() as made:
        yield made


@pytest.fixture
def result(session: Any) -> Tensor:
    """y = x * x + x, known as 2; x is 1."""
    x = bound(session, 1, 1.0, 2.0)
    made = x * x + x
    session.bind(2, made)
    return made


def ask(session: Any, **fields: Any) -> commands_pb2.GraphResponse:
    answer = commands_pb2.GraphResponse()
    graph_commands.graph(session, commands_pb2.GraphRequest(**fields), answer)
    return answer


def test_nodes_come_nearest_first_with_their_edges_and_leaves(session: Any, result: Tensor) -> None:
    answer = ask(session, tensors=[2])
    add, mul, leaf = answer.nodes
    assert (add.name, mul.name) == ("AddBackward0", "MulBackward0")
    assert list(answer.roots) == [add.id]
    assert [edge.node for edge in add.edges] == [mul.id, leaf.id]
    assert [edge.node for edge in mul.edges] == [leaf.id, leaf.id]
    assert (leaf.leaf.id, list(leaf.leaf.shape)) == (1, [2])
    assert (answer.next_page_token, session.graph_walks.held) == ("", {})


def test_pages_follow_each_other_to_the_end_of_one_walk(session: Any, result: Tensor) -> None:
    whole = ask(session, tensors=[2])
    page = ask(session, tensors=[2], page_size=2)
    seen = list(page.nodes)
    assert len(seen) == 2
    page = ask(session, page_token=page.next_page_token, page_size=2)
    assert seen + list(page.nodes) == list(whole.nodes)
    assert (page.next_page_token, session.graph_walks.held) == ("", {})


def test_saved_values_are_told_on_request(session: Any, result: Tensor) -> None:
    assert [len(node.saved) for node in ask(session, tensors=[2]).nodes] == [0, 0, 0]
    mul = ask(session, tensors=[2], with_saved=True).nodes[1]
    assert {each.name for each in mul.saved} == {"input", "other"}
    assert {(tuple(each.shape), each.dtype) for each in mul.saved} == {((2,), types_pb2.DTYPE_FLOAT64)}
    assert mul.saved_bytes >= 16


def test_a_node_tells_whether_a_gradient_is_retained_and_it_was_freed(session: Any, result: Tensor) -> None:
    assert not ask(session, tensors=[2]).nodes[0].retains_grad
    retain_grad(result)
    add = ask(session, tensors=[2]).nodes[0]
    assert (add.retains_grad, add.freed) == (True, False)


def test_a_quiet_command_walks_and_answers_nothing(session: Any, result: Tensor) -> None:
    graph_commands.graph(session, commands_pb2.GraphRequest(tensors=[2]), None)
    assert session.graph_walks.held == {}


@pytest.mark.parametrize(
    ("fields", "reason", "says"),
    [
        ({"tensors": [2], "page_size": -1}, "ARGUMENT_VALUE", "page_size is -1, not 0 or more"),
        ({"page_token": "9.0"}, "ARGUMENT_VALUE", "page token"),
        ({"tensors": [99]}, "TENSOR_NOT_FOUND", "99"),
    ],
)
def test_wrong_requests_are_refused(session: Any, result: Tensor, fields: dict, reason: str, says: str) -> None:
    with pytest.raises(Refusal, match=says) as refusal:
        ask(session, **fields)
    assert refusal.value.reason == reason
