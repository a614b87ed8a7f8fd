"""Linear algebra against PyTorch where a table cannot say it: refusals by LinAlgError, vectors up to their phases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradwire_engine as engine
from gradwire_engine.core.errors import EngineError, Reason

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

SINGULAR = [[1.0, 2.0], [2.0, 4.0]]


def _refusals(name: str, *given: Any) -> tuple[EngineError, str]:
    with pytest.raises(EngineError) as ours:
        engine.call(name, [engine.tensor(np.array(value)) for value in given])
    function = getattr(torch.linalg, name.removeprefix("linalg."))
    with pytest.raises(torch.linalg.LinAlgError) as theirs:
        function(*(torch.tensor(value, dtype=torch.float64) for value in given))
    return ours.value, str(theirs.value)


@pytest.mark.parametrize("matrix", [SINGULAR, [np.eye(2).tolist(), SINGULAR]], ids=["one", "batch"])
def test_singular_matrix_is_refused_naming_the_pivot(matrix: Any) -> None:
    """The sentence, the pivot and the batch element are PyTorch's."""
    for name, more in (("linalg.inv", ()), ("linalg.solve", (np.ones((2, 1)).tolist(),))):
        ours, theirs = _refusals(name, matrix, *more)
        assert ours.reason is Reason.RUNTIME
        assert ours.message == theirs


@pytest.mark.parametrize("batched", [False, True])
def test_matrix_that_is_not_positive_definite_is_refused_naming_the_minor(batched: bool) -> None:
    """The sentence, the order of the minor and the batch element are PyTorch's."""
    indefinite = [[1.0, 2.0], [2.0, 1.0]]
    ours, theirs = _refusals("linalg.cholesky", [np.eye(2).tolist(), indefinite] if batched else indefinite)
    assert ours.message == theirs


def _svd_ours(leaf: engine.Tensor, full: bool) -> list[engine.Tensor]:
    """What does not depend on phases: moduli, singular values, and a product of vectors of both sides."""
    left, values, right = engine.call("linalg.svd", [leaf, full])
    count = values.shape[-1]
    parts = [engine.call("narrow", [left, -1, 0, count]), engine.call("narrow", [right, -2, 0, count])]
    return [engine.call("abs", [left]), values, engine.call("abs", [right]), engine.call("matmul", parts)]


def _svd_theirs(leaf: Any, full: bool) -> list[Any]:
    left, values, right = torch.linalg.svd(leaf, full)
    count = values.shape[-1]
    return [left.abs(), values, right.abs(), left[..., :count] @ right[..., :count, :]]


def _eigh_ours(leaf: engine.Tensor, half: str) -> list[engine.Tensor]:
    values, vectors = engine.call("linalg.eigh", [leaf, half])
    return [values, engine.call("abs", [vectors])]


def _eigh_theirs(leaf: Any, half: str) -> list[Any]:
    values, vectors = torch.linalg.eigh(leaf, half)
    return [values, vectors.abs()]


def _compare(array: np.ndarray, ours: Any, theirs: Any, options: Any) -> None:
    """Values, first and second derivatives."""
    leaf, its_leaf = engine.tensor(array.copy(), True), torch.from_numpy(array.copy()).requires_grad_()
    outs, its_outs = ours(leaf, options), theirs(its_leaf, options)
    rng = np.random.default_rng(7)
    seeds = []
    for mine, its in zip(outs, its_outs, strict=True):
        np.testing.assert_allclose(mine.array, its.detach().numpy(), rtol=1e-8, atol=1e-9)
        way = rng.uniform(-1, 1, mine.shape)
        seeds.append((way + 1j * rng.uniform(-1, 1, mine.shape) if mine.dtype.kind == "c" else way).astype(mine.dtype))
    given = [torch.from_numpy(seed) for seed in seeds]
    (first,), _ = engine.gradients(outs, [leaf], [engine.tensor(seed) for seed in seeds], create_graph=True)
    (its_first,) = torch.autograd.grad(its_outs, [its_leaf], given, create_graph=True)
    assert first is not None
    np.testing.assert_allclose(first.array, its_first.detach().numpy(), rtol=1e-7, atol=1e-8)
    way = rng.uniform(-1, 1, array.shape).astype(array.dtype)
    (second,), _ = engine.gradients([first], [leaf], [engine.tensor(way)])
    (its_second,) = torch.autograd.grad(its_first, [its_leaf], torch.from_numpy(way))
    assert second is not None
    np.testing.assert_allclose(second.array, its_second.numpy(), rtol=1e-6, atol=1e-6)


def _drawn(shape: tuple[int, ...], complex_: bool) -> np.ndarray:
    rng = np.random.default_rng(3)
    real = rng.uniform(-2, 2, shape)
    return real + 1j * rng.uniform(-2, 2, shape) if complex_ else real


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize(("shape", "full"), [((3, 3), True), ((4, 3), False), ((2, 3, 4), False)])
def test_singular_vectors_agree_up_to_their_phases(shape: tuple[int, ...], full: bool, complex_: bool) -> None:
    """Moduli, singular values and U @ Vh: value, first and second derivative."""
    _compare(_drawn(shape, complex_), _svd_ours, _svd_theirs, full)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("half", ["L", "U"])
def test_eigenvectors_agree_up_to_their_phases(half: str, complex_: bool) -> None:
    """Moduli and eigenvalues: value, first and second derivative."""
    drawn = _drawn((2, 3, 3), complex_)
    _compare(drawn + drawn.conj().swapaxes(-1, -2), _eigh_ours, _eigh_theirs, half)


def _eig_ours(leaf: engine.Tensor, _: Any) -> list[engine.Tensor]:
    """In the order of the real parts; of the vectors their moduli, and the products that undo the decomposition."""
    values, vectors = engine.call("linalg.eig", [leaf])
    order = engine.tensor(np.argsort(values.array.real + 1e-3 * values.array.imag, -1))
    moduli = engine.call("abs", [vectors])
    kept = engine.call("take_along_dim", [moduli, engine.call("unsqueeze", [order, -2]), -1])
    return [engine.call("take_along_dim", [values, order, -1]), kept]


def _eig_theirs(leaf: Any, _: Any) -> list[Any]:
    values, vectors = torch.linalg.eig(leaf)
    order = torch.argsort(values.real + 1e-3 * values.imag, -1)
    return [values.take_along_dim(order, -1), vectors.abs().take_along_dim(order.unsqueeze(-2), -1)]


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (1, 1), (0, 0)])
def test_eigenvectors_of_any_matrix_agree_up_to_order_and_phase(shape: tuple[int, ...], complex_: bool) -> None:
    """Eigenvalues and moduli: value, first and second derivative."""
    _compare(_drawn(shape, complex_), _eig_ours, _eig_theirs, None)
    ours = engine.call("linalg.eigvals", [engine.tensor(_drawn(shape, complex_))])
    np.testing.assert_allclose(
        np.sort_complex(ours.array), np.sort_complex(np.linalg.eigvals(_drawn(shape, complex_))), rtol=1e-9
    )


def test_loss_that_depends_on_a_phase_is_refused() -> None:
    """Complex vectors are unique up to a phase, so a derivative by it means nothing."""
    drawn = _drawn((3, 3), True)
    for name in ("linalg.svd", "linalg.eigh", "linalg.eig"):
        leaf = engine.tensor(drawn + drawn.conj().T, True)
        vectors = engine.call(name, [leaf])[0 if name == "linalg.svd" else 1]
        with pytest.raises(EngineError, match="specified up to multiplication by"):
            engine.gradients([vectors], [leaf], [engine.tensor(drawn)])
