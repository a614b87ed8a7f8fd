"""Gradients of as_strided from inputs whose elements share memory, beside PyTorch's."""

import numpy as np
import pytest

from tests.client.oracle import agree

pytestmark = pytest.mark.usefixtures("session")
RNG = np.random.default_rng(0)  # conftest.py seeds it anew for each test


def _whole(size):
    """Numbers whose products and sums are exact."""
    return RNG.integers(-9, 10, size).astype(float)


# What shows a vector of five elements, and the geometry that then shows it anew.
CASES = {
    "rows": (lambda x: x.expand(5, 5), [5, 5], [0, 1], 0),
    "diagonals": (lambda x: x.expand(5, 5), [3, 3], [1, 1], 0),
    "columns": (lambda x: x.expand(4, 5).t(), [5, 4], [1, 0], 0),
    "windows": (lambda x: x.unfold(0, 3, 1), [3, 3], [1, 1], 0),
    "outside": (lambda x: x[1:3].expand(2, 2), [4], [1], 1),
    "no overlap": (lambda x: x, [3, 3, 3], [0, 1, 0], 2),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_at_one_place_share_its_gradient(name):
    show, size, stride, offset = CASES[name]
    values, weights = _whole(5), _whole(size)

    def gradients(t):
        x = t.tensor(values, requires_grad=True)
        y = show(x).as_strided(size, stride, offset)
        first = t.autograd.grad((y * y * t.tensor(weights)).sum(), x, create_graph=True)[0]
        return first.detach(), t.autograd.grad((first * first).sum(), x)[0]

    agree(gradients)


MAPPED = {
    "windows": lambda x: x.as_strided((2, 2), (1, 1)) ** 3,
    "with an offset": lambda x: (x * 2).as_strided((2,), (2,), 1),
    "of a transposed view": lambda x: x.view(2, 2).t().as_strided((3,), (1,)).sin(),
    "of a slice": lambda x: x[1:].as_strided((2,), (1,)),
}


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("way", ["jacfwd", "hessian", "jvp under vmap"])
def test_forward_mode_maps_over_what_as_strided_shows(name, way):
    function = MAPPED[name]

    def derivative(t):
        x = t.arange(4.0, dtype=t.float64)
        if way == "jacfwd":
            return t.func.jacfwd(function)(x)
        if way == "hessian":
            return t.func.hessian(lambda x: function(x).sum())(x)
        return t.func.vmap(lambda direction: t.func.jvp(function, (x,), (direction,)))(t.eye(4, dtype=t.float64))

    agree(derivative)
