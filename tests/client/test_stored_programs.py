"""A few seeds of `python -m tests.client.stored_programs`: storing a session after each step changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

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
