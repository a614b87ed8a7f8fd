"""utils.checkpoint: the same values and gradients, with the function called again in backward."""

from importlib import import_module

from tests.scenarios.kit import Client, leaf, over_the_wire_only, refused


def _checkpoint(torch, *args, **kwargs):
    return import_module(f"{torch.__name__}.utils.checkpoint").checkpoint(*args, use_reentrant=False, **kwargs)


def _model(torch):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(p.numel()).reshape(p.shape) * 0.1 - 0.3)
    return model


def the_function_is_called_again_in_backward(torch):
    x, calls = leaf(torch), []

    def f(x):
        calls.append(torch.is_grad_enabled())
        return (x.sin() * x).exp()

    y = _checkpoint(torch, f, x)
    before = len(calls)
    y.sum().backward()
    return before, calls, y, x.grad


@over_the_wire_only(Client.MODULES)
def parameters_of_a_closure_receive_gradients(torch):
    model, x = _model(torch), torch.ones(2, 3)
    y = _checkpoint(torch, model, x)
    (y**2).sum().backward()
    return y, [p.grad for p in model.parameters()]


@over_the_wire_only(Client.MODULES)
def several_in_a_row(torch):
    model, x = _model(torch), leaf(torch)
    y = x
    for layer in model:
        y = _checkpoint(torch, layer, y)
    (y**2).sum().backward()
    return y, x.grad, [p.grad for p in model.parameters()]


def one_in_another(torch):
    x, calls = leaf(torch), []

    def inner(h):
        calls.append("inner")
        return h.tanh() * h

    def outer(x):
        calls.append("outer")
        return _checkpoint(torch, inner, x.sin()).exp() * x

    y = _checkpoint(torch, outer, x)
    y.sum().backward()
    return calls[:2], x.grad


def several_inputs_and_outputs(torch):
    x, w = leaf(torch), leaf(torch, 4.0, 5.0, 6.0)
    y, parts = _checkpoint(torch, lambda x, k, w=None: (x * w, {"a": (x * k).exp()}), x, 0.5, w=w)
    (y.sum() + parts["a"].sum()).backward()
    return y, x.grad, w.grad


def a_derivative_of_second_order(torch):
    x = leaf(torch)
    y = _checkpoint(torch, lambda x: (x**3).sin(), x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return g.detach(), torch.autograd.grad(g.sum(), x)


def backward_twice_with_retain_graph(torch):
    x = leaf(torch)
    y = _checkpoint(torch, lambda x: x.exp() * x, x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def in_place_changes_and_views_inside(torch):
    x = leaf(torch)

    def f(x):
        h = x * 2
        h[1:].mul_(x[:2])
        return h.exp()

    _checkpoint(torch, f, x).sum().backward()
    return x.grad


def hooks_outside_and_inside(torch):
    x, seen = leaf(torch), []
    x.register_hook(lambda g: seen.append(g.tolist()))

    def f(x):
        h = x.exp()
        h.register_hook(lambda g: g * 2)
        return h * h

    _checkpoint(torch, f, x).sum().backward()
    return seen, x.grad


def without_grad_mode_it_is_a_plain_call(torch):
    x, calls = leaf(torch), []
    with torch.no_grad():
        y = _checkpoint(torch, lambda x: (calls.append(1), x * x)[1], x)
    return calls, y


def what_the_function_raises_comes_out(torch):
    x = leaf(torch)

    def f(x):
        raise KeyError("mine")

    try:
        _checkpoint(torch, f, x)
    except KeyError as error:
        told = str(error)
    y = _checkpoint(torch, lambda x: x.exp(), x)
    y.sum().backward()
    return told, x.grad


@refused(RuntimeError, "A different number of tensors was saved during the original forward and recomputation")
def another_function_the_second_time(torch):
    x, calls = leaf(torch), []

    def f(x):
        calls.append(1)
        return x.exp().sin() if len(calls) == 1 else x.exp()

    _checkpoint(torch, f, x).sum().backward()


@refused(ZeroDivisionError, "mine")
def an_error_the_second_time(torch):
    x, calls = leaf(torch), []

    def f(x):
        calls.append(1)
        if len(calls) > 1:
            raise ZeroDivisionError("mine")
        return x.exp()

    _checkpoint(torch, f, x).sum().backward()


@over_the_wire_only(Client.MODULES)
def a_sequence_in_segments(torch):
    model, x = _model(torch), leaf(torch)
    sequential = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint_sequential
    y = sequential(model, 2, x, use_reentrant=False)
    (y**2).sum().backward()
    return y, x.grad, [p.grad for p in model.parameters()]
