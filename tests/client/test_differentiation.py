"""backward and autograd.grad: SEMANTICS 2 row by row, over a socket, compared with PyTorch."""

import warnings

import pytest

import gradwire
from gradwire._tensor import warnings as warnings_of_ops
from tests.client.oracle import agree, refuse, torch, warn

pytestmark = pytest.mark.usefixtures("session")


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


NO_HISTORY = "element 0 of tensors does not require grad and does not have a grad_fn"
SECOND_TIME = "Trying to backward through the graph a second time.*retain_graph=True"


def test_backward_needs_history():
    refuse(lambda t: t.ones(1).backward(), RuntimeError, NO_HISTORY)
    refuse(lambda t: (leaf(t) > 1).sum().backward(), RuntimeError, NO_HISTORY)


def test_backward_from_a_leaf_gives_it_its_own_gradient():
    def case(t):
        x = t.tensor(3.0, requires_grad=True)
        x.backward()
        x.backward(t.tensor(5.0))
        return x.grad

    agree(case)


@pytest.mark.parametrize("way", [lambda x: x, lambda x: x.clone(), lambda x: x.view(2)])
def test_a_gradient_that_passes_unchanged_is_the_one_that_was_given(way):
    def case(t):
        x, d = t.tensor([1.0, 2.0], requires_grad=True), t.tensor([3.0, 4.0], requires_grad=True)
        (found,) = t.autograd.grad([way(x)], [x], [d], create_graph=True)
        (by_given,) = t.autograd.grad([found], [d], [t.tensor([5.0, 6.0])], allow_unused=True)
        (found * found).sum().backward()
        return found is d, by_given, d.grad, found.grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of reading a gradient that a view does not retain
        agree(case)


def test_a_hook_is_given_the_gradient_that_was_given():
    def case(t):
        x, d = t.tensor([1.0, 2.0], requires_grad=True), t.tensor([3.0, 4.0], requires_grad=True)
        seen = []
        y = x.clone()
        y.register_hook(seen.append)
        t.autograd.grad([y], [x], [d], create_graph=True)
        (seen[0] * seen[0]).sum().backward()
        return seen[0] is d, d.grad

    agree(case)


def test_backward_from_nothing_does_nothing():
    def case(t):
        x = leaf(t)
        t.autograd.backward([])
        t.autograd.backward([], [], inputs=[x])
        return x.grad

    agree(case)


@pytest.mark.parametrize("create_graph", [False, True])
def test_zeta_of_bytes_is_differentiated_by_its_other_argument(create_graph):
    def case(t):
        x = t.tensor([1.5, 2.5], requires_grad=True)
        value = t.special.zeta(t.tensor([3, 5], dtype=t.uint8), x).sum()
        return [round(each, 3) for each in t.autograd.grad(value, x, create_graph=create_graph)[0].tolist()]

    agree(case)


def test_a_leaf_whose_flag_was_taken_back_receives_nothing():
    def case(t):
        x = leaf(t)
        found = []
        for flag in (True, False, True):
            x.grad = None
            y = (x * x).sum()
            x.requires_grad_(flag)
            y.backward()
            x.requires_grad_(True)
            found.append(x.grad)
        return found

    agree(case)


def test_a_gradient_that_is_part_of_a_graph_is_added_to_in_place():
    def case(t):
        x = leaf(t)
        found = []
        for _ in range(3):
            (x**3).sum().backward(inputs=[x], create_graph=True)
            before = x.grad
            (x * 2.0).sum().backward()
            found += [x.grad is before, x.grad.requires_grad, x.grad.is_leaf, x.grad.tolist()]
            x.grad = None
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agree(case)


