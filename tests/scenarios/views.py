"""In-place changes of views, and their effects on bases and sibling views."""

import contextlib

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused, square


def a_view_rewrites_its_base(torch):
    x = leaf(torch)
    y = x * 2
    v = y[0]
    v.mul_(5)
    (y * y).sum().backward()
    return y, v, x.grad, y.grad_fn.name(), v.grad_fn.name(), y.is_leaf, v._base is y


def names_along_a_chain_of_views(torch):
    y = square(torch) * 2
    v = y[0]
    w = v[1:]
    before = v.grad_fn.name(), w.grad_fn.name()
    w.mul_(3)
    return (
        before,
        y.grad_fn.name(),
        v.grad_fn.name(),
        w.grad_fn.name(),
        v.grad_fn.next_functions[0][0].name(),
        w.grad_fn.next_functions[0][0].name(),
        [y._version, v._version, w._version],
        w._base is y,
    )


def siblings_see_the_change(torch):
    x = leaf(torch)
    y = x * 2
    a, b = y[:2], y[1:]
    a.mul_(10)
    b.sum().backward()
    return b, x.grad, b.grad_fn.name()


def a_view_made_before_is_changed_after_its_base(torch):
    x, w = leaf(torch), leaf(torch, 3.0, 4.0, 5.0)
    y = x * 2
    v = y[1:]
    y.mul_(w)
    v.mul_(7)
    (y * y).sum().backward()
    return y, v, x.grad, w.grad


def views_of_views(torch):
    x = square(torch)
    y = x * 1
    v = y.t()[1:].reshape(-1)[::2]
    u = y[1]
    u.mul_(x[0])
    y[0][1].add_(100)
    (y**2).sum().backward(retain_graph=True)
    return v, y, x.grad, u


def transposed_and_sliced(torch):
    x = square(torch)
    y = x * 1
    y.t()[1:, 0].mul_(x[0, 1:])
    (y * y).sum().backward()
    return y, x.grad


def flattened(torch):
    x = square(torch)
    y = x * 1
    y.view(-1)[::4].exp_()
    (y * y).sum().backward()
    return y, x.grad


def diagonal(torch):
    x = square(torch)
    y = x * 1
    y.diagonal().mul_(x[0])
    y.diagonal(1).zero_()
    (y * y).sum().backward()
    return y, x.grad


def as_strided(torch):
    x = square(torch)
    y = x * 1
    y.as_strided((2, 2), (3, 1), 1).mul_(10)
    (y * y).sum().backward()
    return y, x.grad


def as_strided_of_a_slice(torch):
    x = square(torch)
    y = x * 1
    v = y[1:]
    v.as_strided((3,), (2,), 2).mul_(x[0])
    (y * y).sum().backward()
    return y, v, x.grad


def as_strided_of_a_transposed_base(torch):
    x = square(torch)
    y = (x.t() * 1).t() * 1
    y.as_strided((3,), (1,), 3).mul_(10)
    (y * y).sum().backward()
    return y, x.grad


def as_strided_of_the_real_part(torch):
    z = torch.tensor([[1 + 2j, 3 + 4j], [5 + 6j, 7 + 8j]], dtype=torch.complex128, requires_grad=True)
    y = z * 1
    read = y.real.as_strided((2, 2), (1, 2))
    y.real.as_strided((3,), (2,), 1).mul_(10)
    y.imag.as_strided((2,), (4,)).add_(y.real[0])
    (y.real * y.imag).sum().backward()
    return y.real, y.imag, read, z.grad.real, z.grad.imag


def unfolded_windows_follow(torch):
    x = leaf(torch, 1.0, 2.0, 3.0, 4.0)
    y = x * 1
    v = y.unfold(0, 2, 1)
    y.mul_(x)
    (v * v).sum().backward()
    return v, x.grad


def expanded_views_follow(torch):
    x = leaf(torch)
    y = x * 1
    v = y.expand(2, 3)
    y.mul_(x)
    (v * v).sum().backward()
    return v, x.grad, v.grad_fn.name()


def squeezed_and_unsqueezed(torch):
    x = leaf(torch)
    y = x * 1
    y.unsqueeze(0).unsqueeze(-1).squeeze(0).mul_(x.unsqueeze(1))
    (y * y).sum().backward()
    return y, x.grad


