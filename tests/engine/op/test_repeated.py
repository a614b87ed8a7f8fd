"""Repeated calls: the same results, nodes and errors as the op's, and the op itself wherever a check does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradwire_engine import REGISTRY, Account, Context, EngineError, Tensor, activate, tensor
from gradwire_engine.core.random import MT19937, PCG64
from gradwire_engine.graph.graph import Meta
from gradwire_engine.graph.saved import Saved
from gradwire_engine.graph.tensor import InferenceStorage
from gradwire_engine.op.declaration import OPS
from gradwire_engine.op.op import Op
from gradwire_engine.op.repeated import forward_of
from gradwire_engine.op.repeated_source import _compiled
from tests.engine.repeating import repeated_call, repeated_change

Build = Callable[..., Any]


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context(account=Account(limit=1 << 30))
    with activate(made):
        yield made


def leaf(*shape: int, grad: bool = True, dtype: str = "float32", seed: int = 0) -> Tensor:
    return tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype), grad)


def saved_of(value: Any) -> Any:
    if type(value) in (list, tuple):
        return [saved_of(each) for each in value]
    if type(value) is Saved:
        return value.array.tobytes()
    return (value.shape, value.dtype) if type(value) is Meta else repr(value)


def described(made: Tensor) -> Any:
    node = made.node
    saved = node and [saved_of(each) for each in node.saved]
    return (
        made.array.tobytes(), made.array.dtype, made.array.shape, made.array.strides, made.requires_grad,
        made.storage.nbytes, type(made.storage),
        node and (node.name, node.work, node.metas, node.command, len(node.edges), saved, node.op, node.saving_plan),
    )  # fmt: skip


CALLS: dict[str, tuple[str, Callable[[int], tuple[Any, ...]]]] = {
    "mul by a number": ("mul", lambda n: (leaf(3, 4, seed=n), 1.5 + n)),
    "add with broadcasting": ("add", lambda n: (leaf(3, 4, seed=n), leaf(4, seed=n), 1)),
    "add of one tensor": ("add", lambda n: (one := leaf(3, seed=n), one, 1)),
    "mm": ("mm", lambda n: (leaf(3, 4, seed=n), leaf(4, 5, seed=n))),
    "a large product": ("matmul", lambda n: (leaf(128, 64, seed=n), leaf(64, 256, seed=n))),
    "float64": ("mul", lambda n: (leaf(3, dtype="float64", seed=n), leaf(3, dtype="float64", seed=n + 9))),
    "two dtypes": ("mul", lambda n: (leaf(3, seed=n), leaf(3, dtype="float64", seed=n))),
    "float16": ("mul", lambda n: (leaf(3, dtype="float16", seed=n), 0.3)),
    "integers": ("add", lambda n: (tensor(np.arange(n, n + 3)), tensor(np.arange(3)), 2)),
    "a sum": ("sum", lambda n: (leaf(3, 4, seed=n), None, False, None)),
    "log_softmax": ("log_softmax", lambda n: (leaf(3, 4, seed=n), 1, None)),
    "relu": ("relu", lambda n: (leaf(3, 4, seed=n),)),
    "no gradient": ("relu", lambda n: (leaf(3, 4, grad=False, seed=n),)),
    "softplus": ("softplus", lambda n: (leaf(3, 4, seed=n), 1.0, 20.0)),
    "linear": ("linear", lambda n: (leaf(5, 3, seed=n), leaf(4, 3, seed=n + 1), leaf(4, seed=n + 2))),
    "linear without bias": ("linear", lambda n: (leaf(5, 3, seed=n), leaf(4, 3, seed=n + 1), None)),
    "a large layer": ("linear", lambda n: (leaf(128, 64, seed=n), leaf(256, 64, seed=n + 1), leaf(256, seed=n + 2))),
    "cross_entropy": (
        "cross_entropy",
        lambda n: (leaf(6, 4, seed=n), tensor(np.arange(6) % 4), None, None, -100, None, "mean", 0.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_makes_what_the_op_makes(name: str, context: Context) -> None:
    op_name, arguments = CALLS[name]
    op = REGISTRY[op_name]
    made, repeated = repeated_call(op, arguments(0), context)
    assert described(made) == described(op.apply(arguments(0)))
    assert repeated is not None
    for number in (1, 2):
        before = context.nodes.next
        again = repeated(arguments(number), context)
        taken = context.nodes.next - before
        assert again is not None
        assert described(again) == described(op.apply(arguments(number)))
        assert context.nodes.next == before + 2 * taken
        assert again.node is None or again.node.part is not None


def test_the_op_computes_what_is_described_otherwise(context: Context) -> None:
    op, given = REGISTRY["mul"], leaf(3, 4)
    _, repeated = repeated_call(op, (given, 2.0), context)
    assert repeated is not None
    base = tensor(leaf(4, 3).array)
    late = REGISTRY["reshape"].apply((base, (3, 4)))
    REGISTRY["mul"].in_place((base, leaf(4, 3)))
    with activate(replace(context, inference=True)):
        inference = leaf(3, 4)
    assert type(inference.storage) is InferenceStorage
    turned = tensor(leaf(4, 3).array.T, True)
    for other in (turned, leaf(4, 3), leaf(3, 4, grad=False), leaf(3, 4, dtype="float64"), late, inference):
        assert repeated((other, 2.0), context) is None
    assert repeated((given, 2), context) is None
    assert repeated((given, leaf(1)), context) is None
    assert repeated((given, 2.0), replace(context)) is None


@pytest.mark.parametrize("name", ["mul", "add", "mm"])
def test_calls_that_differ_in_sizes_share_their_code(name: str, context: Context) -> None:
    """Each keeps its own sizes, room and work: it computes its own operands and leaves the other's to the op."""
    op, rest = REGISTRY[name], (1,) if name == "add" else ()
    operands = [(leaf(3, 3), leaf(3, 3, seed=1), *rest), (leaf(50, 50), leaf(50, 50, seed=1), *rest)]
    _, first = repeated_call(op, operands[0], context)
    compiled = _compiled.cache_info().misses
    _, second = repeated_call(op, operands[1], context)
    assert _compiled.cache_info().misses == compiled
    assert first is not None
    assert second is not None
    for repeated, own, other in ((first, *operands), (second, *reversed(operands))):
        assert described(repeated(own, context)) == described(op.apply(own))
        assert repeated(other, context) is None
    context.account.limit = context.account.bytes + 100
    assert second(operands[1], context) is None
    assert first(operands[0], context) is not None


