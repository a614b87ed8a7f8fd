"""Forward mode, as PyTorch has it: dual levels, in-place ops and views, modes, custom functions, transforms."""

import threading
from typing import Any

import pytest

import gradwire
from tests.client.oracle import agree, alike, plain, refuse, torch

pytestmark = pytest.mark.usefixtures("session")

X = [[0.3, -1.2, 0.7], [2.0, 0.1, -0.4]]
V = [[1.0, 0.5, -2.0], [0.0, 3.0, 1.0]]


def values(found):
    """Values, dtypes and shapes of tensors, without their place in a graph."""
    found = plain(found)

    def strip(item):
        if isinstance(item, dict) and "values" in item:
            return {key: item[key] for key in ("values", "dtype", "shape", "requires_grad")}
        if isinstance(item, dict):
            return {key: strip(each) for key, each in item.items()}
        return [strip(each) for each in item] if isinstance(item, list) else item

    return strip(found)


def same(case):
    """The case answers alike with torch and gradwire, three times."""
    expected = values(case(torch))
    for _ in range(3):
        found = values(case(gradwire))
        assert alike(found, expected), f"{found} is not {expected}"


def tangent_of(function):
    """A case: the parts of the function's result for a dual tensor."""

    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            found = function(t, ad.make_dual(t.tensor(X), t.tensor(V)))
            return [tuple(ad.unpack_dual(each)) for each in (found if isinstance(found, tuple) else (found,))]

    return case


# Levels.


def test_dual_tensors_have_a_primal_and_a_tangent():
    same(tangent_of(lambda t, x: (x, (x * x).sin(), x.sum(0), x > 0, x.argmax(), x.long(), t.ones(2))))


def test_unpacking_names_the_parts():
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            found = ad.unpack_dual(ad.make_dual(t.tensor(X), t.tensor(V)) * 2)
            nothing = ad.unpack_dual(found.primal)
            return type(found).__name__, found.primal, found.tangent, nothing.tangent

    same(case)


def test_a_dual_shows_its_tangent():
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            dual = ad.make_dual(t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0]))
            return repr(dual), repr(dual * 2), repr(dual > 1)

    same(case)


def test_tangents_end_with_their_level():
    def case(t):
        ad = t.autograd.forward_ad
        found = []
        for _ in range(3):
            level = ad.enter_dual_level()
            x = ad.make_dual(t.tensor(X), t.tensor(V))
            y = x * 2
            found.append((level, ad.unpack_dual(y).tangent))
            ad.exit_dual_level()
            found.append((ad.unpack_dual(y).tangent, ad.unpack_dual(x * 3).tangent, repr(y)))
            with ad.dual_level():
                found.append(ad.unpack_dual(y * x).tangent)
        return found

    same(case)


def test_what_is_refused():
    def inside(use):
        def case(t):
            ad = t.autograd.forward_ad
            with ad.dual_level():
                return use(t, ad)

        return case

    x = lambda t: t.tensor(X)  # noqa: E731
    refuse(lambda t: t.autograd.forward_ad.make_dual(x(t), x(t)), RuntimeError, "no level exists")
    refuse(lambda t: t.autograd.forward_ad.exit_dual_level(), RuntimeError, "Dual level must be a positive number")
    refuse(inside(lambda t, ad: ad.enter_dual_level()), RuntimeError, "Nested forward mode AD is not supported")
    refuse(inside(lambda t, ad: ad.exit_dual_level(level=3)), RuntimeError, "not the last one that was created")
    refuse(inside(lambda t, ad: t.func.jvp(t.sin, (x(t),), (x(t),))), RuntimeError, "Nested forward mode AD")
    refuse(inside(lambda t, ad: ad.make_dual(x(t).long(), x(t))), ValueError, "Expected primal to be floating point")
    refuse(inside(lambda t, ad: ad.make_dual(x(t), x(t).long())), ValueError, "Expected tangent to be floating point")
    refuse(inside(lambda t, ad: ad.make_dual(x(t), t.ones(4))), RuntimeError, "different size than that of the orig")
    refuse(
        inside(lambda t, ad: ad.make_dual(ad.make_dual(x(t), x(t)), x(t))),
        RuntimeError,
        "already has a forward gradient at the same level",
    )
    refuse(
        inside(lambda t, ad: ad.make_dual(x(t), ad.make_dual(x(t), x(t)))),
        RuntimeError,
        "that itself has a forward gradient",
    )


