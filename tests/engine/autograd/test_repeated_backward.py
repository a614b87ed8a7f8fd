"""Repeated backward: a noted pass gives leaves what the ordinary pass gives; where it is unusual, nothing changes.

tests/server/session/test_repeated_steps.py compares whole states over random programs.
"""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gradwire_engine import REGISTRY, Account, Context, EngineError, Interrupt, Tensor, activate, backward, tensor
from gradwire_engine.autograd import noting as noting_module
from gradwire_engine.autograd import repeated_backward
from gradwire_engine.autograd.noted_pass import NotedPass, Unusual
from gradwire_engine.autograd.noting import Noting, _is_of_ops
from gradwire_engine.autograd.pass_room import room_of
from gradwire_engine.autograd.repeated_backward import _MOST_UNUSED, _OFTEN, PassMemo
from gradwire_engine.graph.callbacks import hook_tensor
from gradwire_engine.graph.hooks import ExternalCallback
from gradwire_engine.graph.tensor import leave_graph, retain_grad
from gradwire_engine.op.declaration import OPS
from tests.engine.repeating import repeated_call


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context(account=Account(limit=1 << 30))
    with activate(made):
        yield made


class Graphs:
    """Makes graphs of one structure over the same leaves, by repeated calls."""

    def __init__(self, context: Context) -> None:
        self.context = context
        numbers = np.random.default_rng(0)
        self.leaves = [tensor(numbers.standard_normal((3, 3)), True) for _ in range(3)]
        self._calls: dict[Any, Any] = {}

    def call(self, key: str, name: str, *args: Any) -> Tensor:
        op = REGISTRY[name]
        bound = op.bind(args, {})
        known = self._calls.get(key)
        if known is None:
            _, self._calls[key] = repeated_call(op, bound, self.context)
            known = self._calls[key]
        made = known(bound, self.context)
        assert isinstance(made, Tensor)
        return made

    def __call__(self) -> Tensor:
        a, b, c = self.leaves
        wide = self.call("mm", "mm", a, b)
        self.saved = self.call("relu", "relu", wide)
        both = self.call("mul", "mul", self.saved, self.call("scale", "mul", wide, 0.5))
        return self.call("sum", "sum", self.call("add", "add", both, c))

    def clear(self) -> None:
        for each in self.leaves:
            each.grad = None

    def grads(self) -> list[bytes | None]:
        return [None if each.grad is None else each.grad.array.tobytes() for each in self.leaves]


@pytest.fixture
def graphs(context: Context) -> Graphs:
    return Graphs(context)


@pytest.fixture
def memo(graphs: Graphs) -> PassMemo:
    """A memo that knows the pass."""
    found = PassMemo()
    for _ in range(2):
        assert found.run(graphs()) is not None
        graphs.clear()
    return found


@pytest.mark.parametrize("passes", [1, 2, 3, _OFTEN + 1, _OFTEN + 2, _OFTEN + 4])
def test_a_repeated_pass_gives_the_same_bits(passes: int, graphs: Graphs) -> None:
    """The first pass is noted. After many runs the list is made again, of ops."""
    memo = PassMemo()
    for _ in range(passes - 1):
        memo.run(graphs())
        graphs.clear()
    assert memo.run(graphs()) is not None
    found = graphs.grads()
    assert [each.by_ops for each in memo._known.values() if isinstance(each, NotedPass)] == [passes > _OFTEN + 1]
    graphs.clear()
    backward([graphs()])
    assert graphs.grads() == found


def test_a_gradient_whose_elements_share_memory_is_refused_as_ever(graphs: Graphs, memo: PassMemo) -> None:
    """The ordinary pass raises the error, so the memo must not add to such a gradient."""
    shown = np.lib.stride_tricks.as_strided(np.ones(3), (3, 3), (0, 8))
    assert shown.flags.writeable
    graphs.leaves[2].grad = Tensor(shown)
    loss = graphs()
    assert memo.run(loss) is None
    with pytest.raises(EngineError, match="more than one element of the written-to tensor"):
        backward([loss])
    assert graphs.grads() == [None, None, np.ones((3, 3)).tobytes()]


