"""In-place changes of tensors that have a history."""

import contextlib

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused, square


def of_a_non_leaf(torch):
    x = leaf(torch)
    y = x * 2
    y.mul_(y.detach() + 1)
    y.sum().backward()
    return y, x.grad


def chained_on_one_tensor(torch):
    x = leaf(torch)
    y = x.clone()
    y.mul_(2).add_(1).sin_().exp_()
    y.sum().backward()
    return y, x.grad, y._version


def with_its_own_old_value_to_third_order(torch):
    x = leaf(torch)
    y = x * 1
    y.mul_(x).mul_(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    return first, second, third


def that_saves_its_result(torch):
    x = leaf(torch)
    y = x * 1
    y.exp_()
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first, second


def zero_cuts_the_history_before(torch):
    x = leaf(torch)
    y = x * 2
    y.zero_()
    y.sum().backward()
    return y, x.grad


def fill_with_a_tensor(torch):
    x, w = leaf(torch), leaf(torch, 5.0)
    y = x * 2
    y.fill_(w[0] * w[0])
    y.sum().backward()
    return y, x.grad, w.grad


def copy_brings_the_gradient_to_its_source(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 2
    y.copy_(w * w)
    y.sum().backward()
    return y, x.grad, w.grad


def copy_into_a_tensor_without_history(torch):
    w = leaf(torch)
    z = torch.zeros(3)
    z.copy_(w)
    return z, z.is_leaf, z.requires_grad, z.grad_fn.name()


def copy_broadcasts(torch):
    w = leaf(torch, 2.0)
    z = torch.zeros(2, 3)
    z.copy_(w)
    (z * z).sum().backward()
    return z, w.grad


def masked_fill_and_clamp(torch):
    x = leaf(torch, -1.0, 0.5, 2.0)
    y = x * 2
    y.masked_fill_(y > 3, 0.0)
    y.clamp_(min=-1.0)
    y.sum().backward()
    return y, x.grad


def operators(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 1
    z = y
    z += w
    z *= w
    z -= x
    z /= w
    z.sum().backward()
    return y is z, y, x.grad, w.grad


def power_in_place(torch):
    x = leaf(torch)
    y = x * 1
    y **= 2
    y.sum().backward()
    return y, x.grad


def addcmul_and_lerp(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 1
    y.addcmul_(x, w, value=0.5)
    y.lerp_(w, 0.25)
    y.sum().backward()
    return y, x.grad, w.grad


def a_leaf_gets_a_history_by_an_in_place_op(torch):
    z, w = torch.ones(3), leaf(torch)
    z.mul_(w)
    z.mul_(w)
    z.sum().backward()
    return z.is_leaf, z, w.grad, z.grad_fn.next_functions[0][0].name()


def retained_gradient_follows_the_tensor(torch):
    x = leaf(torch)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return y.grad, x.grad, y.retains_grad


def retained_twice_over(torch):
    x = leaf(torch)
    y = x * 2
    y.retain_grad()
    y.add_(1)
    y.retain_grad()
    y.mul_(3)
    y.sum().backward()
    y2 = x * 3
    y2.retain_grad()
    y2.sum().backward()
    return y.grad, x.grad, y2.grad


def under_no_grad_nothing_is_recorded(torch):
    x = leaf(torch)
    y = x * 2
    with torch.no_grad():
        y.mul_(100)
    y.sum().backward()
    return y, x.grad, y._version


def a_leaf_under_no_grad_stays_the_same_leaf(torch):
    w = leaf(torch)
    for _ in range(3):
        (w * w).sum().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return w, w.is_leaf, w._version


def a_leaf_changed_between_forward_and_backward_without_being_saved(torch):
    w = leaf(torch)
    y = w + 1
    with torch.no_grad():
        w.mul_(5)
    y.sum().backward()
    return w, w.grad


def through_an_accumulated_gradient(torch):
    w = leaf(torch)
    (w * w).sum().backward()
    grad = w.grad
    (w * w).sum().backward()
    return grad is w.grad, grad


def half_of_a_product_is_changed_after_use(torch):
    x = leaf(torch)
    y = x * 2
    z = y + 1
    y.mul_(5)
    (z + y).sum().backward()
    return z, y, x.grad


def setitem_of_a_tensor_with_history(torch):
    x, w = leaf(torch), leaf(torch, 7.0)
    y = x * 2
    y[1] = w[0] * 3
    (y * y).sum().backward()
    return y, x.grad, w.grad


def setitem_with_slices_and_steps(torch):
    x, w = square(torch), leaf(torch)
    y = x * 2
    y[::2, 1:] = w[:2]
    y[1] = w
    (y * y).sum().backward()
    return y, x.grad, w.grad


def setitem_with_a_mask(torch):
    x, w = square(torch), leaf(torch, 10.0)
    y = x * 2
    y[y > 9] = w[0]
    (y * y).sum().backward()
    return y, x.grad, w.grad


def setitem_with_a_mask_of_values(torch):
    x, w = leaf(torch), leaf(torch, 10.0, 20.0)
    y = x * 2
    y[torch.tensor([True, False, True])] = w
    (y * y).sum().backward()
    return y, x.grad, w.grad


def setitem_with_indices(torch):
    x, w = square(torch), leaf(torch)
    y = x * 2
    y[torch.tensor([0, 2])] = w
    y[torch.tensor([1, 2]), torch.tensor([0, 1])] = w[:2]
    (y * y).sum().backward()
    return y, x.grad, w.grad


def augmented_item(torch):
    x, w = leaf(torch), leaf(torch, 7.0)
    y = x * 2
    y[0] += w[0]
    y[1:] *= w
    (y * y).sum().backward()
    return y, x.grad, w.grad, y.grad_fn.name()


def augmented_item_by_indices(torch):
    x, w = leaf(torch), leaf(torch, 7.0, 8.0)
    y = x * 2
    y[torch.tensor([0, 2])] += w
    (y * y).sum().backward()
    return y, x.grad, w.grad


def augmented_item_by_mask(torch):
    x = leaf(torch)
    y = x * 2
    y[y > 3] *= 10
    (y * y).sum().backward()
    return y, x.grad


def filling_a_buffer_row_by_row(torch):
    x = leaf(torch)
    z = torch.zeros(3, 3)
    h = x
    for i in range(3):
        h = h * x
        z[i] = h
    (z * z).sum().backward()
    return z, x.grad


def filling_a_buffer_to_second_order(torch):
    x = leaf(torch)
    z = torch.zeros(3)
    for i in range(3):
        z[i] = x[i] ** 3
    (first,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    return first, second


def index_put_accumulates(torch):
    x, w = leaf(torch), leaf(torch, 1.0, 10.0)
    y = x * 2
    y.index_put_((torch.tensor([0, 0]),), w, accumulate=True)
    (y * y).sum().backward()
    return y, x.grad, w.grad


def index_add_and_scatter(torch):
    x, w = leaf(torch), leaf(torch, 1.0, 10.0)
    y = x * 2
    y.index_add_(0, torch.tensor([0, 2]), w)
    y.scatter_add_(0, torch.tensor([1, 1]), w)
    (y * y).sum().backward()
    return y, x.grad, w.grad


@refused(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation")
def refused_for_a_leaf(torch):
    leaf(torch).add_(1)


@refused(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation")
def refused_for_a_leaf_by_an_operator(torch):
    w = leaf(torch)
    w += 1


@refused(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation")
def refused_for_a_view_of_a_leaf(torch):
    leaf(torch)[0].add_(1)


@over_the_wire_only(Client.CHECKS)
@refused(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation")
def refused_for_an_item_of_a_leaf(torch):
    leaf(torch)[0] = 1.0


@refused(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation")
def refused_for_a_view_of_a_view_of_a_leaf(torch):
    square(torch)[0].view(3, 1)[1:].zero_()


@refused(RuntimeError, "a leaf Variable that requires grad is being used in an in-place operation")
def refused_for_a_leaf_by_mask(torch):
    w = leaf(torch)
    w[w > 1] = 0.0


@refused(RuntimeError, "result type Float can't be cast to the desired output type")
def refused_where_the_result_is_of_another_kind(torch):
    torch.tensor([1, 2, 3]).mul_(leaf(torch))


@refused(RuntimeError, r"output with shape \[3\] doesn't match the broadcast shape \[2, 3\]")
def refused_where_the_result_is_larger(torch):
    (leaf(torch) * 2).add_(torch.ones(2, 3))


def after_a_refusal_all_goes_on(torch):
    w = leaf(torch)
    for change in (lambda: w.add_(1), lambda: w[0].mul_(2), lambda: w.zero_()):
        with contextlib.suppress(RuntimeError):
            change()
    (w * w).sum().backward()
    return w, w.grad, w._version


@refused(RuntimeError, "a view of a leaf Variable that requires grad is being used in an in-place operation")
def refused_also_where_it_worked_before_with_another_tensor(torch):
    def change(base):
        base[0].mul_(2)

    change(leaf(torch) * 2)
    change(leaf(torch) * 2)
    change(leaf(torch))


def setitem_with_a_truth_value(torch):
    x, z = leaf(torch), torch.tensor(2.0)
    y = x * 2
    y[torch.tensor(True)] = 5.0
    y[torch.tensor(False)] = 7.0
    z[z > 1] = 3.0
    y[0][y[0] > 4] = 1.0
    y.sum().backward()
    return y, z, x.grad, x[torch.tensor(True)], x[torch.tensor(False)].shape, z[z > 5].shape


@refused(RuntimeError, "some elements of the input tensor and the written-to tensor refer to a single memory location")
def copying_over_a_part_of_itself_is_refused(torch):
    y = leaf(torch) * 2
    y[1:].copy_(y[:-1])


def flattened_to_itself(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 2
    f, c, e = y.flatten(), y.contiguous(), y.to(torch.float32)
    f.mul_(w)
    c.add_(w)
    (y.sum() + e.sum()).backward()
    return f is y, c is y, e is y, y, w.grad, x.grad


def broadcast_to_its_own_shape(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 2
    a, _ = torch.broadcast_tensors(y, torch.ones(3))
    a.mul_(w)
    y.sum().backward()
    return y, w.grad, x.grad


def at_least_as_many_dimensions_as_it_has(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y = x * 2
    torch.atleast_1d(y).mul_(w)
    y.sum().backward()
    return y, w.grad, x.grad


def parts_that_are_no_views_may_be_changed_in_place(torch):
    found = []
    for split in (
        lambda t: t.unsafe_split(1),
        lambda t: t.unsafe_split_with_sizes((1, 1, 1)),
        lambda t: t.unsafe_chunk(3, dim=-1),
    ):
        x = square(torch)
        whole = x + x
        squares = whole * whole
        parts = split(whole)
        parts[0].mul_(parts[1]).exp_()
        (parts[0].sum() * 2 + parts[2].sum() + squares.sum()).backward()
        found += [x.grad, whole.detach(), [part._version for part in parts], whole._version]
        found.append([part.output_nr for part in parts])
    return found


@refused(RuntimeError, "chunk expects `chunks` to be greater than 0, got: 0")
def no_chunks_are_refused(torch):
    torch.ones(3).unsafe_chunk(0)
