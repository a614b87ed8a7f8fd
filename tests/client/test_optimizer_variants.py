"""Optimizers of complex parameters, differentiable steps, and hooks of states, beside PyTorch's."""

import numpy as np
import pytest

import gradwire
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {"amsgrad": True, "maximize": True}),
        ("Adam", {"weight_decay": 0.1}),
        ("Adagrad", {"initial_accumulator_value": 0.2, "lr_decay": 0.1}),
        ("RMSprop", {"centered": True, "momentum": 0.9}),
        ("Rprop", {"step_sizes": (1e-3, 0.2)}),
    ],
)
def test_options_hold_for_complex_parameters(name, options):
    start, grad = RNG.standard_normal((2, 4)) + 1j, RNG.standard_normal((2, 4)) * 1j

    def moved(t):
        param = t.tensor(start, requires_grad=True)
        optimizer = getattr(t.optim, name)([param], lr=0.1, **options)
        for _ in range(3):
            param.grad = t.tensor(grad)
            optimizer.step()
        return as_real(t, param.detach()), as_real(t, optimizer.state_dict()["state"])

    agree(moved)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_descends_along_both_parts_of_complex_parameters(search):
    start, goal = RNG.standard_normal((2, 3)) + 1j, RNG.standard_normal((2, 3)) * 2j

    def descended(t):
        param, real = t.tensor(start, requires_grad=True), t.ones(2, dtype=t.float64, requires_grad=True)
        optimizer = t.optim.LBFGS([param, real], lr=0.3, max_iter=4, line_search_fn=search)

        def closure():
            optimizer.zero_grad()
            away = param - t.tensor(goal)
            loss = (away * away.conj()).real.pow(2).sum() + ((real - 3) ** 4).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return as_real(t, param.detach()), real.detach()

    agree(descended)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_what_updates_whole_matrices_refuses_complex_parameters(name):
    def step(t):
        param = t.ones(2, 2, dtype=t.complex64, requires_grad=True)
        param.grad = t.ones_like(param)
        getattr(t.optim, name)([param]).step()

    refuse(step, RuntimeError, "does not support complex parameters")


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


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adadelta", "Adagrad", "RMSprop"])
@pytest.mark.parametrize("is_complex", [False, True])
def test_gradients_flow_through_several_differentiable_steps(name, is_complex):
    values, *slopes = RNG.standard_normal((4, 5))
    options = {} if name == "SGD" else {"eps": 0.5}
    if "Adam" in name:
        options["betas"] = (0.5, 0.75)  # whose powers float32 holds
    if is_complex:
        values, slopes = values * (1 + 2j), [slope * (2 - 1j) for slope in slopes]

    def differentiated(t):
        start, grads = t.tensor(values, requires_grad=True), [t.tensor(slope, requires_grad=True) for slope in slopes]
        param = start.clone()
        optimizer = getattr(t.optim, name)([param], lr=0.1, differentiable=True, **options)
        for grad in grads:
            param.grad = grad * 2
            optimizer.step()
        (param * param.conj()).real.sum().backward()
        state = {key: each.detach() for key, each in optimizer.state[param].items() if "exp" in key or "avg" in key}
        found = as_real(t, {**state, "param": param.detach(), "start": start.grad})
        # PyTorch's numbers of steps are of float32 here.
        return {key: each.float() for key, each in found.items()}, [as_real(t, each.grad).float() for each in grads]

    agree(differentiated)


@pytest.mark.parametrize(("name", "options"), [("Adam", {"amsgrad": True}), ("Adamax", {})])
def test_differentiable_steps_keep_the_state_of_complex_parameters(name, options):
    slopes = RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4)) / [[1], [2], [4]]

    def moved(t):
        param = t.zeros(4, dtype=t.complex128, requires_grad=True).clone()
        optimizer = getattr(t.optim, name)([param], lr=0.1, differentiable=True, **options)
        for slope in slopes:
            param.grad = t.tensor(slope, requires_grad=True) * 2
            optimizer.step()
        kept = {key: each.detach() for key, each in optimizer.state[param].items() if "exp" in key}
        return {key: as_real(t, each).float() for key, each in {**kept, "param": param.detach()}.items()}

    agree(moved)


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


def test_asgd_steps_parameters_that_were_cast_since_its_first_step():
    def case(library):
        layer = library.nn.Linear(2, 1)
        with library.no_grad():
            for each in layer.parameters():
                each.fill_(0.5)
        optimizer = library.optim.ASGD(layer.parameters(), lr=0.1, t0=1)
        for step in range(4):
            optimizer.zero_grad()
            layer(library.ones(3, 2, dtype=layer.weight.dtype)).sum().backward()
            optimizer.step()
            if not step:
                layer.double()
        averages = [optimizer.state[each]["ax"] for each in layer.parameters()]
        return [each.tolist() for each in (*layer.parameters(), *averages)], [str(each.dtype)[-7:] for each in averages]

    (found, kinds), (expected, wanted) = case(gradwire), case(torch)
    assert kinds == wanted
    for ours, theirs in zip(found, expected, strict=True):
        assert np.allclose(ours, theirs, rtol=1e-12, atol=0)