def test_a_level_is_closed_after_an_error():
    ad = gradwire.autograd.forward_ad
    made = []

    def fail():
        with ad.dual_level():
            made.append(ad.make_dual(gradwire.tensor(X), gradwire.tensor(V)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    x = made[0]
    assert ad.unpack_dual(x * 2).tangent is None
    with ad.dual_level():
        assert ad.unpack_dual(ad.make_dual(x, gradwire.tensor(V))).tangent is not None


def test_threads_have_separate_levels():
    """A level that closes in one thread leaves the tangents of another."""
    ad, found = gradwire.autograd.forward_ad, {}
    opened, closed = threading.Event(), threading.Event()

    def slow():
        with ad.dual_level():
            x = ad.make_dual(gradwire.tensor(X), gradwire.tensor(V))
            opened.set()
            assert closed.wait(60)
            found["slow"] = ad.unpack_dual(x * 2).tangent

    thread = threading.Thread(target=slow)
    thread.start()
    assert opened.wait(60)
    with ad.dual_level():
        found["quick"] = ad.unpack_dual(ad.make_dual(gradwire.tensor(X), gradwire.tensor(V)) * 3).tangent
    closed.set()
    thread.join()
    assert gradwire.equal(found["slow"], gradwire.tensor(V) * 2)
    assert gradwire.equal(found["quick"], gradwire.tensor(V) * 3)


# Modes, copies and outputs.


def test_grad_modes_and_detach():
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.tensor(X), t.tensor(V))
            with t.no_grad():
                found = [ad.unpack_dual(x * 2).tangent]
            with t.inference_mode():
                found.append(ad.unpack_dual(x * 2).tangent)
                found.append(ad.unpack_dual(ad.make_dual(t.ones(2), t.ones(2))).tangent)
            return [
                *found,
                *(ad.unpack_dual(each).tangent for each in (x.detach(), x.data, x.clone(), t.zeros_like(x))),
            ]

    same(case)


def test_complex_tensors():
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.tensor([1 + 2j, -0.5j]), t.tensor([0.5 - 1j, 2j]))
            made = (x * x, x.abs(), x.conj() * 3, x.real, x.exp() / (x + 2), (x.reshape(1, 2) @ x.reshape(2, 1)).sum())
            found = [ad.unpack_dual(each).tangent for each in made]
            return [t.view_as_real(each.resolve_conj()) + 0 if each.is_complex() else each for each in found]

    same(case)


def test_random_and_constant_results_have_no_change():
    same(tangent_of(lambda t, x: (x.floor(), x.sign(), x.round(), t.nn.functional.dropout(x, 0.0))))


# In-place ops and views.


def in_place(change):
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.tensor(X), t.tensor(V)) * 1
            other = ad.make_dual(t.tensor(V), t.tensor(X))
            change(t, x, other)
            return tuple(ad.unpack_dual(x))

    same(case)


@pytest.mark.parametrize(
    "change",
    [
        lambda t, x, y: x.mul_(y),
        lambda t, x, y: x.add_(y, alpha=2),
        lambda t, x, y: x.sin_().exp_(),
        lambda t, x, y: x.copy_(y),
        lambda t, x, y: x.copy_(t.ones(2, 3)),
        lambda t, x, y: x.zero_(),
        lambda t, x, y: x.fill_(2.0),
        lambda t, x, y: x.clamp_(-0.5, 0.5),
        lambda t, x, y: x.masked_fill_(x > 0, 1.0),
        lambda t, x, y: x.index_add_(0, t.tensor([1, 0]), y),
        lambda t, x, y: x.__setitem__((0, slice(1, 3)), y[1, :2]),
        lambda t, x, y: x.__setitem__(0, 1.0),
        lambda t, x, y: x[0].mul_(y[0]),
        lambda t, x, y: x.t().mul_(y.t()),
        lambda t, x, y: x.view(6)[2:5].copy_(y.view(6)[:3]),
    ],
)
def test_in_place_ops_change_tangents(change):
    in_place(change)


