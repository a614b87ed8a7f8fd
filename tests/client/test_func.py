"""torch.func's transforms: values, structures and graphs, compared with PyTorch over a real socket."""

import importlib
import re

import pytest

import gradwire
from tests.client.oracle import alike, plain, refuse, torch

pytestmark = pytest.mark.usefixtures("session")

X = [[0.3, -1.2, 0.7], [2.0, 0.1, -0.4]]


def bare(value):
    """Plain data of a transform's answer: values, dtypes, shapes and whether it has a graph."""
    found = plain(value)

    def strip(item):
        if isinstance(item, dict) and "values" in item:
            return {key: item[key] for key in ("values", "dtype", "shape", "requires_grad")}
        if isinstance(item, dict):
            return {key: strip(each) for key, each in item.items()}
        return [strip(each) for each in item] if isinstance(item, list) else item

    return strip(found)


def same(case):
    """The case answers alike with torch and gradwire, three times."""
    expected = bare(case(torch))
    for _ in range(3):
        found = bare(case(gradwire))
        assert alike(found, expected), f"{found} is not {expected}"


def test_grad_answers_the_gradient_without_a_graph():
    same(lambda t: t.func.grad(lambda x: (x.sin() * x).sum())(t.tensor(X)))


def test_grad_nests_to_any_order():
    def case(t):
        slope = lambda x: x**4 * x.sin()  # noqa: E731
        answers = []
        for _ in range(4):
            slope = t.func.grad(slope)
            answers.append(slope(t.tensor(1.3, dtype=t.float64)))
        return answers

    same(case)


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1, 0), (-1,)])
def test_argnums_choose_the_arguments_and_the_form(argnums):
    same(lambda t: t.func.grad(lambda x, y: (x * y.exp()).sum(), argnums)(t.tensor(X), t.tensor(X[0])))


def test_nested_arguments_and_aux():
    def case(t):
        def loss(params, x):
            y = x @ params["w"] + params["more"][0]
            return (y**2).mean(), {"prediction": y}

        params = {"w": t.tensor([[1.0], [2.0], [3.0]]), "more": [t.tensor(0.5), t.tensor(9.0)]}
        return t.func.grad(loss, has_aux=True)(params, t.tensor(X)), t.func.grad_and_value(loss, has_aux=True)(
            params, t.tensor(X)
        )

    same(case)


def test_value_and_grad_is_grad_and_value_exchanged():
    value, slope = gradwire.func.value_and_grad(lambda x: (x**2).sum())(gradwire.tensor([1.0, 3.0]))
    assert value.item() == 10.0
    assert slope.tolist() == [2.0, 6.0]


def test_a_graph_of_the_callers_own_goes_on():
    def case(t):
        w = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        x = t.tensor(X, requires_grad=True)
        slope = t.func.grad(lambda x: (x * w).pow(3).sum())(x)
        slope.sum().backward()
        closed = t.func.grad(lambda v: (v * w).pow(2).sum())(t.tensor([1.0, 1.0, 2.0]))
        with t.no_grad():
            outside = t.func.grad(lambda v: (v * w).pow(2).sum())(t.tensor([1.0, 1.0, 2.0]))
        return w.grad, x.grad, closed, outside

    same(case)


def test_vjp_takes_many_cotangents_and_nested_outputs():
    def case(t):
        value, product = t.func.vjp(lambda x, y: {"a": x @ y, "b": (x.sum(),)}, t.tensor(X), t.tensor([1.0, 2.0, 3.0]))
        ones = {"a": t.tensor([1.0, -1.0]), "b": (t.tensor(2.0),)}
        return value, product(ones), product({"a": t.tensor([0.0, 2.0]), "b": (t.tensor(0.0),)})

    same(case)


def test_jvp_nests_and_fills_what_does_not_depend():
    def case(t):
        x, v = t.tensor(X[0]), t.tensor([1.0, 0.5, -2.0])

        def first(x):
            return t.func.jvp(lambda x: (x.exp() * x.flip(0), t.ones(2)), (x,), (v,))[1][0]

        return t.func.jvp(lambda x: (x.sin(), x.sum()), (x,), (v,)), t.func.jvp(first, (x,), (v,)), first(x)

    same(case)


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
def test_jacobians_are_nested_by_output_then_input(name):
    def case(t):
        def function(params, y):
            return {"p": params["w"] @ y, "q": (y * y).sum()}

        transform = getattr(t.func, name)
        args = {"w": t.tensor(X), "unused": t.tensor([4.0])}, t.tensor([1.0, 2.0, 0.5])
        return transform(function)(*args), transform(function, (0, 1))(*args)

    same(case)


