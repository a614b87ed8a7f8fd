"""Early stop of checkpoints: how far the second call comes, and the same gradients with all that may go on around."""

import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import gradwire
from gradwire.utils._early_stop import SAVES_NOTHING
from gradwire_engine.op.op import OPS
from tests.client.oracle import agree

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("session")


def _checkpoint(t: Any) -> Any:
    return import_module(f"{t.__name__}.utils.checkpoint")


def _leaf(t: Any, *shape: int) -> Any:
    count = int(torch.Size(shape).numel())
    return (t.arange(count, dtype=t.float64).reshape(shape) * 0.37 % 1 - 0.4).requires_grad_()


#: Those that the server makes of other ops.
COMPOSED: dict[str, Callable[[Any], Any]] = {
    "chunk": lambda x: x.chunk(2),
    "flatten": lambda x: (x.flatten(), x.t().flatten()),
    "movedim": lambda x: x.movedim(0, 1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "swapdims": lambda x: x.swapdims(0, 1),
    "unflatten": lambda x: x.unflatten(1, (3, 1)),
    "view_as": lambda x: x.view_as(x.t()),
}


def test_ops_that_are_left_out_save_nothing() -> None:
    assert SAVES_NOTHING - set(OPS) == set(COMPOSED)
    for name in SAVES_NOTHING & set(OPS):
        op = OPS[name]
        for needed in range(1, 1 << len(op.tensor_bits)):
            assert not op.saving_plan(needed).saves_tensors, name


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_ops_that_are_left_out_save_nothing(name: str) -> None:
    saved: list[Any] = []
    x = _leaf(gradwire, 3, 3)
    with gradwire.autograd.graph.saved_tensors_hooks(saved.append, lambda kept: kept):
        made = COMPOSED[name](x)
        assert not saved
        x.sin()
    assert all(each.requires_grad for each in _flat(made))
    assert len(saved) == 1


class _Cube:
    """A custom function of the library."""

    @staticmethod
    def of(t: Any, x: Any) -> Any:
        class Cube(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return 3 * ctx.saved_tensors[0] ** 2 * g

        return Cube.apply(x)


def _branch(t: Any, x: Any, kept: list[Any]) -> Any:
    kept.append(x.cos().exp())  # leads to no result
    y = x.sin()
    kept.append(y.tanh())
    return y.exp() + x


def _changed(t: Any, x: Any, kept: list[Any]) -> Any:
    h = x * 2
    h[1:].mul_(x[:-1])
    return h.exp().clone()[0]


def _derived(t: Any, x: Any, kept: list[Any]) -> Any:
    y = x.sin()
    return t.autograd.grad(y.cos().sum(), x, create_graph=True)[0].clone() + y


CASES: dict[str, Callable[[Any, Any, list[Any]], Any]] = {
    "a copy at the end": lambda t, x, kept: x.sin().cos().clone(),
    "a residual": lambda t, x, kept: (x @ x).tanh() @ x + x,
    "several results": lambda t, x, kept: (x.sin() + 1, {"a": x.exp().sum(0) - 1, "b": x.mean()}),
    "branches that lead nowhere": _branch,
    "in place": _changed,
    "a derivative inside": _derived,
    "a custom function at the end": lambda t, x, kept: _Cube.of(t, x.sin()).clone(),
    "a custom function in the middle": lambda t, x, kept: _Cube.of(t, x.sin()).exp() + x,
    "nothing saved": lambda t, x, kept: x.clone() + 1,
    "random numbers": lambda t, x, kept: t.nn.functional.dropout(x.exp(), 0.5).sin() + t.rand(3, 3, dtype=x.dtype),
    "without gradient at the end": lambda t, x, kept: (x.exp(), (x.detach() * 2).sum()),
}


def _slopes(t: Any, function: Any, x: Any, run: Any) -> Any:
    made = run(lambda x: function(t, x, []), x)
    parts = [each for each in _flat(made) if each.requires_grad]
    return t.autograd.grad(sum((each * each).sum() for each in parts), x)[0]


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [part for each in value for part in _flat(each)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("stops", [None, True, False])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, stops: bool | None) -> None:
    def told(t: Any) -> Any:
        t.manual_seed(3)
        module = _checkpoint(t)
        run = partial(module.checkpoint, use_reentrant=False)
        if stops is None:
            return _slopes(t, CASES[name], _leaf(t, 3, 3), lambda f, x: run(f, x))
        with module.set_checkpoint_early_stop(stops):
            return _slopes(t, CASES[name], _leaf(t, 3, 3), lambda f, x: run(f, x))

    agree(told)


@pytest.mark.parametrize("stops", [True, False])
def test_how_far_the_second_call_comes(stops: bool) -> None:
    def told(t: Any) -> Any:
        x, calls = _leaf(t, 3), []

        def f(x: Any) -> Any:
            calls.append("begins")
            y = x.sin().exp()
            calls.append("all is saved")
            z = t.cat([y.clone(), y])
            calls.append("ends")
            return z - 1

        y = _checkpoint(t).checkpoint(f, x, use_reentrant=False, early_stop=stops)
        slope = t.autograd.grad(y.sum(), x, retain_graph=True)
        came = list(calls)
        return slope, t.autograd.grad(y.sum(), x), came

    agree(told)


def test_what_was_not_foreseen_is_computed_as_a_whole() -> None:
    """A backward inside saves values that no op tells of: the second call is refused, and made again."""
    x, calls = _leaf(gradwire, 3), []

    def f(x: Any) -> Any:
        calls.append(1)
        return gradwire.autograd.grad((x**3).sum(), x, create_graph=True)[0].clone()

    y = gradwire.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    (slope,) = gradwire.autograd.grad(y.sum(), x)
    assert gradwire.allclose(slope, 6 * x.detach())
    assert len(calls) == 3


_STEPS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a.sin(),
    lambda a, b: a * b,
    lambda a, b: a + b,
    lambda a, b: a.clone(),
    lambda a, b: a.tanh(),
    lambda a, b: a - b,
    lambda a, b: a.t(),
    lambda a, b: (a * 0.5).mul_(b),
    lambda a, b: a.sigmoid() @ b,
]


def _program(seed: int) -> Callable[[Any], Any]:
    """A function of random ops, of which some save nothing, and some results lead nowhere."""
    draw = random.Random(seed)
    steps = [(draw.choice(_STEPS), draw.randrange(100), draw.randrange(100)) for _ in range(draw.randrange(3, 12))]

    def run(x: Any) -> Any:
        held = [x]
        for step, first, second in steps:
            held.append(step(held[first % len(held)], held[second % len(held)]))
        return held[-1], held[-1 - len(held) // 3]

    return run


@pytest.mark.parametrize("seed", range(40))
def test_random_functions(seed: int) -> None:
    run = _program(seed)
    x = _leaf(gradwire, 3, 3)
    expected = run(x)
    found = gradwire.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
    plain, again = (
        gradwire.autograd.grad(sum((each * each).sum() for each in values), x)[0] for values in (expected, found)
    )
    assert gradwire.equal(plain, again)


def test_an_error_of_the_second_call_is_not_taken_for_an_early_end() -> None:
    """The function is not called a third time."""

    def told(t: Any) -> Any:
        x, calls = _leaf(t, 3), []

        def f(x: Any) -> Any:
            calls.append(1)
            if len(calls) == 2:
                x.reshape(7)
            return x.sin().exp() + 1

        y = _checkpoint(t).checkpoint(f, x, use_reentrant=False)
        with pytest.raises(RuntimeError, match="shape"):
            y.sum().backward()
        failed = len(calls)
        y.sum().backward()
        return failed, len(calls), x.grad

    agree(told)


def test_hooks_of_the_second_call_in_a_second_derivative() -> None:
    """The second derivative passes nodes that backward made, with hooks of tensors that are gone."""

    def told(t: Any) -> Any:
        def f(x: Any) -> Any:
            y = x.tanh()
            y.register_hook(lambda gradient: gradient * 1.5)
            return y.sin(), _Cube.of(t, y)

        x = _leaf(t, 3)
        total = sum((each * each).sum() for each in _checkpoint(t).checkpoint(f, x, use_reentrant=False))
        (slope,) = t.autograd.grad(total, x, create_graph=True)
        return slope.detach(), t.autograd.grad((slope * slope).sum(), x)

    agree(told)


def test_what_leads_nowhere_may_come_in_another_order() -> None:
    """The numbers of nodes are then those of others, of the same names and shapes."""
    x, calls, kept = _leaf(gradwire, 3), [], []

    def f(x: Any) -> Any:
        calls.append(1)
        a = x.sin()
        if len(calls) > 1:
            kept.append(x + 1)
        kept.append(x.sin())
        b = a.sin()
        if len(calls) == 1:
            kept.append(x + 1)
        return b.sin() + 1

    y = gradwire.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    (found,) = gradwire.autograd.grad(y.sum(), x)
    (expected,) = gradwire.autograd.grad((x.sin().sin().sin() + 1).sum(), x)
    assert gradwire.allclose(found, expected)


#: Functions whose ops all save what the table of saved values says.
_SEEN: dict[str, Callable[[Any, Any], Any]] = {
    "an argument at the end": lambda t, x: x.sin(),
    "a result at the end": lambda t, x: x.sin().exp(),
    "both factors": lambda t, x: (x * x).sum(),
    "one factor": lambda t, x: (x.detach() * x).exp() * 3,
    "a number": lambda t, x: (x.cos() * 2).sum() / 3,
    "products of matrices": lambda t, x: (x @ x).relu() @ x.detach(),
    "a layer": lambda t, x: t.nn.functional.linear(x, x.detach()).sigmoid().sin(),
    "softmax": lambda t, x: t.softmax(x * 2, -1).sum(),
    "without gradient at the end": lambda t, x: (x.exp(), (x.detach() * 2).sin()),
    "nothing": lambda t, x: x.clone(),
    **{
        name: partial(lambda name, t, x: getattr(x, name)().sum(), name)
        for name in ["acos", "asinh", "atan", "cosh", "digamma", "erf", "lgamma", "log1p", "sinc", "sinh", "tan"]
    },
    **{
        name: partial(lambda name, t, x: getattr(t.nn.functional, name)(x).sum(), name)
        for name in ["gelu", "hardswish", "mish", "silu", "softplus"]
    },
}


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("name", _SEEN)
def test_what_a_mode_sees_of_the_second_call(name: str, stops: bool) -> None:
    """What the nodes save is detached, and an op that only saves its arguments is left out at the end."""

    def told(t: Any) -> Any:
        module = _checkpoint(t)
        mode = _mode(t)
        x = _leaf(t, 3, 3)
        made = module.checkpoint(
            partial(_SEEN[name], t), x, use_reentrant=False, early_stop=stops, context_fn=lambda: (nullcontext(), mode)
        )
        first = made[0] if isinstance(made, tuple) else made
        (slope,) = t.autograd.grad(first.sum(), x)
        return mode.seen, slope

    agree(told)


def _mode(t: Any) -> Any:
    class Names(import_module(f"{t.__name__}.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    return Names()


@pytest.mark.parametrize("around", ["forward", "backward"])
def test_a_mode_around_one_of_the_two_calls(around: str) -> None:
    """What the mode calls is no op of the region: both calls count the same."""
    x, calls = _leaf(gradwire, 3), []

    def f(x: Any) -> Any:
        calls.append("begins")
        y = x.sin().exp().relu()
        calls.append("all is saved")
        z = y.clone()
        calls.append("ends")
        return z - 1

    with _mode(gradwire) if around == "forward" else nullcontext():
        made = gradwire.utils.checkpoint.checkpoint(f, x, use_reentrant=False).sum()
    with _mode(gradwire) if around == "backward" else nullcontext():
        made.backward()
    assert calls == ["begins", "all is saved", "ends", "begins"]
    assert gradwire.allclose(x.grad, x.cos() * x.sin().exp())
