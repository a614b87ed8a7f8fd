"""TensorBoard's files (torch.utils.tensorboard): scalars, histograms, images, figures and texts of a training.

The files are written where the program runs. TensorBoard reads them, and Studio: `gradwire studio --logdir runs`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from gradwire._base.refused import refusal
from gradwire.utils import _event_summaries as event_summaries
from gradwire.v1.tensorboard_events import FILE_VERSION, SESSION_START, Event, record

__all__ = ["FileWriter", "SummaryWriter"]

_PREFIX = "events.out.tfevents"


class _EventFile:
    """An open event file. Events wait in memory until enough of them have come, or some time has passed."""

    def __init__(self, folder: Path, suffix: str, most_waiting: int, seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        now, host = time.time(), socket.gethostname()
        name = f"{_PREFIX}.{int(now):010d}.{host}.{os.getpid()}.{uuid.uuid4().hex[:8]}{suffix}"
        self._file = open(folder / name, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
        self._waiting: list[bytes] = []
        self._most = most_waiting
        self._seconds = seconds
        self._flushed = time.monotonic()
        self._lock = threading.Lock()
        _open_files.add(self)
        self.add(Event(wall_time=now, file_version=FILE_VERSION))
        self.flush()

    def add(self, event: Any) -> None:
        """Add an event. Raises OSError if waiting events cannot be written."""
        data = record(event.SerializeToString())
        with self._lock:
            self._waiting.append(data)
            if len(self._waiting) >= self._most or time.monotonic() - self._flushed >= self._seconds:
                self._write()

    def flush(self) -> None:
        """Write all events. Raises OSError."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            left = memoryview(b"".join(self._waiting))
            self._waiting.clear()
            while left:
                left = left[self._file.write(left) :]
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Write all events and close the file. Raises OSError."""
        with self._lock:
            if not self._file.closed:
                try:
                    self._write()
                finally:
                    self._file.close()

    def forget_waiting(self) -> None:
        """Forget the events that wait, in a forked process: they are copies, which the parent writes."""
        self._lock = threading.Lock()  # another thread of the parent may have held the copied one
        self._waiting = []


_open_files: weakref.WeakSet[_EventFile] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for each in list(_open_files):
        each.forget_waiting()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class FileWriter:
    """Writes events to a file below a folder (torch.utils.tensorboard.FileWriter)."""

    def __init__(
        self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        self._folder = str(log_dir)
        self._options = (filename_suffix, max_queue, flush_secs)
        self._open()

    def _open(self) -> None:
        self._file = _EventFile(Path(self._folder), *self._options)
        self._closing = weakref.finalize(self, self._file.close)  # also when the program ends

    def get_logdir(self) -> str:
        """The folder."""
        return self._folder

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """Add an event; `walltime` in seconds since 1970. A closed writer opens another file. Raises OSError."""
        if not self._closing.alive:
            self._open()
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self._file.add(event)

    def add_summary(self, summary: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Add a summary. Raises OSError."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Write what waits. Raises OSError."""
        if self._closing.alive:
            self._file.flush()

    def close(self) -> None:
        """Write what waits and close the file. Raises OSError."""
        self._closing()

    def reopen(self) -> None:
        """Open another file, if this one is closed. Raises OSError."""
        if not self._closing.alive:
            self._open()


