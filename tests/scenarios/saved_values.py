"""saved_tensors_hooks and `grad_fn._saved_<name>`: when values are packed and unpacked, and their history."""

from importlib import import_module

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


def _hooks(torch, pack=lambda t: t, unpack=lambda t: t):
    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def each_saved_value_is_packed_once_and_unpacked_in_backward(torch):
    x, seen = leaf(torch), []
    with _hooks(
        torch,
        lambda t: (seen.append(("pack", t.tolist())), t.tolist())[1],
        lambda p: (seen.append(("unpack", p)), torch.tensor(p))[1],
    ):
        y = x.sin()
        z = y.exp() * 3
    z.sum().backward()
    return seen, x.grad


def what_unpack_returns_is_computed_with(torch):
    x = leaf(torch)
    with _hooks(torch, lambda t: t * 2, lambda t: t * 2):
        y = x * x
    y.sum().backward()
    return x.grad


def a_leaf_a_result_and_a_constant_are_packed(torch):
    x, c, count = leaf(torch), torch.tensor([2.0, 3.0, 4.0]), []
    with _hooks(torch, lambda t: (count.append(t.tolist()), t)[1]):
        y = x * c
        z = y.exp()
        z + 1
    z.sum().backward()
    return count, x.grad


def ops_that_are_not_recorded_pack_nothing(torch):
    x, count = leaf(torch), []
    with _hooks(torch, lambda t: (count.append(1), t)[1]):
        with torch.no_grad():
            x * x
        torch.ones(3) * 2
        x.detach().exp()
    return count


def grad_mode_in_pack_and_unpack(torch):
    x, seen = leaf(torch), []
    with _hooks(
        torch,
        lambda t: (seen.append(torch.is_grad_enabled()), t)[1],
        lambda t: (seen.append(torch.is_grad_enabled()), t)[1],
    ):
        y = (x**2).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    torch.autograd.grad(g.sum(), x)
    return seen


def double_backward_through_what_was_packed(torch):
    x, w = leaf(torch), leaf(torch, 2.0, 1.0, 3.0)
    with _hooks(torch, lambda t: t.tolist(), lambda p: torch.tensor(p)):
        y = (x.sin() * w * x).exp().sum()
    g = torch.autograd.grad(y, [x, w], create_graph=True)
    return g, torch.autograd.grad(sum(each.sum() for each in g), [x, w])


def what_grad_records_is_packed(torch):
    x, seen = leaf(torch), []
    y = x.sin().sum()
    with _hooks(torch, lambda t: (seen.append(round(t.sum().item(), 4)), t.tolist())[1], lambda p: torch.tensor(p)):
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    return len(seen) >= 4, g, h, torch.autograd.grad(h.sum(), x)


def a_leaf_of_second_derivatives_gets_its_grad_and_calls_its_hooks(torch):
    x, seen = leaf(torch), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    with _hooks(torch, lambda t: t.clone()):
        y = x**3
    y.sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.sum().backward()
    return seen, x.grad


def the_innermost_pair_is_in_force(torch):
    x, seen = leaf(torch), []
    with _hooks(torch, lambda t: (seen.append("outer"), t)[1]):
        a = x * x
        with _hooks(torch, lambda t: (seen.append("inner"), t)[1]):
            b = a.exp()
        c = b * b
    c.sum().backward()
    return seen, x.grad


def packed_values_need_no_version_check(torch):
    x = leaf(torch)
    with _hooks(torch, lambda t: t.clone()):
        a = x * 2
        y = a * a
    a.add_(1)
    y.sum().backward()
    return x.grad


def what_was_saved_before_is_checked_still(torch):
    x = leaf(torch)
    a = x * 2
    y = a * a
    with _hooks(torch):
        a.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return False


def in_place_ops_pack(torch):
    x, seen = leaf(torch), []
    with _hooks(torch, lambda t: (seen.append(t.tolist()), t.clone())[1]):
        a = x * 2
        a.exp_()
        a.mul_(torch.tensor([1.0, 2.0, 3.0]))
    a.sum().backward()
    return seen, x.grad


def views_and_writes_through_them(torch):
    x = leaf(torch)
    with _hooks(torch, lambda t: t.clone()):
        a = x * 1
        v = a[1:]
        v.mul_(v.detach().clone() + 1)
        y = (a.sin() * torch.cat([v, v[:1]])).sum()
    y.backward()
    return x.grad


def a_list_of_tensors(torch):
    x, w = leaf(torch), leaf(torch, 3.0, 2.0, 1.0)
    with _hooks(torch, lambda t: t.tolist(), lambda p: torch.tensor(p)):
        y = torch.einsum("i,i,j->j", x, w, x).sum() + torch.stack([x, w]).prod()
    y.backward()
    return x.grad, w.grad


def retain_graph_unpacks_again(torch):
    x, seen = leaf(torch), []
    with _hooks(torch, lambda t: t, lambda t: (seen.append(1), t)[1]):
        y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    return seen, x.grad


@refused(RuntimeError, "backward through the graph a second time")
def a_second_backward_is_refused(torch):
    x = leaf(torch)
    with _hooks(torch):
        y = x.exp().sum()
    y.backward()
    y.backward()


