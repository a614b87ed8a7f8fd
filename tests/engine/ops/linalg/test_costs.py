"""Cost estimates of products and decompositions: they grow with the work, by dtype and by batch."""

import numpy as np
import pytest

from gradwire_engine.op.cost import LOOP
from gradwire_engine.ops.linalg import costs


def _zeros(*shape: int, dtype: type = np.float64) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def test_a_product_is_linear_in_each_size() -> None:
    once = costs.product(1000, 1000, 1000, np.dtype(np.float64))
    for sizes in ((2000, 1000, 1000), (1000, 2000, 1000), (1000, 1000, 2000)):
        assert 1.9 < costs.product(*sizes, np.dtype(np.float64)) / once <= 2.0


def test_dtypes_without_blas_cost_more() -> None:
    cost = {name: costs.product(100, 100, 100, np.dtype(name)) for name in ("f4", "f8", "c16", "i8")}
    assert cost["f4"] < cost["f8"] < cost["c16"] < cost["i8"]


def test_leading_dimensions_of_rows_count_as_rows() -> None:
    assert costs.mm_cost(_zeros(5, 7, 3), _zeros(3, 4)) == costs.mm_cost(_zeros(35, 3), _zeros(3, 4))


@pytest.mark.parametrize(
    ("one", "other", "batch"),
    [((6, 2, 3), (6, 3, 4), 6), ((2, 3), (6, 3, 4), 6), ((6, 1, 2, 3), (1, 5, 3, 4), 30), ((6, 2, 3), (3, 4), 6)],
)
def test_a_batch_costs_the_broadcast_number_of_products(one: tuple, other: tuple, batch: int) -> None:
    single = costs.bmm_cost(_zeros(1, *one[-2:]), _zeros(1, *other[-2:]))
    assert costs.bmm_cost(_zeros(*one), _zeros(*other)) == batch * single


def test_a_decomposition_grows_with_the_third_power_and_with_the_dtype() -> None:
    cost = costs.lapack(1.0)
    work = [cost.forward(_zeros(n, n)) - LOOP for n in (500, 1000)]
    assert 7 < work[1] / work[0] < 8.1
    single, double, complex_ = (cost.forward(_zeros(99, 99, dtype=t)) for t in (np.float32, np.float64, np.complex128))
    assert single < double < complex_
    assert cost.forward(_zeros(3, 9, 9)) == 3 * cost.forward(_zeros(9, 9))
    assert cost.backward(_zeros(9, 9)) == 4 * cost.forward(_zeros(9, 9))


def test_formulas_of_a_tall_matrix_cost_squares_of_its_larger_side() -> None:
    plain, tall = costs.lapack(1.0), costs.tall(costs.lapack(1.0))
    assert tall.forward is plain.forward or tall.forward(_zeros(9, 9)) == plain.forward(_zeros(9, 9))
    more = [tall.backward(_zeros(n, 4)) - plain.backward(_zeros(n, 4)) for n in (1000, 2000)]
    assert more[1] / more[0] == pytest.approx(4)
