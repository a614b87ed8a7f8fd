"""Random numbers of a session: a generator for the CPU and one for GPUs, reproducible from one seed."""

import json
from typing import Any

import numpy as np


class Generator:
    """Draws random arrays (torch.Generator). The same seed gives the same numbers on the same kind of device."""

    def __init__(self, seed: int | None = None) -> None:
        self.manual_seed(np.random.SeedSequence().generate_state(1, np.uint64).item() if seed is None else seed)

    def manual_seed(self, seed: int) -> None:
        """Restart from a seed: any int, taken modulo 2**64."""
        self.seed = seed % 2**64
        self.offset = 0  # numbers drawn on GPUs
        self._numpy = np.random.Generator(np.random.PCG64(self.seed))

    def of(self, xp: Any) -> Any:
        """The array module's generator: `random`, `standard_normal`, `integers`, `poisson`, `binomial`."""
        return self._numpy if xp is np else xp.generator(self)

    def get_state(self) -> bytes:
        """The state; opaque."""
        state: dict[str, object] = {"seed": self.seed, "numpy": self._numpy.bit_generator.state}
        if self.offset:
            state["offset"] = self.offset
        return json.dumps(state).encode()

    def set_state(self, state: bytes) -> None:
        """Restore a state from `get_state`. Raises ValueError for anything else."""
        held = json.loads(state)
        if not isinstance(held, dict) or not {"seed", "numpy"} <= held.keys():
            raise ValueError("not a generator state")
        restored = np.random.PCG64(0)
        restored.state = held["numpy"]
        seed, offset = int(held["seed"]), int(held.get("offset", 0))
        if not 0 <= offset < 2**64:
            raise ValueError("not a generator state")
        self.seed, self.offset = seed, offset
        self._numpy = np.random.Generator(restored)
