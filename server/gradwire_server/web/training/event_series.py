"""Series: the scalars, histograms, images and texts of one run, sampled so that memory stays bounded.

As in TensorBoard, a series that has more points than it may keep holds a uniform sample of them, and the newest.
"""

import math
import random
import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from gradwire.v1.tensorboard_events import DT_DOUBLE, DT_FLOAT, DT_STRING, SESSION_START

SCALARS, HISTOGRAMS, IMAGES, TEXTS = "scalars", "histograms", "images", "texts"
KINDS = (SCALARS, HISTOGRAMS, IMAGES, TEXTS)
MOST_POINTS = {SCALARS: 1000, HISTOGRAMS: 50, IMAGES: 10, TEXTS: 10}
MOST_SERIES = {SCALARS: 5000, HISTOGRAMS: 1000, IMAGES: 500, TEXTS: 500}  # of all runs
MOST_BUCKETS = 60
MOST_TAG = 500  # characters
MOST_IMAGE_BYTES = 4 << 20
MOST_IMAGES_BYTES = 64 << 20  # of all runs
MOST_TEXT_BYTES = 16 << 10  # of one text; the rest is cut off
MOST_TEXTS_BYTES = 16 << 20  # of all runs
_CUT = " …"
_TEXT_PLUGIN, _TEXT_SUFFIX = "text", "/text_summary"  # PyTorch's writer, as ours, ends the tags of texts so
_FAR = 1e300


class Room:
    """What all runs together may still take."""

    def __init__(self) -> None:
        self.series = dict.fromkeys(KINDS, 0)
        self.image_bytes = 0
        self.text_bytes = 0


class Sample:
    """Which place a new point takes: `place` answers an index, perhaps the end, and whether points move up for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._random = random.Random(0)  # the same files give the same points
        self.seen = 0

    def place(self, held: int) -> int:
        """The index of the point that gives way to the new one, which goes to the end; `held` if none does."""
        self.seen += 1
        if held < self._most:
            return held
        chosen = self._random.randrange(self.seen)
        return chosen if chosen < held else held - 1  # else the newest gives way


class Series(Protocol):
    """A series of one tag."""

    sample: Sample

    def points(self) -> list[Any]:
        """The points as JSON."""

    def purge(self, step: int) -> None:
        """Forget the points from a step on."""

    def clear(self) -> None:
        """Forget all points, and give back what they took."""


class Scalars:
    """Step, wall time and value by point; 24 bytes each."""

    def __init__(self, room: Room) -> None:
        self.sample = Sample(MOST_POINTS[SCALARS])
        self._numbers = array("d")

    def add(self, step: int, wall: float, value: float) -> None:
        """Add a point."""
        numbers = self._numbers
        at = 3 * self.sample.place(len(numbers) // 3)
        del numbers[at : at + 3]
        numbers.extend((step, wall, value))

    def points(self) -> list[Any]:
        """[step, wall time, value] each; a value that is no finite number is None."""
        numbers = self._numbers
        return [
            [int(numbers[i]), numbers[i + 1], numbers[i + 2] if math.isfinite(numbers[i + 2]) else None]
            for i in range(0, len(numbers), 3)
        ]

    def purge(self, step: int) -> None:
        """Forget the points from a step on."""
        numbers = self._numbers
        kept = [i for i in range(0, len(numbers), 3) if numbers[i] < step]
        self._numbers = array("d", [number for i in kept for number in numbers[i : i + 3]])

    def clear(self) -> None:
        """Forget all points."""
        self._numbers = array("d")


class _Objects:
    """Points that are objects with a step and a wall time first."""

    def __init__(self, kind: str) -> None:
        self.sample = Sample(MOST_POINTS[kind])
        self._held: list[tuple[Any, ...]] = []

    def _put(self, point: tuple[Any, ...]) -> None:
        at = self.sample.place(len(self._held))
        for gone in self._held[at : at + 1]:
            self._gone(gone)
        del self._held[at : at + 1]
        self._held.append(point)

    def _gone(self, point: tuple[Any, ...]) -> None:
        """A point is forgotten."""

    def purge(self, step: int) -> None:
        """Forget the points from a step on."""
        for each in self._held:
            if each[0] >= step:
                self._gone(each)
        self._held = [each for each in self._held if each[0] < step]

    def clear(self) -> None:
        """Forget all points."""
        for each in self._held:
            self._gone(each)
        self._held = []


class Histograms(_Objects):
    """Histograms, each of at most MOST_BUCKETS buckets."""

    def __init__(self, room: Room) -> None:
        super().__init__(HISTOGRAMS)

    def add(self, step: int, wall: float, histogram: Any) -> None:
        """Add a histogram, if its limits rise and its counts are numbers."""
        buckets = _buckets(histogram)
        if buckets:
            self._put((step, wall, buckets))

    def points(self) -> list[Any]:
        """[step, wall time, [left, right, count, left, …]] each."""
        return [[step, wall, list(buckets)] for step, wall, buckets in self._held]


class Images(_Objects):
    """Images as they are encoded. Their bytes count for all runs together."""

    def __init__(self, room: Room) -> None:
        super().__init__(IMAGES)
        self._room = room

    def add(self, step: int, wall: float, image: Any) -> None:
        """Add an image, unless it is too large or there is no room."""
        size = len(image.encoded)
        if size <= MOST_IMAGE_BYTES and self._room.image_bytes + size <= MOST_IMAGES_BYTES:
            self._room.image_bytes += size
            self._put((step, wall, image.width, image.height, image.encoded))

    def _gone(self, point: tuple[Any, ...]) -> None:
        self._room.image_bytes -= len(point[4])

    def points(self) -> list[Any]:
        """[step, wall time, width, height] each; `encoded` has the bytes."""
        return [list(each[:4]) for each in self._held]

    def encoded(self, step: int) -> bytes | None:
        """The newest image of a step."""
        return next((bytes(each[4]) for each in reversed(self._held) if each[0] == step), None)


class Texts(_Objects):
    """Texts, each cut to MOST_TEXT_BYTES. Their bytes count for all runs together."""

    def __init__(self, room: Room) -> None:
        super().__init__(TEXTS)
        self._room = room

    def add(self, step: int, wall: float, words: bytes) -> None:
        """Add a text in UTF-8, unless there is no room."""
        kept = words[:MOST_TEXT_BYTES]
        if self._room.text_bytes + len(kept) <= MOST_TEXTS_BYTES:
            self._room.text_bytes += len(kept)
            self._put((step, wall, kept, len(kept) < len(words)))

    def _gone(self, point: tuple[Any, ...]) -> None:
        self._room.text_bytes -= len(point[2])

    def points(self) -> list[Any]:
        """[step, wall time, text] each."""
        return [
            [step, wall, kept.decode("utf-8", "ignore" if cut else "replace") + _CUT * cut]
            for step, wall, kept, cut in self._held
        ]


_MAKERS: dict[str, Callable[[Room], Any]] = {
    SCALARS: Scalars,
    HISTOGRAMS: Histograms,
    IMAGES: Images,
    TEXTS: Texts,
}


class Run:
    """The series of one folder, by kind and tag."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.series: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}

    def take(self, event: Any) -> bool:
        """Take an event's values; whether all had room."""
        if event.session_log.status == SESSION_START:
            for found in self._all():
                found.purge(event.step)
        whole = True
        for value in event.summary.value:
            kind, content = _content(value)
            if kind:
                found = self._find(kind, value.tag.removesuffix(_TEXT_SUFFIX) if kind == TEXTS else value.tag)
                if found is None:
                    whole = False
                else:
                    found.add(event.step, event.wall_time if math.isfinite(event.wall_time) else 0.0, content)
        return whole

    def clear(self) -> None:
        """Forget all, and give back the room."""
        for found in self._all():
            found.clear()
        for kind, tags in self.series.items():
            self._room.series[kind] -= len(tags)
            tags.clear()

    def _all(self) -> list[Series]:
        return [found for tags in self.series.values() for found in tags.values()]

    def _find(self, kind: str, tag: str) -> Any:
        tags = self.series[kind]
        found = tags.get(tag)
        if found is None and len(tag) <= MOST_TAG and self._room.series[kind] < MOST_SERIES[kind]:
            self._room.series[kind] += 1
            found = tags[tag] = _MAKERS[kind](self._room)
        return found


