"""Steps of W2 by language and mode, in one run against one server over TCP.

    python -m benchmarks.languages [--turns 7]

Every language has a program that reads lines "mode steps" and answers with seconds. Python's is here. The sides take
turns. A language without its toolchain is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from benchmarks.processes import hear, process, tell
from gradwire._cli.workloads import RATE, SMALL, data, training
from gradwire.v1 import commands_pb2, service_pb2, service_pb2_grpc, types_pb2

ROOT = Path(__file__).resolve().parents[1]
MODES = {"unary": 5, "stream": 40, "program": 80, "repeated": 80}  # and the steps of a turn
SERVE = ("-m", "gradwire_server", "--port=0", "--log-format=json", "--log-level=warning")
STUB_ONLY = """
import sys
from benchmarks.languages import python_side
python_side(sys.argv[1])
"""


@dataclass(frozen=True)
class Language:
    """How a language's side is built and run. "{folder}" in a command is a place for what is built."""

    name: str
    tool: str
    path: str  # below client/
    build: tuple[str, ...]
    command: tuple[str, ...]

    @contextmanager
    def running(self, folder: str, address: str) -> Iterator[subprocess.Popen[str]]:
        """Build the side and start it. It answers a line of mode and steps with the seconds that they took."""
        place = ROOT / "client" / self.path
        build, command = ([word.format(folder=folder) for word in each] for each in (self.build, self.command))
        subprocess.run(build, cwd=place, check=True, stdout=subprocess.DEVNULL)
        started = subprocess.Popen(
            [*command, address], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            yield started
        finally:
            started.communicate()


_JAVA = 'exec java -cp "target/test-classes:target/classes:$(cat {folder}/classpath)" io.github.gradwire.W2 "$0"'
LANGUAGES = (
    Language("Go", "go", "go", ("go", "build", "-o", "{folder}/w2", "./internal/w2"), ("{folder}/w2",)),
    Language("TypeScript", "node", "typescript", ("npm", "run", "build"), ("node", "dist/bench/w2.js")),
    Language(
        "Rust",
        "cargo",
        "rust",
        ("cargo", "build", "-q", "--release", "--example", "w2"),
        ("target/release/examples/w2",),
    ),
    Language(
        "Java",
        "mvn",
        "java",
        ("mvn", "-q", "-B", "test-compile", "dependency:build-classpath", "-Dmdep.outputFile={folder}/classpath"),
        ("sh", "-c", _JAVA),
    ),
)


def python_side(address: str) -> None:
    """Answer the lines of standard input with the seconds that Python's client takes."""
    os.environ["GRADWIRE_LOCAL_STREAM"] = "0"  # the other languages have TCP only
    import gradwire

    gradwire.connect(address)
    modes: dict[str, Callable[[int], object]] = {"unary": _unary(address), **_client(gradwire)}
    for line in sys.stdin:
        mode, steps = line.split()
        begun = time.perf_counter()
        modes[mode](int(steps))
        print(time.perf_counter() - begun, flush=True)


def _client(torch: Any) -> dict[str, Callable[[int], object]]:
    eager = training(torch, 128, SMALL, MODES["stream"])
    compiled = training(torch, 128, SMALL, MODES["program"], compiled=True)
    return {"stream": lambda _: eager(), "program": lambda _: compiled(), "repeated": _repeated(torch)}


def _repeated(torch: Any) -> Callable[[int], object]:
    inputs, labels, weights = data(128, SMALL)
    x, y = torch.tensor(inputs), torch.tensor(labels)
    w1, w2 = (torch.tensor(each, requires_grad=True) for each in weights)
    b1, b2 = (torch.zeros(each, requires_grad=True) for each in SMALL[1:])

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, y)
        loss.backward()
        with torch.no_grad():
            for p in (w1, b1, w2, b2):
                p -= RATE * p.grad
                p.grad = None
        return loss

    compiled = torch.compile(step, repeat=MODES["repeated"])
    return lambda _: float(compiled().item())


def _unary(address: str) -> Callable[[int], None]:
    stub = service_pb2_grpc.AutogradServiceStub(grpc.insecure_channel(address))
    session = stub.OpenSession(service_pb2.OpenSessionRequest()).session_id
    on, off = types_pb2.GRAD_MODE_ENABLED, types_pb2.GRAD_MODE_DISABLED
    made: list[int] = []

    def op(name: str, *given: object, mode: int = on, **named: object) -> int:
        args = [types_pb2.Argument(tensor=each) if isinstance(each, int) else each for each in given]
        request = commands_pb2.OpRequest(session_id=session, op=name, args=args, grad_mode=mode)
        made.append(stub.Op(request).outputs[0].id)
        return made[-1]

    def sized(*sizes: int) -> types_pb2.Argument:
        return types_pb2.Argument(integers=types_pb2.IntList(values=sizes))

    x = op("randn", sized(128, 64))
    y = op("zeros", sized(128), types_pb2.Argument(name="dtype", dtype=types_pb2.DTYPE_INT64))
    parameters = [
        op("randn", sized(64, 256)),
        op("zeros", sized(256)),
        op("randn", sized(256, 10)),
        op("zeros", sized(10)),
    ]
    for each in parameters:
        ask = commands_pb2.SetRequiresGradRequest(session_id=session, tensor=each, requires_grad=True)
        stub.SetRequiresGrad(ask)

    def step() -> None:
        made.clear()
        hidden = op("relu", op("add", op("matmul", x, parameters[0]), parameters[1]))
        loss = op("cross_entropy", op("add", op("matmul", hidden, parameters[2]), parameters[3]), y)
        stub.Backward(commands_pb2.BackwardRequest(session_id=session, tensors=[loss]))
        for each in parameters:
            gradient = stub.Grad(commands_pb2.GradRequest(session_id=session, tensor=each)).grad.id
            made.append(gradient)
            op("sub_", each, op("mul", gradient, types_pb2.Argument(float=0.01), mode=off), mode=off)
            made.pop()  # the parameter itself
            stub.SetGrad(commands_pb2.SetGradRequest(session_id=session, tensor=each))
        stub.Release(commands_pb2.ReleaseRequest(session_id=session, tensors=made))

    def take(steps: int) -> None:
        for _ in range(steps):
            step()

    return take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    with ExitStack() as stack:
        server = stack.enter_context(process(*SERVE, own_threads=True))
        address = json.loads(hear(server))["address"]
        sides = {"Python": stack.enter_context(process("-c", STUB_ONLY, address))}
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for language in LANGUAGES:
            if shutil.which(language.tool):
                sides[language.name] = stack.enter_context(language.running(folder, address))
        seconds: dict[tuple[str, str], list[float]] = {(side, mode): [] for side in sides for mode in MODES}
        for turn in range(-2, turns):  # two turns to warm up
            for mode, steps in MODES.items():
                for side, each in sides.items():
                    tell(each, f"{mode} {steps}")
                    taken = float(hear(each)) / steps
                    if turn >= 0:
                        seconds[side, mode].append(taken)
    print(f"load {os.getloadavg()[0]:.1f}; ms per step: median (at best) of {turns} turns")
    print("| mode | " + " | ".join(sides) + " |\n| --- |" + " --- |" * len(sides))
    for mode in MODES:
        cells = [
            f"{statistics.median(took) * 1e3:.2f} ({min(took) * 1e3:.2f})"
            for took in (seconds[side, mode] for side in sides)
        ]
        print(f"| {mode} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