@pytest.mark.parametrize(
    "change",
    [
        lambda z, x: z.__setitem__(0, x[0]),
        lambda z, x: z[1].copy_(x[0]),
        lambda z, x: z.add_(x),
        lambda z, x: z.t()[1].add_(x[:, 1]),
        lambda z, x: z.view(-1)[2:4].mul_(x[1, :2]),
    ],
)
def test_a_tensor_gets_a_tangent_in_place(change):
    """So do its base and its views, those made before included."""

    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.tensor(X), t.tensor(V))
            z = t.ones(2, 3)
            before = z[0]
            change(z, x)
            return [tuple(ad.unpack_dual(each)) for each in (z, before, z[1], z * 2, before.sum())]

    same(case)


def test_the_tangent_given_is_changed_in_place():
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            given = t.tensor(V)
            ad.make_dual(t.tensor(X), given).mul_(3)
            return given

    same(case)


def test_views_are_followed():
    same(
        tangent_of(
            lambda t, x: (
                x.t().contiguous(), x[:, 1], x.view(3, 2), x.expand(2, 2, 3), x.diagonal(), *x.split(2, 1), *x.unbind(),
                x.as_strided((2, 2), (1, 2)), x.t().reshape(-1)[::2],
            )
        )
    )  # fmt: skip


# Reverse over forward, forward over reverse.


def test_tangents_are_recorded():
    def case(t):
        ad = t.autograd.forward_ad
        x, v = t.tensor(X, requires_grad=True), t.tensor(V, requires_grad=True)
        with ad.dual_level():
            y = (ad.make_dual(x, v) ** 3).sin()
            primal, tangent = ad.unpack_dual(y)
        assert primal.requires_grad
        return tangent, t.autograd.grad(tangent.sum(), (x, v), retain_graph=True), t.autograd.grad(primal.sum(), x)

    same(case)


def test_only_the_tangent_may_require_a_gradient():
    def case(t):
        ad = t.autograd.forward_ad
        v = t.tensor(V, requires_grad=True)
        with ad.dual_level():
            primal, tangent = ad.unpack_dual(ad.make_dual(t.tensor(X), v).exp() * 2)
        tangent.sum().backward()
        return primal, tangent, v.grad

    same(case)


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_have_tangents(create_graph):
    def case(t):
        ad = t.autograd.forward_ad
        x = t.tensor(X, requires_grad=True)
        with ad.dual_level():
            dual = ad.make_dual(x, t.tensor(V))
            (slope,) = t.autograd.grad((dual**3).sum(), dual, create_graph=create_graph)
            return tuple(ad.unpack_dual(slope))

    same(case)


def test_backward_accumulates_tangents():
    """The tangent of a gradient that two backwards made; PyTorch drops what the first one made."""

    def slope(x):
        return gradwire.func.grad(lambda w: (x * w).sin().sum())(w.detach())

    ad = gradwire.autograd.forward_ad
    w = gradwire.tensor([0.5, 2.0, -1.0], requires_grad=True)
    expected = gradwire.func.jvp(slope, (gradwire.tensor(X),), (gradwire.tensor(V),))
    with ad.dual_level():
        x = ad.make_dual(gradwire.tensor(X), gradwire.tensor(V))
        for _ in range(2):
            (x * w).sin().sum().backward()
        found = ad.unpack_dual(w.grad)
    for mine, one in zip(found, expected, strict=True):
        assert gradwire.allclose(mine, one * 2)


# Modules.


