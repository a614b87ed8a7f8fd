"""Hooks of modules: before and after forward, and around backward."""

from tests.scenarios.kit import Client, refused

OVER_THE_WIRE_ONLY = Client.MODULES


def _linear(torch):
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.zero_()
    return layer


def _row(torch):
    return torch.tensor([[1.0, 2.0]], requires_grad=True)


def _lists(gradients):
    return [None if each is None else each.tolist() for each in gradients]


def _two(torch):
    class Two(torch.nn.Module):
        def forward(self, x, factor, other=None):
            return x * factor, (x if other is None else other) + 1

    return Two()


def a_full_backward_hook_sees_gradients_until_it_is_removed(torch):
    layer, x, seen = _linear(torch), _row(torch), []
    handle = layer.register_full_backward_hook(lambda m, gi, go: seen.append((m is layer, _lists(gi), _lists(go))))
    y = layer(x)
    name = y.grad_fn.name()
    y.sum().backward()
    handle.remove()
    y = layer(x)
    y.sum().backward()
    return seen, name, y.grad_fn.name(), x.grad, layer.weight.grad


def backward_hooks_replace_gradients(torch):
    layer, x = _linear(torch), _row(torch)
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    layer(x).sum().backward()
    return x.grad, layer.weight.grad


def a_module_whose_inputs_need_no_gradient(torch):
    layer, seen = _linear(torch), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((_lists(gi), _lists(go))))
    layer(torch.ones(1, 2)).sum().backward()
    return seen, layer.weight.grad


def modules_in_a_row(torch):
    model = torch.nn.Sequential(_linear(torch), torch.nn.ReLU(), _linear(torch))
    x, seen = _row(torch), []
    for place, layer in enumerate(model):
        layer.register_full_backward_hook(lambda m, gi, go, at=place: seen.append((at, _lists(gi), _lists(go))))
    for _ in range(2):
        model(x).sum().backward()
    return seen, x.grad


def a_module_of_several_inputs_and_outputs(torch):
    module, x, seen = _two(torch), _row(torch), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((_lists(gi), _lists(go))))
    one, _ = module(x, 3.0)
    one.sum().backward()
    return seen, x.grad


def hooks_that_see_named_arguments(torch):
    module, seen = _two(torch), []
    module.register_forward_pre_hook(
        lambda m, a, k: (seen.append(list(k)), (a, {"other": k["other"] * 2}))[1], with_kwargs=True
    )
    module.register_forward_hook(lambda m, a, k, out: seen.append((list(k), len(out))), with_kwargs=True)
    module.register_forward_hook(lambda m, a, out: seen.append("first"), prepend=True)
    return module(_row(torch), 2.0, other=torch.ones(1, 2)), seen


def a_hook_that_is_always_called(torch):
    class Failing(torch.nn.Module):
        def forward(self, x):
            raise ValueError("x")

    module, seen = Failing(), []
    module.register_forward_hook(lambda m, a, out: seen.append(out), always_call=True)
    try:
        module(1)
    except ValueError:
        seen.append("raised")
    return seen


def nothing_is_recorded_without_grad(torch):
    layer = _linear(torch)
    layer.register_full_backward_hook(lambda m, gi, go: None)
    with torch.no_grad():
        return layer(_row(torch)).requires_grad


@refused(RuntimeError, "Backward hook returned an invalid number of grad_input, got 2, but expected 1")
def a_backward_hook_that_returns_too_many(torch):
    layer = _linear(torch)
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    layer(_row(torch)).sum().backward()


@refused(RuntimeError, "is a view and is being modified inplace")
def an_in_place_module_with_a_backward_hook(torch):
    module = torch.nn.ReLU(inplace=True)
    module.register_full_backward_hook(lambda m, gi, go: None)
    module(_row(torch) * 1).sum().backward()
