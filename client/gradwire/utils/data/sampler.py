"""Samplers: in which order samples are drawn, and how they are put in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gradwire._functions.random import Generator
from gradwire._tensor.tensor import Tensor
from gradwire.utils.data._permutation import MOST, permutation

T = TypeVar("T", covariant=True)


def draw_seed(generator: Generator | None = None) -> Tensor:
    """A random seed, as PyTorch draws it: an integer below 2**63."""
    from gradwire._base import dtypes
    from gradwire._functions.create import empty

    return empty((), dtype=dtypes.int64).random_(generator=generator)


class Sampler(Generic[T]):
    """The numbers of samples, one after the other: a subclass defines `__iter__`."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, …"""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


# Numbers that are drawn and read at once.
_BLOCK = 1 << 16


class RandomSampler(Sampler[int]):
    """All numbers in random order; with `replacement` each drawn anew. `num_samples` is their number.

    The server draws the order of an epoch; the client reads it once. Without a generator, each epoch has one of its
    own, whose seed the session's generator draws. The client reads this seed and computes short orders itself. The
    numbers are PyTorch's of the same seed.

    Raises TypeError if `replacement` is not a bool, ValueError if `num_samples` is below 1.
    """

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self) -> int:
        """How many numbers an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        from gradwire._functions.create import randint, randperm

        size, generator = len(self.data_source), self.generator
        if generator is None:
            seed = draw_seed().item()
            if not self.replacement and self.num_samples == size <= MOST:
                yield from permutation(seed, size)
                return
            generator = Generator().manual_seed(seed)
        if self.replacement:
            # In blocks, so that an epoch of any length needs little memory. The numbers are those of one draw.
            for start in range(0, self.num_samples, _BLOCK):
                count = min(_BLOCK, self.num_samples - start)
                yield from randint(size, (count,), generator=generator).tolist()
            return
        for _ in range(self.num_samples // size):
            yield from randperm(size, generator=generator).tolist()
        if self.generator is None and self.num_samples % size == 0:
            return
        # Drawn even if no number is left, so that a generator that was given continues as PyTorch's.
        yield from randperm(size, generator=generator).tolist()[: self.num_samples % size]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given numbers in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        from gradwire._functions.create import randperm

        for place in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Draws `num_samples` numbers with probabilities proportional to their weights. Raises ValueError for arguments out
    of range."""

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        from gradwire._base import dtypes
        from gradwire._functions.create import as_tensor

        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        held = as_tensor(weights, dtype=dtypes.float64)
        if held.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(held.shape)}")
        self.weights = held
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        from gradwire._functions.random import multinomial

        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` numbers of another sampler; the last may be shorter, unless `drop_last`.

    Raises ValueError if `batch_size` is below 1 or `drop_last` is not a bool.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
