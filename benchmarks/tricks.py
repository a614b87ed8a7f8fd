"""What a trick saves: a workload with it and without it, in turns within one process.

A trick is code that depends on the interpreter's or a library's internals, or that is written twice for speed. It stays
only if a row gets 5 % slower without it. The time is CPU time, so that a busy machine decides less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.measure import Bound, Result, Run
from benchmarks.processes import served
from benchmarks.small import LENGTH, engine_runs

MUST = Bound(1.05, at_least=True)
WITHOUT = "without it"
TRIPS = 20  # round trips in a run
Surroundings = Callable[[], AbstractContextManager[Any]]


@contextmanager
def keywords_in_a_dict() -> Iterator[None]:
    """Ops get their keyword-only arguments by a dict: op/signature.py passes them by place."""
    from gradwire_engine.op.declaration import OPS

    with ExitStack() as stack:
        for op in OPS.values():
            if op.keywords:
                stack.enter_context(patch.object(op, "forward", _by_dict(op.function, op.keywords)))
        yield


def _by_dict(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    few = len(names)
    return lambda *args: function(*args[:-few], **dict(zip(names, args[-few:], strict=True)))


def gradients_copied() -> AbstractContextManager[Any]:
    """Leaves copy their gradients: autograd/buffer_reuse.py lets them take over an array without other holders."""
    from gradwire_engine.autograd import buffer_reuse

    return patch.object(buffer_reuse, "_SOLE_REFERENCES", 0)


def gradient_of_relu() -> Run:
    """The gradient of relu on a million elements, at a leaf."""
    import gradwire_engine as engine

    ones = np.ones((1024, 1024), np.float32)
    x, last = engine.tensor(ones.copy(), True), engine.tensor(ones)
    y = engine.call("relu", [x])

    def run() -> None:
        x.grad = None
        engine.backward([y], [last], retain_graph=True)

    return run


def repeated(run: Run, times: int) -> Run:
    """So many runs."""

    def runs() -> None:
        for _ in range(times):
            run()

    return runs


def alternate(
    result: Result,
    run: Run,
    turns: int,
    without: Surroundings = nullcontext,
    other: Run | None = None,
    per: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> Result:
    """Fill a row: `run` has the trick, and has it not within `without`; or `other` is the work without it.

    per: how many units of work a run does.
    """
    sides = {True: run, False: other or run}
    for turn in range(turns + 1):
        spent = {}
        for has in (True, False) if turn % 2 else (False, True):
            side = sides[has]
            with nullcontext() if has else without():
                side()  # the interpreter adapts its code to this side
                begin = clock()
                side()
                spent[has] = clock() - begin
        if turn:  # the first turn warms up
            result.add(spent[True] / per, spent[False] / per, spent[False] / spent[True])
    return result


def in_the_engine(turns: int) -> Iterator[Result]:
    """Tricks of the engine, in this process."""
    (one, _), (both, forward) = engine_runs(1), engine_runs(LENGTH)
    by_place, reuse = "keyword arguments by place: ", "gradients taken over: "
    chain = f"a chain of {LENGTH:,} ops, per op"
    for name, run, without, per in (
        (f"{by_place}{chain}, forward", forward, keywords_in_a_dict, LENGTH),
        (f"{by_place}{chain}, with backward", both, keywords_in_a_dict, LENGTH),
        (f"{reuse}one op with backward", repeated(one, 100), gradients_copied, 100),
        (f"{reuse}relu's gradient, 1M elements", repeated(gradient_of_relu(), 5), gradients_copied, 5),
    ):
        yield alternate(Result("tricks", name, WITHOUT, MUST, unit="µs"), run, turns, without, per=per)


def of_grpc(turns: int) -> Iterator[Result]:
    """The client's use of grpc's lower layer (_transport/link.py): round trips over TCP, by CPU time and by the clock.

    Each side has a session, whose stream is opened by that layer or by the public API.
    """
    import gradwire
    from benchmarks.suite import connection_options
    from gradwire._cli.workloads import round_trip
    from gradwire._transport import link

    with served() as (address, _), ExitStack() as stack:
        trips = {}
        for lower in (True, False):
            with connection_options(beside=False), patch.object(link, "_cython_works", lower):
                session = stack.enter_context(closing(gradwire.connect(address)))
                with session:
                    trips[lower] = repeated(round_trip(gradwire), TRIPS)
                    trips[lower]()
        for how, clock in (("the client's CPU time", time.process_time), ("by the clock", time.perf_counter)):
            result = Result("tricks", f"grpc's lower layer: RTT over TCP, {how}", WITHOUT, MUST, unit="µs")
            yield alternate(result, trips[True], turns, other=trips[False], per=TRIPS, clock=clock)


def measure(only: str, turns: int) -> Iterator[Result]:
    """The rows of the tricks whose group's name contains `only`: engine, grpc."""
    for name, rows in (("engine", in_the_engine), ("grpc", of_grpc)):
        if only in name:
            yield from rows(turns)