def _content(value: Any) -> tuple[str, Any]:
    """The kind of a summary's value, and what it holds; an empty kind for what Studio does not draw."""
    if value.HasField("simple_value"):
        return SCALARS, value.simple_value
    if value.HasField("histogram"):
        return HISTOGRAMS, value.histogram
    if value.HasField("image"):
        return IMAGES, value.image
    if value.tensor.dtype == DT_STRING and value.metadata.plugin_data.plugin_name == _TEXT_PLUGIN:
        return TEXTS, b"\n".join(value.tensor.string_val)
    if value.HasField("tensor") and not value.tensor.shape.dim:
        number = _number(value.tensor)
        return (SCALARS, number) if number is not None else ("", None)
    return "", None


def _number(tensor: Any) -> float | None:
    """The number of a tensor without dimensions; None if it has none."""
    if tensor.dtype not in (DT_FLOAT, DT_DOUBLE):
        return None
    given: Sequence[float] = tensor.float_val if tensor.dtype == DT_FLOAT else tensor.double_val
    form = "<f" if tensor.dtype == DT_FLOAT else "<d"
    if len(given) == 1:
        return float(given[0])
    return float(struct.unpack(form, tensor.content)[0]) if len(tensor.content) == struct.calcsize(form) else None


def _buckets(histogram: Any) -> "array[float] | None":
    """Left and right limit and count of each bucket, neighbours joined; None if they are no histogram."""
    limits, counts = histogram.bucket_limit, histogram.bucket
    if not limits or len(limits) != len(counts):
        return None
    if any(count < 0 for count in counts) or not math.isfinite(sum(counts)):
        return None
    ends = [min(max(limit, -_FAR), _FAR) for limit in limits]  # TensorFlow's last limit is the largest double
    if not all(map(math.isfinite, ends)) or any(one >= other for one, other in pairwise(ends)):
        return None
    if math.isfinite(histogram.max) and (len(ends) == 1 or histogram.max > ends[-2]):
        ends[-1] = min(ends[-1], histogram.max)
    joined = -(-len(ends) // MOST_BUCKETS)
    made = array("d")
    left = min(histogram.min, ends[0]) if math.isfinite(histogram.min) else ends[0]
    for first in range(0, len(ends), joined):
        last = min(first + joined, len(ends))
        made.extend((left, ends[last - 1], sum(counts[first:last])))
        left = ends[last - 1]
    return made
