"""Custom functions with a user-defined derivative (autograd.Function)."""

from functools import cache
from types import SimpleNamespace

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused, square_function


@cache
def _kinds(torch):
    """The functions that the scenarios use."""

    class Exponential(torch.autograd.Function):
        @staticmethod
        def forward(x, factor):
            return (x * factor).exp(), factor

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]
            ctx.save_for_backward(output[0])

        @staticmethod
        def backward(ctx, g, none):
            (out,) = ctx.saved_tensors
            assert none is None
            return g * out * ctx.factor, None

    class Increment(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    class AsItIs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[0]

        @staticmethod
        def backward(ctx, g):
            return torch.stack([g * 7, g * 0, g])

    class Several(torch.autograd.Function):
        seen = []  # noqa: RUF012

        @staticmethod
        def forward(ctx, x, y):
            positive = x > 0
            ctx.mark_non_differentiable(positive)
            ctx.save_for_backward(x, y)
            return x * y, positive, x + y

        @staticmethod
        def backward(ctx, first, none, second):
            x, y = ctx.saved_tensors
            Several.seen.append((first.tolist(), none.tolist(), second.tolist(), ctx.needs_input_grad))
            return first * y + second, first * x + second

    class Undefined(torch.autograd.Function):
        seen = []  # noqa: RUF012

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, one, other):
            Undefined.seen.append((one is None, other is None))
            return one

    Square = square_function(torch)
    return SimpleNamespace(**{name: kind for name, kind in locals().items() if isinstance(kind, type)})


def _cube(torch):
    """A function whose derivative cannot be differentiated."""

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    return Cube


def _answering(torch, answer):
    """A function of a tensor and a number whose backward answers what it is told to."""

    class Answering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, number):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return answer(g)

    return Answering


def the_derivative_is_what_backward_says(torch):
    x = leaf(torch)
    y = _kinds(torch).Square.apply(x * 3)
    name = y.grad_fn.name()
    y.sum().backward()
    return name, type(y.grad_fn).__name__, y.requires_grad, y.is_leaf, x.grad


def a_differentiable_backward_has_derivatives_of_any_order(torch):
    x = leaf(torch)
    (g,) = torch.autograd.grad(_kinds(torch).Square.apply(x * 3).sum(), x, create_graph=True)
    (gg,) = torch.autograd.grad((g**2).sum(), x, create_graph=True)
    return g.detach(), gg.detach(), torch.autograd.grad(gg.sum(), x)


def setup_context_and_a_saved_output(torch):
    x = leaf(torch)
    y, factor = _kinds(torch).Exponential.apply(x, 0.5)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y, factor, g.detach(), torch.autograd.grad(g.sum(), x)


@over_the_wire_only(Client.FUNCTIONAL)
def gradcheck_and_gradgradcheck_accept_it(torch):
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    kinds = _kinds(torch)
    return (
        torch.autograd.gradcheck(kinds.Square.apply, (x,)),
        torch.autograd.gradgradcheck(kinds.Square.apply, (x,)),
        torch.autograd.gradcheck(lambda x: kinds.Exponential.apply(x, 0.5)[0], (x,)),
        torch.autograd.gradgradcheck(lambda x: kinds.Exponential.apply(x, 0.5)[0], (x,)),
    )


@over_the_wire_only(Client.FUNCTIONAL)
@refused(RuntimeError, "Jacobian mismatch")
def gradcheck_finds_a_wrong_derivative(torch):
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(_kinds(torch).AsItIs.apply, (x,))


def in_the_middle_of_ordinary_ops_and_twice(torch):
    x = leaf(torch)
    square = _kinds(torch).Square.apply
    h = square(x.sin()) + square(square(x)) * x
    h.sum().backward()
    return x.grad


def an_input_changed_in_place(torch):
    x = leaf(torch)
    y = x * 2
    z = _kinds(torch).Increment.apply(y)
    same, name = z is y, y.grad_fn.name()
    (y * z).sum().backward()
    return same, name, x.grad, z


def a_view_changed_in_place(torch):
    x = leaf(torch)
    y = x * 2
    view = y[0:1]
    _kinds(torch).Increment.apply(view)
    y.sum().backward()
    return y.grad_fn.name(), x.grad, y


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "a leaf Variable that requires grad has been used in an in-place operation")
def a_leaf_changed_in_place(torch):
    _kinds(torch).Increment.apply(leaf(torch))


