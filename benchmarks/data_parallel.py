"""compile(step, data_parallel=N) against one worker, in turns: milliseconds per training step, and their ratio.

python -m benchmarks.data_parallel [--workers 2]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import gradwire
from gradwire import nn
from gradwire._transport.embedded import EmbeddedServer

SIZES = ((64, 256), (512, 512), (512, 2048))  # width of the layers, rows of a batch
TURNS, STEPS = 5, 10


def made_step(width: int) -> Callable[..., Any]:
    """A training step of a network of three layers with Adam."""
    gradwire.manual_seed(0)
    layers = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    model = nn.Sequential(*layers)
    optimizer = gradwire.optim.Adam(model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def milliseconds(step: Any, x: Any, y: Any) -> float:
    """Time per step of some steps that the client does not wait for one by one."""
    began = time.perf_counter()
    for _ in range(STEPS):
        loss = step(x, y)
    loss.item()
    return (time.perf_counter() - began) / STEPS * 1e3


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    count = parser.parse_args().workers
    server = EmbeddedServer(count)
    gradwire.connect(server.address)
    for width, rows in SIZES:
        x, y = gradwire.randn(rows, width), gradwire.arange(rows) % 10
        one = gradwire.compile(made_step(width))
        several = gradwire.compile(made_step(width), data_parallel=count)
        for step in (one, several):
            for _ in range(4):
                step(x, y).item()
        times = [(milliseconds(one, x, y), milliseconds(several, x, y)) for _ in range(TURNS)]
        alone, divided = (min(column) for column in zip(*times, strict=True))
        print(
            f"3 layers of {width}, {rows} rows: one worker {alone:.2f} ms, {count} workers {divided:.2f} ms, "
            f"ratio {divided / alone:.2f}",
            flush=True,
        )
    server.stop()


if __name__ == "__main__":
    main()
