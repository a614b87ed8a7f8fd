"""Learning rate schedules compared with PyTorch: rates, momenta, state and refusals."""

import warnings

import numpy as np
import pytest

import gradwire as gw

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = pytest.mark.usefixtures("deferring")

SCHEDULES = [
    "StepLR(o, 3)",
    "StepLR(o, step_size=2, gamma=0.5)",
    "MultiStepLR(o, [2, 5, 5, 9], gamma=0.3)",
    "ConstantLR(o)",
    "ConstantLR(o, factor=0.25, total_iters=4)",
    "LinearLR(o)",
    "LinearLR(o, start_factor=0.1, end_factor=0.7, total_iters=8)",
    "ExponentialLR(o, 0.9)",
    "PolynomialLR(o, total_iters=9, power=2.0)",
    "CosineAnnealingLR(o, 5)",
    "CosineAnnealingLR(o, T_max=7, eta_min=0.01)",
    "CosineAnnealingWarmRestarts(o, 4)",
    "CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.02)",
    "LambdaLR(o, lambda epoch: 0.9 ** epoch)",
    "LambdaLR(o, [lambda epoch: 1 / (epoch + 1), lambda epoch: 0.5 ** epoch])",
    "MultiplicativeLR(o, lambda epoch: 0.95)",
    "OneCycleLR(o, 0.4, total_steps=21)",
    "OneCycleLR(o, [0.4, 0.8], epochs=3, steps_per_epoch=7, pct_start=0.4, anneal_strategy='linear')",
    "OneCycleLR(o, 0.4, 21, three_phase=True, div_factor=10.0, final_div_factor=100.0, base_momentum=0.7)",
    "OneCycleLR(o, 0.4, 21, cycle_momentum=False)",
    "CyclicLR(o, 0.01, 0.1, step_size_up=4)",
    "CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 3, 5, mode='triangular2')",
    "CyclicLR(o, 0.01, 0.1, 4, mode='exp_range', gamma=0.9)",
    "SequentialLR(o, [ConstantLR(o, 0.1, 3), ExponentialLR(o, 0.9)], [4])",
    "SequentialLR(o, [LinearLR(o, 0.1, total_iters=5), CosineAnnealingLR(o, 9), StepLR(o, 2)], milestones=[5, 14])",
    "ChainedScheduler([ConstantLR(o, 0.1, 4), ExponentialLR(o, 0.9)])",
    "ChainedScheduler([StepLR(o, 3), CosineAnnealingLR(o, 6)], optimizer=o)",
]
OPTIMIZERS = ["SGD(groups, lr=0.2, momentum=0.9)", "Adam(groups, lr=0.2)"]
STEPS = 20


def made(library, text, schedule):
    """Two groups with an optimizer and a scheduler."""
    groups = [{"params": [library.ones(2, requires_grad=True)]}, {"params": [library.ones(1, requires_grad=True)]}]
    groups[1]["lr"] = 0.05
    optimizer = eval(text, dict(vars(library.optim), groups=groups))
    scheduler = eval(schedule, dict(vars(library.optim.lr_scheduler), o=optimizer))
    return optimizer, scheduler


def numbers(optimizer, scheduler):
    """Everything a schedule sets."""
    options = ("lr", "initial_lr", "momentum", "max_momentum", "base_momentum", "max_lr", "min_lr")
    groups = optimizer.param_groups
    plain = [group[option] for group in groups for option in options if group.get(option) is not None]
    return [*plain, *(beta for group in groups for beta in group.get("betas", ())), *scheduler.get_last_lr()]


def plain_state(state):
    """A state without its functions' identities."""
    return {
        name: [plain_state(part) for part in value] if name == "_schedulers" else value
        for name, value in state.items()
        if name not in ("lr_lambdas", "anneal_func", "_scale_fn_ref")
    }


