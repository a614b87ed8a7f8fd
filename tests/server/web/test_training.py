"""Event files of TensorBoard below the gateway's folder: what is read, what is not, and within which bounds."""

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the gateway needs the extra [web]")

from gradwire.utils.tensorboard import SummaryWriter
from gradwire.v1.tensorboard_events import DT_FLOAT, DT_STRING, Event, record
from gradwire_server.web.training import event_files, event_series
from gradwire_server.web.training.endpoints import MOST_BYTES, MOST_SERIES
from gradwire_server.web.training.event_files import EventFiles
from gradwire_server.web.training.event_series import MOST_POINTS, Room, Run, Sample
from tests.server.harness import until
from tests.server.web.harness import Running, gateway_to, served, token_file

NAME = "events.out.tfevents.1.host"
EVIL = "<img src=x onerror=alert(1)>"


def event(step: int, tag: str = "loss", **fields: Any) -> bytes:
    made = Event(step=step, wall_time=1000.0 + step)
    made.summary.value.add(tag=tag, **fields)
    return made.SerializeToString()


def scalars(*values: float, tag: str = "loss") -> bytes:
    return b"".join(record(event(step, tag, simple_value=value)) for step, value in enumerate(values))


def written(folder: Path, data: bytes, name: str = NAME) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], dict[str, Any]]:
    """A look at the files below tmp_path / "logs", without waiting for a second since the last one."""
    monkeypatch.setattr(event_files, "_LOOK_SECONDS", -1.0)
    (tmp_path / "logs").mkdir()
    files = EventFiles(str(tmp_path / "logs"))

    def once() -> dict[str, Any]:
        files.look()
        return files.listing()

    once.files = files  # type: ignore[attr-defined]
    return once


def test_what_summary_writer_writes_is_read(tmp_path: Path, look: Any) -> None:
    with SummaryWriter(tmp_path / "logs" / "one") as writer:
        for step in range(3):
            writer.add_scalar("loss", step / 2, step, walltime=10.0 + step)
        writer.add_histogram("weights", [0.0, 1.0, 1.0, 3.0], 7, walltime=5.0)
        writer.add_image("image", [[[0.0, 1.0]]], 2, walltime=6.0)
        writer.add_text("note", f"# Über {EVIL}", 4, walltime=7.0)
    (run,) = look()["runs"]
    kinds = {"scalars": {"loss": 3}, "histograms": {"weights": 1}, "images": {"image": 1}, "texts": {"note": 1}}
    assert run == {"name": "one", **kinds}
    assert look.files.points("texts", "one", "note") == [[4, 7.0, f"# Über {EVIL}"]]
    assert look.files.points("scalars", "one", "loss") == [[0, 10.0, 0.0], [1, 11.0, 0.5], [2, 12.0, 1.0]]
    ((step, wall, buckets),) = look.files.points("histograms", "one", "weights")
    assert (step, wall, sum(buckets[2::3]), buckets[1::3][-1]) == (7, 5.0, 4, 3.0)
    assert look.files.points("images", "one", "image") == [[2, 6.0, 2, 1]]
    assert look.files.image("one", "image", 2).startswith(b"\x89PNG")
    assert look.files.image("one", "image", 3) is None


def test_files_are_followed_as_they_grow_even_within_a_record(tmp_path: Path, look: Any) -> None:
    data = scalars(1.0, 2.0, 3.0)
    path = written(tmp_path / "logs", data[:60])
    seen = look()["runs"][0]["scalars"]
    path.write_bytes(data[:61])
    assert look()["runs"][0]["scalars"] == seen
    path.write_bytes(data)
    assert look()["runs"] == [{"name": ".", "scalars": {"loss": 3}, "histograms": {}, "images": {}, "texts": {}}]
    assert look()["problems"] == []


def test_a_file_that_became_shorter_or_is_gone_is_forgotten(tmp_path: Path, look: Any) -> None:
    path = written(tmp_path / "logs" / "run", scalars(1.0, 2.0, 3.0))
    look()
    path.write_bytes(scalars(5.0))
    look()
    look()
    assert look.files.points("scalars", "run", "loss") == [[0, 1000.0, 5.0]]
    path.unlink()
    look()
    assert look()["runs"] == []
    assert look.files._room.series["scalars"] == 0