def test_hessian_and_mixed_orders():
    def case(t):
        def energy(x):
            return (x.sin().outer(x.exp()).sum() + (x**3).prod()).log1p()

        x = t.tensor([0.5, 0.2, 1.1], dtype=t.float64)
        f = t.func
        return f.hessian(energy)(x), f.jacrev(f.jacfwd(energy))(x), f.jacrev(f.jacrev(f.grad(energy)))(x)

    same(case)


def test_physics_residual_takes_each_outputs_derivatives():
    def case(t):
        t.manual_seed(0)
        net = t.nn.Sequential(t.nn.Linear(2, 5), t.nn.Tanh(), t.nn.Linear(5, 2)).double()
        with t.no_grad():
            for at, p in enumerate(net.parameters()):
                p.copy_(t.linspace(-1.0, 1.0, p.numel(), dtype=t.float64).reshape(p.shape) * (at + 1) / 3)
        point = t.tensor([0.3, -0.6], dtype=t.float64)
        first = t.func.jacrev(net)(point)
        second = t.func.jacfwd(t.func.jacrev(net))(point)
        residual = (first[:, 0] - second[:, 1, 1]).pow(2).sum()
        residual.backward()
        return residual.detach(), [p.grad for p in net.parameters()]

    same(case)


def test_functional_call_leaves_the_module_as_it_was():
    def case(t):
        net = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.ReLU())
        before = net[0].weight
        params = {"0.weight": t.tensor(X), "0.bias": t.tensor([0.5, 0.1])}
        loss = lambda p, x: t.func.functional_call(net, p, (x,)).sum()  # noqa: E731
        answer = t.func.grad(loss)(params, t.tensor([1.0, 2.0, -1.0]))
        return answer, net[0].weight is before

    same(case)


