"""backward and grad: arguments, results and refusals."""

import contextlib

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


def backward_with_a_gradient(torch):
    x = leaf(torch)
    (x * x).backward(torch.tensor([1.0, 10.0, 100.0]))
    return x.grad


def several_roots(torch):
    x = leaf(torch)
    y, z = x * 2, (x**2).sum()
    torch.autograd.backward([y, z], [torch.ones(3), None])
    return x.grad


def roots_that_share_nodes(torch):
    x = leaf(torch)
    h = x.exp()
    torch.autograd.backward([h.sum(), (h * 2).sum(), h.sum()], retain_graph=True)
    first = x.grad.clone()
    torch.autograd.backward((h.sum(), h.prod()))
    return first, x.grad


def one_root_that_another_depends_on(torch):
    x = leaf(torch)
    h = x * 2
    y = (h * h).sum()
    torch.autograd.backward([y, h], [None, torch.ones(3)])
    return x.grad


def the_same_root_twice(torch):
    x = leaf(torch)
    y = (x * x).sum()
    torch.autograd.backward([y, y])
    return x.grad


def backward_with_inputs(torch):
    a, b = leaf(torch), leaf(torch)
    (a * b).sum().backward(inputs=[a])
    return a.grad, b.grad


def backward_with_a_single_input(torch):
    a, b = leaf(torch), leaf(torch)
    (a * b).sum().backward(inputs=b)
    return a.grad, b.grad


def backward_with_a_non_leaf_input(torch):
    a = leaf(torch)
    h = a * 2
    (h * h).sum().backward(inputs=[h, a])
    return h.grad, a.grad, h.retains_grad


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "`inputs` argument to `backward\\(\\)` cannot be empty")
def backward_refuses_no_inputs(torch):
    leaf(torch).sum().backward(inputs=[])


def backward_accumulates(torch):
    x = leaf(torch)
    y = (x * x).sum()
    seen = []
    for _ in range(3):
        y.backward(retain_graph=True)
        seen.append(x.grad.clone())
    return seen


@refused(RuntimeError, "Trying to backward through the graph a second time")
def a_second_backward_is_refused(torch):
    y = (leaf(torch) ** 2).sum()
    y.backward()
    y.backward()


def a_second_backward_where_nothing_was_saved(torch):
    x = leaf(torch)
    y = (x + x).sum()
    y.backward()
    y.backward()
    return x.grad


@refused(RuntimeError, "Trying to backward through the graph a second time")
def a_shared_part_is_freed_too(torch):
    h = leaf(torch).exp()
    (h * 2).sum().backward()
    (h * 3).sum().backward()


def retain_graph_false_with_create_graph(torch):
    x = leaf(torch)
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True, retain_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return g, h


@refused(RuntimeError, "grad can be implicitly created only for scalar outputs")
def a_vector_needs_a_gradient(torch):
    (leaf(torch) * 2).backward()


def a_vector_of_one_needs_none(torch):
    x = leaf(torch, 2.0)
    (x * x).backward()
    return x.grad


@refused(RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn")
def a_constant_is_refused(torch):
    torch.ones(()).backward()


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "element 1 of tensors does not require grad and does not have a grad_fn")
def a_constant_among_roots_is_refused(torch):
    torch.autograd.backward([leaf(torch).sum(), torch.ones(())])


@refused(RuntimeError, "Mismatch in shape: grad_output\\[0\\] has a shape of")
def a_gradient_of_another_shape_is_refused(torch):
    (leaf(torch) * 2).backward(torch.ones(4))


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "got 2 tensors and 1 gradients")
def too_few_gradients_are_refused(torch):
    x = leaf(torch)
    torch.autograd.backward([x.sum(), x.sum()], [torch.ones(())])


def backward_of_a_leaf(torch):
    x = leaf(torch, 3.0)
    x.backward()
    x.backward()
    return x.grad


def grad_touches_no_leaf(torch):
    x = leaf(torch)
    (g,) = torch.autograd.grad((x * x).sum(), x)
    return g, x.grad, g.requires_grad


def grad_by_leaves_and_non_leaves(torch):
    x = leaf(torch)
    h = x * 2
    y = (h * h).sum()
    return torch.autograd.grad(y, [x, h, y])


def grad_by_the_same_input_twice(torch):
    x = leaf(torch)
    one, two = torch.autograd.grad((x * x).sum(), [x, x])
    return one, two


def grad_by_itself(torch):
    x = leaf(torch, 3.0)
    return torch.autograd.grad(x, x)


@refused(RuntimeError, "appears to not have been used in the graph. Set allow_unused=True")
def grad_refuses_an_unused_input(torch):
    x, y = leaf(torch), leaf(torch)
    torch.autograd.grad(x.sum(), [x, y])


