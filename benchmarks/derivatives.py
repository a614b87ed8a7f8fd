"""Steps whose loss is made of derivatives, or that hold batch norm: compiled and planned, step by step, PyTorch's.

By CPU time, client and server together: on a machine that others use, it says more than a clock. Step by step runs what
also answers a view, which no plan does. The sides take turns; the median of the turns' ratios is what is reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

from benchmarks.measure import Result, Run
from benchmarks.setting import spent

STEPS = 20


def physics(torch: Any, points: int = 256, width: int = 32) -> tuple[Callable[[], Any], Any]:
    """A step of Adam on the heat equation's residual: u_t = u_xx, in double precision."""
    rng = np.random.default_rng(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh(),
        torch.nn.Linear(width, 1),
    ).double()  # fmt: skip
    fill(torch, net, rng)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    xt = torch.tensor(rng.random((points, 2)), requires_grad=True)

    def step() -> Any:
        u = net(xt)
        ones = torch.ones_like(u)
        (slope,) = torch.autograd.grad(u, xt, ones, create_graph=True)
        (bend,) = torch.autograd.grad(slope[:, 0:1], xt, ones, create_graph=True)
        loss = (slope[:, 1:2] - bend[:, 0:1]).square().mean() + (u - xt[:, 0:1].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward(inputs=list(net.parameters()))
        optimizer.step()
        return loss

    return step, net


def images(torch: Any, batch: int = 32) -> tuple[Callable[[], Any], Any]:
    """A step of SGD of a small net of convolutions with batch norm on images of 14 × 14."""
    rng, nn = np.random.default_rng(0), torch.nn
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 49, 10),
    )  # fmt: skip
    fill(torch, net, rng)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x = torch.tensor(rng.standard_normal((batch, 1, 14, 14), dtype=np.float32))
    target = torch.tensor(rng.integers(0, 10, batch))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    return step, net


def fill(torch: Any, net: Any, rng: np.random.Generator) -> None:
    """Give a net the same weights on every side."""
    with torch.no_grad():
        for parameter in net.parameters():
            values = rng.standard_normal(tuple(parameter.shape)) * 0.2
            parameter.copy_(torch.tensor(values, dtype=parameter.dtype))


def repeated(step: Callable[[], Any]) -> Run:
    """So many steps, and a look at the last one's loss."""

    def run() -> float:
        for _ in range(STEPS):
            loss = step()
        loss = loss[0] if isinstance(loss, tuple) else loss
        return float(loss.item())

    return run


def sides(build: Callable[[Any], tuple[Callable[[], Any], Any]]) -> dict[str, Run]:
    """The same step in each way, from the same weights."""
    import torch

    import gradwire

    plain, compiled, other = build(torch)[0], build(gradwire)[0], build(gradwire)[0]

    def with_view() -> Any:
        loss = other()
        return loss, loss[None]

    planned, stepwise = gradwire.compile(compiled), gradwire.compile(with_view)
    made = {"planned": repeated(planned), "step by step": repeated(stepwise), "PyTorch": repeated(plain)}
    answers = [run() for run in made.values()]
    answers = [run() for run in made.values()]
    if max(answers) - min(answers) > 1e-3 * max(1.0, abs(answers[0])):
        raise SystemExit(f"the sides disagree: {answers}")
    for function, is_planned in ((planned, True), (stepwise, False)):
        if ("since" in str(gradwire.explain(function))) is is_planned:
            raise SystemExit(f"not run as it should be: {gradwire.explain(function)}")
    return made


def measure(turns: int) -> Iterator[Result]:
    """Each step planned beside PyTorch and beside step by step."""
    import gradwire

    server = psutil.Process(int(gradwire.current_session()._embedded._process.pid))
    client = psutil.Process(os.getpid())
    for name, build in (("PINN step", physics), ("conv + batch norm step", images)):
        runs = sides(build)
        times: dict[str, list[float]] = {side: [] for side in runs}
        for turn in range(turns):
            order = list(runs) if turn % 2 else list(reversed(runs))
            for side in order:
                before = spent(client, False) + spent(server)
                runs[side]()
                times[side].append((spent(client, False) + spent(server) - before) / STEPS)
        for ours, theirs in (("planned", "PyTorch"), ("step by step", "PyTorch"), ("planned", "step by step")):
            result = Result("derivatives", f"{name}, {ours}", theirs)
            for one, other in zip(times[ours], times[theirs], strict=True):
                result.add(one, other)
            yield result
