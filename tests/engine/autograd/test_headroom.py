"""Headroom: a bound per node, a count of live gradients only when it is used up, and a refusal beyond the limit."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradwire_engine import Account, EngineError, Reason, call, tensor
from gradwire_engine.autograd.headroom import Headroom, needed


def _node(*shapes: tuple[int, ...], grows: bool = True, work: float = 0.0, list_position: int = -1) -> Any:
    op = SimpleNamespace(grows_back=grows, work_back=work, list_position=list_position)
    metas = [(shape, np.dtype(np.float64)) for shape in shapes]
    return SimpleNamespace(op=op, edges=[("node", 0)] * len(metas), metas=metas)


def test_a_node_needs_the_gradients_it_makes_and_its_working_memory() -> None:
    g = np.zeros(10)
    assert needed(_node((100,), (5,)), [g]) == 840
    assert needed(_node((100,), (5,), work=1.5), [g]) == 840 + 1260
    assert needed(_node((2,), work=1.0), [g]) == 16 + 80


def test_gradients_that_cannot_grow_are_as_large_as_the_given_one() -> None:
    g = np.zeros(10)
    assert needed(_node((3,), (4,), grows=False), [None, g]) == 160
    assert needed(_node((3,), (4,), grows=False, list_position=0), [g]) == 80
    assert needed(_node((3,), grows=False), [None]) == 0


def test_half_gradients_are_computed_in_float32() -> None:
    g = np.zeros(10, np.float16)
    assert needed(_node((10,)), [g]) == 80 + 2 * 80
    assert needed(_node((10,)), [np.zeros(10, np.int16)]) == 80


def test_there_is_no_room_without_a_limit_or_where_storages_count() -> None:
    assert Headroom.of(Account(), False) is None
    assert Headroom.of(Account(limit=10), True) is None
    assert Headroom.of(Account(bytes=4, limit=10), False).left == 6


def test_live_gradients_are_counted_only_when_the_room_is_used_up() -> None:
    room, looks = Headroom(Account(limit=10_000)), []

    def alive():
        looks.append(1)
        yield np.zeros(100)

    node, g = _node((500,)), np.zeros(1)
    room.reserve(node, [g], alive)
    room.reserve(node, [g], alive)
    assert (looks, room.left) == ([], 2000)
    room.reserve(node, [g], alive)
    assert looks == [1]
    assert room.left == 10_000 - 800 - 8 - 4000


def test_an_array_counts_once_however_often_it_is_viewed_and_a_root_not_at_all() -> None:
    room, whole, root = Headroom(Account(limit=10_000)), np.zeros(100), np.zeros(50)
    room.roots = [(("node", 0), root)]
    room.count(_node((10,)), [whole[:3], root[1:]], lambda: iter([whole, whole.reshape(10, 10), None]))
    assert room.left == 10_000 - 800 - 80


def test_beyond_the_limit_the_node_is_refused() -> None:
    room = Headroom(Account(bytes=9_000, limit=10_000))
    with pytest.raises(EngineError, match="limit of 10000") as refusal:
        room.reserve(_node((200,)), [np.zeros(1)], lambda: iter(()))
    assert refusal.value.reason is Reason.MEMORY_LIMIT


def test_near_the_limit_it_is_not_counted_at_every_node() -> None:
    room = Headroom(Account(limit=6400))
    room.count(_node((790,)), [], lambda: iter(()))
    assert room.left == 6400 // 64


@pytest.mark.parametrize("name", ["mul", "div", "matmul", "atan2"])
def test_real_nodes_need_no_more_than_told(name: str) -> None:
    import tracemalloc

    rng = np.random.default_rng(1)
    a, b = (tensor(rng.random((200, 200)) + 1, True) for _ in range(2))
    node, g = call(name, (a, b)).grad_fn, rng.random((200, 200))
    values = [each.value(node, "x") if hasattr(each, "value") else each for each in node.saved]
    tracemalloc.start()
    kept = [
        formula(g, *(values if places is None else [values[place] for place in places]))
        for _, formula, places, _ in node.saving_plan.formulas
    ]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(kept) == 2
    assert peak <= needed(node, [g]) * 1.05
