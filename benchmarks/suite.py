"""What gradwire promises about its speed, row by row, each measured beside what it is compared with.

A part is a group of rows that share their processes; parts and rows come in the order of the table.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import by_hand, sessions, unary
from benchmarks.bare import Peer
from benchmarks.measure import Bound, Fact, Result, Run, compare, seconds
from benchmarks.processes import bare, served
from gradwire._cli.workloads import LARGE, SMALL, chain, round_trip, training

Row = Result | Fact
BULK = 64 << 20
#: Rows that can be had without the others of their part.
ROWS = {
    "torch": ("W1 eager", "W2 eager", "W3 eager", "W2 compiled", "W3 compiled"),
    "tcp": ("RTT", "W4"),
}
Wanted = Callable[[str], bool]
STEPS = {"W2": 200, "W3": 10}


def agree(name: str, ours: Run, theirs: Run) -> None:
    """Run both once and compare their answers. Raises SystemExit where they differ."""
    answer, expected = float(ours()), float(theirs())  # type: ignore[arg-type]
    if abs(answer - expected) > 1e-3 * max(1.0, abs(expected)):
        raise SystemExit(f"{name}: gradwire computed {answer}, what it is compared with {expected}")


def uses_avx512() -> bool:
    """Whether NumPy's BLAS was told to take AVX-512 kernels: then PyTorch is the measure of a large step."""
    return os.environ.get("OPENBLAS_CORETYPE", "").lower() in ("skylakex", "cooperlake", "sapphirerapids")


def beside_torch(turns: int, wanted: Wanted = lambda row: True) -> Iterator[Row]:
    """W1 to W3 over a connection to the embedded server (or the one that `--address` names), PyTorch in process."""
    import torch

    import gradwire

    def row(name: str, bound: Bound, build: Callable[[Any], Run], theirs: Run, peer: str, per: int) -> Result:
        ours = build(gradwire)
        agree(name, ours, theirs)
        return compare(Result("suite", name, peer, bound), ours, theirs, per=per, turns=turns)

    if wanted("W1 eager"):
        yield row("W1 eager: 1,000 ops + backward", Bound(2, 1), chain, chain(torch), "PyTorch", 1)
    shapes = {"W2": (128, SMALL), "W3": (512, LARGE)}
    bounds = {
        ("W2", False): Bound(3, 1.5),
        ("W3", False): Bound(),
        ("W2", True): Bound(1, 0.7),
        ("W3", True): Bound(0.8, 0.6) if uses_avx512() else Bound(),
    }
    for (name, compiled), bound in bounds.items():
        batch, sizes = shapes[name]
        steps, how = STEPS[name], "compiled" if compiled else "eager"
        if not wanted(f"{name} {how}"):
            continue
        title = f"{name} {how}: step of a {'-'.join(map(str, sizes))} MLP, batch {batch}"
        if compiled and not hasattr(gradwire, "compile"):
            yield Fact(title, "left out: there is no gradwire.compile in this version")
            continue
        build = functools.partial(training, batch=batch, sizes=sizes, steps=steps, compiled=compiled)
        yield row(title, bound, build, training(torch, batch, sizes, steps), "PyTorch", steps)
        if compiled:
            floor = Bound(1.15) if name == "W3" and not uses_avx512() else Bound()
            hand = by_hand.training(batch, sizes, steps)
            yield row(f"{title}, against NumPy by hand", floor, build, hand, "NumPy by hand", steps)


@contextmanager
def connected(address: str, *, beside: bool) -> Iterator[None]:
    """A default session at a server, with or without what a client on its machine has: shared memory, local streams."""
    import gradwire

    with connection_options(beside=beside), closing(gradwire.connect(address)):
        yield


def connection_options(*, beside: bool) -> AbstractContextManager[Any]:
    """Environment in which a client uses shared memory and local streams, or neither."""
    chosen = "1" if beside else "0"
    return patch.dict(os.environ, GRADWIRE_SHARED_MEMORY=chosen, GRADWIRE_LOCAL_STREAM=chosen)


