"""Conjugates are copies here and views in PyTorch: they answer alike, and a use that would differ is refused."""

import numpy as np
import pytest

import gradwire
from gradwire import GradwireNotImplementedError
from tests.client.oracle import agree

pytestmark = pytest.mark.usefixtures("deferring")
VALUES = np.random.default_rng(5).standard_normal((4, 3))


def matrix(module, requires_grad=False):
    return module.complex(module.tensor(VALUES), module.tensor(VALUES[::-1].copy())).requires_grad_(requires_grad)


def bits(tensor):
    return tensor.is_conj(), tensor.is_neg()


@pytest.mark.parametrize("differentiable", [False, True])
def test_pending_conjugations_and_negations_are_those_of_pytorch(differentiable):
    def answers(module):
        x = matrix(module, requires_grad=differentiable)
        c = x.conj()
        made = [
            x, c, c.conj(), c.T, c[1:], c.detach(), c.view(12), c * 2, c.clone(), c.real, c.imag, c.imag[0], c.imag + 1,
            x.H, x.mH, x.adjoint(), c.mH, c.mT, module.conj(x), module.imag(c), x.imag, x._neg_view(),
            c._neg_view(), c._neg_view().imag, c.imag._neg_view(), x.resolve_conj(), c.resolve_conj(),
            c.imag.resolve_neg(), x.real.conj(), module.resolve_neg(c.imag),
        ]  # fmt: skip
        told = [module.is_conj(c), module.is_neg(c.imag), x.resolve_conj() is x, x.real.conj().is_conj()]
        return (
            [bits(each) for each in made],
            [
                module.view_as_real(each.resolve_conj()) if each.is_complex() else each.resolve_neg()
                for each in [one.detach() for one in made]
            ],
            told,
        )

    agree(answers)


def test_gradients_through_conjugates():
    def gradients(module):
        x = matrix(module, requires_grad=True)
        c = x.conj()
        (c.imag * x.real + (c * c).real).sum().backward()
        (-c._neg_view() * x).real.sum().backward()
        return x.grad

    agree(gradients)


WRITES = {
    "the source": lambda x, c: (x.mul_(2), c),
    "a view of the source": lambda x, c: (x[0].fill_(1), c),
    "a detached source": lambda x, c: (x.detach().mul_(2), c),
    "an item of the source": lambda x, c: (x.__setitem__(0, 1), c),
    "the conjugate": lambda x, c: (c.mul_(2), x),
    "a view of the conjugate": lambda x, c: (c[1].zero_(), x),
    "its imaginary part": lambda x, c: (c.imag.zero_(), x),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_use_after_a_change_of_the_other_is_refused(write):
    for differentiable in (False, True):
        x = matrix(gradwire, requires_grad=differentiable) * 1
        c = x.conj()
        _, other = write(x, c)
        for _ in range(2):
            with pytest.raises(GradwireNotImplementedError, match="conj_physical"):
                other + 1
        with pytest.raises(GradwireNotImplementedError):
            other.mul_(2)


def test_the_conjugate_of_a_conjugate_follows_both():
    x = matrix(gradwire)
    c = x.conj()
    again = c.conj()
    again.mul_(2)
    for each in (x, c):
        with pytest.raises(GradwireNotImplementedError):
            each + 1


def test_what_pytorch_does_not_change_is_not_refused():
    def changed(module):
        x = matrix(module)
        x.conj()
        x.mul_(2)
        dropped = x.conj()
        copy, physical, real = dropped.clone(), x.conj_physical(), x.real.conj()
        del dropped
        x.add_(1j)
        later = x.conj()
        made = [copy + 1, physical + 1, real + 1, later + 1, x + 1]
        copy.mul_(2)
        return [module.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in made]

    agree(changed)


def test_leaving_the_graph_changes_no_values():
    def detached(module):
        x = matrix(module, requires_grad=True) * 1
        c = x.conj()
        x.detach_()
        return module.view_as_real((c + x).detach())

    agree(detached)


def test_tangents_with_other_bits_are_copied():
    def copied(module):
        kinds = [lambda x: x, lambda x: x.conj(), lambda x: x._neg_view()]
        found = []
        for one in kinds:
            for other in kinds:
                x, t = one(matrix(module)), other(matrix(module))
                with module.autograd.forward_ad.dual_level():
                    dual = module.autograd.forward_ad.make_dual(x, t)
                    found.append(module.autograd.forward_ad.unpack_dual(dual).tangent is t)
        return found

    agree(copied)


@pytest.mark.parametrize("captured", [False, True])
def test_a_compiled_function_that_changes_the_source_is_noticed(captured):
    x = matrix(gradwire)
    step = gradwire.compile((lambda: x.mul_(2)) if captured else (lambda z: z.mul_(2)))
    for runs in range(4):
        c = x.conj() if runs else None
        step(*(() if captured else (x,)))
        if c is not None:
            with pytest.raises(GradwireNotImplementedError, match="conj_physical"):
                c + 1


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.conj().conj().mul_(2),
        lambda x: x.mH.conj().mH.mul_(2),
        lambda x: x.data.add_(1),
        lambda x: gradwire.zeros_like(x).set_(x).add_(1),
    ],
)
def test_a_change_by_way_of_what_is_gone_is_noticed(write):
    x = matrix(gradwire)
    c = x.conj()
    write(x)
    with pytest.raises(GradwireNotImplementedError, match="conj_physical"):
        c + 1


