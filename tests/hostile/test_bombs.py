"""Expensive requests are refused or ended, and another session continues; `make bombs` runs all of them."""

from tests.hostile.bomb_list import BOMBS
from tests.hostile.bombs import run
from tests.hostile.server_process import served

CHOSEN = (
    "op: eig", "op: einsum of all", "op: matrix_power", "op: fft of a prime",
    "shape: eye(70000)", "shape: tril_indices(1000000000)", "shape: one_hot with 1000000000",
    "shape: interpolate with 1000000000", "shape: mvlgamma with 1000000000", "shape: as_strided with 1000000000",
    "shape: expand then digamma with 1000000000", "shape: a million dimensions", "shape: combinations",
)  # fmt: skip


def test_bombs_are_refused_or_ended_and_a_session_beside_them_goes_on() -> None:
    with served("--workers=1", "--max-session-bytes=256MiB") as (address, _):
        outcomes, times = run(address, {name: BOMBS[name] for name in CHOSEN}, seconds=2.0)
    assert {each.name: each.how for each in outcomes if each.how == "answered"} == {}
    assert [each.said for each in outcomes if "internal" in each.said.lower()] == []
    assert times