def test_the_sign_of_zero_is_part_of_a_description(context: Context) -> None:
    _, repeated = repeated_call(REGISTRY["softplus"], (leaf(3), 0.0, 20.0), context)
    assert repeated is not None
    assert repeated((leaf(3), -0.0, 20.0), context) is None


def test_without_room_the_op_refuses(context: Context) -> None:
    given = leaf(100)
    _, repeated = repeated_call(REGISTRY["mul"], (given, 2.0), context)
    assert repeated is not None
    context.account.limit = context.account.bytes + 100
    assert repeated((given, 2.0), context) is None
    with pytest.raises(EngineError):
        REGISTRY["mul"].apply((given, 2.0))


@pytest.mark.parametrize("name", ["softsign", "softplus"])
def test_a_call_that_is_noted_fits_where_the_op_does(name: str, context: Context) -> None:
    """The least limit at which the op computes a composite is enough to note it, too."""
    op, x = REGISTRY[name], leaf(64, 64)
    args = op.bind((x,), {})
    for limit in range(0, 16 * x.array.nbytes, x.array.nbytes // 2):
        context.account.limit = context.account.bytes + limit + 1
        context.nodes.next = 0
        try:
            expected = op.apply(args).array.tobytes()
        except EngineError:
            continue
        before = context.nodes.next
        assert repeated_call(op, args, context)[0].array.tobytes() == expected
        assert context.nodes.next == 2 * before
        return
    raise AssertionError("no limit is enough")


@pytest.mark.parametrize("algorithm", [PCG64, MT19937])
@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout", "rrelu"])
def test_a_call_that_is_noted_with_little_memory_draws_what_the_op_draws(
    name: str, algorithm: str, context: Context
) -> None:
    """Where noting does not fit, the op is applied again: with the numbers of the first time."""
    op, x = REGISTRY[name], leaf(64, 64)
    args = op.bind((x,), {"training": True})
    fits = 0
    for limit in range(0, 12 * x.array.nbytes, x.array.nbytes // 2):
        found = []
        for compute in (lambda: op.apply(args), lambda: repeated_call(op, args, context)[0]):
            context.account.limit = context.account.bytes + limit + 1
            context.generator.manual_seed(3, algorithm)
            try:
                found.append((compute().array.tobytes(), context.generator.get_state()))
            except EngineError:
                found.append(None)
        fits += found[0] is not None
        assert found[0] == found[1]
    assert fits


def test_a_failed_call_changes_nothing(context: Context) -> None:
    targets = tensor(np.zeros(6, np.int64))
    rest = (None, None, -100, None, "mean", 0.0)
    _, repeated = repeated_call(REGISTRY["cross_entropy"], (leaf(6, 4), targets, *rest), context)
    assert repeated is not None
    before = context.nodes.next
    assert repeated((leaf(6, 4), tensor(np.full(6, 9)), *rest), context) is None
    assert context.nodes.next == before


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rand", lambda: ((3,),)),
        ("nonzero", lambda: (leaf(4),)),
        ("getitem", lambda: (leaf(4), (tensor(np.ones(4, np.bool_)),))),
        ("detach", lambda: (leaf(4),)),
        ("batch_norm", lambda: (leaf(4, 3), leaf(3, grad=False), leaf(3, grad=False), None, None, True, 0.1, 1e-5)),
    ],
)
def test_what_depends_on_more_than_descriptions_is_not_repeated(name: str, arguments: Build, context: Context) -> None:
    _, repeated = repeated_call(REGISTRY[name], REGISTRY[name].bind(arguments(), {}), context)
    assert repeated is None


