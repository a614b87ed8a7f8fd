"""The first step is a program already: its bytes are those of a recorded step, and its values those op by op."""

import numpy as np
import pytest

import gradwire as gw
from gradwire import nn
from gradwire._tensor.call import _parameters
from gradwire.optim import _noted, _steps
from gradwire.v1 import programs_pb2
from tests.client.oracle import torch

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

SHAPES = [(3, 4), (4,), (5, 4), (2, 4), (1,), (7,), (3, 3), (), (0, 2), (2, 2, 2)]
FIRST = [
    "SGD(params, lr=0.1)",
    "SGD(params, lr=0.1, weight_decay=1, maximize=True)",
    "Adam(params, lr=0.1)",
    "Adam(params, lr=0.1, amsgrad=True, weight_decay=0.1)",
    "AdamW(params, lr=0.1, maximize=True)",
    "AdamW(params, betas=(0.0, 0.5), amsgrad=True)",
    "Adamax(params, weight_decay=0.1)",
    "NAdam(params, decoupled_weight_decay=True, weight_decay=0.1)",
    "RAdam(params, lr=0.1)",
    "Adagrad(params, lr_decay=0.1, initial_accumulator_value=0.5)",
    "RMSprop(params)",
    "RMSprop(params, centered=True, momentum=0.5, weight_decay=0.1)",
    "Adadelta(params, weight_decay=0.1)",
    "ASGD(params, t0=2)",
]
SECOND = [
    "SGD(params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "SGD(params, lr=0.1, momentum=0.9, dampening=0.2, maximize=True)",
]
NOT = ["Rprop(params)"]


@pytest.fixture
def notes(monkeypatch):
    """Whether each step that could be noted was."""
    found, note = [], _steps.note_step

    def noted(session, optimizer):
        made = note(session, optimizer)
        found.append(made is not None)
        return made

    monkeypatch.setattr(_steps, "note_step", noted)
    return found


def optimizer_of(framework, text, params):
    return eval(f"framework.optim.{text}", {"framework": framework, "params": params})


def loss_of(params):
    return sum((param * param).sum() * place + param.sin().sum() for place, param in enumerate(params, 1))


def trained(framework, text, values, steps):
    params = [framework.tensor(value, requires_grad=True) for value in values]
    optimizer = optimizer_of(framework, text, params)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(params).backward()
        optimizer.step()
    return params, optimizer


def shown(params, optimizer):
    """Values, state and versions."""
    states = [
        {
            name: value.tolist() if isinstance(value, gw.Tensor) else value
            for name, value in optimizer.state[each].items()
        }
        for each in params
    ]
    return [each.tolist() for each in params], states, [each._version for each in params]


def without_notes(monkeypatch):
    monkeypatch.setattr(_steps, "note_step", lambda *_: None)


def normal(data):
    """A program's message, without arguments that are their parameters' defaults."""
    program = programs_pb2.Program.FromString(data)
    for step in program.steps:
        if step.WhichOneof("step") == "op":
            names, defaults, _ = _parameters(step.op.op)
            named = [(each.name or names[place], each) for place, each in enumerate(step.op.args)]
            kept = [each for name, each in named if not (name in defaults and is_value(each, defaults[name]))]
            del step.op.args[:]
            step.op.args.extend(kept)
    return program


def is_value(argument, value):
    kind = argument.WhichOneof("kind")
    return value is None if kind == "none" else kind in ("integer", "boolean") and getattr(argument, kind) == value


@pytest.mark.parametrize("text", FIRST + SECOND)
def test_a_noted_program_is_that_of_a_recorded_step(text, deferring, notes, monkeypatch):
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    _, noted = trained(gw, text, values, 3)
    assert notes == [text in FIRST] + [True] * (text in SECOND)
    without_notes(monkeypatch)
    _, recorded = trained(gw, text, values, 3)
    one, other = (each._steps._program._step for each in (noted, recorded))
    assert normal(one.data).SerializeToString() == normal(other.data).SerializeToString()
    assert len(one.captures) == len(other.captures)
    assert len(one.changed) == len(other.changed)


@pytest.mark.parametrize("text", FIRST + SECOND + NOT)
@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("shapes", [SHAPES, SHAPES[:1]], ids=["many", "one"])
def test_noted_steps_are_those_op_by_op(text, steps, shapes, deferring, notes, monkeypatch):
    values = [RNG.standard_normal(shape) for shape in shapes]
    found = shown(*trained(gw, text, values, steps))
    assert notes[0] == (text in FIRST)
    without_notes(monkeypatch)
    assert found == shown(*trained(gw, text, values, steps))


