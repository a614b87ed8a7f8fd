"""C++'s sorts, carried out on ranks: the order of equal elements is that of PyTorch, which calls them."""

from collections.abc import Callable

import numpy as np
import pytest

from gradwire_engine.ops.index import partitions
from gradwire_engine.ops.index.partitions import Lines

torch = pytest.importorskip("torch")


def _sort(lines: Lines, count: int) -> None:
    first = lines.starts()
    partitions.introsort(lines, first, first + count)
    lines.settle(first, first + count)


def _places(ranks: np.ndarray, work: Callable[[Lines], object]) -> np.ndarray:
    lines = Lines(ranks)
    work(lines)
    return lines.places.reshape(ranks.shape)


#: Few and many equal elements, of short and long lines.
RANKS = [
    np.random.default_rng(9).integers(0, most, (max(1, 300 // length), length))
    for length in (2, 3, 4, 16, 17, 50, 700, 5000)
    for most in (1, 2, 30, 1000)
]


@pytest.mark.parametrize("ranks", RANKS, ids=lambda ranks: f"{ranks.shape}-{ranks.max()}")
def test_the_order_of_equal_elements_is_that_of_pytorch(ranks: np.ndarray) -> None:
    length, given = ranks.shape[1], torch.tensor(ranks)
    assert (_places(ranks, lambda lines: _sort(lines, length)) == torch.sort(given).indices.numpy()).all()
    for k in {1, 2, max(1, length // 64), (length + 1) // 2, length}:
        found = _places(ranks, lambda lines, nth=k - 1: partitions.quickselect(lines, nth))[:, k - 1]
        assert (found == torch.kthvalue(given, k).indices.numpy()).all()
        expected = torch.topk(given, k, largest=False, sorted=False).indices.numpy()
        work = partitions.partial_sort if k * 64 <= length else lambda lines, k: partitions.nth_element(lines, k - 1)
        assert (_places(ranks, lambda lines, k=k, work=work: work(lines, k))[:, :k] == expected).all()


def test_lines_that_are_divided_badly_end_as_a_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps: list[tuple[int, ...]] = []
    heap_sort = partitions._heap_sort
    monkeypatch.setattr(partitions, "_heap_sort", lambda lines, *range: (heaps.append(range), heap_sort(lines, *range)))
    given = _divided_badly(400)
    found = _places(given, lambda lines: _sort(lines, 400))
    assert heaps == [(32, 400, 400)]
    assert (found == torch.sort(torch.tensor(given)).indices.numpy()).all()


def _divided_badly(length: int) -> np.ndarray:
    """A line of which each division by a median of three takes two elements away: the smallest are always compared."""
    made = np.random.default_rng(9).integers(length, length + 9, length)
    lines, first = Lines(np.full((1, length), length)), 0
    for value in range(0, length // 8, 2):
        for place, smallest in ((first + 1, value), (first + (length - first) // 2, value + 1)):
            lines.ranks[place] = made[lines.places[place]] = smallest
        first = int(partitions._halve(lines, np.array([first]), np.array([length]))[0])
    return made[None, :]
