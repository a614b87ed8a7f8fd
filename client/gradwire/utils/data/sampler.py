"""Samplers: in which order samples are drawn, and how they are put in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gradwire._functions.random import Generator

T = TypeVar("T", covariant=True)


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


class RandomSampler(Sampler[int]):
    """All numbers in random order; with `replacement` each drawn anew. `num_samples` is their number.

    The server draws the order of an epoch; the client reads it once. Raises TypeError if `replacement` is not a bool,
    ValueError if `num_samples` is below 1.
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

        size = len(self.data_source)
        if self.replacement:
            drawn: list[int] = randint(size, (self.num_samples,), generator=self.generator).tolist()
            return iter(drawn)
        rounds = (randperm(size, generator=self.generator).tolist() for _ in itertools.count())
        return itertools.islice(itertools.chain.from_iterable(rounds), self.num_samples)

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

        drawn = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

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
