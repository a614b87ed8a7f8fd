"""Custom functions under vmap beside PyTorch's: one node for all samples, and what their rules are shown."""

import pytest

import gradwire
from tests.client.oracle import agree, refuse, torch

pytestmark = pytest.mark.usefixtures("session")


def rows(t, *shape):
    count = 1
    for each in shape:
        count *= each
    return t.arange(float(count)).reshape(shape).sin()


def products(t, **members):
    """x * y by a function of its own, whose derivatives are 2 x y and x ** 2: of no product that t knows."""

    class Square(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y, power=2):
            return x.pow(power) * y, x + y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.power = inputs[2]
            ctx.save_for_backward(inputs[0], inputs[1])
            ctx.save_for_forward(inputs[0], inputs[1])

        @staticmethod
        def backward(ctx, g, h):
            x, y = ctx.saved_tensors
            return g * ctx.power * x.pow(ctx.power - 1) * y + h, g * x.pow(ctx.power) + h, None

        @staticmethod
        def jvp(ctx, s, u, _):
            x, y = ctx.saved_tensors
            return ctx.power * x.pow(ctx.power - 1) * y * s + x.pow(ctx.power) * u, s + u

    return Square


def loss(function):
    def total(*args):
        first, second = function.apply(*args)
        return (first.sin() + second.cos()).sum()

    return total


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0), (1, 0), (1, None)])
def test_gradients_of_each_sample(dims):
    def case(t):
        x = rows(t, 3, 3)
        y = rows(t, 3) if dims[1] is None else rows(t, 3, 3).cos()
        if dims[0] is None:
            x = rows(t, 3)
        return t.vmap(t.func.grad(loss(products(t)), (0, 1)), dims)(x, y)

    agree(case)


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_gradients_through_a_map(dims):
    """A tensor that all samples share gets the sum of their gradients."""

    def case(t):
        x = rows(t, *((3,) if dims[0] is None else (2, 3))).requires_grad_()
        y = rows(t, *((3,) if dims[1] is None else (2, 3))).cos().requires_grad_()
        made, other = t.vmap(products(t).apply, dims)(x, y)
        slopes = t.autograd.grad((made.sin() + other).sum(), (x, y), create_graph=True)
        return slopes, t.autograd.grad(slopes[0].sin().sum(), (x, y), allow_unused=True), made.grad_fn.name()

    agree(case)


def test_maps_of_maps():
    def case(t):
        x, y = rows(t, 2, 3, 4), rows(t, 3, 4).cos()
        inner = t.vmap(t.func.grad(loss(products(t)), (0, 1)))
        through = t.func.grad(
            lambda x, y: sum(each.sum() for each in t.vmap(t.vmap(products(t).apply), (0, None))(x, y)), (0, 1)
        )
        return t.vmap(inner, (0, None))(x, y), through(x, y)

    agree(case)


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian"])
def test_derivatives_of_samples(transform):
    def case(t):
        x, y = rows(t, 2, 3), rows(t, 2, 3).cos()
        function = loss(products(t)) if transform == "hessian" else lambda x, y: products(t).apply(x, y, 3)[0]
        return t.vmap(getattr(t.func, transform)(function))(x, y)

    agree(case)


def test_tangents_of_samples_that_require_grad():
    def case(t):
        x, y = rows(t, 2, 3).requires_grad_(), rows(t, 2, 3).cos()
        made, tangent = t.vmap(lambda x, y: t.func.jvp(products(t).apply, (x, y), (y, x)))(x, y)
        slope = t.autograd.grad(tangent[0].sum() + made[1].sum(), x)
        return [each.detach() for each in (*made, *tangent, *slope)]

    agree(case)


def test_gradients_of_a_broadcast_shape_are_summed():
    def case(t):
        class Rows(t.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x):
                return x.expand(4, 3).clone()

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return g

        return t.vmap(t.func.grad(lambda x: (Rows.apply(x) * rows(t, 4, 3)).sum()))(rows(t, 2, 3))

    agree(case)


def test_marks_of_results_count_for_all_samples():
    def case(t):
        class Both(t.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x):
                return x * 2, x > 0

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.mark_non_differentiable(output[1])

            @staticmethod
            def backward(ctx, g, _):
                return g * 2

        x = rows(t, 2, 3).requires_grad_()
        made, positive = t.vmap(Both.apply)(x)
        return made, positive, t.autograd.grad(made.sin().sum(), x), positive.requires_grad

    agree(case)


