"""Data sets: what has samples by number, or one after the other."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gradwire._functions.random import Generator
from gradwire._tensor.tensor import Tensor

T = TypeVar("T", covariant=True)
_T = TypeVar("_T")


class Dataset(Generic[T]):
    """Samples by number: a subclass defines `__getitem__`, and `__len__` for samplers.

    An optional `__getitems__(numbers)` returns the samples of a whole batch. Like torch.utils.data.Dataset.
    """

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples one after the other: a subclass defines `__iter__`. Like torch.utils.data.IterableDataset."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the i-th row of each tensor. Raises AssertionError for tensors of different lengths."""

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        lengths = [tensor.shape[0] for tensor in tensors]
        if any(length != lengths[0] for length in lengths):
            raise AssertionError(f"Size mismatch between tensors: first dimensions {lengths}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """Sample i joins the i-th samples of several data sets, as a tuple, or as a dict by name.

    Raises ValueError for none, or for sets of different lengths.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("At least one dataset should be passed, all of them by place or all by name")
        self.datasets: Any = args or kwargs
        lengths = {len(each) for each in (args or kwargs.values())}
        if len(lengths) > 1:
            raise ValueError(f"Size mismatch between datasets: {sorted(lengths)}")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: each[index] for name, each in self.datasets.items()}
        return tuple(each[index] for each in self.datasets)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T]):
    """One data set after the other. Raises AssertionError for none and for one that has no numbers."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(each, IterableDataset) for each in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(each) for each in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T:
        if not -len(self) <= index < len(self):
            raise ValueError("absolute value of index should not exceed dataset length")
        index %= len(self)
        place = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[place - 1] if place else 0
        sample: T = self.datasets[place][index - before]
        return sample


class ChainDataset(IterableDataset[Any]):
    """One iterable data set after the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        for each in self.datasets:
            if not isinstance(each, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from each

    def __len__(self) -> int:
        return sum(len(each) for each in self.datasets)


class Subset(Dataset[T]):
    """The samples of a data set that have the given numbers, in their order."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> T:
        if isinstance(index, list):
            return self.dataset[[self.indices[each] for each in index]]  # type: ignore[no-any-return]
        return self.dataset[self.indices[index]]  # type: ignore[no-any-return]

    def __getitems__(self, indices: list[int]) -> list[T]:
        numbers = [self.indices[each] for each in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            samples: list[T] = self.dataset.__getitems__(numbers)
            return samples
        return [self.dataset[number] for number in numbers]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset[Any]]:
    """Parts of a data set, drawn at random: of given lengths, or of given fractions, that sum to 1.

    Raises ValueError if the lengths do not sum to the data set's, or a fraction is not between 0 and 1.
    """
    from gradwire._functions.create import randperm

    total = len(dataset)
    sizes = [int(length) for length in lengths]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for place, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {place} is not between 0 and 1")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for place in range(total - sum(sizes)):
            sizes[place % len(sizes)] += 1
        for place, size in enumerate(sizes):
            if size == 0:
                warnings.warn(f"Length of split at index {place} is 0. This might result in an empty dataset.")  # noqa: B028
    if sum(sizes) != total:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(total, generator=generator).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
