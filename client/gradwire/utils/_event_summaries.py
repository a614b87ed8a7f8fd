"""Summaries: values of TensorBoard's event files, from arrays: scalars, histograms, images and texts.

As torch.utils.tensorboard makes them, so that both look the same in TensorBoard.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire.v1.tensorboard_events import DT_STRING, Histogram, Image, Summary

_COLOURS = (1, 3, 4)
_PNG_TYPES = {1: 0, 3: 2, 4: 6}


def array_of(values: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor, an array, a list or a number. Raises TypeError unless they are real."""
    given = values
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # NumPy has no bfloat16
            values = values.float().numpy()
    found = np.asarray(values)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"expected real numbers, but got {type(given).__name__} of {found.dtype}")
    return found


def scalar(tag: str, value: Any) -> Any:
    """A scalar. Raises ValueError unless it is one value."""
    found = array_of(value).squeeze()
    if found.ndim:
        raise ValueError(f"a scalar is one value, not {list(found.shape)} of them")
    return _one(tag, simple_value=float(found))


def text(tag: str, words: str) -> Any:
    """A text, which TensorBoard shows as Markdown."""
    summary = _one(f"{tag}/text_summary")
    value = summary.value[0]
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = DT_STRING
    value.tensor.string_val.append(words.encode())
    value.tensor.shape.dim.add(size=1)
    return summary


def default_bins() -> list[float]:
    """The limits of TensorBoard's buckets: they grow by a tenth each, on both sides of 0."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [-each for each in reversed(limits)] + [0.0, *limits]


def histogram(tag: str, values: Any, bins: Any, most: int | None = None) -> Any:
    """A histogram of all values by `numpy.histogram`'s bins, with about `most` buckets. Raises ValueError if empty."""
    found = array_of(values).reshape(-1).astype(np.float64)
    if not found.size:
        raise ValueError("the input has no element")
    counts, limits = np.histogram(found, bins=bins)
    if most is not None and len(counts) > most:
        each = -(-len(counts) // most)
        starts = np.arange(0, len(counts), each)
        counts, limits = np.add.reduceat(counts, starts), np.append(limits[:-1][starts], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("no value is within the bins")
    first, last = int(filled[0]), int(filled[-1])
    # Only right limits are stored, so an empty bucket before the first one has its left limit.
    kept = np.concatenate(([0], counts[first : last + 1]))
    made = Histogram(
        min=found.min(),
        max=found.max(),
        num=found.size,
        sum=found.sum(),
        sum_squares=found.dot(found),
        bucket_limit=limits[first : last + 2].tolist(),
        bucket=kept.tolist(),
    )
    return _one(tag, histogram=made)


def raw_histogram(tag: str, limits: Sequence[float], counts: Sequence[float], **figures: float) -> Any:
    """A histogram from its right limits and counts. Raises ValueError if their lengths differ."""
    if len(limits) != len(counts):
        raise ValueError(f"there are {len(limits)} limits and {len(counts)} counts")
    return _one(tag, histogram=Histogram(bucket_limit=limits, bucket=counts, **figures))


def image(tag: str, values: Any, layout: str) -> Any:
    """An image from values in [0, 255] (uint8) or [0, 1]; `layout` names the axes: "CHW", "NHWC", "HW".

    Several images are drawn side by side. Raises ValueError for other axes or colours.
    """
    found = _rows(array_of(values), layout.upper())
    scale = 1.0 if found.dtype == np.uint8 else 255.0
    pixels = (found.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    height, width, colours = pixels.shape
    return _one(tag, image=Image(height=height, width=width, colorspace=colours, encoded=png(pixels)))


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """A PNG of uint8 values of shape (height, width, 1, 3 or 4)."""
    height, width, colours = pixels.shape
    lines = np.zeros((height, width * colours + 1), np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _PNG_TYPES[colours], 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _rows(values: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """Values with the axes (height, width, colours). Several images become one. Raises ValueError."""
    if len(set(layout)) != len(layout) or set(layout) not in (set("HW"), set("HWC"), set("NHWC")):
        raise ValueError(f"dataformats are the letters of CHW, HWC, HW, NCHW or NHWC, not {layout!r}")
    if values.ndim != len(layout):
        raise ValueError(f"values with {values.ndim} dimensions do not fit the dataformats {layout!r}")
    if "C" not in layout:
        values, layout = values[..., None], layout + "C"
    if "N" not in layout:
        values, layout = values[None], "N" + layout
    many = values.transpose([layout.index(axis) for axis in "NHWC"])
    if many.shape[3] not in _COLOURS or not many.size:
        raise ValueError(f"an image has 1, 3 or 4 colours and some pixels, not {list(many.shape[1:])}")
    return many[0] if len(many) == 1 else _grid(many)


def _grid(many: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Images side by side, at most eight in a row; gaps are black."""
    count, height, width, colours = many.shape
    columns = min(8, count)
    rows = -(-count // columns)
    grid = np.zeros((rows * columns, height, width, colours), many.dtype)
    grid[:count] = many
    shaped = grid.reshape(rows, columns, height, width, colours).transpose(0, 2, 1, 3, 4)
    joined: np.ndarray[Any, Any] = shaped.reshape(rows * height, columns * width, colours)
    return joined


def _one(tag: str, **fields: Any) -> Any:
    summary = Summary()
    summary.value.add(tag=tag, **fields)
    return summary