@pytest.mark.parametrize("dtypes", [("float32", "float16"), ("float16", "float32")])
def test_a_result_of_another_dtype_has_another_pass(dtypes: tuple[str, str], context: Context) -> None:
    """The node of `mean` is alike for both, but the first gradient is not."""
    memo, leaf = PassMemo(), tensor(np.ones(3, np.float32), True)
    mean = REGISTRY["mean"]
    for name in (dtypes[0], dtypes[0], dtypes[1], dtypes[0], dtypes[1]):
        found = []
        for ordinary in (False, True):
            leaf.grad = None
            loss = mean.apply(mean.bind((leaf,), {"dtype": np.dtype(name)}))
            if ordinary or memo.run(loss) is None:
                backward([loss])
            assert leaf.grad is not None
            found.append(leaf.grad.array.tolist())
        assert found[0] == found[1]


def test_a_pass_that_would_keep_much_memory_is_not_noted(context: Context) -> None:
    """A list keeps all gradients to its end; the ordinary pass keeps few."""
    memo, leaf, sin = PassMemo(), tensor(np.ones(1 << 19), True), REGISTRY["sin"]
    for length, noted in ((4, True), (12, False)):
        for _ in range(3):
            made = leaf
            for _ in range(length):
                made = sin.apply((made,))
            loss = REGISTRY["sum"].apply((made, None, False, None))
            leaf.grad = None
            assert (memo.run(loss) is not None) == noted


def test_a_formula_beyond_the_limit_is_refused_each_time(context: Context) -> None:
    memo, leaf = PassMemo(), tensor(np.ones((300, 300)), True)
    for _ in range(4):
        context.account.operations = np.inf
        product = REGISTRY["mm"].apply((leaf, leaf))
        loss = REGISTRY["sum"].apply((product, None, False, None))
        assert product.node is not None
        context.account.operations = product.node.work - 1
        assert memo.run(loss) is None
        with pytest.raises(EngineError, match="the limit is"):
            backward([loss])


def test_gradients_are_added_to_those_of_earlier_passes(graphs: Graphs, memo: PassMemo) -> None:
    found = []
    for ordinary in (False, True):
        graphs.clear()
        held = None
        for _ in range(3):
            loss = graphs()
            if ordinary:
                backward([loss])
            else:
                assert memo.run(loss) is not None
            first = graphs.leaves[0].grad
            assert held in (None, first)
            held = first
        assert held is not None
        found.append((graphs.grads(), held.storage.version))
    assert found[0] == found[1]


def test_a_list_is_used_up_as_the_graph_that_it_passes(graphs: Graphs, memo: PassMemo) -> None:
    loss = graphs()
    received = memo.run(loss)
    assert received is not None
    found = graphs.grads()
    assert {id(each) for each in received} == {id(each) for each in graphs.leaves}
    graphs.clear()
    backward([graphs()])
    assert graphs.grads() == found
    with pytest.raises(EngineError, match="second time"):
        backward([loss])


def a_gradient_is_a_view(graphs: Graphs, loss: Tensor) -> None:
    graphs.leaves[0].grad = REGISTRY["t"].apply((tensor(np.ones((3, 3))),))


def a_gradient_has_another_dtype(graphs: Graphs, loss: Tensor) -> None:
    graphs.leaves[0].grad = tensor(np.ones((3, 3), np.float32))


def a_gradient_is_recorded(graphs: Graphs, loss: Tensor) -> None:
    graphs.leaves[0].grad = REGISTRY["exp"].apply((graphs.leaves[1],))


def saved_value_left(graphs: Graphs, loss: Tensor) -> None:
    leave_graph(graphs.saved)


def saved_value_changed(graphs: Graphs, loss: Tensor) -> None:
    graphs.leaves[1].storage.changed()