def permuted(torch):
    x = square(torch)
    y = (x * 1).view(3, 3, 1)
    y.permute(2, 1, 0)[0, 1].mul_(x[0])
    (y * y).sum().backward()
    return y, x.grad


def a_part_is_copied_over_another(torch):
    x = leaf(torch)
    y = x * 2
    y[0].copy_(y[1].clone())
    (y * y).sum().backward()
    return y, x.grad


def swapped_halves(torch):
    x = leaf(torch, 1.0, 2.0, 3.0, 4.0)
    y = x * x
    kept = y[:2].clone()
    y[:2] = y[2:]
    y[2:] = kept
    (y * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    return y, x.grad


def second_order_through_a_view(torch):
    x = leaf(torch)
    y = x**2
    y[0].mul_(x[1])
    y[1:].exp_()
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    return first, second, third


def second_order_through_a_chain_of_views(torch):
    x = square(torch)
    y = x**3
    v = y.t()
    w = v[0]
    w.mul_(x[1])
    v[1:].sin_()
    (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first, second


def second_order_through_the_view_itself(torch):
    x = leaf(torch)
    y = x * 1
    v = y[:2]
    v.mul_(v.clone()).mul_(x[1:])
    (first,) = torch.autograd.grad((v**2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first, second


def a_buffer_without_history_is_filled_through_a_view(torch):
    w = leaf(torch)
    z = torch.zeros(2, 3)
    row = z[1]
    row.copy_(w * w)
    (z * z).sum().backward()
    return z.requires_grad, z.is_leaf, z.grad_fn.name(), row.requires_grad, row.grad_fn.name(), w.grad


def views_of_a_buffer_get_a_history_too(torch):
    w = leaf(torch)
    z = torch.zeros(2, 3)
    row, column = z[0], z[:, 1]
    before = row.requires_grad, column.requires_grad
    row.add_(w)
    column.sum().backward()
    return before, column.requires_grad, column.is_leaf, w.grad


def the_same_part_again_and_again(torch):
    x = leaf(torch)
    y = x * 1
    for _ in range(5):
        y[1:].mul_(x[:2])
    y.sum().backward()
    return y, x.grad


def one_view_again_and_again(torch):
    x = leaf(torch)
    y = x * 1
    v = y[1:]
    for _ in range(5):
        v.mul_(x[:2])
        v.add_(1)
    (y * y).sum().backward()
    return y, v, x.grad


def base_and_view_in_turn(torch):
    x = leaf(torch)
    y = x * 1
    v = y[1:]
    for _ in range(3):
        v.mul_(x[:2])
        y.mul_(x)
    (v.sum() + y.sum()).backward()
    return y, v, x.grad


def backward_through_base_and_view_apart(torch):
    x = leaf(torch)
    y = x * x
    v = y[1:]
    v.mul_(3)
    v.sum().backward(retain_graph=True)
    first = x.grad.clone()
    y.sum().backward()
    return first, x.grad


def retained_gradient_of_a_rewritten_base(torch):
    x = leaf(torch)
    y = x * 2
    y.retain_grad()
    v = y[0]
    v.retain_grad()
    v.mul_(3)
    (y * y).sum().backward()
    return v.grad, y.grad, x.grad, v.retains_grad, y.retains_grad


def retained_gradient_of_a_view_whose_base_changed(torch):
    x = leaf(torch)
    y = x * 2
    v = y[0]
    v.retain_grad()
    y.mul_(3)
    v.sum().backward()
    return v.grad, x.grad, v.retains_grad


def a_detached_alias_shares_the_version(torch):
    x = leaf(torch)
    y = x * 2
    d = y.detach()
    d.mul_(10)
    y.sum().backward()
    return y, d, y._version, d._version, x.grad, d._is_view(), d.requires_grad


def data_has_a_version_of_its_own(torch):
    x = leaf(torch)
    y = x * x
    x.data.mul_(10)
    y.sum().backward()
    return x, x._version, x.data._version, x.grad, x.data.requires_grad, x.data.is_leaf


def is_view_and_base(torch):
    x = leaf(torch)
    v = x[1:]
    return (
        [t._is_view() for t in (x, v, v[0], x.detach(), x.clone(), x * 2, x.view(-1), x.data)],
        v._base is x,
        v[0]._base is x,
        x._base is None,
        x.view(3, 1).t()._base is x,
    )


def versions_are_shared(torch):
    x = torch.zeros(4)
    v, d = x[:2], x.detach()
    counts = [x._version]
    v.add_(1)
    counts.append((x._version, v._version, d._version))
    d.add_(1)
    x[0] = 5.0
    counts.append((x._version, v._version, d._version))
    return counts, x.clone()._version


def requires_grad_of_a_view_of_a_plain_tensor(torch):
    z = torch.zeros(3)
    v = z[:2]
    v.requires_grad_()
    w = v[0] * 2
    w.backward()
    return z.requires_grad, v.requires_grad, v.is_leaf, v.grad, w


def requires_grad_of_a_base_shows_in_its_views(torch):
    z = torch.zeros(3)
    v = z[0]
    z.requires_grad_()
    return v.requires_grad, v.is_leaf, v.grad_fn is None, (v * 2).grad_fn.name()


def a_view_follows_a_base_that_changed_before_it_required_grad(torch):
    z = torch.zeros(3)
    v = z[0]
    z.add_(1)
    z.requires_grad_()
    (v * 2).backward()
    return v.requires_grad, v.grad_fn.name(), z.grad


def a_view_made_under_no_grad_says_it_requires_grad(torch):
    x = leaf(torch)
    with torch.no_grad():
        v = x[0]
        w = x[0] * 2
    return v.requires_grad, v.is_leaf, v.grad_fn is None, w.requires_grad, v._base is x


def a_leaf_changed_under_no_grad_through_a_view(torch):
    w = leaf(torch)
    with torch.no_grad():
        w[0].mul_(10)
        w[1:] += 1
    (w * w).sum().backward()
    return w, w.is_leaf, w.grad, w._version


def a_view_of_a_leaf_follows_a_change_under_no_grad(torch):
    w = leaf(torch)
    v = w[1:]
    before = v.grad_fn.name()
    with torch.no_grad():
        w.mul_(2)
    (v * v).sum().backward()
    return before, v.grad_fn.name(), v, w.grad


def detach_in_place_of_the_base(torch):
    x, w = leaf(torch), leaf(torch, 5.0, 6.0, 7.0)
    y = x * 2
    v = y[:2]
    y.detach_()
    y.mul_(w)
    v.sum().backward()
    return v.requires_grad, w.grad, x.grad, y.grad_fn.name()


@refused(RuntimeError, "Can't detach views in-place. Use detach\\(\\) instead")
def detach_in_place_of_a_view_is_refused(torch):
    (leaf(torch) * 2)[0].detach_()


@refused(RuntimeError, "Can't detach views in-place. Use detach\\(\\) instead")
def detach_in_place_of_a_plain_view_is_refused(torch):
    torch.zeros(3)[0].detach_()


@refused(RuntimeError, "is a view and is being modified inplace.*function that returns multiple views")
def unbind_refuses(torch):
    a, _, _ = (leaf(torch) * 2).unbind()
    a.add_(1)


@refused(RuntimeError, "is a view and is being modified inplace.*function that returns multiple views")
def split_refuses(torch):
    a, _ = (leaf(torch) * 2).split(2)
    a.add_(1)


@refused(RuntimeError, "is a view and is being modified inplace.*function that returns multiple views")
def chunk_refuses(torch):
    a, _ = (leaf(torch) * 2).chunk(2)
    a.zero_()


@refused(RuntimeError, "is a view and is being modified inplace.*function that returns multiple views")
def a_view_of_one_of_several_views_refuses(torch):
    a, _ = (leaf(torch) * 2).split(2)
    a[0].add_(1)


@refused(RuntimeError, "function that returns multiple views")
def iteration_refuses(torch):
    for row in square(torch) * 2:
        row.add_(1)


@refused(RuntimeError, "function that returns multiple views")
def unbind_of_a_plain_tensor_refuses_a_history(torch):
    a, _ = torch.zeros(2).unbind()
    a.add_(leaf(torch)[0])


def several_views_change_where_nothing_is_recorded(torch):
    a, b = torch.zeros(2, 2).unbind()
    a.add_(1)
    x = square(torch)
    with torch.no_grad():
        for row in x.unbind():
            row.mul_(2)
    return a, b, x


@refused(RuntimeError, "its base or another view of its base has been modified inplace")
def several_views_refuse_after_their_base_changed(torch):
    y = leaf(torch) * 2
    a, _, _ = y.unbind()
    y.add_(1)
    return a * 2


@refused(RuntimeError, "its base or another view of its base has been modified inplace")
def their_grad_fn_is_refused_then(torch):
    y = leaf(torch) * 2
    a, _, _ = y.unbind()
    y.add_(1)
    return a.grad_fn


def their_values_are_not(torch):
    y = leaf(torch) * 2
    a, _, _ = y.unbind()
    y.add_(1)
    with torch.no_grad():
        return a * 2, a.clone(), a.requires_grad, a.item(), a.detach()


def their_base_is_not(torch):
    x = leaf(torch)
    y = x * 2
    a, b, c = y.unbind()
    total = a * b * c
    y.add_(x)
    (y.sum()).backward()
    return total, x.grad


@refused(RuntimeError, "A view was created in no_grad mode and is being modified inplace with grad mode enabled")
def a_view_made_under_no_grad_refuses(torch):
    y = leaf(torch) * 2
    with torch.no_grad():
        v = y[0]
    v.add_(1)


@refused(RuntimeError, "A view was created in no_grad mode and is being modified inplace with grad mode enabled")
def a_plain_view_made_under_no_grad_refuses_a_history(torch):
    z = torch.zeros(3)
    with torch.no_grad():
        v = z[0]
    v.add_(leaf(torch)[0])


@refused(RuntimeError, "A view was created in no_grad mode and its base or another view of its base has been modified")
def a_view_made_under_no_grad_refuses_after_its_base_changed(torch):
    y = leaf(torch) * 2
    with torch.no_grad():
        v = y[0]
    y.add_(1)
    return v * 2


@refused(RuntimeError, "more than one element of the written-to tensor refers to a single memory location")
def an_expanded_view_refuses(torch):
    (leaf(torch) * 2).unsqueeze(0).expand(2, 3).add_(1)


@refused(RuntimeError, "more than one element of the written-to tensor refers to a single memory location")
def an_expanded_plain_view_refuses(torch):
    torch.zeros(3).expand(2, 3).add_(leaf(torch))


@refused(RuntimeError, "more than one element of the written-to tensor refers to a single memory location")
def an_expanded_view_refuses_to_be_filled_with_a_tensor(torch):
    torch.zeros(3).expand(2, 3).fill_(torch.tensor(1.0))


def an_expanded_view_is_filled_with_a_number(torch):
    x = torch.zeros(3)
    x.expand(2, 3).fill_(2)
    return x


def a_view_of_complex_numbers_as_reals(torch):
    x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = x * 1
    torch.view_as_real(y)[:, 0].mul_(10)
    y.abs().sum().backward()
    return y, x.grad


def real_parts_change_in_place(torch):
    x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = x * x
    y.real.mul_(2)
    y.imag.add_(1)
    (y * y.conj()).real.sum().backward()
    return y, x.grad


def a_network_that_writes_into_its_output(torch):
    torch.manual_seed(0)
    w = torch.tensor([[0.1, 0.2], [0.3, 0.4]], requires_grad=True)
    state = torch.zeros(3, 2)
    x = torch.tensor([1.0, -1.0])
    out = state
    for step in range(3):
        x = (x @ w).tanh()
        out[step] = x
    out[1:].mul_(out[:-1].clone())
    (out**2).sum().backward()
    return out, w.grad


def a_step_that_repeats(torch):
    w = leaf(torch)
    for _ in range(4):
        y = w * 1
        y[0].mul_(w[1])
        y[1:] += w[:2]
        (y * y).sum().backward()
        with torch.no_grad():
            w[:] -= 0.01 * w.grad
            w.grad.zero_()
    return w, w.grad, w.is_leaf, w._version


def a_rewritten_view_saved_by_another_op(torch):
    x = leaf(torch)
    y = x * 1
    v = y[:2]
    v.mul_(x[1:])
    z = v * v
    z.sum().backward()
    return x.grad


@refused(RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory location")
def an_operand_that_overlaps_in_part_is_refused(torch):
    y = leaf(torch) * 2
    y[1:].mul_(y[:-1])


def an_operand_on_the_very_same_memory_is_not(torch):
    z, y = torch.tensor([1.0, 2.0, 3.0]), leaf(torch) * 2
    z.add_(z.view(3))
    z.mul_(z)
    y[1:] = y[1:]
    y.sum().backward()
    return z, y


@refused(RuntimeError, "modified by an inplace operation")
def a_saved_sibling_is_noticed(torch):
    y = leaf(torch) * 2
    z = y[1] * y[1]
    y[0].add_(1)
    z.backward()


def the_same_values_before_and_after_a_failed_in_place_op(torch):
    y = leaf(torch) * 2
    v = y[:2]
    with contextlib.suppress(RuntimeError):
        v.add_(torch.ones(5))
    return y, v, v._version, v.grad_fn.name()


def writing_to_a_part_of_an_expanded_view_writes_to_all_of_it(torch):
    x, w = square(torch), leaf(torch)
    y = x * 1
    e = y.expand(2, 3, 3)
    e[0] = w
    e[-1] += 1
    (y * y).sum().backward(retain_graph=True)
    first = x.grad.clone(), w.grad.clone()
    (e * e).sum().backward()
    return first, y, e, x.grad, w.grad, y.grad_fn.name(), e.grad_fn.name()


@over_the_wire_only(Client.INDEXING)
def a_list_of_lists_stands_for_several_indices(torch):
    x = torch.arange(16.0).view(4, 4).requires_grad_()
    y = x[[[0, 1], [1, 0]]]
    z = x[[[0, 2]]]
    (y.sum() + (z * 2).sum()).backward()
    return y, z, x.grad


@over_the_wire_only(Client.INDEXING)
def a_list_with_a_slice_stands_for_several_indices(torch):
    x = torch.arange(16.0).view(4, 4)
    x[[slice(None), [2, 3]]] = 7.0
    return x


def a_part_of_an_expanded_number_is_changed_in_place(torch):
    x = leaf(torch)
    part = x.sum().expand(2)[0]
    part *= 1.5
    (part * part).backward()
    return part, x.grad


def a_view_of_what_an_op_made_on_its_way_is_changed_in_place(torch):
    x = torch.arange(12.0).view(1, 2, 6).requires_grad_()
    y = torch.nn.functional.instance_norm(x)
    y.mul_(2)
    (y * y * y).sum().backward()
    return y.is_leaf, x.is_leaf, x.grad


def a_view_made_under_no_grad_of_a_leaf_that_left_the_graph(torch):
    told = []
    for leave in (False, True):
        x = leaf(torch)
        part = x[:2]
        if leave:
            x.detach_()
        with torch.no_grad():
            view = part[:1]
        told.append(view.requires_grad)
    return told


def a_base_leaves_the_graph_after_a_part_of_its_view_was_written(torch):
    x, w = leaf(torch), leaf(torch)
    base = x.clone()
    view = base[:2]
    view[0] = w[1]
    base.detach_()
    y = view * 3
    told = view.requires_grad, base.requires_grad, y.requires_grad
    if y.requires_grad:
        y.sum().backward()
    return told, y, base, x.grad, w.grad


def a_base_leaves_the_graph_after_its_view_was_looked_at(torch):
    x, w = leaf(torch), leaf(torch)
    base = x.clone()
    view = base[:2]
    view[0] = w[1]
    looked = view.grad_fn is not None
    base.detach_()
    y = view * 3
    y.sum().backward()
    return looked, y, x.grad, w.grad


def each_result_reaches_its_own_input(torch):
    x, y = leaf(torch), torch.ones(2, requires_grad=True)
    rows, _ = torch.meshgrid([x, y], indexing="ij")
    rows.sum().backward()
    first = x.grad, y.grad
    _, columns = torch.meshgrid([x, y], indexing="ij")
    columns.sum().backward()
    return *first, x.grad, y.grad


@over_the_wire_only(Client.MODULES)
def weights_of_attention_do_not_reach_the_last_projection(torch):
    layer = torch.nn.MultiheadAttention(4, 2)
    x = torch.arange(12.0).reshape(3, 1, 4).sin()
    results = []
    for place in (1, 0):
        layer(x, x, x)[place].sum().backward()
        results.append([weight.grad is None for weight in layer.parameters()])
    return results
