"""A few seeds of `python -m tests.client.stored_programs`: storing a session after each step changes nothing."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import gradwire
from gradwire.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from tests.client.stored_programs import compare
from tests.server.test_durability import Storing


@pytest.fixture(scope="module")
def storing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storing]:
    server = Storing(Path(tmp_path_factory.mktemp("state")))
    yield server
    server.stop()


@pytest.mark.parametrize("seed", range(10))
def test_a_random_program_goes_on_equal_when_its_session_is_stored_after_each_step(storing: Storing, seed: int) -> None:
    compare(storing, seed, 20)


@pytest.mark.parametrize("whole", [False, True])
def test_a_checkpoint_still_ends_early_after_its_session_was_stored(storing: Storing, whole: bool) -> None:
    calls: list[int] = []

    def region(x: gradwire.Tensor) -> gradwire.Tensor:
        y = x.sin() * x
        calls.append(0)
        y = y.exp()
        y = y + 1
        calls.append(1)
        return y

    with contextlib.closing(gradwire.connect(storing.address)) as session, session:
        x = gradwire.arange(3.0, dtype=gradwire.float64).requires_grad_()
        with set_checkpoint_early_stop(not whole):
            y = checkpoint(region, x, use_reentrant=False)
        y.detach().sum().item()
        storing.put_away()
        y.sum().backward()
        assert calls == ([0, 1, 0, 1] if whole else [0, 1, 0])
        wanted = [math.exp(a * math.sin(a)) * (math.sin(a) + a * math.cos(a)) for a in range(3)]
        assert x.grad.tolist() == pytest.approx(wanted)
