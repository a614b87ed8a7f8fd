"""Parameters that differ in sizes alone: their updates are those of one by one, bit by bit, and PyTorch's."""

from contextlib import nullcontext

import numpy as np
import pytest

import gradwire as gw
from gradwire import nn
from gradwire.optim import _alike, _steps

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

pytestmark = pytest.mark.usefixtures("session", "unnoted")

SHAPES = [(3, 4), (4,), (5, 4), (2, 4), (1,), (7,), (3, 3), (), (0, 2), (2, 2, 2)]
OPTIMIZERS = [
    "SGD(params, lr=0.1)",
    "SGD(params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "SGD(params, lr=0.1, momentum=0.9, dampening=0.2, maximize=True)",
    "Adam(params, lr=0.1)",
    "Adam(params, lr=0.1, amsgrad=True, weight_decay=0.1)",
    "AdamW(params, lr=0.1, maximize=True)",
    "Adamax(params)",
    "NAdam(params)",
    "RAdam(params, lr=0.1)",
    "Adagrad(params, lr_decay=0.1)",
    "RMSprop(params, centered=True, momentum=0.5)",
    "Adadelta(params)",
    "Rprop(params)",
    "ASGD(params, t0=2)",
]


def losses(framework, params):
    return sum((param * param).sum() * place + param.sin().sum() for place, param in enumerate(params, 1))


def optimizer_of(framework, text, params):
    return eval(f"framework.optim.{text}", {"framework": framework, "params": params})


def trained(framework, text, values, steps):
    """The parameters, their state and their versions after some steps."""
    params = [framework.tensor(value, requires_grad=True) for value in values]
    optimizer = optimizer_of(framework, text, params)
    for _ in range(steps):
        optimizer.zero_grad()
        losses(framework, params).backward()
        optimizer.step()
    return params, [optimizer.state[param] for param in params]


def plain(state):
    return {name: value.tolist() if isinstance(value, gw.Tensor) else value for name, value in state.items()}


@pytest.fixture
def unnoted(monkeypatch):
    """No step is noted, so that steps go op by op (test_optim_noted.py)."""
    monkeypatch.setattr(_steps, "note_step", lambda *_: None)


@pytest.fixture
def repeated(monkeypatch):
    """How many updates were repeated from a tape."""
    count = []
    original = _alike._Tape.repeat
    monkeypatch.setattr(_alike._Tape, "repeat", lambda *args: (count.append(1), original(*args)))
    return count


@pytest.mark.parametrize("text", OPTIMIZERS)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_alike_parameters_are_updated_as_one_by_one(text, steps, repeated, monkeypatch):
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    made, states = trained(gw, text, values, steps)
    found = [param.tolist() for param in made], list(map(plain, states)), [param._version for param in made]
    used = len(repeated)
    monkeypatch.setattr(gw.optim.Optimizer, "_is_alike", False)
    monkeypatch.setattr(type(optimizer_of(gw, text, made)), "_is_alike", False)
    alone, states = trained(gw, text, values, steps)
    assert found == ([param.tolist() for param in alone], list(map(plain, states)), [each._version for each in alone])
    assert used == len(repeated)
    assert used or alone[0]._session.every_call_waits


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_alike_parameters_move_as_pytorchs(text):
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    ours, theirs = (trained(framework, text, values, 5)[0] for framework in (gw, torch))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_parameters_that_share_memory_are_updated_one_by_one(repeated):
    base = gw.tensor(RNG.standard_normal((3, 4)))
    params = [nn.Parameter(base[place]) for place in range(3)]
    params.append(nn.Parameter(base[0]))
    optimizer = gw.optim.SGD(params, lr=0.1)
    before = base.tolist()
    sum(param.sum() for param in params).backward()
    optimizer.step()
    np.testing.assert_allclose(base[1].tolist(), np.array(before[1]) - 0.1)
    np.testing.assert_allclose(base[0].tolist(), np.array(before[0]) - 0.2)  # twice
    assert not repeated


def test_a_class_of_the_users_is_updated_by_its_own_code(repeated):
    class Halved(gw.optim.SGD):
        def _update(self, group):
            for param in group["params"]:
                param.mul_(0.5)

    params = [gw.tensor(RNG.standard_normal(3), requires_grad=True) for _ in range(4)]
    wanted = [(0.5 * np.array(param.tolist())) for param in params]
    losses(gw, params).backward()
    Halved(params, lr=0.1).step()
    for param, value in zip(params, wanted, strict=True):
        np.testing.assert_array_equal(param.tolist(), value)
    assert not repeated