def leaf_needs_none(graphs: Graphs, loss: Tensor) -> None:
    graphs.leaves[2].requires_grad = False


def intermediate_retains(graphs: Graphs, loss: Tensor) -> None:
    assert loss.node is not None
    made = Tensor(np.zeros((3, 3)), True)
    made.node = loss.node.edges[0][0]  # type: ignore[index, assignment]
    retain_grad(made)
    graphs.kept = made  # type: ignore[attr-defined]


def hooked(graphs: Graphs, loss: Tensor) -> None:
    hook_tensor(graphs.leaves[0], ExternalCallback(1, deque()))


def freed(graphs: Graphs, loss: Tensor) -> None:
    backward([loss])
    graphs.clear()


def no_room(graphs: Graphs, loss: Tensor) -> None:
    graphs.context.account.limit = graphs.context.account.bytes + 8


@pytest.mark.parametrize(
    "disturb",
    [
        a_gradient_is_a_view,
        a_gradient_has_another_dtype,
        a_gradient_is_recorded,
        saved_value_left,
        saved_value_changed,
        leaf_needs_none,
        intermediate_retains,
        hooked,
        freed,
        no_room,
    ],
)
def test_an_unusual_pass_is_left_to_the_ordinary_one(
    disturb: Callable[[Graphs, Tensor], None], graphs: Graphs, memo: PassMemo
) -> None:
    loss = graphs()
    disturb(graphs, loss)
    before = graphs.grads()
    assert memo.run(loss) is None
    assert graphs.grads() == before


def test_one_graph_of_other_calls_is_another(graphs: Graphs, memo: PassMemo) -> None:
    a, b, c = graphs.leaves
    graphs.leaves = [a, a, c]
    memo.run(graphs())
    assert len(memo._known) == 2
    graphs.leaves = [a, b, c]
    memo.run(REGISTRY["sum"].apply(REGISTRY["sum"].bind((a,), {})))
    assert len(memo._known) == 3


def test_a_gradient_that_two_leaves_share_is_copied(context: Context) -> None:
    graphs, memo = Graphs(context), PassMemo()
    for number in range(4):
        a, b, _ = graphs.leaves
        total = graphs.call("add", "add", a, b)
        loss = graphs.call("sum", "sum", graphs.call("relu", "relu", total))
        assert memo.run(loss) is not None
        if number:
            assert a.grad is not None
            assert b.grad is not None
            assert not np.shares_memory(a.grad.array, b.grad.array)
            assert a.grad.array.tobytes() == b.grad.array.tobytes()
        graphs.clear()