@pytest.mark.parametrize("text", OPTIMIZERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_every_number_is_pytorchs(text, schedule):
    ours, theirs = made(gw, text, schedule), made(torch, text, schedule)
    np.testing.assert_allclose(numbers(*ours), numbers(*theirs), rtol=1e-12)
    for _ in range(STEPS):
        for optimizer, scheduler in (ours, theirs):
            optimizer.step()
            scheduler.step()
        np.testing.assert_allclose(numbers(*ours), numbers(*theirs), rtol=1e-12)
        assert ours[1].last_epoch == theirs[1].last_epoch if hasattr(theirs[1], "last_epoch") else True


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_state_has_pytorchs_names_and_goes_on(schedule):
    ours, theirs = (made(library, OPTIMIZERS[0], schedule) for library in (gw, torch))
    for optimizer, scheduler in (ours, theirs):
        for _ in range(6):
            optimizer.step()
            scheduler.step()
    state = ours[1].state_dict()
    assert set(state) == set(theirs[1].state_dict())
    resumed = made(gw, OPTIMIZERS[0], schedule)
    resumed[0].load_state_dict(ours[0].state_dict())
    resumed[1].load_state_dict(state)
    assert plain_state(resumed[1].state_dict()) == plain_state(state)
    for _ in range(6):
        for optimizer, scheduler in (ours, resumed):
            optimizer.step()
            scheduler.step()
        assert numbers(*resumed) == numbers(*ours)


PLATEAUS = [
    "ReduceLROnPlateau(o)",
    "ReduceLROnPlateau(o, patience=1, factor=0.5, cooldown=2)",
    "ReduceLROnPlateau(o, mode='max', patience=0, threshold=0.1, threshold_mode='abs', min_lr=[0.1, 0.001])",
    "ReduceLROnPlateau(o, 'min', 0.3, 2, 0.05, threshold_mode='abs')",
    "ReduceLROnPlateau(o, mode='max', patience=1, eps=0.02)",
]


@pytest.mark.parametrize("schedule", PLATEAUS)
def test_plateaus_are_seen_as_by_pytorch(schedule):
    figures = np.round(np.abs(np.random.default_rng(5).standard_normal(40)) + 2 / np.arange(1, 41), 3)
    ours, theirs = (made(library, OPTIMIZERS[0], schedule) for library in (gw, torch))
    for figure in figures:
        ours[1].step(gw.tensor(figure))
        theirs[1].step(torch.tensor(figure))
        np.testing.assert_allclose(numbers(*ours), numbers(*theirs), rtol=1e-12)
        assert ours[1].num_bad_epochs == theirs[1].num_bad_epochs
    assert set(ours[1].state_dict()) == set(theirs[1].state_dict())
    resumed = made(gw, OPTIMIZERS[0], schedule)
    resumed[1].load_state_dict(ours[1].state_dict())
    assert resumed[1].state_dict() == ours[1].state_dict()


REFUSALS = [
    ("StepLR(1, 2)", TypeError, "int is not an Optimizer"),
    ("StepLR(o, 2, last_epoch=3)", KeyError, "initial_lr"),
    ("ConstantLR(o, factor=2.0)", ValueError, "between 0 and 1"),
    ("LinearLR(o, start_factor=0.0)", ValueError, "greater than 0"),
    ("LinearLR(o, end_factor=1.5)", ValueError, "between 0 and 1"),
    ("LambdaLR(o, [lambda e: 1])", ValueError, "Expected 2 lr_lambdas, but got 1"),
    ("CosineAnnealingWarmRestarts(o, 0)", ValueError, "Expected positive integer T_0, but got 0"),
    ("CosineAnnealingWarmRestarts(o, 1, T_mult=0)", ValueError, "Expected integer T_mult >= 1, but got 0"),
    ("OneCycleLR(o, 0.1)", ValueError, "You must define either total_steps"),
    ("OneCycleLR(o, 0.1, total_steps=-1)", ValueError, "Expected positive integer total_steps, but got -1"),
    ("OneCycleLR(o, 0.1, 5, pct_start=2.0)", ValueError, "Expected float between 0 and 1 pct_start, but got 2.0"),
    ("OneCycleLR(o, 0.1, 5, anneal_strategy='x')", ValueError, "anneal_strategy must be one of 'cos' or 'linear'"),
    ("OneCycleLR(o, [0.1], 5)", ValueError, "max_lr must have the same length as optimizer.param_groups"),
    ("CyclicLR(o, 0.1, 0.2, mode='x')", ValueError, "mode is invalid"),
    ("ReduceLROnPlateau(o, factor=1.0)", ValueError, "Factor should be < 1.0."),
    ("ReduceLROnPlateau(o, mode='x')", ValueError, "mode x is unknown!"),
    ("ReduceLROnPlateau(o, min_lr=[0.1])", ValueError, "expected 2 min_lrs, got 1"),
    ("SequentialLR(o, [], [])", ValueError, "expects at least one scheduler"),
    ("SequentialLR(o, [StepLR(o, 1)], [2])", ValueError, "one more than the number of milestone points"),
    ("ChainedScheduler([ReduceLROnPlateau(o)])", ValueError, "does not support `ReduceLROnPlateau`"),
    ("StepLR(o, 2, colour=1)", TypeError, "unexpected keyword argument 'colour'"),
]


@pytest.mark.parametrize(("text", "error", "phrase"), REFUSALS)
def test_refusals_are_pytorchs(text, error, phrase):
    for library in (gw, torch):
        with pytest.raises(error, match=phrase):
            made(library, OPTIMIZERS[0], text)


def test_a_step_before_the_optimizers_warns():
    for library in (gw, torch):
        optimizer, scheduler = made(library, OPTIMIZERS[0], "StepLR(o, 2)")
        with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
            scheduler.step()
        optimizer, scheduler = made(library, OPTIMIZERS[0], "StepLR(o, 2)")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()
            scheduler.step()
            scheduler.step()


def test_an_overridden_step_warns():
    for optim, tensor in ((gw.optim, gw.tensor), (torch.optim, torch.tensor)):
        optimizer = optim.SGD([tensor([1.0], requires_grad=True)], lr=0.1)
        schedule = optim.lr_scheduler.StepLR(optimizer, 2)
        optimizer.step = lambda: None
        with pytest.warns(UserWarning, match="overridden after learning rate scheduler initialization.*how-to-adjust"):
            schedule.step()


def test_a_schedule_that_has_ended_refuses_more():
    for library in (gw, torch):
        optimizer, scheduler = made(library, OPTIMIZERS[0], "OneCycleLR(o, 0.1, total_steps=2)")
        optimizer.step()
        scheduler.step()
        scheduler.step()
        with pytest.raises(ValueError, match="Tried to step 3 times"):
            scheduler.step()


def test_scheduled_training_goes_pytorchs_way():
    values = []
    for library in (gw, torch):
        w = library.tensor(np.array([3.0, -2.0]), requires_grad=True)
        optimizer = library.optim.Adam([w], lr=0.1)
        scheduler = library.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=101)
        path = []
        for _ in range(100):
            optimizer.zero_grad()
            (w**4).sum().backward()
            optimizer.step()
            scheduler.step()
            path.append(w.detach().tolist())
        values.append(path)
    np.testing.assert_allclose(*values, rtol=1e-10, atol=1e-10)
