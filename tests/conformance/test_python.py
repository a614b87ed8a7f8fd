"""Python's client gives PyTorch's answers to every scenario, and the scenarios are what live PyTorch answers."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwire
from gradwire._transport import retransmission
from gradwire._transport.embedded import EmbeddedServer
from tests.client.proxy import cutting
from tests.conformance import exported
from tests.conformance.interpreter import Checker, compare
from tests.conformance.make import FOLDER, is_same, stale, texts
from tests.conformance.sdks import BEGIN, END, PAGE

SCENARIOS = {
    f"{path.stem}: {scenario['name']}": scenario
    for path in sorted(FOLDER.glob("*.json"))
    for scenario in json.loads(path.read_text("utf-8"))
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = EmbeddedServer()
    yield running.address
    running.stop()


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIOS[name]
    if "cuts" in scenario:
        monkeypatch.setenv("GRADWIRE_LOCAL_STREAM", "0")
        monkeypatch.setenv("GRADWIRE_SHARED_MEMORY", "0")
        monkeypatch.setattr(retransmission, "_FIRST_BACKOFF", 0.005)
        drawn = random.Random(name)
        with cutting(server, iter(lambda: drawn.randint(*scenario["cuts"]), None)) as proxy:
            run(proxy.address, scenario)
            assert proxy.broken > 1
    else:
        run(server, scenario)
    reported(name)


def reported(name: str) -> None:
    """Note a success for the matrix."""
    if path := os.environ.get("GRADWIRE_CONFORMANCE_REPORT"):
        report = Path(path)
        told = json.loads(report.read_text("utf-8")) if report.exists() else {}
        report.write_text(json.dumps({**told, name: "ok"}), "utf-8")


def run(address: str, scenario: dict[str, Any]) -> None:
    session = gradwire.connect(address)
    try:
        Checker(gradwire).run(scenario["steps"])
    finally:
        session.close()


def test_scenarios_are_pytorchs_answers() -> None:
    pytest.importorskip("torch", reason="PyTorch is the oracle of the scenarios")
    assert not stale(texts()), "run `python -m tests.conformance.make`"


def test_an_exported_model_trains_as_in_pytorch(server: str) -> None:
    told = json.loads(exported.LOSSES.read_text("utf-8"))
    session = gradwire.connect(server)
    loaded = gradwire.load_program(exported.FILE)
    x, y = gradwire.tensor(told["x"]), gradwire.tensor(told["y"])
    losses = [loaded(x, y).item() for _ in told["losses"]]
    session.close()
    assert losses == pytest.approx(told["losses"], rel=1e-5)


def test_the_losses_of_the_exported_model_are_pytorchs() -> None:
    pytest.importorskip("torch", reason="PyTorch is the oracle of the scenarios")
    told = exported.LOSSES.read_text("utf-8")
    assert is_same(exported.expected(), told), "run `python -m tests.conformance.exported`"


def test_answers_that_differ_in_more_than_the_last_digits_are_stale() -> None:
    assert is_same('{"a": [0.5, 1]}', '{"a": [0.50000001, 1]}')
    for other in ('{"a": [0.5001, 1]}', '{"a": [0.5, 2]}', '{"a": [0.5]}', '{"b": [0.5, 1]}', '{"a": [0.5, 1.0]}'):
        assert not is_same('{"a": [0.5, 1]}', other)


def test_the_committed_matrix_has_all_scenarios() -> None:
    """Which client passes what only `python -m tests.conformance.sdks --matrix` finds out."""
    table = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.split("\n") if line.startswith("| ")]
    counts = Counter(name.partition(":")[0].replace("_", " ") for name in SCENARIOS)
    assert rows[2:] == [[subject, str(count)] for subject, count in sorted(counts.items())]


def test_a_wrong_answer_fails() -> None:
    said = {"dtype": "float32", "shape": [2], "values": [1.0, 2.0]}
    compare({**said, "values": [1.0, 2.000001]}, said, {})
    for wrong in ({"values": [1.0, 2.1]}, {"values": ["nan", 2.0]}, {"shape": [1, 2]}, {"dtype": "float64"}):
        with pytest.raises(AssertionError):
            compare({**said, **wrong}, said, {})
