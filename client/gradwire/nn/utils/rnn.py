"""Sequences of different lengths (torch.nn.utils.rnn): padded side by side, or packed step by step without padding.

A packed sequence holds, one step after the other, the elements of all sequences that are that long. Packing and
unpacking are one gather each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradwire._base import dtypes
from gradwire._functions.create import as_tensor, make_tensor
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Input and output of recurrent layers for sequences of different lengths; made by `pack_padded_sequence`.

    `data` (total, *) contains the steps in order. `batch_sizes` is the number of sequences at each step. The indices
    give the sorting of the sequences, or are None if they were sorted. Like torch.nn.utils.rnn.PackedSequence.
    """

    _read: list[int] | None

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Any = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise ValueError("PackedSequence: batch_sizes must be given")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        sizes = None if isinstance(batch_sizes, Tensor) else [int(size) for size in batch_sizes]
        held = batch_sizes if sizes is None else make_tensor(sizes, dtypes.int64)
        made = super().__new__(cls, data, held, sorted_indices, unsorted_indices)
        made._read = sizes
        return made

    @property
    def sizes(self) -> list[int]:
        """The batch sizes as numbers; read from the server where they are not known here."""
        if self._read is None:
            self._read = self.batch_sizes.tolist()
        return self._read

    def with_data(self, data: Tensor) -> PackedSequence:
        """The same sequences with other values."""
        made = PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)
        made._read = self._read
        return made

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data moved or cast, as `Tensor.to`."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self.with_data(data)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On the server's GPU."""
        return self.with_data(self.data.cuda(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """In the server's memory."""
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """In float64."""
        return self.to(dtypes.float64)

    def float(self) -> PackedSequence:
        """In float32."""
        return self.to(dtypes.float32)

    def half(self) -> PackedSequence:
        """In float16."""
        return self.to(dtypes.float16)

    def long(self) -> PackedSequence:
        """In int64."""
        return self.to(dtypes.int64)

    def int(self) -> PackedSequence:
        """In int32."""
        return self.to(dtypes.int32)

    def short(self) -> PackedSequence:
        """In int16."""
        return self.to(dtypes.int16)

    def char(self) -> PackedSequence:
        """In int8."""
        return self.to(dtypes.int8)

    def byte(self) -> PackedSequence:
        """In uint8."""
        return self.to(dtypes.uint8)

    def pin_memory(self) -> PackedSequence:
        """The same sequences: the server pins memory itself."""
        return self.with_data(self.data.pin_memory())

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one; None for None."""
    return None if permutation is None else ops.argsort(permutation)


def _numbers(lengths: Any) -> list[int]:
    if isinstance(lengths, Tensor):
        if lengths.ndim != 1:
            raise RuntimeError(f"expected a 1D lengths tensor, but got a {lengths.ndim}D tensor")
        lengths = lengths.tolist()
    return [int(length) for length in lengths]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences that are padded side by side: (L, B, *), or (B, L, *) with `batch_first`.

    `lengths` is a list or tensor of B numbers, falling unless `enforce_sorted` is False. Raises RuntimeError for
    lengths that are not, that are below 1 or above L, or of another number. Like
    torch.nn.utils.rnn.pack_padded_sequence.
    """
    if not input.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    counts = _numbers(lengths)
    padded = input.transpose(0, 1) if batch_first else input
    steps, batch = padded.shape[:2]
    if len(counts) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size={batch})"
        )
    if min(counts) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if max(counts) > steps:
        raise RuntimeError(f"Expected every length to be at most {steps}, the padded length, but got {max(counts)}")
    order = list(range(batch))
    if enforce_sorted:
        if counts != sorted(counts, reverse=True):
            raise RuntimeError(
                "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                "`enforce_sorted=False` to pack_padded_sequence to sidestep this requirement."
            )
    else:
        order.sort(key=lambda place: -counts[place])
    sizes = [sum(count > step for count in counts) for step in range(max(counts))]
    rows = np.concatenate([step * batch + np.asarray(order[:size]) for step, size in enumerate(sizes)])
    data = padded.flatten(0, 1)[make_tensor(rows).to(input.device)]
    placed = None if enforce_sorted else make_tensor(np.asarray(order)).to(input.device)
    return PackedSequence(data, sizes, placed, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded sequences, (L, B, *) or (B, L, *), and their lengths; `total_length` makes L that number.

    Raises ValueError for a `total_length` below the longest. Like torch.nn.utils.rnn.pad_packed_sequence.
    """
    sizes = sequence.sizes
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    total = sum(sizes)
    # Each position of the result is a row of the data, or the padding row after the last.
    rows = np.full((steps, sizes[0]), total)
    for step, (start, size) in enumerate(zip(np.cumsum([0, *sizes]).tolist(), sizes, strict=False)):
        rows[step, :size] = np.arange(start, start + size)
    lengths = make_tensor([sum(size > place for size in sizes) for place in range(sizes[0])], dtypes.int64)
    data = sequence.data
    padding = data.new_full((1, *data.shape[1:]), padding_value)
    padded: Tensor = ops.cat([data, padding])[make_tensor(rows).to(data.device)]
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.cpu())
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (L_i, *) side by side, padded to the longest: (L, B, *), or (B, L, *) with `batch_first`.

    Raises RuntimeError without sequences, for sequences that differ beyond their length, and for a `padding_side` other
    than "right" and "left". Like torch.nn.utils.rnn.pad_sequence.
    """
    if padding_side not in ("right", "left"):
        raise RuntimeError(f"padding_side must be one of 'left' or 'right', but got '{padding_side}'")
    if not isinstance(sequences, (Tensor, Iterable)):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    held = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not held:
        raise RuntimeError("received an empty list of sequences")
    longest = max(each.shape[0] for each in held)
    rows = []
    for each in held:
        if each.shape[1:] != held[0].shape[1:]:
            raise RuntimeError(
                f"The size of tensor a {tuple(held[0].shape[1:])} must match the size of tensor b "
                f"{tuple(each.shape[1:])} in all dimensions of the sequences but the first"
            )
        lacking = longest - each.shape[0]
        if lacking:
            padding = each.new_full((lacking, *each.shape[1:]), padding_value)
            each = ops.cat([each, padding] if padding_side == "right" else [padding, each])
        rows.append(each)
    return ops.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch, each cut to its length."""
    padded = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [padded[place, :length] for place, length in enumerate(_numbers(lengths))]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths, falling unless `enforce_sorted` is False."""
    lengths = [each.shape[0] for each in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, as_tensor(lengths), batch_first=True)
