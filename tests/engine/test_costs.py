"""Costs: every op has one, it is refused beyond the limit, and what is small is not slowed by asking."""

import math

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core.context import Interrupt
from gradwire_engine.op import workload
from gradwire_engine.op.declaration import OPS, UNDECLARED
from gradwire_engine.ops.linalg.products import _cheapest_splits

LIMIT = 10**9


def limited(operations: float = LIMIT) -> engine.Context:
    return engine.Context(account=engine.Account(limit=1 << 30, operations=operations))


def test_every_op_tells_what_it_will_compute():
    registered = [op for op in OPS.values() if op.function.__module__.startswith("gradwire_engine.ops.")]
    assert [op.name for op in registered if op.cost is UNDECLARED] == []


def bomb(name, *args):
    return pytest.param(name, args, id=name)


def values(*shape, dtype=np.float32):
    return engine.tensor(np.zeros(shape, dtype))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        bomb("linalg.svd", values(1000, 1000)),
        bomb("linalg.eig", values(800, 800)),
        bomb("linalg.inv", values(2000, 2000)),
        bomb("linalg.pinv", values(1000, 1000)),
        bomb("linalg.matrix_exp", values(1500, 1500)),
        bomb("matmul", values(3000, 3000), values(3000, 3000)),
        bomb("matmul", values(800, 800, dtype=np.int64), values(800, 800, dtype=np.int64)),
        bomb("conv2d", values(8, 64, 128, 128), values(64, 64, 7, 7)),
        bomb("conv_transpose2d", values(8, 64, 128, 128), values(64, 64, 7, 7)),
        bomb("max_pool2d", values(1, 1, 2000, 2000), 99, 1),
        bomb("adaptive_max_pool2d", values(1, 1, 8, 8), 1000),
        bomb("nn.functional.unfold", values(1, 1, 2000, 2000), 9),
        bomb("fft.fft", values(3), 8_000_009),
        bomb("mvlgamma", values(3), 10**9),
        bomb("linalg.multi_dot", [values(1, 1)] * 1001),
        bomb("ctc_loss", values(2000, 32, 50), values(32, 500, dtype=np.int64), [2000] * 32, [500] * 32),
        bomb("digamma", values(5_000_000)),
    ],
)
def test_an_op_beyond_the_limit_is_refused_and_named(name, args):
    context = limited()
    with (
        engine.activate(context),
        pytest.raises(engine.EngineError, match="operations at once; the limit is 1e09") as raised,
    ):
        engine.call(name, args)
    assert raised.value.reason is engine.Reason.OP_LIMIT
    assert set(raised.value.metadata) == {"op", "operations", "limit"}
    assert context.account.bytes < 1 << 28


@pytest.mark.parametrize(
    ("name", "args"), [("logcumsumexp", (0,)), ("cumprod", (0,)), ("prod", ()), ("sum", ()), ("exp", ())]
)
def test_a_backward_is_refused_where_its_formula_takes_too_long(name, args):
    context = limited(10**8)
    with engine.activate(context):
        leaf = engine.tensor(np.ones(50_000), True)
        loss = engine.call("sum", [engine.call(name, [leaf, *args])])
        if name in ("logcumsumexp", "cumprod"):
            with pytest.raises(engine.EngineError, match=f"the backward of {name}") as raised:
                engine.backward([loss])
            assert raised.value.reason is engine.Reason.OP_LIMIT
            assert leaf.grad is None
        else:
            engine.backward([loss])
            assert leaf.grad is not None


@pytest.mark.parametrize(
    ("name", "args"),
    [
        bomb("index_select", values(300_000, 1), 0, values(300_000, dtype=np.int64)),
        bomb("gather", values(300_000, 1), 0, values(300_000, 1, dtype=np.int64)),
        bomb("embedding", values(300_000, dtype=np.int64), values(300_000, 1)),
        bomb("index_add", values(300_000, 1), 0, values(300_000, dtype=np.int64), values(300_000, 1)),
        bomb("mv", values(300_000, 1), values(1)),
        bomb("batch_norm", values(300_000, 2, 1), values(2), values(2)),
        bomb("layer_norm", values(300_000, 1), [1]),
        bomb("nll_loss", values(300_000, 2), values(300_000, dtype=np.int64)),
    ],
)
def test_operands_that_do_not_broadcast_are_not_taken_to(name, args):
    with engine.activate(engine.Context(account=engine.Account(operations=10**8))):
        engine.call(name, args)


