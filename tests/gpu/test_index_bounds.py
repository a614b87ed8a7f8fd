"""Bounds of integers on a GPU: they hold what the memory holds, spare waits, and let no index out of range pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core import device as devices
from gradwire_engine.core import index_bounds
from gradwire_engine.core.context import Context, activate
from gradwire_engine.core.errors import EngineError
from gradwire_engine.core.index_bounds import IGNORED, known
from tests.engine.compile.test_fusion import call_in_place
from tests.gpu import hostcupy

Ours = engine.Tensor


@pytest.fixture(autouse=True)
def context(gpu: None) -> Iterator[None]:
    with activate(Context()):
        yield


def moved(values: Any, dtype: str = "int64", requires_grad: bool = False) -> Ours:
    """An upload, whose bounds are noted."""
    made = engine.call("to", (engine.tensor(np.array(values, dtype)), None, "cuda"))
    if requires_grad:
        made.requires_grad = True
    return made  # type: ignore[no-any-return]


def unknown(values: Any, dtype: str = "int64") -> Ours:
    """Integers whose bounds nobody noted."""
    return engine.tensor(devices.to_device(np.array(values, dtype), "cuda:0"))


@contextmanager
def no_waits() -> Iterator[None]:
    """Nothing inside waits for the GPU; only hostcupy counts that."""
    if hostcupy.folder() is None or type(unknown([0]).array).__module__.startswith("tests"):
        yield
        return
    with hostcupy.counted() as counts:
        yield
    assert counts.waits == 0


def called(name: str, *args: Any, **kwargs: Any) -> Any:
    return engine.call(name, args, kwargs)


def ones(*shape: int) -> Ours:
    return moved(np.ones(shape), "float64")


TABLE = np.arange(12.0).reshape(4, 3)
#: Calls with indices from 0 to 3, and the shape of the indices.
INDEXING: dict[str, tuple[Callable[[Ours, Ours], Any], tuple[int, ...]]] = {
    "getitem": (lambda x, index: called("getitem", x, index), (5,)),
    "index_select": (lambda x, index: called("index_select", x, 0, index), (5,)),
    "gather": (lambda x, index: called("gather", x, 0, index), (2, 3)),
    "index_add": (lambda x, index: called("index_add", x, 0, index, ones(5, 3)), (5,)),
    "index_copy": (lambda x, index: called("index_copy", x, 0, index, ones(5, 3)), (5,)),
    "index_fill": (lambda x, index: called("index_fill", x, 0, index, 2.0), (5,)),
    "index_put": (lambda x, index: called("index_put", x, [index], ones(5, 3)), (5,)),
    "scatter": (lambda x, index: called("scatter", x, 0, index, ones(2, 3)), (2, 3)),
    "scatter_add": (lambda x, index: called("scatter_add", x, 0, index, ones(2, 3)), (2, 3)),
    "embedding": (lambda x, index: called("embedding", index, x), (5,)),
    "nll_loss": (lambda x, index: called("nll_loss", called("t", x), index), (3,)),
}


@pytest.mark.parametrize("name", INDEXING)
def test_indices_of_known_bounds_are_not_read(name: str) -> None:
    call, shape = INDEXING[name]
    rng = np.random.default_rng(0)
    for turn in range(3):  # the first fills caches
        values = rng.integers(0, 4, shape)
        x, index = moved(TABLE, "float64", requires_grad=True), moved(values)
        assert known(index.storage, index.array) is not None
        gradient = None
        with no_waits() if turn else activate(Context()):
            made = call(x, index)
        gradient = engine.tensor(made.array * 0 + 1)
        with no_waits() if turn else activate(Context()):
            engine.backward([made], [gradient])
        cpu = engine.tensor(TABLE.copy(), True)
        expected = _on_cpu(name, cpu, values)
        np.testing.assert_allclose(devices.host(made.array), expected.array)
        engine.backward([expected], [engine.tensor(np.ones(expected.shape))])
        assert cpu.grad is not None
        assert x.grad is not None
        np.testing.assert_allclose(devices.host(x.grad.array), cpu.grad.array)


def _on_cpu(name: str, x: Ours, values: Any) -> Any:
    calls: dict[str, tuple[Any, ...]] = {
        "getitem": (x, values), "index_select": (x, 0, values), "gather": (x, 0, values),
        "index_add": (x, 0, values, np.ones((5, 3))), "index_copy": (x, 0, values, np.ones((5, 3))),
        "index_fill": (x, 0, values, 2.0), "index_put": (x, [values], np.ones((5, 3))),
        "scatter": (x, 0, values, np.ones((2, 3))), "scatter_add": (x, 0, values, np.ones((2, 3))),
        "embedding": (values, x),
    }  # fmt: skip
    args = calls.get(name) or (engine.call("t", (x,)), values)
    tensors = [engine.tensor(each) if isinstance(each, np.ndarray) else each for each in args]
    return engine.call(
        name, tuple([engine.tensor(one) for one in each] if type(each) is list else each for each in tensors)
    )


@pytest.mark.parametrize("make", [moved, unknown])
@pytest.mark.parametrize("wrong", [4, -5, 2**40])
@pytest.mark.parametrize("name", INDEXING)
def test_an_index_out_of_range_is_refused(name: str, wrong: int, make: Callable[..., Ours]) -> None:
    call, shape = INDEXING[name]
    values = np.random.default_rng(1).integers(0, 4, shape)
    index = make(values)
    call(moved(TABLE, "float64"), index)
    values.reshape(-1)[-1] = wrong
    for given in (make(values), engine.call("clone", (make(values),))):
        with pytest.raises(EngineError) as refused:
            call(moved(TABLE, "float64"), given)
        assert refused.value.reason in (engine.Reason.INDEX_OUT_OF_RANGE, engine.Reason.RUNTIME)


@pytest.mark.parametrize("name", INDEXING)
def test_what_a_check_finds_is_known_to_the_next_op(name: str) -> None:
    call, shape = INDEXING[name]
    index = unknown(np.random.default_rng(2).integers(0, 4, shape))
    x = moved(TABLE, "float64")
    for turn in range(3):
        with no_waits() if turn == 2 else activate(Context()):
            call(x, index)


def test_bounds_end_where_memory_changes() -> None:
    x, index = moved(TABLE, "float64"), moved([0, 3, 1])
    engine.call("index_select", (x, 0, index))
    call_in_place("add", index, 1)
    with pytest.raises(EngineError):
        engine.call("index_select", (x, 0, index))
    call_in_place("fmod", engine.call("narrow", (index, 0, 1, 2)), 4)  # through a view
    assert known(index.storage, index.array) is None
    engine.call("index_select", (x, 0, index))


def test_bounds_go_on_where_it_is_known_what_was_written() -> None:
    index = moved([0, 3, 1])
    for name, args, expected in (
        ("add", (index, 1), (1, 4, False)),
        ("sub", (engine.call("narrow", (index, 0, 1, 2)), 5), (-4, 4, False)),
        ("setitem", (index, slice(0, 1), IGNORED), (-4, 4, True)),
        ("clamp", (index, 0, 2), (0, 2, False)),
        ("setitem", (index, engine.call("gt", (index, 1)), IGNORED), (0, 2, True)),
        ("copy", (index, engine.tensor(np.array([7, 8, 9]))), (7, 9, False)),
        ("zero", (engine.call("getitem", (index, slice(None, None, 2))),), (0, 9, False)),
        ("zero", (index,), (0, 0, False)),
    ):
        with no_waits():
            engine.call(f"{name}_", args)
        found = known(index.storage, index.array)
        assert found is not None
        assert found[4:] == expected


def test_bounds_hold_for_their_dtype_and_for_views() -> None:
    x, index = moved(np.zeros(100), "float64"), moved(np.arange(10))
    for shown in (
        engine.call("narrow", (index, 0, 2, 5)),
        engine.call("getitem", (index, slice(1, 9, 3))),
        engine.call("expand", (engine.call("getitem", (index, slice(3, 4))), (6,))),
    ):
        assert known(shown.storage, shown.array) is not None
        np.testing.assert_array_equal(engine.call("index_select", (x, 0, shown)).shape, shown.shape)
    halves = moved(np.arange(10), "int32")
    wide = engine.call("view_dtype", (halves, engine.core.dtypes.int64))
    assert known(wide.storage, wide.array) is None
    with pytest.raises(EngineError):
        engine.call("index_select", (x, 0, wide))


def test_a_cast_that_wraps_has_no_bounds() -> None:
    wide = moved([3, 2**32 + 2])
    narrow = engine.call("to", (wide, engine.core.dtypes.int32))
    assert known(narrow.storage, narrow.array) is None
    back = engine.call("to", (engine.call("to", (moved([3, 7]), engine.core.dtypes.int32)), engine.core.dtypes.int64))
    found = known(back.storage, back.array)
    assert found is not None
    assert (found.least, found.most) == (3, 7)


@pytest.mark.parametrize("held", [False, True])
def test_inverted_bools_have_the_other_bounds(held: bool) -> None:
    mask = engine.call("full", ((3,), held), {"device": "cuda"})
    before = known(mask.storage, mask.array)
    assert before is not None
    assert (before.least, before.most) == (held, held)
    engine.call("bitwise_not_", (mask,))
    index = engine.call("to", (engine.call("bitwise_not", (mask,)), engine.core.dtypes.int64))
    for each, value in ((mask, not held), (index, held)):
        found = known(each.storage, each.array)
        assert found is not None
        assert (found.least, found.most) == (value, value)


def test_memory_that_two_storages_change_has_no_bounds() -> None:
    index = moved([0, 3, 1])
    type(index.storage)(0, index.storage.account, owner=index.storage)
    assert known(index.storage, index.array) is None
    index.array[0] = 9
    with pytest.raises(EngineError):
        engine.call("index_select", (moved(TABLE, "float64"), 0, index))
    assert known(index.storage, index.array) is None


def test_ignored_labels_are_indices_to_other_ops() -> None:
    labels, x = moved([0, IGNORED, 2]), moved(TABLE, "float64")
    found = known(labels.storage, labels.array)
    assert found is not None
    assert (found.least, found.most, found.ignored) == (0, 2, True)
    logits = moved(np.zeros((3, 4)), "float32")
    for _ in range(2):
        engine.call("nll_loss", (logits, labels))
    with pytest.raises(EngineError):
        engine.call("nll_loss", (logits, labels, None, None, -7))
    with pytest.raises(EngineError):
        engine.call("index_select", (x, 0, labels))
    fresh = unknown([0, IGNORED, 2])
    engine.call("nll_loss", (logits, fresh))
    with pytest.raises(EngineError):
        engine.call("index_select", (x, 0, fresh))


def _drawn(rng: np.random.Generator, held: list[Ours]) -> list[Ours]:
    """The results of an op on some of the tensors held."""
    x = held[rng.integers(len(held))]
    dim = int(rng.integers(x.array.ndim)) if x.array.ndim else 0
    size = x.shape[dim] if x.shape else 1
    dtype = engine.core.dtypes.BY_NAME[str(rng.choice(["int64", "int32", "uint8", "int16"]))]
    calls: list[Callable[[], Any]] = [
        lambda: engine.call("sort", (x, dim, bool(rng.integers(2)))),
        lambda: engine.call("argsort", (x, dim)),
        lambda: engine.call("topk", (x, int(rng.integers(1, size + 1)), dim)),
        lambda: engine.call("argmax", (x, None if rng.random() < 0.3 else dim)),
        lambda: engine.call("max", (x, dim)),
        lambda: engine.call("clone", (x,)),
        lambda: engine.call("flip", (x, (dim,))),
        lambda: engine.call("roll", (x, (1,), (dim,))),
        lambda: engine.call("cat", ([x, x], dim)),
        lambda: engine.call("stack", ([x, x], 0)),
        lambda: engine.call("reshape", (engine.call("transpose", (x, 0, -1)), (-1,))),
        lambda: engine.call("index_select", (x, dim, moved(rng.integers(0, size, 4)))),
        lambda: engine.call("gather", (x, dim, moved(rng.integers(0, size, [1] * x.array.ndim)))),
        lambda: engine.call("to", (x, dtype)),
        lambda: engine.call("narrow", (x, dim, 0, max(1, size - 1))),
        lambda: engine.call("mul", (x, -3)),
        lambda: engine.call("randint", (int(rng.integers(-5, 2)), 7, (3, 2)), {"device": "cuda"}),
        lambda: engine.call("randperm", (int(rng.integers(1, 9)),), {"device": "cuda"}),
        lambda: engine.call("arange", (int(rng.integers(-9, 0)), 8, int(rng.integers(1, 4))), {"device": "cuda"}),
        lambda: engine.call("arange", (9, -4, -3), {"device": "cuda", "dtype": engine.core.dtypes.int32}),
        lambda: engine.call("multinomial", (moved(rng.random((2, 5)), "float64"), 3)),
        lambda: engine.call("getitem", (x, moved(rng.integers(-size, size, 3)))) if dim == 0 and x.array.ndim else x,
        lambda: call_in_place("mul", x, 2) or x,
        *_computed(rng, x, held[rng.integers(len(held))]),
        *_written(rng, x, held[rng.integers(len(held))]),
    ]
    try:
        made = calls[rng.integers(len(calls))]()
    except EngineError:  # of a tensor without dimensions, or a dtype or sizes that the op refuses
        return []
    return list(made) if isinstance(made, tuple | list) else [made]


def _computed(rng: np.random.Generator, x: Ours, other: Ours) -> list[Callable[[], Any]]:
    """Ops whose bounds are computed from those of their operands."""
    number = int(rng.choice([-100, -3, 0, 2, 7, 300]))
    second: Any = number if rng.random() < 0.6 else other
    low, high = (None if rng.random() < 0.3 else int(rng.integers(-9, 9)) for _ in range(2))
    mask = engine.call("gt", (x, 2))
    dim = int(rng.integers(x.array.ndim)) if x.array.ndim else 0
    whole = engine.core.dtypes.int64
    names = ["add", "sub", "mul", "remainder", "floor_divide", "maximum", "minimum", "fmod", "rsub"]
    bits = ["bitwise_and", "bitwise_or", "bitwise_xor", "eq", "lt", "logical_or"]
    return [
        *[lambda name=name: engine.call(name, (x, second)) for name in names],
        *[lambda name=name: engine.call(name, (x, other)) for name in names],
        *[lambda name=name: engine.call("to", (engine.call(name, (x, second)), whole)) for name in bits],
        lambda: engine.call("add", (x, second), {"alpha": number}),
        lambda: engine.call("div", (x, second), {"rounding_mode": str(rng.choice(["floor", "trunc"]))}),
        lambda: engine.call("bitwise_not", (mask if rng.random() < 0.5 else x,)),
        lambda: engine.call("neg", (x,)),
        lambda: engine.call("abs", (x,)),
        lambda: engine.call("clamp", (x, low, high)),
        lambda: engine.call("clamp_min", (x, number)),
        lambda: engine.call("clamp_max", (x, second)),
        lambda: engine.call("where", (mask, x, second)),
        lambda: engine.call("where", (mask, number, x)),
        lambda: engine.call("masked_fill", (x, mask, number)),
        lambda: engine.call("sum", (x, None if rng.random() < 0.3 else dim)),
        lambda: engine.call("sum", (mask, dim)),
        lambda: engine.call("cumsum", (mask if rng.random() < 0.3 else x, dim)),
        lambda: engine.call("pad", (x, (1, 2), "constant", number)),
        lambda: engine.call("tril", (x,)),
        lambda: engine.call("full", ((2, 3), number), {"device": "cuda"}),
        lambda: engine.call("full_like", (x, number)),
        lambda: engine.call("ones", ((3,),), {"device": "cuda", "dtype": engine.core.dtypes.uint8}),
        lambda: engine.call("nonzero", (x,)),
        lambda: engine.call("searchsorted", (moved([-5, 0, 5]), x)),
        lambda: engine.call("select_scatter", (x, engine.call("select", (x, dim, 0)), dim, 0)),
        lambda: engine.call("one_hot", (engine.call("clamp", (x, 0, 5)), 6)),
    ]


def changed(name: str, target: Ours, *rest: Any) -> None:
    engine.call(f"{name}_", (target, *rest))


def _written(rng: np.random.Generator, x: Ours, other: Ours) -> list[Callable[[], Any]]:
    """Changes in place of a tensor, or of a part of its memory."""
    number, size = int(rng.choice([-100, -3, 0, 2, 7, 300])), x.shape[0] if x.shape else 1
    part = x
    if x.shape and rng.random() < 0.6:
        part = engine.call("getitem", (x, slice(int(rng.integers(size)), None, int(rng.integers(1, 3)))))
    mask = engine.call("gt", (part, 2))
    return [
        *[lambda name=name: changed(name, part, number) or x for name in ("add", "sub", "fill", "remainder")],
        *[lambda name=name: changed(name, part, other) or x for name in ("add", "copy", "sub", "eq")],
        lambda: changed("clamp", part, -3, 5) or x,
        lambda: changed("zero", part) or x,
        lambda: changed("neg", part) or x,
        lambda: changed("copy", part, engine.tensor(rng.integers(-9, 9, part.shape))) or x,
        lambda: changed("masked_fill", part, mask, number) or x,
        lambda: changed("setitem", part, mask, number) or x,
        lambda: changed("setitem", x, (slice(0, 1),), number) or x,
        lambda: changed("setitem", x, moved(rng.integers(0, size, 2)), number) or x,
        lambda: changed("setitem", x, 0, other) or x,
        lambda: changed("index_fill", x, 0, moved(rng.integers(0, size, 2)), number) or x,
        lambda: changed("index_put", x, [moved(rng.integers(0, size, 2))], moved(number), True) or x,
        lambda: changed("cumsum", part, 0) or x,
        lambda: changed("random", part, 0, 99) or x,
        lambda: changed("logical_not", part) or x,
    ]


def test_the_bounds_of_results_hold_in_random_programs() -> None:
    """Each op's result, known bounds and all, and what earlier tensors have after changes in place."""
    noted = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        held = [
            moved(rng.integers(-300, 300, (3, 4))),
            moved([5, -100, 3]),
            moved([[2**33, 1]]),
            moved([1, 0], "uint8"),
            engine.call("zeros", ((2,),), {"device": "cuda", "dtype": engine.core.dtypes.bool_}),
            engine.call("ones", ((2,),), {"device": "cuda", "dtype": engine.core.dtypes.bool_}),
        ]
        for _ in range(25):
            held += [each for each in _drawn(rng, held) if each.array.size and each.array.dtype.kind in "iub"]
            held = held[:6] + held[6:][-16:]
            for each in held:
                found = known(each.storage, each.array)
                if found is None:
                    continue
                noted += 1
                values = devices.host(each.array).astype(object)
                inside = (values >= found.least) & (values <= found.most)
                assert (inside | ((values == IGNORED) & found.ignored)).all(), (seed, found)
    assert noted > 3000


def test_bounds_of_the_current_op_are_those_of_its_own_memory() -> None:
    index = moved([0, 3])
    with index_bounds.knowing([(index.storage, index.array)]):
        assert index_bounds.range_of(index.array) == (0, 3)
        assert index_bounds.are_within(index.array[1:], 0, 4)
        assert not index_bounds.are_within(index.array, 0, 3)
        assert index_bounds.range_of(unknown([0, 3]).array) is None
        with index_bounds.knowing([]):
            assert index_bounds.range_of(index.array) is None
    assert index_bounds.range_of(index.array) is None
