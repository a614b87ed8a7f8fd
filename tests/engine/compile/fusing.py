"""Programs traced to plans, their fused plans, and ops' loops that are noted: every kernel is waited for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradwire_engine import Tensor
from gradwire_engine.compile.eager.library import Library, SessionLoops
from gradwire_engine.compile.fusion.fused import machine_of
from gradwire_engine.compile.fusion.grouping import Group
from gradwire_engine.compile.fusion.kernel_cache import Kernel, Kernels
from gradwire_engine.compile.plan import Plan
from gradwire_engine.compile.trace import Num
from gradwire_engine.compile.tracing import Tracer
from gradwire_engine.core.context import CURRENT, activate
from gradwire_engine.core.device import CPU

Program = Callable[..., Sequence[Tensor]]
_FOLDER = tempfile.TemporaryDirectory(prefix="gradwire-tests-")
KERNELS = Kernels(Path(_FOLDER.name))
_LIBRARY = Library()


class NotedLoops(SessionLoops):
    """Loops that note which are asked for."""

    def __init__(self, applies: bool = True, library: Library = _LIBRARY) -> None:
        super().__init__(lambda: applies, library)
        self.found: set[tuple[str, str]] = set()

    def find(self, name: str, dtype: str) -> Any:
        made = super().find(name, dtype)
        if made is not None:
            self.found.add((name, dtype))
        return made

    def loaded(self, name: str, dtype: str) -> Any:
        made = super().loaded(name, dtype)
        if made is not None:
            self.found.add((name, dtype))
        return made


def traced(program: Program, inputs: Sequence[Tensor], numbers: Sequence[float] = (), shared: bool = False) -> Plan:
    """The plan of a program of inputs, then numbers."""
    tracer = Tracer(inputs, any(each.device != CPU for each in inputs), shared)
    with activate(replace(CURRENT.get(), tracer=tracer)):
        outputs = program(*inputs, *[Num.at(place, value) for place, value in enumerate(numbers)])
        assert tracer.failed is None, tracer.failed
        return Plan(tracer, outputs, len(numbers), CURRENT.get().account)


def fused(plan: Plan, kernels: Kernels = KERNELS) -> tuple[Plan, list[Group]]:
    """The plan with its groups fused; every kernel must compile."""
    made = machine_of(plan, lambda source: built(source, kernels))
    return plan._fused(made, CURRENT.get().account), [group for group, _ in made.groups]


def built(source: str, kernels: Kernels = KERNELS) -> Kernel:
    """A kernel, which must compile. Only the kernels' own thread may use the compiler process, and ends it."""
    done: Future[Kernel] = Future()
    assert kernels.hurry(lambda: done.set_result(kernels.built(source)))
    kernel = done.result(120)
    assert not kernel.failed, kernel.failed
    assert kernel.entry is not None
    return kernel


def run(plan: Plan, inputs: Sequence[Tensor], numbers: Sequence[float] = ()) -> list[Tensor]:
    """The outputs of one run."""
    going: Iterator[None] = plan.run(inputs, numbers, CURRENT.get())
    while True:
        try:
            next(going)
        except StopIteration as done:
            found: list[Tensor] = done.value
            return found
