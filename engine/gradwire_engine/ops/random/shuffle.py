"""Random permutations by the shuffle of Fisher and Yates, without a loop over large ones.

Step t exchanges place t with place j[t] >= t, which a word chooses. No later step reads place t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire_engine.core.mt19937 import Twister

Places = npt.NDArray[np.signedinteger[Any]]

_SHORT = 200  # up to here a loop is faster
_WIDE = (1 << 32) // 20  # from here each step takes 64 bits


def permutation(source: Twister, n: int) -> Places:
    """The numbers from 0 to n - 1 in random order; n - 1 words are drawn."""
    steps = max(n - 1, 0)
    drawn: Any = source.words64(steps) if n >= _WIDE else source.words(steps)
    drawn %= np.arange(n, n - steps, -1, dtype=drawn.dtype)
    if n <= _SHORT:
        return _looped(n, drawn.tolist())
    places = np.arange(n, dtype=np.int32 if n < 1 << 31 else np.int64)
    places[:steps] += drawn.astype(places.dtype)
    return _resolved(places)


def _looped(n: int, offsets: list[int]) -> Places:
    order = list(range(n))
    for step, offset in enumerate(offsets):
        if offset:
            order[step], order[step + offset] = order[step + offset], order[step]
    return np.array(order, np.int64)


def _resolved(chosen: Places) -> Places:
    """The permutation of the exchanges of t and chosen[t].

    Step t moves to chosen[t] what place t had until then. That came from the last step before t that chose t, or is t.
    Following these steps back gives `moved`. Place t gets what its chosen place had: what the last step before t that
    chose the same place moved there.
    """
    n, kind = len(chosen), chosen.dtype
    width = n.bit_length()
    keys = chosen.astype(np.int64)
    keys <<= width
    keys |= np.arange(n, dtype=kind)
    keys.sort()
    places = (keys >> width).astype(kind)
    keys &= (1 << width) - 1
    steps = keys.astype(kind)
    del keys
    again = places[1:] == places[:-1]
    before = np.full(n, -1, kind)
    before[steps[1:][again]] = steps[:-1][again]
    latest = np.full(n, -1, kind)
    last = np.append(~again, True)
    latest[places[last]] = steps[last]
    own = np.flatnonzero(latest == np.arange(n, dtype=kind))  # a step that chooses its own place moves nothing there
    latest[own] = before[own]
    moved = _roots(latest)
    return np.where(before < 0, chosen, moved[before])


def _roots(parents: Places) -> Places:
    """Where a walk along the parents ends, for each start; -1 marks an end."""
    roots = np.arange(len(parents), dtype=parents.dtype)
    walking = np.flatnonzero(parents >= 0)
    roots[walking] = parents[walking]
    while len(walking):
        reached = roots[walking]
        further = roots[reached]
        goes_on = further != reached
        walking = walking[goes_on]
        roots[walking] = further[goes_on]
    return roots
