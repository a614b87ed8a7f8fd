"""Attention by the fused kernels of a GPU: beside PyTorch's, in all float dtypes, with masks, strides and refusals."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.autograd.backward import gradients
from gradwire_engine.compile.eager.library import SessionLoops
from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.core import device as devices
from gradwire_engine.core import dtypes
from gradwire_engine.core.context import Context, Interrupt, activate
from gradwire_engine.op import op, workload
from gradwire_engine.ops.nn import attention_on_gpu as kernels
from gradwire_engine.ops.nn import fused_attention as fused
from tests.gpu import attention_in_pytorch as theirs
from tests.gpu import hostcupy
from tests.gpu.test_graphs import both, plans, run
from tests.gpu.test_plans import on_gpu

if devices.cupy() is None:
    pytest.skip("needs CuPy and a CUDA GPU, or hostcupy", allow_module_level=True)
XP: Any = devices.cupy()
# Relative to the largest value: float64 is the reference of half types.
TOLERANCES = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
MASKS = (None, "causal", "bool", "float")


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A context on the GPU of this process, where the kernels compute attention of any size."""
    monkeypatch.setattr(OPTIONS, "mode", "on")
    monkeypatch.setattr(fused, "LEAST", 0)
    with activate(Context(loops=SessionLoops(lambda: True))):
        yield


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Normal numbers as float64, each of which the dtype can represent."""
    return rng.standard_normal(shape).astype(dtypes.BY_NAME[dtype]).astype(np.float64)


def placed(array: np.ndarray[Any, Any], dtype: str) -> Any:
    return XP.asarray(array).astype(dtypes.BY_NAME[dtype])


def mask_of(kind: str | None, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A mask that leaves one query no key; None for other kinds."""
    if kind not in ("bool", "float"):
        return None
    mask = rng.random(shape) < 0.6
    mask[..., 0, :] = False
    return mask if kind == "bool" else np.where(mask, 0.5, -np.inf)


def compare(
    arrays: list[np.ndarray[Any, Any]], dtype: str, mask: Any, options: dict[str, Any], rng: np.random.Generator
) -> Any:
    """Output and gradients beside PyTorch's. Returns the output."""
    tensors = [engine.tensor(placed(each, dtype), True) for each in arrays]
    ours = None if mask is None else engine.tensor(XP.asarray(mask) if mask.dtype == bool else placed(mask, dtype))
    made = engine.call("scaled_dot_product_attention", (*tensors, ours), options)
    assert made.node.name == "ScaledDotProductEfficientAttentionBackward0"
    g = drawn(rng, made.shape, dtype)
    engine.backward([made], [engine.tensor(placed(g, dtype))])
    results = [made.array, *(each.grad.array for each in tensors)]
    for one, wanted in zip(results, theirs.attention(arrays, mask, options, g), strict=True):
        assert one.dtype == dtypes.BY_NAME[dtype]
        found = devices.host(one).astype(np.float64)
        atol = TOLERANCES[dtype] * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
    return made


# Rows of each width of the kernels; half types and masks in some of them: each set of kernels takes seconds to compile.
CASES = [
    *((width, kind, dtype) for width in (3, 40) for kind in (None, "causal") for dtype in TOLERANCES),
    *((40, kind, dtype) for kind in ("bool", "float") for dtype in ("float32", "bfloat16")),
    (128, "causal", "float32"),
    (64, None, "float64"),
]


@pytest.mark.parametrize(("width", "kind", "dtype"), CASES)
def test_the_kernels_compute_what_pytorch_does(width: int, kind: str | None, dtype: str) -> None:
    rng = np.random.default_rng(width)
    rows, keys = (int(each) for each in rng.integers(20, 90, 2))
    made = int(rng.integers(1, width + 1))
    arrays = [drawn(rng, (2, 2, *sizes), dtype) for sizes in ((rows, width), (keys, width), (keys, made))]
    options: dict[str, Any] = {"is_causal": kind == "causal"}
    if width == 40:
        options["scale"] = 0.3
    compare(arrays, dtype, mask_of(kind, rng, (2, 1, rows, keys)), options, rng)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 2), (2, 1, 2, 2)])