def grad_allows_an_unused_input(torch):
    x, y = leaf(torch), leaf(torch)
    return torch.autograd.grad(x.sum(), [x, y], allow_unused=True)


def grad_materializes_zeros(torch):
    x, y = leaf(torch), leaf(torch)
    return torch.autograd.grad(x.sum(), [x, y], materialize_grads=True)


@over_the_wire_only(Client.CHECKS)
@refused(ValueError, "Expected allow_unused to be True or not passed when materialize_grads=True")
def grad_refuses_contrary_wishes(torch):
    x = leaf(torch)
    torch.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)


@refused(RuntimeError, "One of the differentiated Tensors does not require grad")
def grad_refuses_a_constant_input(torch):
    x, c = leaf(torch), torch.ones(3)
    torch.autograd.grad((x * c).sum(), c)


def grad_of_several_outputs(torch):
    x = leaf(torch)
    return torch.autograd.grad([x.sum(), x * x], [x], [None, torch.tensor([1.0, 2.0, 3.0])])


@over_the_wire_only(Client.BATCHES)
def grad_batched(torch):
    x = leaf(torch)
    y = x**2
    return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)


@over_the_wire_only(Client.BATCHES)
def grad_batched_with_a_graph(torch):
    x = leaf(torch)
    (rows,) = torch.autograd.grad(x**3, x, torch.eye(3), is_grads_batched=True, create_graph=True)
    return rows.detach(), rows.requires_grad, torch.autograd.grad(rows.sum(), x)


def grad_fills_retained_gradients_on_the_way(torch):
    x = leaf(torch)
    h = x * 2
    h.retain_grad()
    (g,) = torch.autograd.grad((h * h).sum(), x)
    return g, h.grad, x.grad


def any_order(torch):
    x = leaf(torch, 3.0)
    y = x**5
    seen = []
    for _ in range(5):
        (y,) = torch.autograd.grad(y, x, create_graph=True)
        seen.append(y)
    return seen


def create_graph_accumulates_a_graph(torch):
    x = leaf(torch)
    (x**3).sum().backward(create_graph=True)
    g = x.grad
    (g * g).sum().backward()
    return g.requires_grad, x.grad


def gradient_penalty(torch):
    x, w = leaf(torch), leaf(torch, 0.5, -0.5, 2.0)
    y = (x * w).tanh().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    ((g.norm() - 1) ** 2).backward()
    return x.grad, w.grad


def next_functions_walk_to_the_leaves(torch):
    x, y = leaf(torch), leaf(torch)
    z = (x * y + x.exp()).sum()

    def names(node):
        return (node.name(), [None if each is None else (names(each), place) for each, place in node.next_functions])

    return names(z.grad_fn)


def accumulate_grad_knows_its_variable(torch):
    x = leaf(torch)
    node = (x * 2).grad_fn.next_functions[0][0]
    return type(node).__name__, node.name(), node.variable is x, node.next_functions


def constants_have_no_next_function(torch):
    node = (leaf(torch) * torch.ones(3)).grad_fn
    return [each is None for each, _ in node.next_functions]


def one_of_several_outputs_is_used(torch):
    x = leaf(torch, 3.0, 1.0, 2.0)
    values, _ = x.sort()
    a, _, c = x.unbind()
    top, _ = x.topk(2)
    (a * 2 + c + values[0] + top[1]).backward()
    return x.grad


def none_of_the_differentiable_outputs_is_used(torch):
    x = leaf(torch, 3.0, 1.0, 2.0)
    _, places = x.sort()
    return places.requires_grad, places.grad_fn is None, places


def a_leaf_used_many_ways(torch):
    x = leaf(torch)
    total = sum((x * i).sum() for i in range(20)) + x.exp().sum() - (x @ x)
    total.backward()
    return x.grad


def requires_grad_off_after_the_forward(torch):
    a, b = leaf(torch), leaf(torch)
    y = (a * b).sum()
    b.requires_grad_(False)
    y.backward()
    return a.grad, b.grad


def grad_none_between_passes(torch):
    x = leaf(torch)
    (x * 2).sum().backward()
    first = x.grad
    x.grad = None
    (x * 3).sum().backward()
    return first, x.grad, first is x.grad


def backward_from_inside_no_grad(torch):
    x = leaf(torch)
    y = (x * x).sum()
    with torch.no_grad():
        y.backward()
    return x.grad


def grad_of_a_real_part(torch):
    z = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    z.abs().sum().backward()
    return z.grad


def higher_order_through_shared_parts(torch):
    x = leaf(torch)
    h = x.sin()
    y = (h * h * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (k,) = torch.autograd.grad((g * h).sum(), x)
    return g, k


def a_failed_pass_leaves_the_graph_usable(torch):
    x = leaf(torch)
    y = x * x
    with contextlib.suppress(RuntimeError):
        y.backward()
    y.sum().backward()
    return x.grad
