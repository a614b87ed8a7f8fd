"""Rules of custom functions: inputs returned as they are, tangents of views and in-place changes, nodes' names.

Compared with PyTorch over a real socket.
"""

import pytest

import gradwire
from tests.client.oracle import agree, torch

pytestmark = pytest.mark.usefixtures("session")


def told(case, t):
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        case(t)
    return isinstance(caught.value, NotImplementedError), str(caught.value).split("\n")[0]


def same_refusal(case):
    expected = told(case, torch)
    for _ in range(3):
        assert told(case, gradwire) == expected


def returns_input(t, save, dirty=False):
    class Same(t.autograd.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            if dirty:
                ctx.mark_dirty(inputs[0])
            if save:
                getattr(ctx, save)(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.add_(0) if dirty else tangent.view_as(tangent)

    return Same


@pytest.mark.parametrize("save", ["save_for_backward", "save_for_forward"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_input_returned_as_it_is_may_not_be_saved(save, requires_grad):
    same_refusal(lambda t: returns_input(t, save).apply(t.ones(2, requires_grad=requires_grad).clone()))


def test_an_input_changed_in_place_may_be_saved():
    agree(lambda t: returns_input(t, "save_for_forward", dirty=True).apply(t.ones(2, requires_grad=True).clone()))


def doubles(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(x):
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_dirty(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return g * 2

        @staticmethod
        def jvp(ctx, tangent):
            return tangent.mul_(2)

    return Double


def test_an_in_place_function_has_tangents_and_gradients_together():
    def both(t):
        x, v = t.tensor([1.0, 3.0], requires_grad=True), t.tensor([1.0, -1.0], requires_grad=True)
        with t.autograd.forward_ad.dual_level():
            dual = t.autograd.forward_ad.make_dual(x * x, v * v)
            made = doubles(t).apply(dual)
            value, tangent = t.autograd.forward_ad.unpack_dual(made * made)
            found = t.autograd.grad((value.sum() + (tangent * tangent).sum()), (x, v))
        return made is dual, value.tolist(), tangent.tolist(), found

    def transformed(t):
        def function(x):
            return doubles(t).apply(x.clone()).pow(2)

        x, v = t.tensor([1.0, 3.0], requires_grad=True), t.tensor([1.0, -1.0])
        value, tangent = t.func.jvp(function, (x,), (v,))
        (slope,) = t.autograd.grad(tangent.sum() + value.sum(), x)
        return value.tolist(), tangent.tolist(), slope, t.func.grad(lambda y: function(y).sum())(x.detach())

    agree(both)
    agree(transformed)


def test_an_in_place_function_changes_its_tangent_in_place():
    def case(t):
        class Wrong(doubles(t)):
            @staticmethod
            def jvp(ctx, tangent):
                return tangent

        with t.autograd.forward_ad.dual_level():
            Wrong.apply(t.autograd.forward_ad.make_dual(t.ones(2), t.ones(2)))

    for t in (torch, gradwire):
        with pytest.raises(RuntimeError, match="jvp function must modify the corresponding gradient inplace"):
            case(t)


def narrows(t, kind):
    class Narrow(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.narrow(0, 0, 2)

        @staticmethod
        def jvp(ctx, tangent):
            made = tangent.narrow(0, 0, 2)
            made = made if kind == "right" else made.clone()
            return made.view_as(made) if kind == "another's view" else made

    return Narrow


@pytest.mark.parametrize("of_a_view", [False, True])
@pytest.mark.parametrize("kind", ["right", "no view", "another's view"])
def test_the_tangent_of_a_view_is_the_same_view_of_the_tangent(kind, of_a_view):
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.ones(4), t.tensor([1.0, 2.0, 3.0, 4.0]))
            return ad.unpack_dual(narrows(t, kind).apply(x.view_as(x) if of_a_view else x)).tangent

    if kind == "right":
        agree(case)
    else:
        same_refusal(case)


def test_a_result_marked_non_differentiable_has_no_tangent():
    def function(t, gives):
        class Two(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                constant = x.clone()
                ctx.mark_non_differentiable(constant)
                return x.clone(), constant

            @staticmethod
            def jvp(ctx, tangent):
                return tangent, tangent.clone() if gives else None

        ad = t.autograd.forward_ad
        with ad.dual_level():
            one, other = Two.apply(ad.make_dual(t.ones(2), t.ones(2)))
            return ad.unpack_dual(one).tangent, ad.unpack_dual(other).tangent

    agree(lambda t: function(t, False))
    same_refusal(lambda t: function(t, True))


def test_nodes_have_the_functions_class_and_transforms_make_another():
    def case(t):
        names = []
        function = returns_input(t, None)

        def call(x):
            made = function.apply(x)
            names.append(type(made.grad_fn).__name__)
            return made

        x = t.ones((), requires_grad=True)
        made = function.apply(x)
        t.func.grad(call)(t.ones(()))
        return names, type(made.grad_fn) is function._backward_cls, type(made.grad_fn).__name__

    agree(case)


def test_a_delayed_error_comes_where_backward_reaches_it():
    def case(t):
        x, y = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
        safe = t._C._functions.DelayedError("Boom!", 1)(y)
        out = (x * safe).sum()
        (found,) = t.autograd.grad(out, x, retain_graph=True)
        with pytest.raises(RuntimeError, match="Boom!"):
            out.backward()
        return found, type(safe.grad_fn).__name__

    agree(case)


def test_a_backward_has_a_number_and_tells_whether_it_keeps_its_graph():
    def case(t):
        x = t.ones(2, requires_grad=True).clone()
        seen = []
        keeps = t._C._autograd._get_current_graph_task_keep_graph
        x.register_hook(lambda g: seen.append((t._C._current_graph_task_id(), keeps())))
        for keep in (True, True, False):
            x.sum().backward(retain_graph=keep)
        (one, first), (two, second), (three, third) = seen
        return two - one, three - two, first, second, third, t._C._current_graph_task_id()

    agree(case)


def test_out_takes_no_tangents():
    def given(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            t.add(ad.make_dual(t.ones(2), t.ones(2)), t.ones(2), out=t.ones(2))

    def written(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            t.add(t.ones(2), t.ones(2), out=ad.make_dual(t.ones(2), t.ones(2)))

    same_refusal(given)
    same_refusal(written)


def test_forward_mode_refuses_a_formula_that_there_is_not():
    def case(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.ones(2), t.ones(2))
            t.igamma(x, x)

    same_refusal(case)


@pytest.mark.parametrize("differentiable", [False, True])
def test_an_input_of_a_class_of_ones_own_that_is_returned_keeps_its_class(differentiable):
    def returned(t):
        class Plain(t.Tensor):
            pass

        class Overriding(t.Tensor):
            def __init__(self, data):
                super().__init__()
                self.held = data

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                args = tuple(each.held if isinstance(each, cls) else each for each in args)
                made = func(*args, **(kwargs or {}))
                return cls(made) if isinstance(made, t.Tensor) else made

        class Same(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x

            @staticmethod
            def backward(ctx, g):
                return g * 3

        x = t.ones(2).as_subclass(Plain).requires_grad_(differentiable)
        y = Same.apply(x)
        over = Same.apply(Overriding(t.ones(2)))
        parameter = Same.apply(t.nn.Parameter(t.ones(2)))
        if differentiable:
            y.sum().backward()
        gradient = x.grad.tolist() if differentiable else None
        return type(y).__name__, y is x, gradient, type(over).__name__, over.held.tolist(), type(parameter).__name__

    agree(returned)


@pytest.mark.parametrize("how", ["as it is", "view", "new"])
def test_jvp_gets_the_tangent_itself_and_unpacking_gives_back_what_it_made(how):
    def unpacked(t):
        kept = []

        class Fn(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x + y, x.view_as(x) if how == "view" else x * 2

            @staticmethod
            def jvp(ctx, dx, dy):
                kept.extend([dx, dy, dx + dy, dx.view_as(dx) if how == "view" else dx * 2])
                return kept[2], kept[3]

        x, y = t.ones(2, dtype=t.float64), t.ones(2, dtype=t.float64)
        v, w = t.full((2,), 3.0, dtype=t.float64), t.ones(2, 2, dtype=t.float64)[:, 0]
        forward_ad = t.autograd.forward_ad
        with forward_ad.dual_level():
            made = Fn.apply(forward_ad.make_dual(x, v), y if how == "as it is" else forward_ad.make_dual(y, w))
            tangents = [forward_ad.unpack_dual(each).tangent for each in made]
            same = [one is other for one, other in zip([*tangents, v, w], [*kept[2:], *kept[:2]], strict=True)]
            return same, tangents[1]._base is v, [each.tolist() for each in tangents]

    agree(unpacked)
