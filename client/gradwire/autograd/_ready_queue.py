"""The order of ready nodes in a backward, as the server's in a pass with hooks: PyTorch's, also among equals.

All AccumulateGrad nodes are equal in that order. PyTorch's queue is a binary heap of the C++ library: its shape decides
among equals. These functions make the same moves. The engine has its own, as the client does not import it.
"""

from __future__ import annotations

from typing import TypeAlias

#: The negative sequence number and the node's id: the least number is taken out first.
Entry: TypeAlias = "tuple[int, int]"


def push(heap: list[Entry], entry: Entry) -> None:
    """Add an entry (std::push_heap)."""
    heap.append(entry)
    _rise(heap, len(heap) - 1, entry)


def pop(heap: list[Entry]) -> Entry:
    """Take out the first entry (std::pop_heap)."""
    first, last = heap[0], heap.pop()
    size = len(heap)
    if not size:
        return first
    hole = right = 0
    while right < (size - 1) // 2:
        right = 2 * right + 2
        if heap[right][0] > heap[right - 1][0]:
            right -= 1
        heap[hole] = heap[right]
        hole = right
    if size % 2 == 0 and right == (size - 2) // 2:  # the last has no right neighbour
        heap[hole] = heap[2 * right + 1]
        hole = 2 * right + 1
    _rise(heap, hole, last)
    return first


def _rise(heap: list[Entry], hole: int, entry: Entry) -> None:
    """Put an entry above those at or over the hole that come later."""
    while hole:
        parent = (hole - 1) // 2
        if heap[parent][0] <= entry[0]:
            break
        heap[hole] = heap[parent]
        hole = parent
    heap[hole] = entry
