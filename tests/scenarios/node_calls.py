"""Calls of nodes: `grad_fn(gradient)` applies one node of the graph, without its hooks."""

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused, square, square_function


@over_the_wire_only(Client.NODE_CALLS)
def a_node_gives_the_gradients_of_its_inputs(torch):
    x = leaf(torch)
    y = x * torch.tensor([2.0, 3.0, 4.0])
    return y.grad_fn(torch.ones(3)), (x * x).grad_fn(torch.ones(3)), (x * x).grad_fn(None)


@over_the_wire_only(Client.NODE_CALLS)
def a_node_of_one_input_gives_no_tuple(torch):
    x = square(torch)
    return x.sum(0).grad_fn(torch.tensor([1.0, 2.0, 3.0])), x.exp().grad_fn(torch.ones(3, 3))


@over_the_wire_only(Client.NODE_CALLS)
def a_node_inside_the_graph_is_called(torch):
    x = leaf(torch)
    node = (x * 3).exp().sum().grad_fn.next_functions[0][0].next_functions[0][0]
    return node(torch.ones(3)), x.grad


@over_the_wire_only(Client.NODE_CALLS)
def gradients_of_a_called_node_have_a_graph(torch):
    x = leaf(torch)
    node = x.sin().grad_fn
    slope = node(torch.ones(3))
    with torch.no_grad():
        plain = node(torch.ones(3))
    return torch.autograd.grad(slope.sum(), x), plain.requires_grad


@over_the_wire_only(Client.NODE_CALLS)
def broadcast_operands_keep_the_shape_of_the_gradient(torch):
    made = (square(torch) + leaf(torch)).grad_fn(torch.ones(3, 3))
    return made, leaf(torch).expand(2, 3).grad_fn(torch.ones(2, 3))


@over_the_wire_only(Client.NODE_CALLS)
def a_node_of_several_results_takes_a_gradient_of_each(torch):
    x = (torch.eye(3) * 2).requires_grad_()
    sizes = torch.linalg.slogdet(x)[1]
    values = torch.max(square(torch), 1)[0]
    return sizes.grad_fn(None, torch.tensor(1.0))[0], values.grad_fn(torch.ones(3))


@over_the_wire_only(Client.NODE_CALLS)
def a_list_of_inputs_has_a_gradient_each(torch):
    x = square(torch)
    return torch.stack([x[0], x[1]]).grad_fn(torch.arange(6.0).view(2, 3))


@over_the_wire_only(Client.NODE_CALLS)
def a_call_runs_no_hooks_and_frees_nothing(torch):
    x, ran = leaf(torch), []
    y = x * x
    y.register_hook(lambda gradient: ran.append("tensor"))
    y.grad_fn.register_hook(lambda *gradients: ran.append("after"))
    y.grad_fn.register_prehook(lambda gradients: ran.append("before"))
    made = y.grad_fn(torch.ones(3)), y.grad_fn(torch.ones(3))
    before = list(ran)
    y.sum().backward()
    return made, before, ran, x.grad


@over_the_wire_only(Client.NODE_CALLS)
def a_call_makes_a_checkpoint_compute_again(torch):
    x = leaf(torch)
    y = torch.utils.checkpoint.checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False)
    with torch.no_grad():
        made = y.grad_fn(torch.ones(3))
    y.sum().backward()
    return made, x.grad


@over_the_wire_only(Client.NODE_CALLS)
def a_call_unpacks_saved_values(torch):
    x = leaf(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = x * x
    with torch.no_grad():
        return y.grad_fn(torch.ones(3))


@over_the_wire_only(Client.NODE_CALLS)
def an_accumulating_node_adds_to_its_leaf(torch):
    x = leaf(torch)
    node = (x * 2).grad_fn.next_functions[0][0]
    first = node(torch.ones(3)), x.grad, node(torch.ones(3)), x.grad
    with torch.no_grad():
        held = x.grad
        node(torch.ones(3))
    return first, x.grad is held, held


@over_the_wire_only(Client.NODE_CALLS)
@refused(TypeError, "expected 1 arguments, got 2 instead")
def too_many_gradients_are_refused(torch):
    leaf(torch).pow(2).grad_fn(torch.ones(3), torch.ones(3))


@over_the_wire_only(Client.NODE_CALLS)
@refused(TypeError, "expected 2 arguments, got 0 instead")
def too_few_gradients_are_refused(torch):
    torch.linalg.slogdet((torch.eye(2) * 2).requires_grad_())[1].grad_fn()


@over_the_wire_only(Client.NODE_CALLS)
@refused(TypeError, "argument 0 is not a Variable")
def a_number_is_no_gradient(torch):
    leaf(torch).pow(2).grad_fn(1.0)


@over_the_wire_only(Client.NODE_CALLS)
@refused(TypeError, "keyword arguments are not supported")
def a_gradient_has_no_keyword(torch):
    leaf(torch).pow(2).grad_fn(gradient=torch.ones(3))


@refused(TypeError, "'SquareBackward' object is not callable")
def a_custom_function_has_no_node_to_call(torch):
    square_function(torch).apply(leaf(torch)).grad_fn(torch.ones(3))


@over_the_wire_only(Client.NODE_CALLS)
@refused(RuntimeError, "Trying to backward through the graph a second time")
def a_freed_node_is_not_called(torch):
    y = leaf(torch) * leaf(torch)
    y.sum().backward()
    y.grad_fn(torch.ones(3))
