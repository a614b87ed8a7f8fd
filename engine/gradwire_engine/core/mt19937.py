"""The Mersenne Twister MT19937 as PyTorch's generator of the CPU uses it: its seeds, its draws and its state's layout.

Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number generator".
NumPy computes the words. A word has 32 bits; 64 bits are two words, the first one high.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = "npt.NDArray[np.uint32]"
Words64: TypeAlias = "npt.NDArray[np.uint64]"

_SIZE = 624  # words of the state
_HEAD = struct.Struct("<QiiQ")  # seed, words left plus one, whether seeded, the next word's place
_TAIL = struct.Struct("<dddi4xf?3x")  # x, kept normal number, rho, whether one is kept; float32: number, whether
STATE_BYTES = _HEAD.size + 8 * _SIZE + _TAIL.size
_LOW_53 = np.uint64((1 << 53) - 1)
_STEP_53 = 2.0**-53


class Twister:
    """Draws words and uniform numbers; `kept` is the second number of a drawn pair of normal numbers."""

    def __init__(self, seed: int = 0) -> None:
        """Start from the low 32 bits of a seed."""
        self._bits: Any = np.random.MT19937(0)
        self._wide: Any = np.random.Generator(self._bits)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Restart from the low 32 bits of a seed."""
        np.random.RandomState(self._bits).seed(seed & 0xFFFFFFFF)
        self._fresh = True  # nothing was drawn since the seed
        self.kept: float | None = None

    def words(self, count: int) -> Words:
        """The next words."""
        self._fresh = self._fresh and not count
        drawn: Words64 = self._bits.random_raw(count)
        return drawn.astype(np.uint32)

    def words64(self, count: int) -> Words64:
        """The next numbers of 64 bits."""
        self._fresh = self._fresh and not count
        if count >= _SIZE:
            drawn: Words64 = self._wide.integers(0, 1 << 64, count, dtype=np.uint64)
            return drawn
        words: Words64 = self._bits.random_raw(2 * count)
        return np.asarray((words[0::2] << np.uint64(32)) | words[1::2])

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """Uniform numbers from [0, 1), of 53 bits each."""
        drawn = self.words64(count)
        drawn &= _LOW_53
        made: npt.NDArray[np.float64] = drawn.view(np.int64).astype(np.float64)
        made *= _STEP_53
        return made

    def skip(self, count: int) -> None:
        """Drop the next words."""
        if count:
            self._fresh = False
            self._bits.random_raw(count, output=False)

    def mark(self) -> tuple[Any, bool, float | None]:
        """The present place, for `rewind`."""
        return self._bits.state, self._fresh, self.kept

    def rewind(self, mark: tuple[Any, bool, float | None]) -> None:
        """Continue from a place of `mark`."""
        self._bits.state, self._fresh, self.kept = mark

    def get_state(self, seed: int) -> bytes:
        """The state in PyTorch's layout, `STATE_BYTES` long. seed: where it started."""
        held = self._bits.state["state"]
        place = int(held["pos"])
        head = _HEAD.pack(seed, _SIZE + 1 - place, 1, 0 if self._fresh else place)
        tail = _TAIL.pack(0.0, self.kept or 0.0, 0.0, self.kept is not None, 0.0, False)
        key: Words = held["key"]
        return head + key.astype("<u8").tobytes() + tail

    def set_state(self, state: bytes) -> int:
        """Restore a state of PyTorch's layout; return the seed. Raises ValueError for anything else."""
        if len(state) != STATE_BYTES:
            raise ValueError("not a generator state")
        seed, left, _, following = _HEAD.unpack_from(state)
        key = np.frombuffer(state, "<u8", _SIZE, _HEAD.size)
        _, kept, _, is_kept, _, _ = _TAIL.unpack_from(state, STATE_BYTES - _TAIL.size)
        if not 1 <= left <= _SIZE or following > _SIZE or (key >> np.uint64(32)).any():
            raise ValueError("not a generator state")
        place = _SIZE + 1 - left
        self._bits.state = {
            "bit_generator": "MT19937", "state": {"key": key.astype(np.uint32), "pos": place},
        }  # fmt: skip
        self._fresh = left == 1 and following == 0
        self.kept = kept if is_kept else None
        return int(seed)
