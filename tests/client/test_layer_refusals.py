"""Arguments of layers that PyTorch refuses at once, although their results would be defined."""

import pytest

from tests.client.oracle import refuse

torch = pytest.importorskip("torch", reason="PyTorch is what is compared with")

pytestmark = pytest.mark.usefixtures("session")

HALF = "pad should be smaller than or equal to half of kernel size, but got "


@pytest.mark.parametrize(
    ("call", "phrase"),
    [
        (lambda t, x: t.nn.functional.max_pool2d(x, [4, 3], 3, 2, 2), HALF + "padW = 2, padH = 2, kW = 3, kH = 4"),
        (
            lambda t, x: t.nn.functional.max_pool3d(x[None], [2, 4, 3], 3, [1, 2, 2], [1, 1, 2]),
            HALF + "kT: 2 kW: 3 kH: 4 padT: 1 padW: 2 padH: 2",
        ),
    ],
)
def test_max_pooling_refuses_a_padding_of_more_than_half_the_kernel_without_gaps(call, phrase):
    refuse(lambda t: call(t, t.ones(1, 2, 5, 5)), RuntimeError, phrase)


def test_avg_pool3d_refuses_an_input_smaller_than_the_kernel_even_if_padded():
    phrase = r"input image \(T: 2 H: 2 W: 4\) smaller than kernel size \(kT: 4 kH: 4 kW: 4\)"
    refuse(lambda t: t.nn.functional.avg_pool3d(t.ones(1, 1, 2, 2, 4), 4, None, 1), RuntimeError, phrase)


@pytest.mark.parametrize("given", [0, 1])
def test_batch_norm_in_training_refuses_one_running_statistic_without_the_other(given):
    def normed(t):
        statistics = [t.ones(2), None] if given == 0 else [None, t.ones(2)]
        return t.nn.functional.batch_norm(t.ones(3, 2), *statistics, training=True)

    refuse(normed, ValueError, "running_mean and running_var must either both be None or neither be None")


@pytest.mark.parametrize("cell", ["RNNCell", "GRUCell", "LSTMCell"])
def test_recurrent_cells_refuse_states_of_another_batch(cell):
    def stepped(t, second):
        states = (t.ones(1, 2), t.ones(second, 2)) if cell == "LSTMCell" else t.ones(3, 2)
        return getattr(t.nn, cell)(2, 2)(t.ones(1, 2), states)

    refuse(lambda t: stepped(t, 3), RuntimeError, "Input batch size 1 doesn't match hidden[01] batch size 3")
