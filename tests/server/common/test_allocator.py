"""The allocator: freed pages go back to the system when there are many, and nothing happens without glibc."""

import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from gradwire_server.common import allocator

MIB = 1 << 20


class _Library:
    """A C library that has so many bytes free and counts its trims."""

    def __init__(self, free: int, after: int) -> None:
        self.free, self.after, self.trims = free, after, 0
        self.resident = 100 * MIB

    def mallinfo2(self) -> "_Library":
        return self

    @property
    def fordblks(self) -> int:
        return self.free

    def malloc_trim(self, pad: int) -> None:
        assert pad == 0
        self.trims += 1
        self.free = self.after


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> _Library:
    made = _Library(20 * MIB, 15 * MIB)
    monkeypatch.setattr(allocator, "_library", lambda: made)
    monkeypatch.setattr(allocator, "_given", 0)
    monkeypatch.setattr(allocator, "_resident", made.resident)
    monkeypatch.setattr(allocator, "_resident_bytes", lambda: made.resident)
    return made


def test_many_freed_bytes_are_given_back_once(library: _Library) -> None:
    allocator.give_back()
    allocator.give_back()
    assert library.trims == 1


def test_few_freed_bytes_are_kept(library: _Library) -> None:
    library.free = 8 * MIB
    allocator.give_back()
    assert library.trims == 0


def test_what_was_freed_since_the_last_trim_counts(library: _Library) -> None:
    allocator.give_back()
    library.free = 24 * MIB
    allocator.give_back()
    assert library.trims == 2


def test_bytes_that_were_used_again_and_freed_count_again(library: _Library) -> None:
    allocator.give_back()
    library.free = 2 * MIB
    allocator.give_back()
    library.free = 11 * MIB
    allocator.give_back()
    assert library.trims == 2


def test_returned_pages_that_were_used_and_freed_between_two_looks_are_given_back(library: _Library) -> None:
    allocator.give_back()
    library.resident += 9 * MIB  # as many bytes are free as before
    allocator.give_back()
    allocator.give_back()
    assert library.trims == 2


def test_memory_in_use_is_no_reason_to_give_back(library: _Library) -> None:
    library.free = 8 * MIB
    library.resident += 100 * MIB
    allocator.give_back()
    assert library.trims == 0


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_library", lambda: None)
    allocator.give_back()
    assert allocator.ready_pages() is None


def test_raising_the_threshold_touches_no_page() -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        allocator.keep_freed(allocator.RESULTS)
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert pages * resource.getpagesize() < 50 * allocator.RESULTS / 4


@pytest.mark.parametrize(("kept", "stays"), [("MESSAGES", False), ("RESULTS", True)])
def test_a_worker_keeps_blocks_that_a_front_returns_when_it_frees_them(kept: str, stays: bool) -> None:
    before, after = _in_a_process_of_its_own(
        f"""
allocator.keep_freed(allocator.{kept})
before = allocator._resident_bytes()
block = bytes(1) * (16 << 20)
del block
print(before, allocator._resident_bytes())
""",
        readied=False,
    )
    assert (after - before > 8 * MIB) == stays


def test_a_process_that_may_start_no_thread_readies_no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert allocator.ready_pages(MIB) is None


def _in_a_process_of_its_own(code: str, readied: bool = True) -> list[int]:
    """The numbers that code prints in a process whose heap nothing else uses; `readied`: after 16 MiB were readied."""
    begin = """
import resource
from gradwire_server.common import allocator
library = allocator._library()
page = library and library.malloc(1 << 20)
if not page or library.madvise(page & -4096, 4096, allocator._POPULATE_WRITE) or not allocator._resident_bytes():
    raise SystemExit
"""
    if readied:
        begin += "allocator.keep_freed(allocator.RESULTS)\nallocator.ready_pages(16 << 20).join()\n"
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, check=True)
    if not done.stdout:
        pytest.skip("no glibc since 2.33, or no Linux since 5.14")
    return [int(each) for each in done.stdout.split()]


def test_readied_pages_are_in_memory_before_their_first_use() -> None:
    (faults,) = _in_a_process_of_its_own("""
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = bytes(1) * (8 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
""")
    assert faults * resource.getpagesize() < 2 * MIB


def test_readied_pages_are_given_back_when_nothing_uses_them() -> None:
    before, after = _in_a_process_of_its_own("""
before = allocator._resident_bytes()
allocator.give_back()
print(before, allocator._resident_bytes())
""")
    assert after < before - 8 * MIB


def test_readying_pages_changes_no_content() -> None:
    block = np.arange(MIB, dtype=np.uint32)
    if allocator._library() is not None:
        allocator._touch(block.__array_interface__["data"][0], block.nbytes)
        allocator._touch(1 << 12, MIB)  # nothing is there
    assert (block == np.arange(MIB, dtype=np.uint32)).all()


def test_the_c_library_counts_freed_bytes() -> None:
    library = allocator._library()
    if library is None:
        pytest.skip("no glibc since 2.33")
    block = np.ones(MIB, np.uint8)
    assert library.mallinfo2().arena + library.mallinfo2().hblkhd > 0
    del block
