"""Gradient edges, hooks of several tensors, and missing gradients."""

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


def a_gradient_is_asked_for_where_a_tensor_was(torch):
    x = leaf(torch).clone()
    before = torch.autograd.graph.get_gradient_edge(x)
    x *= 2
    return torch.autograd.grad((x * 3).sum(), (before, x))


def a_gradient_begins_where_a_tensor_was(torch):
    x = leaf(torch)
    middle = x.sin()
    edge = torch.autograd.graph.get_gradient_edge(middle)
    arrived = torch.autograd.grad((middle * middle).sum(), edge)
    return torch.autograd.grad(edge, x, grad_outputs=arrived)


def the_edge_of_a_leaf_is_the_leaf(torch):
    x = leaf(torch)
    edge = torch.autograd.graph.get_gradient_edge(x)
    return torch.autograd.grad((x * x).sum(), edge), edge.output_nr, type(edge.node).__name__


@over_the_wire_only(Client.EDGES)
def an_edge_of_a_node_and_an_output(torch):
    parts = (leaf(torch) * 2).split(1)
    edge = torch.autograd.graph.GradientEdge(parts[1].grad_fn, parts[1].output_nr)
    return parts[1].output_nr, torch.autograd.grad((parts[1] * parts[2]).sum(), edge)


def backward_towards_an_edge_leaves_other_tensors_alone(torch):
    x = leaf(torch)
    y = x.clone()
    edge = torch.autograd.graph.get_gradient_edge(y)
    torch.autograd.backward((y * y).sum(), inputs=(edge,))
    return x.grad


@over_the_wire_only(Client.EDGES)
@refused(RuntimeError, "materialize_grads cannot be used when the given input is a GradientEdge")
def an_edge_that_was_not_used_has_no_zeros(torch):
    x, y = leaf(torch).clone(), leaf(torch).clone()
    edge = torch.autograd.graph.get_gradient_edge(y)
    torch.autograd.grad(x.sum(), (x, edge), allow_unused=True, materialize_grads=True)


@refused(RuntimeError, "does not require gradients")
def a_plain_tensor_has_no_edge(torch):
    torch.autograd.graph.get_gradient_edge(torch.ones(3))


def zeros_for_what_was_not_used_can_be_differentiated(torch):
    x, a = leaf(torch), leaf(torch)
    slope = torch.autograd.grad((x * a).sum(), x, create_graph=True)[0]
    zeros = torch.autograd.grad(slope.sum(), x, create_graph=True, allow_unused=True, materialize_grads=True)[0]
    return zeros, torch.autograd.grad(zeros.sum(), x, materialize_grads=True)


@over_the_wire_only(Client.MULTI_GRAD)
def a_hook_of_several_tensors_gets_all_gradients_at_once(torch):
    x, y, z = leaf(torch), leaf(torch), leaf(torch)
    seen = []

    def note(gradients):
        seen.append([None if each is None else each.tolist() for each in gradients])

    handle = torch.autograd.graph.register_multi_grad_hook((x, y, z), note)
    (x * y).sum().backward()
    (x * z).sum().backward(inputs=(z,))
    handle.remove()
    (x * z).sum().backward()
    return seen


@over_the_wire_only(Client.MULTI_GRAD)
def a_hook_of_several_tensors_runs_when_the_last_gradient_is_there(torch):
    x, y, unused = leaf(torch), leaf(torch), leaf(torch)
    middle = x * 2
    parts = (middle * y).unbind()
    seen = []

    def note(name):
        def noted(gradients):
            grads = [None if each.grad is None else each.grad.tolist() for each in (x, y)]
            seen.append((name, [None if each is None else each.tolist() for each in gradients], grads))

        return noted

    register = torch.autograd.graph.register_multi_grad_hook
    register((x, y, unused), note("leaves"))
    register((middle, y), note("mixed"))
    register((parts[0], parts[1], middle), note("parts"))
    register((middle, (unused * 2), y), note("unreached"))
    register((y, y), note("twice"))
    for options in ({}, {"inputs": [x]}, {"inputs": [middle]}):
        (parts[0] * 1).backward(retain_graph=True, **options)
        (parts[0] + parts[2]).backward(retain_graph=True, **options)
    return seen, x.grad, y.grad