def test_a_network_has_tangents():
    def case(t):
        ad = t.autograd.forward_ad
        net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.GELU(), t.nn.Linear(4, 2), t.nn.Softplus()).double()
        with t.no_grad():
            for place, each in enumerate(net.parameters()):
                each.copy_(t.arange(each.numel(), dtype=t.float64).reshape(each.shape).sin() + place)
        x = t.tensor(X, dtype=t.float64)
        with ad.dual_level():
            out = net(ad.make_dual(x, t.tensor(V, dtype=t.float64)))
            primal, tangent = ad.unpack_dual(out)
            loss = ad.unpack_dual(t.nn.functional.cross_entropy(out, t.tensor([0, 1]))).tangent
        tangent.sum().backward()
        return primal.detach(), tangent.detach(), loss.detach(), [each.grad for each in net.parameters()]

    same(case)


# Custom functions.


def scaled(t, two_steps=False):
    class Scaled(t.autograd.Function):
        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y * ctx.factor, g * x * ctx.factor, None

        @staticmethod
        def jvp(ctx, tx, ty, factor):
            assert factor is None
            x, y = ctx.saved_tensors
            return (tx * y + x * ty) * ctx.factor

    def setup(ctx, inputs, output):
        x, y, ctx.factor = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)

    def forward(ctx, x, y, factor):
        setup(ctx, (x, y, factor), None)
        return x * y * factor

    if two_steps:
        Scaled.forward = staticmethod(lambda x, y, factor: x * y * factor)
        Scaled.setup_context = staticmethod(setup)
    else:
        Scaled.forward = staticmethod(forward)
    return Scaled


@pytest.mark.parametrize("two_steps", [False, True])
def test_a_function_computes_its_tangents(two_steps):
    def case(t):
        ad = t.autograd.forward_ad
        x, y = t.tensor(X), t.tensor(V, requires_grad=True)
        with ad.dual_level():
            one = scaled(t, two_steps).apply(ad.make_dual(x, t.tensor(V)), y, 2)
            both = scaled(t, two_steps).apply(ad.make_dual(x, t.tensor(V)), ad.make_dual(y, t.tensor(X)), 2)
            found = [tuple(ad.unpack_dual(each)) for each in (one, both)]
        return found, t.autograd.grad(found[1][1].sum(), y)

    same(case)


def test_a_function_in_transforms():
    """Two levels: the saved tensors of a function with setup_context have the outer tangents. PyTorch's have none."""

    def found(t, run):
        inner = lambda x: t.func.jvp(run, (x,), (t.tensor(V),))[1]  # noqa: E731
        return t.func.jvp(run, (t.tensor(X),), (t.tensor(V),)), t.func.jvp(inner, (t.tensor(X),), (t.tensor(V),))

    same(lambda t: found(t, lambda x: scaled(t, True).apply(x, x.sin(), 2))[0])
    expected = values(found(torch, lambda x: x * x.sin() * 2))
    assert alike(values(found(gradwire, lambda x: scaled(gradwire, True).apply(x, x.sin(), 2))), expected)
    with pytest.raises(RuntimeError, match="must override the setup_context staticmethod"):
        found(gradwire, lambda x: scaled(gradwire).apply(x, x.sin(), 2))


def test_functions_without_a_fitting_jvp_are_refused():
    def given(jvp=None):
        def case(t):
            members = {
                "forward": staticmethod(lambda ctx, x: x * 2),
                "backward": staticmethod(lambda ctx, g: g * 2),
            }
            if jvp is not None:
                members["jvp"] = staticmethod(lambda ctx, tx: jvp(t, tx))
            ad = t.autograd.forward_ad
            with ad.dual_level():
                type("Own", (t.autograd.Function,), members).apply(ad.make_dual(t.tensor(X), t.tensor(V)))

        return case

    refuse(given(), NotImplementedError, "You must implement the jvp function")
    refuse(given(lambda t, tx: (tx, tx)), RuntimeError, "invalid number of forward gradients")
    refuse(given(lambda t, tx: t.ones(5)), RuntimeError, "different size than that of the original")
    refuse(given(lambda t, tx: 3), RuntimeError, "expected Variable or None")


# Transforms.


def quartic(t):
    return lambda x: (x**4 * x.sin()).sum()


