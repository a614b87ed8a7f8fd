"""Teams of threads and libraries of matrix products, for tests of what they compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gradwire_engine.compile.fusion import team_code
from gradwire_engine.compile.fusion.kernel_cache import KERNELS
from gradwire_engine.core import matrix_product
from gradwire_engine.core.team import Team

LIBRARIES = {"oneDNN": matrix_product.library(), "OpenBLAS": matrix_product.openblas()}


@pytest.fixture(params=LIBRARIES)
def found_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Each of the libraries, which then computes products. Tests use oneDNN with AVX2, too."""
    found = LIBRARIES[request.param]
    if found is None:
        pytest.skip(f"{request.param} is missing")
    monkeypatch.setattr(matrix_product, "_fast", lambda: found)
    matrix_product._layout.cache_clear()
    yield found
    matrix_product._layout.cache_clear()


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
