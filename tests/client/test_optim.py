"""Optimizers against PyTorch: the same trajectory step by step, the same refusals, the same state."""

import os

import numpy as np
import pytest

import gradwire as gw
from gradwire import nn

RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test

torch = pytest.importorskip("torch", reason="compares with PyTorch, which is not installed")
pytestmark = pytest.mark.usefixtures("session")

RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((16, 3)), RNG.standard_normal((16, 2))
W, B = RNG.standard_normal((3, 2)), RNG.standard_normal(2)
STEPS = {"0": 100, "1": 10}  # by GRADWIRE_SYNC: where every call waits, fewer do
WAYS_DOWN = {"0": 8, "1": 3}  # the same of L-BFGS, whose step evaluates the loss several times
EACH = 10  # so many steps are compared one by one, the later ones by tens: a read costs as much as a step

OPTIMIZERS = [
    "SGD(params, lr=0.1)",
    "SGD(params, lr=0.1, momentum=0.9)",
    "SGD(params, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01)",
    "SGD(params, lr=0.05, momentum=0.8, nesterov=True)",
    "SGD(params, lr=0.001, maximize=True, weight_decay=0.1)",
    "Adam(params)",
    "Adam(params, lr=0.05, betas=(0.8, 0.95), eps=1e-6)",
    "Adam(params, lr=0.05, weight_decay=0.1)",
    "Adam(params, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True)",
    "Adam(params, lr=0.05, amsgrad=True)",
    "Adam(params, lr=0.01, maximize=True)",
    "AdamW(params, lr=0.05)",
    "AdamW(params, lr=0.05, weight_decay=0.2, amsgrad=True)",
    "Adagrad(params)",
    "Adagrad(params, lr=0.3, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.2, eps=1e-6)",
    "Adagrad(params, lr=0.01, maximize=True)",
    "ASGD(params, lr=0.05)",
    "ASGD(params, lr=0.1, lambd=0.1, alpha=0.5, t0=3, weight_decay=0.01)",
    "RMSprop(params)",
    "RMSprop(params, lr=0.02, alpha=0.9, momentum=0.7, weight_decay=0.1)",
    "RMSprop(params, lr=0.02, centered=True, eps=1e-5)",
    "RMSprop(params, lr=0.02, centered=True, momentum=0.5, maximize=True)",
    "Adadelta(params)",
    "Adadelta(params, lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1)",
    "Adadelta(params, maximize=True)",
    "Rprop(params)",
    "Rprop(params, lr=0.1, etas=(0.4, 1.3), step_sizes=(1e-3, 0.2), maximize=True)",
    "Adamax(params)",
    "Adamax(params, lr=0.05, betas=(0.8, 0.95), weight_decay=0.1)",
    "Adamax(params, maximize=True)",
    "NAdam(params)",
    "NAdam(params, lr=0.02, betas=(0.85, 0.98), momentum_decay=0.01, weight_decay=0.1)",
    "NAdam(params, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)",
    "Adafactor(params)",
    "Adafactor(params, lr=0.2, beta2_decay=-0.5, eps=(1e-6, 1e-2), d=2.0, weight_decay=0.1)",
    "Adafactor(params, lr=0.02, maximize=True)",
    "RAdam(params)",
    "RAdam(params, lr=0.05, betas=(0.8, 0.95), weight_decay=0.1)",
    "RAdam(params, lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)",
]