@pytest.mark.parametrize("text", FIRST)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_noted_steps_have_the_bits_of_ops_in_each_dtype(text, dtype, deferring, notes, monkeypatch):
    values = [RNG.standard_normal(shape) for shape in SHAPES[:4]]

    def ended():
        params = [gw.tensor(value, dtype=getattr(gw, dtype), requires_grad=True) for value in values]
        optimizer = optimizer_of(gw, text, params)
        for _ in range(2):
            for param, value in zip(params, values, strict=True):
                param.grad = gw.tensor(value, dtype=param.dtype)
            optimizer.step()
        return shown(params, optimizer)

    found = ended()
    assert notes[0]
    without_notes(monkeypatch)
    assert found == ended()


@pytest.mark.parametrize("text", FIRST + SECOND)
def test_state_after_the_first_step_is_pytorchs(text, deferring):
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    found = []
    for framework in (gw, torch):
        params, optimizer = trained(framework, text, values, 1)
        state = optimizer.state_dict()["state"]
        found.append([{name: np.asarray(state[at][name]) for name in sorted(state[at])} for at in sorted(state)])
        found[-1] += [np.array(each.tolist()) for each in params]
    ours, theirs = found
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, dict):
            assert one.keys() == other.keys()
        for name in one if isinstance(one, dict) else [...]:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-12)


def test_an_update_with_another_op_goes_op_by_op_from_the_state_before(deferring, notes, monkeypatch):
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    wanted = shown(*trained(gw, "NAdam(params)", values, 3))
    monkeypatch.setattr(_noted, "_NEW", _noted._NEW - {"div"})  # after the step was counted
    assert shown(*trained(gw, "NAdam(params)", values, 3)) == wanted
    assert notes[:2] == [True, False]


def test_a_program_over_the_servers_limits_goes_op_by_op(deferring, notes, monkeypatch):
    values = [RNG.standard_normal(shape) for shape in SHAPES]
    wanted = shown(*trained(gw, "Adam(params)", values, 3))
    monkeypatch.setattr(deferring, "limits", type(deferring.limits)(max_program_steps=20, max_program_bytes=1 << 20))
    assert shown(*trained(gw, "Adam(params)", values, 3)) == wanted
    assert notes[:2] == [True, False]


def test_a_note_leaves_nothing_behind(deferring, notes):
    params, optimizer = trained(gw, "Adam(params)", [RNG.standard_normal(shape) for shape in SHAPES], 1)
    assert notes == [True]
    assert list(map(id, optimizer.state)) == list(map(id, params))
    assert all(one is other for one, other in zip(optimizer.param_groups[0]["params"], params, strict=True))
    assert deferring.recorder is None
    assert min(deferring.released, default=1) > 0
    assert [each.grad.tolist() is not None for each in params] == [True] * len(params)


