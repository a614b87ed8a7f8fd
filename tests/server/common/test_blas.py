"""The number of threads follows the workers that have work."""

from gradwire_server.common.blas import Follower


def test_the_share_of_the_cores_is_told_when_it_changes() -> None:
    told: list[int] = []
    follow = Follower(6, told.append)
    for runnable in (1, 1, 2, 4, 0, 12):
        follow(runnable)
    assert told == [6, 3, 1, 6, 1]


def test_a_number_that_was_asked_for_stays() -> None:
    told: list[int] = []
    Follower(0, told.append)(3)
    assert told == []
