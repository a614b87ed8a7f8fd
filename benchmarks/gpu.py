"""On one GPU, in some minutes: versions, whether graphs compute what single calls do, and steps beside PyTorch's CUDA.

    python -m benchmarks.gpu [--turns 5] [--steps 50]

The server runs in this process, so its plans can be looked at. PyTorch is measured if it is installed with CUDA:
eager, and by torch.compile. A time is the best turn's, per step, the GPU waited for at its end.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from gradwire_engine.compile.fusion.fused import OPTIONS
from gradwire_engine.compile.plan import Plan
from gradwire_engine.core import device as devices
from tests.gpu import hostcupy

Step = Callable[[], Any]
#: Steps before the first that is measured: recording, tracing, compiling, capturing.
_SETTLED = 12


def main() -> int:
    """Measure and print. Returns 0, or 2 without a GPU, or 1 if a value is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    built = hostcupy.folder()
    if built is not None:
        hostcupy.install(built)
        print("hostcupy: this is no GPU. The times below say nothing about one.")
    cupy: Any = devices.cupy()
    if cupy is None:
        print("This needs a CUDA GPU, and CuPy for its CUDA version: pip install 'gradwire[cuda12]' or [cuda13].")
        return 2
    OPTIONS.mode = "on"
    _versions(cupy)
    with _session() as (gradwire, session):
        wrong = _compare(gradwire, options, lambda: (session.sync(), cupy.cuda.runtime.deviceSynchronize()))
    return int(wrong)


def _versions(cupy: Any) -> None:
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    print(properties["name"].decode(), f"{properties['totalGlobalMem'] >> 20} MiB")
    print("driver", cupy.cuda.runtime.driverGetVersion(), "runtime", cupy.cuda.runtime.runtimeGetVersion())
    for name in ("cupy-cuda12x", "cupy-cuda13x", "torch", "numpy", "ml-dtypes"):
        try:
            print(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    print("cublasLt", "found" if cupy.products() is not None else "missing: no plan is a graph", flush=True)


@contextmanager
def _session() -> Iterator[tuple[Any, Any]]:
    """gradwire, connected to a server in this process."""
    gradwire = import_module("gradwire")
    harness = import_module("tests.server.harness")
    running = harness.Running(harness.LIMITS)
    try:
        with gradwire.connect(running.address) as session:
            yield gradwire, session
    finally:
        running.stop()


def _compare(gradwire: Any, options: Any, wait: Step) -> bool:
    """Measure each step by each side; return whether a loss differed."""
    pytorch = _pytorch()
    wrong = False
    for name, build in (STEPS | (ATTENTION if hostcupy.folder() is None else {})).items():
        losses: dict[str, float] = {}
        for side, library, compiled in _sides(gradwire, pytorch):
            step = build(library)
            turn = library.compile(step) if compiled else step
            settle = wait if library is gradwire else library.cuda.synchronize
            losses[side] = float([turn() for _ in range(_SETTLED)][-1].item())
            print(f"{name:24} {side:20} {_best(turn, settle, options):10.1f} us{_graphs(side)}", flush=True)
        least, most = min(losses.values()), max(losses.values())
        if not most - least <= 1e-3 * max(1.0, abs(most)):
            print(f"{name}: the losses of step {_SETTLED} differ: {losses}")
            wrong = True
    return wrong


def _sides(gradwire: Any, pytorch: Any) -> Iterator[tuple[str, Any, bool]]:
    for name, library in (("gradwire", gradwire), ("PyTorch", pytorch)):
        if library is not None:
            yield f"{name} eager", library, False
            yield f"{name} compiled", library, True


def _pytorch() -> Any:
    try:
        found = import_module("torch")
    except ImportError:
        found = None
    if found is None or not found.cuda.is_available():
        print("PyTorch with CUDA is not installed: it is not measured.")
        return None
    found.backends.cuda.matmul.allow_tf32 = found.backends.cudnn.allow_tf32 = False
    return found


def _best(step: Step, wait: Step, options: Any) -> float:
    """Microseconds of a step in the best turn."""
    found = []
    for _ in range(options.turns):
        wait()
        begun = time.perf_counter()
        for _ in range(options.steps):
            step()
        wait()
        found.append((time.perf_counter() - begun) / options.steps * 1e6)
    return min(found)


def _graphs(side: str) -> str:
    """How the plans that are alive ran last, for a compiled step here."""
    if side != "gradwire compiled":
        return ""
    plans = [each for each in gc.get_objects() if isinstance(each, Plan) and each.device != devices.CPU]
    return "  plans: " + ", ".join(sorted({each.uncaptured or each.way for each in plans}))


# The steps. Both sides begin with the same weights and data.


def _filled(module: Any, torch: Any) -> Any:
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = rng.standard_normal(tuple(parameter.shape)).astype("f") / max(1, parameter.shape[-1]) ** 0.5
            parameter.copy_(torch.tensor(drawn))
    return module.to("cuda")


def _step(torch: Any, module: Any, shape: tuple[int, ...], classes: int, optimizer: str) -> Step:
    rng = np.random.default_rng(1)
    model = _filled(module, torch)
    x = torch.tensor(rng.standard_normal(shape).astype("f")).to("cuda")
    labels = torch.tensor(rng.integers(0, classes, shape[0])).to("cuda")
    optimize = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)

    def step() -> Any:
        optimize.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimize.step()
        return loss.detach()

    return step