@pytest.mark.parametrize(
    "case",
    [
        lambda t: t.func.jvp(quartic(t), (t.tensor(X),), (t.tensor(V),)),
        lambda t: t.func.jvp(t.func.grad(quartic(t)), (t.tensor(X),), (t.tensor(V),)),
        lambda t: t.func.grad(lambda x: t.func.jvp(quartic(t), (x,), (t.tensor(V),))[1])(t.tensor(X)),
        lambda t: t.func.jvp(
            lambda x: t.func.jvp(lambda x: t.func.jvp(quartic(t), (x,), (x,))[1], (x,), (t.tensor(V),))[1],
            (t.tensor(X),),
            (t.tensor(V),),
        ),
        lambda t: t.func.jvp(
            lambda x: t.func.grad(lambda x: t.func.jvp(quartic(t), (x,), (t.tensor(V),))[1])(x),
            (t.tensor(X),),
            (t.tensor(V),),
        ),
        lambda t: t.func.hessian(quartic(t))(t.tensor(X)),
        lambda t: t.func.jacfwd(t.func.jacfwd(quartic(t)))(t.tensor(X)),
        lambda t: t.func.jacrev(t.func.jacfwd(lambda x: x.sin() * x.sum()))(t.tensor(X)),
        lambda t: t.vmap(lambda x, v: t.func.jvp(t.sin, (x,), (v,)))(t.tensor(X), t.tensor(V)),
        lambda t: t.vmap(t.func.hessian(quartic(t)))(t.tensor(X)),
        lambda t: t.vmap(lambda v: t.func.jvp(quartic(t), (t.tensor(X),), (v,))[1])(t.tensor([V, X])),
        lambda t: t.func.jvp(t.vmap(lambda x: x.softmax(0)), (t.tensor(X),), (t.tensor(V),)),
        lambda t: t.func.jvp(lambda x: (x.argmax(), t.ones(2), x * 2), (t.tensor(X),), (t.tensor(V),)),
        lambda t: t.func.jvp(lambda x: (x * 2, (x * 3, "more")[0]), (t.tensor(X),), (t.tensor(V),), has_aux=True),
        lambda t: t.func.linearize(quartic(t), t.tensor(X))[1](t.tensor(V)),
    ],
)
def test_transforms_nest(case):
    same(case)


def test_no_grad_leaves_tangents_of_a_jvp():
    def case(t):
        def function(x):
            with t.no_grad():
                return x.sin() * 2

        return t.func.jvp(function, (t.tensor(X),), (t.tensor(V),))

    same(case)


def test_a_jvp_of_what_requires_grad_is_recorded():
    def case(t):
        w = t.tensor([0.5, 2.0, -1.0], requires_grad=True)
        value, product = t.func.jvp(lambda x: (x * w).sin(), (t.tensor(X),), (t.tensor(V),))
        product.sum().backward()
        return value.requires_grad, product.requires_grad, w.grad

    same(case)


def test_jacobians_agree():
    """jacfwd maps jvp over all directions; with chunks, some at a time."""

    def case(t):
        function = lambda x, y: {"a": x.sin() @ y, "b": [(x * y[:, 0]).cumsum(0), y.exp()]}  # noqa: E731
        x, y = t.tensor(X[0]), t.tensor(X).t().contiguous()
        found = t.func.jacfwd(function, (0, 1))(x, y), t.func.jacfwd(function, 1)(x, y)
        return found, t.func.jacrev(function, (0, 1))(x, y)

    same(case)
    (found, second), expected = case(gradwire)
    assert alike(values(found), values(expected))
    assert alike(values(second), values({key: _second(each) for key, each in found.items()}))
    function = lambda x: x.sin() * x.sum()  # noqa: E731
    whole, x = gradwire.func.jacfwd(function), gradwire.tensor(X)
    assert gradwire.equal(gradwire.func.jacfwd(function, chunk_size=4)(x), whole(x))


def _second(value):
    return [_second(each) for each in value] if isinstance(value, list) else value[1]