def test_a_restart_hides_the_steps_from_its_own_on(tmp_path: Path, look: Any) -> None:
    folder = tmp_path / "logs" / "run"
    written(folder, scalars(0.0, 1.0, 2.0, 3.0), NAME + "a")
    restart = Event(step=2)
    restart.session_log.status = 1
    written(folder, record(restart.SerializeToString()) + record(event(2, simple_value=9.0)), NAME + "b")
    look()
    assert [each[2] for each in look.files.points("scalars", "run", "loss")] == [0.0, 1.0, 9.0]


def test_a_number_in_a_tensor_is_a_scalar(tmp_path: Path, look: Any) -> None:
    given = [{"float_val": [1.5]}, {"content": struct.pack("<f", 2.5)}, {"content": b"xx"}, {"string_val": [b"a"]}]
    made = [record(event(step, tensor={"dtype": DT_FLOAT, **fields})) for step, fields in enumerate(given)]
    written(tmp_path / "logs", b"".join(made))
    look()
    assert [each[2] for each in look.files.points("scalars", ".", "loss")] == [1.5, 2.5]


def test_numbers_that_json_lacks_are_gaps(tmp_path: Path, look: Any) -> None:
    written(tmp_path / "logs", scalars(float("nan"), float("inf"), 1.0))
    look()
    points = look.files.points("scalars", ".", "loss")
    assert [each[2] for each in points] == [None, None, 1.0]
    json.dumps(points, allow_nan=False)


@pytest.mark.parametrize(
    "histogram",
    [
        {"bucket_limit": [1.0], "bucket": []},
        {"bucket_limit": [2.0, 1.0], "bucket": [1, 1]},
        {"bucket_limit": [float("nan")], "bucket": [1]},
        {"bucket_limit": [1.0], "bucket": [-1]},
        {"bucket_limit": [1.0], "bucket": [float("nan")]},
        {"bucket_limit": [1.0, 2.0], "bucket": [1e308, 1e308]},
    ],
)
def test_what_is_no_histogram_is_left_out(tmp_path: Path, look: Any, histogram: dict[str, Any]) -> None:
    written(tmp_path / "logs", record(event(0, histogram=histogram)))
    look()
    assert look.files.points("histograms", ".", "loss") == []


def test_many_buckets_are_joined_and_an_open_end_is_closed(tmp_path: Path, look: Any) -> None:
    limits = [float(i) for i in range(1000)] + [1.7976931348623157e308]
    histogram = {"bucket_limit": limits, "bucket": [1.0] * 1001, "min": -3.0, "max": 1005.0}
    written(tmp_path / "logs", record(event(0, histogram=histogram)))
    look()
    ((_, _, buckets),) = look.files.points("histograms", ".", "loss")
    assert len(buckets) <= 3 * event_series.MOST_BUCKETS
    assert (buckets[0], buckets[-2], sum(buckets[2::3])) == (-3.0, 1005.0, 1001)
    assert buckets[3::3] == buckets[1:-3:3]


@pytest.mark.parametrize(
    "damage", [b"junk" * 100, scalars(1.0) + os.urandom(500), record(b"\xff\xff\xff") + scalars(1.0)]
)
def test_junk_is_told_and_crashes_nothing(tmp_path: Path, look: Any, damage: bytes) -> None:
    written(tmp_path / "logs" / "bad", damage)
    written(tmp_path / "logs" / "good", scalars(1.0, 2.0))
    found = look()
    assert [run["scalars"] for run in found["runs"] if run["name"] == "good"] == [{"loss": 2}]
    (problem,) = found["problems"]
    assert problem.startswith(f"bad/{NAME}: ")
    assert look()["problems"] == [problem]


def test_links_and_devices_are_not_read(tmp_path: Path, look: Any) -> None:
    logs = tmp_path / "logs"
    secret = written(tmp_path / "elsewhere", scalars(1.0))
    (logs / NAME).symlink_to(secret)
    (logs / "folder").symlink_to(secret.parent)
    os.mkfifo(logs / (NAME + "pipe"))
    found = look()
    assert found["runs"] == []
    assert len(found["problems"]) == 2


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "run", scalars(1.0))
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    files = EventFiles(str(tmp_path / "link"))
    files.look()
    assert [run["name"] for run in files.listing()["runs"]] == ["run"]