def _layers(torch: Any, *sizes: int) -> Any:
    parts: list[Any] = []
    for before, behind in itertools.pairwise(sizes):
        parts += [torch.nn.Linear(before, behind), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def _convolutions(torch: Any, channels: int) -> Any:
    nn = torch.nn

    def part() -> Any:
        return nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()

    return nn.Sequential(*part(), *part(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(channels * 256, 10))


def _transformer(torch: Any) -> Any:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(128 * 256, 10))


def _attention(torch: Any, length: int, dtype: str) -> Step:
    """Causal attention of 2 x 8 matrices and its gradients: its scores are 64 MiB for 1,024 queries in float32."""
    rng = np.random.default_rng(2)
    drawn = (rng.standard_normal((2, 8, length, 64)).astype("f") for _ in range(3))
    leaves = [torch.tensor(each).to("cuda").to(getattr(torch, dtype)).requires_grad_() for each in drawn]

    def step() -> Any:
        for each in leaves:
            each.grad = None
        made = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        loss = (made.float() ** 2).mean()
        loss.backward()
        return loss.detach()

    return step


STEPS: dict[str, Callable[[Any], Step]] = {
    "W2, SGD": lambda torch: _step(torch, _layers(torch, 64, 256, 10), (128, 64), 10, "SGD"),
    "W2, Adam": lambda torch: _step(torch, _layers(torch, 64, 256, 10), (128, 64), 10, "Adam"),
    "W3, SGD": lambda torch: _step(torch, _layers(torch, 1024, 1024, 1024, 10), (512, 1024), 10, "SGD"),
    "convolutions, SGD": lambda torch: _step(torch, _convolutions(torch, 64), (64, 64, 32, 32), 10, "SGD"),
    "transformer layer, Adam": lambda torch: _step(torch, _transformer(torch), (16, 128, 256), 10, "Adam"),
}
# By products, by the fused kernels, and by these in a half type. Hostcupy would take hours.
ATTENTION: dict[str, Callable[[Any], Step]] = {
    "attention, 1,024 queries": lambda torch: _attention(torch, 1024, "float32"),
    "attention, 4,096 queries": lambda torch: _attention(torch, 4096, "float32"),
    "the same in float16": lambda torch: _attention(torch, 4096, "float16"),
}


if __name__ == "__main__":
    sys.exit(main())
