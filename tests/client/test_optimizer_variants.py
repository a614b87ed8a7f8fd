"""Optimizers of complex parameters, differentiable steps, and hooks of states, beside PyTorch's."""

import numpy as np
import pytest

from tests.client.oracle import agree, refuse

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = pytest.mark.usefixtures("session")

ADAPTIVE = ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop", "Rprop", "ASGD", "SGD"]


def as_real(t, value):
    """Complex tensors as pairs, which are compared to their last digits but one."""
    if isinstance(value, dict):
        return {name: as_real(t, each) for name, each in value.items()}
    return t.view_as_real(value) if value.is_complex() else value


@pytest.mark.parametrize("name", ADAPTIVE)
def test_complex_parameters_move_as_pairs_of_real_ones(name):
    start = RNG.standard_normal((3, 2)) + 1j * RNG.standard_normal((3, 2))
    grads = RNG.standard_normal((4, 3, 2)) + 1j * RNG.standard_normal((4, 3, 2))

    def moved(t):
        param, real = t.tensor(start, requires_grad=True), t.tensor(start.real, requires_grad=True)
        optimizer = getattr(t.optim, name)([param, real], lr=0.05)
        seen = []
        for number, grad in enumerate(grads):
            param.grad, real.grad = t.tensor(grad), t.tensor(grad.real)
            optimizer.step()
            seen += [as_real(t, param.detach()).clone(), real.detach().clone()]
            if number == 1 and name not in ("NAdam", "ASGD"):  # whose stored numbers are of float32
                optimizer.load_state_dict(optimizer.state_dict())
        return seen, as_real(t, optimizer.state_dict()["state"])

    agree(moved)


@pytest.mark.parametrize("options", [{"amsgrad": True, "maximize": True}, {"weight_decay": 0.1}])
def test_options_hold_for_complex_parameters(options):
    start, grad = RNG.standard_normal((2, 4)) + 1j, RNG.standard_normal((2, 4)) * 1j

    def moved(t):
        param = t.tensor(start, requires_grad=True)
        optimizer = t.optim.Adam([param], lr=0.1, **options)
        for _ in range(3):
            param.grad = t.tensor(grad)
            optimizer.step()
        return as_real(t, param.detach()), as_real(t, optimizer.state_dict()["state"])

    agree(moved)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_gradients_flow_through_a_differentiable_step(name):
    values, slopes, weights = RNG.standard_normal((3, 5))

    def differentiated(t):
        start, grad = t.tensor(values, requires_grad=True), t.tensor(slopes, requires_grad=True)
        # Without a part in the graph the gradients of SGD's later steps differ in neither library.
        param = start.clone()
        optimizer = getattr(t.optim, name)([param], lr=0.1, differentiable=True)
        param.grad = grad * 2
        optimizer.step()
        (param * t.tensor(weights)).sum().backward()
        return param.detach(), start.grad, grad.grad

    agree(differentiated)


def test_differentiable_steps_refuse_what_has_no_gradient_here():
    def rate(t):
        return t.optim.SGD([t.ones(2)], lr=t.tensor(0.1, requires_grad=True), differentiable=True)

    import gradwire

    with pytest.raises(NotImplementedError, match="no gradient of lr"):
        rate(gradwire).step()
    refuse(
        lambda t: t.optim.Adam([t.ones(2)], fused=True, differentiable=True),
        RuntimeError,
        "`fused` does not support `differentiable`",
    )


def test_hooks_of_states_are_called_and_replace_them():
    def seen(t):
        param = t.tensor([1.0, 2.0], requires_grad=True)
        optimizer = t.optim.SGD([param], lr=0.1, momentum=0.9)
        calls = []

        def before(given):
            calls.append("before")
            given.state["count"] = 1

        def rate(given, state):
            calls.append("load 0.3")
            state["param_groups"][0]["lr"] = 0.3

        def another(given, state):
            calls.append("load copy")
            return {**state, "param_groups": [{**state["param_groups"][0], "lr": 0.2}]}

        optimizer.register_state_dict_pre_hook(before)
        optimizer.register_state_dict_post_hook(lambda given, state: {**state, "more": 2})
        handle = optimizer.register_state_dict_post_hook(lambda given, state: calls.append("after"), prepend=True)
        optimizer.register_load_state_dict_pre_hook(rate)
        optimizer.register_load_state_dict_pre_hook(another, prepend=True)
        optimizer.register_load_state_dict_post_hook(lambda given: calls.append(given.param_groups[0]["lr"]))
        param.grad = t.ones(2)
        optimizer.step()
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        handle.remove()
        again = optimizer.state_dict()
        return calls, state["state"]["count"], state["more"], again["param_groups"][0]["lr"], again["state"][0]

    agree(seen)