GENERAL: dict[str, tuple[str, Callable[[int], tuple[Any, ...]]]] = {
    "cat": ("cat", lambda n: ([leaf(2, seed=n), leaf(3, seed=n + 1)], 0)),
    "cat of one tensor": ("cat", lambda n: ([one := leaf(2, seed=n), one], 0)),
    "stack without gradient": ("stack", lambda n: ([leaf(2, grad=False, seed=n), leaf(2, grad=False)], 0)),
    "max": ("max", lambda n: (leaf(3, 4, seed=n), 1, False)),
    "topk": ("topk", lambda n: (leaf(3, 4, seed=n), 2, 1, True, True)),
    "chunk": ("chunk", lambda n: (leaf(4, 4, seed=n), 2, 0)),
    "unbind": ("unbind", lambda n: (leaf(4, 4, seed=n), 0)),
    "layer_norm": ("layer_norm", lambda n: (leaf(3, 4, seed=n), (4,), leaf(4, seed=n + 1), leaf(4), 1e-5)),
    "max_pool2d": ("max_pool2d", lambda n: (leaf(2, 3, 8, 8, seed=n), (2, 2))),
    "an index": ("getitem", lambda n: (leaf(5, 4, seed=n), (slice(None), tensor(np.arange(n % 3, n % 3 + 2))))),
    "dropout": ("dropout", lambda n: (leaf(3, 4, seed=n), 0.5, True)),
    "no dropout": ("dropout", lambda n: (leaf(3, 4, seed=n), 0.5, False)),
    "multinomial": ("multinomial", lambda n: (tensor(np.abs(leaf(3, 4, seed=n).array)), 2, True)),
    "attention": (
        "scaled_dot_product_attention",
        lambda n: (leaf(2, 3, 4, seed=n), leaf(2, 3, 4), leaf(2, 3, 4), None, 0.5, False),
    ),
}