def test_any_number_of_batch_dimensions(lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(lead))
    arrays = [drawn(rng, (*lead, size, 8), "float32") for size in (5, 7, 7)]
    compare(arrays, "float32", None, {}, rng)


def test_a_size_of_one_has_any_stride() -> None:
    """As a transposition leaves it: the array is contiguous, and that stride leads nowhere."""
    rng = np.random.default_rng(11)
    arrays = [drawn(rng, (1, 3, 2, size, 8), "float32").astype(np.float32) for size in (5, 7, 7)]
    turned = [engine.tensor(XP.asarray(each).transpose(1, 0, 2, 3, 4)) for each in arrays]
    made = engine.call("scaled_dot_product_attention", tuple(turned)).array.get()
    given = [each.transpose(1, 0, 2, 3, 4) for each in arrays]
    expected = theirs.attention(given, None, {}, np.zeros_like(made))[0]
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (5, 1), (2, 1, 1, 7), (3, 5, 7)])
def test_a_mask_is_broadcast_without_a_copy(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    arrays = [drawn(rng, (2, 3, size, 8), "float32") for size in (5, 7, 7)]
    compare(arrays, "float32", rng.random(shape) < 0.7, {}, rng)


def test_transposed_and_expanded_operands_are_read_where_they_lie() -> None:
    rng = np.random.default_rng(2)
    query, key, value = (XP.asarray(drawn(rng, (2, 9, 3, 8), "float32"), dtype=np.float32) for _ in range(3))
    turned = [engine.tensor(each.transpose(0, 2, 1, 3)) for each in (query, key)]
    wide = engine.tensor(XP.broadcast_to(value[:1, :, :1].transpose(0, 2, 1, 3), (2, 3, 9, 8)))
    for _ in range(2):  # the check before the first use is launches too
        with counting() as counts:
            made = engine.call("scaled_dot_product_attention", (*turned, wide), {"is_causal": True})
    if counts is not None:
        assert counts.launches == 1
    given = [each.array.get() for each in (*turned, wide)]
    expected = theirs.attention(given, None, {"is_causal": True}, np.zeros_like(given[0]))[0]
    np.testing.assert_allclose(made.array.get(), expected, rtol=1e-5, atol=1e-5)


class counting:
    """The counts of hostcupy; None on a GPU."""

    def __enter__(self) -> Any:
        self.inner = hostcupy.counted() if hostcupy.folder() is not None else None
        return None if self.inner is None else self.inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.inner is not None:
            self.inner.__exit__(*error)


def test_one_launch_forward_two_backward_and_no_array_of_all_scores() -> None:
    rng = np.random.default_rng(3)
    length = 600
    leaves = [engine.tensor(placed(drawn(rng, (1, length, 16), "float32"), "float32"), True) for _ in range(3)]
    g = engine.tensor(placed(drawn(rng, (1, length, 16), "float32"), "float32"))
    call = (*leaves, None, 0.0, True)
    engine.call("scaled_dot_product_attention", call)  # the check before the first use
    sizes: list[int] = []

    class Hook(XP.cuda.MemoryHook):  # type: ignore[misc]
        name = "sizes"

        def malloc_preprocess(self, *, size: int, **others: Any) -> None:
            sizes.append(size)

    with Hook():
        with counting() as forward:
            made = engine.call("scaled_dot_product_attention", call)
        with counting() as backward:
            engine.backward([made], [g])
    assert max(sizes) < length * length
    if forward is not None:
        assert (forward.launches, forward.waits, backward.launches, backward.waits) == (1, 0, 2, 0)


def test_saved_results_may_lie_in_any_order() -> None:
    """As a hook may unpack them."""
    rng = np.random.default_rng(12)
    tensors = [placed(drawn(rng, (2, 3, size, 8), "float32"), "float32") for size in (5, 7, 7)]
    g = placed(drawn(rng, (2, 3, 5, 8), "float32"), "float32")
    out, total = kernels.attend(tensors, None, False, 0.3)
    turned = [XP.asarray(each.get().T.copy()).T for each in (out, total)]
    assert not any(each.flags.c_contiguous for each in turned)
    wanted = kernels.gradients(g, tensors, None, False, 0.3, out, total)
    for one, other in zip(kernels.gradients(g, tensors, None, False, 0.3, *turned), wanted, strict=True):
        np.testing.assert_array_equal(one.get(), other.get())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_bits_each_time(dtype: str) -> None:
    rng = np.random.default_rng(4)
    arrays = [drawn(rng, (2, 70, 16), dtype) for _ in range(3)]
    g = engine.tensor(placed(drawn(rng, (2, 70, 16), dtype), dtype))
    found = []
    for _ in range(2):
        leaves = [engine.tensor(placed(each, dtype), True) for each in arrays]
        made = engine.call("scaled_dot_product_attention", tuple(leaves))
        engine.backward([made], [g])
        found.append([devices.host(each).tobytes() for each in (made.array, *(leaf.grad.array for leaf in leaves))])
    assert found[0] == found[1]


def test_second_derivatives_are_computed_by_ops() -> None:
    rng = np.random.default_rng(5)
    arrays = [drawn(rng, (2, size, 4), "float64") for size in (5, 6, 6)]
    tensors = [engine.tensor(XP.asarray(each), True) for each in arrays]
    made = engine.call("scaled_dot_product_attention", tuple(tensors))
    g = drawn(rng, made.shape, "float64")
    first, _ = gradients([made], tensors, [engine.tensor(XP.asarray(g))], create_graph=True)
    weights = [drawn(rng, each.shape, "float64") for each in first]
    second, _ = gradients(first, tensors, [engine.tensor(XP.asarray(each)) for each in weights])
    wanted = theirs.second(arrays, g, weights)
    for one, other in zip(second, wanted, strict=True):
        np.testing.assert_allclose(one.array.get(), other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", MASKS)
def test_infinite_and_missing_numbers_spread_as_by_products(kind: str | None) -> None:
    """What softmax makes of them: a row of nan where a score is nan or inf, and no other row."""
    rng = np.random.default_rng(6)
    arrays = [drawn(rng, (1, 40, 8), "float32").astype(np.float32) for _ in range(3)]
    arrays[0][0, 3], arrays[0][0, 4, 0] = np.nan, np.inf
    mask, options = mask_of(kind, rng, (40, 40)), {"is_causal": kind == "causal"}
    if mask is not None:
        mask = mask.astype(bool if kind == "bool" else np.float32)
    tensors = [engine.tensor(XP.asarray(each), True) for each in arrays]
    ours = None if mask is None else engine.tensor(XP.asarray(mask))
    made = engine.call("scaled_dot_product_attention", (*tensors, ours), options)
    g = np.ones(made.shape, np.float32)
    engine.backward([made], [engine.tensor(XP.asarray(g))])
    wanted = theirs.attention(arrays, mask, options, g)
    for one, other in zip([made, *(each.grad for each in tensors)], wanted, strict=True):
        found = one.array.get()
        np.testing.assert_array_equal(np.isnan(found), np.isnan(other))
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((200, 129), "float32"), ((200, 65), "float64"), ((200, 16), "int64")],
    ids=["wide rows", "wide rows of float64", "integers"],
)
def test_what_the_kernels_do_not_compute(sizes: tuple[int, int], dtype: str) -> None:
    arrays = [engine.tensor(placed(np.ones((1, *sizes)), dtype)) for _ in range(3)]
    assert not fused.computes(*arrays, None)


