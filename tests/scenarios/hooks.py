"""Hooks of tensors and nodes: when they are called, their arguments, and the effect of their results."""

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused, square, square_function


def a_hook_sees_the_gradient(torch):
    x, seen = leaf(torch), []
    x.register_hook(lambda g: seen.append((g.tolist(), g.requires_grad)))
    (x * x).sum().backward()
    return seen, x.grad


def a_hook_replaces_the_gradient_of_a_leaf_before_it_accumulates(torch):
    x = leaf(torch)
    x.grad = torch.ones(3)
    x.register_hook(lambda g: g * 10)
    (x * x).sum().backward()
    return x.grad


def a_hook_replaces_the_gradient_of_a_non_leaf(torch):
    x = leaf(torch)
    y = x * 2
    y.register_hook(lambda g: g + 1)
    (y * y).sum().backward()
    return x.grad


def several_hooks_run_in_order_each_with_what_the_one_before_made(torch):
    x, seen = leaf(torch), []
    x.register_hook(lambda g: (seen.append(g.tolist()), g * 2)[1])
    x.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: (seen.append(g.tolist()), g + 1)[1])
    x.sum().backward()
    return seen, x.grad


def a_hook_is_called_once_with_the_sum(torch):
    x, seen = leaf(torch), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y * y + y.exp() + y).sum().backward()
    return seen


def a_removed_hook_is_called_no_more(torch):
    x, seen = leaf(torch), []
    handle = x.register_hook(lambda g: seen.append(1))
    x.sum().backward()
    handle.remove()
    handle.remove()
    x.sum().backward()
    with x.register_hook(lambda g: seen.append(2)):
        x.sum().backward()
    x.sum().backward()
    return seen, x.grad


def a_hook_that_another_removes_is_called_once_more(torch):
    x, seen, handles = leaf(torch), [], []
    x.register_hook(lambda g: (seen.append("a"), handles[0].remove())[0])
    handles.append(x.register_hook(lambda g: seen.append("b")))
    x.sum().backward()
    x.sum().backward()
    return seen


def a_hook_that_removes_itself(torch):
    x, seen, handles = leaf(torch), [], []
    handles.append(x.register_hook(lambda g: (seen.append("a"), handles[0].remove())[0]))
    x.sum().backward()
    x.sum().backward()
    return seen


def a_hook_added_inside_a_hook_waits_for_the_next_backward(torch):
    x, seen = leaf(torch), []
    handle = x.register_hook(lambda g: (x.register_hook(lambda g: seen.append("new")), None)[1])
    x.sum().backward()
    handle.remove()
    x.sum().backward()
    return seen


def retained_gradients_are_those_after_the_hooks(torch):
    x = leaf(torch)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    return y.grad, x.grad


def hooks_stay_with_the_values_of_before_an_in_place_change(torch):
    x, seen = leaf(torch), []
    y = x * 2
    y.register_hook(lambda g: seen.append(("old", g.tolist())))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("new", g.tolist())))
    y.sum().backward()
    return seen, x.grad


def hooks_on_a_view_and_its_base(torch):
    x, seen = square(torch), []
    y = x * 2
    row = y[1]
    row.register_hook(lambda g: seen.append(("row", g.tolist())))
    y.register_hook(lambda g: (seen.append(("base", g.tolist())), g * 2)[1])
    (row * 3).sum().backward()
    return seen, x.grad


def hooks_on_a_view_that_was_written_to(torch):
    x, seen = square(torch), []
    y = x * 2
    row = y[1]
    row.mul_(5)
    row.register_hook(lambda g: seen.append(("row", g.tolist())))
    y.register_hook(lambda g: seen.append(("base", g.tolist())))
    (y.sum() + row.sum()).backward()
    return seen, x.grad


def hooks_with_retain_graph_run_every_time(torch):
    x, seen = leaf(torch), []
    y = x * x
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return seen, x.grad