def test_an_update_that_uses_other_tensors_goes_op_by_op(repeated):
    params = [gw.tensor(RNG.standard_normal(3), requires_grad=True) for _ in range(4)]
    wanted = [np.array(param.tolist()) - 0.5 for param in params]
    for param in params:
        param.grad = gw.ones(3, dtype=param.dtype)
    rate = gw.tensor(0.5, dtype=gw.float64)
    optimizer = gw.optim.SGD(params, lr=rate)
    optimizer.step()
    for param, value in zip(params, wanted, strict=True):
        np.testing.assert_allclose(param.tolist(), value, rtol=1e-12)


def test_states_that_differ_are_not_alike():
    """A parameter that joins later has made fewer steps, so its corrections are other numbers."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    values = [RNG.standard_normal((2, 3)) for _ in range(6)]
    found = []
    for framework in (gw, torch):
        params = [framework.tensor(value, requires_grad=True) for value in values]
        optimizer = framework.optim.Adam(params, lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            losses(framework, params if step else params[:3]).backward()
            optimizer.step()
        found.append([param.detach().numpy() for param in params])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


def test_a_compiled_training_step_has_the_same_parameters():
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    found = []
    for compiled in (False, True):
        params = [gw.tensor(value, requires_grad=True) for value in values]
        optimizer = gw.optim.Adam(params, lr=0.1, amsgrad=True)

        def step(params=params, optimizer=optimizer):
            optimizer.zero_grad()
            loss = losses(gw, params)
            loss.backward()
            optimizer.step()
            return loss

        run = gw.compile(step) if compiled else step
        shown = [run().item() for _ in range(6)]
        found.append((shown, [param.tolist() for param in params], [plain(optimizer.state[each]) for each in params]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert [state["step"] for state in found[0][2]] == [state["step"] for state in found[1][2]] == [6] * len(SHAPES)


def test_tensors_in_between_are_released():
    params = [gw.tensor(RNG.standard_normal((8, 8)), requires_grad=True) for _ in range(8)]
    optimizer = gw.optim.Adam(params, lr=0.1)
    session = params[0]._session
    counts = []
    for _ in range(3):
        losses(gw, params).backward()
        optimizer._steps._last = None  # no step becomes a program
        optimizer.step()
        session.sync()
        session.sync()  # what the last batch released is released by now
        counts.append(session.summary().tensors)
    assert counts[1] == counts[2]


def stepped(params, **options):
    """The parameters' values after one step of Adam with gradients of ones."""
    for param in params:
        param.grad = gw.ones_like(param)
    gw.optim.Adam(params, **options).step()
    return [param.tolist() for param in params]


def leaves(count=4):
    return [gw.tensor([1.0 + number] * (number + 1), requires_grad=True) for number in range(count)]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_a_parameter_that_is_given_twice_is_updated_twice():
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    values = [RNG.standard_normal(3) for _ in range(3)]
    found = []
    for framework in (gw, torch):
        params = [framework.tensor(value, requires_grad=True) for value in values]
        optimizer = framework.optim.Adam([params[0], params[0], *params[1:]], lr=0.1, foreach=False)
        losses(framework, params).backward()
        optimizer.step()
        found.append([param.detach().numpy() for param in params])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_parameters_with_one_state_are_updated_one_by_one(repeated):
    params = [gw.tensor(RNG.standard_normal(3), requires_grad=True) for _ in range(4)]
    optimizer = gw.optim.Adam(params, lr=0.1)
    optimizer.state[params[3]] = optimizer.state[params[0]]
    losses(gw, params).backward()
    optimizer.step()
    assert [optimizer.state[param]["step"] for param in params] == [2, 1, 1, 2]
    assert not repeated


def test_a_gradient_in_a_parameters_memory_is_read_when_its_turn_comes(repeated):
    """The middle parameter is of another kind, and its update changes the last one's gradient."""
    params = [gw.tensor([1.0, 2.0], requires_grad=True) for _ in range(4)]
    optimizer = gw.optim.SGD(params, lr=1.0, momentum=0.5)
    optimizer.state[params[1]]["momentum_buffer"] = gw.zeros(2)
    for param in params:
        param.grad = gw.ones(2)
    params[3].grad = params[1].detach()
    optimizer.step()
    assert params[1].tolist() == [0.0, 1.0]
    assert params[3].tolist() == [1.0, 1.0]
    assert not repeated


def test_plain_descent_keeps_no_state():
    params = leaves()
    optimizer = gw.optim.SGD(params, lr=0.1)
    sum(param.sum() for param in params).backward()
    optimizer.step()
    assert not optimizer.state
    assert optimizer.state_dict()["state"] == {}


