"""SummaryWriter: its files have what PyTorch's have, TensorBoard reads them, and tags stay names."""

import gc
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradwire
from gradwire.utils.tensorboard import FileWriter, SummaryWriter
from gradwire.v1.tensorboard_events import FILE_VERSION, HEAD_BYTES, TAIL_BYTES, Event, read_head, record

VALUES = np.random.default_rng(3).standard_normal(500).astype(np.float32)


def events(folder: Path) -> Iterator[Any]:
    """The events of a folder's files, in order."""
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            head = read_head(data[:HEAD_BYTES])
            assert head.valid
            whole = HEAD_BYTES + head.length + TAIL_BYTES
            assert data[:whole] == record(data[HEAD_BYTES : HEAD_BYTES + head.length])
            yield Event.FromString(data[HEAD_BYTES : HEAD_BYTES + head.length])
            data = data[whole:]


def values(folder: Path) -> list[Any]:
    return [value for event in events(folder) for value in event.summary.value]


def fill(writer: Any) -> None:
    """The calls that both writers take."""
    for step in range(3):
        writer.add_scalar("loss/train", 1.0 / (step + 1), step, walltime=100.0 + step)
        writer.add_histogram("weights", VALUES * (step + 1), step)
        writer.add_histogram("few", VALUES, step, bins="auto", max_bins=5)
    writer.add_histogram_raw("raw", 0.0, 2.0, 3, 4.0, 6.0, [1.0, 2.0], [2, 1], 0)
    rng = np.random.default_rng(1)
    writer.add_image("image", rng.random((3, 5, 4)), 0)
    writer.add_image("grey", rng.integers(0, 255, (5, 4), np.uint8), 0, dataformats="HW")
    writer.add_images("images", rng.random((10, 1, 3, 2)), 0)
    writer.add_text("note", "# Über *all*", 2)
    writer.close()


def test_the_first_event_names_the_version_and_the_steps_follow(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 2, 7, walltime=12.5)
        writer.add_scalar("a", [3.0])
    first, second, third = events(tmp_path)
    assert first.file_version == FILE_VERSION
    assert (second.step, second.wall_time, second.summary.value[0].simple_value) == (7, 12.5, 2.0)
    assert (third.step, third.summary.value[0].simple_value) == (0, 3.0)


@pytest.mark.usefixtures("session")
def test_tensors_are_read(tmp_path: Path) -> None:
    x = gradwire.tensor([1.0, 2.0], requires_grad=True)
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", (x * x).sum(), 0)
        writer.add_histogram("x", x, 0)
        writer.add_image("one", gradwire.ones(3, 2, 2), 0)
        writer.add_histogram("half", x.detach().to(gradwire.bfloat16), 0)
    loss, histogram, image, half = values(tmp_path)
    assert loss.simple_value == 5.0
    assert (histogram.histogram.num, histogram.histogram.sum) == (half.histogram.num, half.histogram.sum) == (2, 3)
    assert (image.image.height, image.image.width, image.image.colorspace) == (2, 2, 3)


def test_buckets_hold_all_values_between_their_limits(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("all", VALUES)
        writer.add_histogram("few", VALUES, bins=100, max_bins=7)
    for value in values(tmp_path):
        found = value.histogram
        assert sum(found.bucket) == found.num == len(VALUES)
        counts, _ = np.histogram(VALUES.astype(np.float64), [-np.inf, *found.bucket_limit])
        assert counts[:-1].tolist() == list(found.bucket)[:-1]
    assert len(found.bucket) <= 9


def test_an_image_is_a_png_of_its_pixels(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("image", pixels, dataformats="HWC")
    data = values(tmp_path)[0].image.encoded
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    begin = data.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompress(data[begin:]), np.uint8).reshape(2, 13)
    assert not lines[:, 0].any()
    assert (lines[:, 1:].reshape(2, 4, 3) == pixels).all()


def test_scalars_of_one_chart_have_folders_and_no_tag_leaves_the_run(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "run") as writer:
        writer.add_scalars("loss", {"train": 1, "../../../x": 2}, 0)
        writer.add_scalars("..", {"": 3}, 0)
    folders = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_dir())
    assert folders == ["run", "run/.._", "run/loss_.._.._.._x", "run/loss_train"]
    assert [value.tag for value in values(tmp_path / "run" / "loss_train")] == ["loss"]


def test_a_closed_writer_opens_another_file(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1)
    writer.close()
    writer.close()
    writer.add_scalar("a", 2)
    writer.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(value.simple_value for value in values(tmp_path)) == [1.0, 2.0]


def test_events_are_written_when_enough_wait(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path, max_queue=3)
    for step in range(5):
        writer.add_scalar("a", step)
    assert [value.simple_value for value in values(tmp_path)] == [0, 1, 2]
    writer.flush()
    assert len(values(tmp_path)) == 5
    writer.close()


def test_a_writer_that_is_forgotten_writes_what_waits(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1)
    del writer
    gc.collect()
    assert len(values(tmp_path)) == 1


