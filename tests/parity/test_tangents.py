"""Tangents of every op of the tables: beside PyTorch's forward mode, and beside reverse mode.

With J the derivative of an op, v a tangent and u a gradient, <J v, u> = <v, J^T u>. The tangent of a gradient is the
gradient of a gradient: forward over reverse is held against reverse over reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine import Context, Tensor, activate
from gradwire_engine.autograd.forward import ForwardMode
from gradwire_engine.core import dtypes
from gradwire_engine.core.context import CURRENT
from tests.parity.harness import Case, Sample, _Call, numbers
from tests.parity.test_ops import CASES

torch = pytest.importorskip("torch")
forward_ad = pytest.importorskip("torch.autograd.forward_ad")

# Ops whose tangents are not compared with PyTorch's at edges, each with the reason.
EDGES = {
    "atan2": "nan at (0, 0) here as in reverse mode",
    "cholesky_inverse": "PyTorch reads both triangles of the factor's tangent",
    "clamp": "with crossed bounds the value is max's",
    "cosine_similarity": "below eps PyTorch uses another formula than in reverse mode",
    "fmax": "with nan as in reverse mode",
    "linalg.det": "PyTorch's is 0 at a singular matrix, whose cofactors are not",
    "linalg.lu_factor_ex": "of a singular matrix",
    "logsumexp": "of nan",
    "polar": "as in reverse mode, in PyTorch the tangent by a negative `abs` has the other sign",
    "max": "of nan",
    "maximum": "with nan as in reverse mode",
    "median": "of nan",
    "min": "of nan",
    "minimum": "with nan as in reverse mode",
    "nanmedian": "of nothing but nan",
    "pow": "PyTorch drops an imaginary part of a real base's tangent with a complex exponent",
}
# Ops for which PyTorch has no tangents where it has gradients.
WITHOUT = ("scatter_reduce",)
# Ops whose reverse formula is not the transpose of the derivative, as in PyTorch, each with the reason.
NOT_TRANSPOSED = {
    "embedding": "padding_idx drops gradients, not tangents",
    "linalg.cholesky": "the gradient is symmetric; the tangent is taken as it is",
    "polar": "the gradient by a negative `abs` has the other sign",
    "setitem": "a value for equal indices gets all their gradients; the tangent is that of the last",
}
# Ops whose second derivatives the two orders of modes give differently, each with the reason.
NOT_SYMMETRIC = {
    "linalg.cholesky": NOT_TRANSPOSED["linalg.cholesky"],
    "linalg.pinv": "the formula holds for directions that keep the rank",
    "polar": "as in PyTorch, the gradient by a negative `abs` has the other sign",
}
# Ops that have no tangent, each with the reason.
NONE = {
    "scatter_reduce": "a product with several zeros has no second derivative, and no rule",
}


class _Duals:
    """A sample's leaves, and the same with tangents at a level."""

    def __init__(self, call: _Call) -> None:
        rng = np.random.default_rng(7)
        self.rng = rng
        self.mode = ForwardMode()
        self.token = engine.tensor(np.zeros(()))
        self.leaves = call.ours()
        self.directions = [
            _drawn(rng, leaf.array) if spec.differentiable else None
            for leaf, spec in zip(self.leaves, call.specs, strict=True)
        ]
        self.tensors = self.leaves

    def open(self) -> list[Tensor]:
        """The leaves as dual tensors; needs an active context with `mode`."""
        return [
            leaf if direction is None else self.mode.make(leaf, engine.tensor(direction.copy()), self.token, 1)
            for leaf, direction in zip(self.leaves, self.directions, strict=True)
        ]

    def tangents(self, out: Sequence[Tensor]) -> list[np.ndarray | None]:
        """Of each result; None where it has none."""
        return [self.mode.tangent(each, self.token).array if self.mode.described(each) else None for each in out]