def test_a_folder_that_is_gone_is_told_and_read_when_it_is_back(tmp_path: Path, look: Any) -> None:
    written(tmp_path / "logs", scalars(1.0))
    look()
    (tmp_path / "logs").rename(tmp_path / "away")
    assert look() == {"runs": [], "problems": ["the folder cannot be read: No such file or directory"], "more": True}
    (tmp_path / "away").rename(tmp_path / "logs")
    assert look()["runs"][0]["scalars"] == {"loss": 1}


def test_a_folder_that_cannot_be_listed_is_told_without_paths_of_the_machine(
    tmp_path: Path, look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "logs" / "closed", scalars(1.0))
    real = os.open

    def refused(path: Any, *rest: Any, **names: Any) -> int:
        if path == "closed":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest, **names)

    monkeypatch.setattr(os, "open", refused)
    assert look()["problems"] == ["folder closed: Permission denied"]


def test_a_long_file_is_read_in_parts(tmp_path: Path, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "READ_BYTES", 500)
    written(tmp_path / "logs", scalars(*range(100)))
    looks = 0
    while look()["more"]:
        looks += 1
    assert 5 < looks < 50
    assert len(look.files.points("scalars", ".", "loss")) == 100


def test_series_and_images_are_bounded(tmp_path: Path, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_series, "MOST_SERIES", {"scalars": 3, "histograms": 1, "images": 2})
    monkeypatch.setattr(event_series, "MOST_IMAGES_BYTES", 1000)
    tags = b"".join(scalars(1.0, tag=f"tag{i}") for i in range(9)) + scalars(1.0, tag="x" * 1000)
    images = b"".join(record(event(i, image={"encoded": b"x" * 300})) for i in range(50))
    written(tmp_path / "logs", tags + images)
    found = look()
    assert len(found["runs"][0]["scalars"]) == 3
    assert "left out" in found["problems"][0]
    assert 0 < len(look.files.points("images", ".", "loss")) * 300 == look.files._room.image_bytes <= 1000


def test_texts_are_cut_and_bounded(tmp_path: Path, look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_series, "MOST_TEXT_BYTES", 8)
    monkeypatch.setattr(event_series, "MOST_TEXTS_BYTES", 22)
    with SummaryWriter(tmp_path / "logs" / "one") as writer:
        for tag, words in (("long", "1234567ü9"), ("exact", "12345678"), ("third", "12345678"), ("short", "ü\n")):
            writer.add_text(tag, words, 0, walltime=1.0)
    look()
    found = {tag: look.files.points("texts", "one", tag) for tag in ("long", "exact", "third", "short")}
    assert found == {
        "long": [[0, 1.0, "1234567 …"]],
        "exact": [[0, 1.0, "12345678"]],
        "third": [],
        "short": [[0, 1.0, "ü\n"]],
    }
    table = {"dtype": DT_STRING, "string_val": [b"a", b"\xff"]}
    plugin = {"plugin_data": {"plugin_name": "text"}}
    written(tmp_path / "logs" / "two", record(event(1, "t", tensor=table, metadata=plugin)))
    written(tmp_path / "logs" / "none", record(event(1, "t", tensor=table)))
    seen = {"long": 1, "exact": 1, "third": 0, "short": 1}
    assert {run["name"]: run["texts"] for run in look()["runs"]} == {"none": {}, "one": seen, "two": {"t": 1}}
    assert look.files.points("texts", "two", "t") == [[1, 1001.0, "a\n\ufffd"]]


def test_a_sample_is_bounded_keeps_the_newest_and_spreads() -> None:
    run = Run(Room())
    for step in range(20_000):
        run.take(Event.FromString(event(step, simple_value=0.0)))
    steps = [each[0] for each in run.series["scalars"]["loss"].points()]
    assert len(steps) == MOST_POINTS["scalars"]
    assert steps[-1] == 19_999
    assert steps == sorted(steps)
    assert all(100 < sum(first <= step < first + 5000 for step in steps) < 400 for first in range(0, 20_000, 5000))
    assert Sample(1).place(1) == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, list[str]]]:
    folder = tmp_path_factory.mktemp("trained")
    with SummaryWriter(folder / "logs" / EVIL.replace("/", "")) as writer:
        writer.add_scalar(EVIL, 1.0, 0)
        writer.add_image("image", [[[1.0]]], 0)
    written(Path(os.fsdecode(os.fsencode(folder / "logs") + b"/\xff")), scalars(1.0))
    path, tokens = token_file(folder, "alice")
    options = {"credentials_required": True, "logdir": str(folder / "logs")}
    with served(f"--token-file={path}") as address, gateway_to(address, **options) as gateway:
        yield gateway, tokens


