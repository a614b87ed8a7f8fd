"""Transforms of functions whose answer is an input, an alias of one, or knows nothing of it: beside PyTorch's.

Derivatives of such functions pass through no formula: a transform sees tensors that it made itself come back.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

import gradwire  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _session() -> Iterator[None]:
    """A default session of its own, whatever other tests have closed."""
    with contextlib.closing(gradwire.connect()):
        yield


# A function takes the module, and two tensors of shape [2].
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "input": lambda t, x, y: x,
    "other input": lambda t, x, y: y,
    "clone": lambda t, x, y: x.clone(),
    "contiguous": lambda t, x, y: x.contiguous(),
    "same dtype": lambda t, x, y: x.to(t.float32),
    "positive": lambda t, x, y: +x,
    "view": lambda t, x, y: x.view(2),
    "view_as": lambda t, x, y: x.view_as(x),
    "part": lambda t, x, y: x[1:],
    "element": lambda t, x, y: x[0],
    "expanded": lambda t, x, y: x.expand(2, 2),
    "detached": lambda t, x, y: x.detach(),
    "both": lambda t, x, y: (x, y),
    "twice": lambda t, x, y: (x, x),
    "input and clone": lambda t, x, y: (x, x.clone(), x.view(2)),
    "input and product": lambda t, x, y: (x * y, x),
    "constant": lambda t, x, y: t.ones(2),
    "constant and input": lambda t, x, y: (t.ones(2), x),
    "dict": lambda t, x, y: {"a": x, "b": [y, x * x]},
    "sum with itself": lambda t, x, y: x + x.clone(),
    "product": lambda t, x, y: x * y,
    "cube": lambda t, x, y: x**3,
    "in place": lambda t, x, y: x.clone().mul_(y),
    "written part": lambda t, x, y: t.zeros_like(x).copy_(x),
    "double": lambda t, x, y: x.double(),
    "unbound": lambda t, x, y: x.unbind(),
    "scalar": lambda t, x, y: x.sum(),
    "rounded": lambda t, x, y: x.round(),
    "integer": lambda t, x, y: x.argmax(),
    "product and integers": lambda t, x, y: (x * y, x.argsort()),
    "integers and sum": lambda t, x, y: (y.argsort(), x.sum()),
    "comparison": lambda t, x, y: x > y,
    "complex": lambda t, x, y: t.complex(x, x * y),
}


def _tensors(t: Any, *rows: Any) -> tuple[Any, ...]:
    return tuple(t.tensor(row) for row in rows)


X, Y, U, V = [1.0, 2.0], [3.0, -4.0], [0.5, 3.0], [7.0, -1.0]


def _jvp(t: Any, f: Any) -> Any:
    x, y, u, v = _tensors(t, X, Y, U, V)
    return t.func.jvp(lambda a, b: f(t, a, b), (x, y), (u, v))


def _linearize(t: Any, f: Any) -> Any:
    x, y, u, v = _tensors(t, X, Y, U, V)
    value, product = t.func.linearize(lambda a, b: f(t, a, b), x, y)
    return value, product(u, v)


def _vjp(t: Any, f: Any) -> Any:
    x, y = _tensors(t, X, Y)
    value, product = t.func.vjp(lambda a, b: f(t, a, b), x, y)
    return value, product(_map(lambda each: 2 * t.ones_like(each), value, t))


def _jacobian(name: str, *argnums: Any) -> Any:
    def run(t: Any, f: Any) -> Any:
        return getattr(t.func, name)(lambda a, b: f(t, a, b), *argnums)(*_tensors(t, X, Y))

    return run


def _nested(outer: str, inner: str) -> Any:
    def run(t: Any, f: Any) -> Any:
        made = getattr(t.func, outer)(getattr(t.func, inner)(lambda a, b: f(t, a, b)))
        return made(*_tensors(t, X, Y))

    return run


def _nested_jvp(t: Any, f: Any) -> Any:
    x, y, u, v = _tensors(t, X, Y, U, V)
    inner = lambda a: t.func.jvp(lambda b: f(t, b, y), (a,), (u,))[1]  # noqa: E731
    return t.func.jvp(inner, (x,), (v,))


def _tangent_of_tangent(t: Any, f: Any) -> Any:
    """By the tangent: the product is linear in it."""
    x, y, u = _tensors(t, X, Y, U)
    return t.func.jacrev(lambda w: t.func.jvp(lambda b: f(t, b, y), (x,), (w,))[1])(u)


def _vmap_jvp(t: Any, f: Any) -> Any:
    x, y = _tensors(t, X, Y)
    rows = t.tensor([U, V, X])
    return t.func.vmap(lambda w: t.func.jvp(lambda b: f(t, b, y), (x,), (w,))[1])(rows)


def _vmap_jacfwd(t: Any, f: Any) -> Any:
    y = t.tensor(Y)
    return t.func.vmap(t.func.jacfwd(lambda b: f(t, b, y)))(t.tensor([X, U, V]))


def _vmap_jacrev(t: Any, f: Any) -> Any:
    y = t.tensor(Y)
    return t.func.vmap(t.func.jacrev(lambda b: f(t, b, y)))(t.tensor([X, U, V]))


def _functional(name: str, *more: Any) -> Any:
    def run(t: Any, f: Any) -> Any:
        module = importlib.import_module(f"{t.__name__}.autograd.functional")
        x, y, u, v = _tensors(t, X, Y, U, V)
        given = () if name in ("jacobian", "hessian") else ((u, v),)
        scalar = name in ("hessian", "vhp", "hvp")
        g = (lambda a, b: _total(f(t, a, b), t)) if scalar else (lambda a, b: _flat_answer(f(t, a, b)))
        if name == "vjp":
            out = _flat_answer(f(t, x, y))
            given = (_map(lambda each: 2 * t.ones_like(each), out, t),)
        return getattr(module, name)(g, (x, y), *given)

    return run


def _flat_answer(value: Any) -> Any:
    """What autograd.functional takes: a tensor or a tuple of some."""
    leaves: list[Any] = []
    _map(leaves.append, value, None)
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def _total(value: Any, t: Any) -> Any:
    leaves: list[Any] = []
    _map(leaves.append, value, None)
    return leaves[0].reshape(-1)[0] if len(leaves) == 1 else sum((each.sum() for each in leaves), t.zeros(()))


def _map(change: Any, value: Any, t: Any) -> Any:
    if isinstance(value, dict):
        return {key: _map(change, item, t) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_map(change, item, t) for item in value)
    return change(value)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "jvp": _jvp,
    "linearize": _linearize,
    "vjp": _vjp,
    "jacrev": _jacobian("jacrev"),
    "jacfwd": _jacobian("jacfwd"),
    "jacrev of both": _jacobian("jacrev", (0, 1)),
    "jacfwd of both": _jacobian("jacfwd", (0, 1)),
    "hessian": _jacobian("hessian"),
    "jacfwd of jacfwd": _nested("jacfwd", "jacfwd"),
    "jacrev of jacfwd": _nested("jacrev", "jacfwd"),
    "jacrev of jacrev": _nested("jacrev", "jacrev"),
    "jvp of jvp": _nested_jvp,
    "jacrev by the tangent": _tangent_of_tangent,
    "vmap of jvp": _vmap_jvp,
    "vmap of jacfwd": _vmap_jacfwd,
    "vmap of jacrev": _vmap_jacrev,
    **{f"functional.{name}": _functional(name) for name in ("jvp", "vjp", "jacobian", "hessian", "vhp", "hvp")},
}


def _outcome(t: Any, transform: Any, function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _map(lambda each: (str(each.dtype)[-7:], _values(each)), transform(t, function), t)
        except Exception as error:  # noqa: BLE001 whatever it is, it is compared
            return error


def _values(each: Any) -> Any:
    """The numbers; PyTorch's zeros that take no memory are multiplied out first."""
    each = each.detach()
    return (torch.zeros(each.shape) if isinstance(each, torch.Tensor) and each._is_zerotensor() else each).tolist()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions_that_answer_their_inputs_agree_with_pytorch(name: str) -> None:
    """Values, dtypes and structure; where PyTorch refuses, so do we."""
    different = []
    for which, function in FUNCTIONS.items():
        its = _outcome(torch, TRANSFORMS[name], function)
        mine = _outcome(gradwire, TRANSFORMS[name], function)
        if isinstance(its, Exception) and isinstance(mine, Exception):
            continue
        if isinstance(its, Exception) or isinstance(mine, Exception) or mine != its:
            different.append(f"{which}: {mine!r}, PyTorch has {its!r}")
    assert not different, "\n".join(different)