def test_rules_see_the_dimension_that_vmap_was_given():
    def case(t):
        seen = []

        class Same(t.autograd.Function):
            @staticmethod
            def forward(x, y):
                return x * y

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def vmap(info, in_dims, x, y):
                seen.append((in_dims, tuple(x.shape), tuple(y.shape)))
                return x.movedim(in_dims[0], 0) * y.movedim(in_dims[1], 0), 0

        x, y = rows(t, 3, 2), rows(t, 2, 3)
        return t.vmap(Same.apply, (1, 0))(x, y), t.vmap(Same.apply, (-1, 0), chunk_size=1)(x, y), seen

    agree(case)


def test_samples_are_shown_with_their_dimension():
    def case(t):
        texts = []

        def show(x):
            texts.append("".join(repr(x).split()))
            return x

        t.vmap(t.vmap(show), in_dims=1)(rows(t, 2, 3, 1))
        return texts

    agree(case)


@pytest.mark.parametrize("size", [(2, 1), (3,), (1, 1), (2, 3)])
def test_sums_to_a_size_for_each_sample(size):
    agree(lambda t: t.vmap(lambda x: x.sum_to_size(size))(rows(t, 4, 2, 3)))


def sums(t):
    """The sum over a dimension, as an op in Python with rules for transforms."""
    from importlib import import_module

    internal = t._C._functorch
    allow = import_module(f"{t.__name__}._functorch.utils").enable_single_level_autograd_function

    class Sum(import_module(f"{t.__name__}._ops").HigherOrderOperator):
        def __init__(self):
            super().__init__("sum_of_a_dimension")

        def __call__(self, x, dim):
            return super().__call__(x, dim)

    made = Sum()

    @made.py_impl(internal.TransformType.Vmap)
    def _batched(interpreter, x, dim):
        if not internal.is_batchedtensor(x):
            with interpreter.lower():
                return made(x, dim)
        place, value = internal.maybe_get_bdim(x), internal.get_unwrapped(x)
        with interpreter.lower():
            result = made(value.movedim(place, 0), dim + 1)
        return internal._add_batch_dim(result, 0, interpreter.level())

    @made.py_impl(internal.TransformType.Grad)
    def _differentiated(interpreter, x, dim):
        level = interpreter.level()

        class Node(t.autograd.function._SingleLevelFunction):
            @staticmethod
            def forward(ctx, x, dim):
                ctx.shape, ctx.dim = x.shape, dim
                with t.enable_grad(), interpreter.lower():
                    result = made(internal._unwrap_for_grad(x, level), dim)
                return internal._wrap_for_grad(result, level)

            @staticmethod
            def backward(ctx, g):
                return g.unsqueeze(ctx.dim).expand(ctx.shape), None

        with allow():
            return Node.apply(x, dim)

    made.py_impl(t._C.DispatchKey.AutogradCPU)(lambda x, dim: t.sum(x, dim))
    return made


@pytest.mark.parametrize(
    "case",
    [
        lambda t, op: op(rows(t, 2, 3), 1),
        lambda t, op: t.vmap(op, (1, None))(rows(t, 2, 3), 0),
        lambda t, op: t.vmap(t.vmap(op, (1, None)), (0, None))(rows(t, 2, 3, 4), 0),
        lambda t, op: t.func.grad(lambda x: op(x.sin(), 0))(rows(t, 3)),
        lambda t, op: t.func.grad(lambda x: t.func.grad(lambda x: op(x.sin(), 0))(x).sum())(rows(t, 3)),
        lambda t, op: t.vmap(t.func.grad(op), (0, None))(rows(t, 2, 3), 0),
        lambda t, op: t.func.grad(lambda x: t.vmap(op, (0, None))(x.sin(), 0).sin().sum())(rows(t, 2, 3)),
        lambda t, op: t.vmap(t.func.grad(lambda x, y: op(x * y, 0), (0, 1)), (0, None))(rows(t, 2, 3), rows(t, 3)),
    ],
)
def test_ops_in_python_under_transforms(case):
    agree(lambda t: case(t, sums(t)))