def test_a_jacobian_of_what_vmap_cannot_map():
    """A function that reads a value, or draws random numbers, is called on tensors and gives a column at a time."""
    calls = []

    def function(x):
        calls.append(1)
        return x**3 if x.sum().item() > 0 else x

    x = gradwire.tensor([1.0, 2.0])
    assert gradwire.equal(gradwire.func.jacfwd(function)(x), gradwire.diag(3 * x**2))
    assert len(calls) == 2
    noise = gradwire.func.jacfwd(lambda x: x * gradwire.rand(2))(x)
    assert gradwire.equal(noise, gradwire.diag(noise.diagonal()))


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda t, x: t.func.jvp(t.sin, x, x), RuntimeError, "Expected primals to be a tuple"),
        (lambda t, x: t.func.jvp(lambda: x, (), ()), RuntimeError, "at least one Tensor"),
        (lambda t, x: t.func.jvp(t.sin, (x,), (x, x)), RuntimeError, "the same python structure"),
        (lambda t, x: t.func.jvp(t.sin, (x,), (x[0],)), RuntimeError, "different size than that of the original"),
        (lambda t, x: t.func.jvp(t.sin, (x.long(),), (x.long(),)), ValueError, "Expected primal to be floating"),
        (lambda t, x: t.func.jvp(lambda x: t.ones(2), (x,), (x,), strict=True), RuntimeError, "independent"),
    ],
)
def test_jvp_refuses(call, error, phrase):
    refuse(lambda t: call(t, t.tensor(X)), error, phrase)


# The wire.


def test_a_repeat_does_not_wait(session):
    """A loop of jvps sends one batch: nothing of it waits for the server."""
    if session.every_call_waits:
        pytest.skip("a round trip per op")
    x, v = gradwire.tensor(X), gradwire.tensor(V)
    waits = []
    step = lambda: gradwire.func.jvp(lambda x: (x.sin() * x).sum(), (x,), (v,))  # noqa: E731
    for _ in range(3):
        step()
    target = x._session
    wait = target.wait
    target.wait = lambda *args, **kwargs: waits.append(args) or wait(*args, **kwargs)
    try:
        for _ in range(5):
            found = step()
    finally:
        del target.wait
    assert not waits
    assert found[1].item() == pytest.approx(step()[1].item())


def test_compiled_functions():
    def step(x, v):
        value, product = gradwire.func.jvp(lambda x: (x.sin() * x).sum(0), (x,), (v,))
        return value + 1, product * 2

    compiled = gradwire.compile(step)
    x, v = gradwire.tensor(X), gradwire.tensor(V)
    expected = values(step(x, v))
    for _ in range(4):
        assert alike(values(compiled(x, v)), expected)


def test_the_open_level_is_told():
    def told(t):
        level = t.autograd.forward_ad
        before = level._current_level
        with level.dual_level():
            return before, level._current_level, t._utils._element_size(t.complex64)

    agree(told)


def test_functions_that_change_inputs_in_place_change_the_tangent_in_place():
    def told(t, jvp=lambda ctx, tangent: tangent.mul_(5.0), requires_grad=False):
        class Square(t.autograd.Function):
            @staticmethod
            def forward(x):
                return x.mul_(x)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.mark_dirty(inputs[0])

            @staticmethod
            def backward(ctx, g):
                return g * 7

        Square.jvp = staticmethod(jvp)
        x = t.tensor([2.0, 3.0], requires_grad=requires_grad)
        with t.autograd.forward_ad.dual_level():
            dual = t.autograd.forward_ad.make_dual(x.clone(), t.tensor([1.0, 2.0])) * 1
            made = Square.apply(dual)
            primal, tangent = t.autograd.forward_ad.unpack_dual(dual * 3)
        return made is dual, primal, tangent, t.func.jvp(lambda x: Square.apply(x.clone()) * x, (x,), (x,))

    agree(told)
    refuse(
        lambda t: told(t, lambda ctx, tangent: tangent * 5),
        RuntimeError,
        "not modifying the forward mode gradients inplace",
    )

    def numbers(t):
        same, primal, tangent, (value, slope) = told(t, requires_grad=True)
        return same, [each.tolist() for each in (primal, tangent, value, slope)]

    agree(numbers)