def test_small_attention_takes_products(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [engine.tensor(placed(np.ones((1, 20, 8)), "float32")) for _ in range(3)]
    monkeypatch.setattr(fused, "LEAST", 4 * 20 * 20)
    assert fused.computes(*arrays, None)
    monkeypatch.setattr(fused, "LEAST", 4 * 20 * 20 + 1)
    assert not fused.computes(*arrays, None)


def test_a_session_without_kernels_takes_products() -> None:
    arrays = [engine.tensor(placed(np.ones((1, 20, 8)), "float32")) for _ in range(3)]
    with activate(Context(loops=None)):
        assert not fused.computes(*arrays, None)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", MASKS)
def test_verification_compares_the_kernels_with_products(
    dtype: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    monkeypatch.setattr(OPTIONS, "mode", "verify")
    arrays = [drawn(rng, (2, size, 8), dtype) for size in (20, 30, 30)]
    compare(arrays, dtype, mask_of(kind, rng, (20, 30)), {"is_causal": kind == "causal"}, rng)


@pytest.mark.parametrize("wrong", ["output", "gradients", "launch"])
def test_kernels_that_compute_wrongly_are_never_used(
    wrong: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "_TRUSTED", {})
    attend, backward = kernels.attend, kernels.gradients

    def falsified(*args: Any) -> Any:
        if wrong == "launch":
            raise XP.cuda.driver.CUDADriverError(1)
        made, total = attend(*args)
        return (made * 1.01 if wrong == "output" else made), total

    def turned(*args: Any) -> Any:
        made = backward(*args)
        return [made[0], made[1] * 1.01, made[2]] if wrong == "gradients" else made

    monkeypatch.setattr(kernels, "attend", falsified)
    monkeypatch.setattr(kernels, "gradients", turned)
    rng = np.random.default_rng(8)
    arrays = [drawn(rng, (2, 20, 8), "float32").astype(np.float32) for _ in range(3)]
    expected = theirs.attention(arrays, None, {}, arrays[0])[0]
    with caplog.at_level(logging.WARNING, "gradwire.engine"):
        for _ in range(3):
            tensors = tuple(engine.tensor(XP.asarray(each), True) for each in arrays)
            made = engine.call("scaled_dot_product_attention", tensors)
            assert made.node.name != "ScaledDotProductEfficientAttentionBackward0"
            np.testing.assert_allclose(made.array.get(), expected, rtol=1e-4, atol=1e-5)
    assert len(caplog.records) == 1
    assert "runs without its fused kernels" in caplog.text


@pytest.mark.parametrize(
    ("width", "size"), [(width, size) for width in (1, 16, 17, 64, 128) for size in (4, 8) if width * size <= 512]
)
def test_tiles_fit_the_shared_memory(width: int, size: int) -> None:
    for name in ("attend", "query_gradient", "key_gradients"):
        columns = kernels._columns(width)
        queries, keys = kernels._tile(name, columns, size)
        rows = {"attend": queries + keys, "query_gradient": 2 * queries + keys, "key_gradients": queries + 2 * keys}
        assert columns >= width
        assert size * (rows[name] * (columns + 1) + queries * (keys + 1)) <= 48 << 10
        assert not queries % 16 and not keys % 16 and not columns % 16


def test_a_plan_with_attention_is_one_launch_of_a_graph() -> None:
    def step(query: Any, key: Any, value: Any) -> list[Any]:
        made = engine.call("scaled_dot_product_attention", (query, key, value, None, 0.0, True))
        engine.backward([engine.call("sum", (engine.call("mul", (made, made)),))])
        return [engine.call("mul", (made, 2.0))]

    rng = np.random.default_rng(9)
    arrays = [drawn(rng, (2, 40, 8), "float32").astype(np.float32) for _ in range(3)]
    given, others = on_gpu(arrays), on_gpu(arrays)
    for each in (*given, *others):
        each.requires_grad = True
    pair = plans(step, given)
    for _ in range(5):
        both(pair, given, others)
    assert pair[0].way == "graph"
    with counting() as counts:
        run(pair[0], given)
    if counts is not None:
        assert (counts.graphs, counts.launches, counts.waits) == (1, 0, 0)


def test_ops_that_would_take_long_on_a_cpu_keep_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not computed apart, so a plan may contain them."""

    class Refusing(Interrupt):
        def offload(self, *args: Any) -> Any:
            raise AssertionError("an op on a GPU is not computed apart")

    monkeypatch.setattr(op, "LONG", 1.0)
    monkeypatch.setattr(workload, "LONG", 1.0)
    rng = np.random.default_rng(10)
    with activate(Context(loops=SessionLoops(lambda: True), interrupt=Refusing())):
        leaves = [engine.tensor(placed(drawn(rng, (1, 40, 8), "float32"), "float32"), True) for _ in range(3)]
        engine.call("scaled_dot_product_attention", tuple(leaves))
        with counting() as counts:
            made = engine.call("scaled_dot_product_attention", tuple(leaves))
        g = engine.tensor(placed(np.ones((1, 40, 8)), "float32"))
        with counting() as backward:
            engine.backward([made], [g])
    if counts is not None:
        assert (counts.launches, backward.launches) == (1, 2)
