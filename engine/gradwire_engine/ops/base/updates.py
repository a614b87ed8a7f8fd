"""In-place updates on GPUs by elementwise loops, and rows of updates that one kernel computes.

Calls in a row change many arrays in the same way, as an optimizer's step does. Their updates wait in `Updates` and are
computed by one kernel. A call that depends on a waiting update comes after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire_engine.core.device import Array, allocation, device_of, selected
from gradwire_engine.ops.base.loops import Loops, fits, gpu_loops_of, run

#: Updates of one kernel at most, and arrays that one of them may have (compile/fusion/cuda_printer.py).
MOST, MOST_ARRAYS = 64, 5


def update_on_gpu(
    name: str, target: Any, *arrays: Any, numbers: tuple[Any, ...], plainly: Callable[[Array], None]
) -> None:
    """Overwrite an array: on a GPU by an elementwise loop over it, arrays of its shape, and numbers, if one fits.

    plainly: the same by the array's module. Inside of `Updates.during`, the kernel may run later.
    """
    loops = gpu_loops_of(target)
    # A kernel's compiler assumes that what is not the target does not change.
    suits = (
        loops is not None
        and all(type(each) is type(target) and each.data.ptr != target.data.ptr for each in arrays)
        and all(type(number) in (int, float) for number in numbers)
        and fits(target, *arrays)
    )
    loop: Any = loops.find(name, target.dtype.char) if loops is not None and suits else None
    if loops is None or loop is None:
        plainly(target)
        return
    scalars = [np.asarray(number, target.dtype) for number in numbers]
    expected = target.copy() if loops.verifies else None
    update = _Update(loops, loop, name, [target, *arrays], scalars, plainly, expected)
    updates = _GATHERED.updates
    if updates is None or len(update.arrays) > MOST_ARRAYS:
        _run([update])
    else:
        # What may fail fails in this call: later it would be another one that is refused.
        loop.prepare_many(len(update.arrays), len(scalars))
        updates.add(update)


@dataclass
class _Update:
    """An update of the first of its arrays."""

    loops: Loops
    loop: Any
    name: str
    arrays: list[Any]
    numbers: list[Array]
    plainly: Callable[[Array], None]
    expected: Any  # a copy of the first array from before, if results are verified

    def goes_with(self, other: _Update) -> bool:
        """Whether one kernel may compute both."""
        return (
            self.loop is other.loop
            and self.arrays[0].device == other.arrays[0].device
            and [number.tobytes() for number in self.numbers] == [number.tobytes() for number in other.numbers]
        )


def _run(updates: Sequence[_Update]) -> None:
    """Compute updates, by one kernel if they are several. Raises EngineError: RUNTIME if a verified one is wrong."""
    first = updates[0]
    loops, targets = first.loops, [update.arrays[0] for update in updates]
    with selected(device_of(targets[0])):
        if len(updates) == 1:
            run(first.loop, 1, targets[0].size, *first.arrays, *first.numbers)
        else:
            first.loop.launch_many([update.arrays for update in updates], first.numbers)
        for update in updates:
            if update.expected is not None:
                update.plainly(update.expected)
                loops.check(update.name, update.arrays[0], update.expected)


class Updates:
    """Updates that wait, to be computed by one kernel. Calls that may add to them run in `during`."""

    def __init__(self) -> None:
        self.waiting: list[_Update] = []

    def add(self, update: _Update) -> None:
        """Let an update wait; those of another kind are computed first."""
        if self.waiting and not update.goes_with(self.waiting[0]):
            self.flush()
        self.waiting.append(update)
        if len(self.waiting) == MOST:
            self.flush()

    def flush(self) -> None:
        """Compute what waits."""
        waiting, self.waiting = self.waiting, []
        if waiting:
            _run(waiting)

    def settle(self, target: Any, others: Sequence[Any]) -> None:
        """Compute what waits, if it shares memory with a call that changes `target` and reads `others`."""
        if not self.waiting or type(target) is np.ndarray:
            return
        written = {allocation(update.arrays[0]) for update in self.waiting}
        read = {allocation(array) for update in self.waiting for array in update.arrays[1:]}
        used = {allocation(array) for array in others if type(array) is not np.ndarray}
        if allocation(target) in written | read or not used.isdisjoint(written):
            self.flush()

    @contextmanager
    def during(self, more: bool) -> Iterator[None]:
        """Gather the updates of a call. more: whether the next call may add to them; else they are computed."""
        _GATHERED.updates = self
        try:
            yield
        except BaseException:
            more = False
            raise
        finally:
            _GATHERED.updates = None
            if not more:
                self.flush()


class _Gathered(threading.local):
    updates: Updates | None = None


_GATHERED = _Gathered()
