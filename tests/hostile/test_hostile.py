"""Short versions of `make fuzz`, `make load` and `make soak`."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.hostile import refusal_effects
from tests.hostile.cancel_latency import measure_latencies
from tests.hostile.corruption import changed, cut, missing, restore_each, store
from tests.hostile.dispatch import drawn
from tests.hostile.load import load
from tests.hostile.log_replay import replay_log
from tests.hostile.over_socket import attack
from tests.hostile.soak import soak


def test_messages_drawn_and_changed_are_answered_or_refused_for_a_reason() -> None:
    reasons = drawn(seed=1, count=3000)
    assert reasons[""] > 500
    assert len(reasons) > 15


def test_two_thousand_changed_messages_over_a_socket_end_with_a_status_and_leave_nothing() -> None:
    codes, before, after = attack(2000, seed=1, workers=1)
    assert sum(codes.values()) == 2000
    assert codes["OK"] > 200
    assert after < before + 64


def test_a_stored_session_with_a_wrong_byte_is_refused_by_name_or_is_the_one_that_there_was(tmp_path: Path) -> None:
    home = tmp_path / "session"
    store(home)
    for damages in (changed(home, 1, 0.05), cut(home, 1, 0.02), missing(home)):
        found = restore_each(home, damages)
        assert found[".log refused by name"]
        assert found[".safetensors refused by name"]


def test_logs_of_random_commands_without_memory_now_and_then_lead_to_the_session_that_there_was() -> None:
    found = sum((replay_log(seed, 300) for seed in (16, 26, 39)), Counter[str]())
    assert found[""] > 200
    assert found["taken back"]
    assert found["MEMORY_LIMIT"]


def test_sessions_train_beside_one_that_floods_and_one_that_does_not_read() -> None:
    report = asyncio.run(load(20, 2.0, 0.2, workers=1))
    assert report["steps"] >= 18
    assert report["after"] < report["before"] + 200


def test_sessions_one_after_the_other_leave_no_memory_behind() -> None:
    before, after = soak(120, warm=60, workers=1)
    assert after <= 1.1 * before


def test_backwards_are_cancelled_at_any_moment_and_leave_no_gradient() -> None:
    took, _ = measure_latencies(5000, times=5, seed=1)
    assert len(took) == 5


def test_a_refused_command_leaves_the_session_as_it_was() -> None:
    assert refusal_effects.draw(1, 450).total() == 450