def an_input_returned_as_it_is(torch):
    x = leaf(torch)
    y = _kinds(torch).AsItIs.apply(x)
    y.sum().backward()
    return y is x, y.grad_fn.name(), x.grad


@refused(RuntimeError, "is a view and is being modified inplace")
def an_input_returned_as_it_is_cannot_be_changed(torch):
    y = _kinds(torch).AsItIs.apply(leaf(torch) * 1)
    y.add_(1)


def a_view_of_an_input_returned(torch):
    x = leaf(torch)
    y = _kinds(torch).First.apply(x * 1)
    y.backward()
    return y, x.grad


def outputs_without_gradient(torch):
    kinds, x, y = _kinds(torch), leaf(torch), torch.tensor([3.0, 4.0, 5.0])
    kinds.Several.seen.clear()
    first, positive, second = kinds.Several.apply(x, y)
    first.sum().backward()
    flags = (first.requires_grad, positive.requires_grad, second.requires_grad)
    return flags, kinds.Several.seen, x.grad, y.grad


def gradients_that_stay_undefined(torch):
    kinds, x = _kinds(torch), leaf(torch)
    kinds.Undefined.seen.clear()
    one, _ = kinds.Undefined.apply(x)
    one.sum().backward()
    return kinds.Undefined.seen, x.grad


@over_the_wire_only(Client.ONCE_DIFFERENTIABLE)
def once_differentiable_once(torch):
    x = leaf(torch)
    _cube(torch).apply(x).sum().backward()
    return x.grad


@over_the_wire_only(Client.ONCE_DIFFERENTIABLE)
@refused(RuntimeError, "trying to differentiate twice a function that was marked with @once_differentiable")
def once_differentiable_twice(torch):
    x = leaf(torch)
    (g,) = torch.autograd.grad((_cube(torch).apply(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()


def a_gradient_that_is_summed_to_the_input(torch):
    x = leaf(torch)
    _answering(torch, lambda g: (g.expand(2, 3), None)).apply(x, 2).sum().backward()
    return x.grad


def no_gradient_at_all(torch):
    x = leaf(torch)
    _answering(torch, lambda g: (None, None)).apply(x, 2).sum().backward()
    return x.grad


@over_the_wire_only(Client.CHECKS)
def a_gradient_of_another_dtype_is_cast(torch):
    x = leaf(torch)
    _answering(torch, lambda g: (g.double(), None, None)).apply(x, 2).sum().backward()
    return x.grad


@refused(RuntimeError, r"returned an incorrect number of gradients \(expected 2, got 1\)")
def too_few_gradients(torch):
    _answering(torch, lambda g: g).apply(leaf(torch), 2).sum().backward()


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "returned a gradient different than None at position 2")
def a_gradient_for_a_number(torch):
    _answering(torch, lambda g: (g, g)).apply(leaf(torch), 2).sum().backward()


@refused(RuntimeError, r"returned an invalid gradient at index 0 - got \[4\] but expected shape compatible with \[3\]")
def a_gradient_of_the_wrong_shape(torch):
    _answering(torch, lambda g: (g[:1].expand(4), None)).apply(leaf(torch), 2).sum().backward()


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, r"expected Variable or None \(got int\)")
def a_gradient_that_is_no_tensor(torch):
    _answering(torch, lambda g: (3, None)).apply(leaf(torch), 2).sum().backward()


@refused(ZeroDivisionError, "division by zero")
def what_backward_raises_comes_out(torch):
    _answering(torch, lambda g: (g * (1 / 0), None)).apply(leaf(torch), 2).sum().backward()


@refused(RuntimeError, "Trying to backward through the graph a second time")
def a_second_backward_finds_nothing_saved(torch):
    y = _kinds(torch).Square.apply(leaf(torch)).sum()
    y.backward()
    y.backward()


@refused(RuntimeError, "modified by an inplace operation")
def a_saved_tensor_that_was_changed(torch):
    x = leaf(torch) * 1
    y = _kinds(torch).Square.apply(x)
    x.add_(1)
    y.sum().backward()


@over_the_wire_only(Client.CHECKS)
@refused(TypeError, "save_for_backward can only save variables")
def saving_a_number(torch):
    class Saving(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)
            return x

    Saving.apply(leaf(torch))


@over_the_wire_only(Client.CHECKS)
@refused(NotImplementedError, "You must implement either the backward or vjp method")
def without_a_backward(torch):
    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    Forward.apply(leaf(torch)).sum().backward()


def nothing_is_recorded_without_need(torch):
    square = _kinds(torch).Square.apply
    with torch.no_grad():
        one = square(leaf(torch))
    return one.requires_grad, square(torch.ones(2)).requires_grad


def hooks_of_a_custom_node(torch):
    x, seen = leaf(torch), []
    y = _kinds(torch).Square.apply(x)
    y.register_hook(lambda g: g * 2)
    y.grad_fn.register_prehook(lambda gs: seen.append([g.tolist() for g in gs]))
    y.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    y.sum().backward()
    return seen, x.grad


def grad_of_one_input_needs_no_other(torch):
    x, y = leaf(torch), leaf(torch, 3.0, 4.0, 5.0)
    kinds = _kinds(torch)
    kinds.Several.seen.clear()
    first, _, _ = kinds.Several.apply(x, y)
    return torch.autograd.grad(first.sum(), x), x.grad, y.grad


def a_function_calls_backward_of_its_own(torch):
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                held = x.detach().requires_grad_()
                out = (held**2).sum()
            (ctx.g,) = torch.autograd.grad(out, held)
            return out.detach()

        @staticmethod
        def backward(ctx, g):
            return ctx.g * g

    x = leaf(torch)
    (Inner.apply(x) * 3).backward()
    return x.grad


def _doubled_in_place(torch):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, other):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    return Doubled.apply


