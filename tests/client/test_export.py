"""Exported programs: what Python trains, another process trains on by bare gRPC calls, with the same losses."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwire as torch
from gradwire._base.errors import GradwireError
from tests.client.chaos import restarting_server
from tests.client.raw_program import RawSession

nn = torch.nn
schedulers = torch.optim.lr_scheduler
STEPS = 32
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((48, 12), np.float32), RNG.integers(0, 5, 48)


class Fit:
    """A small classifier and its training step."""

    def __init__(self, optimizer: Callable[[Any], Any], scheduler: Callable[[Any], Any] | None = None) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 5))
        self.optimizer = optimizer(self.net.parameters())
        self.scheduler = scheduler(self.optimizer) if scheduler else None
        self.x, self.y = torch.tensor(X), torch.tensor(Y)

    def update(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = self.update(x, y)
        if self.scheduler is not None:
            self.scheduler.step()
        return loss

    def losses(self, step: Callable[..., Any], count: int = STEPS) -> list[float]:
        return [step(self.x, self.y).item() for _ in range(count)]

    def compiled_losses(self, count: int = STEPS) -> list[float]:
        update = torch.compile(self.update)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            loss = update(x, y)
            if self.scheduler is not None:
                self.scheduler.step()
            return loss

        return self.losses(step, count)


def adam(params: Any) -> Any:
    return torch.optim.Adam(params, lr=0.01)


def halving(optimizer: Any) -> Any:
    return schedulers.StepLR(optimizer, 5, 0.5)


def trained_elsewhere(address: str, folder: Path, steps: int = STEPS, saved: str = "") -> Any:
    """What the process of bare calls prints."""
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    command = [sys.executable, "-m", "tests.client.raw_program", address, str(folder / "model.safetensors")]
    command += [str(folder / "x.npy"), str(folder / "y.npy"), str(steps), saved]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_another_process_trains_with_the_losses_of_the_compiled_step(
    deferring: torch.Session, server_address: str, tmp_path: Path
) -> None:
    fit = Fit(adam, halving)
    fit.step(fit.x, fit.y)
    torch.export(fit.step, fit.x, fit.y, path=tmp_path / "model.safetensors")
    found = trained_elsewhere(server_address, tmp_path)
    assert found["losses"] == fit.compiled_losses()
    (group,) = fit.optimizer.param_groups
    assert found["counters"] == {"optimizer.lr": group["lr"], "optimizer.step": 33.0, "scheduler.last_epoch": 33.0}


def test_an_export_changes_nothing(session: torch.Session) -> None:
    fit, twin = Fit(adam, halving), Fit(adam, halving)
    for each in (fit, twin):
        each.step(each.x, each.y)
    before = torch.get_rng_state().tolist()
    exported = torch.export(fit.step, fit.x, fit.y)
    assert torch.get_rng_state().tolist() == before
    assert fit.optimizer.state_dict()["param_groups"] == twin.optimizer.state_dict()["param_groups"]
    assert fit.scheduler.state_dict() == twin.scheduler.state_dict()
    for one, other in zip(fit.net.parameters(), twin.net.parameters(), strict=True):
        assert one.tolist() == other.tolist() and one.grad.tolist() == other.grad.tolist()
    assert exported.state_dict["net.0.weight"].tolist() == fit.net[0].weight.tolist()
    assert fit.losses(fit.step, 3) == twin.losses(twin.step, 3)


def test_a_fresh_optimizer_is_exported_before_its_first_step(session: torch.Session) -> None:
    fit = Fit(adam)
    exported = torch.export(fit.step, fit.x, fit.y)
    assert not fit.optimizer.state
    assert exported.state_dict["optimizer.step"].item() == 0
    np.testing.assert_allclose(fit.losses(exported.module(), 10), fit.losses(fit.step, 10), rtol=1e-5)


OPTIMIZERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05, t0=4),
    "Adamax": torch.optim.Adamax,
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr_decay=0.1),
    "Adadelta": torch.optim.Adadelta,
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.9),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Rprop": torch.optim.Rprop,
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.3, weight_decay=0.01),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_optimizer_has_its_rules(deferring: torch.Session, name: str) -> None:
    fit = Fit(OPTIMIZERS[name], halving)
    loaded = torch.export(fit.step, fit.x, fit.y).module()
    np.testing.assert_allclose(fit.losses(loaded, 14), fit.losses(fit.step, 14), rtol=2e-5)


SCHEDULERS = {
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [3, 8, 8, 20], 0.3),
    "ConstantLR": lambda o: schedulers.ConstantLR(o, 0.4, 6),
    "LinearLR": lambda o: schedulers.LinearLR(o, 0.3, 1.0, 9),
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o, 12, 2.0),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 7),
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda epoch: 0.95 ** (epoch // 3)),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 1 - 0.5 / epoch),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.3, 40, cycle_momentum=False),
    "OneCycleLR of three phases": lambda o: schedulers.OneCycleLR(
        o, 0.3, 40, cycle_momentum=False, three_phase=True, anneal_strategy="linear"
    ),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.01, 0.2, 4, 3, mode="triangular2", cycle_momentum=False),
    "CyclicLR by steps": lambda o: schedulers.CyclicLR(
        o, 0.01, 0.2, 5, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "warm-up, then a cosine": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o, 0.1, 1.0, 5), schedulers.CosineAnnealingLR(o, 9)], [5]
    ),
    "a sequence of three": lambda o: schedulers.SequentialLR(
        o,
        [
            schedulers.ConstantLR(o, 0.1, 3),
            schedulers.MultiStepLR(o, [2, 5], 0.3),
            schedulers.CosineAnnealingWarmRestarts(o, 4),
        ],
        [4, 15],
    ),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler(
        [schedulers.ExponentialLR(o, 0.95), schedulers.StepLR(o, 4, 0.5)]
    ),
}


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_a_schedule_is_the_same_to_the_last_bit(deferring: torch.Session, name: str) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = SCHEDULERS[name](optimizer)
    optimizer.step()
    scheduler.step()

    def advance() -> None:
        scheduler.step()

    exported = torch.export.export(advance)
    rate = next(name for name in exported.state_dict if name.endswith(".lr"))
    assert exported.state_dict[rate].item() == optimizer.param_groups[0]["lr"]
    loaded, state = exported.module(), exported._load().state
    for _ in range(30):
        loaded()
        scheduler.step()
        assert state[rate].item() == optimizer.param_groups[0]["lr"]


def test_a_cycle_ends_with_its_last_step(deferring: torch.Session) -> None:
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    scheduler = schedulers.OneCycleLR(optimizer, 0.3, 12, cycle_momentum=False)
    optimizer.step()
    loaded = torch.export.export(scheduler.step).module()
    for _ in range(12):
        loaded()
    with pytest.raises(ValueError, match="division by zero"):
        loaded()


def test_a_momentum_that_cycles_is_refused(deferring: torch.Session) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizers = torch.optim.SGD([weight], lr=0.1, momentum=0.9), torch.optim.Adam([weight])
    for optimizer, name in zip(optimizers, ("momentum", "betas"), strict=True):
        scheduler = schedulers.OneCycleLR(optimizer, 0.3, 12)
        optimizer.step()
        with pytest.raises(NotImplementedError, match=rf"changes .*\.{name}, for which there is no rule"):
            torch.export.export(scheduler.step)


def test_an_epoch_is_one_command(deferring: torch.Session) -> None:
    fit, twin = Fit(adam), Fit(adam)
    exported = torch.export(fit.step, fit.x[:16], fit.y[:16]).module()
    losses = exported.run({"x": fit.x, "y": fit.y}, repeat=3, sliced=["x", "y"], stacked=True)
    expected = [twin.step(twin.x[i : i + 16], twin.y[i : i + 16]).item() for i in (0, 16, 32)]
    np.testing.assert_allclose(losses.tolist(), expected, rtol=1e-5)


def test_several_programs_share_the_tensors_of_a_file(deferring: torch.Session, tmp_path: Path) -> None:
    fit = Fit(adam)

    def predict(x: torch.Tensor) -> dict[str, Any]:
        with torch.no_grad():
            scores = fit.net(x)
            return {"scores": scores, "best": (scores.max(1).values, scores.argmax(1))}

    programs = {
        "step": torch.export(fit.step, fit.x, fit.y),
        "predict": torch.export(predict, fit.x, dynamic=["x"]),
    }
    torch.export(programs, path=tmp_path / "model.safetensors")
    loaded = torch.load_program(tmp_path / "model.safetensors")
    loaded.step(fit.x, fit.y)
    fit.step(fit.x, fit.y)
    for rows in (1, 48, 7):
        answer, expected = loaded.predict(fit.x[:rows]), predict(fit.x[:rows])
        np.testing.assert_allclose(answer["scores"].tolist(), expected["scores"].tolist(), rtol=1e-4, atol=1e-6)
        assert answer["best"][1].tolist() == expected["best"][1].tolist()
    with pytest.raises(ValueError, match="several programs: step, predict"):
        loaded(fit.x)


def test_a_module_is_exported_as_in_pytorch(session: torch.Session, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    x = torch.randn(5, 4)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(net, (x,), dynamic_shapes={"input": {0: batch}})
    assert sorted(exported.state_dict) == ["0.bias", "0.weight"]
    assert exported.module()(x[:2]).tolist() == net(x[:2]).tolist()
    with pytest.raises(RuntimeError, match=r"exported_program\.module\(\)"):
        exported(x)
    torch.export.save(exported, tmp_path / "net.pt2")
    assert torch.export.load(tmp_path / "net.pt2").module()(x).tolist() == net(x).tolist()


def test_a_saved_file_continues(deferring: torch.Session, server_address: str, tmp_path: Path) -> None:
    fit = Fit(adam, halving)
    torch.export(fit.step, fit.x, fit.y, path=tmp_path / "model.safetensors")
    whole = trained_elsewhere(server_address, tmp_path, 20)
    first = trained_elsewhere(server_address, tmp_path, 8, str(tmp_path / "model.safetensors"))
    rest = trained_elsewhere(server_address, tmp_path, 12)
    assert rest["counters"] == whole["counters"]
    np.testing.assert_allclose(first["losses"] + rest["losses"], whole["losses"], rtol=1e-5)
    loaded = torch.load_program(tmp_path / "model.safetensors")
    loaded(fit.x, fit.y)
    loaded.save(tmp_path / "again.safetensors")
    assert torch.load_program(tmp_path / "again.safetensors").state["optimizer.step"].item() == 9


def test_training_continues_after_a_restart_of_the_server(deferring: torch.Session, tmp_path: Path) -> None:
    fit = Fit(adam, halving)
    torch.export(fit.step, fit.x, fit.y, path=tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "state").mkdir()
    with restarting_server(tmp_path / "state", "--durability=log") as server:
        found = []
        session = RawSession(server.address)
        session.load(content)
        inputs = {"x": session.create(X), "y": session.create(Y)}
        for step in range(20):
            if step in (7, 15):
                server.kill()
                server.start()
                session.connect(server.address)
            (loss,) = session.run("program", inputs)
            found.append(float(session.read(loss)))
        counters = {name: float(session.read(session.tensors[name])) for name in ("optimizer.step", "optimizer.lr")}
    expected = fit.losses(fit.step, 20)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert counters == {"optimizer.step": 20.0, "optimizer.lr": fit.optimizer.param_groups[0]["lr"]}


class Counting(torch.optim.SGD):
    """Makes its state in its first step."""

    def _update(self, group: dict[str, Any]) -> None:
        for param, grad in self._gradients(group):
            state = self.state[param]
            if "sum" not in state:
                state["sum"] = torch.zeros_like(param)
            state["sum"].add_(grad)
            param.sub_(state["sum"], alpha=0.1)


def _reads(fit: Fit) -> Callable[..., Any]:
    return lambda x, y: fit.step(x, y).item()


def _keeps(fit: Fit) -> Callable[..., Any]:
    kept: list[Any] = []
    return lambda x, y: kept.append(fit.step(x, y))


def _looks_up(fit: Fit) -> Callable[..., Any]:
    schedule = schedulers.LambdaLR(fit.optimizer, lambda epoch: {0: 1.0}.get(epoch, 0.5))
    return lambda x, y: (fit.step(x, y), schedule.step())[0]


def _branches(fit: Fit) -> Callable[..., Any]:
    schedule = schedulers.LambdaLR(fit.optimizer, lambda epoch: 1.0 if epoch < 3 else 0.5)
    return lambda x, y: (fit.step(x, y), schedule.step())[0]


def _cycles(fit: Fit) -> Callable[..., Any]:
    schedule = schedulers.OneCycleLR(fit.optimizer, 0.1, 100)
    return lambda x, y: (fit.step(x, y), schedule.step())[0]


def _late(fit: Fit) -> Callable[..., Any]:
    fit.optimizer = Counting(fit.net.parameters(), lr=0.1)
    return fit.step


def _hidden(fit: Fit) -> Callable[..., Any]:
    box = type("Box", (), {"__slots__": ("fit",)})()
    box.fit = fit
    return lambda x, y: box.fit.step(x, y)


REFUSED = {
    "reads a value": (_reads, "a value is read"),
    "keeps a tensor": (_keeps, "keeps a tensor"),
    "looks a rate up": (_looks_up, "compared or converted"),
    "branches on an epoch": (_branches, "compared or converted"),
    "cycles": (_cycles, "changes fit.optimizer.betas, for which there is no rule"),
    "late state": (_late, "makes its state in its first step"),
    "hidden optimizer": (_hidden, "an optimizer is not found"),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_no_rule_can_tell_is_refused_and_changes_nothing(deferring: torch.Session, what: str) -> None:
    make, message = REFUSED[what]
    fit = Fit(adam)
    function = make(fit)
    before = [param.tolist() for param in fit.net.parameters()]
    rate = fit.optimizer.param_groups[0]["lr"]
    with pytest.raises(GradwireError, match=message):
        torch.export(function, fit.x, fit.y)
    assert fit.optimizer.param_groups[0]["lr"] == rate
    if what != "hidden optimizer":
        assert [param.tolist() for param in fit.net.parameters()] == before


def test_sizes_that_depend_on_rows_are_no_dynamic_program(session: torch.Session) -> None:
    x = torch.randn(6, 4)
    with pytest.raises(GradwireError, match=r"command 0 \(reshape\) depends on the number of rows"):
        torch.export(lambda x: x.reshape(x.shape[0] * 4), x, dynamic=["x"])
    with pytest.raises(ValueError, match="no tensor argument 'z' to be dynamic; there are x"):
        torch.export(lambda x: x * 2, x, dynamic=["z"])


def test_wrong_arguments_are_refused_with_the_right_ones(session: torch.Session) -> None:
    double = torch.export(lambda x: x * 2, torch.ones(3)).module()
    with pytest.raises(TypeError, match="has no input 'y'; its inputs are x"):
        double(y=torch.ones(3))
    with pytest.raises(TypeError, match="lacks its input 'x'"):
        double()
    with pytest.raises(TypeError, match="takes 1 tensors, but 2 were given"):
        double(torch.ones(3), torch.ones(3))
    with pytest.raises(GradwireError, match=r"input 'x' must have shape \[3\], not \[4\]"):
        double(torch.ones(4)).tolist()
    with pytest.raises(GradwireError, match="input 'x' must be float32, not int64"):
        double(torch.ones(3, dtype=torch.int64)).tolist()


@pytest.mark.parametrize("content", [b"", b"\0" * 8, b"\xff" * 40, b"{}" * 30])
def test_a_file_that_is_none_is_refused(session: torch.Session, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(RuntimeError, match="is no program file"):
        torch.load_program(tmp_path / "bad")
