"""What a function under a transform may not do, and how tensors print there: as with PyTorch, over a real socket."""

import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch

pytestmark = pytest.mark.usefixtures("session")


def refusal(case, t):
    with pytest.raises(RuntimeError) as caught:
        case(t)
    return str(caught.value).split("(aten")[0]


def vector(t):
    return t.tensor([1.0, 2.0, 3.0])


def squares(t, forward=None, **rules):
    """A custom function in one step, which transforms refuse."""

    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Square


def two_steps(t):
    """A custom function in two steps, without a rule for vmap."""

    class Square(t.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    return Square


def hooks(t):
    return t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)


def change_captured(t, transform):
    held = t.zeros(3)
    transform(t, lambda x: (held.copy_(x), x.sum())[1])


def with_hooks_around(t, transform):
    with hooks(t):
        transform(t, lambda x: x.sum())


def with_hooks_inside(t, transform):
    def function(x):
        with hooks(t):
            return x.sin().sum()

    transform(t, function)


TRANSFORMS = {
    "grad": lambda t, f: t.func.grad(f)(vector(t)),
    "vjp": lambda t, f: t.func.vjp(f, vector(t)),
    "jacrev": lambda t, f: t.func.jacrev(f)(vector(t)),
    "hessian": lambda t, f: t.func.hessian(f)(vector(t)),
    "vmap": lambda t, f: t.func.vmap(f)(vector(t)),
    "jvp": lambda t, f: t.func.jvp(f, (vector(t),), (vector(t),)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    "call",
    [
        lambda t, transform: transform(t, lambda x: x.requires_grad_().sum()),
        lambda t, transform: transform(t, lambda x: t.autograd.functional.vjp(lambda y: y.sin().sum(), x)[0]),
        lambda t, transform: transform(t, lambda x: squares(t).apply(x).sum()),
    ],
    ids=["requires_grad_", "functional", "one step"],
)
def test_transforms_refuse(name, call):
    ours, theirs = (refusal(lambda t: call(t, TRANSFORMS[name]), t) for t in (gradwire, torch))
    assert ours == theirs


@pytest.mark.parametrize("name", ["grad", "vjp", "jacrev", "jvp"])
def test_derivatives_refuse_changes_of_captured_tensors(name):
    ours, theirs = (refusal(lambda t: change_captured(t, TRANSFORMS[name]), t) for t in (gradwire, torch))
    assert ours == theirs


@pytest.mark.parametrize("name", ["grad", "vjp", "jacrev", "hessian"])
@pytest.mark.parametrize("call", [with_hooks_around, with_hooks_inside])
def test_transforms_refuse_hooks_of_saved_tensors(name, call):
    ours, theirs = (refusal(lambda t: call(t, TRANSFORMS[name]), t) for t in (gradwire, torch))
    assert ours == theirs


def test_vmap_refuses_a_function_without_a_rule():
    ours, theirs = (refusal(lambda t: t.func.vmap(two_steps(t).apply)(vector(t)), t) for t in (gradwire, torch))
    assert ours == theirs


@pytest.mark.parametrize("aux", [3, [None], {"a": "text"}])
def test_an_aux_of_no_tensor_is_refused(aux):
    def case(t):
        t.func.grad(lambda x: (x.sum(), aux), has_aux=True)(vector(t))

    assert refusal(case, gradwire) == refusal(case, torch)


def test_tensors_of_a_function_and_its_arguments_may_be_changed():
    def case(t):
        def function(x, y):
            made = t.zeros(3)
            made += x
            y.mul_(2)
            made[0] = 5
            return (made * y).sum()

        given = t.ones(3)
        return t.func.grad(function)(vector(t), given).tolist(), given.tolist()

    assert case(gradwire) == case(torch)


def test_printed_tensors_name_their_transforms():
    def case(t):
        shown = []

        def function(x):
            shown.extend([repr(x), repr(x * 2), repr(held)])
            return x.sin().sum()

        held = t.ones(2)
        x = t.tensor([[0.5, 1.5], [2.5, 3.5]])
        t.func.grad(function)(x)
        t.func.vmap(function)(x)
        t.func.vmap(t.func.grad(function))(x)
        t.func.grad(t.func.grad(function))(t.tensor(0.5))
        return shown

    assert case(gradwire) == case(torch)


@pytest.mark.parametrize(
    ("in_dim", "size", "stride", "offset"),
    [
        (0, (2, 2), (1, 2), None),
        (0, (3,), (2,), 1),
        (1, (2, 3), (6, 0), None),
        (0, (), (), 4),
        (0, (0, 3), (9, 9), None),
        (1, (4,), (0,), 3),
    ],
)
def test_as_strided_is_relative_to_the_sample(in_dim, size, stride, offset):
    def told(t):
        x = (t.arange(12, dtype=t.float64) * 0.7).reshape(2, 6).requires_grad_()
        y = t.func.vmap(lambda row: row.as_strided(size, stride, offset), in_dims=in_dim)(x)
        return y.detach(), t.autograd.grad((y**2).sum(), x)

    agree(told)


@pytest.mark.parametrize(("size", "stride", "offset"), [((4,), (2,), None), ((2,), (1,), 5), ((6,), (1,), 1)])
def test_as_strided_refuses_elements_of_other_samples(size, stride, offset):
    def told(t):
        return t.func.vmap(lambda row: row.as_strided(size, stride, offset))(t.arange(12.0).reshape(2, 6))

    refuse(told, RuntimeError, "can access memory outside of `tensor`")


def test_as_strided_of_a_tangent_that_is_laid_out_differently():
    def told(t):
        x, unit = (t.arange(6, dtype=t.float64) - 2.5) * 0.7, t.eye(6, dtype=t.float64)

        def f(row):
            return row.as_strided((2,), (3,), 1) ** 2

        tangents = unit[1], unit[:, 4], unit[0].expand(6)
        return [t.func.jvp(f, (x,), (each,)) for each in tangents], t.func.jacrev(f)(x)

    agree(told)


def test_as_strided_refuses_one_value_with_tangents_of_many_samples():
    x = gradwire.arange(12.0)[::2]
    with pytest.raises(NotImplementedError, match="clone it first"):
        gradwire.func.jacfwd(lambda row: row.as_strided((2,), (3,), 1))(x)