def test_a_number_of_the_state_that_is_a_tensor_goes_one_by_one(repeated):
    params = [gw.tensor(float(number), requires_grad=True) for number in range(4)]
    optimizer = gw.optim.Adam(params, lr=0.1)
    other = gw.optim.Adam([gw.tensor(float(number), requires_grad=True) for number in range(4)], lr=0.1)
    for each in (optimizer, other):
        for place, param in enumerate(each.param_groups[0]["params"]):
            step = 3 * place
            step = gw.tensor(float(step)) if each is optimizer else step
            each.state[param] = {"step": step, "exp_avg": gw.ones(()), "exp_avg_sq": gw.ones(())}
            param.grad = gw.ones(())
        repeated.clear()
        each.step()
        assert not repeated
    shown = [[param.item() for param in each.param_groups[0]["params"]] for each in (optimizer, other)]
    np.testing.assert_allclose(shown[0], shown[1], rtol=1e-4)


def test_groups_of_two_sessions_have_their_own_commands(server_address):
    wanted = stepped(leaves())
    here = leaves()
    for param in here:
        param.grad = gw.ones_like(param)
    other = gw.connect(server_address)
    try:
        there = leaves()
        for param in there:
            param.grad = gw.ones_like(param)
        (there[0].detach() + 1.0).exp()  # so that the numbers of prepared ops differ
        gw.optim.Adam([{"params": there}, {"params": here}]).step()
        assert [param.tolist() for param in here] == wanted
        assert [param.tolist() for param in there] == wanted
    finally:
        other.close()


def test_optimizers_at_one_place_share_their_prepared_ops():
    def used(session):
        return len([key for key in session.memo if key[0] == "alike"])

    counts = []
    for _ in range(3):
        params = leaves()
        stepped(params)
        counts.append(used(params[0]._session))
    assert counts[0] == counts[1] == counts[2]
    assert counts[0] or params[0]._session.every_call_waits


def test_a_method_of_the_users_is_called_for_each(repeated, monkeypatch):
    original, calls = gw.Tensor.addcdiv_, []

    def counted(self, *args, **kwargs):
        calls.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(gw.Tensor, "addcdiv_", counted)
    stepped(leaves())
    assert len(calls) == 4
    assert not repeated


def test_ops_of_other_code_in_the_middle_are_not_repeated(monkeypatch):
    """A finalizer may run at any time, and is no part of the update."""
    wanted = stepped(leaves())
    params = leaves()
    first, original = params[0], _alike._call
    seen = []

    def interrupted(op, *args):
        if op == "sqrt" and not seen:
            seen.append(op)
            _alike._TAPE.get()._is_inside = False
            first.mul_(1.0)  # from this file
            _alike._TAPE.get()._is_inside = True
        return original(op, *args)

    monkeypatch.setattr(_alike, "_call", interrupted)
    assert stepped(params) == wanted
    versions = [param._version for param in params]
    assert versions == [versions[1] + len(seen), *versions[1:]]


def test_scheduled_rates_do_not_slow_the_steps(repeated):
    params = leaves()
    optimizer = gw.optim.SGD(params, lr=1.0)
    scheduler = gw.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    before = [param.tolist() for param in params]
    for _ in range(3):
        for param in params:
            param.grad = gw.ones_like(param)
        optimizer.step()
        scheduler.step()
    for param, value in zip(params, before, strict=True):
        np.testing.assert_allclose(param.tolist(), np.array(value) - 1.75)
    assert repeated or params[0]._session.every_call_waits


def test_an_interrupted_update_releases_what_it_made(monkeypatch):
    params = leaves()
    session = params[0]._session
    stepped(params)
    session.sync()
    session.sync()
    before = session.summary().tensors
    post, count = type(session).post_op, []

    def broken(self, entry, values):
        post(self, entry, values)
        if entry.key[0] == "alike":
            count.append(1)
            if len(count) == 8:
                raise KeyboardInterrupt

    monkeypatch.setattr(type(session), "post_op", broken)
    with nullcontext() if session.every_call_waits else pytest.raises(KeyboardInterrupt):
        stepped(params)
    monkeypatch.undo()
    for param in params:
        param.grad = None
    session.sync()
    session.sync()
    assert session.summary().tensors <= before


def test_the_state_is_in_the_order_of_the_parameters():
    params = [gw.ones(shape, requires_grad=True) for shape in [(3,), (2, 2), (4,), (), (2, 3)]]
    optimizer = gw.optim.Adam(params)
    sum(param.sum() for param in params).backward()
    optimizer.step()
    assert list(map(id, optimizer.state)) == list(map(id, params))