def test_ops_compute_no_tangents_where_forward_mode_is_off():
    def case(t):
        ad = t.autograd.forward_ad

        def shifted(x):
            with ad._set_fwd_grad_enabled(False):
                shift = x**2
                changed = x.clone()
                changed.mul_(x)
            return x**2 - shift + t.stack([x, changed]).sum()

        x = t.tensor(0.5)
        answers = [t.func.jvp(shifted, (x,), (t.ones(()),))]
        with ad._set_fwd_grad_enabled(False):
            answers.append(t.func.jvp(t.sin, (x,), (t.ones(()),)))
            answers.append(ad._is_fwd_grad_enabled())
        answers.append(ad._is_fwd_grad_enabled())
        return answers

    agree(case)


def test_jvp_gets_what_was_saved_for_it_and_nothing_else():
    def case(t):
        counts = []

        class Doubled(t.autograd.Function):
            @staticmethod
            def forward(x, saves):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0])
                if inputs[1]:
                    ctx.save_for_forward(inputs[0], output)

            @staticmethod
            def jvp(ctx, tangent, _):
                counts.append(len(ctx.saved_tensors))
                return tangent * 2

        x = t.ones(2, requires_grad=True)
        for saves in (False, True):
            t.func.jvp(lambda y, saves=saves: Doubled.apply(y, saves), (x,), (t.ones(2),))
        return counts

    agree(case)


@pytest.mark.usefixtures("session")
def test_a_dual_keeps_the_very_tangent_it_was_made_with() -> None:
    def told(t: Any) -> Any:
        fw = t.autograd.forward_ad
        primal, tangent = t.tensor([1.0, 2.0]), t.tensor([0.5, 0.25])
        learned = t.tensor([1.0, 2.0], requires_grad=True)
        made: list[Any] = []
        with fw.dual_level():
            dual = fw.make_dual(primal, tangent)
            made += [fw.unpack_dual(dual).tangent is tangent, fw.unpack_dual(dual).primal is primal]
            tangent.add_(1)
            made += [fw.unpack_dual(dual).tangent.tolist(), fw.unpack_dual(dual * 2).tangent.tolist()]
            dual.mul_(3)
            made += [fw.unpack_dual(dual).tangent is tangent, tangent.tolist()]
            dual[0] = 5.0
            made += [fw.unpack_dual(dual).tangent is tangent, tangent.tolist(), primal.tolist()]
            dual = fw.make_dual(primal, learned)
            found = fw.unpack_dual(dual).tangent
            made += [found is learned, t.autograd.grad((found * dual).sum(), learned)[0].tolist()]
            turned = t.arange(4.0).reshape(2, 2).T
            dual = fw.make_dual(t.ones(2, 2), turned)
            made += [fw.unpack_dual(dual).tangent is turned, fw.unpack_dual(dual).tangent.tolist()]
        return [*made, fw.unpack_dual(dual).tangent]

    agree(told)


def test_detaching_a_dual_in_place_drops_its_tangent():
    def program(m):
        fwd = m.autograd.forward_ad
        with fwd.dual_level():
            for requires in (False, True):
                dual = fwd.make_dual(m.ones(2, requires_grad=requires), m.full((2,), 3.0)).clone()
                before = fwd.unpack_dual(dual * 2).tangent.tolist()
                dual.detach_()
                yield before, fwd.unpack_dual(dual * 2).tangent, dual.requires_grad

    agree(lambda m: list(program(m)))


def test_a_tangent_of_memory_of_another_size_is_copied():
    def program(m):
        fwd = m.autograd.forward_ad
        primal, tangent = m.arange(5.0)[:4].detach(), m.ones(4)
        with fwd.dual_level():
            dual = fwd.make_dual(primal, tangent)
            unpacked = fwd.unpack_dual(dual)
            unpacked.tangent.mul_(2)
            same = unpacked.primal.data_ptr() == primal.data_ptr()
            return tangent, fwd.unpack_dual(dual).tangent, unpacked.tangent is tangent, same

    agree(program)
