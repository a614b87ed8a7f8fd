"""autograd.functional and gradcheck: derivatives of functions, computed by many calls of grad."""

from tests.scenarios.kit import Client, leaf, refused

OVER_THE_WIRE_ONLY = Client.FUNCTIONAL


def _pair(torch):
    return torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])


def jacobian_of_a_vector(torch):
    return torch.autograd.functional.jacobian(lambda x: x.exp() * x.sum(), torch.tensor([0.1, 0.2, 0.3]))


def jacobian_of_several(torch):
    return torch.autograd.functional.jacobian(lambda x, y: (x * y, (x**2).sum()), _pair(torch))


def jacobian_of_a_matrix(torch):
    return torch.autograd.functional.jacobian(lambda x: x @ x.t(), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def jacobian_with_a_graph(torch):
    x = leaf(torch)
    found = torch.autograd.functional.jacobian(lambda a: a**3, x, create_graph=True)
    found.sum().backward()
    return found, x.grad


def jacobian_where_nothing_depends(torch):
    return torch.autograd.functional.jacobian(lambda x, y: x * 2, _pair(torch))


@refused(RuntimeError, "is independent of input 1|strict mode")
def jacobian_strict(torch):
    return torch.autograd.functional.jacobian(lambda x, y: x * 2, _pair(torch), strict=True)


def hessian_of_one(torch):
    return torch.autograd.functional.hessian(lambda x: (x**3).sum() * x[0], torch.tensor([1.0, 2.0, 3.0]))


def hessian_of_several(torch):
    return torch.autograd.functional.hessian(lambda x, y: (x * y * x).sum(), _pair(torch))


def products_with_the_jacobian(torch):
    f = torch.autograd.functional
    x, v = _pair(torch)
    return f.vjp(lambda a: a * a.sum(), x, v), f.jvp(lambda a: a * a.sum(), x, v)


def products_with_the_hessian(torch):
    f = torch.autograd.functional
    x, v = _pair(torch)
    return f.vhp(lambda a: (a**3).sum() * a[0], x, v), f.hvp(lambda a: (a**3).sum() * a[0], x, v)


def products_of_several(torch):
    f = torch.autograd.functional
    given = _pair(torch)
    return f.vjp(lambda a, b: (a * b).sum(), given), f.jvp(lambda a, b: a * b, given, given)


def products_without_a_vector(torch):
    f = torch.autograd.functional
    return f.vjp(lambda a: (a * a).sum(), _pair(torch)[0]), f.jvp(lambda a: a * 3, torch.tensor([2.0]))


@refused(RuntimeError, "invalid size")
def a_vector_of_another_shape_is_refused(torch):
    torch.autograd.functional.vjp(lambda a: a * 2, torch.ones(3), torch.ones(2))


@refused(RuntimeError, "single element")
def a_hessian_of_a_vector_is_refused(torch):
    torch.autograd.functional.hessian(lambda a: a * 2, torch.ones(3))


@refused(TypeError, "Tensor")
def what_is_no_tensor_is_refused(torch):
    torch.autograd.functional.jacobian(lambda a: a, 3.0)


def gradcheck_agrees(torch):
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    return (
        torch.autograd.gradcheck(lambda a, b: (a.sin() * b).sum(0), (x, y)),
        torch.autograd.gradgradcheck(lambda a, b: (a.sin() * b).sum(0), (x, y)),
    )


def gradcheck_of_complex_numbers(torch):
    z = torch.tensor([0.5 + 1j, 1.5 - 0.5j], dtype=torch.complex128, requires_grad=True)
    return torch.autograd.gradcheck(lambda a: (a * a).exp(), (z,)), torch.autograd.gradcheck(lambda a: a.abs(), (z,))


def gradcheck_through_a_rewritten_view(torch):
    x = torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64, requires_grad=True)

    def function(a):
        y = a * a
        y[1:].mul_(a[:2])
        y[0] = y[2] * 2
        return y.view(3, 1) * a

    return torch.autograd.gradcheck(function, (x,)), torch.autograd.gradgradcheck(function, (x,))


def gradcheck_finds_a_wrong_gradient(torch):
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    found = torch.autograd.gradcheck(lambda a: a * a.detach(), (x,), raise_exception=False)
    try:
        torch.autograd.gradcheck(lambda a: a * a.detach(), (x,))
    except RuntimeError as error:
        return found, "Jacobian mismatch for output 0 with respect to input 0" in str(error)
    return found


def gradcheck_agrees_in_forward_mode(torch):
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([0.5 + 1j, 1.5 - 0.5j], dtype=torch.complex128, requires_grad=True)

    def function(a, b):
        return (a.sin() * b).sum(0), a.exp(), a.argmax()

    forward = {"check_forward_ad": True, "check_backward_ad": False}
    only = {"check_fwd_over_rev": True, "check_rev_over_rev": False, "check_undefined_grad": False}
    return (
        torch.autograd.gradcheck(function, (x, y), check_forward_ad=True),
        torch.autograd.gradcheck(function, (x, y), **forward),
        torch.autograd.gradcheck(lambda a: (a * a).exp(), (z,), check_forward_ad=True),
        torch.autograd.gradcheck(lambda a: a.abs(), (z,), **forward),
        torch.autograd.gradgradcheck(lambda a, b: (a.sin() * b).sum(0), (x, y), check_fwd_over_rev=True),
        torch.autograd.gradgradcheck(lambda a, b: (a.sin() * b).sum(0), (x, y), **only),
    )


def gradcheck_finds_a_wrong_tangent(torch):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(a):
            return a.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx, tangent):
            return 2 * tangent * ctx.saved_tensors[0].cos()

    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([0.5 + 1j, 1.5 - 0.5j], dtype=torch.complex128, requires_grad=True)
    found = []
    for each, backward in ((x, True), (z, False)):
        try:
            torch.autograd.gradcheck(Wrong.apply, (each,), check_forward_ad=True, check_backward_ad=backward)
        except RuntimeError as error:
            found.append(str(error).partition("\n")[0])
    return found


@refused(AssertionError, "Expected at least one of check_forward_ad or check_backward_ad to be True")
def gradcheck_needs_a_mode(torch):
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda a: a * 2, (x,), check_backward_ad=False)


@refused(ValueError, "gradcheck expects at least one input tensor to require gradient")
def gradcheck_needs_something_to_check(torch):
    torch.autograd.gradcheck(lambda a: a * 2, (torch.ones(2, dtype=torch.float64),))