@refused(RuntimeError, "A saved tensor pack hook is modifying its input in place")
def pack_may_not_change_its_argument(torch):
    x = leaf(torch)
    with _hooks(torch, lambda t: t.mul_(2)):
        x.exp().exp()


@over_the_wire_only(Client.CHECKS)
@refused(TypeError, "unpack_hook expected to be a Tensor but got result of type")
def unpack_has_to_return_a_tensor(torch):
    x = leaf(torch)
    with _hooks(torch, lambda t: t, lambda t: 3):
        y = x.exp()
    y.sum().backward()


@refused(ZeroDivisionError, "mine")
def what_pack_raises_comes_out_of_the_op(torch):
    def pack(t):
        raise ZeroDivisionError("mine")

    with _hooks(torch, pack):
        leaf(torch).exp()


def after_errors_all_is_as_it_was(torch):
    x, fail = leaf(torch), [True]

    def hook(t):
        if fail[0]:
            raise ZeroDivisionError
        return t

    with _hooks(torch, hook):
        try:
            x.exp()
        except ZeroDivisionError:
            fail[0] = False
        y = x.exp().sum()
    with _hooks(torch, lambda t: t, hook):
        z = (x * x).sum()
    fail[0] = True
    try:
        (y + z).backward(retain_graph=True)
    except ZeroDivisionError:
        fail[0] = False
    before = x.grad
    (y + z).backward()
    return before, x.grad


def a_custom_functions_values_are_packed(torch):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * g

    x, seen = leaf(torch), []
    with _hooks(torch, lambda t: (seen.append(t.tolist()), t.tolist())[1], lambda p: torch.tensor(p)):
        y = Cube.apply(x * 2)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return seen, g, torch.autograd.grad(g.sum(), x)


def a_checkpoint_inside_keeps_its_own(torch):
    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    x, seen = leaf(torch), []
    with _hooks(torch, lambda t: (seen.append(t.tolist()), t.clone())[1]):
        y = checkpoint(lambda x: (x.sin() * x).exp(), x * 2, use_reentrant=False)
        z = (y * y).sum()
    z.backward()
    return seen[-2:], x.grad


def hooks_inside_a_checkpoint_are_in_force(torch):
    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    x = leaf(torch)

    def f(x):
        with _hooks(torch, lambda t: t.tolist(), lambda p: torch.tensor(p)):
            a = x.sin()
        return a * a

    checkpoint(f, x, use_reentrant=False).sum().backward()
    return x.grad


@over_the_wire_only(Client.SAVED)
def save_on_cpu_changes_no_gradient(torch):
    x = leaf(torch)
    with torch.autograd.graph.save_on_cpu():
        y = (x.sin() * x).exp().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g, torch.autograd.grad(g.sum(), x)


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "no hooks here")
def disabled_hooks_say_why(torch):
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"), _hooks(torch):
        pass


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "no hooks here")
def hooks_in_force_cannot_be_disabled(torch):
    with _hooks(torch), torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        pass


@over_the_wire_only(Client.SAVED)
def the_innermost_message_counts(torch):
    said = []
    graph = torch.autograd.graph
    with graph.disable_saved_tensors_hooks("outer"):
        for make in (lambda: graph.disable_saved_tensors_hooks("inner"), lambda: torch.no_grad()):
            with make():
                try:
                    with _hooks(torch):
                        pass
                except RuntimeError as error:
                    said.append(str(error))
    with _hooks(torch):
        said.append("none")
    return said


def a_node_shows_what_it_saved(torch):
    x, w = leaf(torch), torch.ones(3) * 2
    y = x * w
    z = y.exp()
    own = z.grad_fn._saved_result
    return (
        y.grad_fn._saved_other,
        own,
        own.requires_grad,
        own.grad_fn.name(),
        (x * x).grad_fn._saved_self is x,
    )


def a_packed_value_is_unpacked_to_be_shown(torch):
    x = leaf(torch)
    with _hooks(torch, lambda t: t * 2, lambda t: t * 3):
        y = x.sin()
    seen = y.grad_fn._saved_self
    return seen, seen.requires_grad, seen.is_leaf


@refused(AttributeError, "no attribute '_saved_nothing'")
def a_name_that_was_not_saved(torch):
    return leaf(torch).exp().grad_fn._saved_nothing


@refused(RuntimeError, "directly access saved tensors after they have already been freed")
def what_was_freed_is_refused(torch):
    y = leaf(torch).exp()
    y.sum().backward()
    return y.grad_fn._saved_result


@over_the_wire_only(Client.SAVED)
def hooks_of_one_saved_value(torch):
    x = leaf(torch)
    y = x * x
    raw = y.grad_fn._raw_saved_self
    raw.register_hooks(lambda t: t * 2, lambda t: t * 3)
    kept = y.grad_fn._saved_self
    y.sum().backward()
    z = x.exp()
    z.grad_fn._raw_saved_result.register_hooks(lambda t: t.tolist(), lambda values: torch.tensor(values))
    z.sum().backward()
    return kept, x.grad


