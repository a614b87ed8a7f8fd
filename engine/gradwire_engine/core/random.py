"""Random numbers of a session: a generator for the CPU and one for GPUs, reproducible from one seed.

The CPU's is PyTorch's, MT19937, or NumPy's PCG64; a GPU's is Philox (backends/philox.py).
"""

from __future__ import annotations

import json
import secrets
from typing import Any

import numpy as np

from gradwire_engine.core.mt19937 import STATE_BYTES, Twister

_OFFSET_BYTES = 8
MT19937, PCG64 = "mt19937", "pcg64"  # names of the algorithms


class Generator:
    """Draws random arrays (torch.Generator). The same seed gives the same numbers on the same kind of device."""

    def __init__(self, seed: int | None = None, algorithm: str = MT19937) -> None:
        self.draws = 0  # changes whenever the state may have changed
        self._twister: Twister | None = None  # made once, since that takes longest
        # The system's numbers: importing numpy.random takes 2 MiB, which a worker without random numbers saves.
        self.manual_seed(secrets.randbits(64) if seed is None else seed, algorithm)

    def manual_seed(self, seed: int, algorithm: str = MT19937) -> None:
        """Restart from a seed: any int, taken modulo 2**64.

        algorithm: "mt19937" gives PyTorch's numbers on the CPU, "pcg64" NumPy's. A GPU's numbers do not depend on it.
        """
        self.seed = seed % 2**64
        self.algorithm = algorithm
        self.offset = 0  # numbers drawn on GPUs
        self.draws += 1
        self._source: Any = None  # made when it is needed
        self._known: tuple[tuple[int, int], bytes] | None = None  # `_moment` and the state then

    def of(self, xp: Any) -> Any:
        """The array module's generator: a Twister, or one with NumPy's methods.

        Those are `random`, `standard_normal`, `integers`, `poisson` and `binomial`.
        """
        self.draws += 1
        return self._cpu() if xp is np else xp.generator(self)

    def _cpu(self) -> Any:
        if self._source is None:
            if self.algorithm == MT19937:
                self._source = self._twister = self._twister or Twister()
                self._source.seed(self.seed)
            else:
                self._source = np.random.Generator(np.random.PCG64(self.seed))
        return self._source

    def get_state(self) -> bytes:
        """The state; opaque. That of MT19937 begins with PyTorch's layout."""
        if self._known is None or self._known[0] != self._moment():
            self._known = self._moment(), self._state()
        return self._known[1]

    def _moment(self) -> tuple[int, int]:
        return self.draws, self.offset

    def _state(self) -> bytes:
        source = self._cpu()
        if self.algorithm == MT19937:
            state: bytes = source.get_state(self.seed)
            return state + self.offset.to_bytes(_OFFSET_BYTES, "little") if self.offset else state
        held: dict[str, object] = {"seed": self.seed, "numpy": source.bit_generator.state}
        if self.offset:
            held["offset"] = self.offset
        return json.dumps(held).encode()

    def set_state(self, state: bytes) -> None:
        """Restore a state from `get_state`, and with it the algorithm. Raises ValueError for anything else."""
        if self._known == (self._moment(), state):
            return
        if len(state) in (STATE_BYTES, STATE_BYTES + _OFFSET_BYTES):
            twister = self._twister or Twister()
            seed = twister.set_state(state[:STATE_BYTES])
            self._twister = twister
            self._restore(MT19937, twister, seed, int.from_bytes(state[STATE_BYTES:], "little"))
        else:
            held = json.loads(state)
            if not isinstance(held, dict) or not {"seed", "numpy"} <= held.keys():
                raise ValueError("not a generator state")
            restored = np.random.PCG64(0)
            restored.state = held["numpy"]
            self._restore(PCG64, np.random.Generator(restored), int(held["seed"]), int(held.get("offset", 0)))

    def _restore(self, algorithm: str, source: Any, seed: int, offset: int) -> None:
        if not 0 <= offset < 2**64:
            raise ValueError("not a generator state")
        self.algorithm, self._source, self.seed, self.offset = algorithm, source, seed, offset
        self.draws += 1
        self._known = None
