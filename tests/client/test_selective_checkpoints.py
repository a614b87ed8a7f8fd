"""Selective checkpoints: what the policy is asked, what is computed again, and the same gradients as PyTorch's."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import pytest

import gradwire
from gradwire.utils import _aten_overloads
from tests.client.oracle import agree, refuse

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("session")


def _ran(
    t: Any, f: Callable[..., Any], *args: Any, keep: Any = (), log: list[Any] | None = None, **options: Any
) -> Any:
    """The result of a checkpoint that keeps the results of ops whose names begin like one of `keep`."""
    module = import_module(f"{t.__name__}.utils.checkpoint")
    policies = module.CheckpointPolicy

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(op).removeprefix("aten.")
        if log is not None and "lift_fresh" not in name:
            log.append((name, context.is_recompute, context.op_output is None))
        return policies.MUST_SAVE if name.startswith(tuple(keep)) else policies.PREFER_RECOMPUTE

    contexts = partial(module.create_selective_checkpoint_contexts, policy, **options)
    return module.checkpoint(f, *args, use_reentrant=False, context_fn=contexts)


def _leaf(t: Any, *shape: int) -> Any:
    count = int(torch.Size(shape).numel())
    return (t.arange(count, dtype=t.float64).reshape(shape) * 0.37 % 1 - 0.4).requires_grad_()


def _in_place(x: Any) -> Any:
    h = x.exp() * 2
    h.mul_(x)
    h[0] = h[1] * 2
    return h.tanh()


CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "an argument is saved": (lambda t, x: x.sin().cos().exp(), ("sin",)),
    "all are kept": (lambda t, x: x.sin().cos().exp(), ("sin", "cos", "exp")),
    "none is kept": (lambda t, x: x.sin().cos().exp(), ()),
    "products": (lambda t, x: ((x @ x).relu() @ x).softmax(-1) * x.sum(-1, keepdim=True), ("mm",)),
    "a linear layer": (lambda t, x: t.nn.functional.linear(x, x.exp(), x[0]).tanh(), ("addmm", "tanh")),
    "several results": (lambda t, x: t.var_mean(x, dim=0)[0] * t.var_mean(x, dim=1)[1], ("var_mean",)),
    "named results": (lambda t, x: x.max(0).values * x.exp().sort(0).values, ("max", "sort")),
    "inner values": (lambda t, x: t.nn.functional.layer_norm(x.exp(), (3,)) ** 2, ("native_layer_norm",)),
    "in place": (lambda t, x: _in_place(x), ("tanh",)),
    "views are not kept": (lambda t, x: x.view(-1)[:2] * x[0, 0] * x[:, None].sum(), ("select", "slice", "view")),
    "without gradient": (lambda t, x: x * (x > 0).to(t.float64) + (x.detach() * 2).sum(), ("gt", "_to_copy", "mul")),
    "lists": (lambda t, x: t.cat([x.sin(), x.cos()]).exp().sum().exp(), ("cat", "sin", "sum")),
    "a loss": (lambda t, x: t.nn.functional.cross_entropy(x.exp(), t.tensor([0, 1, 2])), ("exp", "nll_loss_forward")),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_what_the_policy_is_asked(name: str) -> None:
    function, keep = CASES[name]

    def told(t: Any) -> Any:
        x, calls, log = _leaf(t, 3, 3), [], []

        def f(x: Any) -> Any:
            calls.append("begins")
            made = function(t, x)
            calls.append("ends")
            return made

        y = _ran(t, f, x, keep=keep, log=log)
        (slope,) = t.autograd.grad((y * y).sum(), x)
        (plain,) = t.autograd.grad((function(t, x) ** 2).sum(), x)
        assert t.allclose(slope, plain)
        asked = [each for each in log if each[0] != "clone.default"]  # PyTorch copies what it changes in place
        return slope, calls, asked, y.detach()

    agree(told)


def test_what_is_kept_is_not_computed_again() -> None:
    """The number of ops that the server computes in backward, by the profiler."""

    def computed(keep: tuple[str, ...]) -> list[str]:
        x = _leaf(gradwire, 3, 3)
        y = _ran(gradwire, lambda x: (x @ x).cos().exp(), x, keep=keep).sum()
        with gradwire.profiler.profile() as recorded:
            y.backward()
        return [each.name for each in recorded.events() if each.name in ("aten::matmul", "aten::cos")]

    assert computed(()) == ["aten::matmul", "aten::cos"]
    assert computed(("mm",)) == ["aten::cos"]


def _outer(t: Any, kinds: tuple[Any, Any]) -> Any:
    x = _leaf(t, 3)

    def inner(y: Any) -> Any:
        return y.tanh() * y.exp()

    def plain(f: Any, x: Any) -> Any:
        return import_module(f"{t.__name__}.utils.checkpoint").checkpoint(f, x, use_reentrant=False)

    calls = [plain if keep is None else partial(_ran, t, keep=keep) for keep in kinds]
    y = calls[0](lambda x: calls[1](inner, x.sin()).cos() * x, x)
    return t.autograd.grad(y.sum(), x)


@pytest.mark.parametrize("kinds", [(("sin",), ("tanh",)), (("sin", "tanh"), None), (None, ("sin", "tanh"))])
def test_one_in_another(kinds: tuple[Any, Any]) -> None:
    agree(lambda t: _outer(t, kinds))


def test_a_kept_result_that_was_changed_in_place() -> None:
    def told(t: Any, **options: Any) -> Any:
        x = _leaf(t, 3)
        _ran(t, lambda x: x.sin().mul_(2).cos().exp(), x, keep=("sin",), **options).sum().backward()
        return x.grad

    refuse(told, RuntimeError, "Tensor cached during selective activation checkpoint has been mutated")
    agree(lambda t: told(t, allow_cache_entry_mutation=True))


def test_backward_passes_a_region_with_kept_results_once() -> None:
    def told(t: Any, *keep: str) -> Any:
        x = _leaf(t, 3)
        y = _ran(t, lambda x: x.sin().cos().exp(), x, keep=keep).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    refuse(lambda t: told(t, "sin"), RuntimeError, "Trying to backward an extra time")
    agree(told)


def test_a_part_of_the_results_at_a_time() -> None:
    def told(t: Any) -> Any:
        x = _leaf(t, 3)
        a, b = _ran(t, lambda x: (x.sin().cos(), x.exp().tanh()), x)
        a.sum().backward()
        b.sum().backward()
        return x.grad

    agree(told)


def test_a_derivative_inside_of_the_function() -> None:
    def told(t: Any) -> Any:
        x = _leaf(t, 3)

        def f(x: Any) -> Any:
            y = x.sin()
            return t.autograd.grad(y.cos().sum(), x, create_graph=True)[0] * y

        return t.autograd.grad(_ran(t, f, x).sum(), x)

    agree(told)


@pytest.mark.parametrize(
    ("first", "phrase"),
    [(lambda x: x.sin(), "Trying to backward an extra time"), (lambda x: x + 1, "return MUST_RECOMPUTE for the op")],
)
def test_a_derivative_through_a_kept_result_is_refused(first: Any, phrase: str) -> None:
    x = _leaf(gradwire, 3)

    def f(x: Any) -> Any:
        y = first(x)
        return (gradwire.autograd.grad((y * 2).sum(), x, create_graph=True)[0] * x).exp()

    with pytest.raises(RuntimeError, match=phrase):
        _ran(gradwire, f, x, keep=("sin", "add")).sum().backward()


def test_random_numbers_are_the_same_again() -> None:
    def told(t: Any) -> Any:
        t.manual_seed(5)
        x = _leaf(t, 40)
        dropout = t.nn.functional.dropout
        y = _ran(t, lambda x: dropout(x, 0.5).exp() * dropout(x.sin(), 0.5), x, keep=("exp", "native_dropout"))
        return y.detach(), t.autograd.grad(y.sum(), x), t.rand(3)

    agree(told)


def test_custom_ops_and_functions() -> None:
    calls: list[str] = []

    def told(t: Any) -> Any:
        name, ops = f"{t.__name__}_kept::sin_and_two", getattr(t.ops, f"{t.__name__}_kept")

        def sin_and_two(x: t.Tensor) -> tuple[t.Tensor, int]:
            calls.append(t.__name__)
            return x.sin(), 2

        library = t.library
        if not hasattr(told, t.__name__):
            op = library.custom_op(name, sin_and_two, mutates_args=())
            library.register_autograd(
                name,
                lambda ctx, grad, _: grad * ctx.saved_tensors[0].cos(),
                setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
            )
            setattr(told, t.__name__, op)
        x, before = _leaf(t, 3), calls.count(t.__name__)
        module = import_module(f"{t.__name__}.utils.checkpoint")
        kept = ops.sin_and_two.default

        def f(x: Any) -> Any:
            return (ops.sin_and_two(x)[0] * x.sin().exp()).sin()

        slopes = []
        for policy in ([kept], lambda context, op, *args, **kwargs: op is kept):
            contexts = partial(module.create_selective_checkpoint_contexts, policy)
            y = module.checkpoint(f, x, use_reentrant=False, context_fn=contexts)
            slopes.append(t.autograd.grad(y.sum(), x))
        return slopes, calls.count(t.__name__) - before

    agree(told)


def test_early_stop() -> None:
    def told(t: Any, stops: bool | None) -> Any:
        x, calls = _leaf(t, 3), []

        def f(x: Any) -> Any:
            y = x.sin().exp()
            calls.append("saved")
            z = y.clone()
            calls.append("all")
            return z

        module = import_module(f"{t.__name__}.utils.checkpoint")
        if stops is None:
            y = _ran(t, f, x)
        else:
            with module.set_checkpoint_early_stop(stops):
                y = _ran(t, f, x)
        return calls, t.autograd.grad(y.sum(), x)

    for stops in (None, True, False):
        agree(partial(told, stops=stops))


def test_another_function_the_second_time() -> None:
    def told(t: Any, first: Any, second: Any, **options: Any) -> Any:
        x, calls = _leaf(t, 3), []

        def f(x: Any) -> Any:
            calls.append(1)
            return (first if len(calls) == 1 else second)(x)

        _ran(t, f, x, **options).sum().backward()

    other = partial(told, first=lambda x: x.sin().exp(), second=lambda x: x.exp().exp())
    refuse(other, RuntimeError, "encountered during backward but not found in storage")
    fewer = partial(told, first=lambda x: x.exp().exp(), second=lambda x: x.exp())
    refuse(fewer, RuntimeError, "A different number of tensors was saved")
    unlike = partial(told, first=lambda x: x.view(3).exp(), second=lambda x: x.view(3, 1).exp())
    refuse(unlike, RuntimeError, "have different metadata")


def test_an_argument_that_was_changed_in_place_is_refused() -> None:
    x = _leaf(gradwire, 3)
    h = x * 2
    y = _ran(gradwire, lambda h: h.sin().cos(), h)
    with gradwire.no_grad():
        h.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_is_kept_goes_with_the_graph(session: gradwire.Session) -> None:
    def held() -> int:
        for _ in range(3):
            gc.collect()
            session.sync()
        return session.describe().bytes

    x = gradwire.ones(50_000, requires_grad=True)
    before = held()
    plain = _ran(gradwire, lambda x: x.cos().exp().sin().sum(), x)
    assert held() - before < 6000  # the random generator's state
    del plain
    y = _ran(gradwire, lambda x: x.cos().exp().sin().sum(), x, keep=("exp",))
    assert 200_000 <= held() - before < 206_000
    del y
    assert held() == before


def test_contexts_that_the_checkpoint_does_not_get() -> None:
    checkpoint = gradwire.utils.checkpoint
    first, again = checkpoint.create_selective_checkpoint_contexts([gradwire.ops.aten.sin.default])
    with pytest.warns(UserWarning, match="the policy is not called"), first, again:
        pass
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint.checkpoint(lambda x: x, gradwire.ones(1), use_reentrant=True, context_fn=lambda: (first, again))


def test_the_last_that_computes_is_kept() -> None:
    assert _aten_overloads.to_keep(["view.default", "mm.default", "_unsafe_view.default"]) == "mm.default"
    assert _aten_overloads.to_keep(["view.default"]) is None
    assert _aten_overloads.draws("dropout", ())
    assert not _aten_overloads.draws("exp", ())


def _modes(t: Any) -> Any:
    return import_module(f"{t.__name__}.utils._python_dispatch")


def test_a_region_is_a_mode_with_what_it_keeps() -> None:
    def told(t: Any) -> Any:
        module, modes = import_module(f"{t.__name__}.utils.checkpoint"), _modes(t)
        kinds = {module._CachingTorchDispatchMode: "caching", module._CachedTorchDispatchMode: "cached"}
        seen: list[Any] = []

        def look() -> None:
            stack = modes._get_current_dispatch_mode_stack()
            seen.append([kinds.get(type(each), "another") for each in stack])
            seen.append(modes.is_in_torch_dispatch_mode())
            mode = next(each for each in reversed(stack) if type(each) in kinds)
            for op, entries in mode.storage.items():
                kept = [(number, each.val.detach()) for number, each in entries.items() if hasattr(each, "val")]
                seen.extend([str(op), kept] if kept else [])

        def f(x: Any) -> Any:
            look()
            y = x.cos().exp()
            look()
            with modes.BaseTorchDispatchMode():
                look()
            return y.exp().sin()

        def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            kept = str(op) == "aten.exp.default"
            return module.CheckpointPolicy.MUST_SAVE if kept else module.CheckpointPolicy.PREFER_RECOMPUTE

        x = t.tensor([0.2, -0.7, 1.1], requires_grad=True)
        contexts = partial(module.create_selective_checkpoint_contexts, policy)
        before = modes._get_current_dispatch_mode()
        with modes.BaseTorchDispatchMode():
            y = module.checkpoint(f, x, use_reentrant=False, context_fn=contexts)
        first = list(seen)
        seen.clear()
        y.sum().backward()
        return before, first, seen[:2], x.grad, modes._get_current_dispatch_mode()

    agree(told)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("freed", ["with the graph", "in backward"])
def test_what_is_kept_is_freed(freed: str, changed: bool) -> None:
    def told(t: Any) -> Any:
        module, modes = import_module(f"{t.__name__}.utils.checkpoint"), _modes(t)
        kept: list[Any] = []

        def f(x: Any) -> Any:
            y = x.cos().exp()
            mode = modes._get_current_dispatch_mode()
            if type(mode) is module._CachingTorchDispatchMode:
                value = mode.storage[t.ops.aten.exp.default][0].val
                kept.append(weakref.ref(value))
                kept.append(value.requires_grad)
            if changed:
                z = y * 2
                z[1:].mul_(x[1:].exp())
                y = z
            return y.sin()

        x = t.tensor([0.2, -0.7, 1.1], requires_grad=True)
        contexts = partial(module.create_selective_checkpoint_contexts, [t.ops.aten.exp.default])
        gc.collect()
        gc.disable()
        try:
            y = module.checkpoint(f, x, use_reentrant=False, context_fn=contexts)
            seen = [kept[1], kept[0]() is None]
            if freed == "in backward":
                y.sum().backward(retain_graph=True)
                seen.append(x.grad)
            else:
                del y
            return [*seen, kept[0]() is None]
        finally:
            gc.enable()

    agree(told)


def test_only_a_part_of_the_graph_is_left() -> None:
    """A view or an edge holds what was packed, when the region's own result is gone."""

    def told(t: Any) -> Any:
        module = import_module(f"{t.__name__}.utils.checkpoint")

        def f(x: Any) -> Any:
            return x.cos().exp().tanh().sin()

        x = t.tensor([0.2, -0.7, 1.1], requires_grad=True)
        base = x.exp()
        contexts = partial(
            module.create_selective_checkpoint_contexts, lambda *args: module.CheckpointPolicy.PREFER_RECOMPUTE
        )
        y = module.checkpoint(f, base, use_reentrant=False, context_fn=contexts)
        edge = t.autograd.graph.get_gradient_edge(y)
        held = y[1:]
        del y
        (slope,) = t.autograd.grad(held.sum(), x, retain_graph=True)
        del held
        return slope, t.autograd.grad(edge, x, t.ones(3))

    agree(told)