def _drawn(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    values = np.asarray(rng.uniform(-1, 1, like.shape))
    if like.dtype.kind == "c":
        values = values + 1j * rng.uniform(-1, 1, like.shape)
    return np.asarray(values.astype(like.dtype))


def _samples(order: int) -> list[Any]:
    found = []
    for made in CASES:
        if made.order < order:
            continue
        samples = [each for each in made.samples if "float64" in each.dtypes and each.order >= order]
        if samples:
            found.append(pytest.param(made, samples, id=made.op))
    return found


def _inner(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sum((np.conj(one) * other).real))


def _tolerance(arrays: Sequence[np.ndarray]) -> float:
    widths = [each.dtype.itemsize // (2 if each.dtype.kind == "c" else 1) for each in arrays]
    return {2: 2e-3, 4: 1e-4}.get(min(widths, default=8), 1e-7)


@pytest.mark.parametrize(("made", "samples"), _samples(1))
def test_tangents_agree_with_reverse_mode_and_pytorch(made: Case, samples: list[Sample]) -> None:
    for sample in samples:
        call = _Call(made, sample, "float64")
        if any(spec.differentiable for spec in call.specs):
            _check_tangents(made, sample, call)


def _check_tangents(made: Case, sample: Sample, call: _Call) -> None:
    duals = _Duals(call)
    with activate(Context(duals=duals.mode)):
        try:
            out = call.call_ours(duals.open())
        except engine.EngineError:
            assert made.op in NONE, f"{made.op} {sample}"
            return
        tangents = duals.tangents(out)
        duals.mode.leave(duals.token)
        for each, tangent in zip(out, tangents, strict=True):
            assert tangent is None or (tangent.shape == each.shape and tangent.dtype == each.dtype), f"{sample}"
            assert tangent is None or dtypes.is_differentiable(each.dtype)
            assert tangent is not None or not each.requires_grad, f"{made.op} {sample}: no tangent"
        if made.op not in NOT_TRANSPOSED:
            _check_transpose(duals, out, tangents, f"{made.op} {sample}")
    if not engine.lookup(made.op)[0].draws and (sample.smooth or made.op not in EDGES):
        _check_pytorch(duals, call, out, tangents, f"{made.op} {sample}")


def _check_transpose(duals: _Duals, out: list[Tensor], tangents: list[Any], what: str) -> None:
    pairs = [(each, tangent) for each, tangent in zip(out, tangents, strict=True) if each.requires_grad]
    if not pairs:
        return
    gradients = [_drawn(duals.rng, each.array) for each, _ in pairs]
    given = [(leaf, v) for leaf, v in zip(duals.leaves, duals.directions, strict=True) if v is not None]
    found, _ = engine.gradients(
        [each for each, _ in pairs],
        [leaf for leaf, _ in given],
        [engine.tensor(u.copy()) for u in gradients],
        allow_unused=True,
    )
    left = sum(_inner(u, tangent) for u, (_, tangent) in zip(gradients, pairs, strict=True))
    right = sum(_inner(g.array, v) for g, (_, v) in zip(found, given, strict=True) if g is not None)
    if np.isfinite(left) and np.isfinite(right):
        allowed = _tolerance([*gradients, *(v for _, v in given)])
        np.testing.assert_allclose(left, right, rtol=allowed, atol=allowed, err_msg=what)


def _check_pytorch(duals: _Duals, call: _Call, out: list[Tensor], tangents: list[Any], what: str) -> None:
    with forward_ad.dual_level():
        inputs = [
            each.detach() if v is None else forward_ad.make_dual(each.detach(), torch.from_numpy(v.copy()))
            for each, v in zip(call.theirs(), duals.directions, strict=True)
        ]
        try:
            expected = [forward_ad.unpack_dual(each).tangent for each in call.call_theirs(inputs)]
        except (NotImplementedError, RuntimeError):  # PyTorch has no forward mode for some ops
            return
    allowed = _tolerance([v for v in duals.directions if v is not None])
    for each, mine, its in zip(out, tangents, expected, strict=True):
        if its is None:
            assert mine is None or not np.any(mine) or call.case.op in WITHOUT, f"{what}: PyTorch has no tangent"
        elif mine is None:
            assert not np.any(numbers(its)), f"{what}: there is no tangent"
        else:
            finite = np.isfinite(each.array)
            np.testing.assert_allclose(
                mine[finite], numbers(its)[finite], rtol=allowed, atol=allowed, equal_nan=True, err_msg=what
            )


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize(("made", "samples"), _samples(2))
def test_tangents_of_gradients_are_second_derivatives(made: Case, samples: list[Sample], create_graph: bool) -> None:
    for sample in samples:
        call = _Call(made, sample, "float64")
        if any(spec.differentiable for spec in call.specs) and made.op not in NOT_SYMMETRIC:
            _check_second(call, create_graph, f"{made.op} {sample}")


def _check_second(call: _Call, create_graph: bool, what: str) -> None:
    duals = _Duals(call)
    with activate(Context(duals=duals.mode)):
        inputs = [leaf for leaf, v in zip(duals.leaves, duals.directions, strict=True) if v is not None]
        directions = [v for v in duals.directions if v is not None]
        out = [each for each in _called(call, duals.leaves) if each.requires_grad]
        if not out:
            return
        weights = [engine.tensor(_drawn(duals.rng, each.array)) for each in out]
        first, _ = engine.gradients(out, inputs, weights, create_graph=True, allow_unused=True)
        pairs = [(g, v) for g, v in zip(first, directions, strict=True) if g is not None and g.requires_grad]
        second: list[Any] = [None] * len(inputs)
        if pairs:
            given = [engine.tensor(v.copy()) for _, v in pairs]
            second, _ = engine.gradients([g for g, _ in pairs], inputs, given, allow_unused=True)
        opened = duals.open()
        entered = [each for each, v in zip(opened, duals.directions, strict=True) if v is not None]
        out = [each for each in _called(call, opened) if each.requires_grad]
        found, _ = engine.gradients(out, entered, weights, create_graph=create_graph, allow_unused=True)
        for gradient, wanted in zip(found, second, strict=True):
            if gradient is None:
                continue
            mine = duals.mode.tangent(gradient, duals.token).array
            other = np.zeros_like(mine) if wanted is None else wanted.array
            finite = np.isfinite(mine) & np.isfinite(other)
            allowed = max(_tolerance([mine]), _tolerance(directions))
            np.testing.assert_allclose(mine[finite], other[finite], rtol=allowed, atol=allowed, err_msg=what)


@pytest.mark.parametrize(("made", "samples"), _samples(2))
def test_gradients_of_tangents_are_second_derivatives(made: Case, samples: list[Sample]) -> None:
    """Of the number <u, J v> = <v, J^T u>: by its tangent form and by its gradient form."""
    for sample in samples:
        call = _Call(made, sample, "float64")
        exempt = NOT_SYMMETRIC.keys() | NOT_TRANSPOSED.keys()
        if any(spec.differentiable for spec in call.specs) and made.op not in exempt:
            _check_recorded(call, f"{made.op} {sample}")


def _check_recorded(call: _Call, what: str) -> None:
    duals = _Duals(call)
    with activate(Context(duals=duals.mode)):
        inputs = [leaf for leaf, v in zip(duals.leaves, duals.directions, strict=True) if v is not None]
        directions = [v for v in duals.directions if v is not None]
        out = [each for each in _called(call, duals.leaves) if each.requires_grad]
        weights = [engine.tensor(_drawn(duals.rng, each.array)) for each in out]
        first, _ = engine.gradients(out, inputs, weights, create_graph=True, allow_unused=True) if out else ([], None)
        pairs = [(g, v) for g, v in zip(first, directions, strict=False) if g is not None and g.requires_grad]
        given = [engine.tensor(v.copy()) for _, v in pairs]
        wanted = engine.gradients([g for g, _ in pairs], inputs, given, allow_unused=True)[0] if pairs else None
        made = [each for each in _called(call, duals.open()) if each.requires_grad]
        parts = [(duals.mode.tangent(each, duals.token), u) for each, u in zip(made, weights, strict=True)]
        parts = [(tangent, u) for tangent, u in parts if tangent.requires_grad]
        found: Any = None
        if parts:
            found, _ = engine.gradients([one for one, _ in parts], inputs, [u for _, u in parts], allow_unused=True)
        for place, leaf in enumerate(inputs):
            mine, other = (
                np.zeros_like(leaf.array) if each is None or each[place] is None else each[place].array
                for each in (found, wanted)
            )
            finite = np.isfinite(mine) & np.isfinite(other)
            allowed = _tolerance([*directions, *(each.array for each in out)])
            np.testing.assert_allclose(mine[finite], other[finite], rtol=allowed, atol=allowed, err_msg=what)


def _called(call: _Call, tensors: Sequence[Tensor]) -> list[Tensor]:
    CURRENT.get().generator.manual_seed(0)
    return call.call_ours(tensors)
