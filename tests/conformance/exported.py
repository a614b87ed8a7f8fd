"""An exported model for SDKs to train: model.safetensors, written by gradwire, and PyTorch's losses in model.json.

    python -m tests.conformance.exported

`make.py --check` does not compare the file: it names the version of gradwire that wrote it. test_python.py trains it.
"""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
FILE, LOSSES = FOLDER / "model.safetensors", FOLDER / "model.json"
STEPS = 12


def fit(torch: Any) -> tuple[Any, Any, Any]:
    """A training step of a classifier with Adam, and its arguments; `torch` is PyTorch or gradwire."""
    weights = [[((7 * row + 3 * column) % 11 - 5) / 10 for column in range(4)] for row in range(8)]
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(weights))
        net[2].weight.copy_(torch.tensor(weights).T[:3])
        for layer in (net[0], net[2]):
            layer.bias.zero_()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x = torch.tensor([[((5 * row + column * column) % 7 - 3) / 2 for column in range(4)] for row in range(6)])
    return step, x, torch.tensor([0, 1, 2, 0, 1, 2])


def expected() -> str:
    """What model.json should hold: the inputs and PyTorch's losses."""
    import torch

    step, x, y = fit(torch)
    losses = [step(x, y).item() for _ in range(STEPS)]
    return json.dumps({"x": x.tolist(), "y": y.tolist(), "losses": losses}, indent=1) + "\n"


def losses(address: str) -> list[float]:
    """The losses when Python's client trains the file at a server: other clients have the same, to the last bit."""
    import gradwire

    told = json.loads(LOSSES.read_text("utf-8"))
    session = gradwire.connect(address)
    try:
        step = gradwire.load_program(FILE)
        x, y = gradwire.tensor(told["x"]), gradwire.tensor(told["y"])
        return [step(x, y).item() for _ in range(STEPS)]
    finally:
        session.close()


def main() -> None:
    import gradwire

    LOSSES.write_text(expected(), "utf-8")
    gradwire.connect()
    step, x, y = fit(gradwire)
    gradwire.export(step, x, y, path=FILE)


if __name__ == "__main__":
    main()