def test_ops_in_python_say_which_rule_is_missing():
    def case(t):
        from importlib import import_module

        class Bare(import_module(f"{t.__name__}._ops").HigherOrderOperator):
            def __call__(self, x):
                return super().__call__(x)

        bare = Bare("bare")
        found = []
        for call in (
            lambda: bare(t.ones(1)),
            lambda: import_module(f"{t.__name__}._ops").HigherOrderOperator("x"),
            lambda: t.vmap(bare)(t.ones(1)),
        ):
            with pytest.raises((KeyError, NotImplementedError, TypeError)) as caught:
                call()
            kinds = (KeyError, NotImplementedError, TypeError)
            found.append(next(kind.__name__ for kind in kinds if issubclass(caught.type, kind)))
        below = t._C._AutoDispatchBelowAutograd
        bare.py_impl(t._C.DispatchKey.CPU)(lambda x: x * 3)
        bare.py_autograd_impl(lambda x: x * 5)
        with below():
            three = bare(t.ones(1))
        return found, three, bare(t.ones(1)), bare(t.ones(1, requires_grad=True))

    agree(case)


def test_unwrapping_outside_of_a_function_is_refused():
    with pytest.raises(NotImplementedError, match="share one graph"):
        gradwire.func.grad(lambda x: gradwire._C._functorch._unwrap_for_grad(x, 1))(gradwire.ones(()))


def test_questions_about_transforms():
    def case(t):
        found = []
        internal = t._C._functorch

        def ask(x):
            found.append(
                (
                    internal.is_batchedtensor(x),
                    internal.is_gradtrackingtensor(x),
                    internal.is_functorch_wrapped_tensor(x),
                    internal.maybe_get_level(x),
                    internal.maybe_current_level(),
                    t._C._are_functorch_transforms_active(),
                )
            )
            return x.sum()

        x = rows(t, 2, 3)
        ask(x)
        t.vmap(ask)(x)
        t.func.grad(ask)(x)
        t.vmap(t.func.grad(ask))(x)
        with t._C._ExcludeDispatchKeyGuard(t._C.DispatchKeySet(t._C.DispatchKey.Autograd)):
            excluded = t._C._dispatch_tls_local_exclude_set()
            found.append(excluded.has(t._C.DispatchKey.Autograd))
        return found

    agree(case)
    assert gradwire._C._dispatch_tls_local_exclude_set() == set()


def test_forward_mode_jacobians_are_refused_under_vmap():
    def case(t):
        jacobian = t.autograd.functional.jacobian
        t.vmap(lambda x: jacobian(t.sin, x, strategy="forward-mode", vectorize=True))(t.ones(2, 3))

    refuse(case, RuntimeError, "Batching rule not implemented for aten::_make_dual")


