"""Event files: reads those below a folder, as TensorBoard does, from where the last look ended.

Links below the folder are not followed, so nothing outside of it is read. The folder itself may be a link. A file that
is no event file is told in a sentence.
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from gradwire.v1.tensorboard_events import HEAD_BYTES, TAIL_BYTES, Event, read_head
from gradwire_server.web.training.event_series import KINDS, Images, Room, Run

MOST_RUNS = 1000
MOST_FILES = 5000
MOST_ENTRIES = 100_000  # of folders, in one look
MOST_DEPTH = 10
MOST_RECORD = 32 << 20
MOST_PROBLEMS = 20
READ_BYTES = 32 << 20  # of one look
_LOOK_SECONDS = 1.0
_MARK = ".tfevents."


@dataclass
class _File:
    """How far a file was read, and why it is read no further."""

    run: str
    offset: int = 0
    problem: str = ""
    seen: bool = True


class EventFiles:
    """The runs below a folder. Used by one thread at a time."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, "")  # the slash follows the folder if it is a link
        self._forget()

    def _forget(self) -> None:
        self._room = Room()
        self._files: dict[str, _File] = {}
        self._runs: dict[str, Run] = {}
        self._problems: list[str] = []
        self._more = False
        self._looked = 0.0

    def look(self) -> None:
        """Read what is new. Does nothing if the last look is less than a second ago and left nothing."""
        now = time.monotonic()
        if self._looked and now - self._looked < _LOOK_SECONDS and not self._more:
            return
        self._looked = now
        self._problems = []
        self._more = False
        left = READ_BYTES
        for each in self._files.values():
            each.seen = False
        try:
            for path, descriptor in self._found():
                with os.fdopen(descriptor, "rb", buffering=1 << 16) as opened:
                    left -= self._read(path, opened, left)
        except OSError as error:  # the folder itself, or a file that cannot be read
            self._problems.append(f"the folder cannot be read: {error.strerror}")
        self._drop_gone()
        self._problems += [f"{path}: {each.problem}" for path, each in self._files.items() if each.problem]

    def listing(self) -> dict[str, Any]:
        """The runs with how many points each tag has had, and what cannot be read."""
        runs = [
            {
                "name": name,
                **{kind: {tag: each.sample.seen for tag, each in run.series[kind].items()} for kind in KINDS},
            }
            for name, run in sorted(self._runs.items())
        ]
        shown = self._problems[:MOST_PROBLEMS]
        if len(self._problems) > MOST_PROBLEMS:
            shown.append(f"and {len(self._problems) - MOST_PROBLEMS} more")
        return {"runs": runs, "problems": shown, "more": self._more}

    def points(self, kind: str, run: str, tag: str) -> list[Any] | None:
        """The points of a series; None if there is none."""
        found = self._runs.get(run)
        series = None if found is None or kind not in KINDS else found.series[kind].get(tag)
        return None if series is None else series.points()

    def image(self, run: str, tag: str, step: int) -> bytes | None:
        """An image as it was written; None if there is none."""
        found = self._runs.get(run)
        series = None if found is None else found.series["images"].get(tag)
        return series.encoded(step) if isinstance(series, Images) else None

    def _found(self) -> Iterator[tuple[str, int]]:
        """Event files by their path below the folder, each with an open descriptor."""
        entries = files = 0
        failed: list[OSError] = []
        for folder, folders, names, descriptor in os.fwalk(self._folder, onerror=failed.append, follow_symlinks=False):
            relative = os.path.relpath(folder, self._folder)
            entries += len(folders) + len(names)
            if entries > MOST_ENTRIES or files >= MOST_FILES:
                self._problems.append(f"the folder has more than {MOST_ENTRIES} entries or {MOST_FILES} event files")
                break
            if relative.count(os.sep) + 1 >= MOST_DEPTH:
                folders.clear()
            folders.sort()
            for name in sorted(names):
                if _MARK in name:
                    files += 1
                    opened = self._opened(name, os.path.join(relative, name), descriptor)
                    if opened is not None:
                        yield os.path.normpath(os.path.join(relative, name)), opened
        for error in failed:
            self._problems.append(f"folder {os.fsdecode(error.filename or '')}: {error.strerror}")

    def _opened(self, name: str, path: str, folder: int) -> int | None:
        """A descriptor of a regular file; None for links and all else."""
        try:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            self._problems.append(f"{os.path.normpath(path)}: {error.strerror}")
            return None
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            self._problems.append(f"{os.path.normpath(path)}: it is no regular file")
            return None
        return opened

    def _read(self, path: str, opened: BinaryIO, most: int) -> int:
        """Read a file's new records, at most so many bytes; how many."""
        known = self._files.get(path)
        if known is None:
            run = os.path.dirname(path) or "."
            if run not in self._runs and len(self._runs) >= MOST_RUNS:
                self._problems.append(f"{path}: there are more than {MOST_RUNS} runs")
                return 0
            known = self._files[path] = _File(run)
        known.seen = True
        size = os.fstat(opened.fileno()).st_size
        if size < known.offset:
            known.seen = False  # `_drop_gone` forgets its run, which is read anew
            return 0
        if known.problem:
            return 0
        run_series = self._runs.get(known.run)
        if run_series is None:
            run_series = self._runs[known.run] = Run(self._room)
        began = known.offset
        opened.seek(began)
        while known.offset - began < most:
            head = opened.read(HEAD_BYTES)
            if len(head) < HEAD_BYTES:
                return known.offset - began
            found = read_head(head)
            if not found.valid or found.length > MOST_RECORD:
                known.problem = f"byte {known.offset} begins no record, so the rest is not read"
                return known.offset - began
            data = opened.read(found.length + TAIL_BYTES)
            if len(data) < found.length + TAIL_BYTES:
                return known.offset - began  # the rest is still to be written
            try:
                event = Event.FromString(data[: found.length])
            except DecodeError:
                known.problem = f"the record at byte {known.offset} is no event, so the rest is not read"
                return known.offset - began
            known.offset += HEAD_BYTES + len(data)
            if not run_series.take(event):
                self._note(f"{known.run}: some tags are too long or too many and are left out")
        self._more = self._more or size > known.offset
        return known.offset - began

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def _drop_gone(self) -> None:
        """Forget runs of which a file is gone or became shorter; what is left of them is read anew."""
        gone = {each.run for each in self._files.values() if not each.seen}
        if not gone:
            return
        for name in gone:
            run = self._runs.pop(name, None)
            if run is not None:
                run.clear()
        self._files = {path: each for path, each in self._files.items() if each.run not in gone}
        self._more = True