def test_the_longest_unused_graphs_are_forgotten(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire_engine.autograd.repeated_backward._MOST_KNOWN", 20)
    graphs, memo = Graphs(context), PassMemo()
    for number in range(50):
        memo.run(graphs.call(f"sum {number}", "sum", graphs.leaves[0]))
    assert len(memo._known) <= 10


@pytest.mark.parametrize(
    ("build", "given"),
    [
        # A float that decides what a formula does: with 1.0 the gradient is passed on as it is.
        (lambda call, x, y, f: call("add", x, y, alpha=f), [(1.0, 2.0, f) for f in (1.0, 1.0, 0.5, 2.0)]),
        # Formulas that read values.
        (lambda call, x, y, f: call("prod", x, 0), [(first, 2.0, 0.0) for first in (1.0, 3.0, 0.0, 0.0)]),
        (lambda call, x, y, f: call("cumprod", x, 0), [(first, 2.0, 0.0) for first in (1.0, 3.0, 0.0, 0.0)]),
        # Gradients without dimensions, which are NumPy's numbers.
        (
            lambda call, x, y, f: call("mul", call("neg", call("sum", x)), call("exp", call("sum", y))),
            [(first, first + 1, 0.0) for first in (1.0, 2.0, 3.0, 4.0)],
        ),
    ],
)
def test_what_values_decide_holds_for_one_pass(build: Any, given: list[Any], context: Context) -> None:
    graphs, memo = Graphs(context), PassMemo()
    calls = iter(range(0))

    def call(name: str, *args: Any, **named: Any) -> Tensor:
        bound = REGISTRY[name].bind(args, named)
        key = next(calls)
        if key not in graphs._calls:
            _, graphs._calls[key] = repeated_call(REGISTRY[name], bound, context)
        made = graphs._calls[key](bound, context)
        assert isinstance(made, Tensor)
        return made

    for number, (first, second, scale) in enumerate(given):
        leaves = [tensor(np.array([each, 2.0, 3.0]) / 8, True) for each in (first, second)]
        found = []
        for ordinary in (False, True):
            calls = iter(range(20))
            loss = call("sum", build(call, *leaves, scale))
            if ordinary:
                backward([loss])
            elif memo.run(loss) is None:
                assert number != 1  # later, a formula's result may have another layout
                backward([loss])
            found.append([each.grad and each.grad.array.tobytes() for each in leaves])
            for each in leaves:
                each.grad = None
        assert found[0] == found[1]


def test_a_formula_with_another_way_for_arrays_is_called_as_it_is() -> None:
    formulas = {name: next(iter(OPS[name].formulas.values()))[0] for name in ("gelu", "relu", "mm", "tanh", "selu")}
    assert {name for name, each in formulas.items() if not _is_of_ops(each)} >= {"gelu"}
    assert _is_of_ops(formulas["mm"])


def test_a_pass_over_replaced_data_is_left_to_the_ordinary_one(graphs: Graphs, memo: PassMemo) -> None:
    loss = graphs()
    graphs.leaves[1].array = graphs.leaves[1].array[:1]
    before = graphs.grads()
    assert memo.run(loss) is None
    assert graphs.grads() == before


def test_a_cancelled_pass_changes_nothing(graphs: Graphs, memo: PassMemo, monkeypatch: pytest.MonkeyPatch) -> None:
    class Due(Interrupt):
        def stopping(self) -> bool:
            return True

    loss, interrupt, clock = graphs(), Due(), iter([0.0])  # the slice is over after the first reading
    interrupt.at = 1.0
    for name in ("repeated_backward", "noting", "noted_pass"):
        monkeypatch.setattr(f"gradwire_engine.autograd.{name}.monotonic", lambda: next(clock, 2.0))
    object.__setattr__(graphs.context, "interrupt", interrupt)
    before = graphs.grads()
    with pytest.raises(EngineError, match="cancelled"):
        memo.run(loss)
    assert graphs.grads() == before
    assert memo.run(loss) is None  # the slice is over before the pass, which the ordinary one refuses


class Slice(Interrupt):
    """A slice that is over after `left` checks. `waits`: whether another session waits then."""

    waits, left = True, 0

    def pauses(self) -> bool:
        self.left -= 1
        return self.waits and self.left < 0


def chain(graphs: Graphs, length: int) -> Tensor:
    made = graphs.leaves[0]
    for number in range(length):
        made = graphs.call(f"chain {number}", "sin", made)
    return graphs.call("sum of the chain", "sum", made)


def to_end(ran: Any) -> tuple[Any, int]:
    """What a pass returns in the end, and the number of its pauses."""
    pauses = 0
    if ran is None or type(ran) is list:
        return ran, pauses
    while True:
        try:
            next(ran)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1


@pytest.mark.parametrize("passes", [1, 2])
def test_a_pass_pauses_where_a_pause_is_due_and_goes_on(passes: int, graphs: Graphs) -> None:
    """Both that is noted and a list. A long pass would keep other sessions waiting, and could not be cancelled."""
    memo, over = PassMemo(), Slice()
    for _ in range(passes - 1):
        memo.run(chain(graphs, 40))
        graphs.clear()
    object.__setattr__(graphs.context, "interrupt", over)
    over.at, over.left = 0.0, 3  # the slice is over: each node asks, and the fourth pauses
    ran = memo.run(chain(graphs, 40))
    assert graphs.grads() == [None] * 3
    received, pauses = to_end(ran)
    assert received == graphs.leaves[:1]
    assert pauses > 30
    assert [each.runs for each in memo._known.values() if isinstance(each, NotedPass)] == [passes - 1]
    found = graphs.grads()
    graphs.clear()
    over.at = float("inf")
    backward([chain(graphs, 40)])
    assert graphs.grads() == found


@pytest.mark.parametrize("passes", [1, 2])
def test_a_pass_that_is_cancelled_in_a_pause_changes_nothing(passes: int, graphs: Graphs) -> None:
    memo, over = PassMemo(), Slice()
    for _ in range(passes - 1):
        memo.run(chain(graphs, 40))
        graphs.clear()
    object.__setattr__(graphs.context, "interrupt", over)
    over.at, over.left = 0.0, 3
    ran: Any = memo.run(chain(graphs, 40))
    next(ran)
    over.stopping = lambda: True  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="cancelled"):
        next(ran)
    assert graphs.grads() == [None] * 3
    del over.stopping  # type: ignore[method-assign]
    over.at = float("inf")
    assert memo.run(chain(graphs, 40)) == graphs.leaves[:1]


