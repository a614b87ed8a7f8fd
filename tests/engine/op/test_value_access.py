"""How composites read arrays: reading values ends a trace, layout and module do not."""

from dataclasses import replace

import numpy as np

from gradwire_engine import Context, activate, tensor
from gradwire_engine.op import value_access


class _Tracer:
    """Notes why it was ended."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def fail(self, why: str) -> None:
        self.failed.append(why)


def test_reading_a_tensors_values_ends_a_trace_and_reading_its_layout_does_not() -> None:
    x, tracer = tensor(np.ones((2, 3))), _Tracer()
    with activate(replace(Context(), tracer=tracer)):
        assert value_access.module_behind(x) is np
        assert value_access.is_row_major(x)
        assert tracer.failed == []
        assert value_access.read_array(x) is x.array
        assert tracer.failed == ["values are read"]


def test_an_array_is_read_as_it_is_without_ending_a_trace() -> None:
    array, tracer = np.ones((2, 3)), _Tracer()
    with activate(replace(Context(), tracer=tracer)):
        assert value_access.read_array(array) is array
    assert tracer.failed == []
    assert not value_access.is_row_major(array.T)
    assert value_access.module_behind(array) is np


def test_a_write_to_the_looked_at_array_counts_as_a_change() -> None:
    x = tensor(np.ones(2))
    before = x.storage.version
    value_access.mark_changed(x)
    assert x.storage.version == before + 1
    value_access.mark_changed(np.ones(2))