@over_the_wire_only(Client.SAVED)
def hooks_of_a_saved_value_keep_the_history(torch):
    x = leaf(torch)
    y = (x + 1) ** 3
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "already been set")
def hooks_of_a_saved_value_twice(torch):
    y = leaf(torch) ** 2
    raw = y.grad_fn._raw_saved_self
    raw.register_hooks(lambda t: t, lambda t: t)
    raw.register_hooks(lambda t: t, lambda t: t)


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "after it has been freed")
def hooks_of_a_freed_value(torch):
    y = leaf(torch) ** 2
    y.sum().backward()
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "modifying its input in place")
def a_late_pack_hook_that_writes(torch):
    y = leaf(torch).exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t.mul_(2), lambda t: t)


@over_the_wire_only(Client.SAVED)
@refused(TypeError, "incompatible function arguments")
def hooks_that_are_no_functions(torch):
    y = leaf(torch) ** 2
    y.grad_fn._raw_saved_self.register_hooks(1, 2)


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "Trying to create a SavedTensor object from Python is forbidden")
def a_saved_tensor_from_python(torch):
    torch.autograd.SavedTensor()


@over_the_wire_only(Client.SAVED)
def a_value_in_a_checkpoint_is_computed_again_each_time(torch):
    x, count = leaf(torch), []
    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    y = checkpoint(lambda t: (count.append(1), t.exp())[1], x, use_reentrant=False)
    values = [y.grad_fn._saved_result.tolist() for _ in range(2)]
    between = len(count)
    y.sum().backward()
    return values, between, len(count), x.grad


def _product(torch, contexts=None):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.note = "kept"
            result = x * y
            ctx.save_for_backward(x, None, y, result)
            return result

        @staticmethod
        def backward(ctx, gradient):
            x, _, y, _ = ctx.saved_tensors
            if contexts is not None:
                contexts.append((ctx, x, y))
            return gradient * y, gradient * x

    return Product


@over_the_wire_only(Client.SAVED)
def a_functions_node_has_its_contexts_attributes(torch):
    x, y = leaf(torch), torch.full((3,), 2.0)
    node = _product(torch).apply(x, y).grad_fn
    return node.note, node.needs_input_grad, node.saved_tensors, node._raw_saved_tensors[1] is None


@over_the_wire_only(Client.SAVED)
def saved_tensors_of_a_function_are_the_objects(torch):
    x, y, found = leaf(torch), torch.full((3,), 2.0), []
    result = _product(torch, found).apply(x, y)
    result.sum().backward(retain_graph=True)
    again = result.grad_fn.saved_tensors
    return [one is x and other is y for _, one, other in found], again, again[3].grad_fn is result.grad_fn


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "directly access saved tensors after they have already been freed")
def saved_tensors_of_a_function_after_backward(torch):
    found = []
    result = _product(torch, found).apply(leaf(torch), torch.ones(3))
    result.sum().backward()
    return found[0][0].saved_tensors


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "None is forbidden")
def hooks_of_what_a_function_did_not_save(torch):
    result = _product(torch).apply(leaf(torch), torch.ones(3))
    result.grad_fn._raw_saved_tensors[1].register_hooks(lambda t: t, lambda t: t)


@over_the_wire_only(Client.SAVED)
def hooks_of_what_a_function_saved(torch):
    x = leaf(torch)
    result = _product(torch).apply(x, torch.full((3,), 2.0))
    result.grad_fn._raw_saved_tensors[2].register_hooks(lambda t: t * 5, lambda t: t)
    result.sum().backward()
    return x.grad


@over_the_wire_only(Client.SAVED)
@refused(RuntimeError, "already unpacked once")
def saved_tensors_read_twice_in_a_checkpoint(torch):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0] * ctx.saved_tensors[0]

    checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    checkpoint(lambda t: Twice.apply(t.sin()), leaf(torch), use_reentrant=False).sum().backward()


def a_node_has_one_object(torch):
    x = leaf(torch)
    y = x.exp()
    z = (y * 2) + y
    node = z.grad_fn
    (product, _), (power, _) = node.next_functions
    return (
        power is y.grad_fn,
        product is node.next_functions[0][0],
        product.next_functions[0][0] is power,
        y.grad_fn is y.grad_fn._saved_result.grad_fn,
        product is power,
    )


def a_node_stays_itself_when_its_tensor_is_changed(torch):
    x = leaf(torch)
    y = x.exp()
    first = y.grad_fn
    y.mul_(2)
    second = y.grad_fn
    y.add_(1)
    return (
        first is second,
        first == second,
        first.name(),
        second.name(),
        second.next_functions[0][0] is first,
        y.grad_fn.next_functions[0][0] is second,
        first.next_functions[0][0].variable is x,
    )


def a_node_stays_itself_when_a_view_of_its_tensor_is_changed(torch):
    y = leaf(torch).exp()
    first = y.grad_fn
    y[:2].mul_(2)
    return first.name(), first == y.grad_fn, y.grad_fn.name(), y.grad_fn.next_functions[0][0] is first
