"""Numbers of an optimizer's state that a program changes by hand are those of the next step, as with PyTorch."""

from typing import Any

import pytest

import gradwire

torch = pytest.importorskip("torch", reason="PyTorch is the oracle of these tests")
pytestmark = pytest.mark.usefixtures("deferring")

VALUES = {
    "mu_product": lambda done: 0.4 / done,
    "eta": lambda done: 0.03 * (done % 3 + 1),
    "mu": lambda done: 0.3,
    "step": lambda done: done // 2 + 1,
}
NAMES = {"NAdam": ["mu_product", "step"], "ASGD": ["eta", "mu", "step"], "Adam": ["step"]}
CASES = [(kind, name) for kind, names in NAMES.items() for name in names]


def _set(module: Any, state: dict[str, Any], name: str, value: float) -> None:
    state[name] = module.tensor(float(value)) if module is torch else value


def _trained(module: Any, kind: str, name: str, which: str, compiled: bool) -> tuple[list[Any], list[float]]:
    params = [module.nn.Parameter(module.tensor([1.0, 2.0], dtype=module.float64)) for _ in range(3)]
    scale = module.tensor([0.5, 0.25], dtype=module.float64)
    optimizer = getattr(module.optim, kind)(params, lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        sum((param * param * scale).sum() for param in params).backward()
        optimizer.step()

    run = gradwire.compile(step) if compiled and module is gradwire else step
    for done in range(1, 25):
        run()
        if done % 7 == 5:
            value = VALUES[name](done)
            if which == "loaded":
                given = optimizer.state_dict()
                given["state"][1][name] = module.tensor(float(value))
                optimizer.load_state_dict(given)
            else:
                for param in {"first": params[:1], "last": params[-1:], "all": params}[which]:
                    _set(module, optimizer.state[param], name, value)
    return [param.tolist() for param in params], [float(optimizer.state[param][name]) for param in params]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("which", ["first", "last", "all", "loaded"])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_number_changed_by_hand_is_that_of_the_next_step(kind: str, name: str, which: str, compiled: bool) -> None:
    expected, numbers = _trained(torch, kind, name, which, compiled)
    found, held = _trained(gradwire, kind, name, which, compiled)
    assert torch.allclose(torch.tensor(found), torch.tensor(expected), rtol=1e-6, atol=1e-9)
    assert held == pytest.approx(numbers, rel=1e-5)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax"])
def test_a_step_after_the_parameters_were_cast_is_refused(kind: str) -> None:
    for module in (torch, gradwire):
        layer = module.nn.Linear(2, 2)
        optimizer = getattr(module.optim, kind)(layer.parameters())
        for _ in range(3):
            layer(module.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        layer.double()
        layer(module.ones(1, 2, dtype=module.float64)).sum().backward()
        with pytest.raises(RuntimeError, match=r"expected dtype float(32)? for `end` but got dtype (double|float64)"):
            optimizer.step()