def over_tcp(turns: int, wanted: Wanted = lambda row: True) -> Iterator[Row]:
    """Round trips and bulk over the loopback, beside the same by bare gRPC between two processes; shared memory."""
    import gradwire

    values = np.random.default_rng(0).standard_normal(BULK // 4, dtype=np.float32)
    view, target = memoryview(values).cast("B"), np.zeros_like(values)
    with served() as (address, _), bare() as bare_address, closing(Peer(bare_address)) as peer:
        if peer.upload(view) != BULK or peer.download(BULK) != BULK:
            raise SystemExit("W4: the bare peer lost bytes")
        for beside, how in ((True, "on one machine"), (False, "over TCP")):
            if wanted("RTT"):
                with connected(address, beside=beside):
                    title = f"RTT {how}: tiny op + read"
                    result = Result("suite", title, "bare gRPC stream echo", Bound(1.5, 1.2), unit="µs")
                    yield compare(result, round_trip(gradwire), peer.echo, turns=turns)
        with connected(address, beside=False):
            if not wanted("W4"):
                return
            yield from bulk(
                values,
                "over TCP",
                "bare chunked stream",
                {"up": lambda: peer.upload(view), "down": lambda: peer.download(BULK)},
                Bound(0.7, 0.95, at_least=True),
                turns,
            )
        with connected(address, beside=True):
            # The tensor's and the array's memory is new, as a copy's is; the other rows show what that alone costs.
            must, used = Bound(0.3, 0.6, at_least=True), functools.partial(np.copyto, target, values)
            for how, peer_name, copy, bound in (
                ("by shared memory", "memcpy to new memory", values.copy, must),
                ("by shared memory, and memory used before", "memcpy", used, Bound(at_least=True)),
            ):
                yield from bulk(values, how, peer_name, {"up": copy, "down": copy}, bound, turns)


def bulk(values: np.ndarray, how: str, peer: str, theirs: dict[str, Run], bound: Bound, turns: int) -> Iterator[Row]:
    """W4: 64 MiB up and down; the ratio is of throughput, so it is their time over ours."""
    import gradwire

    def up() -> None:
        gradwire.tensor(values)  # dropped, so that the next one finds its memory, as what it is compared with does
        gradwire.sync()

    held = gradwire.tensor(values)
    if not np.array_equal(held.numpy(), values):
        raise SystemExit(f"W4 {how}: what came back is not what was sent")
    ours: dict[str, Run] = {"up": up, "down": held.numpy}
    for way, other in theirs.items():
        result = Result("suite", f"W4 {way}: 64 MiB {how}", peer, bound)
        for number in range(turns + 1):
            pair = {False: 0.0, True: 0.0}
            for is_ours in (True, False) if number % 2 else (False, True):
                pair[is_ours] = seconds(ours[way] if is_ours else other)
            if number:  # the first pair warms up
                result.add(pair[True], pair[False], pair[False] / pair[True])
        yield result


def measure(only: str, turns: int, with_torch: bool) -> Iterator[Row]:
    """The rows of the parts whose name contains `only`, or those of ROWS that it names, as they are measured."""
    parts: dict[str, Callable[[int, Wanted], Iterator[Row]]] = {
        "torch": beside_torch,
        "tcp": over_tcp,
        "unary": lambda turns, _: unary.one_after_the_other(turns),
        "sessions": lambda turns, _: sessions.at_once(turns),
        "neighbour": lambda turns, _: sessions.beside_a_busy_one(turns),
        "memory": lambda _turns, _wanted: sessions.memory(),
    }
    for name, part in parts.items():
        of_part = only in name
        if of_part or any(only in row for row in ROWS.get(name, ())):
            if name == "torch" and not with_torch:
                yield Fact("W1 to W3", "left out: PyTorch is not installed")
                continue
            yield from part(turns, lambda row, all_of_it=of_part: all_of_it or only in row)
