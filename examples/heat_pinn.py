"""A physics-informed network solves the heat equation; its error against the analytic solution is printed and drawn.

    python examples/heat_pinn.py [--adam 500] [--lbfgs 60] [--out demo-output]

u_t = a u_xx for 0 < x < 1, with u(x, 0) = sin(pi x) and u = 0 at both ends: u = exp(-a pi^2 t) sin(pi x). The network
never sees this solution. Its loss is the residual of the equation, computed from the network's derivatives by
`autograd.grad` with `create_graph`. Training differentiates them once more, in a compiled function.
"""

import argparse
import math
from pathlib import Path

import matplotlib
import numpy as np

import gradwire as torch
import gradwire.nn as nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DIFFUSIVITY = 0.2


def build() -> nn.Sequential:
    """The network u(x, t). tanh, because the equation needs second derivatives."""
    return nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))


def exact(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The analytic solution."""
    return np.exp(-DIFFUSIVITY * math.pi**2 * t) * np.sin(math.pi * x)


class Problem:
    """Points of the equation, the initial temperatures and the cold ends, drawn once with a seed."""

    def __init__(self, points: int, dtype: torch.dtype = torch.float64) -> None:
        rng = np.random.default_rng(0)
        edge = max(points // 4, 8)
        zeros = np.zeros((edge, 1))
        x, t = rng.random((points, 1)), rng.random((points, 1))
        start, times, ends = rng.random((edge, 1)), rng.random((edge, 1)), rng.integers(0, 2, (edge, 1))
        self.x = torch.tensor(x, dtype=dtype, requires_grad=True)
        self.t = torch.tensor(t, dtype=dtype, requires_grad=True)
        self.start = torch.tensor(np.hstack([start, zeros]), dtype=dtype)
        self.start_values = torch.tensor(exact(start, zeros), dtype=dtype)
        self.ends = torch.tensor(np.hstack([ends, times]), dtype=dtype)

    def loss(self, model: nn.Module) -> torch.Tensor:
        """Return the mean square of the equation's residual plus that of the conditions."""
        u = model(torch.cat([self.x, self.t], dim=1))
        ones = torch.ones_like(u)
        u_x, u_t = torch.autograd.grad(u, (self.x, self.t), ones, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, self.x, ones, create_graph=True)
        equation = (u_t - DIFFUSIVITY * u_xx).square().mean()
        conditions = (model(self.start) - self.start_values).square().mean() + model(self.ends).square().mean()
        return equation + 10 * conditions


def train(model: nn.Module, problem: Problem, adam: int, lbfgs: int) -> list[float]:
    """Train with Adam, then LBFGS. Returns some of the losses."""
    losses = []

    @torch.compile  # one command for the loss and all its derivatives
    def evaluate() -> torch.Tensor:
        model.zero_grad()
        loss = problem.loss(model)
        loss.backward(inputs=list(model.parameters()))
        return loss

    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(adam):
        loss = evaluate()
        optimizer.step()
        if step % 100 == 0:
            losses.append(loss.item())
            print(f"Adam  {step:4}  loss {losses[-1]:.3e}")
    finisher = torch.optim.LBFGS(model.parameters(), max_iter=20, history_size=30, line_search_fn="strong_wolfe")
    for turn in range(math.ceil(lbfgs / 20)):
        losses.append(finisher.step(evaluate).item())
        print(f"LBFGS {20 * turn:4}  loss {losses[-1]:.3e}")
    return losses


def compare(model: nn.Module, path: Path | None = None, side: int = 64) -> float:
    """Return the largest error on a grid of x and t. `path`: file of a picture."""
    x, t = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side))
    points = torch.tensor(np.stack([x.ravel(), t.ravel()], axis=1), dtype=next(model.parameters()).dtype)
    with torch.no_grad():
        found = model(points).numpy().reshape(side, side)
    error = found - exact(x, t)
    if path is not None:
        figure, panels = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained", sharey=True)
        for axes, values, title in zip(panels, (found, exact(x, t), error), ("network", "exact", "error"), strict=True):
            image = axes.imshow(values, origin="lower", extent=(0, 1, 0, 1), aspect="auto")
            axes.set(title=title, xlabel="x")
            figure.colorbar(image)
        panels[0].set_ylabel("t")
        figure.savefig(path, dpi=120)
        plt.close(figure)
    return float(np.abs(error).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=400, help="where the equation is asked for (default: 400)")
    parser.add_argument("--adam", type=int, default=500, help="steps of Adam (default: 500)")
    parser.add_argument("--lbfgs", type=int, default=200, help="iterations of LBFGS after it (default: 200)")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="where the picture goes")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = build().double()
    train(model, Problem(options.points), options.adam, options.lbfgs)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "heat.png"
    print(f"largest error {compare(model, path):.2e}; wrote {path}")


if __name__ == "__main__":
    main()
