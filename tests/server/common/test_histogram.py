"""Histograms count a value in the bucket whose upper bound it does not pass."""

import pytest

from gradwire_server.common.histogram import COMMANDS, SECONDS, Histogram


@pytest.mark.parametrize(("value", "bucket"), [(0, 0), (1, 0), (1.5, 1), (2, 1), (10, 2), (11, 3), (-1, 0)])
def test_a_value_counts_up_to_its_bound(value: float, bucket: int) -> None:
    histogram = Histogram((1, 2, 10))
    histogram.add(value)
    assert histogram.counts == [int(place == bucket) for place in range(4)]


def test_counts_and_the_sum_are_told_as_they_are_now() -> None:
    histogram = Histogram((1, 2))
    histogram.add(0.5)
    as_json = histogram.as_json()
    histogram.add(3.0)
    assert as_json == {"counts": [1, 0, 0], "total": 0.5}
    assert histogram.as_json() == {"counts": [1, 0, 1], "total": 3.5}


@pytest.mark.parametrize("bounds", [SECONDS, COMMANDS])
def test_the_metrics_bounds_ascend(bounds: tuple) -> None:
    assert list(bounds) == sorted(set(bounds))
    assert len(Histogram(bounds).counts) == len(bounds) + 1
