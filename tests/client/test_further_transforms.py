"""Transforms beside PyTorch's: covariances and in-place views under vmap, vjp without recording, ensembles.

Over a real socket.
"""

import pytest

import gradwire
from gradwire.func import _functorch, _make_functional
from tests.client.oracle import agree, torch

pytestmark = pytest.mark.usefixtures("session")


def rows(t, *shape):
    count = 1
    for each in shape:
        count *= each
    return t.arange(float(count)).reshape(shape).sin()


@pytest.mark.parametrize("shape", [(3, 2, 5), (3, 4), (2, 3, 1)])
@pytest.mark.parametrize("correction", [0, 1])
def test_vmap_takes_covariances_of_each_sample(shape, correction):
    agree(lambda t: t.vmap(lambda x: t.cov(x, correction=correction).nan_to_num(7.0))(rows(t, *shape)))


def test_the_tangent_of_covariances_is_mapped():
    def case(t):
        x, v = rows(t, 4, 2), rows(t, 2)

        def both(_, each):
            return t.func.jvp(t.cov, (each,), (v,))

        return t.vmap(t.vmap(both, (0, None)))(t.ones(4, 1), x)

    agree(case)


def test_covariances_with_weights_are_refused_under_vmap():
    weights = gradwire.tensor([1, 2])
    with pytest.raises(RuntimeError, match="no batching rule for cov with weights"):
        gradwire.vmap(lambda x: gradwire.cov(x, fweights=weights))(gradwire.ones(3, 2, 2))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.squeeze_(0),
        lambda x: x.unsqueeze_(-1),
        lambda x: x.transpose_(0, 1),
        lambda x: x.t_(),
        lambda x: x.swapaxes_(0, -1),
    ],
)
def test_in_place_views_of_a_sample(change):
    def case(t):
        def loss(weight, x):
            y = x.mm(weight)
            z = change(y)
            return (z.cos() * y.sin()).sum()

        weight, x = rows(t, 3, 2), rows(t, 4, 1, 3)
        return t.vmap(t.func.grad(loss), (None, 0))(weight, x), t.vmap(lambda y: change(y * 1))(x)

    agree(case)


def test_a_product_of_a_vjp_made_without_recording_is_recorded():
    def case(t):
        x = t.tensor(3.0, requires_grad=True)
        with t.no_grad():
            value, product = t.func.vjp(lambda y: y**2, x)
        (slope,) = product(t.tensor(1.0))
        (second,) = t.autograd.grad(slope, x)
        return value.requires_grad, slope.requires_grad, slope.item(), second

    agree(case)


def test_models_are_made_with_their_functions():
    class Model(gradwire.nn.Module):
        def __init__(self, width, norm=False):
            super().__init__()
            self.first = gradwire.nn.Linear(2, width)
            self.norm = gradwire.nn.BatchNorm1d(width) if norm else None

        def forward(self, x):
            made = self.first(x)
            return made if self.norm is None else self.norm(made)

    weights, function, names = _make_functional.functional_init(Model, (4,))(3)
    x = rows(gradwire, 4, 5, 2)
    made = gradwire.vmap(function)(weights, (x,))
    assert names == ["first.weight", "first.bias"]
    for place in range(4):
        alone = gradwire.nn.functional.linear(x[place], weights[0][place], weights[1][place])
        assert gradwire.allclose(made[place], alone, atol=1e-6)
    weights, buffers, function, _, held = _make_functional.functional_init_with_buffers(Model, [4])(3, norm=True)
    assert gradwire.vmap(function)(weights, buffers, (x,)).shape == (4, 5, 3)
    assert held == ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    weights, function, _ = _make_functional.functional_init(Model)(3)
    assert function(weights, (x[0],)).shape == (5, 3)
    with pytest.raises(ValueError, match="more than 1 element"):
        _make_functional.functional_init(Model, (2, 2))
    with pytest.raises(ValueError, match="should be > 0"):
        _make_functional.functional_init(Model, (0,))


def test_make_fx_traces_by_the_old_name():
    assert "aten.sin.default(x_1)" in _functorch.make_fx(lambda x: x.sin())(gradwire.ones(2)).code


