"""Each engine test computes in surroundings of its own, so that bytes can be counted."""

from collections.abc import Iterator

import pytest

from gradwire_engine import Context, activate


@pytest.fixture(autouse=True)
def context() -> Iterator[Context]:
    """A fresh context: grad mode on, no byte limit, nothing counted yet."""
    fresh = Context()
    with activate(fresh):
        yield fresh
