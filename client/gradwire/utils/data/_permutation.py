"""Permutation: the random order of a seed, as PyTorch draws it on the CPU, without the server.

A generator whose seed the client knows needs no state of the server. So an epoch's order costs no round trip.
"""

from __future__ import annotations

from random import Random

#: Numbers up to which an order is computed here; the server is faster for more.
MOST = 4096
_WORDS, _FACTOR, _MASK = 624, 1812433253, 0xFFFFFFFF  # of mt19937


def seeded(seed: int) -> Random:
    """Python's generator in the state to which PyTorch seeds its own. `getrandbits(32)` gives the words that follow."""
    words = [seed & _MASK]
    for number in range(1, _WORDS):
        last = words[-1]
        words.append((_FACTOR * (last ^ (last >> 30)) + number) & _MASK)
    made = Random()
    made.setstate((3, (*words, _WORDS), None))
    return made


def permutation(seed: int, size: int) -> list[int]:
    """The numbers below a size, as `torch.randperm` orders them with a generator of this seed."""
    draw, order = seeded(seed).getrandbits, list(range(size))
    for place in range(size - 1):
        other = place + draw(32) % (size - place)
        order[place], order[other] = order[other], order[place]
    return order
