"""Quantized tensors: whole numbers, values, texts and refusals are those of PyTorch."""

import pytest

from tests.client.oracle import agree, refuse

pytestmark = pytest.mark.usefixtures("deferring")
DTYPES = ["quint8", "qint8", "qint32"]
SCALES = [(0.1, 10), (0.0371, 0), (1 / 3, 7), (2.5, 3)]


def facts(made):
    """What can be seen of a tensor with one scale."""
    return made.int_repr(), made.dequantize(), made.q_scale(), made.q_zero_point(), repr(made), tuple(made.shape)


def drawn(t, *sizes):
    """Numbers within and outside of what 8 bits hold, and places between two whole numbers."""
    t.manual_seed(3)
    return t.cat([t.randn(*sizes) * 3, t.randn(*sizes) * 100, t.randint(-9, 9, sizes) * 0.05])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("scale", "zero_point"), SCALES)
def test_one_scale(dtype, scale, zero_point):
    def case(t):
        x = drawn(t, 4, 5)
        made = t.quantize_per_tensor(x, scale, zero_point, getattr(t, dtype))
        given = t.quantize_per_tensor(x, t.tensor(scale), t.tensor(zero_point), getattr(t, dtype))
        return facts(made), facts(given), [facts(each) for each in (made.clone(), made.detach())], made.is_quantized

    agree(case)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("scale", [0.0, 1e-50, -0.1, float("inf")])
def test_a_scale_that_makes_no_sense_is_taken_as_pytorch_takes_it(scale):
    def case(t):
        made = t.quantize_per_tensor(t.tensor([1.0, -3.0]), scale, 0, t.qint8)
        return made.int_repr(), made.dequantize()

    agree(case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scale_for_each_channel(dtype, axis):
    def case(t):
        x = drawn(t, 1, 3)
        scales, zero_points = t.tensor([0.1, 0.02, 1.7]), t.tensor([0, 3, 100])
        made = t.quantize_per_channel(x, scales, zero_points, axis, getattr(t, dtype))
        parts = made.q_per_channel_scales(), made.q_per_channel_zero_points(), made.q_per_channel_axis()
        return made.int_repr(), made.dequantize(), parts, repr(made), repr(made.qscheme())

    agree(case)


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_a_scale_that_the_elements_need(dtype, reduced):
    def case(t):
        inputs = [drawn(t, 2, 3), t.tensor([1.0, 4.0]), t.tensor([-3.0, -0.5]), t.zeros(2), t.tensor([1e-6, -2e-6])]
        inputs += [t.tensor([1e-7]), t.tensor([-1e-7])]
        return [facts(t.quantize_per_tensor_dynamic(each, getattr(t, dtype), reduced)) for each in inputs]

    agree(case)


def test_lists():
    def case(t):
        many = [t.tensor([-1.0, 0.0]), t.tensor([-2.0, 2.0])]
        made = t.quantize_per_tensor(many, t.tensor([0.1, 0.2]), t.tensor([10, 20]), t.quint8)
        return [facts(each) for each in made], list(t.dequantize(list(made))), t.dequantize(t.ones(2))

    agree(case)


@pytest.mark.parametrize("dtype", ["quint8", "qint8"])
def test_pooling(dtype):
    def case(t):
        x = t.quantize_per_tensor(drawn(t, 2, 6, 6), 0.5, 3, getattr(t, dtype))
        row = t.quantize_per_tensor(drawn(t, 2, 7), 0.5, 3, getattr(t, dtype))
        made = [t.quantized_max_pool2d(x, [2, 2]), t.quantized_max_pool2d(x, [3, 2], [1, 2], [1, 1])]
        made += [t.quantized_max_pool1d(row, [2]), t.quantized_max_pool1d(row, [3], [2], [1], [1], True)]
        return [facts(each) for each in made]

    agree(case)


def test_batch_norm():
    def case(t):
        x = t.quantize_per_tensor(drawn(t, 1, 2, 3, 3), 0.5, 3, t.quint8)
        t.manual_seed(1)
        weight, bias, mean, var = t.rand(2), t.rand(2), t.rand(2), t.rand(2)
        return facts(t.quantized_batch_norm(x, weight, bias, mean, var, 1e-5, 0.2, 2))

    agree(case)


REFUSED = {
    "dtype": (lambda t: t.quantize_per_tensor(t.ones(2), 0.1, 0, t.int8), "int8"),
    "float64": (lambda t: t.quantize_per_tensor(t.ones(2, dtype=t.float64), 0.1, 0, t.qint8), "Float Tensor"),
    "zero point": (lambda t: t.quantize_per_tensor(t.ones(2), 0.1, 300, t.quint8), "out of range"),
    "weight": (
        lambda t: t.quantized_batch_norm(
            t.quantize_per_tensor(t.ones(1, 1, 1, 1), 0.1, 0, t.qint8), None, *[t.ones(1)] * 3, 1e-5, 0.1, 0
        ),
        "Weight must be provided",
    ),
    "axis": (lambda t: t.quantize_per_channel(t.ones(2), t.ones(2), t.ones(2).long(), 3, t.qint8), "out of range"),
    "channels": (lambda t: t.quantize_per_channel(t.ones(3), t.ones(2), t.ones(2).long(), 0, t.qint8), "channel"),
    "q_scale": (
        lambda t: t.quantize_per_channel(t.ones(2), t.ones(2), t.ones(2).long(), 0, t.qint8).q_scale(),
        "PerTensorAffine",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    refuse(REFUSED[name][0], RuntimeError, REFUSED[name][1])


def test_functions_without_an_entry_are_refused_by_name(session):
    import gradwire as gw

    made = gw.quantize_per_tensor(gw.ones(2), 0.1, 0, gw.quint8)
    with pytest.raises(NotImplementedError, match=r"torch\.add of a quantized tensor"):
        gw.add(made, 1)
    assert not hasattr(made, "softmax")
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        made.unknown  # noqa: B018


def test_channels_with_float64_scales_have_pytorchs_last_digits():
    def case(t):
        values = t.linspace(-3, 3, 240).reshape(80, 3)
        scales = t.tensor([0.0123456789012345, 0.1 / 3, 0.07], dtype=t.float64)
        made = t.quantize_per_channel(values, scales, t.tensor([3, 0, 17]), 1, t.qint8)
        return [each.hex() for each in made.dequantize().flatten().tolist()]

    agree(case)
