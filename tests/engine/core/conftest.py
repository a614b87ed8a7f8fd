"""Teams of threads, for tests of what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gradwire_engine.compile.fusion import team_code
from gradwire_engine.compile.fusion.kernel_cache import KERNELS
from gradwire_engine.core.team import Team


@pytest.fixture(scope="module")
def kernel() -> Any:
    """The code of teams."""
    made = KERNELS.built(team_code._team_code())
    assert made.entry is not None, made.failed
    return made


@pytest.fixture
def team(kernel: Any) -> Iterator[Team]:
    made = Team(kernel.entry, kernel)
    yield made
    made.end()
