"""The commands of `python -m benchmarks`: each has its own defaults; without a result it fails and saves nothing."""

from pathlib import Path

import pytest

from benchmarks.__main__ import parser, table


def test_each_command_has_its_own_defaults() -> None:
    turns = {
        name: parser().parse_args([name]).turns
        for name in ("suite", "ops", "small", "models", "first-steps", "tricks", "setting")
    }
    assert turns == {"suite": 9, "ops": 9, "small": 9, "models": 9, "first-steps": 9, "tricks": 200, "setting": 40}
    assert parser().parse_args(["tricks"]).threads == 1


def test_a_command_without_a_result_fails_and_saves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pytest_benchmark")
    file = tmp_path / "none.json"
    options = parser().parse_args(["ops", "--only", "x", "--json", str(file)])
    assert table(options, [], "no row contains x") == 1
    assert capsys.readouterr().out.endswith("no row contains x\n")
    assert not file.exists()