def test_a_pass_that_keeps_its_graph_can_run_again(graphs: Graphs, memo: PassMemo) -> None:
    loss = graphs()
    assert memo.run(loss, True) is not None
    once = graphs.grads()
    graphs.clear()
    assert memo.run(loss) is not None
    assert graphs.grads() == once
    graphs.clear()
    assert memo.run(loss) is None
    with pytest.raises(EngineError, match="second time"):
        backward([loss])


def test_calls_that_are_repeated_later_have_the_same_pass(graphs: Graphs) -> None:
    """The first calls of an op are not repeated ones; the pass is noted then, and its list goes on."""

    def ordinary() -> Tensor:
        def call(key: str, name: str, *args: Any) -> Tensor:
            made: Tensor = REGISTRY[name].apply(REGISTRY[name].bind(args, {}))
            return made

        graphs.call, repeated = call, graphs.call  # type: ignore[method-assign]
        try:
            return graphs()
        finally:
            graphs.call = repeated  # type: ignore[method-assign]

    memo, found = PassMemo(), []
    for build in (ordinary, ordinary, graphs, ordinary, graphs):
        assert memo.run(build()) is not None
        found.append(graphs.grads())
        graphs.clear()
    assert len(set(map(tuple, found))) == 1
    assert len(memo._known) == 1