def test_the_end_of_the_program_writes_what_waits(tmp_path: Path) -> None:
    code = (
        "from gradwire.utils.tensorboard import SummaryWriter; writer = SummaryWriter({!r}); writer.add_scalar('a', 1)"
    )
    code = code.format(str(tmp_path))
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(values(tmp_path)) == 1


@pytest.mark.parametrize("child", ["pass", "writer.add_scalar('a', 2); writer.flush()"])
def test_a_forked_process_repeats_no_event(tmp_path: Path, child: str) -> None:
    code = f"""
import os, sys
from gradwire.utils.tensorboard import SummaryWriter
writer = SummaryWriter(sys.argv[1])
writer.add_scalar("a", 1)
writer.file_writer._file._lock.acquire()  # as a thread does that writes during the fork
child = os.fork()
if child:
    writer.file_writer._file._lock.release()
    os.waitpid(child, 0)
else:
    {child}
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    added = [2.0] if "add" in child else []
    assert [value.simple_value for value in values(tmp_path)] == [*added, 1.0]  # the parent writes at its end


def test_workers_of_multiprocessing_repeat_no_event(tmp_path: Path) -> None:
    code = """
import multiprocessing, sys
from gradwire.utils.tensorboard import SummaryWriter
writer = SummaryWriter(sys.argv[1])
def work(step):
    writer.add_scalar("worker", step)
    writer.flush()
writer.add_scalar("a", 1)
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(work, range(4))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    found = values(tmp_path)
    assert [value.tag for value in found].count("a") == 1
    assert sorted(value.simple_value for value in found if value.tag == "worker") == [0.0, 1.0, 2.0, 3.0]


def test_a_purge_hides_later_steps(tmp_path: Path) -> None:
    SummaryWriter(tmp_path, purge_step=5).close()
    assert [(event.step, event.session_log.status) for event in events(tmp_path)][1:] == [(5, 0), (5, 1)]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda w: w.add_scalar("a", [1.0, 2.0]), "a scalar is one value"),
        (lambda w: w.add_histogram("a", []), "no element"),
        (lambda w: w.add_image("a", np.zeros((2, 3, 4))), "1, 3 or 4 colours"),
        (lambda w: w.add_image("a", np.zeros((3, 4)), dataformats="CHW"), "do not fit"),
        (lambda w: w.add_image("a", np.zeros((3, 4, 4)), dataformats="CWW"), "dataformats"),
        (lambda w: w.add_histogram_raw("a", 0, 0, 0, 0, 0, [1.0], []), "limits"),
    ],
)
def test_values_that_fit_nothing_are_refused(tmp_path: Path, call: Any, sentence: str) -> None:
    with SummaryWriter(tmp_path) as writer, pytest.raises(ValueError, match=sentence):
        call(writer)


@pytest.mark.parametrize("name", ["add_graph", "add_hparams", "add_video", "add_embedding"])
def test_what_cannot_be_written_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotImplementedError, match=name):
        getattr(writer, name)("x", None)


def test_a_file_writer_takes_summaries(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    writer.add_summary(Event().summary, 3)
    writer.close()
    assert [event.step for event in events(tmp_path)] == [0, 3]
    assert writer.get_logdir() == str(tmp_path)


def test_a_figure_is_an_image(tmp_path: Path) -> None:
    figure_module = pytest.importorskip("matplotlib.figure", reason="figures need matplotlib")
    figure = figure_module.Figure(figsize=(2, 1), dpi=50)
    figure.add_subplot().plot([1, 2])
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("figure", figure)
        writer.add_figure("two", [figure, figure])
    one, two = (value.image for value in values(tmp_path))
    assert (one.width, one.height, two.width) == (100, 50, 200)


def test_tensorboard_reads_the_same_as_of_pytorch(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed"
    )
    theirs = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch is not installed")
    fill(SummaryWriter(tmp_path / "ours"))
    fill(theirs.SummaryWriter(str(tmp_path / "theirs")))
    ours, other = (accumulator.EventAccumulator(str(tmp_path / name)).Reload() for name in ("ours", "theirs"))
    assert ours.Tags() == other.Tags()
    assert ours.Scalars("loss/train") == other.Scalars("loss/train")
    for tag in other.Tags()["histograms"]:
        for mine, its in zip(ours.Histograms(tag), other.Histograms(tag), strict=True):
            assert (mine.step, mine.histogram_value.num) == (its.step, its.histogram_value.num)
            if tag != "few":  # with max_bins PyTorch pads the buckets that are left over
                assert list(mine.histogram_value.bucket) == list(its.histogram_value.bucket)
                assert np.allclose(mine.histogram_value.bucket_limit, its.histogram_value.bucket_limit)
    for tag in other.Tags()["images"]:
        (mine,), (its,) = ours.Images(tag), other.Images(tag)
        assert (mine.width, mine.height) == (its.width, its.height)
        assert (_pixels(mine.encoded_image_string) == _pixels(its.encoded_image_string)).all()
    assert ours.Tensors("note/text_summary")[0].tensor_proto == other.Tensors("note/text_summary")[0].tensor_proto


def _pixels(data: bytes) -> Any:
    import io

    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    return np.asarray(image.open(io.BytesIO(data)).convert("RGB"))
