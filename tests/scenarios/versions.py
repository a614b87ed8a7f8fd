"""Saved values that were changed later: detected where backward needs them, and only there."""

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


@refused(
    RuntimeError,
    r"inplace operation: \[torch.FloatTensor \[3\]\], which is output 0 of Exp, is at version 1; expected version 0",
)
def a_result_is_noticed(torch):
    y = leaf(torch).exp()
    y.add_(1)
    y.sum().backward()


@refused(
    RuntimeError,
    r"inplace operation: \[torch.FloatTensor \[3\]\], which is output 0 of .*, is at version 2; expected version 1",
)
def an_operand_is_noticed(torch):
    y = leaf(torch) * 2
    y.add_(0)
    z = y.pow(3)
    y.mul_(2)
    z.sum().backward()


@refused(RuntimeError, r"modified by an inplace operation: \[torch.DoubleTensor \[2, 1\]\], which is output 0 of ")
def dtype_and_shape_are_told(torch):
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = (x * 1).unsqueeze(1)
    z = y * y
    with torch.no_grad():
        y.add_(1)
    z.sum().backward()


@refused(
    RuntimeError, r"modified by an inplace operation: \[torch.FloatTensor \[3\]\] is at version 1; expected version 0"
)
def a_leaf_is_noticed(torch):
    w = leaf(torch)
    y = w * w
    with torch.no_grad():
        w.add_(1)
    y.sum().backward()


@refused(RuntimeError, "modified by an inplace operation")
def a_constant_is_noticed(torch):
    c = torch.tensor([1.0, 2.0, 3.0])
    y = leaf(torch) * c
    c.zero_()
    y.sum().backward()


@refused(RuntimeError, "modified by an inplace operation")
def a_change_through_a_detached_alias_is_noticed(torch):
    y = leaf(torch).exp()
    y.detach().zero_()
    y.sum().backward()


@refused(RuntimeError, "modified by an inplace operation")
def a_change_through_a_view_is_noticed(torch):
    y = leaf(torch).exp()
    y[0] = 0.0
    y.sum().backward()


@refused(RuntimeError, "modified by an inplace operation")
def a_product_with_itself_in_place_is_noticed(torch):
    y = leaf(torch) * 1
    y.mul_(y)
    y.sum().backward()


@refused(RuntimeError, "modified by an inplace operation")
def an_optimizer_step_between_forward_and_a_second_backward_is_noticed(torch):
    w = leaf(torch)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    with torch.no_grad():
        w -= 0.1 * w.grad
    loss.backward()


def what_was_not_saved_may_change(torch):
    x = leaf(torch)
    y = x + 1
    z = y + y
    y.mul_(100)
    z.sum().backward()
    return z, y, x.grad


def what_is_not_needed_may_change(torch):
    x, c = leaf(torch), torch.tensor([1.0, 2.0, 3.0])
    y = c * 2
    z = x * y
    c.zero_()
    z.sum().backward()
    return x.grad


def data_changes_unnoticed(torch):
    x = leaf(torch)
    y = x * x
    x.data.fill_(10)
    y.sum().backward()
    return x.grad, x._version


def after_a_conflict_nothing_was_added(torch):
    a, b = leaf(torch), leaf(torch)
    (a * a).sum().backward()
    y = b.exp()
    loss = (a * 3).sum() + y.sum()
    y.add_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        refused_with = "modified by an inplace operation" in str(error)
    (b * 2).sum().backward()
    return refused_with, b.grad


def versions_count_what_changes_bytes(torch):
    x = torch.zeros(4)
    counts = [x._version]
    x.add_(1)
    counts.append(x._version)
    x[0] = 1.0
    counts.append(x._version)
    x[1:3] += 1
    counts.append(x._version)
    x.zero_().fill_(2.0)
    counts.append(x._version)
    x.requires_grad_()
    counts.append(x._version)
    return counts


def a_value_restored_is_still_another_version(torch):
    y = leaf(torch).exp()
    kept = y.detach().clone()
    with torch.no_grad():
        y.add_(1).copy_(kept)
    try:
        y.sum().backward()
    except RuntimeError:
        return "refused", y._version
    return "allowed"


@refused(RuntimeError, "Trying to use a saved tensor that has been detached in-place")
def an_input_that_left_the_graph_is_refused(torch):
    a = leaf(torch).clone()
    b = a.sin()
    a.detach_()
    b.sum().backward()


@refused(RuntimeError, "Trying to use a saved tensor that has been detached in-place")
def one_of_several_results_that_left_the_graph(torch):
    variance, mean = torch.var_mean(leaf(torch) * 2)
    product = variance * mean
    mean.detach_()
    product.backward()


def what_left_the_graph_may_have_been_saved_otherwise(torch):
    x = leaf(torch)
    a = x * 2
    result, summand, view = a.exp(), a + 1, a.view(-1).sin()
    factor = a * 3
    kept = result * 1
    result.detach_()
    a.detach_()
    (kept + summand + view + factor).sum().backward()
    return x.grad


@over_the_wire_only(Client.VERSIONS)
def other_data_keep_the_version_that_views_share(torch):
    x = torch.ones(1, 2)
    x.add_(1).add_(1)
    view, alias = x[:], x.detach()
    view.add_(1)
    found = [x._version, view._version]
    x.data = torch.ones(2, 3)
    for change in (x, view, alias, x, x[0]):
        found += [each._version for each in (x, view, alias, x.view(-1))]
        change.add_(1)
    x.data = torch.ones(4)
    view.mul_(2)
    found += [each._version for each in (x, view, alias)]
    alone = torch.ones(2)
    alone.add_(1)
    alone.data = torch.ones(3)
    alone.add_(1)
    return found, alone._version, x, view
