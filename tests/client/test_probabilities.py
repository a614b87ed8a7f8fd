"""Probabilities of Bernoulli draws: the dtypes that PyTorch takes, and its refusals of the others."""

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("session")
FLOATS = ["float16", "bfloat16", "float32", "float64"]
WHOLE = ["uint8", "int32", "int64", "bool"]
COMPLEX = ["complex64", "complex128"]


def _ones(t, dtype):
    return t.ones(5).to(getattr(t, dtype))


def _seeded(t, draw):
    t.manual_seed(3)
    return draw()


@pytest.mark.parametrize("dtype", [*WHOLE, *COMPLEX])
def test_probabilities_are_floating_point_numbers(dtype):
    kernel = "tensor_cpu_self_" if dtype in COMPLEX else "tensor_cpu_p_"
    refuse(lambda t: t.bernoulli(_ones(t, dtype)), NotImplementedError, kernel)
    refuse(lambda t: _ones(t, dtype).bernoulli(), NotImplementedError, kernel)
    refuse(lambda t: _ones(t, "float32").bernoulli_(_ones(t, dtype)), NotImplementedError, "bernoulli_tensor_cpu_p_")
    refuse(lambda t: _ones(t, "int64").bernoulli_(_ones(t, dtype)), NotImplementedError, "bernoulli_tensor_cpu_p_")


@pytest.mark.parametrize("dtype", COMPLEX)
def test_results_are_real(dtype):
    refuse(lambda t: _ones(t, dtype).bernoulli_(0.5), NotImplementedError, "bernoulli_scalar_cpu_")
    refuse(lambda t: t.bernoulli(_ones(t, dtype), 0.5), NotImplementedError, "bernoulli_scalar_cpu_")
    refuse(lambda t: _ones(t, dtype).bernoulli_(_ones(t, "float32")), NotImplementedError, "bernoulli_tensor_cpu_self_")


@pytest.mark.parametrize("dtype", [*FLOATS, *WHOLE])
def test_a_number_is_a_probability_for_results_of_any_real_dtype(dtype):
    agree(lambda t: _seeded(t, lambda: _ones(t, dtype).bernoulli_(0.4)))
    agree(lambda t: _seeded(t, lambda: t.bernoulli(_ones(t, dtype), 0.4)))
    agree(lambda t: _seeded(t, lambda: _ones(t, dtype).bernoulli_(_ones(t, "float64") * 0.4)))