def test_groups_have_their_own_options(deferring, notes):
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    values, found = [RNG.standard_normal((2, 3)) for _ in range(4)], []
    for framework in (gw, torch):
        params = [framework.tensor(value, requires_grad=True) for value in values]
        groups = [{"params": params[:1], "lr": 0.5}, {"params": params[1:], "betas": (0.5, 0.6), "weight_decay": 0.1}]
        optimizer = framework.optim.Adam(groups, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(params).backward()
            optimizer.step()
        found.append([param.tolist() for param in params])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert notes == [True]


def test_a_gradient_that_comes_later_makes_another_program(deferring, notes):
    """Only the first step, and one like that before it, become programs."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
    values, found = [RNG.standard_normal((2, 3)) for _ in range(4)], []
    for framework in (gw, torch):
        params = [framework.tensor(value, requires_grad=True) for value in values]
        optimizer = framework.optim.Adam(params, lr=0.1)
        for step in range(8):
            optimizer.zero_grad()
            loss_of(params[: 2 + step % 3] if step < 5 else params).backward()
            optimizer.step()
        found.append([param.tolist() for param in params])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert notes == [True, True]
    assert len(deferring.programs) == 2


def unusual_parameters(name):
    params = [gw.tensor(RNG.standard_normal(3), requires_grad=True) for _ in range(3)]
    optimizer = gw.optim.Adam(params, lr=0.1)
    if name == "a rate that is a tensor":
        optimizer.param_groups[0]["lr"] = gw.tensor(0.1)
    elif name == "shared memory":
        base = gw.tensor(RNG.standard_normal((3, 3)))
        params = [nn.Parameter(base[0]), nn.Parameter(base[0]), nn.Parameter(base[1])]
        optimizer = gw.optim.Adam(params, lr=0.1)
    elif name == "a state of another dtype":
        for each in params:
            squares = gw.zeros(3, dtype=gw.float32)  # a mean of another dtype is refused
            optimizer.state[each] = {"step": 0, "exp_avg": gw.zeros_like(each), "exp_avg_sq": squares}
    elif name == "a subclass":
        optimizer.__class__ = type(
            "Mine", (gw.optim.Adam,), {"_update": lambda self, group: super(type(self), self)._update(group)}
        )
    return params, optimizer


@pytest.mark.parametrize(
    "name", ["a rate that is a tensor", "shared memory", "a state of another dtype", "a subclass", "a patched method"]
)
def test_what_is_unusual_goes_op_by_op(name, deferring, notes, monkeypatch):
    if name == "a patched method":
        original = gw.Tensor.addcdiv_
        monkeypatch.setattr(gw.Tensor, "addcdiv_", lambda self, *args, **kwargs: original(self, *args, **kwargs))
    params, optimizer = unusual_parameters(name)
    before = [param.tolist() for param in params]
    loss_of(params).backward()
    optimizer.step()
    assert not any(notes)
    assert [param.tolist() for param in params] != before


def test_a_class_that_is_patched_back_is_the_packages_again(deferring, notes, monkeypatch):
    original = gw.optim.Adam._update
    with monkeypatch.context() as patched:
        patched.setattr(gw.optim.Adam, "_update", lambda self, group: original(self, group))
        trained(gw, "Adam(params)", [RNG.standard_normal(3)], 1)
    trained(gw, "Adam(params)", [RNG.standard_normal(3)], 1)
    assert notes == [False, True]


def test_ops_of_other_code_in_the_middle_are_no_part_of_a_note(deferring, notes, monkeypatch):
    """A finalizer may run at any time."""
    values = [RNG.standard_normal((2, 3)) for _ in range(3)]
    wanted = shown(*trained(gw, "Adam(params)", values, 2))
    other, pieces, seen = gw.ones(2), _noted._pieces, []

    def interrupted(op, *args):
        if not seen:
            seen.append(other.mul(3.0))  # from this file
        return pieces(op, *args)

    monkeypatch.setattr(_noted, "_pieces", interrupted)
    assert shown(*trained(gw, "Adam(params)", values, 2)) == wanted
    assert notes == [True, True]
    assert seen[0].tolist() == [3.0, 3.0]


def test_a_finalizer_may_read_a_value_while_a_step_is_noted(deferring, notes, monkeypatch):
    """Nothing is recorded, so that nothing is refused as it is in a compiled function."""
    other, pieces, seen = gw.full((2,), 3.0), _noted._pieces, []

    def interrupted(op, *args):
        if not seen:
            seen.append(other.sum().item())  # from this file
        return pieces(op, *args)

    monkeypatch.setattr(_noted, "_pieces", interrupted)
    trained(gw, "Adam(params)", [RNG.standard_normal((2, 3))], 2)
    assert notes == [True]
    assert seen == [6.0]


def _with_changed_state(framework, text, change, steps=8):
    params = [framework.tensor([1.0, -2.0, 0.5], requires_grad=True), framework.tensor([3.0], requires_grad=True)]
    optimizer = optimizer_of(framework, text, params)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(params).backward()
        if step == 4:
            for param in params:
                change(framework, optimizer, param)
        optimizer.step()
    states = optimizer.state_dict()["state"].values()
    return [*[param.tolist() for param in params], *[float(state["step"]) for state in states]]


def _replace_state(framework, optimizer, param):
    optimizer.state[param] = dict(optimizer.state[param])


def _set_step(framework, optimizer, param):
    optimizer.state[param]["step"] = framework.tensor(1.0)


@pytest.mark.parametrize("change", [_replace_state, _set_step])
@pytest.mark.parametrize(
    "text", ["Adam(params, lr=0.1)", "Adagrad(params, lr_decay=0.1)", "RAdam(params, lr=0.1)", "ASGD(params, t0=2)"]
)
def test_a_state_that_a_program_replaces_is_the_one_that_counts(text, change, session):
    expected = _with_changed_state(torch, text, change)
    for found, known in zip(_with_changed_state(gw, text, change), expected, strict=True):
        assert found == pytest.approx(known, rel=1e-4, abs=1e-6)


def test_adagrads_first_sums_are_those_of_its_constructor(session):
    """PyTorch leaves out what a group says."""

    def run(framework):
        params = [framework.ones(2, requires_grad=True) for _ in range(2)]
        groups = [{"params": params[:1], "initial_accumulator_value": 3.0}, {"params": params[1:]}]
        optimizer = framework.optim.Adagrad(groups, lr=0.1, initial_accumulator_value=1.0)
        sum(param.sum() for param in params).backward()
        optimizer.step()
        return [param.tolist() for param in params]

    assert run(gw) == [pytest.approx(each) for each in run(torch)]
