"""A loss that a loop reads after its backward is asked for before it: the value is PyTorch's, and takes no wait."""

import random

import pytest

import gradwire
from gradwire._session.session import Session
from gradwire._tensor.known_values.ahead import ReadAhead
from tests.client.oracle import torch


@pytest.fixture
def waits(monkeypatch):
    """The kinds of the commands that wait, and "ahead" for each read ahead."""
    seen = []
    wait, issue = Session.wait, Session.issue

    def waited(self, command, *args, **kwargs):
        seen.append(command.WhichOneof("command"))
        return wait(self, command, *args, **kwargs)

    def issued(self, command):
        if command.WhichOneof("command") == "read":
            seen.append("ahead")
        return issue(self, command)

    monkeypatch.setattr(Session, "wait", waited)
    monkeypatch.setattr(Session, "issue", issued)
    return seen


def _model(t):
    t.manual_seed(3)
    model = t.nn.Sequential(t.nn.Linear(4, 6), t.nn.Tanh(), t.nn.Linear(6, 1))
    return model, t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), t.randn(8, 4), t.randn(8, 1)


def _losses(t, steps, read=lambda number, loss: loss.item()):
    model, optimizer, x, y = _model(t)
    found = []
    for number in range(steps):
        optimizer.zero_grad()
        loss = t.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        found.append(read(number, loss))
    return found


def test_a_loop_that_reads_each_loss_waits_for_no_read_from_the_second_on(deferring, waits):
    assert _losses(gradwire, 12) == pytest.approx(_losses(torch, 12), rel=1e-5)
    assert waits.count("read") == 1 and waits.count("ahead") == 11


def test_losses_that_are_not_read_are_asked_for_once_at_most(deferring, waits):
    _losses(gradwire, 20, lambda number, loss: loss.item() if number == 3 else None)
    assert waits.count("read") == 1 and waits.count("ahead") == 1


def test_several_losses_that_are_read_after_all_backwards_are_asked_for(deferring, waits):
    def run(t):
        model, optimizer, x, y = _model(t)
        found = []
        for _ in range(8):
            one = t.nn.functional.mse_loss(model(x), y)
            one.backward()
            other = model(x).abs().mean()
            other.backward()
            optimizer.step()
            found += [one.item(), other.item()]
        return found

    assert run(gradwire) == pytest.approx(run(torch), rel=1e-4)
    assert waits.count("read") == 2


_CHANGES = {
    "nothing": lambda t, loss, leaf: None,
    "in place": lambda t, loss, leaf: loss.mul_(3),
    "by a detached view": lambda t, loss, leaf: loss.detach().add_(1),
    "by data": lambda t, loss, leaf: loss.data.fill_(7),
    "by a view": lambda t, loss, leaf: loss.detach().view(1).sub_(2),
    "other data": lambda t, loss, leaf: setattr(loss, "data", t.tensor(5.0)),
    "a leaf's data": lambda t, loss, leaf: (setattr(leaf, "data", loss.detach()), leaf.data.add_(4)),
    "a gradient": lambda t, loss, leaf: (setattr(leaf, "grad", loss.detach()), (leaf * 2).backward()),
    "optimized": lambda t, loss, leaf: (
        setattr(leaf, "data", loss.detach()), leaf.mul(3).backward(), t.optim.SGD([leaf], lr=0.5).step(),
    ),
    "set": lambda t, loss, leaf: loss.detach().set_(t.tensor(2.0)),
    "out": lambda t, loss, leaf: t.add(t.tensor(1.0), 2, out=loss.detach()),
    "swapped": lambda t, loss, leaf: leaf.detach().copy_(loss.detach()),
}  # fmt: skip