def post(trained: tuple[Running, list[str]], path: str, given: Any = None) -> Any:
    gateway, (alice,) = trained
    with gateway.client(authorization=f"Bearer {alice}") as client:
        return client.post(f"/training/{path}", json={} if given is None else given)


def test_names_travel_as_they_are(trained: tuple[Running, list[str]]) -> None:
    listed = post(trained, "list")
    assert listed.headers["content-type"] == "application/json"
    runs = listed.json()["runs"]
    assert [(run["name"], list(run["scalars"])) for run in runs] == [(EVIL, [EVIL]), ("\udcff", ["loss"])]
    series = [["scalars", EVIL, EVIL], ["scalars", "\udcff", "loss"], ["scalars", "../..", "loss"]]
    body = json.dumps({"series": series})
    gateway, (alice,) = trained
    with gateway.client(authorization=f"Bearer {alice}") as client:
        found = client.post("/training/read", content=body, headers={"content-type": "application/json"})
    first, second, third = found.json()["series"]
    assert (first[0][2], second[0][2], third) == (1.0, 1.0, None)


def test_an_image_is_bytes_and_no_page(trained: tuple[Running, list[str]]) -> None:
    found = post(trained, "image", {"run": EVIL, "tag": "image", "step": 0})
    assert found.content.startswith(b"\x89PNG")
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert post(trained, "image", {"run": EVIL, "tag": "image", "step": 1}).status_code == 404


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("read", {"series": "x"}),
        ("read", {"series": [["scalars", "run", 1]]}),
        ("read", {"series": [["scalars", "run", "tag"]] * (MOST_SERIES + 1)}),
        ("read", []),
        ("image", {"run": "x", "tag": "y", "step": "0"}),
    ],
)
def test_requests_that_fit_nothing_are_refused(trained: tuple[Running, list[str]], path: str, given: Any) -> None:
    assert post(trained, path, given).status_code == 400


@pytest.mark.parametrize("path", ["list", "read", "image"])
def test_strangers_and_junk_are_refused(trained: tuple[Running, list[str]], path: str) -> None:
    gateway, (alice,) = trained
    json_type = {"content-type": "application/json"}
    with gateway.client() as client:
        assert client.post(f"/training/{path}", json={}).status_code == 401
        wrong = {"authorization": "Bearer gradwire_0000000000000000_" + "1" * 43}
        assert client.post(f"/training/{path}", json={}, headers=wrong).status_code == 401
        allowed = {"authorization": f"Bearer {alice}"}
        assert client.post(f"/training/{path}", content=b"{}", headers=allowed).status_code == 415
        junk = client.post(f"/training/{path}", content=b"\xff" * (10 << 20), headers={**allowed, **json_type})
        assert junk.status_code in (413, 429)
        assert junk.json()["details"][0]["debug"]["reason"] == "MESSAGE_TOO_LARGE"
        small = client.post(f"/training/{path}", content=b"\xff" * MOST_BYTES, headers={**allowed, **json_type})
        assert small.status_code == 400
        other = {**allowed, "origin": "https://evil.example"}
        assert client.post(f"/training/{path}", json={}, headers=other).status_code == 403


def test_a_token_that_is_revoked_reads_no_more(tmp_path: Path) -> None:
    path, (alice, bob) = token_file(tmp_path, "alice", "bob")
    options = {"credentials_required": True, "logdir": str(tmp_path)}
    with (
        served(f"--token-file={path}") as address,
        gateway_to(address, **options) as gateway,
        gateway.client(authorization=f"Bearer {alice}") as client,
    ):
        assert client.post("/training/list", json={}).status_code == 200
        path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("alice")))
        until(lambda: client.post("/training/list", json={}).status_code == 401, "the token revoked")
        assert client.post("/training/list", json={}, headers={"authorization": f"Bearer {bob}"}).status_code == 200


def test_a_gateway_without_a_folder_says_so(gateway: Running) -> None:
    with gateway.client() as client:
        assert client.post("/training/list", json={}).json()["configured"] is False
        assert client.post("/training/read", json={"series": []}).status_code == 404
