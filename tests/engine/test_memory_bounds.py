"""as_strided reaches no memory but the tensor's own, whatever views lie between."""

import numpy as np
import pytest

import gradwire_engine as engine


def strided(name, *args):
    return engine.call(name, (engine.tensor(np.arange(6.0)), *args))


@pytest.mark.parametrize(
    "view", [("as_strided", (3, 4), (1, 1)), ("unfold", 0, 3, 1), ("expand", (100, 6))], ids=lambda view: view[0]
)
def test_as_strided_of_an_overlapping_view_stays_within_the_memory_behind_it(view):
    shown = strided(*view)
    with pytest.raises(engine.EngineError, match="out of bounds for storage of size 48"):
        engine.call("as_strided", (shown, (7,), (1,)))
    assert engine.call("as_strided", (shown, (2, 3), (3, 1))).array.tolist() == [[0, 1, 2], [3, 4, 5]]


HUGE = (1 << 20, 1 << 20)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("add", (HUGE, 1.0)),
        ("exp", (HUGE,)),
        ("neg", (HUGE,)),
        ("to", (HUGE, np.dtype("float32"))),
        ("mm", ((1 << 20, 1), (1, 1 << 20))),
        ("bmm", ((1 << 20, 1, 1), (1 << 20, 1, 1 << 20))),
        ("matmul", ((1 << 20, 1, 1 << 10, 1), (1, 1 << 10))),
        ("index_select", (HUGE, 0, "indices")),
        ("getitem", (HUGE, ("indices",))),
        ("gather", (HUGE, 0, "indices")),
        ("sum", ((1 << 20, 1 << 20, 1), 2)),
        ("cumsum", (HUGE, 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_would_pass_the_quota_is_refused_before_it_is_computed(name, args):
    """Of views that show few bytes as many, and of products: the limit is a gibibyte, the result more."""
    context = engine.Context(account=engine.Account(limit=1 << 30))
    with engine.activate(context):
        one, places = engine.tensor(np.ones(1)), engine.tensor(np.zeros(1, np.int64))
        places = engine.call("expand", (places, HUGE if name == "gather" else (1 << 14,)))

        def given(value):
            if value == "indices":
                return places
            if value == ("indices",):
                return (places,)
            return engine.call("expand", (one, value)) if isinstance(value, tuple) else value

        before = context.account.bytes
        with pytest.raises(engine.EngineError) as refused:
            engine.call(name, tuple(given(value) for value in args))
    assert refused.value.reason is engine.Reason.MEMORY_LIMIT
    assert "more bytes would pass the limit" in refused.value.message
    assert context.account.bytes == before


@pytest.mark.parametrize(("name", "args"), [("unbind", (0,)), ("split", (1, 0)), ("tensor_split", (1 << 30, 0))])
def test_the_number_of_results_is_capped(name, args):
    many = engine.call("expand", (engine.tensor(np.ones(1)), (1 << 30,)))
    with pytest.raises(engine.EngineError, match="results; the maximum is") as refused:
        engine.call(name, (many, *args))
    assert refused.value.reason is engine.Reason.MEMORY_LIMIT


LIMIT = 64 << 20
# Programs of calls; "one" is a leaf of one element, "long" has 2^20, and a name stands for an earlier result.
HUNTS = {
    "contiguous": [("wide", "expand", "one", HUGE), ("out", "contiguous", "wide")],
    "clone": [("wide", "expand", "one", HUGE), ("out", "clone", "wide")],
    "reshape of a view that repeats": [
        ("wide", "expand", "line", (1 << 20, 1 << 10)), ("out", "reshape", "wide", (-1,)),
    ],
    "outer": [("out", "outer", "long", "long")],
    "arange": [("out", "arange", 1 << 62)],
    "linspace": [("out", "linspace", 0.0, 1.0, 1 << 40)],
    "eye": [("out", "eye", 1 << 30)],
    "tril_indices": [("out", "tril_indices", 1 << 20, 1 << 20)],
    "repeat": [("out", "repeat", "one", HUGE)],
    "tile": [("out", "tile", "one", HUGE)],
    "repeat_interleave": [("out", "repeat_interleave", "one", 1 << 50)],
    "one_hot": [("out", "one_hot", "whole", 1 << 40)],
    "diag_embed": [("out", "diag_embed", "long")],
    "cat": [("wide", "expand", "one", HUGE), ("out", "cat", ["wide", "wide"])],
    "stack": [("wide", "expand", "one", HUGE), ("out", "stack", ["wide", "wide"])],
    "meshgrid, made contiguous": [("out", "cartesian_prod", ["long", "long"])],
    "pad": [("out", "pad", "long", (1 << 40, 0))],
    "interpolate": [("map", "reshape", "long", (1, 1, -1)), ("out", "interpolate", "map", 1 << 45)],
    "broadcasting": [("tall", "unsqueeze", "long", 1), ("out", "add", "long", "tall")],
    "comparing": [("tall", "unsqueeze", "long", 1), ("out", "gt", "long", "tall")],
    "where": [("tall", "unsqueeze", "long", 1), ("mask", "gt", "long", 0.0), ("out", "where", "mask", "long", "tall")],
    "cdist": [("tall", "unsqueeze", "long", 1), ("out", "cdist", "tall", "tall")],
    "einsum": [("out", "einsum", "i,j->ij", ["long", "long"])],
    "kron": [("out", "kron", "long", "long")],
    "unfold of windows, made contiguous": [("wide", "unfold", "long", 0, 1 << 19, 1), ("out", "contiguous", "wide")],
    "conv with a huge kernel's columns": [
        ("map", "expand", "one", (1, 1, 1 << 14, 1 << 14)), ("out", "conv2d", "map", "kernel"),
    ],
    "softmax of a view": [("wide", "expand", "one", HUGE), ("out", "softmax", "wide", 0)],
    "sum of a view": [("wide", "expand", "one", HUGE), ("out", "sum", "wide")],
    "sort of a view": [("wide", "expand", "one", HUGE), ("out", "sort", "wide")],
    "cast": [("wide", "expand", "one", HUGE), ("out", "to", "wide", np.dtype("float64"))],
    "fft": [("wide", "expand", "one", HUGE), ("out", "fft.fft", "wide")],
    "zeros_like of a view": [("wide", "expand", "one", HUGE), ("out", "zeros_like", "wide")],
    "nothing, in many columns": [("out", "zeros", (0, 1 << 40))],
    "many sums of nothing": [
        ("none", "zeros", (0,)), ("wide", "expand", "none", (1 << 40, 0)), ("out", "sum", "wide", 1),
    ],
    "indices of no rows": [("out", "tril_indices", 0, 1 << 62)],
    "dimensions of mvlgamma": [("none", "zeros", (0,)), ("out", "mvlgamma", "none", 1 << 40)],
    "pooling of no images": [("none", "zeros", (0, 1, 4, 4)), ("out", "adaptive_avg_pool2d", "none", 1 << 40)],
    "bincount": [("out", "bincount", "whole", None, 1 << 40)],
    "histc": [("out", "histc", "long", 1 << 40)],
    "in place": [("wide", "expand", "one", HUGE), ("mine", "clone", "long"), ("out", "add_", "mine", "wide")],
    "embedding": [("places", "expand", "whole", HUGE), ("table", "reshape", "long", (-1, 1)),
                  ("out", "embedding", "places", "table")],
    "tensordot": [("tall", "unsqueeze", "long", 1), ("out", "tensordot", "tall", "tall", [[1], [1]])],
    "svd": [("tall", "unsqueeze", "long", 1), ("out", "linalg.svd", "tall")],
    "nonzero": [("wide", "expand", "one", HUGE), ("out", "nonzero", "wide")],
    "combinations": [("out", "combinations", "long", 2)],
}  # fmt: skip


@pytest.mark.parametrize("hunt", HUNTS, ids=lambda name: name.replace(" ", "_"))
def test_no_call_makes_more_than_the_limit_or_goes_through_more(hunt):
    """Each would take the memory of many machines, or a machine's days; it is refused, and nothing is held after it."""
    context = engine.Context(account=engine.Account(limit=LIMIT))
    with engine.activate(context):
        known = {
            "one": engine.tensor(np.ones(1, np.float32), True),
            "long": engine.tensor(np.ones(1 << 20, np.float32)),
            "line": engine.tensor(np.ones(1 << 10, np.float32)),
            "whole": engine.tensor(np.zeros(1, np.int64)),
            "kernel": engine.tensor(np.ones((1, 1, 3, 3), np.float32)),
        }
        before = context.account.bytes

        def given(value):
            if isinstance(value, list):
                return [given(item) for item in value]
            return known.get(value, value) if isinstance(value, str) else value

        *first, last = HUNTS[hunt]
        for name, call, *args in first:
            known[name] = engine.call(call, [given(value) for value in args])
        held = context.account.bytes
        with pytest.raises(engine.EngineError) as refused:
            engine.call(last[1], [given(value) for value in last[2:]])
        assert refused.value.reason in (engine.Reason.MEMORY_LIMIT, engine.Reason.SHAPE), refused.value.message
        assert context.account.bytes == held
        known.clear()
    del refused
    assert context.account.bytes <= before


@pytest.mark.parametrize(
    "call", [("select", 0, 0), ("diagonal", 0, 0, 1), ("narrow", 0, 0, 1)], ids=lambda call: call[0]
)
def test_the_gradient_of_a_part_of_a_huge_view_is_refused(call):
    """The part is small, the gradient of what it is part of would not be."""
    context = engine.Context(account=engine.Account(limit=LIMIT))
    with engine.activate(context):
        leaf = engine.tensor(np.ones(1, np.float32), True)
        wide = engine.call("expand", (leaf, (1 << 12, 1 << 13)))
        loss = engine.call("sum", [engine.call(call[0], [wide, *call[1:]])])
        with pytest.raises(engine.EngineError) as refused:
            engine.backward([loss])
        assert refused.value.reason is engine.Reason.MEMORY_LIMIT
        assert leaf.grad is None


def test_a_retained_gradient_of_a_huge_view_is_refused():
    """It would be as large as the view shows itself."""
    context = engine.Context(account=engine.Account(limit=LIMIT))
    with engine.activate(context):
        leaf = engine.tensor(np.ones(1, np.float32), True)
        wide = engine.call("expand", (leaf, (1 << 11, 1 << 12)))
        loss = engine.call("sum", [wide])
        engine.call("zeros", [((LIMIT >> 2) - (1 << 22),)])
        filler = engine.call("zeros", [((LIMIT >> 2) - (1 << 22),)])
        with pytest.raises(engine.EngineError) as refused:
            engine.gradients([loss], [wide])
        assert refused.value.reason is engine.Reason.MEMORY_LIMIT
        assert filler.size and leaf.grad is None


def test_many_results_of_cat_in_a_loop_end_at_the_limit():
    """Doubling: refused at the step that would pass it, and what was there is there."""
    context = engine.Context(account=engine.Account(limit=LIMIT))
    with engine.activate(context):
        grown = engine.call("ones", [(1 << 10,)])
        while 2 * grown.array.nbytes + context.account.bytes <= LIMIT:
            grown = engine.call("cat", [[grown, grown]])
        with pytest.raises(engine.EngineError) as refused:
            engine.call("cat", [[grown, grown]])
    assert refused.value.reason is engine.Reason.MEMORY_LIMIT
    assert LIMIT // 4 < grown.array.nbytes <= LIMIT
    assert context.account.bytes <= LIMIT


@pytest.mark.parametrize("bias", [None, np.zeros(2)])
def test_a_copy_into_a_shape_with_an_open_size_is_asked_for_as_it_is(bias):
    turned = engine.call("transpose", (engine.tensor(np.arange(24.0).reshape(3, 2, 4)), 0, 1))
    weight = engine.tensor(np.ones((2, 4)))
    made = engine.call("linear", (turned, weight, None if bias is None else engine.tensor(bias)))
    assert made.array.tolist() == (turned.array @ np.ones((4, 2))).tolist()
