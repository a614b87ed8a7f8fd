"""Attention in blocks of queries: beside PyTorch's, second derivatives, memory, masks that leave a query no key."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.autograd.backward import gradients
from gradwire_engine.core.context import Context, Interrupt, activate
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.cost import LONG
from gradwire_engine.ops.nn import blocked_attention as blocked

torch = pytest.importorskip("torch")
theirs = torch.nn.functional.scaled_dot_product_attention
SEEDS = range(40)


def _drawn(rng: np.random.Generator) -> tuple[list[Any], Any, dict[str, Any]]:
    """Query, key and value, some of them not row-major; a mask or None; and options."""
    lead = tuple(rng.integers(1, 4, rng.integers(0, 4)))
    rows, keys, width, made = rng.integers(1, 12, 4)
    dtype = rng.choice([np.float32, np.float64])
    arrays = []
    for sizes in ((rows, width), (keys, width), (keys, made)):
        array = rng.standard_normal((*lead, *sizes)).astype(dtype)
        if rng.random() < 0.4:
            array = np.ascontiguousarray(np.moveaxis(array, -2, 0)).transpose(*range(1, array.ndim - 1), 0, -1)
        arrays.append(array)
    mask, options = None, {}
    kind = rng.integers(4)
    if kind == 1:
        options["is_causal"] = True
    elif kind > 1:
        shape = [size if rng.random() < 0.7 else 1 for size in (*lead, rows, keys)][rng.integers(0, len(lead) + 1) :]
        mask = rng.random(shape) < 0.6
        if kind == 3:
            mask = np.where(mask, rng.standard_normal(shape), -np.inf).astype(dtype)
    if rng.random() < 0.3:
        options["scale"] = float(rng.random())
    return arrays, mask, options


def _apply(arrays: Any, mask: Any, options: Any) -> tuple[list[Any], Any]:
    tensors = [engine.tensor(each, True) for each in arrays]
    mask = None if mask is None else engine.tensor(mask)
    return tensors, engine.call("scaled_dot_product_attention", (*tensors, mask), options)


def _close(one: Any, other: Any) -> None:
    tolerance = 2e-5 if other.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scores", [1, 40, 1 << 17])
def test_blocks_of_any_size_compute_what_pytorch_does(seed: int, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "SCORES", scores)
    monkeypatch.setattr(blocked, "_LEAST_ROWS", 3)
    rng = np.random.default_rng(seed)
    arrays, mask, options = _drawn(rng)
    tensors, made = _apply(arrays, mask, options)
    assert made.node.name == "ScaledDotProductFlashAttentionForCpuBackward0"
    given = [torch.tensor(each, requires_grad=True) for each in arrays]
    expected = theirs(*given, None if mask is None else torch.tensor(mask), **options)
    _close(made.array, expected.detach().numpy())
    g = rng.standard_normal(made.shape).astype(made.dtype)
    engine.backward([made], [engine.tensor(g)], retain_graph=True)
    expected.backward(torch.tensor(g))
    for one, other in zip(tensors, given, strict=True):
        _close(one.grad.array, other.grad.numpy())
    again = _apply(arrays, mask, options)[1]
    assert again.array.tobytes() == made.array.tobytes()
    recorded, _ = gradients([made], tensors, [engine.tensor(g)], create_graph=True)
    for one, other in zip(recorded, given, strict=True):
        _close(one.array, other.grad.numpy())


@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
def test_second_derivatives_are_those_of_products_and_softmax(mask: str | None) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((2, size, 4)) for size in (5, 6, 6)]
    given, options = None, {"is_causal": mask == "causal"}
    if mask in ("bool", "float"):
        given = rng.random((5, 6)) < 0.6
        given[2] = False
        given = given if mask == "bool" else np.where(given, 0.5, -np.inf)
    tensors, made = _apply(arrays, given, options)
    g = engine.tensor(rng.standard_normal(made.shape), True)
    first, _ = gradients([made], tensors, [g], create_graph=True)
    weights = [rng.standard_normal(each.shape) for each in first]
    second, _ = gradients(first, [*tensors, g], [engine.tensor(each) for each in weights])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        mine = [torch.tensor(each, requires_grad=True) for each in arrays]
        expected = theirs(*mine, None if given is None else torch.tensor(given), **options)
        to = torch.tensor(g.array, requires_grad=True)
        found = torch.autograd.grad(expected, mine, to, create_graph=True)
        wanted = torch.autograd.grad(found, [*mine, to], [torch.tensor(each) for each in weights])
    for one, other in zip(second, wanted, strict=True):
        _close(one.array, other.numpy())


def test_no_array_has_the_size_of_all_scores() -> None:
    shape, scores = (1, 2, 2048, 16), 2 * 2048 * 2048 * 4
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for _ in range(3)]
    tracemalloc.start()
    try:
        _, made = _apply(arrays, None, {"is_causal": True})
        engine.backward([made], [engine.tensor(np.ones(shape, np.float32))])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < scores / 4


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": ((2, 3, 4), (5, 4), (5, 4))},
        {"shapes": ((2, 0, 4), (2, 5, 4), (2, 5, 4))},
        {"shapes": ((2, 3, 4), (2, 0, 4), (2, 0, 4))},
        {"shapes": ((2, 3, 0), (2, 5, 0), (2, 5, 4))},
        {"dtype": "float16"},
    ],
    ids=str,
)
def test_other_operands_have_all_scores_at_once(change: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    shapes = change.get("shapes", ((2, 3, 4), (2, 5, 4), (2, 5, 4)))
    arrays = [rng.standard_normal(shape).astype(change.get("dtype", "float32")) for shape in shapes]
    options = {} if arrays[0].shape[-1] else {"scale": 1.0}
    made = _apply(arrays, None, options)[1]
    expected = theirs(*map(torch.tensor, arrays), **options)
    assert made.node.name != "ScaledDotProductFlashAttentionForCpuBackward0"
    np.testing.assert_allclose(made.array, expected.numpy(), rtol=2e-3, atol=2e-3)


def test_a_mask_that_needs_a_gradient_gets_it() -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape) for shape in ((2, 3, 4), (2, 5, 4), (2, 5, 4), (3, 5))]
    arrays[3][1] = -np.inf
    tensors = [engine.tensor(each, True) for each in arrays]
    engine.backward([engine.call("scaled_dot_product_attention", tensors)], [engine.tensor(np.ones((2, 3, 4)))])
    given = [torch.tensor(each, requires_grad=True) for each in arrays]
    theirs(*given).sum().backward()
    for one, other in zip(tensors, given, strict=True):
        _close(one.grad.array, other.grad.numpy())


class _Third(Interrupt):
    """Cancels at the third pause."""

    def __init__(self) -> None:
        super().__init__()
        self.polls, self.account = 0, engine.Account()
        self.account.pressed = True

    def poll(self) -> None:
        self.polls += 1
        self.account.pressed = True
        if self.polls == 3:
            raise EngineError(Reason.CANCELLED, "the command was cancelled")


def test_a_cancelled_command_ends_between_two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "SCORES", 1)
    monkeypatch.setattr(blocked, "_LEAST_ROWS", 1)
    interrupt = _Third()
    with activate(Context(interrupt=interrupt, account=interrupt.account)), pytest.raises(EngineError) as raised:
        _apply([np.ones((8, 4), np.float32)] * 3, None, {})
    assert raised.value.reason is Reason.CANCELLED


def test_long_calls_are_not_computed_apart() -> None:
    long = [np.empty((8, 8, 65536, 64), np.float32)] * 3
    cost = blocked.blocked_attention.cost
    assert cost.forward(long, None, True, 1.0) < LONG > cost.backward(long, None, True, 1.0)
