"""Shared tensors: a tensor moves to shared memory only if nothing else sees its array, and leaves nothing behind."""

import errno
import gc
import os
import resource
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from gradwire_engine import Account, Tensor
from gradwire_server.common.shared_files import location
from gradwire_server.session.state import shared_tensors
from gradwire_server.session.state.shared_tensors import LEAST, File, MappedTensors, SharedTensors

SIZE = LEAST // 4  # elements


def numbers() -> Tensor:
    return Tensor(np.arange(SIZE, dtype=np.float32))


@pytest.fixture
def shared() -> SharedTensors:
    return SharedTensors(Account())


def moved(shared: SharedTensors) -> tuple[Tensor, File]:
    """A tensor that was reduced twice, and its file."""
    tensor = numbers()
    for _ in range(2):
        shared.prepare([tensor])
    file = shared.file_of(tensor.array)
    assert file is not None
    return tensor, file


def open_files() -> list[str]:
    return [path for path in (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")) if os.path.lexists(path)]


def found(file: File, maps: MappedTensors | None = None) -> np.ndarray | None:
    return (maps or MappedTensors()).find(os.getpid(), file.descriptor, file.inode, file.nbytes)


def mapped(file: File, maps: MappedTensors | None = None) -> np.ndarray:
    made = found(file, maps)
    assert made is not None
    return made.view(np.float32)


def test_a_tensor_moves_at_its_second_reduction_and_others_see_its_values(shared: SharedTensors) -> None:
    tensor = numbers()
    shared.prepare([tensor])
    assert shared.file_of(tensor.array) is None
    shared.prepare([tensor])
    file = shared.file_of(tensor.array)
    assert file is not None
    there = mapped(file)
    assert there.tolist() == list(range(SIZE))
    tensor.array[3] = -1
    assert there[3] == -1
    assert not there.flags.writeable
    shared.prepare([tensor])
    assert shared.file_of(tensor.array) == file


def test_a_tensor_stays_where_no_pages_are_left(shared: SharedTensors, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "no pages")

    monkeypatch.setattr(os, "posix_fallocate", full)
    tensor = numbers()
    for _ in range(2):
        shared.prepare([tensor])
    assert shared.file_of(tensor.array) is None
    assert not any("gradwire-tensor" in os.readlink(each) for each in open_files())


@pytest.mark.parametrize(
    "keep",
    [
        lambda tensor: tensor.array,
        lambda tensor: tensor.array[1:],
        lambda tensor: memoryview(tensor.array),
        lambda tensor: Tensor(tensor.array, storage=tensor.storage),
    ],
    ids=["array", "view", "buffer", "tensor"],
)
def test_a_tensor_stays_while_anything_else_sees_its_memory(
    shared: SharedTensors, keep: Callable[[Tensor], object]
) -> None:
    tensor = numbers()
    kept = keep(tensor)
    for _ in range(3):
        shared.prepare([tensor])
    assert shared.file_of(tensor.array) is None
    del kept
    shared.prepare([tensor])
    assert shared.file_of(tensor.array) is not None


@pytest.mark.parametrize(
    "array",
    [
        np.arange(2 * SIZE, dtype=np.float32)[SIZE:],
        np.ones((SIZE, 2), np.float32).T,
        np.ones(SIZE - 1, np.float32),
    ],
    ids=["view", "columns", "small"],
)
def test_views_other_orders_and_small_tensors_stay(shared: SharedTensors, array: np.ndarray) -> None:
    tensor = Tensor(array)
    del array
    for _ in range(3):
        shared.prepare([tensor])
    assert not shared._files


def test_a_tensor_that_is_gone_leaves_no_file(shared: SharedTensors) -> None:
    tensor, file = moved(shared)
    view = tensor.array[5:]
    del tensor
    gc.collect()
    assert any("gradwire-tensor" in os.readlink(each) for each in open_files())
    assert shared._files  # the view needs the memory
    del view
    gc.collect()
    assert not shared._files
    assert not shared._ends
    assert not any("gradwire-tensor" in os.readlink(each) for each in open_files())
    assert found(file) is None


def test_closing_leaves_the_values_and_closes_the_files(shared: SharedTensors) -> None:
    tensor, file = moved(shared)
    there = mapped(file)
    shared.close()
    assert shared.file_of(tensor.array) is None
    tensor.array[0] = 8
    assert there[0] == 8
    assert found(file) is None


def test_a_tensor_stays_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedTensors(Account(limit=LEAST - 1))
    tensor = numbers()
    for _ in range(2):
        shared.prepare([tensor])
    assert not shared._files
    shared = SharedTensors(Account())
    monkeypatch.setattr(shared_tensors, "MOST", 2 * LEAST)
    tensors = [numbers() for _ in range(3)]
    for _ in range(2):
        shared.prepare(tensors)
    assert [shared.file_of(each.array) is not None for each in tensors] == [True, True, False]


def test_another_file_at_the_number_of_a_closed_one_is_not_mapped() -> None:
    one, other = os.memfd_create("one"), os.memfd_create("other")
    os.ftruncate(one, 8192)
    where = location(one)
    os.dup2(other, one)
    maps = MappedTensors()
    assert maps.find(where[0], where[1], where[2], 8192) is None
    assert maps.find(where[0], one, os.fstat(one).st_ino, 4096) is None  # too short
    os.close(one)
    os.close(other)


def test_memory_of_a_tensor_that_is_gone_is_given_back_while_others_have_it_mapped(shared: SharedTensors) -> None:
    tensor, file = moved(shared)
    there = mapped(file)
    kept = os.dup(file.descriptor)
    taken = os.fstat(kept).st_blocks
    del tensor
    gc.collect()
    assert taken * 512 >= LEAST
    assert os.fstat(kept).st_blocks == 0
    os.close(kept)
    assert not there.any()


def test_a_fork_that_frees_a_tensor_leaves_its_values(shared: SharedTensors) -> None:
    tensor, file = moved(shared)
    there = mapped(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other threads
        child = os.fork()
    if not child:
        tensor.array = np.zeros(1)
        os._exit(3 if there.any() else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert there.tolist() == list(range(SIZE))


def test_few_descriptors_leave_tensors_where_they_are(shared: SharedTensors, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [numbers() for _ in range(3)]
    limit = 4 * 2 * (len(shared_tensors._OPEN) + 2)  # for two files or mappings more
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    for _ in range(2):
        shared.prepare(tensors)
    files = [shared.file_of(each.array) for each in tensors]
    assert [each is not None for each in files] == [True, True, False]
    assert files[0] is not None
    assert found(files[0]) is None
    del tensors[1]
    gc.collect()
    assert found(files[0]) is not None


def test_only_what_the_last_reduction_used_stays_mapped(shared: SharedTensors) -> None:
    tensors = [numbers(), numbers()]
    for _ in range(2):
        shared.prepare(tensors)
    files = [shared.file_of(each.array) for each in tensors]
    maps = MappedTensors()
    held = []
    for file in files:
        assert file is not None
        held.append(mapped(file, maps))
    assert mapped(files[0], maps).base is held[0].base  # type: ignore[arg-type]
    maps.end()
    mapped(files[1], maps)  # type: ignore[arg-type]
    maps.end()
    assert [inode for _, _, inode in maps._held] == [files[1].inode]  # type: ignore[union-attr]
    maps.clear()
    assert not maps._held