def results_of(made: Any) -> Any:
    return made if type(made) in (list, tuple) else [made]


@pytest.mark.parametrize("name", GENERAL)
def test_lists_several_results_and_draws_are_repeated(name: str, context: Context) -> None:
    """With the same results, nodes and random numbers as the op's."""
    op_name, arguments = GENERAL[name]
    op = REGISTRY[op_name]
    bound = [op.bind(arguments(number), {}) for number in range(3)]
    _, repeated = repeated_call(op, bound[0], context)
    assert repeated is not None
    for args in bound[1:]:
        state = context.generator.get_state()
        before = context.nodes.next
        again = repeated(args, context)
        taken, after = context.nodes.next - before, context.generator.get_state()
        context.generator.set_state(state)
        expected = op.apply(args)
        assert type(again) is type(expected)
        for one, other in zip(*[results_of(each) for each in (again, expected)], strict=True):
            assert described(one) == described(other)
        assert context.nodes.next == before + 2 * taken
        assert context.generator.get_state() == after


def test_a_list_of_other_items_is_left_to_the_op(context: Context) -> None:
    _, repeated = repeated_call(REGISTRY["cat"], ([leaf(2), leaf(3)], 0), context)
    assert repeated is not None
    for items in ([leaf(2)], [leaf(3), leaf(2)], [leaf(2), leaf(3, grad=False)], (leaf(2), leaf(3))):
        assert repeated((items, 0), context) is None
    assert repeated((leaf(2), 0), context) is None


@pytest.mark.parametrize("name", ["cat", "stack"])
def test_a_list_with_one_tensor_twice_is_repeated_with_two_tensors(name: str, context: Context) -> None:
    op, one, other = REGISTRY[name], leaf(2), leaf(2, seed=1)
    _, repeated = repeated_call(op, ([one, one, other], 0), context)
    assert repeated is not None
    again = repeated(([other, one, other], 0), context)
    assert again is not None
    assert described(again) == described(op.apply(([other, one, other], 0)))


def test_an_index_out_of_range_is_left_to_the_op(context: Context) -> None:
    op = REGISTRY["getitem"]
    _, repeated = repeated_call(op, (leaf(3, 4), (tensor(np.array([0, 1])),)), context)
    assert repeated is not None
    before = context.nodes.next
    assert repeated((leaf(3, 4), (tensor(np.array([0, 7])),)), context) is None
    assert context.nodes.next == before


def test_a_call_that_fails_when_it_has_drawn_raises_what_the_op_raises(context: Context) -> None:
    """It must not draw a second time."""
    op, good = REGISTRY["multinomial"], tensor(np.full((2, 3), 0.5, np.float32))
    args = op.bind((good, 2), {})
    _, repeated = repeated_call(op, args, context)
    assert repeated is not None
    bad = op.bind((tensor(np.full((2, 3), -1, np.float32)), 2), {})
    state = context.generator.get_state()
    with pytest.raises(EngineError) as expected:
        op.apply(bad)
    after = context.generator.get_state()
    context.generator.set_state(state)
    with pytest.raises(EngineError) as refused:
        repeated(bad, context)
    assert str(refused.value) == str(expected.value)
    assert context.generator.get_state() == after


def test_a_change_in_place_is_repeated_without_grad_mode(context: Context) -> None:
    op = OPS["sub"]
    assert isinstance(op, Op)
    assert repeated_change(op, (leaf(3), leaf(3), 1), context) is None
    off = replace(context, grad_enabled=False)
    with activate(off):
        repeated = repeated_change(op, (leaf(3), leaf(3), 1), off)
        assert repeated is not None
        target, other, expected = leaf(3, seed=1), leaf(3, seed=2), leaf(3, seed=1)
        assert repeated((target, other, 1), off) is target
        op.in_place((expected, other, 1))
        assert described(target) == described(expected)
        assert (target.storage.version, target.storage.history) == (1, 1)
        assert repeated((target, target, 1), off) is None  # shares its memory
        assert repeated((target, leaf(1), 1), off) is None
        spread = tensor(np.lib.stride_tricks.as_strided(leaf(1).array, (3,), (0,)))
        assert repeated((spread, other, 1), off) is None  # its elements share memory, so the op refuses it
        assert repeated_change(op, (spread, other, 1), off) is None
        frozen = leaf(3)
        frozen.array.flags.writeable = False
        with pytest.raises(EngineError) as refused:
            repeated((frozen, other, 1), off)
        with pytest.raises(EngineError) as expected_refusal:
            op.in_place((frozen, other, 1))
        assert str(refused.value) == str(expected_refusal.value)