@over_the_wire_only(Client.MULTI_GRAD)
def a_hook_of_several_tensors_that_raises_leaves_later_gradients_out(torch):
    x = leaf(torch)
    y = x * 1

    def hook(gradients):
        raise KeyError

    handle = torch.autograd.graph.register_multi_grad_hook((y,), hook)
    try:
        (y * 3).sum().backward()
    except KeyError:
        before = x.grad
    handle.remove()
    (x * 2).sum().backward()
    return before, x.grad


@over_the_wire_only(Client.MULTI_GRAD)
@refused(RuntimeError, "A leaf node was passed to _will_engine_execute_node")
def a_hook_of_several_leaves_refuses_their_differentiation(torch):
    x = leaf(torch)
    torch.autograd.graph.register_multi_grad_hook((x,), print)
    torch.autograd.grad((x * 2).sum(), x)


@over_the_wire_only(Client.MULTI_GRAD)
def a_hook_of_any_of_several_tensors_runs_once_a_backward(torch):
    x = leaf(torch)
    a, b = x.sin(), x.cos()
    seen = []
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda g: seen.append(g.shape), mode="any")
    (a + b).sum().backward(retain_graph=True)
    (a * b).sum().backward()
    return len(seen)


@over_the_wire_only(Client.MULTI_GRAD)
@refused(ValueError, "Expects mode to be one of")
def a_hook_of_several_tensors_has_two_modes(torch):
    torch.autograd.graph.register_multi_grad_hook((leaf(torch),), print, mode="some")


@over_the_wire_only(Client.VERSIONS)
def a_counted_change_that_was_none_is_refused_in_backward(torch):
    x = leaf(torch)
    y = x * 2
    z = (y * y).sum()
    before = y._version
    torch.autograd.graph.increment_version(y)
    try:
        z.backward()
    except RuntimeError as error:
        return y._version - before, "modified by an inplace operation" in str(error), x.grad


def a_hook_is_told_that_no_gradient_came(torch):
    x, seen = leaf(torch), []
    parts = x.unbind()
    parts[0].register_hook(seen.append)
    parts[1].backward()
    return seen, x.grad


def a_custom_function_that_no_gradient_reached_gets_zeros(torch):
    seen = []

    class Silent(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return None

    class Told(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(g.tolist())
            return g

    x = leaf(torch)
    Silent.apply(Told.apply(x)).sum().backward()
    return seen, x.grad


def a_target_that_is_no_leaf_is_passed_with_its_hooks(torch):
    seen, a = [], leaf(torch)
    b = a.clone()
    b.grad_fn.register_prehook(lambda gs: (seen.append("before"), (gs[0] * 2,))[1])
    b.register_hook(lambda g: (seen.append("tensor"), g * 3)[1])
    b.sum().backward(inputs=(b,))
    return seen, b.grad, a.grad


def the_hooks_of_a_leaf_and_its_node_in_order(torch):
    x = leaf(torch)
    node = x.view_as(x).grad_fn.next_functions[0][0]
    x.register_hook(lambda g: g - 2)
    node.register_prehook(lambda gs: (gs[0] / 5,))
    x.register_post_accumulate_grad_hook(lambda leaf: (leaf.grad.add_(0.5), None)[1])
    node.register_hook(lambda inputs, outputs: setattr(x, "grad", outputs[0] * 10))
    x.sum().backward()
    return x.grad


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "hooks should return None")
def a_post_accumulate_hook_that_answers_a_tensor(torch):
    x = leaf(torch)
    x.register_post_accumulate_grad_hook(lambda leaf: leaf.grad)
    x.sum().backward()


@over_the_wire_only(Client.ANOMALY)
def anomaly_mode_warns_of_the_node(torch):
    import warnings

    x = leaf(torch)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with torch.autograd.detect_anomaly():
                y = x + 1
                z = y**2
                y += 1
                z.sum().backward()
        except RuntimeError:
            return ["Error detected in PowBackward0" in str(each.message) for each in told], x.grad
