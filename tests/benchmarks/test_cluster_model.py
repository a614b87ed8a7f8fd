"""The model of large clusters: queues and limits where they can be reckoned by hand."""

import pytest

pytest.importorskip("simpy", reason="SimPy is not installed: pip install 'gradwire[bench]'")

from benchmarks.cluster_model import GIVE_UP_SECONDS, REPORT_SECONDS, Cluster, Costs, fail_over, quantile, table

COSTS = Costs(
    report=0.001, place=0.001, place_per_node=0.0, round_trip=0.0, open=0.01, take_over=0.02, check=1.0, silence=3.0
)


def test_the_director_is_busy_with_reports_and_places() -> None:
    found = Cluster(40, 20.0, COSTS).run(40.0)
    assert found.busy == pytest.approx(40 * 0.001 / REPORT_SECONDS + 20 * 0.001, rel=0.1)
    assert found.unplaced == 0
    assert quantile(found.opens, 0.5) == pytest.approx(0.011, abs=0.002)
    assert len(found.opens) == pytest.approx(20 * 40, rel=0.15)


def test_an_overloaded_director_delays_reports_and_sessions_are_opened_where_they_arrive() -> None:
    nodes = round(4 * REPORT_SECONDS / COSTS.report)  # four times what it can take
    found = Cluster(nodes, 20.0, COSTS).run(20.0)
    assert found.busy == pytest.approx(1.0, abs=0.02)
    assert quantile(found.reports, 0.5) > 2 * REPORT_SECONDS, "a node waits for its last report"
    assert found.unplaced / len(found.opens) > 0.9
    assert max(found.opens) < GIVE_UP_SECONDS + 0.2


def test_sessions_of_a_lost_machine_continue_one_after_the_other_at_each_server() -> None:
    few, many = fail_over(400, 1, COSTS), fail_over(400, 20, COSTS)
    assert len(few) == len(many) == 400
    assert max(few) == pytest.approx(3.0 + 1.0 + 400 * 0.02, rel=0.1)
    assert max(many) < 3.9 + 1.0 + 400 / 20 * 0.02 * 3


def test_the_table_has_a_line_per_size() -> None:
    lines = list(table([3, 5], 10, 60.0, 2.0, COSTS))
    assert [line.split("|")[1].strip() for line in lines] == ["nodes", "---", "3", "5"]