def hooks_with_create_graph_can_be_differentiated(torch):
    x, modes = leaf(torch), []
    y = x * x
    y.register_hook(lambda g: (modes.append((torch.is_grad_enabled(), g.requires_grad)), g * x)[1])
    (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    (gg,) = torch.autograd.grad(g.sum(), x)
    return modes, g.detach(), gg


def grad_mode_is_off_in_hooks_without_create_graph(torch):
    x, modes = leaf(torch), []
    x.register_hook(lambda g: modes.append((torch.is_grad_enabled(), (g * x).requires_grad)))
    x.sum().backward()
    return modes, torch.is_grad_enabled()


def grad_runs_hooks_before_it_answers(torch):
    x = leaf(torch)
    x.register_hook(lambda g: g * 10)
    return torch.autograd.grad((x * 2).sum(), x)


def grad_of_a_tensor_on_the_way_answers_what_came_before_its_hook(torch):
    x = leaf(torch)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return torch.autograd.grad((y * 3 + y).sum(), [y, x])


def hooks_where_no_gradient_is_needed_are_not_called(torch):
    x, w, seen = leaf(torch), leaf(torch, 4.0, 5.0, 6.0), []
    y = x * w
    w.register_hook(lambda g: seen.append("w"))
    y.register_hook(lambda g: seen.append("y"))
    y.sum().backward(inputs=[x])
    return seen, x.grad, w.grad


def hooks_that_use_other_tensors(torch):
    x, scale = leaf(torch), torch.tensor([1.0, 0.0, 2.0])
    norms = []
    x.register_hook(lambda g: (norms.append(g.norm().item()), torch.where(scale > 0, g, -g) * scale)[1])
    (x**3).sum().backward()
    return norms, x.grad


def a_backward_inside_a_hook(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)

    def hook(g):
        with torch.enable_grad():
            (w * g.detach()).sum().backward()

    x.register_hook(hook)
    (x * x).sum().backward()
    return x.grad, w.grad


def hooks_inside_hooks(torch):
    x, w, seen = leaf(torch), leaf(torch, 4.0, 5.0, 6.0), []
    w.register_hook(lambda g: (seen.append(g.tolist()), g * 2)[1])

    def hook(g):
        with torch.enable_grad():
            (inner,) = torch.autograd.grad((w * w).sum(), w)
        return g * inner

    x.register_hook(hook)
    x.sum().backward()
    return seen, x.grad, w.grad


def reading_values_in_a_hook(torch):
    x, seen = leaf(torch), []
    x.register_hook(lambda g: seen.append(float(g.sum())) or (g if g.sum() > 100 else g * 2))
    (x * x).sum().backward()
    return seen, x.grad


def post_accumulate_hooks_see_the_gradient(torch):
    x, seen = leaf(torch), []
    x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.tolist())))
    (x * x).sum().backward()
    (x * x).sum().backward()
    return seen, x.grad