def test_formulas_of_ops_are_shared_only_for_the_same_numbers(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that are alike have the same ops; a formula that is given another axis or place has its own."""
    monkeypatch.setattr("gradwire_engine.autograd.repeated_backward._OFTEN", 1)
    recorded, steps_of = [], Noting._steps_of

    def counted(noting: Noting, compute: Any, given: list[int]) -> Any:
        recorded.append(compute)
        return steps_of(noting, compute, given)

    monkeypatch.setattr(Noting, "_steps_of", counted)
    graphs, memo = Graphs(context), PassMemo()

    def build() -> Tensor:
        made = graphs.leaves[0]
        for number in range(4):
            made = graphs.call(f"sin {number}", "sin", made)
            picked = graphs.call(f"select {number}", "select", made, number % 2, number % 3)
            made = graphs.call(f"add {number}", "mul", made, picked)
        return graphs.call("sum", "sum", made)

    for _ in range(4):
        assert memo.run(build()) is not None
        found = graphs.grads()
        graphs.clear()
        backward([build()])
        assert graphs.grads() == found
        graphs.clear()
    assert [each.by_ops for each in memo._known.values() if isinstance(each, NotedPass)] == [True]
    # Those of sin are noted once, those of the products once for each operand, and those of each select.
    assert len(recorded) <= 9


def test_a_list_of_ops_holds_for_the_values_that_it_was_made_with(context: Context) -> None:
    """Sizes that a formula is given may differ between calls of one kind, and then the list before it runs."""
    graphs, memo = Graphs(context), PassMemo()
    leaf = graphs.leaves[0]
    places = [*[0] * (_OFTEN + 4), 1, 2, 0, 1]
    for number, place in enumerate(places):
        picked = graphs.call(f"select {place}", "select", graphs.call("exp", "exp", leaf), 0, place)
        loss = graphs.call("sum", "sum", graphs.call("sin", "sin", picked))
        assert memo.run(loss) is not None
        if number:
            found = graphs.grads()
            graphs.clear()
            picked = graphs.call(f"select {place}", "select", graphs.call("exp", "exp", leaf), 0, place)
            backward([graphs.call("sum", "sum", graphs.call("sin", "sin", picked))])
            assert graphs.grads() == found
        graphs.clear()
    (noted,) = memo._known.values()
    assert isinstance(noted, NotedPass)
    assert noted.by_ops
    assert noted.before is not None


def test_a_pass_after_the_end_of_a_slice_that_is_extended_is_a_list(graphs: Graphs) -> None:
    over, memo = Slice(), PassMemo()
    over.waits, over.at = False, 0.0  # it was over before the pass began
    object.__setattr__(graphs.context, "interrupt", over)
    for _ in range(3):
        graphs.clear()
        assert memo.run(chain(graphs, 40)) is not None
    repeated = graphs.grads()
    graphs.clear()
    over.waits = True  # now a pause is due
    received, pauses = to_end(memo.run(chain(graphs, 40)))
    assert received
    assert pauses
    assert graphs.grads() == repeated


def test_noting_keeps_to_the_memory_that_is_left(graphs: Graphs) -> None:
    # It counts the gradients of all nodes.
    account = graphs.context.account
    memo = PassMemo()
    loss = chain(graphs, 40)
    limit, account.limit = account.limit, account.bytes + 20 * graphs.leaves[0].array.nbytes
    assert memo.run(loss) is None
    assert not any(isinstance(each, NotedPass) for each in memo._known.values())
    account.limit = limit
    assert memo.run(chain(graphs, 40)) is not None


def test_a_pass_that_takes_too_much_memory_to_be_noted_is_not_computed_in_vain(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    memo, leaf = PassMemo(), tensor(np.ones(64), True)
    begun: list[Noting] = []
    in_steps = Noting.in_steps

    def noting(self: Noting) -> Any:
        begun.append(self)
        return in_steps(self)

    monkeypatch.setattr(Noting, "in_steps", noting)
    loss = weighted(made("exp", leaf))
    found = memo.graph(loss)
    assert found is not None
    needs = room_of(found[1], loss)
    monkeypatch.setattr(repeated_backward, "MOST_ROOM", needs - 1)
    for _ in range(3):
        assert memo.run(weighted(made("exp", leaf))) is None
    assert not begun
    memo = PassMemo()
    monkeypatch.setattr(repeated_backward, "MOST_ROOM", needs)
    monkeypatch.setattr(noting_module, "MOST_ROOM", needs)
    assert memo.run(loss) is not None
    assert begun


def test_a_pass_that_memory_is_short_for_is_added_up_ever_more_seldom(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    added: list[int] = []

    def room(nodes: list[Any], root: Tensor) -> int:
        added.append(seen[-1])
        return room_of(nodes, root)

    monkeypatch.setattr(repeated_backward, "room_of", room)
    account, memo = graphs.context.account, PassMemo()
    limit = account.limit
    for number in range(1, 40):
        seen.append(number)
        loss = chain(graphs, 40)
        account.limit = account.bytes + 20 * graphs.leaves[0].array.nbytes
        assert memo.run(loss) is None
        account.limit = limit
    assert added == [1, 2, 4, 8, 16, 32]
    assert any(memo.run(chain(graphs, 40)) is not None for _ in range(32))


def test_a_list_for_a_step_is_not_begun_if_memory_is_too_short_for_it(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Noting] = []
    monkeypatch.setattr(Noting, "in_steps", begun.append)
    memo, loss = PassMemo(), chain(graphs, 40)
    found = memo.graph(loss)
    assert found is not None
    account = graphs.context.account
    monkeypatch.setattr(account, "limit", account.bytes + 20 * graphs.leaves[0].array.nbytes)
    for _ in range(3):
        with pytest.raises(StopIteration) as ended:
            next(memo.noted(*found, loss, graphs.context))
        assert ended.value.value is None
    assert not begun


def test_a_formula_that_reads_arrays_is_called_by_each_pass(context: Context) -> None:
    def formula(g: Any, given: Any) -> Any:
        return g if np.all(given > 0) else -g

    given = np.ones(3)
    root = REGISTRY["sum"].apply((tensor(given, True), None, False, None))
    noting = Noting([root.node], root, context, True)
    register = noting._step(lambda xp: given, ())
    made = noting._formula(formula, (given.shape, given.dtype), [register, register])
    assert made > register
    assert noting._made.steps[-1][0](np, given, -given).tolist() == [-1, -1, -1]


def test_a_formula_that_is_called_has_its_result_fitted_by_ops(context: Context) -> None:
    # As that of `add`, which depends on alpha. The sum over the rows is a step of its own.
    vectors = [np.random.default_rng(seed).standard_normal(3).astype(np.float32) for seed in range(2)]
    rows = np.random.default_rng(2).standard_normal((400, 3)).astype(np.float32)
    root = REGISTRY["sum"].apply((tensor(vectors[0], True), None, False, None))
    noting = Noting([root.node], root, context, True)
    register, alpha = noting._step(lambda xp: rows, ()), noting._register(1)
    before = len(noting._made.steps)
    made = noting._formula(
        lambda g, alpha: g if np.abs(alpha) == 1 else -g, (vectors[0].shape, vectors[0].dtype), [register, alpha]
    )
    called, fitted = noting._made.steps[before:]
    assert fitted[1][0] == called[2]
    assert noting.values[made].tobytes() == REGISTRY["sum_to_size"].apply((tensor(rows), (3,))).array.tobytes()
    assert called[0](np, rows, 1) is rows
    for other in (rows[:-1], np.asfortranarray(rows), rows.astype(np.float64), np.float32(1)):
        with pytest.raises(Unusual):
            called[0](np, other, 1)


def made(name: str, *args: Any, **named: Any) -> Any:
    return REGISTRY[name].apply(REGISTRY[name].bind(args, named))


def weighted(*parts: Tensor) -> Tensor:
    """A number that depends on each element of the parts otherwise."""
    total = made("sum", made("mul", parts[0], made("exp", parts[0])))
    for part in parts[1:]:
        total = made("add", total, made("sum", made("sin", part)))
    return total  # type: ignore[no-any-return]


WITHOUT_PARTS: dict[str, Callable[[Tensor, Tensor, Tensor, int], Tensor]] = {
    "a list": lambda a, b, c, n: weighted(made("cat", [a, b, a], 0)),
    "a list with a constant": lambda a, b, c, n: weighted(made("stack", [tensor(np.ones((3, 3))), b, c], 1)),
    "several results": lambda a, b, c, n: weighted(*made("chunk", a, 3, 0), b),
    "results without a gradient": lambda a, b, c, n: weighted(made("chunk", a, 3, 0)[n % 2], b),
    "values and indices": lambda a, b, c, n: weighted(made("max", made("mul", a, b), 1)[0], made("topk", c, 2)[0]),
    "a normalization": lambda a, b, c, n: weighted(
        made("layer_norm", made("mm", a, b), (3,), made("select", c, 0, 0), made("select", c, 0, 1))
    ),
    "numbers that vary": lambda a, b, c, n: weighted(made("narrow", a, 0, n % 2, 2), made("mul", b, float(n))),
    "indices that vary": lambda a, b, c, n: weighted(
        made("getitem", a, (tensor(np.array([n % 3, 0, 0])),)), made("getitem", b, (slice(n % 2, 3, 2 - n % 2),))
    ),
    "views of one leaf": lambda a, b, c, n: weighted(made("mm", made("t", a), a), made("reshape", made("t", b), (9,))),
}


@pytest.mark.parametrize("name", WITHOUT_PARTS)
def test_passes_over_nodes_without_a_part_are_repeated(name: str, context: Context) -> None:
    memo, repeated = PassMemo(), 0
    numbers = np.random.default_rng(1)
    for number in range(8):
        leaves = [tensor(numbers.standard_normal((3, 3)), True) for _ in range(3)]
        found = []
        for ordinary in (True, False):
            loss = WITHOUT_PARTS[name](*leaves, number)
            if ordinary or memo.run(loss) is None:
                backward([loss])
            else:
                repeated += 1
            found.append([None if each.grad is None else each.grad.array.tobytes() for each in leaves])
            for each in leaves:
                each.grad = None
        assert found[0] == found[1]
    assert repeated >= 4  # views of other strides are left to the ordinary pass


@pytest.mark.parametrize("name", ["one result each", *WITHOUT_PARTS])
def test_the_room_of_a_pass_is_what_noting_it_counts(name: str, context: Context) -> None:
    """For formulas of lists it may be more: some give None or a view."""
    a, b, c = (tensor(np.ones((3, 3), dtype), True) for dtype in (np.float32, np.float64, np.float64))
    if name == "one result each":
        loss = weighted(made("add", made("mul", a, a), made("sum", b)), c)  # broadcasts, promotes, adds up gradients
    else:
        loss = WITHOUT_PARTS[name](b, b, c, 0)
    found = PassMemo.graph(loss)
    assert found is not None
    with pytest.raises(StopIteration) as ended:  # it never pauses
        next(Noting(found[1], loss, context, False).in_steps())
    room, counted = room_of(found[1], loss), ended.value.value.room
    assert room >= counted
    assert name != "one result each" or room == counted


def test_graphs_that_seldom_come_again_are_noted_at_their_second_time(graphs: Graphs) -> None:
    memo = PassMemo()
    noted = [memo.run(chain(graphs, length)) is not None for length in range(1, 2 * _MOST_UNUSED)]
    assert noted == [True] * _MOST_UNUSED + [False] * (_MOST_UNUSED - 1)
    for number in range(2 * _MOST_UNUSED):
        assert memo.run(chain(graphs, 2 * _MOST_UNUSED - 1)) is not None  # noted, and run as a list
        noted.append(memo.run(chain(graphs, 2 * _MOST_UNUSED + number)) is not None)
    assert not noted[2 * _MOST_UNUSED - 1]
    assert noted[-1]  # since a list has run often


def test_a_list_that_often_does_not_fit_is_forgotten(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    memo, leaf = PassMemo(), tensor(np.ones(4), True)
    for _ in range(3):
        assert memo.run(weighted(made("exp", leaf))) is not None
        leaf.grad = None
    (noted,) = [each for each in memo._known.values() if isinstance(each, NotedPass)]

    def fails(xp: Any, *values: Any) -> Any:
        raise Unusual

    noted.steps[-1] = (fails, *noted.steps[-1][1:])
    for _ in range(20):
        assert memo.run(weighted(made("exp", leaf))) is None
    assert list(memo._known.values()) == [None]
    assert leaf.grad is None


def test_large_gradients_are_given_back_during_a_pass(context: Context) -> None:
    memo, leaf = PassMemo(), tensor(np.ones(1 << 16), True)
    for _ in range(3):
        made_of = leaf
        for _ in range(40):
            made_of = made("sin", made_of)
        loss = made("sum", made_of)
        tracemalloc.start()
        assert memo.run(loss) is not None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        leaf.grad = None
    assert peak < 8 * leaf.array.nbytes
    monkey = made("mm", tensor(np.ones((2048, 1)), True), tensor(np.ones((1, 2048)), True))
    for _ in range(3):  # the gradients of two passes over it take more than is noted
        assert memo.run(made("sum", made("exp", made("sin", made("neg", monkey))))) is None
