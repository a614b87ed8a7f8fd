"""Jobs of matrix products: their parts are products at equal distances, which write each element once."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from gradwire_engine.backends.product_facts import PRODUCT_FACTS, PRODUCT_NUMBERS, products_of
from gradwire_engine.core import matrix_product as module


def test_a_part_is_products_at_equal_distances() -> None:
    numbers = [ord("N"), ord("T"), 2, 3, 4, 1000, 4, 2000, 4, 3000, 3, 2, 32, 48, 24, 0]
    assert len(numbers) == PRODUCT_NUMBERS
    facts = array("q", [0] * (PRODUCT_FACTS + PRODUCT_NUMBERS) + numbers)
    assert list(products_of(facts, 1)) == [
        (b"N", b"T", 2, 3, 4, 1000, 4, 2000, 4, 3000, 3),
        (b"N", b"T", 2, 3, 4, 1032, 4, 2048, 4, 3024, 3),
    ]


@pytest.mark.parametrize("length", [2, 15, 16, 17, 31, 33, 64, 100, 257])
@pytest.mark.parametrize("cores", [1, 2, 3, 5, 8, 31, 32])
def test_the_parts_of_a_job_write_each_element_once(length: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CORES", cores)
    module._layout.cache_clear()
    for other, lead in ((40, ()), (257, ()), (64, (3,))):
        shape = (*lead, length, other)
        made = np.empty(shape, np.float32)
        written = np.zeros(shape, np.int64)
        layout = module._layout(
            (*lead, length, 3000),
            np.empty((*lead, length, 3000), np.float32).strides,
            (*lead, 3000, other),
            np.empty((*lead, 3000, other), np.float32).strides,
            made.strides,
        )
        assert layout is not None
        for number in range(layout.parts):
            for product in products_of(layout.facts, number):
                rows, columns, at, leading = *product[2:4], product[9] // 4, product[10]
                places = at + leading * np.arange(rows)[:, None] + np.arange(columns)
                np.add.at(written.reshape(-1), places.reshape(-1), 1)
        assert (written == 1).all()
    module._layout.cache_clear()