def test_in_grad_mode_only_a_change_that_is_not_recorded_is_repeated(context: Context) -> None:
    op = OPS["sub"]
    assert isinstance(op, Op)
    plain, recorded = leaf(3, grad=False), leaf(3, seed=1)
    assert repeated_change(op, (plain, recorded, 1), context) is None
    repeated = repeated_change(op, (plain, leaf(3, grad=False, seed=2), 1), context)
    assert repeated is not None
    target, other, expected = (leaf(3, grad=False, seed=seed) for seed in (3, 4, 3))
    before = context.nodes.next
    assert repeated((target, other, 1), context) is target
    op.in_place((expected, other, 1))
    assert described(target) == described(expected)
    assert (target.storage.version, context.nodes.next) == (1, before)
    assert repeated((target, recorded, 1), context) is None
    assert repeated((recorded, other, 1), context) is None
    op.in_place((target, recorded, 1))
    assert repeated((target, other, 1), context) is None  # it requires grad now
    assert target.node is not None


DIRECT: dict[str, list[tuple[Any, ...]]] = {
    "expand": [
        (leaf(3, 1).array, (3, 4)), (leaf(1).array, (2, 5)), (leaf(3, 1).array, (2, -1, 4)), (np.asarray(1.5), ()),
        (leaf(1, 3).array.T, (3, 4)), (np.asarray(1.5), (2, 2)), (leaf(2, 1, 0).array, (2, 4, 0)),
        (np.ones((2, 1), bool), (2, 3)),
    ],
    "reshape": [
        (leaf(3, 4).array, (2, -1)), (leaf(3, 4).array.T, (12,)), (leaf(0, 4).array, (4, 0)), (leaf(3).array, (3,)),
    ],
    "view": [(leaf(3, 4).array, (2, 6)), (leaf(3, 4).array[:, ::2], (3, 2, 1)), (np.asarray(1.5), (1, 1))],
    "squeeze": [(leaf(3, 1, 4).array, 1), (leaf(1, 3, 1).array, None), (leaf(1, 3, 1).array.T, None)],
    "unsqueeze": [(leaf(3, 4).array, -1), (leaf(3, 4).array.T, 0), (np.asarray(1.5), 0)],
    "mm": [
        (leaf(5, 3).array, leaf(3, 4).array), (leaf(128, 64).array, leaf(64, 256).array),
        (leaf(256, 128).array.T, leaf(256, 64).array),
        (leaf(2, 3, dtype="float64").array, leaf(3, 4, dtype="float64").array),
    ],
    "_linear_mm": [
        (leaf(5, 3).array, leaf(4, 3).array.T), (leaf(128, 64).array, leaf(256, 64).array.T),
        (leaf(2, 0).array, leaf(3, 0).array.T),
    ],
    "_linear_addmm": [
        (leaf(4).array, leaf(5, 3).array, leaf(4, 3).array.T),
        (leaf(256).array, leaf(128, 64).array, leaf(256, 64).array.T),
        (leaf(4, dtype="float64").array, leaf(2, 3, dtype="float64").array, leaf(4, 3, dtype="float64").array.T),
        (leaf(1).array, leaf(5, 3).array, leaf(4, 3).array.T), (leaf(3).array, leaf(2, 0).array, leaf(3, 0).array.T),
    ],
    "log_softmax": [(leaf(7, 5).array, 1, None), (leaf(7, 5).array.T, 0, None), (leaf(2, 3, 60).array, -1, None)],
    "_log_softmax_backward": [(leaf(7, 5).array, leaf(7, 5, seed=1).array, 1)],
    "sum_to_size": [(leaf(128, 256).array, (256,)), (leaf(256, 128).array.T, (256,)), (leaf(8, 16, 64).array, (64,))],
    "_nll_loss": [
        (leaf(6, 4).array, np.arange(6) % 4, None, how, ignored)
        for how in ("mean", "sum", "none") for ignored in (-100, 2)
    ],
    "_nll_loss_backward": [
        (np.float32(0.7).reshape(()), np.arange(6) % 4, None, how, ignored, (6, 4))
        for how in ("mean", "sum") for ignored in (-100, 2)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", DIRECT)
def test_a_direct_forward_has_the_bits_of_the_ops(name: str, context: Context) -> None:
    op = OPS[name]
    assert isinstance(op, Op)
    for args in DIRECT[name]:
        made, expected = forward_of(op, args)(np, *args), op.compute(args)
        assert (made.dtype, made.shape, made.strides) == (expected.dtype, expected.shape, expected.strides)
        assert made.tobytes() == expected.tobytes()
        assert made.flags.writeable == expected.flags.writeable
        assert np.may_share_memory(made, args[0]) == np.may_share_memory(expected, args[0])
        assert not op.view or (made.base is None) == (expected.base is None)
    assert any(op.direct is not None and op.direct(*args) is not None for args in DIRECT[name])


def test_a_direct_view_of_a_read_only_array_is_read_only(context: Context) -> None:
    for name, args in (("expand", (leaf(3, 1).array, (3, 4))), ("reshape", (leaf(3, 4).array, (4, 3)))):
        op = OPS[name]
        assert isinstance(op, Op)
        forward = forward_of(op, args)
        args[0].flags.writeable = False
        made, expected = forward(np, *args), op.compute(args)
        assert not made.flags.writeable
        assert made.strides == expected.strides
    assert forward_of(OPS["expand"], (leaf(3, 2).array, (3, 4))) is OPS["expand"].forward  # the op refuses it


def test_a_direct_loss_refuses_what_the_op_refuses(context: Context) -> None:
    op = OPS["_nll_loss"]
    assert isinstance(op, Op)
    given = leaf(6, 4).array
    forward = forward_of(op, (given, np.arange(6) % 4, None, "mean", -100))
    for wrong in (np.full(6, 4), np.full(6, -1)):
        with pytest.raises(EngineError):
            forward(np, given, wrong, None, "mean", -100)
    ignored = np.array([0, 1, -100, 2, 3, 0])
    made, expected = forward(np, given, ignored, None, "mean", -100), op.compute((given, ignored, None, "mean", -100))
    assert made.tobytes() == expected.tobytes()


def test_one_tensor_for_two_operands_of_a_composite_is_one_again(context: Context) -> None:
    op, one, other = REGISTRY["mse_loss"], leaf(3), leaf(3, seed=1)
    made, repeated = repeated_call(op, op.bind((one, one), {}), context)
    assert repeated is not None
    assert repeated(op.bind((one, other), {}), context) is None
    again = repeated(op.bind((other, other), {}), context)
    assert again is not None
    assert described(again) == described(op.apply(op.bind((other, other), {})))
    assert made.array == 0


def test_a_view_is_changed_in_place_without_grad_mode(context: Context) -> None:
    off = replace(context, grad_enabled=False)
    with activate(off):
        op, base = OPS["copy"], leaf(2, 3, grad=False)
        assert isinstance(op, Op)
        row = lambda: REGISTRY["getitem"].apply((base, (0,)))  # noqa: E731
        repeated = repeated_change(op, (row(), leaf(3), False), off)
        assert repeated is not None
        target, source = row(), leaf(3, seed=4)
        assert repeated((target, source, False), off) is target
        assert base.array[0].tolist() == source.array.tolist()
        assert base.storage.version == 1
        assert repeated((row(), row(), False), off) is None  # shares its memory