def test_memory_that_two_tensors_share_is_theirs():
    def shared(module):
        x, y, left = matrix(module), matrix(module) * 3, matrix(module)
        former = left.conj()
        x.data = left.data = y
        copy = x.conj() * 1
        y.mul_(2)
        left.add_(1)
        return [module.view_as_real(each.resolve_conj()) for each in (x, y, left, copy, former)]

    agree(shared)
    x, y = matrix(gradwire), matrix(gradwire)
    x.data = y
    c = x.conj()
    y.mul_(2)
    with pytest.raises(GradwireNotImplementedError):
        c + 1


def test_other_sizes_and_strides_are_no_other_values():
    def reshaped(module):
        x = matrix(module)
        c, m = x.conj(), x.mH
        x.transpose_(0, 1).unsqueeze_(0).squeeze_(0)
        w = matrix(module, requires_grad=True)
        y = w * 1
        slopes = y.mH
        y.t_()
        (slopes * y).real.sum().backward()
        return [module.view_as_real(each.resolve_conj()) for each in (x, c + 1, m * x, w.grad)]

    agree(reshaped)
    x = matrix(gradwire)
    c = x.conj()
    x.t_().mul_(2)
    with pytest.raises(GradwireNotImplementedError):
        c + 1


@pytest.mark.parametrize("compiled", [False, True])
def test_conjugates_of_a_gradient_know_what_backward_adds(compiled):
    w = matrix(gradwire, requires_grad=True)

    def step():
        (w.conj() * w).real.sum().backward()

    run = gradwire.compile(step) if compiled else step
    run()
    for _ in range(4):
        c = w.grad.conj()
        c + 1
        run()
        with pytest.raises(GradwireNotImplementedError, match="conj_physical"):
            c + 1
    first = w.grad.conj()
    w.grad = None
    run()
    assert np.allclose(np.array(first.tolist()), 5 * np.array(w.grad.conj().tolist()))


def test_a_change_under_vmap_is_noticed():
    def changed(x):
        x = x.clone()
        c = x.conj()
        x.mul_(2)
        return c

    with pytest.raises(GradwireNotImplementedError, match="conj_physical"):
        gradwire.vmap(changed)(matrix(gradwire)) + 1


APART = {
    "rows": lambda x: (x[0].conj(), lambda: x.__setitem__(1, 2j), lambda: x[2].mul_(2)),
    "columns": lambda x: (x[:, 1].conj(), lambda: x.__setitem__((slice(None), 0), 2j), lambda: x[:, 2].zero_()),
    "elements": lambda x: (x[1, 2].conj(), lambda: x[1, 0].zero_(), lambda: x.__setitem__((2, 2), 1)),
    "slices": lambda x: (x[0].conj(), lambda: x[1:].mul_(2), lambda: x.__setitem__(slice(1, 3), 1j)),
    "from the end": lambda x: (x[-1].conj(), lambda: x[-2].mul_(2)),
}
OVERLAPPING = {
    "the same": (lambda x: x[1], lambda x: x[1].mul_(2)),
    "all": (lambda x: x[1], lambda x: x.mul_(2)),
    "a slice": (lambda x: x[1], lambda x: x[:2].mul_(2)),
    "from the other end": (lambda x: x[3], lambda x: x[-1].mul_(2)),
    "a column": (lambda x: x[1], lambda x: x.__setitem__((..., 0), 1)),
    "a mask": (lambda x: x[1], lambda x: x.__setitem__(x.real > -9, 1)),
    "a row of a slice": (lambda x: x[1], lambda x: x[1:][0].mul_(2)),
    "None before it": (lambda x: x[1], lambda x: x.__setitem__((None, 1), 1)),
    "after other strides": (lambda x: x[1], lambda x: x.t_()[0].mul_(2)),
}


@pytest.mark.parametrize("kind", APART)
def test_a_change_of_other_items_is_none(kind):
    def changed(module):
        x = matrix(module)
        c, *writes = APART[kind](x)
        for write in writes:
            write()
        return [module.view_as_real(each.resolve_conj()) for each in (x, c + 1)]

    agree(changed)


@pytest.mark.parametrize("kind", OVERLAPPING)
def test_a_change_of_an_item_that_overlaps_is_noticed(kind):
    part, write = OVERLAPPING[kind]
    x = matrix(gradwire)
    c = part(x).conj()
    write(x)
    with pytest.raises(GradwireNotImplementedError, match="conj_physical"):
        c + 1


@pytest.mark.parametrize(
    "function",
    [lambda z: z.conj(), lambda z: z.mH, lambda z: (z.conj(), z.conj() * z), lambda z: z.conj().imag],
    ids=["conj", "mH", "two results", "imag"],
)
def test_gradcheck_takes_a_function_that_returns_a_conjugate(function):
    def checked(module):
        x = matrix(module, requires_grad=True)
        twice = module.autograd.gradgradcheck(function, (x,))
        return module.autograd.gradcheck(function, (x,), check_forward_ad=True), twice

    agree(checked)
