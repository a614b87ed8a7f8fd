"""Derivatives at kinks, zeros, nan and singular matrices: the values and patterns of nan that PyTorch has."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

import gradwire_engine as engine  # noqa: E402
from tests.parity.harness import Case, numbers, torch_function  # noqa: E402

INF, NAN = float("inf"), float("nan")
POINTS = [-INF, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, INF, NAN]
UNARY = [
    "abs",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "exp",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "logit",
    "erf",
    "erfc",
    "erfinv",
    "sinc",
    "special.ndtr",
    "special.ndtri",
    "special.erfcx",
    "special.entr",
    "relu",
    "relu6",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "hardswish",
    "hardtanh",
    "hardshrink",
    "softshrink",
    "tanhshrink",
    "softsign",
    "logsigmoid",
    "leaky_relu",
    "softplus",
    "nan_to_num",
]
BINARY = [
    "add",
    "mul",
    "div",
    "atan2",
    "hypot",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "logaddexp",
    "xlogy",
    "remainder",
    "fmod",
    "copysign",
]
VECTORS = {"zeros": [0.0, 0.0, 0.0], "one": [1.0, 0.0, 0.0], "ties": [2.0, 2.0, -2.0], "empty": [], "nan": [1.0, NAN]}
PRODUCTS = [[0.0, 0.0, 3.0], [0.0, 2.0, 3.0], [0.0, 0.0, 0.0, 2.0], [[0.0, 0.0], [0.0, 3.0]]]
MATRICES = {
    "zeros": [[0.0, 0.0], [0.0, 0.0]],
    "ones": [[1.0, 1.0], [1.0, 1.0]],
    "identity": [[1.0, 0.0], [0.0, 1.0]],
    "of rank one": [[1.0, 2.0], [2.0, 4.0]],
    "column": [[1.0], [2.0]],
}
_ROWS = ([[0.0, 0.0]], [[1.0, 2.0]], [[1.0, 1.0]])
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    *((name, (np.array(POINTS),)) for name in UNARY),
    *((name, (np.repeat(POINTS, len(POINTS)), np.tile(POINTS, len(POINTS)))) for name in BINARY),
    *(
        ("linalg.vector_norm", (np.array(given), order))
        for given in VECTORS.values()
        for order in (0.5, 1, 1.5, 2, 3, 4, INF, -INF)
        if given or 0 < order < INF
    ),
    ("linalg.vector_norm", (np.array(POINTS), 0)),
    *(
        (name, (np.array(given), 0))
        for name in ("prod", "cumprod", "cumsum", "logsumexp", "softmax", "log_softmax")
        for given in VECTORS.values()
    ),
    *(("prod", (np.array(given),)) for given in PRODUCTS),
    *(("cumprod", (np.array(given), 0)) for given in PRODUCTS),
    *(
        ("linalg.matrix_norm", (np.array(given), order))
        for given in MATRICES.values()
        for order in ("fro", "nuc", 1, 2, INF)
    ),
    *(("linalg.pinv", (np.array(given),)) for given in MATRICES.values()),
    *(("cosine_similarity", (np.array(one), np.array(other))) for one in _ROWS for other in _ROWS),
    *(("cosine_similarity", (np.array([[0.5], [2.0]]), np.array(other))) for other in _ROWS),
    *(("pairwise_distance", (np.array(one), np.array(other))) for one in _ROWS for other in _ROWS),
    *(("rms_norm", (np.array(given) * 1e-4, (len(given),))) for given in VECTORS.values() if given),
]


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in CALLS))
def test_derivatives_at_special_points_are_pytorchs(name: str) -> None:
    """The value, the gradient, and its derivative in a fixed direction."""
    different = []
    for _, args in (call for call in CALLS if call[0] == name):
        its, mine = _orders(torch, name, args), _orders(engine, name, args)
        for order, (one, other) in enumerate(zip(mine, its, strict=True)):
            if not np.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True):
                different.append(f"{args}, order {order}: {one.tolist()}, PyTorch has {other.tolist()}")
    assert not different, "\n".join(different)


def _orders(t: Any, name: str, args: tuple[Any, ...]) -> list[np.ndarray]:
    """The flattened result, gradients, and second derivatives."""
    ours = t is engine
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = [_leaf(t, one) if isinstance(one, np.ndarray) else one for one in args]
        out = engine.call(name, given) if ours else torch_function(Case(name, ()))(*given)
        leaves = [one for one in given if hasattr(one, "requires_grad")]
        first = _gradients(t, [out], leaves, create_graph=True)
        flowing = [one for one in first if one is not None and one.requires_grad]
        second = _gradients(t, flowing, leaves) if flowing else [None] * len(leaves)
    return [_flat([out]), _flat(_filled(first, leaves)), _flat(_filled(second, leaves))]


def _filled(gradients: list[Any], leaves: list[Any]) -> list[Any]:
    """Replace missing gradients by zeros."""
    zipped = zip(gradients, leaves, strict=True)
    return [np.zeros(np.shape(numbers(leaf))) if one is None else one for one, leaf in zipped]


def _leaf(t: Any, values: np.ndarray) -> Any:
    return engine.tensor(values.copy(), True) if t is engine else torch.tensor(values, requires_grad=True)


def _gradients(t: Any, outs: list[Any], leaves: list[Any], create_graph: bool = False) -> list[Any]:
    seeds = [np.asarray(np.linspace(0.5, 1.5, int(np.prod(out.shape))).reshape(tuple(out.shape))) for out in outs]
    if t is engine:
        given = [engine.tensor(seed) for seed in seeds]
        return list(engine.gradients(outs, leaves, given, create_graph=create_graph, allow_unused=True)[0])
    given = [torch.tensor(seed) for seed in seeds]
    return list(torch.autograd.grad(outs, leaves, given, create_graph=create_graph, allow_unused=True))


def _flat(values: list[Any]) -> np.ndarray:
    return np.concatenate([np.ravel(one if isinstance(one, np.ndarray) else numbers(one)) for one in values])


@pytest.mark.parametrize(
    ("dtype", "name", "points", "options"),
    [
        ("float16", "gelu", [300.0, -300.0, 1000.0, -6e4, 3.0, -2.0, 0.0], {"approximate": "tanh"}),
        ("float16", "gelu", [300.0, -300.0, 3.0, 0.0], {}),
        ("float16", "sinc", [1e-7, -1e-4, 0.0, 0.5], {}),
        ("float32", "sinc", [1e-30, -1e-25, 0.0, 1e-3, 0.5], {}),
    ],
)
def test_gradients_are_finite_where_steps_of_their_formulas_leave_the_range(
    dtype: str, name: str, points: list[float], options: dict[str, str]
) -> None:
    x = engine.tensor(np.array(points, dtype), True)
    engine.backward([engine.call("sum", [engine.call(name, [x], options)])])
    y = torch.tensor(points, dtype=getattr(torch, dtype), requires_grad=True)
    (torch.sinc(y) if name == "sinc" else torch.nn.functional.gelu(y, **options)).sum().backward()
    assert x.grad is not None and y.grad is not None
    np.testing.assert_allclose(np.asarray(x.grad.array, np.float64), y.grad.double().numpy(), rtol=3e-3, atol=1e-6)
