"""The loader: batches of a data set, one after the other, drawn in the calling thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from gradwire._functions.random import Generator
from gradwire.utils.data._collate import default_collate, default_convert
from gradwire.utils.data.dataset import IterableDataset, Subset, TensorDataset
from gradwire.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed

__all__ = ["DataLoader", "default_collate", "default_convert"]


T = TypeVar("T", covariant=True)


class _BaseDataLoaderIter:
    """Class of PyTorch's iterators of loaders, for isinstance: here they are Python's own."""


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Those without workers."""


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Those with workers."""


class DataLoader(Generic[T]):
    """Batches of a data set: `for x, y in DataLoader(dataset, batch_size=32, shuffle=True)`.

    `batch_size=None` hands out samples as they are; `sampler`, `batch_sampler` and `collate_fn` take the place of the
    usual ones. `num_workers`, `pin_memory` and what belongs to them is taken and changes nothing: samples are drawn in
    the calling thread. Batches of a `TensorDataset` are one command per tensor. Raises ValueError for options that
    exclude each other. Like torch.utils.data.DataLoader.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self.generator = generator
        self._iterator = None  # libraries look whether one is kept for all epochs
        self._iterates = isinstance(dataset, IterableDataset)
        if self._iterates:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value not in (None, False):
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None and not self._iterates:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if batch_size is not None and batch_sampler is None:
            # Checks the size, too.
            batch_sampler = BatchSampler(sampler if sampler is not None else (), batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)

    def __iter__(self) -> Iterator[Any]:
        batches = self._batches()
        draw_seed(self.generator)  # PyTorch's seed of its workers; the numbers that follow shall be PyTorch's, too
        return batches

    def _batches(self) -> Iterator[Any]:
        if self._iterates:
            return self._iterated()
        if self.batch_sampler is None:
            assert self.sampler is not None
            return (self.collate_fn(self.dataset[number]) for number in self.sampler)
        return (self._batch(numbers) for numbers in self.batch_sampler)

    def _iterated(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield self.collate_fn(batch)

    def _batch(self, numbers: list[Any]) -> Any:
        if self.collate_fn is default_collate:
            rows = _rows_of_tensors(self.dataset, numbers)
            if rows is not None:
                return rows
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate_fn(self.dataset.__getitems__(numbers))
        return self.collate_fn([self.dataset[number] for number in numbers])

    def __len__(self) -> int:
        if self._iterates:
            count = len(self.dataset)
            if self.batch_size is None:
                return count
            return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]


def _rows_of_tensors(dataset: Any, numbers: list[Any]) -> list[Any] | None:
    """A batch of a TensorDataset, or of a part of one: equal to its stacked samples, by one op per tensor."""
    while type(dataset) is Subset:
        numbers = [dataset.indices[number] for number in numbers]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or not all(type(number) is int for number in numbers):
        return None
    first, count = numbers[0], len(numbers)
    if first >= 0 and numbers == list(range(first, first + count)) and first + count <= len(dataset):
        return [tensor[first : first + count].clone() for tensor in dataset.tensors]
    return [tensor[numbers] for tensor in dataset.tensors]


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing. let num_workers > 0 to enable it."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
