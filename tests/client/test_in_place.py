"""In-place ops and views, seen through the client's proxies: SEMANTICS 5, without views that have a history."""

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), requires_grad=True)


def test_in_place_ops_answer_the_same_tensor():
    def case(t):
        x = t.tensor([1.0, 2.0])
        same = [x.add_(1.0) is x, x.mul_(2.0) is x, x.zero_() is x, x.fill_(3.0) is x, x.copy_(t.ones(2)) is x]
        y = x
        x += 1.0
        x *= 3.0
        x -= 0.5
        x /= 2.0
        return same, y is x, x

    agree(case)


def test_in_place_on_a_non_leaf_rewrites_its_history():
    def case(t):
        x, w = leaf(t), leaf(t, 4.0, 5.0, 6.0)
        y = x * 2.0
        y += w
        y.mul_(3.0)
        y.sum().backward()
        return y, x.grad, w.grad

    agree(case)


def test_a_tensor_without_history_gets_one_by_an_in_place_op():
    def case(t):
        z = t.zeros(3)
        before = z.is_leaf, z.requires_grad
        z.add_(leaf(t))
        return before, z, z.is_leaf

    agree(case)


def test_assignment_to_a_part_makes_a_non_leaf():
    def case(t):
        z, w = t.zeros(3), leaf(t)
        z[0] = w[2] * 5.0
        z.sum().backward()
        return z, z.is_leaf, z.grad_fn.name(), w.grad

    agree(case)


def test_a_view_sees_what_is_written_to_its_base_and_the_reverse():
    def case(t):
        x = t.zeros(2, 3)
        row, flat, turned = x[0], x.view(-1), x.t()
        x[0, 1] = 5.0
        flat[0] = 7.0
        turned[2, 1] = 9.0
        return x, row, flat, turned

    agree(case)


def test_views_of_a_rewritten_base_belong_to_its_new_history():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        v = y[0]
        before = v.grad_fn.name()
        y.mul_(3.0)
        v.backward()
        return before, v.requires_grad, v.is_leaf, v.item(), x.grad

    agree(case)


def test_views_of_a_tensor_that_got_a_history_have_one_too():
    def case(t):
        z = t.zeros(3)
        v = z[1:]
        before = v.requires_grad
        z.add_(leaf(t))
        return before, v.requires_grad, v.is_leaf, v.tolist()

    agree(case)


def test_a_value_that_was_changed_since_it_was_saved_is_noticed():
    def case(t):
        y = leaf(t).exp()
        y.add_(1.0)
        y.sum().backward()

    refuse(case, RuntimeError, r"modified by an inplace operation.*\[3\]")


def test_in_place_needs_no_more_room_than_there_is():
    refuse(lambda t: t.zeros(2).add_(t.zeros(3, 2)), RuntimeError, "broadcast shape|size of tensor")
    refuse(lambda t: t.tensor([1, 2]).mul_(0.5), RuntimeError, "can't be cast")
    agree(lambda t: t.tensor([1, 2]).copy_(t.tensor([1.9, 2.9])))


@pytest.mark.parametrize("name", ["w.add_(1.0)", "w[0].add_(1.0)", "w.zero_()", "w.detach_().add_(1.0)"])
def test_leaves_that_require_grad_are_protected(name):
    def case(t):
        w = leaf(t)
        eval(name, {"w": w})
        return w

    if "detach_" in name:
        agree(case)
    else:
        refuse(case, RuntimeError, "leaf Variable that requires grad is being used in an in-place operation")


@pytest.mark.parametrize("part", ["0", "slice(None)", "[0, 1]", "t.tensor([0])", "..."])
def test_assignment_to_a_leaf_that_requires_grad_is_refused(part):
    def case(t):
        w = leaf(t)
        w[eval(part, {"t": t})] = 1.0

    refuse(case, RuntimeError, "leaf Variable that requires grad is being used in an in-place operation")


def test_outputs_of_an_op_with_several_views_are_protected():
    def case(t):
        first, _ = (leaf(t, 1.0, 2.0) * 2.0).unbind()
        first.add_(1.0)

    refuse(case, RuntimeError, "view")


def test_detach_in_place_makes_a_leaf():
    def case(t):
        x = leaf(t)
        y = x * 2.0
        same = y.detach_() is y
        return same, y, y.is_leaf, y.requires_grad_(), (y * 2.0).sum().backward(), y.grad, x.grad

    agree(case)


def test_requires_grad_can_be_set_after_writing():
    def case(t):
        x = t.zeros(2)
        x[0] = 5.0
        x.requires_grad_()
        (x * x).sum().backward()
        return x, x.grad

    agree(case)


def test_gradients_can_be_changed_in_place():
    def case(t):
        x = leaf(t)
        (x * x).sum().backward()
        x.grad.mul_(10.0)
        held = x.grad
        held.zero_()
        (x * 1.0).sum().backward()
        return x.grad, held is x.grad

    agree(case)