@pytest.mark.parametrize("before", ["nothing", "by data", "a leaf's data", "a gradient"])
@pytest.mark.parametrize("after", _CHANGES)
def test_a_loss_that_changes_is_read_again(deferring, before, after):
    """The loss changes before its backward, after it, or shares memory with a leaf that an optimizer changes."""

    def run(t):
        found = []
        for number in range(6):
            weight = t.tensor([0.5, 1.5], requires_grad=True)
            leaf = t.tensor(2.0, requires_grad=True)
            optimizer = t.optim.SGD([weight, leaf], lr=0.1)
            loss = (weight * weight).sum() + leaf * 1.5
            changes = number > 2
            with t.no_grad():
                if changes and before != "a gradient":
                    _CHANGES[before](t, loss, leaf)
            if changes and before == "a gradient":
                leaf.grad = loss.detach()
            loss.backward()
            optimizer.step()
            with t.set_grad_enabled(after in ("a gradient", "optimized")):
                if changes:
                    _CHANGES[after](t, loss, leaf)
            found.append((loss.item(), loss.item(), leaf.item(), *weight.tolist()))
        return found

    expected = run(torch)
    for found, known in zip(run(gradwire), expected, strict=True):
        assert found == pytest.approx(known), (before, after)


@pytest.mark.parametrize("seed", range(20))
def test_loops_of_random_steps_read_what_pytorch_reads(deferring, seed):
    def run(t):
        choice = random.Random(seed)
        model, optimizer, x, y = _model(t)
        found = []
        for _ in range(25):
            loss = t.nn.functional.mse_loss(model(x), y)
            if choice.random() < 0.2:
                loss = loss / 2 if choice.random() < 0.5 else loss.squeeze()
            loss.backward(retain_graph=choice.random() < 0.1)
            if choice.random() < 0.8:
                optimizer.step()
            if choice.random() < 0.2:
                with t.no_grad():
                    loss.mul_(2) if choice.random() < 0.5 else loss.detach().add_(1)
            if choice.random() < 0.7:
                found.append(loss.item())
            if choice.random() < 0.2:
                found.append(bool(loss < 0.5))
            if choice.random() < 0.3:
                found.append(float(loss.detach()))
            if choice.random() < 0.7:
                optimizer.zero_grad()
        return found

    assert run(gradwire) == pytest.approx(run(torch), rel=1e-3, abs=1e-5)


def test_a_value_that_cannot_be_computed_raises_where_it_is_read(deferring):
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)

    def loss_at(place):
        loss = (x * 2).index_select(0, place).sum()
        loss.backward()
        return loss

    for _ in range(3):
        loss_at(gradwire.tensor([1])).item()
    bad = gradwire.tensor([5])
    with pytest.raises(IndexError):
        loss_at(bad).item()
    assert loss_at(gradwire.tensor([0])).item() == 2.0


def test_an_error_of_the_backward_is_raised_at_the_next_wait(deferring):
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)

    def step(spoils):
        held = x * 3
        loss = (held * held).sum()
        if spoils:
            held.mul_(2)
        loss.backward()
        return loss.item()

    for _ in range(3):
        step(False)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        assert step(True) == 45.0 == x.sum().item()


def test_a_loss_that_is_a_leaf_or_a_parameter_is_read_when_it_is_asked_for(deferring, waits):
    leaf = gradwire.tensor(2.0, requires_grad=True)
    optimizer = gradwire.optim.SGD([leaf], lr=1.0)
    found = []
    for _ in range(4):
        optimizer.zero_grad()
        leaf.backward()
        optimizer.step()
        found.append(leaf.item())
    assert found == [1.0, 0.0, -1.0, -2.0]
    assert waits.count("ahead") == 0


def test_another_writer_is_not_foreseen(deferring, waits):
    assert deferring.session_id
    _losses(gradwire, 5)
    assert waits.count("ahead") == 0


def test_a_session_with_a_time_limit_or_without_deferral_reads_as_ever(session, waits):
    with gradwire.timeout(60):
        _losses(gradwire, 5)
    assert waits.count("ahead") == 0


def test_a_value_is_dropped_with_its_tensor(deferring):
    _losses(gradwire, 3)
    x = gradwire.tensor(3.0, requires_grad=True)
    loss = x * x
    loss.backward()
    assert type(loss._known) is ReadAhead
    del loss
    deferring.sync()
    assert x.grad.item() == 6.0