def test_more_than_one_element_needs_a_gradient():
    refuse(lambda t: (leaf(t) * 2.0).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs")


def test_one_element_of_any_shape_needs_none():
    def case(t):
        x = t.tensor([[3.0]], requires_grad=True)
        (x * x).backward()
        return x.grad

    agree(case)


def test_a_gradient_has_the_shape_of_what_it_is_for():
    def case(t):
        x = leaf(t)
        (x * x).backward(t.tensor([1.0, 10.0, 100.0]))
        return x.grad

    agree(case)
    refuse(lambda t: (leaf(t) * 2.0).backward(t.ones(2)), RuntimeError, "Mismatch in shape: grad_output")


def test_a_second_backward_needs_retain_graph():
    def case(t):
        y = (leaf(t) * leaf(t)).sum()
        y.backward()
        y.backward()

    refuse(case, RuntimeError, SECOND_TIME)


def test_a_second_backward_is_refused_inside_the_call_in_a_loop_too():
    def case(t):
        caught = []
        for _ in range(4):
            x = leaf(t)
            y = (x * x).sum()
            y.backward()
            try:
                y.backward()
            except RuntimeError as error:
                caught.append("second time" in str(error))
            caught.append(x.grad.tolist())
        return caught

    agree(case)


@pytest.mark.parametrize(
    "name", ["x + x", "x + 2", "x.mean()", "x[0]", "x - x", "x.sum()", "-x", "x.reshape(3, 1)", "t.cat([x, x])"]
)
def test_a_second_backward_is_legal_where_nothing_was_saved(name):
    def case(t):
        x = leaf(t)
        y = eval(name, {"t": t, "x": x}).sum()
        y.backward()
        y.backward()
        return x.grad

    agree(case)


@pytest.mark.parametrize("name", ["x * x", "x / x", "x ** 2", "x.exp()", "t.where(x > 1, x, x)", "x[[0]]"])
def test_factors_masks_and_indices_count_as_saved(name):
    def case(t):
        x = leaf(t)
        y = eval(name, {"t": t, "x": x}).sum()
        y.backward()
        y.backward()

    refuse(case, RuntimeError, SECOND_TIME)


def test_six_twelve_eighteen():
    def case(t):
        a = leaf(t, 3.0)
        b = a * a
        seen = []
        b.backward(retain_graph=True)
        seen.append(a.grad.tolist())
        b.backward(retain_graph=True)
        seen.append(a.grad.tolist())
        b.backward()
        seen.append(a.grad.tolist())
        with pytest.raises(RuntimeError, match="second time"):
            b.backward()
        seen.append(a.grad.tolist())
        return seen

    agree(case)
    assert plain_six() == [[6.0], [12.0], [18.0], [18.0]]


def plain_six():
    a = gradwire.tensor([3.0], requires_grad=True)
    b = a * a
    seen = []
    for retain in (True, True, False):
        b.backward(retain_graph=retain)
        seen.append(a.grad.tolist())
    return [*seen, a.grad.tolist()]


def test_create_graph_gives_gradients_that_can_be_differentiated(recwarn):
    def case(t):
        a = leaf(t, 3.0)
        b = a * a * a
        b.backward(create_graph=True)
        first = a.grad
        flags = first.requires_grad, first.is_leaf
        a.grad = None
        first.backward()
        return flags, first.tolist(), a.grad

    agree(case)


def test_a_constant_retained_gradient_does_not_require_grad(recwarn):
    def case(t):
        a = leaf(t, 3.0)
        b = a * a
        b.retain_grad()
        b.backward(create_graph=True)
        return b.grad.requires_grad, b.grad.tolist(), a.grad.requires_grad, a.grad.tolist()

    agree(case)


def test_gradients_add_up_under_create_graph(recwarn):
    def case(t):
        a = leaf(t, 3.0)
        (a * a).backward(create_graph=True)
        first = a.grad
        (a * a).backward(create_graph=True)
        return first.tolist(), a.grad.tolist(), first is a.grad, first.requires_grad, a.grad.requires_grad

    agree(case)


def test_backward_with_create_graph_warns_once_a_process(monkeypatch):
    monkeypatch.setattr(warnings_of_ops, "WARNED_ONCE", set())
    x = gradwire.tensor([3.0], requires_grad=True)
    with pytest.warns(UserWarning, match="reference cycle") as caught:
        [(x * x).backward(create_graph=True) for _ in range(2)]
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_autograd_grad_with_create_graph_does_not_warn():
    def case(t):
        x = leaf(t, 3.0)
        t.autograd.grad(x * x, x, create_graph=True)

    warn(case)


def test_retain_graph_defaults_to_create_graph(recwarn):
    def case(t):
        a = leaf(t, 3.0)
        b = a * a
        b.backward(create_graph=True)
        b.backward(create_graph=True)
        return a.grad.tolist()

    agree(case)


def test_grad_returns_a_tuple_and_touches_no_leaf():
    def case(t):
        x, w = leaf(t), leaf(t, 4.0, 5.0, 6.0)
        found = t.autograd.grad((x * w).sum(), [x, w])
        return type(found).__name__, found, x.grad, w.grad

    agree(case)


def test_grad_works_for_non_leaves():
    def case(t):
        x = leaf(t)
        y = x * x
        z = (y * y).sum()
        return t.autograd.grad(z, y, retain_graph=True), t.autograd.grad(z, [x, y])

    agree(case)


def test_grad_gives_a_retaining_non_leaf_on_the_way_its_gradient():
    def case(t):
        x = leaf(t)
        y = x * x
        y.retain_grad()
        t.autograd.grad((y * y).sum(), x)
        return y.grad, x.grad

    agree(case)


def test_grad_takes_gradients_of_its_outputs():
    def case(t):
        x = leaf(t)
        return t.autograd.grad([x * x, x * 2.0], [x], [t.ones(3), t.tensor([1.0, 2.0, 3.0])])

    agree(case)


def test_grad_refuses_an_unused_input():
    refuse(
        lambda t: t.autograd.grad(leaf(t).sum(), [leaf(t)]), RuntimeError, "appears to not have been used in the graph"
    )


def test_grad_refuses_an_input_that_requires_none():
    refuse(lambda t: t.autograd.grad(leaf(t).sum(), [t.ones(1)]), RuntimeError, "does not require grad")


def test_grad_refuses_no_inputs():
    refuse(lambda t: t.autograd.grad(leaf(t).sum(), []), RuntimeError, "cannot be empty")


def test_an_unused_input_yields_none_or_zeros_where_allowed():
    def case(t):
        x, unused = leaf(t), leaf(t)
        y = (x * x).sum()
        return (
            t.autograd.grad(y, [x, unused], allow_unused=True, retain_graph=True),
            t.autograd.grad(y, [x, unused], materialize_grads=True),
        )

    agree(case)


def test_grad_frees_the_graph_too():
    def case(t):
        x = leaf(t)
        y = (x * x).sum()
        t.autograd.grad(y, x)
        t.autograd.grad(y, x)

    refuse(case, RuntimeError, SECOND_TIME)


def test_backward_with_inputs_accumulates_into_those_only():
    def case(t):
        x, w = leaf(t), leaf(t, 4.0, 5.0, 6.0)
        y = x * w
        (y * y).sum().backward(inputs=[w])
        return x.grad, w.grad

    agree(case)
    refuse(lambda t: leaf(t).sum().backward(inputs=[]), RuntimeError, "cannot be empty")


def test_a_non_leaf_among_the_inputs_retains_its_gradient_and_one_named_twice_counts_once():
    def case(t):
        x = leaf(t)
        y = x * x
        (y * 3.0).sum().backward(inputs=[x, y, x])
        found = [x.grad.clone(), y.grad, y.retains_grad, x.retains_grad]
        z = (x * 2.0).sum()
        z.backward(inputs=[x])
        return [*found, x.grad]

    agree(case)


def test_the_gradients_of_a_recorded_pass_are_tensors_of_their_own():
    def case(t):
        x, w, seed = leaf(t), leaf(t, 4.0, 5.0, 6.0), t.ones(3)
        y = x + w
        y.retain_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.backward(seed, create_graph=True)
            (x * x).sum().backward(create_graph=True)
            first = (w**3).sum()
            w.grad = None
            first.backward(create_graph=True)
        y.grad.mul_(5.0)
        return x.grad.requires_grad, w.grad, y.grad, seed

    agree(case)


def test_a_view_made_under_no_grad_receives_no_gradient():
    def case(t):
        x, w = leaf(t), leaf(t, 4.0, 5.0)
        with t.no_grad():
            view = x[0:2]
        (view * w).sum().backward()
        return view.requires_grad, view.is_leaf, view.grad, x.grad, w.grad

    agree(case)


def test_backward_takes_several_roots():
    def case(t):
        x = leaf(t)
        t.autograd.backward([x.sum(), x * x], [None, t.tensor([1.0, 2.0, 3.0])])
        return x.grad

    agree(case)


def test_derivatives_of_any_order():
    def case(t):
        a = leaf(t, 3.0)
        value = a**3
        seen = []
        for _ in range(3):
            (value,) = t.autograd.grad(value, a, create_graph=True)
            seen.append(value.tolist())
        return seen

    agree(case)


def test_a_differential_equations_residual_trains():
    def case(t):
        x = t.tensor([[0.1], [0.5], [0.9]], requires_grad=True)
        w = t.tensor([[1.5]], requires_grad=True)
        u = t.sin(x @ w)
        (du,) = t.autograd.grad(u, x, t.ones_like(u), create_graph=True)
        (ddu,) = t.autograd.grad(du, x, t.ones_like(du), create_graph=True)
        loss = ((ddu + u) ** 2).mean()
        loss.backward()
        return du, loss.item(), w.grad

    agree(case)


def test_no_recursion_in_a_chain_of_100_000_ops(session):
    if session.every_call_waits:
        pytest.skip("a round trip per op")
    x = gradwire.tensor([1.0], requires_grad=True)
    y = x
    for _ in range(50_000):
        y = y * 1.0
        y = y + 0.0
    y.sum().backward()
    assert x.grad.tolist() == [1.0]
    del y
    session.sync()


def test_a_diamond_adds_both_ways():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        (y * y + y.exp() * x).sum().backward()
        return x.grad

    agree(case)


def test_complex_outputs_need_a_gradient():
    def case(t):
        x = t.tensor([1 + 2j], requires_grad=True)
        (x * x).backward()

    refuse(case, RuntimeError, "grad can be implicitly created only for real scalar outputs")


def test_the_oracle_is_pytorch():
    assert torch.__name__ == "torch"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("relu", ()),
        ("leaky_relu", ()),
        ("hardtanh", ()),
        ("relu6", ()),
        ("threshold", (0.5, 0.0)),
        ("hardshrink", ()),
        ("softshrink", ()),
    ],
)
def test_second_derivative_of_a_piecewise_linear_function_is_zero_and_not_absent(name, arguments):
    def case(t):
        x = t.tensor([-2.0, 0.25, 3.0], requires_grad=True)
        (first,) = t.autograd.grad(getattr(t.nn.functional, name)(x, *arguments).sum(), x, create_graph=True)
        (second,) = t.autograd.grad(first.sum(), x)
        return first.detach(), first.requires_grad, second

    agree(case)