@over_the_wire_only(Client.MODULES)
def an_optimizer_in_backward(torch):
    layers = [torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)]
    for layer in layers:
        for place, p in enumerate(layer.parameters()):
            with torch.no_grad():
                p.copy_(torch.arange(p.numel()).reshape(p.shape) * 0.1 + place)

    def step(p):
        with torch.no_grad():
            p.sub_(0.1 * p.grad)
        p.grad = None

    for layer in layers:
        for p in layer.parameters():
            p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        out = layers[1](layers[0](torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tanh())
        (out**2).mean().backward()
    parameters = [p for layer in layers for p in layer.parameters()]
    return [p.detach() for p in parameters], [p.grad for p in parameters]


def the_order_of_all_kinds_of_hooks(torch):
    x, seen = leaf(torch), []
    y = x * 2
    y.grad_fn.register_prehook(lambda gs: seen.append("before"))
    y.register_hook(lambda g: seen.append("tensor"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("after"))
    y.register_hook(lambda g: seen.append("tensor again"))
    x.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    x.register_hook(lambda g: seen.append("leaf"))
    y.sum().backward()
    return seen


def hooks_of_nodes_see_and_replace_gradients(torch):
    x, seen = leaf(torch), []
    y = x * 2
    y.grad_fn.register_prehook(lambda gs: (seen.append([g.tolist() for g in gs]), (gs[0] * 2,))[1])
    y.grad_fn.register_hook(lambda gi, go: (seen.append((gi[0].tolist(), go[0].tolist())), (gi[0] + 1, *gi[1:]))[1])
    y.sum().backward()
    return seen, x.grad


def hooks_of_a_node_with_several_outputs(torch):
    x, seen = square(torch), []
    first, *_ = x.unbind(0)
    first.grad_fn.register_prehook(lambda gs: seen.append([None if g is None else g.tolist() for g in gs]))
    first.grad_fn.register_hook(lambda gi, go: seen.append((len(gi), len(go))))
    first.sum().backward()
    return seen


def hooks_of_nodes_further_back(torch):
    x, seen = leaf(torch), []
    y = (x * 2).exp().sum()
    node = y.grad_fn.next_functions[0][0]
    handle = node.register_hook(lambda gi, go: (seen.append(node.name()), (gi[0] * 2,))[1])
    y.backward(retain_graph=True)
    handle.remove()
    y.backward()
    return seen, x.grad


def hooks_of_a_leafs_node(torch):
    x, seen = leaf(torch), []
    node = x.expand_as(x).grad_fn.next_functions[0][0]
    node.register_prehook(lambda gs: (gs[0] * 2,))
    node.register_hook(lambda gi, go: seen.append((len(gi), go[0].tolist(), x.grad.tolist())))
    (x * x).sum().backward()
    return seen, x.grad


def a_node_hook_of_constants_sees_none(torch):
    x, c, seen = leaf(torch), torch.tensor([1.0, 2.0, 3.0]), []
    y = x * c
    y.grad_fn.register_hook(lambda gi, go: seen.append([None if g is None else g.tolist() for g in gi]))
    y.sum().backward()
    return seen


def what_a_hook_raises_comes_out_and_what_arrived_before_stays(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 2

    def hook(g):
        raise KeyError("mine")

    handle = y.register_hook(hook)
    loss = (w * y).sum()
    try:
        loss.backward(retain_graph=True)
    except KeyError as error:
        told = str(error)
    before = x.grad, w.grad.tolist()
    handle.remove()
    loss.backward()
    return told, before, x.grad, w.grad


def a_hook_of_any_kind_sees_the_gradients_that_have_arrived(torch):
    leaves, seen = [leaf(torch, number, 2.0) for number in (1.0, 3.0, 5.0)], []
    a, b, c = leaves
    y = a * b
    y.retain_grad()
    z = square_function(torch).apply(y)

    def look(*_):
        seen.append([None if each.grad is None else each.grad.tolist() for each in (*leaves, y)])

    y.register_hook(look)
    a.register_post_accumulate_grad_hook(look)
    b.register_hook(look)
    z.grad_fn.register_prehook(look)
    z.grad_fn.register_hook(look)
    product = z * c
    product.grad_fn.next_functions[1][0].register_hook(look)
    for _ in range(2):
        product.sum().backward(retain_graph=True)
    return seen, [each.grad for each in leaves]


def a_hook_assigns_a_value_derived_from_what_arrived(torch):
    a, b = leaf(torch, 1.0, 2.0), leaf(torch, 3.0, 4.0)
    b.grad = torch.ones(2)

    def halve(_):
        b.grad = b.grad * 0.5

    a.register_hook(halve)
    (a * (b * 2) + b * b).sum().backward()
    return a.grad, b.grad


def a_hook_clears_what_arrived_and_the_next_sees_none(torch):
    x, seen = leaf(torch), []

    def clear(p):
        seen.append(p.grad.tolist())
        p.grad = None

    x.register_post_accumulate_grad_hook(clear)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    for _ in range(2):
        (x * x).sum().backward()
    return seen, x.grad


def gradients_of_many_leaves_arrive_in_pytorchs_order(torch):
    orders = []
    for count in range(2, 12):
        leaves, order = [leaf(torch, 1.0, 2.0) for _ in range(count)], []
        for number, each in enumerate(leaves):
            each.register_hook(lambda g, number=number, order=order: order.append(number))
        given = [each * 2 if number % 3 else each for number, each in enumerate(leaves)]
        torch.stack(given).sum().backward()
        torch.stack(leaves).sum().backward(inputs=leaves[::2] + leaves[1:4])
        torch.autograd.grad(torch.stack(leaves).sum(), leaves[: count // 2])
        orders.append(order)
    return orders


def a_hook_that_another_adds_to_a_leafs_node_is_called_at_once(torch):
    x, seen = leaf(torch), []
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    x.register_post_accumulate_grad_hook(lambda p: (node.register_hook(lambda *_: seen.append("new")), None)[1])
    for _ in range(2):
        y.sum().backward(retain_graph=True)
        seen.append("end")
    return seen


def a_node_hook_keeps_a_gradient_that_another_hook_holds(torch):
    x, held, kept = leaf(torch), [], []
    x.register_hook(lambda g: held.append(g))
    node = (x * 2).grad_fn.next_functions[0][0]
    node.register_hook(lambda _, given: kept.append(given[0]))
    for _ in range(3):
        (x * 3).sum().backward()
    return held, kept, x.grad


def a_refusal_inside_a_hook_comes_out(torch):
    x = leaf(torch)
    handle = x.register_hook(lambda g: g.reshape(7))
    try:
        (x * 2).sum().backward()
    except RuntimeError as error:
        told = "invalid for input of size" in str(error)
    handle.remove()
    (x * 3).sum().backward()
    return told, x.grad


@over_the_wire_only(Client.CHECKS)
@refused(TypeError, "expected Variable, but hook returned 'int'")
def a_hook_that_returns_no_tensor(torch):
    x = leaf(torch)
    x.register_hook(lambda g: 3)
    x.sum().backward()


@refused(RuntimeError, "has changed the size of value")
def a_hook_that_changes_the_size(torch):
    x = leaf(torch)
    x.register_hook(lambda g: g[:1])
    x.sum().backward()


@refused(RuntimeError, "has changed the type of value")
def a_hook_that_changes_the_dtype(torch):
    x = leaf(torch)
    x.register_hook(lambda g: g.double())
    x.sum().backward()


@refused(RuntimeError, r"incorrect number of values \(got 2, but expected 1\)")
def a_prehook_that_returns_too_many(torch):
    y = leaf(torch) * 2
    y.grad_fn.register_prehook(lambda gs: (gs[0], gs[0]))
    y.sum().backward()


@refused(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
def a_hook_on_a_constant(torch):
    torch.ones(3).register_hook(lambda g: g)


@refused(RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors")
def a_post_accumulate_hook_on_a_non_leaf(torch):
    (leaf(torch) * 2).register_post_accumulate_grad_hook(lambda p: None)


@over_the_wire_only(Client.CHECKS)
@refused(TypeError, "expected Variable, but hook returned 'int'")
def a_post_accumulate_hook_that_returns_something(torch):
    x = leaf(torch)
    x.register_post_accumulate_grad_hook(lambda p: 3)
    x.sum().backward()


def a_hook_that_changes_a_leafs_gradient_changes_no_other_leafs(torch):
    a, b, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0), leaf(torch, 7.0, 8.0, 9.0)

    def scale(parameter):
        parameter.grad.mul_(100)

    a.register_post_accumulate_grad_hook(scale)
    b.register_post_accumulate_grad_hook(scale)
    ((a + b) * w).sum().backward()
    return a.grad, b.grad, w.grad


def a_hook_may_change_a_gradient_without_dimensions_in_place(torch):
    x = torch.tensor(1.0, requires_grad=True)

    def scale(g):
        g.mul_(5)

    x.register_hook(scale)
    y = x * 2
    y.register_hook(scale)
    (y * 3).backward()
    return x.grad


def a_hook_may_register_another_on_a_sibling_output(torch):
    x = leaf(torch, 1.0, 2.0)
    first, second = (x * 2).unbind()
    seen = []

    def register(g):
        second.register_hook(lambda g: seen.append(g.item()))

    first.register_hook(register)
    (first * second).backward(retain_graph=True)
    at_first = list(seen)
    (first * second).backward()
    return at_first, len(seen), x.grad


def a_gradient_of_a_sum_along_one_may_be_changed_in_place(torch):
    x, y = torch.ones(1, 3, requires_grad=True), torch.ones(1, 1, requires_grad=True)
    (x.sum(0) * 2).backward(torch.ones(3))
    y.mean().backward()
    x.grad.add_(1)
    y.grad.zero_()
    return x.grad, y.grad


def hooks_of_a_view_do_not_run_once_it_was_changed_in_place(torch):
    base = leaf(torch)
    copy, ran = base.clone(), []
    view = copy[:1]
    view.register_hook(lambda gradient: ran.append("before the change"))
    view.mul_(3)
    view.register_hook(lambda gradient: ran.append(gradient.clone()))
    (view.sum() * 2 + (copy * copy).sum()).backward()
    return ran, base.grad


def hooks_of_a_views_node_do_not_run_once_it_was_changed_in_place(torch):
    base = leaf(torch)
    copy, ran = base.clone(), []
    view, other = copy[:1], copy[:2]
    view.grad_fn.register_hook(lambda *gradients: ran.append("after"))
    view.grad_fn.register_prehook(lambda gradients: ran.append("before"))
    other.register_hook(lambda gradient: ran.append("of another view"))
    view.exp_()
    (copy.sum() + view.sum() + other.sum()).backward()
    return ran, base.grad


def _described(node):
    name = type(node).__name__
    return name if node is None else [name, [_described(each) for each, _ in node.next_functions]]


def the_first_gradient_of_a_leaf_is_a_copy_into_new_memory(torch):
    x = leaf(torch)
    (x * x).sum().backward(create_graph=True)
    return _described(x.grad.grad_fn)[0], [each is None for each, _ in x.grad.grad_fn.next_functions]


def hooks_of_a_functions_node_get_none_for_what_is_no_tensor(torch):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, y):
            ctx.factor = factor
            return factor * x * 2, factor, factor * y * 2

        @staticmethod
        def backward(ctx, first, nothing, second):
            return ctx.factor * first * 2, None, ctx.factor * second * 2

    x, y, seen = leaf(torch), leaf(torch), []

    def before(gradients):
        seen.append([each is None for each in gradients])
        return gradients[0] * 2, None, gradients[2] * 3

    one, _, two = Doubled.apply(x, 3, y)
    one.grad_fn.register_prehook(before)
    one.grad_fn.register_hook(lambda inputs, outputs: seen.append([each is None for each in outputs]))
    (one + two).sum().backward()
    return seen, x.grad, y.grad