class Aside(Interrupt):
    """Notes what is computed aside."""

    __slots__ = ("asked", "rooms")

    def __init__(self):
        super().__init__()
        self.asked = []
        self.rooms = []

    def offload(self, compute, name, work, alone, room=0):
        self.asked.append((name, alone))
        self.rooms.append(room)
        return compute()


def test_what_takes_long_is_handed_to_the_interrupt_and_nothing_else_is():
    interrupt = Aside()
    with engine.activate(engine.Context(interrupt=interrupt)):
        leaf = engine.tensor(np.eye(500), True)
        engine.call("add", [leaf, leaf])
        assert interrupt.asked == []
        made = engine.call("linalg.svd", [leaf])
        assert interrupt.asked == [("_svd", True)]
        engine.backward([engine.call("sum", [made[1]])])
        assert interrupt.asked[1] == ("SvdBackward0", True) or interrupt.asked[1][1]
        assert len(interrupt.asked) == 2
        engine.call("bernoulli", [engine.call("expand", [engine.tensor(np.ones(1)), (20_000_000,)])])
        assert interrupt.asked[2] == ("bernoulli", False)  # the generator's state is of this process


def test_what_is_computed_aside_tells_what_it_will_take():
    interrupt = Aside()
    with engine.activate(engine.Context(interrupt=interrupt)):
        leaf = engine.tensor(np.eye(500), True)
        engine.backward([engine.call("sum", [engine.call("linalg.svd", [leaf])[1]])])
    assert all(room >= leaf.array.nbytes for room in interrupt.rooms)


def test_creations_of_many_are_computed_aside_in_a_thread():
    interrupt = Aside()
    with engine.activate(engine.Context(interrupt=interrupt)):
        engine.call("randn", [(1000, 1000)])
        assert interrupt.asked == []
        assert engine.call("randn", [(11_000, 1000)]).shape == (11_000, 1000)
    assert interrupt.asked == [("creation", False)]


def test_creations_beyond_the_limit_are_refused():
    with engine.activate(limited(10**8)), pytest.raises(engine.EngineError, match="operations at once"):
        engine.call("randperm", [1 << 21])


def test_a_change_in_place_tells_what_its_backward_will_compute():
    with engine.activate(engine.Context(interrupt=Aside())):
        leaf = engine.tensor(np.ones(1 << 18), True)
        changed = engine.call("mul", [leaf, 1.0])
        engine.call("digamma_", [changed])
    assert changed.node.work >= 1e7


def test_costs_of_nothing_and_of_what_is_refused_are_numbers():
    for op in OPS.values():
        empty = [np.zeros((0,))] * len(op.params)
        for arrays in (empty, [None] * len(op.params), [np.ones(())] * len(op.params)):
            for operations in (workload.estimate(op, list(arrays)), workload.estimate_backward(op, list(arrays))):
                assert not math.isnan(operations), op.name
                assert operations >= 0, op.name


@pytest.mark.parametrize("count", [2, 3, 7, 30])
def test_multi_dot_multiplies_in_the_order_that_costs_least(count):
    sizes = np.random.default_rng(count).integers(1, 30, count + 1).tolist()
    cost_of, cuts = {(place, place): 0 for place in range(count)}, {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            cost_of[first, last], cuts[first, last] = min(
                (cost_of[first, cut] + cost_of[cut + 1, last] + sizes[first] * sizes[cut + 1] * sizes[last + 1], cut)
                for cut in range(first, last)
            )
    found = _cheapest_splits(sizes)
    assert {place: found[place] for place in cuts} == cuts


def test_a_long_chain_is_multiplied_without_recursion():
    chain = [engine.tensor(np.eye(2)) for _ in range(600)]
    np.testing.assert_array_equal(engine.call("linalg.multi_dot", [chain]).array, np.eye(2))


def test_a_list_of_many_small_arrays_costs_what_python_does_with_each():
    few, many = ([np.ones(2)] * count for count in (1, 100_000))
    assert workload.estimate(OPS["cat"], [many, 0]) - workload.estimate(OPS["cat"], [few, 0]) > 1e8


@pytest.mark.parametrize("name", ["gather", "_scatter_add"])
def test_what_is_placed_along_whole_tensors_costs_what_its_elements_do(name):
    """So that an honest one is not refused."""
    source, index = np.zeros((1000, 100), "f4"), np.zeros((1000, 100), np.int64)
    arrays = [source, 0, index] if name == "gather" else [source, 0, index, source]
    assert workload.estimate(OPS[name], arrays) < 1e8


def test_pairs_cost_what_their_number_does():
    assert workload.estimate(OPS["_pairs"], [np.ones((100_000, 1))]) > 1e10