def test_the_old_vmap_maps_custom_functions_that_have_no_rule():
    def case(t):
        class Double(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        mapped = t._vmap_internals._vmap(Double.apply, 0, 0)(rows(t, 3, 2))
        with pytest.raises(RuntimeError, match="We do not yet support calling random operations inside of vmap"):
            t._vmap_internals._vmap(lambda x: x + t.rand_like(x), 0, 0)(rows(t, 3, 2))
        with pytest.raises(RuntimeError, match="setup_context"):
            t.vmap(Double.apply)(rows(t, 3, 2))
        return mapped

    agree(case)


class _Counted:
    """How often a function's jvp is called by gradcheck."""

    def __init__(self, t):
        counted = self
        self.calls = 0

        class Function(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x.clone(), y.clone()

            @staticmethod
            def jvp(ctx, one, other):
                counted.calls += 1
                return one, other

        self.apply = Function.apply


@pytest.mark.parametrize("undefined", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_gradcheck_calls_forward_mode_as_often_as_pytorch(undefined, batched, second):
    def case(t):
        counted = _Counted(t)
        x = t.rand(1, dtype=t.float64, requires_grad=True)
        y = t.rand(1, dtype=t.float64, requires_grad=second)
        t.autograd.gradcheck(
            counted.apply,
            (x, y),
            check_forward_ad=True,
            check_undefined_grad=undefined,
            check_backward_ad=False,
            check_batched_forward_grad=batched,
        )
        return counted.calls

    agree(case)


def test_gradcheck_tells_that_vmap_of_forward_mode_fails():
    for t in (torch, gradwire):

        class Noisy(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def vjp(ctx, g):
                return g * 2

            @staticmethod
            def jvp(ctx, tangent, t=t):
                t.randn_like(tangent)
                return tangent * 2

        x = t.rand(2, dtype=t.float64, requires_grad=True)
        for fails in (False, True):
            options = {"check_forward_ad": True, "check_batched_forward_grad": fails}
            if not fails:
                assert t.autograd.gradcheck(Noisy.apply, (x,), **options)
                continue
            with pytest.raises(RuntimeError, match="We do not yet support calling random operations inside of vmap"):
                t.autograd.gradcheck(Noisy.apply, (x,), **options)


def test_a_reentrant_checkpoint_refuses_gradients_by_inputs():
    from tests.client.oracle import refuse

    def by_grad(t):
        x = t.ones(2, requires_grad=True)
        out = t.utils.checkpoint.checkpoint(t.exp, x, use_reentrant=True).sum()
        t.autograd.grad(out, x)

    def by_inputs(t):
        x = t.ones(2, requires_grad=True)
        out = t.utils.checkpoint.checkpoint(t.exp, x, use_reentrant=True).sum()
        out.backward(inputs=[x])

    def after(t):
        x = t.ones(2, requires_grad=True)
        out = t.utils.checkpoint.checkpoint(t.exp, x, use_reentrant=True).sum()
        with pytest.raises(RuntimeError, match="incompatible with"):
            t.autograd.grad(out, x, retain_graph=True)
        t.utils.checkpoint.checkpoint(t.exp, x, use_reentrant=True).sum().backward()
        return x.grad

    for case in (by_grad, by_inputs):
        refuse(case, RuntimeError, "torch.utils.checkpoint is incompatible with .grad")
    agree(after)


def test_a_reentrant_checkpoint_in_which_nothing_requires_a_gradient():
    from tests.client.oracle import refuse

    def made(t):
        x = t.ones(2, requires_grad=True)
        return x, t.utils.checkpoint.checkpoint(lambda y: y.detach() * 3, x, use_reentrant=True)

    def backward(t):
        x, out = made(t)
        out += x
        out.sum().backward()

    agree(lambda t: (made(t)[1].tolist(), made(t)[1].requires_grad))
    refuse(backward, RuntimeError, r"none of output has requires_grad=True, this checkpoint\(\) is not necessary")


def test_volatile_warns():
    for t in (torch, gradwire):
        with pytest.warns(UserWarning, match="volatile was removed"):
            assert t.ones(1).volatile is False
