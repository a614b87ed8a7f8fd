"""The backward under way: which nodes it runs and in which order, and numbers of nodes and tensors that are set."""

from tests.scenarios.kit import Client, leaf, refused

OVER_THE_WIRE_ONLY = Client.PASSES


def _nodes(*tensors):
    return [each.clone().grad_fn.next_functions[0][0] if each.is_leaf else each.grad_fn for each in tensors]


def _foretold(torch, at, run):
    """The order that a hook is told of. PyTorch knows it at the node that runs first alone."""
    orders = []
    at.register_hook(lambda g: orders.append(torch._C._current_graph_task_execution_order()))
    with torch.autograd.set_multithreading_enabled(False):
        run()
    return orders[0]


def _names(nodes):
    return [each.name() for each in nodes]


def a_chain_runs_from_its_end(torch):
    y = leaf(torch).sin().exp().sum()
    return _names(_foretold(torch, y, lambda: y.backward()))


def the_node_made_last_runs_first(torch):
    a, b = leaf(torch), leaf(torch)
    c, d = b.sin(), a.cos()
    out = (c * d).sum()
    seen = []
    for number, each in enumerate((a, b, c, d)):
        each.register_hook(lambda g, number=number: seen.append(number))
    order = _foretold(torch, out, lambda: out.backward())
    tensors = (a, b, c, d)
    return _names(order), order[2:] == _nodes(*(tensors[number] for number in seen)), seen


def the_order_of_many_leaves(torch):
    leaves = [leaf(torch) for _ in range(7)]
    y = torch.stack(leaves).sum()
    order = _foretold(torch, y, lambda: y.backward())
    nodes = _nodes(*leaves)
    return [nodes.index(each) for each in order[2:]]


def several_roots_and_one_input(torch):
    a = leaf(torch)
    b = a * 2
    roots = b.sin().sum(), b.cos().sum(), (b * leaf(torch)).sum()
    return _names(_foretold(torch, roots[2], lambda: torch.autograd.grad(roots, (a,))))


def inputs_in_the_middle(torch):
    a, other = leaf(torch), leaf(torch)
    b = a * other
    y = b.exp().sum()
    return (
        _names(_foretold(torch, y, lambda: y.backward(inputs=[b], retain_graph=True))),
        _names(_foretold(torch, y, lambda: torch.autograd.grad(y, (a, b)))),
    )


@refused(RuntimeError, "should only be called during the backward pass")
def no_order_outside_of_a_backward(torch):
    torch._C._current_graph_task_execution_order()


@refused(RuntimeError, "to be executed with multithreading disabled")
def no_order_with_several_threads(torch):
    y = leaf(torch).exp()
    y.register_hook(lambda g: torch._C._current_graph_task_execution_order())
    y.sum().backward()


def which_nodes_run(torch):
    a, other = leaf(torch), leaf(torch)
    b = a * other
    aside, y = b.cos(), b.exp()
    asked = _nodes(a, other, b, aside, y)
    found = []
    b.register_hook(lambda g: found.append([torch._C._will_engine_execute_node(each) for each in asked]))
    y.sum().backward(inputs=[a], retain_graph=True)
    y.sum().backward(retain_graph=True)
    asked = _nodes(other, b, aside, y)
    torch.autograd.grad(y.sum(), (a,))
    return found


@refused(RuntimeError, "we are currently running autograd.grad")
def no_answer_for_a_captured_leaf(torch):
    a = leaf(torch)
    b = a * 2
    (node,) = _nodes(a)
    b.register_hook(lambda g: torch._C._will_engine_execute_node(node))
    torch.autograd.grad(b.sum(), (a,))


@refused(RuntimeError, "during the backward pass")
def no_answer_outside_of_a_backward(torch):
    torch._C._will_engine_execute_node(leaf(torch).exp().grad_fn)


@refused(RuntimeError, "expects an grad_fn")
def no_answer_for_a_tensor(torch):
    torch._C._will_engine_execute_node(leaf(torch))


def later_nodes_have_larger_numbers(torch):
    a = leaf(torch)
    b = a.exp()
    c = b * a
    of_leaf = b.grad_fn.next_functions[0][0]
    return b.grad_fn._sequence_nr() < c.grad_fn._sequence_nr(), of_leaf._sequence_nr()


def numbers_that_are_set_order_the_backward(torch):
    x, y, z = leaf(torch), leaf(torch), leaf(torch)
    a, b = x + y, y + z
    c = a + b
    seen = []
    for name, each in (("a", a), ("b", b), ("c", c)):
        each.register_hook(lambda g, name=name: seen.append(name))
    c.sum().backward(retain_graph=True)
    a.grad_fn._set_sequence_nr(1 << 30)
    b.grad_fn._set_sequence_nr(99)
    c.grad_fn.next_functions[1][0]._set_sequence_nr(98)
    c.sum().backward()
    return seen, a.grad_fn._sequence_nr(), b.grad_fn._sequence_nr(), x.grad, y.grad, z.grad


def a_version_that_is_kept_hides_a_change(torch):
    x = leaf(torch)
    y = x * 2
    z = y * y
    with torch.autograd._unsafe_preserve_version_counter(y):
        y.detach().mul_(10)
    z.sum().backward()
    return y._version, x.grad


def versions_that_are_set(torch):
    x, y = leaf(torch).clone(), leaf(torch).clone()
    x.add_(1).add_(1)
    with torch.autograd._unsafe_preserve_version_counter((x, y)):
        x.mul_(2)
        y.mul_(3)
    before = x._version, y._version
    torch._C._autograd._unsafe_set_version_counter((x, y), (0, 7))
    return before, x._version, y._version, x.view(-1)._version


@refused(RuntimeError, "Cannot set a version_counter to a value below 0")
def no_version_below_0(torch):
    torch._C._autograd._unsafe_set_version_counter((leaf(torch),), (-1,))


def nodes_and_contexts_are_nodes(torch):
    node, found = torch.autograd.graph.Node, []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            found.append((isinstance(ctx, node), ctx.name()))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            found.append((isinstance(ctx, node), [each.name() for each, _ in ctx.next_functions]))
            return g * 2

    y = Double.apply(leaf(torch))
    y.sum().backward()
    made = leaf(torch).exp().grad_fn
    kinds = torch._C._functions
    return (
        found,
        isinstance(made, node), node in type(made).mro(), isinstance(made.next_functions[0][0], node),
        issubclass(kinds.AccumulateGrad, node), issubclass(kinds.DelayedError, node), isinstance(None, node),
        issubclass(torch.autograd.function.BackwardCFunction, node), issubclass(int, node), isinstance(y.grad_fn, node),
    )  # fmt: skip
