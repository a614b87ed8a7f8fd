"""Files on the server's disk: they come back bit for bit and never travel; names, owners, quotas, damage, crashes."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

import gradwire
from gradwire import nn, optim
from gradwire.v1 import files_pb2
from gradwire_server.common.limits import Limits
from gradwire_server.registry.files import FileDirectory, Files
from gradwire_server.storage import tensor_files
from tests.client.chaos import restarting_server
from tests.client.proxy import cutting
from tests.server.harness import Id, Remote, Running, refused, running
from tests.server.test_durability import Storing
from tests.server.test_principals import House

LIMITS = Limits(lease_seconds=60.0, max_session_bytes=8 << 20, max_bytes=1 << 30)


def keep(server: Running, root: Path, **told: int) -> None:
    server.do(server.backend.files.use_directory(FileDirectory(root, **told)))


@pytest.fixture
def filing_server(tmp_path: Path) -> Iterator[Running]:
    started = Running(LIMITS)
    keep(started, tmp_path / "files", max_files=3)
    yield started
    started.stop()


@pytest.fixture
def session(filing_server: Running) -> Iterator[gradwire.Session]:
    opened = gradwire.connect(filing_server.address)
    yield opened
    opened.close()


def path_of(tmp_path: Path, name: str = "one") -> Path:
    return tmp_path / "files" / "anyone" / f"{name}.safetensors"


def bits(value: gradwire.Tensor) -> bytes:
    shown = value.detach()
    return (shown.float() if shown.dtype == gradwire.bfloat16 else shown).resolve_conj().numpy().tobytes()


def test_a_checkpoint_is_loaded_bit_for_bit_and_no_weight_is_sent(
    filing_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")  # which would pass the proxy by
    with cutting(filing_server.address, [100_000] * 20) as proxy:
        session = gradwire.connect(proxy.address)
        net = nn.Linear(500, 300)  # 600 000 bytes
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        net(gradwire.ones(2, 500)).sum().backward()
        optimizer.step()
        gradwire.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "one", on="server")
        found = gradwire.load("one", on="server")
        other = nn.Linear(500, 300)
        other.load_state_dict(found["net"])
        assert found["epoch"] == 3
        assert all(gradwire.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))
        momenta = [state["momentum_buffer"] for state in found["optimizer"]["state"].values()]
        kept = [optimizer.state[each]["momentum_buffer"] for each in net.parameters()]
        assert all(gradwire.equal(a, b) for a, b in zip(momenta, kept, strict=True))
        assert proxy.broken == 0
        session.close()


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
     "complex128"],
)  # fmt: skip
def test_every_dtype_and_views_come_back_and_the_client_reads_a_copied_file(
    session: gradwire.Session, tmp_path: Path, dtype: str
) -> None:
    values = gradwire.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(gradwire, dtype))
    state = {
        "x": values, "turned": values.t(), "part": values[1:, ::2], "wide": values[:1].expand(2, 3),
        "empty": values[:0], "one": values[1, 1],
    }  # fmt: skip
    gradwire.save(state, "one", on="server")
    for found in (gradwire.load("one", on="server"), gradwire.load(path_of(tmp_path))):
        assert list(found) == list(state)
        for name, value in state.items():
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert bits(found[name]) == bits(value)
            assert found[name].is_leaf
            assert not found[name]._is_view()


def test_a_large_view_is_written_in_pieces(session: gradwire.Session) -> None:
    values = gradwire.arange(600_000.0).reshape(600, 1000)
    gradwire.save({"turned": values.t()}, "one", on="server")
    assert gradwire.equal(gradwire.load("one", on="server")["turned"], values.t())


def test_flags_and_shared_tensors_come_back(session: gradwire.Session) -> None:
    shared = gradwire.ones(2, requires_grad=True)
    gradwire.save([shared, nn.Parameter(gradwire.zeros(1)), {"again": shared, "text": (None, 1.5)}], "one", on="server")
    first, parameter, rest = gradwire.load("one", on="server")
    assert first.requires_grad
    assert isinstance(parameter, nn.Parameter)
    assert rest["again"] is first
    assert rest["text"] == (None, 1.5)


def test_the_safetensors_package_reads_it_and_its_files_load(session: gradwire.Session, tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    gradwire.save({"w": gradwire.arange(5.0)}, "one", on="server")
    np.testing.assert_array_equal(library.load_file(path_of(tmp_path))["w"], np.arange(5.0, dtype=np.float32))
    library.save_file({"v": np.arange(4, dtype=np.int16)}, path_of(tmp_path, "two"))
    assert gradwire.load("two", on="server")["v"].tolist() == [0, 1, 2, 3]


def test_files_are_listed_replaced_deleted_and_bounded_in_number(session: gradwire.Session, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        gradwire.save({"x": gradwire.ones(1)}, name, on="server")
    gradwire.save({"x": gradwire.zeros(1)}, "b", on="server")
    listed = gradwire.saved_files()
    assert [each.name for each in listed] == ["a", "b", "c"]
    assert [each.nbytes for each in listed] == [path_of(tmp_path, each.name).stat().st_size for each in listed]
    with pytest.raises(RuntimeError, match="at most 3 files"):
        gradwire.save({}, "d", on="server")
    gradwire.delete_saved_file("a")
    gradwire.save({}, "d", on="server")
    assert gradwire.load("d", on="server") == {}
    assert gradwire.load("b", on="server")["x"].item() == 0.0
    with pytest.raises(RuntimeError, match="there is no file 'a'"):
        gradwire.delete_saved_file("a")
    with pytest.raises(RuntimeError, match="there is no file 'a'"):
        gradwire.load("a", on="server")


def test_bytes_are_bounded(filing_server: Running, session: gradwire.Session, tmp_path: Path) -> None:
    keep(filing_server, tmp_path / "files", max_bytes=10_000)
    gradwire.save({"x": gradwire.ones(1000)}, "one", on="server")
    with pytest.raises(RuntimeError, match="are left to the principal"):
        gradwire.save({"x": gradwire.ones(2000)}, "two", on="server")
    gradwire.save({"x": gradwire.ones(2000)}, "one", on="server")
    assert [path.name for path in path_of(tmp_path).parent.iterdir()] == ["one.safetensors"]


@pytest.mark.parametrize("name", ["", "../one", "a/b", "/etc/passwd", ".hidden", "a\0b", "x" * 101, "..", "ä"])
def test_names_are_no_paths(session: gradwire.Session, tmp_path: Path, name: str) -> None:
    for call in (
        lambda: gradwire.save({"x": gradwire.ones(1)}, name, on="server"),
        lambda: gradwire.load(name, on="server"),
        lambda: gradwire.delete_saved_file(name),
    ):
        with pytest.raises(ValueError, match="a file's name has 1 to 100"):
            call()
    assert list((tmp_path / "files").iterdir()) == []


def test_anothers_files_do_not_exist(tmp_path: Path) -> None:
    house = House(tmp_path)
    with running(1, tokens=house.known) as guarded:
        keep(guarded, tmp_path / "files")
        alice = gradwire.connect(guarded.address, token=house.tokens["alice"])
        gradwire.save({"x": gradwire.ones(1)}, "one", on="server")
        alice.close()
        bob = gradwire.connect(guarded.address, token=house.tokens["bob"])
        assert gradwire.saved_files() == []
        for call in (lambda: gradwire.load("one", on="server"), lambda: gradwire.delete_saved_file("one")):
            with pytest.raises(RuntimeError, match="there is no file 'one'"):
                call()
        bob.close()


@pytest.mark.parametrize("where", [0, 5, 40, -1, "flipped", "longer", "head"])
def test_a_damaged_file_is_refused_by_name_and_nothing_is_loaded(
    filing_server: Running, session: gradwire.Session, tmp_path: Path, where: Any
) -> None:
    gradwire.save({"x": gradwire.ones(1000), "y": gradwire.ones(3)}, "one", on="server")
    content = path_of(tmp_path).read_bytes()
    damaged = {
        "flipped": content[:-100] + bytes([content[-100] ^ 1]) + content[-99:],
        "longer": content + b"\0",
        "head": (1 << 63).to_bytes(8, "little") + content[8:],
    }.get(where) or content[: where if isinstance(where, int) else 0]
    path_of(tmp_path).write_bytes(damaged)
    gradwire.sync()
    held = filing_server.held()
    with pytest.raises(RuntimeError, match="the file 'one' is damaged") as caught:
        gradwire.load("one", on="server")
    assert caught.value.reason == "SNAPSHOT_DAMAGED"
    del caught
    filing_server.do(filing_server.tidy())
    assert filing_server.held() == held
    assert gradwire.ones(2).sum().item() == 2.0


def test_what_is_too_large_for_the_session_is_refused_before_it_is_read(
    session: gradwire.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = gradwire.ones(3 << 18, dtype=gradwire.float64)  # 6 of 8 MiB
    gradwire.save({"x": first}, "one", on="server")
    monkeypatch.setattr(tensor_files, "_fill", lambda *_: pytest.fail("it was read"))
    with pytest.raises(MemoryError):
        gradwire.load("one", on="server")
    assert first[0].item() == 1.0


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_disk_that_fails_leaves_the_file_before(
    session: gradwire.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    gradwire.save({"x": gradwire.ones(1)}, "one", on="server")
    x = gradwire.zeros(1)
    gradwire.sync()

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return fail if name == call else getattr(os, name)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tensor_files, "os", Failing())
        with pytest.raises(OSError, match="No space left on device") as caught:
            gradwire.save({"x": x}, "one", on="server")
    assert caught.value.reason == "STORAGE"
    assert [path.name for path in path_of(tmp_path).parent.iterdir()] == ["one.safetensors"]
    assert gradwire.load("one", on="server")["x"].item() == 1.0


def test_ids_are_the_clients_and_a_retry_applies_once(filing_server: Running) -> None:
    remote = filing_server.open()
    remote.create([1.0, 2.0], tensor_id=1)
    told = {"session_id": remote.id, "name": "one"}
    named = [{"name": "x", "id": 1}, {"name": "y", "id": 1}]
    remote.stub.SaveFile(files_pb2.SaveFileRequest(**told, tensors=named, metadata={"k": "v"}))
    request = files_pb2.LoadFileRequest(**told, request_id="r", ids=[7])
    answer = remote.stub.LoadFile(request)
    assert [each.name for each in answer.tensors] == ["x", "y"]
    assert answer.tensors[0].spec.id == 7
    assert dict(answer.metadata) == {"k": "v"}
    assert remote.stub.LoadFile(request) == answer
    assert remote.describe().tensor_count == 3
    np.testing.assert_array_equal(remote.read(remote.op("add", Id(7), Id(1)).id), [2.0, 4.0])
    again = files_pb2.LoadFileRequest(**told, ids=[9, 7])
    assert refused(remote.stub.LoadFile, again)[1] == "TENSOR_EXISTS"
    assert remote.describe().tensor_count == 4
    for tensors, metadata in (([named[0], named[0]], {}), ([{"id": 1}], {}), (named, {"gradwire.crc32": "0"})):
        request = files_pb2.SaveFileRequest(**told, tensors=tensors, metadata=metadata)
        assert refused(remote.stub.SaveFile, request)[1] == "ARGUMENT_VALUE"
    missing = files_pb2.SaveFileRequest(**told, tensors=[{"name": "x", "id": 99}])
    assert refused(remote.stub.SaveFile, missing)[1] == "TENSOR_NOT_FOUND"


def test_a_principals_files_are_written_one_at_a_time_whoever_comes_when(tmp_path: Path) -> None:
    """Else two that are written at once would pass the quota together."""
    under_way, most, ended = [0], [0], []

    class Slow:
        async def call(self, *_: Any) -> bytes:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(0.02)
            under_way[0] -= 1
            return b""

    class Everybodys:
        def find(self, session_id: str) -> Any:
            return SimpleNamespace(owner="alice", worker=Slow())

    async def save_all() -> None:
        files = Files(Everybodys())  # type: ignore[arg-type]
        await files.use_directory(FileDirectory(tmp_path, max_files=3))
        late: list[asyncio.Future[bytes]] = []

        def save(number: int) -> asyncio.Future[bytes]:
            return asyncio.ensure_future(files.save("s", str(number), b""))

        first, second = save(1), save(2)
        first.add_done_callback(lambda _: late.append(save(3)))  # as the second is about to have its turn
        ended.extend(await asyncio.gather(first, second))
        ended.append(await late[0])

    asyncio.run(save_all())
    assert ended == [b""] * 3
    assert most == [1]


def test_a_server_without_a_directory_names_the_setting() -> None:
    with running(0) as plain:
        session = gradwire.connect(plain.address)
        for call in (lambda: gradwire.save({}, "one", on="server"), lambda: gradwire.load("one", on="server"),
                     gradwire.saved_files, lambda: gradwire.delete_saved_file("one")):  # fmt: skip
            with pytest.raises(gradwire.GradwireError, match="--files-dir") as caught:
                call()
            assert caught.value.reason == "NOT_SUPPORTED"
        session.close()


def test_a_load_that_is_repeated_after_a_crash_applies_once(tmp_path: Path) -> None:
    first = Storing(tmp_path / "one", logs=True)
    keep(first, tmp_path / "files")
    session = first.open()
    session.create(np.arange(3.0), tensor_id=1)
    session.create(np.arange(9000.0), tensor_id=2)
    told = {"session_id": session.id, "name": "one"}
    session.stub.SaveFile(files_pb2.SaveFileRequest(**told, tensors=[{"name": "x", "id": 1}, {"name": "y", "id": 2}]))
    request = files_pb2.LoadFileRequest(**told, request_id="r", ids=[7])
    answer = session.stub.LoadFile(request)
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # as a crash would leave it
    second = Storing(tmp_path / "two", logs=True)
    keep(second, tmp_path / "files")
    restored = Remote(second.channel, session.opened)
    assert restored.stub.LoadFile(request) == answer
    assert restored.describe().tensor_count == 4
    for loaded, original in zip(answer.tensors, (1, 2), strict=True):
        np.testing.assert_array_equal(restored.read(loaded.spec.id), restored.read(original))
    first.stop()
    second.stop()


def test_a_load_that_the_disk_refuses_half_way_loads_nothing_and_goes_well_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Storing(tmp_path / "one", logs=True)
    keep(first, tmp_path / "files")
    session = first.open()
    session.create(np.arange(9000.0), tensor_id=2)
    told = {"session_id": session.id, "name": "one"}
    session.stub.SaveFile(files_pb2.SaveFileRequest(**told, tensors=[{"name": "y", "id": 2}]))
    request = files_pb2.LoadFileRequest(**told, ids=[7])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full)
        assert refused(session.stub.LoadFile, request)[1] == "UNAVAILABLE"
    wait_until(lambda: tried(session))
    assert session.describe().tensor_count == 1
    session.stub.LoadFile(request)
    shutil.copytree(tmp_path / "one", tmp_path / "two")  # as a crash would leave it
    second = Storing(tmp_path / "two", logs=True)
    restored = Remote(second.channel, session.opened)
    np.testing.assert_array_equal(restored.read(7), np.arange(9000.0))
    first.stop()
    second.stop()


def tried(session: Remote) -> bool:
    """Whether the log can be written again, which is found out by a call."""
    try:
        session.describe()
    except grpc.RpcError:
        return False
    return True


def wait_until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_what_was_loaded_survives_kill_9_though_the_file_is_gone(tmp_path: Path) -> None:
    with restarting_server(tmp_path, "--durability=log", "--snapshot-every=0") as server:
        session = gradwire.connect(server.address)
        session._retransmission.patience = 300.0
        state = {"w": gradwire.randn(300, 10), "b": gradwire.arange(3.0), "empty": gradwire.zeros(0)}
        expected = {name: bits(value) for name, value in state.items()}
        gradwire.save(state, "one", on="server")
        found = gradwire.load("one", on="server")
        again = gradwire.load("one", on="server")
        gradwire.delete_saved_file("one")
        found["b"] += 1.0
        found["b"].sum().item()
        server.kill()
        server.start()
        assert {name: bits(value) for name, value in again.items()} == expected
        assert bits(found["w"]) == expected["w"]
        assert found["b"].tolist() == [1.0, 2.0, 3.0]
        session.close()
