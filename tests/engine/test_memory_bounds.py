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
    with pytest.raises(engine.EngineError, match="results; at most") as refused:
        engine.call(name, (many, *args))
    assert refused.value.reason is engine.Reason.MEMORY_LIMIT
