"""Cases: tensors."""

import gradwire
from tests.client.compile_cases.table import Holder, case


@case
def a_closed_over_tensor_exchanged():
    held = [gradwire.ones(3)]
    return (lambda x: x * held[0]), lambda: held.__setitem__(0, gradwire.full((3,), 2.0))


@case
def a_tensors_values():
    held = gradwire.ones(3)
    return (lambda x: x * held), lambda: held.mul_(3)


@case
def a_tensors_data():
    held = gradwire.ones(3)
    return (lambda x: x * held), lambda: setattr(held, "data", gradwire.full((3,), 4.0))


@case
def whether_a_tensor_requires_grad():
    held = gradwire.ones(3)
    return (lambda x: x * held * (2 if held.requires_grad else 1)), lambda: held.requires_grad_()


@case
def an_attribute_on_a_tensor():
    held = gradwire.ones(3)
    held.scale = 2.0
    return (lambda x: x * held.scale), lambda: setattr(held, "scale", 3.0)


@case
def an_attribute_that_a_tensor_gets():
    held = gradwire.ones(3)
    return (lambda x: x * getattr(held, "scale", 2.0)), lambda: setattr(held, "scale", 3.0)


@case
def an_attribute_on_an_argument():
    turn = iter([2.0, 2.0, 2.0, 3.0, 3.0, 2.0])

    def args():
        made = gradwire.ones(3)
        made.scale = next(turn)
        return (made,)

    return (lambda x: x * x.scale), lambda: None, args


@case
def the_stride_of_an_argument():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.arange(4.0).reshape(2, 2)
        return (made.t() if next(turn) else made,)

    return (lambda x: x * x.stride()[0]), lambda: None, args


@case
def whether_an_argument_is_contiguous():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.arange(4.0).reshape(2, 2)
        return (made.t() if next(turn) else made,)

    return (lambda x: x * 2 if x.is_contiguous() else x), lambda: None, args


@case
def the_version_of_an_argument():
    turn = iter([0, 0, 0, 1, 2, 0])

    def args():
        made = gradwire.ones(3)
        for _ in range(next(turn)):
            made.add_(0)
        return (made,)

    return (lambda x: x * (1 + x._version)), lambda: None, args


@case
def the_version_of_a_tensor():
    held = gradwire.ones(3)
    return (lambda x: x * (1 + held._version)), lambda: held.add_(0)


@case
def whether_an_argument_retains_its_gradient():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.ones(3, requires_grad=True) * 1
        if next(turn):
            made.retain_grad()
        return (made,)

    return (lambda x: x * (2 if x.retains_grad else 1)), lambda: None, args


@case
def whether_an_argument_is_a_leaf():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.ones(3, requires_grad=True)
        return (made * 1 if next(turn) else made,)

    return (lambda x: x * (2 if x.is_leaf else 1)), lambda: None, args


@case
def which_node_made_an_argument():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.ones(3, requires_grad=True)
        return (made.exp() if next(turn) else made.sin(),)

    return (lambda x: x * (2 if "Exp" in x.grad_fn.name() else 1)), lambda: None, args


@case
def whether_an_argument_is_a_view():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.ones(4)
        return (made[0:3] if next(turn) else gradwire.ones(3),)

    return (lambda x: x * (2 if x._is_view() else 1)), lambda: None, args


@case
def whether_two_arguments_are_one():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.ones(3)
        return (made, made if next(turn) else gradwire.ones(3))

    return (lambda a, b: a * (2 if a is b else 1) + b), lambda: None, args


@case
def whether_an_argument_is_a_closed_over_tensor():
    held = gradwire.ones(3)
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        return (held if next(turn) else gradwire.ones(3),)

    return (lambda x: x * (2 if x is held else 1)), lambda: None, args


@case
def arguments_that_share_their_bytes():
    turn = iter([0, 0, 0, 1, 1, 0])

    def args():
        made = gradwire.ones(3)
        return (made, made.detach() if next(turn) else gradwire.ones(3))

    def step(a, b):
        a.add_(1)
        return a + b

    return step, lambda: None, args


@case
def whether_a_leaf_has_a_gradient():
    held = gradwire.ones(3, requires_grad=True)

    def change():
        (held * 2).sum().backward()

    return (lambda x: x * (2 if held.grad is None else 1)), change


@case
def whether_a_leaf_that_is_not_used_has_lost_its_gradient():
    held = gradwire.ones(3, requires_grad=True)
    (held * 2).sum().backward()
    return (lambda x: x * (2 if held.grad is None else 1)), lambda: setattr(held, "grad", None)


@case
def a_frozen_leafs_gradient():
    held = gradwire.ones(3, requires_grad=True)
    (held * 2).sum().backward()
    held.requires_grad_(False)
    return (lambda x: x if held.grad is None else x * held.grad), lambda: setattr(held, "grad", None)


@case
def the_shape_of_a_tensor_that_is_not_used():
    held = Holder(t=gradwire.ones(3))
    return (lambda x: x * held.t.shape[0]), lambda: setattr(held, "t", gradwire.ones(4))


@case
def a_tensors_method_that_is_replaced():
    held = gradwire.ones(3)

    def change():
        held.sum = lambda: gradwire.tensor(7.0)

    return (lambda x: x * held.sum()), change


@case
def a_tensor_in_a_set():
    held = {gradwire.ones(3)}

    def change():
        held.clear()
        held.add(gradwire.full((3,), 2.0))

    return (lambda x: x * next(iter(held))), change


@case
def a_list_of_tensors_that_grows():
    held = [gradwire.ones(3)]

    def step(x):
        for each in held:
            x = x + each
        return x

    return step, lambda: held.append(gradwire.ones(3))
