"""Random numbers: controls the session's generator, which the server holds, and separate generators."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from gradwire._base import dtypes
from gradwire._base.errors import GradwireTypeError
from gradwire._base.modes import is_grad_enabled
from gradwire._functions.composed import broadcast_shapes
from gradwire._functions.create import make_tensor
from gradwire._graph import commands
from gradwire._session.sessions import current_session
from gradwire._tensor import ops
from gradwire._tensor.out import _into
from gradwire._tensor.tensor import Tensor
from gradwire._transport.wire import Value
from gradwire.v1 import commands_pb2, service_pb2, types_pb2

_SEEDS = range(-(1 << 63), 1 << 64)
_ALGORITHMS = {"mt19937": types_pb2.RANDOM_ALGORITHM_MT19937, "pcg64": types_pb2.RANDOM_ALGORITHM_PCG64}


def _command(seed: int | None = None, state: bytes | None = None, algorithm: str = "mt19937") -> service_pb2.Command:
    request = commands_pb2.ManualSeedRequest()
    if seed is not None:
        request.seed = seed - (1 << 64) if seed >= 1 << 63 else seed
        request.algorithm = _ALGORITHMS[algorithm]
    elif state is not None:
        request.state = state
    return service_pb2.Command(manual_seed=request)


def _checked(seed: Any) -> int:
    number = int(seed)
    if number not in _SEEDS:
        raise ValueError("Overflow when unpacking long long: a seed has 64 bits")
    return number


def _known(algorithm: str) -> str:
    if algorithm not in _ALGORITHMS:
        raise ValueError(f"algorithm is one of {', '.join(map(repr, _ALGORITHMS))}, not {algorithm!r}")
    return algorithm


def manual_seed(seed: int, *, algorithm: str = "mt19937") -> Generator:
    """Seed the session's generator and return it (torch.manual_seed).

    algorithm: "mt19937" draws PyTorch's numbers on the CPU; "pcg64" draws NumPy's, which takes less time. A GPU's
    numbers are the same for both. Raises ValueError for a seed beyond 64 bits and for another algorithm.
    """
    number, _ = _checked(seed), _known(algorithm)

    def build(values: Sequence[Value]) -> service_pb2.Command:
        return _command(seed=number, algorithm=algorithm)

    session = current_session()
    commands.run(session, "manual_seed", (number, algorithm), [], build, told=tuple)
    session.seeding = number, algorithm
    return default_generator


def seed() -> int:
    """Seed the session's generator from the operating system's entropy; return the seed."""
    number = int.from_bytes(os.urandom(8), "little")
    manual_seed(number)
    return number


def initial_seed() -> int:
    """Last seed of the session's generator."""
    return current_session().wait(_command()).manual_seed.seed


def get_rng_state() -> Tensor:
    """State of the session's generator, as a uint8 tensor. That of "mt19937" has PyTorch's 5056 bytes.

    Where a GPU drew numbers, eight more follow.
    """
    return _state_tensor(current_session().wait(_command()).manual_seed.state)


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state returned by get_rng_state, of gradwire or PyTorch. Raises ValueError for other bytes."""
    current_session().wait(_command(state=_state_bytes(new_state)))


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **options: Any) -> Iterator[None]:
    """Restore the session's generator after the block (torch.random.fork_rng)."""
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


def _state_tensor(state: bytes) -> Tensor:
    return make_tensor(np.frombuffer(state, np.uint8))


def _state_bytes(state: Any) -> bytes:
    if not isinstance(state, Tensor):
        raise GradwireTypeError(f"expected a tensor of bytes, but got {type(state).__name__}")
    return bytes(state.detach().cpu().numpy().tobytes())


class Generator:
    """Generator with its own state, for `generator=` (torch.Generator).

    An op that uses it swaps this state with the session's for its duration. It waits for the server twice: for both
    states, and until the session's is restored. algorithm: as of `manual_seed`.
    """

    def __init__(self, device: Any = "cpu", *, algorithm: str = "mt19937") -> None:
        self.device = dtypes.device(device)
        self._algorithm = _known(algorithm)
        self._seed = 67280421310721
        self._state: bytes | None = None

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"

    def manual_seed(self, seed: int) -> Generator:
        """Seed this generator and return it."""
        self._seed, self._state = _checked(seed), None
        return self

    def seed(self) -> int:
        """Seed this generator from the operating system's entropy; return the seed."""
        return self.manual_seed(int.from_bytes(os.urandom(8), "little")).initial_seed()

    def initial_seed(self) -> int:
        """Last seed of this generator."""
        return self._seed

    def get_state(self) -> Tensor:
        """State of this generator, as a uint8 tensor."""
        with self.used():
            return _state_tensor(current_session().wait(_command()).manual_seed.state)

    def set_state(self, new_state: Tensor) -> Generator:
        """Restore a state returned by get_state, and return this generator."""
        self._state = _state_bytes(new_state)
        return self

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let the session draw from this generator inside the context."""
        session = current_session()
        before = session.issue(_command())
        seeding = _command(seed=self._seed, algorithm=self._algorithm)
        seeded = session.issue(seeding if self._state is None else _command(state=self._state))
        try:
            yield
            after = session.issue(_command())
            seeded()
            self._state = after().manual_seed.state
        finally:
            session.wait(_command(state=before().manual_seed.state))


class _SessionGenerator(Generator):
    """The session's own generator: torch.default_generator."""

    def manual_seed(self, seed: int) -> Generator:
        return manual_seed(seed)

    def initial_seed(self) -> int:
        return initial_seed()

    def get_state(self) -> Tensor:
        return get_rng_state()

    def set_state(self, new_state: Tensor) -> Generator:
        set_rng_state(new_state)
        return self

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        yield


default_generator = _SessionGenerator()


def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Random numbers of a normal distribution; `size` is needed unless mean or std is a tensor (torch.normal).

    They are drawn in the dtype of `out`, where it is given. The gradients of mean and std are zeros, as PyTorch's.
    """
    for name in ("layout", "pin_memory"):
        options.pop(name, None)
    if out is not None:
        given = [each.shape for each in (mean, std) if isinstance(each, Tensor)]
        sizes = broadcast_shapes(*given) if given else size
        with (generator or default_generator).used():
            drawn = ops.randn(sizes, dtype=out.dtype, device=out.device)
        return cast("Tensor", _into("normal", out, drawn * std + mean))
    with (generator or default_generator).used():
        made = ops.normal(mean, std, size, **options)
    for each in (mean, std):
        if isinstance(each, Tensor) and each.requires_grad and is_grad_enabled():
            made = ops.where(ops.zeros_like(each, dtype=dtypes.bool_), each.to(made.dtype), made)
    return made


def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None
) -> Tensor:
    """Random ones and zeros; the probability of a one is the element or `p` (torch.bernoulli)."""
    with (generator or default_generator).used():
        made = ops.bernoulli(input, p)
    return made if out is None else cast("Tensor", _into("bernoulli", out, made))


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Random numbers of Poisson distributions whose means are the elements (torch.poisson)."""
    with (generator or default_generator).used():
        return ops.poisson(input)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Random number of successes in `count` trials with success probability `prob` (torch.binomial)."""
    with (generator or default_generator).used():
        return ops.binomial(count, prob)


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Random indices drawn with the weights in the last dimension (torch.multinomial)."""
    with (generator or default_generator).used():
        made = ops.multinomial(input, num_samples, replacement)
    return made if out is None else cast("Tensor", _into("multinomial", out, made))