def test_a_ctx_with_other_saved_tensors():
    from gradwire._functorch.autograd_function import CtxWithSavedTensors, reductify

    class Third(gradwire.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            other = CtxWithSavedTensors(ctx, (gradwire.tensor(3.0),))
            other.note = "kept"
            assert ctx.note == "kept" and other.needs_input_grad == ctx.needs_input_grad
            ctx._pt_inner_ctx = 1
            with pytest.raises(RuntimeError, match="name collision"):
                CtxWithSavedTensors(ctx, ())
            return g * other.saved_tensors[0]

    x = gradwire.ones((), requires_grad=True)
    Third.apply(x).backward()
    assert x.grad.item() == 3
    kept, summed = reductify((gradwire.ones(2, 3), gradwire.ones(2, 3)), (0, 0), (0, None), 2)
    assert kept.shape == (2, 3) and summed.tolist() == [2, 2, 2]


def exponentials(t, keeps):
    """exp by a function of its own that keeps its result or its argument, as a saved tensor or as an attribute."""

    class Exp(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            if keeps == "attribute":
                ctx.x = inputs[0]
            elif keeps == "argument":
                ctx.save_for_backward(inputs[0])
            else:
                ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def backward(ctx, g):
            made = ctx.saved_tensors[0] if keeps == "result" else None
            slope = {"attribute": lambda: ctx.x.exp(), "argument": lambda: ctx.saved_tensors[0].exp()}
            return g * (made if keeps == "result" else slope[keeps]())

        @staticmethod
        def jvp(ctx, s):
            return ctx.saved_tensors[0] * s

    return Exp


@pytest.mark.parametrize("keeps", ["result", "argument", "attribute"])
def test_tangents_of_gradients_of_custom_functions(keeps):
    """Forward over reverse: what backward reads has tangents."""

    def case(t):
        x, v = rows(t, 3), rows(t, 3).cos()
        slope = t.func.grad(lambda x: (exponentials(t, keeps).apply(x * x) * x).sum())
        return t.func.jvp(slope, (x,), (v,)), t.func.hessian(lambda x: exponentials(t, keeps).apply(x).sin().sum())(x)

    agree(case)


@pytest.mark.parametrize("keeps", ["result", "argument", "attribute"])
def test_tangents_of_tangents_of_gradients(keeps):
    """Forward over forward over reverse has the tangents of every level. PyTorch loses some of a custom function."""

    def third(t, exp):
        x, v, w = rows(t, 3), rows(t, 3).cos(), rows(t, 3) + 2
        slope = t.func.grad(lambda x: (exp(x * x) * x).sum())
        return t.func.jvp(lambda x: t.func.jvp(slope, (x,), (v,))[1], (x,), (w,))

    expected = third(torch, torch.exp)
    for run in range(2):
        found = third(gradwire, exponentials(gradwire, keeps).apply)
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(torch.tensor(one.tolist()), other, rtol=1e-5), run


def test_tangents_of_gradients_where_forward_takes_ctx():
    def case(t):
        class Cube(t.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                result = x**3
                ctx.save_for_backward(x, result)
                ctx.save_for_forward(x)
                return result

            @staticmethod
            def backward(ctx, g):
                x, result = ctx.saved_tensors
                return g * 3 * result / x

            @staticmethod
            def jvp(ctx, s):
                return 3 * ctx.saved_tensors[0] ** 2 * s

        forward_ad = t.autograd.forward_ad
        x = (rows(t, 3) + 2).requires_grad_()
        with forward_ad.dual_level():
            made = Cube.apply(forward_ad.make_dual(x, t.ones(3)))
            (slope,) = t.autograd.grad(made.sum(), x, create_graph=True)
            return made.detach(), forward_ad.unpack_dual(slope).tangent.detach()

    agree(case)


def returning(t, saves):
    """A function that returns its argument as it is or a view of it, and a product beside it."""

    class Beside(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, y):
            return (x.view_as(x) if saves else x), x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[1], inputs[0], output[1]) if saves else ctx.save_for_backward(inputs[1])

        @staticmethod
        def backward(ctx, g, h):
            y = ctx.saved_tensors[0]
            return 3 * g + h * y, h * (ctx.saved_tensors[1] if saves else 2)

    return Beside


@pytest.mark.parametrize("saves", [False, True])
def test_arguments_that_a_function_returns_are_mapped(saves):
    def case(t):
        function, x, y = returning(t, saves), rows(t, 3, 2), rows(t, 2).cos()
        plain = t.vmap(function.apply, (0, None))(x, y)
        nested = t.vmap(t.vmap(lambda x: function.apply(x, x.cos())))(x)
        slopes = t.func.grad(lambda x, y: sum(each.sin().sum() for each in t.vmap(function.apply, (0, None))(x, y)))
        each = t.vmap(t.func.grad(loss(function), (0, 1)), (0, None))(x, y)
        return plain, nested, slopes(x, y), each

    agree(case)


def test_jvp_under_several_maps_gets_what_was_saved_for_it():
    def case(t):
        class Swapped(t.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x, y):
                return x * y.sin()

            @staticmethod
            def setup_context(ctx, inputs, output):
                x, y = inputs
                ctx.save_for_backward(x, y, output)
                ctx.save_for_forward(y, x)

            @staticmethod
            def backward(ctx, g):
                x, y, _ = ctx.saved_tensors
                return g * y.sin(), g * x * y.cos()

            @staticmethod
            def jvp(ctx, s, u):
                y, x = ctx.saved_tensors
                return s * y.sin() + x * y.cos() * u

        x, y = rows(t, 3, 2), rows(t, 2).cos()
        hessians = t.func.hessian(lambda x, y: Swapped.apply(x, y).pow(2).sum(), (0, 1))
        return t.vmap(hessians, (0, None))(x, y), t.vmap(t.func.jacfwd(Swapped.apply, (0, 1)), (0, None))(x, y)

    agree(case)
