"""Random numbers: the session's generator, which the server holds, and generators of one's own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradwire._base.errors import GradwireTypeError
from gradwire._functions.create import make_tensor
from gradwire._graph import commands
from gradwire._session.sessions import current_session
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire._transport.wire import Value
from gradwire.v1 import commands_pb2, service_pb2

_SEEDS = range(-(1 << 63), 1 << 64)


def _command(seed: int | None = None, state: bytes | None = None) -> service_pb2.Command:
    request = commands_pb2.ManualSeedRequest()
    if seed is not None:
        request.seed = seed - (1 << 64) if seed >= 1 << 63 else seed
    elif state is not None:
        request.state = state
    return service_pb2.Command(manual_seed=request)


def _checked(seed: Any) -> int:
    number = int(seed)
    if number not in _SEEDS:
        raise ValueError("Overflow when unpacking long long: a seed has 64 bits")
    return number


def manual_seed(seed: int) -> Generator:
    """Start the session's random numbers over; the answer is its generator (torch.manual_seed)."""
    number = _checked(seed)

    def build(values: Sequence[Value]) -> service_pb2.Command:
        return _command(seed=number)

    commands.run(current_session(), "manual_seed", (number,), [], build)
    return default_generator


def seed() -> int:
    """Start the session's random numbers from a seed that nobody knows beforehand; the answer is that seed."""
    number = int.from_bytes(os.urandom(8), "little")
    manual_seed(number)
    return number


def initial_seed() -> int:
    """The seed that the session's random numbers started from."""
    return current_session().wait(_command()).manual_seed.seed


def get_rng_state() -> Tensor:
    """The state of the session's generator, as a tensor of bytes."""
    return _state_tensor(current_session().wait(_command()).manual_seed.state)


def set_rng_state(new_state: Tensor) -> None:
    """Go on from a state that get_rng_state gave. Raises ValueError for other bytes."""
    current_session().wait(_command(state=_state_bytes(new_state)))


def _state_tensor(state: bytes) -> Tensor:
    return make_tensor(np.frombuffer(state, np.uint8))


def _state_bytes(state: Any) -> bytes:
    if not isinstance(state, Tensor):
        raise GradwireTypeError(f"expected a tensor of bytes, but got {type(state).__name__}")
    return bytes(state.detach().cpu().numpy().tobytes())


class Generator:
    """A generator with a state of its own, for `generator=` (torch.Generator).

    Its state is put in the place of the session's for the one op that uses it, which then waits.
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = device
        self._seed = 67280421310721
        self._state: bytes | None = None

    def manual_seed(self, seed: int) -> Generator:
        """Start over from a seed; the answer is the same generator."""
        self._seed, self._state = _checked(seed), None
        return self

    def seed(self) -> int:
        """Start over from a seed that nobody knows beforehand."""
        return self.manual_seed(int.from_bytes(os.urandom(8), "little")).initial_seed()

    def initial_seed(self) -> int:
        """The seed it was last started from."""
        return self._seed

    def get_state(self) -> Tensor:
        """Its state as a tensor of bytes."""
        with self.used():
            return _state_tensor(current_session().wait(_command()).manual_seed.state)

    def set_state(self, new_state: Tensor) -> None:
        """Go on from a state that get_state gave."""
        self._state = _state_bytes(new_state)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Inside, the session draws from this generator."""
        session = current_session()
        before = session.wait(_command()).manual_seed.state
        session.wait(_command(seed=self._seed) if self._state is None else _command(state=self._state))
        try:
            yield
            self._state = session.wait(_command()).manual_seed.state
        finally:
            session.wait(_command(state=before))


class _SessionGenerator(Generator):
    """The session's own generator: torch.default_generator."""

    def manual_seed(self, seed: int) -> Generator:
        return manual_seed(seed)

    def initial_seed(self) -> int:
        return initial_seed()

    def get_state(self) -> Tensor:
        return get_rng_state()

    def set_state(self, new_state: Tensor) -> None:
        set_rng_state(new_state)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        yield


default_generator = _SessionGenerator()


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None, **options: Any
) -> Tensor:
    """Random numbers of a normal distribution; mean and std may be tensors, else the size is given (torch.normal)."""
    with (generator or default_generator).used():
        return ops.normal(mean, std, size, **options)


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
    """Ones and zeros, one with the probability that the element, or `p`, tells (torch.bernoulli)."""
    with (generator or default_generator).used():
        return ops.bernoulli(input, p)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the Poisson distribution, each element its mean (torch.poisson)."""
    with (generator or default_generator).used():
        return ops.poisson(input)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials succeed with probability `prob` (torch.binomial)."""
    with (generator or default_generator).used():
        return ops.binomial(count, prob)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the weights of the last dimension (torch.multinomial)."""
    with (generator or default_generator).used():
        return ops.multinomial(input, num_samples, replacement)