def a_view_that_is_changed_in_place_hands_its_gradient_through_the_function(torch):
    x = leaf(torch)
    base = x.clone()
    view = base[:2]
    out = _doubled_in_place(torch)(view, leaf(torch))
    out.sum().backward()
    return out, base, view._version, x.grad


def a_sibling_that_was_looked_at_follows_a_change_in_a_function(torch):
    x = leaf(torch)
    base = x.clone()
    view, sibling = base[:2], base[1:]
    _doubled_in_place(torch)(view, leaf(torch))
    (sibling * sibling).sum().backward()
    return sibling, x.grad


def a_view_made_and_changed_inside_a_function_keeps_its_derivative(torch):
    class Part(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            view = x.clone()[:2]
            view += 2
            return view

        @staticmethod
        def backward(ctx, g):
            return torch.cat([g * 5, g[:1] * 0])

    x = leaf(torch)
    y = Part.apply(x)
    y.sum().backward()
    return y, x.grad


@refused(RuntimeError, "This view was created inside a custom Function")
def a_view_that_a_function_answers_is_not_changed_in_place(torch):
    class View(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    View.apply(leaf(torch).clone()).add_(1)


@refused(RuntimeError, "cannot return more than one Tensor|must all be outputs")
def a_function_that_changes_a_view_answers_one_tensor(torch):
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2), x + 1

        @staticmethod
        def backward(ctx, g, h):
            return g + h

    Two.apply(leaf(torch).clone()[:2])


@refused(RuntimeError, "marked as dirty during the forward method were not returned")
def what_is_marked_dirty_is_answered(torch):
    class Lost(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2) + 1

        @staticmethod
        def backward(ctx, g):
            return g

    Lost.apply(leaf(torch).clone())


def defaults_of_forward_are_among_the_inputs_of_setup_context(torch):
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(x, y=3):
            return x**y

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.y = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.y * x ** (ctx.y - 1), None

    x = leaf(torch)
    Power.apply(x).sum().backward()
    return x.grad


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "Implementing both 'backward' and 'vjp'")
def a_function_has_one_derivative(torch):
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

        @staticmethod
        def vjp(ctx, g):
            return g

    Both.apply(leaf(torch)).sum().backward()


@over_the_wire_only(Client.STACKS)
def a_backward_in_a_backward_in_a_backward_and_so_on(torch):
    class Down(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                ctx.x = torch.autograd.Variable(x.detach(), requires_grad=True) - 1
            return ctx.x.detach()

        @staticmethod
        def backward(ctx, g):
            if ctx.x >= 0:
                with torch.enable_grad():
                    Down.apply(ctx.x).sum().backward()
            return g

    x = torch.tensor(120.0, requires_grad=True)
    Down.apply(x).backward()
    return x.grad