class Fit:
    """A least-squares fit in one library: its parameters, its optimizer, its steps."""

    def __init__(self, library, text):
        self.library = library
        self.X, self.Y = library.tensor(X), library.tensor(Y)
        self.w = library.tensor(W, requires_grad=True)
        self.b = library.tensor(B, requires_grad=True)
        self.optimizer = eval(text, dict(vars(library.optim), params=[self.w, self.b]))

    def loss(self):
        return ((self.X @ self.w + self.b - self.Y) ** 2).mean()

    def step(self):
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()

    def values(self):
        return np.concatenate([self.w.detach().numpy().ravel(), self.b.detach().numpy()])


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_trajectory_is_pytorchs_step_by_step(text):
    ours, theirs = Fit(gw, text), Fit(torch, text)
    for step in range(1, STEPS[os.environ["GRADWIRE_SYNC"]] + 1):
        ours.step()
        theirs.step()
        if step > EACH and step % EACH:
            continue  # an error of a step stays in the values of all later ones
        np.testing.assert_allclose(ours.values(), theirs.values(), rtol=1e-10, atol=1e-10)
    assert ours.w.is_leaf
    assert ours.w.requires_grad


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("text", OPTIMIZERS)
def test_learning_rate_may_change_between_steps(text, compiled):
    ours, theirs = Fit(gw, text), Fit(torch, text)
    step_of = {ours: gw.compile(ours.step) if compiled else ours.step, theirs: theirs.step}
    first = ours.optimizer.param_groups[0]["lr"]
    for step in range(12):
        for fit in (ours, theirs):
            fit.optimizer.param_groups[0]["lr"] = first / (1 + step // 3)
            step_of[fit]()
    np.testing.assert_allclose(ours.values(), theirs.values(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("option", ["foreach", "fused"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_how_fast_a_step_is_asked_to_be_changes_no_result(name, option):
    plain, asked = Fit(gw, f"{name}(params, lr=0.1)"), Fit(gw, f"{name}(params, lr=0.1, {option}=True)")
    for _ in range(4):
        plain.step()
        asked.step()
    np.testing.assert_array_equal(plain.values(), asked.values())
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        Fit(gw, f"{name}(params, lr=0.1, foreach=True, fused=True)")


def test_groups_have_options_of_their_own():
    fits = []
    for library in (gw, torch):
        fit = Fit(library, "SGD(params)")
        fit.optimizer = library.optim.SGD([{"params": [fit.w], "lr": 0.2}, {"params": fit.b}], lr=0.01, momentum=0.5)
        for _ in range(5):
            fit.step()
        fits.append(fit)
    np.testing.assert_allclose(fits[0].values(), fits[1].values(), rtol=1e-10, atol=1e-10)
    assert repr(fits[0].optimizer) == repr(fits[1].optimizer)


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_optimizer_prints_as_pytorchs(text):
    assert repr(Fit(gw, text).optimizer) == repr(Fit(torch, text).optimizer)


STATEFUL = [text for text in OPTIMIZERS if text.startswith(("SGD(params, lr=0.05", "Adam(params, lr=0.05, amsgrad"))]
STATEFUL += [text for text in OPTIMIZERS[13:] if "weight_decay" in text or text.startswith("R")]


@pytest.mark.parametrize("text", STATEFUL)
def test_state_of_pytorch_is_gone_on_with(text):
    ours, theirs = Fit(gw, text), Fit(torch, text)
    for _ in range(7):
        theirs.step()
    state = theirs.optimizer.state_dict()
    with gw.no_grad():
        ours.w.copy_(gw.tensor(theirs.w.detach().numpy()))
        ours.b.copy_(gw.tensor(theirs.b.detach().numpy()))
    held = {
        key: {
            name: gw.tensor(value.numpy().copy()) if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        for key, values in state["state"].items()
    }
    ours.optimizer.load_state_dict({"state": held, "param_groups": state["param_groups"]})
    for _ in range(10):
        ours.step()
        theirs.step()
    np.testing.assert_allclose(ours.values(), theirs.values(), rtol=1e-10, atol=1e-10)
    again, expected = ours.optimizer.state_dict()["state"], theirs.optimizer.state_dict()["state"]
    for key, values in expected.items():
        for name, value in values.items():
            if value is not None:
                np.testing.assert_allclose(again[key][name].numpy(), value.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("text", STATEFUL)
def test_state_has_pytorchs_keys_and_continues_elsewhere(text):
    ours, theirs = Fit(gw, text), Fit(torch, text)
    for _ in range(3):
        ours.step()
        theirs.step()
    state, expected = ours.optimizer.state_dict(), theirs.optimizer.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    assert {key: set(held) for key, held in state["state"].items()} == {
        key: set(held) for key, held in expected["state"].items()
    }
    resumed = Fit(gw, text)
    resumed.optimizer.param_groups[0]["lr"] = 0.77
    with gw.no_grad():
        resumed.w.copy_(ours.w)
        resumed.b.copy_(ours.b)
    resumed.optimizer.load_state_dict(state)
    for _ in range(5):
        ours.step()
        resumed.step()
    np.testing.assert_array_equal(resumed.values(), ours.values())


def test_loaded_state_is_a_copy_with_the_parameters_dtype():
    double = Fit(gw, "SGD(params, lr=0.1, momentum=0.9)")
    double.step()
    single = gw.optim.SGD([gw.zeros(3, 2, requires_grad=True), gw.zeros(2, requires_grad=True)], lr=0.1)
    single.load_state_dict(double.optimizer.state_dict())
    held = single.state[single.param_groups[0]["params"][0]]["momentum_buffer"]
    assert held.dtype is gw.float32
    before = held.tolist()
    double.step()
    assert held.tolist() == before


def test_state_of_another_shape_is_refused_and_changes_nothing():
    w = gw.zeros(2, requires_grad=True)
    optimizer = gw.optim.SGD([w], lr=0.3)
    two = gw.optim.SGD([w, gw.zeros(1, requires_grad=True)], lr=0.1)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optimizer.load_state_dict(two.state_dict())
    two.add_param_group({"params": gw.zeros(1, requires_grad=True)})
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(two.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.3


def test_parameter_without_a_gradient_is_left_alone():
    w, unused = gw.ones(1, requires_grad=True), gw.ones(1, requires_grad=True)
    optimizer = gw.optim.Adam([w, unused], weight_decay=0.5)
    w.sum().backward()
    optimizer.step()
    assert unused.item() == 1.0
    assert unused not in optimizer.state
    assert w.item() != 1.0


def test_zero_grad_drops_or_zeroes():
    w = gw.ones(2, requires_grad=True)
    optimizer = gw.optim.SGD([w], lr=0.1)
    w.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0.0, 0.0]
    assert not w.grad.requires_grad
    optimizer.zero_grad()
    assert w.grad is None


def test_zero_grad_detaches_a_gradient_with_history():
    for library in (gw, torch):
        w = library.ones(2, requires_grad=True)
        (grad,) = library.autograd.grad((w**3).sum(), w, create_graph=True)
        w.grad = grad
        library.optim.SGD([w], lr=0.1).zero_grad(set_to_none=False)
        assert w.grad is grad
        assert grad.tolist() == [0.0, 0.0]
        assert grad.is_leaf
        assert not grad.requires_grad


def test_step_calls_its_closure_with_gradients_enabled():
    fits = Fit(gw, "SGD(params, lr=0.1)"), Fit(torch, "SGD(params, lr=0.1)")
    for fit in fits:

        def closure(fit=fit):
            fit.optimizer.zero_grad()
            loss = fit.loss()
            loss.backward()
            return loss

        with fit.library.no_grad():
            first = fit.optimizer.step(closure)
        assert first.requires_grad
    np.testing.assert_allclose(fits[0].values(), fits[1].values(), rtol=1e-12)


def test_step_is_seen_by_a_backward_that_saved_the_old_value():
    w = gw.ones(2, requires_grad=True)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    gw.optim.SGD([w], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_named_parameters_keep_their_names():
    model, theirs = nn.Linear(2, 1), torch.nn.Linear(2, 1)
    ours = gw.optim.SGD(model.named_parameters(), lr=0.1)
    expected = torch.optim.SGD(theirs.named_parameters(), lr=0.1)
    assert ours.param_groups[0]["param_names"] == ["weight", "bias"]
    assert ours.state_dict()["param_groups"] == expected.state_dict()["param_groups"]
    with pytest.raises(ValueError, match="with/without names"):
        ours.add_param_group({"params": [gw.ones(1, requires_grad=True)]})


REFUSALS = [
    ("SGD([])", ValueError, "optimizer got an empty parameter list"),
    ("SGD(w)", TypeError, "params argument given to the optimizer should be an iterable"),
    ("SGD([w * 2])", ValueError, "can't optimize a non-leaf Tensor"),
    ("SGD([1.0])", TypeError, "optimizer can only optimize Tensors"),
    ("SGD([{'params': {w}}])", TypeError, "ordered collections"),
    ("SGD([{'params': [w]}, {'params': [w]}])", ValueError, "some parameters appear in more than one parameter group"),
    ("SGD([('w', w), v])", ValueError, "with/without names"),
    ("SGD([w], lr=-1.0)", ValueError, "Invalid learning rate: -1.0"),
    ("SGD([w], momentum=-1.0)", ValueError, "Invalid momentum value: -1.0"),
    ("SGD([w], weight_decay=-1.0)", ValueError, "Invalid weight_decay value: -1.0"),
    ("SGD([w], nesterov=True)", ValueError, "Nesterov momentum requires a momentum and zero dampening"),
    ("Adam([w], betas=(1.0, 0.9))", ValueError, "Invalid beta parameter at index 0: 1.0"),
    ("Adam([w], betas=(0.9, -0.1))", ValueError, "Invalid beta parameter at index 1: -0.1"),
    ("Adam([w], eps=-1.0)", ValueError, "Invalid epsilon value: -1.0"),
    ("AdamW([w], lr=-1.0)", ValueError, "Invalid learning rate: -1.0"),
    ("Adagrad([w], lr_decay=-1.0)", ValueError, "Invalid lr_decay value: -1.0"),
    ("Adagrad([w], initial_accumulator_value=-1.0)", ValueError, "Invalid initial_accumulator_value value: -1.0"),
    ("RMSprop([w], alpha=-1.0)", ValueError, "Invalid alpha value: -1.0"),
    ("RMSprop([w], momentum=-1.0)", ValueError, "Invalid momentum value: -1.0"),
    ("Adadelta([w], rho=1.5)", ValueError, "Invalid rho value: 1.5"),
    ("Rprop([w], etas=(1.5, 2.0))", ValueError, "Invalid eta values: 1.5, 2.0"),
    ("Adamax([w], betas=(0.5, 1.0))", ValueError, "Invalid beta parameter at index 1: 1.0"),
    ("NAdam([w], momentum_decay=-1.0)", ValueError, "Invalid momentum_decay value: -1.0"),
    ("RAdam([w], weight_decay=-1.0)", ValueError, "Invalid weight_decay value: -1.0"),
    ("LBFGS([{'params': [w]}, {'params': [v]}])", ValueError, "doesn't support per-parameter options"),
    ("SGD([w], speed=1.0)", TypeError, "unexpected keyword argument 'speed'"),
    ("SGD(w)", TypeError, "iterable of Tensors or dicts, but got torch.FloatTensor"),
    (
        "SGD([{'params': [w]}, {'params': [('v', v)]}])",
        ValueError,
        "cannot add param group with names to the optimizer",
    ),
    ("SGD([('w', w), v])", ValueError, "Some param names are missing"),
    ("SGD([w], lr=rates)", ValueError, "Tensor lr must be 1-element"),
    ("Adafactor([w], lr=rates)", ValueError, "Tensor lr must be 1-element"),
    ("SparseAdam([w], lr=rates)", ValueError, "Tensor lr must be 1-element"),
    ("Adam([w], lr=rates[0], foreach=True)", ValueError, "^lr as a Tensor is not supported for capturable=False"),
    ("Adam([w], betas=(rates[0], 0.9))", ValueError, "betas must be either both floats or both Tensors"),
    ("AdamW([w], betas=(0, 0.9))", ValueError, "betas must be either both floats or both Tensors"),
    ("Adam([w], betas=(rates[0], rates[1]), foreach=True)", ValueError, r"^betas\[0\] as a Tensor is not supported"),
]


@pytest.mark.parametrize(("text", "error", "phrase"), REFUSALS)
def test_refusals_are_pytorchs(text, error, phrase):
    for library in (gw, torch):
        w, v = library.ones(1, requires_grad=True), library.ones(1, requires_grad=True)
        with pytest.raises(error, match=phrase):
            eval(text, dict(vars(library.optim), w=w, v=v, rates=library.tensor([0.1, 0.2])))


def test_nadams_state_has_pytorchs_order():
    def names(library):
        w = library.ones(1, requires_grad=True)
        optimizer = library.optim.NAdam([w])
        w.sum().backward()
        optimizer.step()
        return list(optimizer.state_dict()["state"][0])

    assert names(gw) == names(torch)


def test_duplicate_parameter_warns():
    w = gw.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        gw.optim.SGD([w, w])


def test_what_would_change_results_is_refused():
    w = gw.ones(1, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"closure|_update"):
        gw.optim.Optimizer([w], {}).step()


def test_own_optimizer_needs_only_an_update():
    class SignDescent(gw.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            with gw.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.add_(p.grad.sign(), alpha=-group["lr"])

    w = gw.tensor([2.0, -2.0], requires_grad=True)
    optimizer = SignDescent([w], lr=0.5)
    (w**2).sum().backward()
    optimizer.step()
    assert w.tolist() == [1.5, -1.5]


LBFGS = [
    "LBFGS(params, lr=0.1, max_iter=5)",
    "LBFGS(params, lr=0.5, max_iter=4, history_size=3)",
    "LBFGS(params, max_iter=10, line_search_fn='strong_wolfe')",
    "LBFGS(params, lr=0.3, max_iter=6, max_eval=7, history_size=2, line_search_fn='strong_wolfe')",
]


@pytest.mark.parametrize("text", LBFGS)
def test_lbfgs_goes_pytorchs_way_down_a_curved_valley(text):
    fits = []
    for library in (gw, torch):
        point = library.tensor(np.array([-1.2, 1.0]), requires_grad=True)
        optimizer = eval(text, dict(vars(library.optim), params=[point]))
        path = []

        def closure(point=point, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (1 - point[0]) ** 2 + 10 * (point[1] - point[0] ** 2) ** 2
            loss.backward()
            return loss

        for _ in range(WAYS_DOWN[os.environ["GRADWIRE_SYNC"]]):
            path.append(optimizer.step(closure).item())
            path.extend(point.tolist())
        state = optimizer.state_dict()["state"][0]
        fits.append((path, state["func_evals"], state["n_iter"], set(state) - {"al"}, len(state["old_dirs"])))
    np.testing.assert_allclose(fits[0][0], fits[1][0], rtol=1e-9, atol=1e-10)
    assert fits[0][1:] == fits[1][1:]


def test_lbfgs_needs_a_closure():
    with pytest.raises(TypeError, match="needs a closure"):
        gw.optim.LBFGS([gw.ones(1, requires_grad=True)]).step()


def test_hooks_are_called_around_a_step():
    w, seen = gw.ones(1, requires_grad=True), []
    optimizer = gw.optim.SGD([w], lr=0.5)
    first = optimizer.register_step_pre_hook(lambda *given: seen.append(("pre", given[0] is optimizer, w.item())))
    optimizer.register_step_post_hook(lambda *given: seen.append(("post", given[0] is optimizer, w.item())))
    w.sum().backward()
    optimizer.step()
    first.remove()
    optimizer.step()
    assert seen == [("pre", True, 1.0), ("post", True, 0.5), ("post", True, 0.0)]


def test_an_added_group_is_optimized_too():
    for text in ("Adagrad([w])", "Adam([w])"):
        values = []
        for library in (gw, torch):
            w, v = (library.ones(1, requires_grad=True) for _ in range(2))
            optimizer = eval(text, dict(vars(library.optim), w=w))
            optimizer.add_param_group({"params": v, "lr": 0.5})
            (w * 2 + v * 3).sum().backward()
            if library is torch and text.startswith("Adagrad"):
                optimizer.state[v] = {"step": torch.tensor(0.0), "sum": torch.zeros(1)}  # PyTorch forgets this
            optimizer.step()
            values.append([w.item(), v.item()])
        np.testing.assert_allclose(*values, rtol=1e-6)


MUONS = [
    "",
    "lr=0.02, momentum=0.8, nesterov=False, weight_decay=0.3",
    "lr=0.01, adjust_lr_fn='match_rms_adamw', ns_steps=3, ns_coefficients=(3.0, -4.0, 2.0)",
]


@pytest.mark.parametrize("mode", ["eager", "deferred", "compiled"])
@pytest.mark.parametrize("options", MUONS)
def test_muon_steps_as_pytorchs_in_bfloat16(options, mode, monkeypatch):
    if mode == "eager":
        monkeypatch.setenv("GRADWIRE_SYNC", "1")
    random = RNG
    values = [random.standard_normal((6, 3)), random.standard_normal((2, 5))]
    targets = [random.standard_normal((6, 3)), random.standard_normal((2, 5))]
    found = []
    for library in (gw, torch):
        params = [library.tensor(each, requires_grad=True) for each in values]
        wanted = [library.tensor(each) for each in targets]
        optimizer = eval(f"Muon(params, {options})", dict(vars(library.optim), params=params))

        def step(library=library, optimizer=optimizer, params=params, wanted=wanted):
            optimizer.zero_grad()
            sum(((p - w) ** 2).sum() for p, w in zip(params, wanted, strict=True)).backward()
            optimizer.step()

        taken = gw.compile(step) if library is gw and mode == "compiled" else step
        first = optimizer.param_groups[0]["lr"]
        for number in range(9):
            optimizer.param_groups[0]["lr"] = first / (1 + number // 3)
            taken()
        found.append([each.detach().numpy() for each in params])
    sizes = [np.abs(theirs - start).max() for theirs, start in zip(found[1], values, strict=True)]
    for ours, theirs, size in zip(*found, sizes, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.03 * size)  # the orthogonal matrices have 8 bits


@pytest.mark.parametrize(
    ("text", "error", "phrase"),
    [
        ("Muon([p], lr=-1)", ValueError, "Learning rate should be >= 0"),
        ("Muon([p], adjust_lr_fn='x')", ValueError, "is not supported"),
        ("Muon([p[0].detach()])", ValueError, "Muon only supports 2D parameters"),
        ("Muon([p], ns_steps=100).step()", ValueError, "less than 100"),
        ("Adafactor([p], beta2_decay=0.1)", ValueError, "beta2_decay should be <= 0"),
        ("Adafactor([p], d=0.5)", ValueError, "Clipping threshold d should be >= 1 but is: 0.5"),
        ("Adafactor([p], eps=(-1.0, 0))", ValueError, "epsilon1 should be >= 0"),
        ("SparseAdam([p], lr=0)", ValueError, "Invalid learning rate"),
        ("SparseAdam([p]).step()", RuntimeError, "SparseAdam does not support dense gradients"),
    ],
)
def test_matrix_optimizers_refuse_what_pytorchs_refuse(text, error, phrase):
    for library in (torch, gw):
        p = library.ones(2, 3, requires_grad=True)
        (p * 2).sum().backward()
        with pytest.raises(error, match=phrase):
            eval(text, dict(vars(library.optim), p=p))
