"""The arithmetic that benchmarks stand on: ratios, their interval, bounds, and what the gate calls worse."""

import math

import pytest

pytest.importorskip("pytest_benchmark")

from benchmarks.__main__ import parser
from benchmarks.gate import is_worse, settled
from benchmarks.measure import Bound, Result, geometric_mean
from benchmarks.report import document, row
from gradwire_server.common import blas


def measured(*ratios: float, bound: Bound | None = None) -> Result:
    result = Result("suite", "row", "peer", bound or Bound())
    for ratio in ratios:
        result.add(ratio, 1.0, 1 / ratio if result.bound.at_least else None)
    return result


def test_the_ratio_is_the_median_of_the_pairs_and_not_that_of_the_drift() -> None:
    result = Result("suite", "row", "peer")
    for speed in (1.0, 10.0, 100.0):  # both sides slow down together
        result.add(2 * speed, speed)
    assert result.ratio == 2.0


@pytest.mark.parametrize("turns", [3, 5, 9, 15, 25])
def test_the_interval_covers_the_median_with_95_percent_where_so_few_turns_can(turns: int) -> None:
    low, high = measured(*range(1, turns + 1)).interval
    outside = 2 * sum(math.comb(turns, below) for below in range(int(low))) / 2**turns
    assert outside <= 0.05 or low == 1
    assert low + high == turns + 1
    one_further_in = 2 * sum(math.comb(turns, below) for below in range(int(low) + 1)) / 2**turns
    assert one_further_in > 0.05


def test_a_bound_that_the_interval_does_not_settle_has_a_question_mark() -> None:
    upper = Bound(2)
    assert measured(1, 1, 1, bound=upper).verdict == "pass"
    assert measured(1, 1, 3, bound=upper).verdict == "pass?"
    assert measured(1, 3, 3, bound=upper).verdict == "FAIL?"
    assert measured(3, 3, 3, bound=upper).verdict == "FAIL"
    assert measured(3, 3, 3).verdict == ""


def test_a_ratio_of_throughput_must_be_large() -> None:
    lower = Bound(0.5, at_least=True)
    fast, slow = measured(1.25, 1.25, 1.25, bound=lower), measured(5, 5, 5, bound=lower)
    assert (fast.ratio, fast.at_best, fast.verdict) == (0.8, 0.8, "pass")
    assert slow.verdict == "FAIL"


def test_the_gate_fails_only_what_is_worse_for_certain() -> None:
    assert is_worse(measured(2, 2, 2), committed=1.0, tolerance=1.5)
    assert not is_worse(measured(1.2, 2, 2), committed=1.0, tolerance=1.5)
    assert not is_worse(measured(1.4, 1.4, 1.4), committed=1.0, tolerance=1.5)
    lower = Bound(0.5, at_least=True)
    assert is_worse(measured(4, 4, 4, bound=lower), committed=0.5, tolerance=1.5)
    assert not is_worse(measured(1, 4, 4, bound=lower), committed=0.5, tolerance=1.5)
    assert settled(measured(1, 2, 3)) == 2
    assert settled(measured(1, 2, 4, bound=lower)) == 0.5


def test_halves_and_doubles_cancel_in_the_mean() -> None:
    assert geometric_mean([0.5, 2.0, 1.0]) == pytest.approx(1.0)


def test_a_row_reads_as_a_table_and_as_pytest_benchmarks_json() -> None:
    result = measured(1.5, 1.5, 1.5, bound=Bound(2, 1))
    assert "| 1.50 × (1.50–1.50) | 1.50 × | ≤ 2 × | ≤ 1 × | pass |" in row(result)
    written = document([result], {"commit": "abc", "date": "2026-01-01"})
    ours, theirs = written["benchmarks"]
    assert (ours["group"], ours["name"], theirs["name"]) == ("row", "gradwire", "peer")
    assert ours["stats"]["median"] == 1.5
    assert theirs["extra_info"]["holds"] is True


def test_each_command_has_defaults_of_its_own() -> None:
    def defaults(command: str) -> tuple[int, int]:
        given = parser().parse_args([command])
        return given.turns, given.threads

    both = min(2, blas.cores())
    assert [defaults(command) for command in ("suite", "ops", "tricks")] == [(9, both), (9, both), (200, 1)]
