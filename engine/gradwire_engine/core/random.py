"""Random numbers of a session: one generator per device kind, reproducible from a seed."""

import hashlib
import json
from typing import Any

import numpy as np


class Generator:
    """Draws random arrays (torch.Generator). The same seed gives the same numbers on the same kind of device."""

    def __init__(self, seed: int | None = None) -> None:
        self._cuda: Any = None
        self._cuda_seed: int | None = None
        self.manual_seed(np.random.SeedSequence().generate_state(1, np.uint64).item() if seed is None else seed)

    def manual_seed(self, seed: int) -> None:
        """Restart from a seed: any int, taken modulo 2**64."""
        self.seed = seed % 2**64
        self._numpy = np.random.Generator(np.random.PCG64(self.seed))
        self._cuda = self._cuda_seed = None

    def of(self, xp: Any) -> Any:
        """The array module's generator: `random`, `standard_normal`, `integers`, `permutation`."""
        if xp is np:
            return self._numpy
        if self._cuda is None:
            seed = self.seed if self._cuda_seed is None else self._cuda_seed
            self._cuda = xp.random.Generator(xp.random.Philox4x3210(seed=seed))
        return self._cuda

    def get_state(self) -> bytes:
        """The CPU generator's state; opaque."""
        return json.dumps({"seed": self.seed, "numpy": self._numpy.bit_generator.state}).encode()

    def set_state(self, state: bytes) -> None:
        """Restore a state from `get_state`. Raises ValueError for anything else."""
        held = json.loads(state)
        if not isinstance(held, dict) or not {"seed", "numpy"} <= held.keys():
            raise ValueError("not a generator state")
        restored = np.random.PCG64(0)
        restored.state = held["numpy"]
        self.seed = int(held["seed"])
        self._numpy = np.random.Generator(restored)
        self._cuda = self._cuda_seed = None

    def seed_cuda(self, state: bytes) -> tuple[Any, int | None]:
        """Seed the GPU generator from a state of this generator, because CuPy's own state cannot be read.

        Returns the previous GPU generator and seed, for `restore_cuda`.
        """
        before = self._cuda, self._cuda_seed
        digest = hashlib.blake2b(state, digest_size=8).digest()
        self._cuda, self._cuda_seed = None, int.from_bytes(digest, "little")
        return before

    def restore_cuda(self, before: tuple[Any, int | None]) -> None:
        """Restore the GPU generator that `seed_cuda` replaced."""
        self._cuda, self._cuda_seed = before
