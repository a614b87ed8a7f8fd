"""Rounding as quantization would: values, gradients and refusals are those of PyTorch."""

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("deferring")
VALUES = [[float("nan"), 0.26, -7.0, 3.05], [0.049, 0.05, -0.051, 1000.0]]
RANGES = [(0.1, 0, 0, 255), (0.03, 10, 0, 20), (0.7, -3, -128, 127), (1 / 3, 0, -8, 7)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("scale", "zero_point", "low", "high"), RANGES)
def test_values_and_gradients_are_those_of_pytorch(scale, zero_point, low, high, dtype):
    def case(t):
        x = t.tensor(VALUES, dtype=getattr(t, dtype), requires_grad=True)
        many = t.linspace(0.05, 1, 4), t.tensor([zero_point] * 4, dtype=t.int32)
        made = [
            t.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high),
            t.fake_quantize_per_tensor_affine(x, t.tensor(scale), t.tensor(zero_point, dtype=t.int32), low, high),
            t.fake_quantize_per_channel_affine(x, *many, 1, low, high),
        ]
        grads = [t.autograd.grad((each * each.detach()).sum(), x)[0] for each in made]
        return [each.detach() for each in made], grads

    agree(case)


REFUSED = {
    "zero point": lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 300, 0, 255),
    "quant_min": lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 0, 3, 2),
    "zero point of a channel": lambda t: t.fake_quantize_per_channel_affine(
        t.ones(2), t.ones(2), t.tensor([0, 9], dtype=t.int32), 0, 0, 7
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_range_that_does_not_fit_is_refused(name):
    refuse(REFUSED[name], RuntimeError, "`quant_min`")
