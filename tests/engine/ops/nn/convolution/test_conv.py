"""Convolution and its transpose: strides, paddings, dilations and groups, against PyTorch and each other's adjoint."""

from typing import Any

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.core import dtypes, matrix_product
from gradwire_engine.core.context import Context, activate
from gradwire_engine.op.cost import LONG
from gradwire_engine.op.workload import estimate_backward
from gradwire_engine.ops.nn.convolution import conv, primitives
from gradwire_engine.ops.nn.convolution.primitives import (
    channel_sum,
    convolution,
    convolution_transpose,
    convolution_weight,
    spread_channels,
)
from tests.engine.oracle import Refused, Same, normal, refused, same, torch

F = torch.nn.functional
C1, C2, C3 = ((getattr(conv, f"conv{n}d"), getattr(F, f"conv{n}d")) for n in (1, 2, 3))
T1, T2, T3 = ((getattr(conv, f"conv_transpose{n}d"), getattr(F, f"conv_transpose{n}d")) for n in (1, 2, 3))
IMAGE, KERNEL = normal(2, 4, 7, 6), normal(6, 4, 3, 2)
SAME = [
    same(*C2, IMAGE, KERNEL, normal(6)),
    same(*C2, IMAGE, KERNEL, None, (2, 1), (1, 2), (1, 3)),
    same(*C2, IMAGE, normal(6, 2, 3, 2), normal(6), groups=2),
    same(*C2, IMAGE, normal(4, 1, 3, 3), padding=1, groups=4),
    same(*C2, IMAGE, normal(5, 4, 1, 1)),
    same(*C2, IMAGE, KERNEL, padding="same"),
    same(*C2, IMAGE, KERNEL, padding="valid"),
    same(*C2, normal(4, 7, 6), KERNEL, normal(6)),
    same(*C2, normal(0, 4, 7, 6), KERNEL),
    same(*C1, normal(2, 3, 9), normal(4, 3, 3), normal(4), 2, 1, 2),
    same(*C1, normal(1, 2, 3000), normal(2, 2, 5), factor=10),
    same(*C3, normal(1, 2, 4, 5, 3), normal(3, 2, 2, 3, 2), normal(3), 1, 1),
    same(*C2, normal(2, 3, 5, 5, dtype="complex128"), normal(2, 3, 2, 2, dtype="complex128")),
    same(*C2, normal(2, 3, 5, 5, dtype="float16"), normal(2, 3, 2, 2, dtype="float16"), factor=3),
    same(*T2, normal(2, 6, 4, 5), KERNEL, normal(4)),
    same(*T2, normal(2, 6, 4, 5), KERNEL, None, (2, 3), (1, 0), (1, 2)),
    same(*T2, normal(2, 6, 4, 5), normal(6, 2, 3, 2), normal(4), groups=2),
    same(*T2, normal(2, 6, 6, 5), normal(6, 1, 3, 2), normal(6), groups=6, padding=1),
    same(*T2, normal(2, 6, 9, 8), normal(6, 2, 3, 2), normal(6), groups=3, padding=(1, 0), dilation=(2, 1)),
    same(*T2, normal(1, 4, 1, 1), normal(4, 1, 5, 5), groups=4),
    same(*T1, normal(2, 4, 9), normal(4, 1, 2), groups=4, dilation=2, output_padding=1),
    same(*T3, normal(1, 4, 3, 4, 5), normal(4, 2, 2, 3, 2), groups=2, padding=1),
    same(*T1, normal(3, 5), normal(3, 2, 4), normal(2), 3, 1, 1),
    same(*T3, normal(1, 2, 3, 2, 2), normal(2, 3, 2, 2, 3)),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(C2[0], RUN, "to have 4 channels, but got 3 channels", normal(2, 3, 7, 6), KERNEL, theirs=C2[1]),
    refused(C2[0], RUN, "but got input of size: [7, 6]", normal(7, 6), KERNEL, theirs=C2[1]),
    refused(C2[0], RUN, "weight of size [6, 4, 3]", IMAGE, normal(6, 4, 3), theirs=C2[1]),
    refused(C2[0], RUN, "(2 x 6). Kernel size: (3 x 2)", normal(1, 4, 2, 6), KERNEL, theirs=C2[1]),
    refused(C2[0], RUN, "bias of size [5]", IMAGE, KERNEL, normal(5), theirs=C2[1]),
    refused(C2[0], RUN, "stride=[1, 1, 1]", IMAGE, KERNEL, stride=(1, 1, 1), theirs=C2[1]),
    refused(C2[0], RUN, "non-positive stride", IMAGE, KERNEL, stride=0, theirs=C2[1]),
    refused(C2[0], RUN, "negative padding", IMAGE, KERNEL, padding=-1, theirs=C2[1]),
    refused(C2[0], RUN, "Invalid padding string: 'full'", IMAGE, KERNEL, padding="full", theirs=C2[1]),
    refused(C2[0], RUN, "not supported for strided", IMAGE, KERNEL, stride=2, padding="same", theirs=C2[1]),
    refused(C2[0], RUN, "Given groups=4", IMAGE, normal(6, 1, 2, 2), groups=4, theirs=C2[1]),
    refused(C2[0], Reason.DTYPE, "Double but found Float", IMAGE, normal(6, 4, 3, 2, dtype="float32"), theirs=C2[1]),
    refused(T2[0], RUN, "Given transposed=1", IMAGE, KERNEL, theirs=T2[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("groups", [1, 2])
def test_the_three_primitives_are_adjoint_to_each_other(groups: int) -> None:
    rng = np.random.default_rng(groups)
    x, w = rng.standard_normal((2, 4, 6, 5)), rng.standard_normal((6, 4 // groups, 3, 2))
    how = ((2, 1), (1, 1), (1, 2), groups)
    out = convolution(x, w, None, *how)
    g = rng.standard_normal(out.shape)
    whole = np.sum(g * out)
    back = convolution_transpose(g, w, None, *how, (6, 5))
    weight = convolution_weight(x, g, *how, (3, 2))
    assert (back.shape, weight.shape) == (x.shape, w.shape)
    assert np.sum(back * x) == pytest.approx(whole)
    assert np.sum(weight * w) == pytest.approx(whole)


def test_a_batch_larger_than_the_buffer_is_computed_in_parts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((7, 3, 8, 8)), rng.standard_normal((4, 3, 3, 3))
    how = ((1, 1), (1, 1), (1, 1), 1)
    out = convolution(x, w, None, *how)
    g = rng.standard_normal(out.shape)
    whole = [out, convolution_transpose(g, w, None, *how, (8, 8)), convolution_weight(x, g, *how, (3, 3))]
    monkeypatch.setattr(primitives, "_BUFFER", 2 * 27 * 64)
    parts = [
        convolution(x, w, None, *how),
        convolution_transpose(g, w, None, *how, (8, 8)),
        convolution_weight(x, g, *how, (3, 3)),
    ]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_channel_sums_go_over_all_other_dimensions() -> None:
    array = np.random.default_rng(1).standard_normal((2, 3, 4, 5))
    np.testing.assert_allclose(channel_sum(array), array.sum((0, 2, 3)), rtol=1e-12)
    assert spread_channels(np.ones(3), 4).shape == (1, 3, 1, 1)
    assert channel_sum(array.astype(dtypes.float32)).dtype == dtypes.float32


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_weight_that_is_not_finite_reaches_only_what_it_touches(bad: float) -> None:
    given, weight = np.ones((1, 4, 5, 5)), np.ones((4, 1, 3, 3))
    weight[2, 0, 0, 0] = bad
    made = convolution_transpose.compute((given, weight, None, (1, 1), (1, 1), (1, 1), 4, (5, 5)))
    expected = F.conv_transpose2d(torch.tensor(given), torch.tensor(weight), padding=1, groups=4).numpy()
    np.testing.assert_array_equal(made, expected)


def test_the_derivative_of_a_depthwise_convolution_that_a_step_can_wait_for_is_not_offloaded() -> None:
    image, weight = np.zeros((8, 64, 28, 28), np.float32), np.zeros((64, 1, 7, 7), np.float32)
    arguments = [image, weight, None, (1, 1), (3, 3), (1, 1), 64]
    assert estimate_backward(convolution, arguments) < LONG


@pytest.mark.parametrize("stride", [1, 2])
def test_products_of_convolutions_by_numpy_use_no_threads_of_blas(stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those wait for each other in a loop, which takes long on a busy machine, and their number decides the digits."""
    if matrix_product._fast() is None:
        pytest.skip("NumPy multiplies")
    jobs: list[int] = []
    run = matrix_product._Job.run

    def counted(self: Any, shared: int = 0) -> bool:
        jobs.append(self._layout.work)
        return run(self, shared)

    monkeypatch.setattr(matrix_product._Job, "run", counted)
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape, np.float32) for shape in ((4, 32, 32, 32), (64, 32, 1, 1)))
    window = (stride, stride), (0, 0), (1, 1), 1
    with activate(Context()):
        made = convolution.compute((x, w, None, *window))
        of_input = convolution_transpose.compute((made, w, None, *window, x.shape[2:]))
        of_weight = convolution_weight.compute((x, made, *window, (1, 1)))
    assert sum(jobs) == 3 * made.size * 32
    seen, matrix = x[..., ::stride, ::stride], w[..., 0, 0]
    np.testing.assert_allclose(made, np.einsum("nchw,oc->nohw", seen, matrix), rtol=1e-4, atol=1e-4)
    expected = np.zeros_like(x)
    expected[..., ::stride, ::stride] = np.einsum("nohw,oc->nchw", made, matrix)
    np.testing.assert_allclose(of_input, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(of_weight[..., 0, 0], np.einsum("nchw,nohw->oc", seen, made), rtol=1e-4, atol=1e-2)