def test_tied_weights_are_replaced_together():
    def case(t):
        class Tied(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = t.nn.Linear(1, 1, bias=False)
                self.b = t.nn.Linear(1, 1, bias=False)
                self.b.weight = self.a.weight

            def forward(self, x):
                return self.a(x) + 10 * self.b(x)

        net = Tied()
        with t.no_grad():
            net.a.weight.fill_(7.0)
        w, x = {"a.weight": t.tensor([[2.0]])}, t.tensor([1.0])
        return t.func.functional_call(net, w, x), t.func.functional_call(net, w, x, tie_weights=False).detach()

    same(case)


def test_stacked_states():
    def case(t):
        nets = [t.nn.Linear(2, 1) for _ in range(3)]
        with t.no_grad():
            for at, net in enumerate(nets):
                net.weight.fill_(at)
                net.bias.fill_(-at)
        return t.func.stack_module_state(nets)

    same(case)


@pytest.mark.parametrize(
    ("case", "phrase"),
    [
        (lambda t: t.func.grad(lambda x: x)(t.ones(2)), "scalar Tensor"),
        (lambda t: t.func.grad(lambda x: 3.0)(t.ones(2)), "return.* Tensor"),
        (lambda t: t.func.grad(lambda x: x.sum(), argnums=2)(t.ones(2)), "argnum=2"),
        (lambda t: t.func.grad(lambda x: x.sum(), argnums=())(t.ones(2)), "non-empty"),
        (lambda t: t.func.grad(lambda x: x.sum(), has_aux=True)(t.ones(2)), "has_aux"),
        (lambda t: t.func.grad(lambda x: t.complex(x.sum(), x.sum()))(t.ones(2)), "only for real scalar outputs"),
        (lambda t: t.func.vjp(lambda x: x.argsort(), t.ones(2)), "floating-point or complex"),
        (lambda t: t.func.jacrev(lambda x: x.abs())(t.tensor([1j])), "all inputs to be real"),
        (lambda t: t.func.jacfwd(lambda x, y: y * 2)(t.tensor([1j]), t.ones(1)), "all inputs to be real"),
        (lambda t: t.func.jacrev(lambda x: t.complex(x, x))(t.ones(1)), "all outputs to be real"),
        (lambda t: t.func.hessian(lambda x: x.abs().sum())(t.tensor([1j])), "all inputs to be real"),
        (lambda t: t.func.vjp(lambda x: (x, x), t.ones(2))[1](t.ones(2)), "structure"),
        (lambda t: t.func.jvp(lambda x: x, (t.ones(2),), (t.ones(2), t.ones(2))), "structure"),
        (lambda t: t.func.functional_call(t.nn.Linear(1, 1), {"nope": t.ones(1)}, t.ones(1), strict=True), "nope"),
    ],
)
def test_what_makes_no_sense_is_refused(case, phrase):
    refuse(case, RuntimeError, phrase)


def test_repeats_of_a_transform_wait_for_nothing_new(deferring):
    w = gradwire.tensor([1.0, 2.0])
    step = gradwire.func.grad(lambda w: ((w * w).sin()).sum())
    for _ in range(5):
        w = w - 0.1 * step(w)
    assert alike(w.tolist(), torch_descent())


def torch_descent():
    w = torch.tensor([1.0, 2.0])
    for _ in range(5):
        w = w - 0.1 * torch.func.grad(lambda w: ((w * w).sin()).sum())(w)
    return w.tolist()


def test_autograd_inside_a_transform_is_part_of_it():
    def inner(x):
        y = x.clone()
        (g,) = gradwire.autograd.grad((y**3).sum(), y, create_graph=True)
        return (g * x).sum()

    assert gradwire.func.jacrev(inner)(gradwire.tensor([1.0, 2.0])).tolist() == [9.0, 36.0]


def test_functorchs_functional_modules():
    functorch = pytest.importorskip("functorch")
    ours = importlib.import_module("gradwire.func._functorch")

    def told(t):
        functional = functorch if t is torch else ours
        t.manual_seed(0)
        model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2))
        x = t.tensor(X)
        with pytest.warns(FutureWarning, match="Please use `torch.func.functional_call`"):
            apart, params = functional.make_functional(model[0])
        with pytest.warns(FutureWarning, match="make_functional_with_buffers"):
            whole, others, buffers = functional.make_functional_with_buffers(model, disable_autograd_tracking=True)
        slopes = t.func.grad(lambda params: apart(params, x).square().sum())(params)
        t.func.replace_all_batch_norm_modules_(model)
        with pytest.warns(FutureWarning, match="stack_module_state"):
            several, stacked, _ = functional.combine_state_for_ensemble([model, model])
        answers = t.func.vmap(lambda params: several(params, (), x))(stacked)
        return (
            slopes,
            whole(others, buffers, x),
            len(buffers),
            [each.requires_grad for each in others],
            answers,
            stacked,
        )

    same(told)
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="`model` has buffers"):
        ours.make_functional(gradwire.nn.BatchNorm1d(2))


@pytest.mark.parametrize(
    ("case", "phrase"),
    [
        (
            lambda t, x: t.func.vjp(lambda x: None, x),
            "vjp(f, *primals): Expected f to be a function that has non-empty output",
        ),
        (lambda t, x: t.func.jvp(lambda x: 1.0, (x,), (x,)), "jvp(f, primals, tangents): expected f("),
        (lambda t, x: t.func.jvp(t.sin, (x,), x), "same python structure"),
        (
            lambda t, x: t.func.jvp(t.sin, (1,), (1,)),
            "jvp(f, primals, tangents): Expected primals to only contain Tensors",
        ),
        (lambda t, x: t.func.jvp(t.sin, (x,), (x,), has_aux=True), "jvp(f, primals, tangents): output of function f"),
        (
            lambda t, x: t.func.grad(lambda x: x.sum(), has_aux=True)(x),
            "grad_and_value(f)(*args): output of function f",
        ),
        (lambda t, x: t.func.grad(t.sin)(x), "grad_and_value(f)(*args): Expected f(*args) to return a scalar"),
    ],
    ids=range(7),
)
def test_refusals_name_the_call_as_pytorch_does(case, phrase):
    refuse(lambda t: case(t, t.tensor(X)), RuntimeError, re.escape(phrase))


def test_a_gradient_that_a_function_leaves_out_is_zero():
    def told(t):
        class First(t.autograd.Function):
            @staticmethod
            def forward(x, y):
                return x * y

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.y = inputs[1].detach()

            @staticmethod
            def backward(ctx, g):
                return g * ctx.y, None

        x, y = t.tensor(2.0), t.tensor(3.0)
        return t.func.grad(First.apply, (0, 1))(x, y), t.func.grad(First.apply, 1)(x, y)

    same(told)