class SummaryWriter:
    """Writes the course of a training for TensorBoard (torch.utils.tensorboard.SummaryWriter).

    Values may be tensors, arrays, lists or numbers. A tensor is read from the server when it is added. Steps are
    integers; `walltime` is in seconds since 1970, the present time if None.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        """Write below `log_dir`, by default runs/DATE_HOST with the comment. Raises OSError.

        Events are written when `max_queue` wait, or by the first one after `flush_secs`. Earlier events from
        `purge_step` on are hidden, as after a restart from a checkpoint.
        """
        if not log_dir:
            moment = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{moment}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer = FileWriter(self.log_dir, *self._options)
        self.all_writers: dict[str, FileWriter] = {self.log_dir: self.file_writer}
        self.default_bins = event_summaries.default_bins()
        if purge_step is not None:
            event = Event(file_version=FILE_VERSION)
            self.file_writer.add_event(event, purge_step)
            event = Event()
            event.session_log.status = SESSION_START
            self.file_writer.add_event(event, purge_step)

    def get_logdir(self) -> str:
        """The folder of the files."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Add a number, or a tensor with one value, as float32. Raises ValueError.

        `new_style` and `double_precision` are accepted; TensorBoard reads both styles alike.
        """
        self.file_writer.add_summary(event_summaries.scalar(tag, scalar_value), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add several scalars of one chart, each in a folder of its own below the writer's. Raises ValueError."""
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, _file_name(f"{main_tag}_{tag}"))
            writer = self.all_writers.get(folder)
            if writer is None:
                writer = self.all_writers[folder] = FileWriter(folder, *self._options)
            writer.add_summary(event_summaries.scalar(main_tag, value), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Add a histogram of values of any shape. `bins` is "tensorflow", or what numpy.histogram takes.

        Raises ValueError if there is no value.
        """
        chosen = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self.file_writer.add_summary(event_summaries.histogram(tag, values, chosen, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add a histogram that was computed elsewhere, by its buckets' right limits. Raises ValueError."""
        figures = {"min": min, "max": max, "num": num, "sum": sum, "sum_squares": sum_squares}
        summary = event_summaries.raw_histogram(tag, bucket_limits, bucket_counts, **figures)
        self.file_writer.add_summary(summary, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image: uint8 in [0, 255] or floats in [0, 1], with 1, 3 or 4 colours. Raises ValueError."""
        self.file_writer.add_summary(event_summaries.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add several images as one, at most eight in a row. Values as in `add_image`. Raises ValueError."""
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Add a figure of matplotlib, or several as one image, and close them unless `close` is False."""
        figures = figure if isinstance(figure, list) else [figure]
        pixels = np.stack([_drawn(each, close) for each in figures])
        self.add_image(tag, pixels, global_step, walltime, "NHWC")

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a text, which TensorBoard shows as Markdown."""
        self.file_writer.add_summary(event_summaries.text(tag, text_string), global_step, walltime)

    def flush(self) -> None:
        """Write all events. Raises OSError."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        """Write all events and close the files. A later event opens another file. Raises OSError."""
        for writer in self.all_writers.values():
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _refused(name: str, why: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> None:
        raise refusal(f"utils.tensorboard.SummaryWriter.{name}", why)

    method.__name__, method.__qualname__ = name, f"SummaryWriter.{name}"
    method.__doc__ = f"Refused: {why}."
    return method


_OTHER_DATA = "use tensorboardX, and give it arrays: tensor.detach().cpu().numpy()"
for _name, _why in {
    "add_graph": "there is no trace of a module; gradwire.studio(tensor) draws its graph",
    "add_onnx_graph": "gradwire.graph and gradwire.studio() draw graphs",
    "add_hparams": "write the hyperparameters by add_text, and their results by add_scalar",
    **dict.fromkeys(
        (
            "add_audio",
            "add_custom_scalars",
            "add_custom_scalars_marginchart",
            "add_custom_scalars_multilinechart",
            "add_embedding",
            "add_image_with_boxes",
            "add_mesh",
            "add_pr_curve",
            "add_pr_curve_raw",
            "add_tensor",
            "add_video",
        ),
        _OTHER_DATA,
    ),
}.items():
    setattr(SummaryWriter, _name, _refused(_name, _why))


def _file_name(tag: str) -> str:
    """A tag as the name of one folder, which no tag can leave."""
    name = tag.replace("/", "_").replace("\\", "_").replace("\0", "_")
    return name if name.strip(".") else "_"


def _drawn(figure: Any, close: bool) -> np.ndarray[Any, Any]:
    """The pixels of a figure, (height, width, 4)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.array(canvas.buffer_rgba())
    if close:
        from matplotlib import pyplot

        pyplot.close(figure)
    return pixels
