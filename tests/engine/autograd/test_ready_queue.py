"""The queue of ready nodes takes equals out as PyTorch's does, and the client's takes them out as the engine's."""

import random
from typing import Any

import pytest

from gradwire.autograd import _ready_queue as of_client
from gradwire_engine.autograd.ready_queue import Entry, pop, push

#: The order in which PyTorch 2.13 runs the AccumulateGrad nodes of a stack of so many leaves.
ORDERS = [
    [0],
    [0, 1],
    [0, 1, 2],
    [0, 2, 1, 3],
    [0, 2, 4, 1, 3],
    [0, 2, 5, 4, 1, 3],
    [0, 2, 5, 6, 4, 1, 3],
    [0, 2, 6, 5, 7, 4, 1, 3],
]


@pytest.mark.parametrize("order", ORDERS)
def test_equals_leave_in_pytorchs_order(order: list[int]) -> None:
    heap: list[Entry] = []
    for number in range(len(order)):
        push(heap, (0, number, None))
    assert [pop(heap)[1] for _ in order] == order


@pytest.mark.parametrize("seed", range(20))
def test_entries_leave_by_their_first_number_whenever_they_came(seed: int) -> None:
    draw = random.Random(seed)
    heap: list[Entry] = []
    inside: list[Any] = []
    for number in range(200):
        if inside and draw.random() < 0.45:
            taken = pop(heap)
            assert taken[0] == min(inside)[0]
            inside.remove(taken)
        else:
            entry = (draw.randrange(30), number, None)
            push(heap, entry)
            inside.append(entry)
    assert sorted(heap) == sorted(inside)


@pytest.mark.parametrize("seed", range(20))
def test_the_clients_queue_makes_the_same_moves(seed: int) -> None:
    draw = random.Random(seed)
    ours: list[Any] = []
    clients: list[Any] = []
    for number in range(200):
        if ours and draw.random() < 0.45:
            taken: Any = pop(ours)
            assert taken == of_client.pop(clients)
        else:
            entry = (draw.randrange(5), number)
            push(ours, entry)  # type: ignore[arg-type]
            of_client.push(clients, entry)
        assert ours == clients
