"""batch_norm, layer_norm, group_norm and rms_norm: all three gradients, running statistics, and half types."""

import numpy as np
import pytest

from gradwire_engine import Reason, backward, call, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.nn.norms import norm
from tests.engine.oracle import Refused, Same, normal, refused, same, torch, uniform

F = torch.nn.functional
BN, LN, GN, RMS = (
    (getattr(norm, f"{name}_norm"), getattr(F, f"{name}_norm")) for name in ("batch", "layer", "group", "rms")
)
X, IMAGES = normal(6, 3), normal(2, 4, 3, 5)
MEAN, VAR = normal(3).constant, uniform(0.5, 2, 3).constant
SAME = [
    same(*BN, X, None, None, normal(3), normal(3), True),
    same(*BN, normal(3, 4, 3, 5), None, None, normal(4), None, True, eps=0.1),
    same(*BN, X, MEAN, VAR, normal(3), normal(3)),
    same(*BN, normal(2, 3, 4), MEAN, VAR),
    same(*BN, normal(0), normal(0).constant, normal(0).constant, training=True),
    same(*BN, normal(0), normal(0).constant, normal(0).constant),
    same(*BN, normal(0, 3), MEAN, VAR, normal(3), normal(3), True),
    same(*BN, normal(2, 3, 0), None, None, normal(3), None, True),
    same(*LN, X, (3,)),
    same(*LN, IMAGES, (3, 5), normal(3, 5), normal(3, 5), 0.1),
    same(*LN, IMAGES, (5,), normal(5)),
    same(*LN, normal(4, 70), (70,), normal(70), normal(70)),
    same(*GN, IMAGES, 2, normal(4), normal(4)),
    same(*GN, normal(2, 6), 2),
    same(*GN, IMAGES, 4),
    same(*RMS, X, (3,), normal(3)),
    same(*RMS, IMAGES, (3, 5), None, 0.1),
    same(*LN, normal(4, 8, dtype="bfloat16"), (8,), normal(8, dtype="bfloat16"), factor=2),
]
RUN, BAD = Reason.RUNTIME, Reason.ARGUMENT_VALUE
REFUSED = [
    refused(BN[0], BAD, "torch.Size([1, 3])", normal(1, 3), None, None, training=True, theirs=BN[1]),
    refused(BN[0], RUN, "running_mean should contain 3 elements not 2", X, normal(2), VAR, theirs=BN[1]),
    refused(BN[0], RUN, "running_mean must be defined in evaluation mode", X, None, None, theirs=BN[1]),
    refused(LN[0], RUN, "expected input with shape [*, 4], but got input of size[6, 3]", X, (4,), theirs=LN[1]),
    refused(LN[0], RUN, "normalized_shape = []", X, (), theirs=LN[1]),
    refused(LN[0], RUN, "got weight of shape [2] and normalized_shape = [3]", X, (3,), normal(2), theirs=LN[1]),
    refused(GN[0], RUN, "num_groups=3", IMAGES, 3, theirs=GN[1]),
    refused(GN[0], RUN, "received 1", normal(3), 1, theirs=GN[1]),
    refused(GN[0], RUN, "got weight of shape [3]", IMAGES, 2, normal(3), theirs=GN[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("momentum", [0.1, 0.3])
def test_running_statistics_take_in_those_of_the_batch(dtype: str, momentum: float) -> None:
    rng = np.random.default_rng(1)
    x, mean, var = (each.astype(dtype) for each in (rng.standard_normal((4, 3, 5)), np.zeros(3), np.ones(3)))
    held, its = [tensor(mean.copy()), tensor(var.copy())], [torch.tensor(mean), torch.tensor(var)]
    norm.batch_norm(tensor(x), *held, training=True, momentum=momentum)
    F.batch_norm(torch.tensor(x), *its, training=True, momentum=momentum)
    for mine, expected in zip(held, its, strict=True):
        assert mine.dtype == dtypes.BY_NAME[dtype]
        np.testing.assert_allclose(mine.array, expected.numpy(), rtol=1e-5 if dtype == "float32" else 1e-12)


def test_a_refused_call_leaves_the_running_statistics_as_they_were() -> None:
    held = tensor(np.zeros(3))
    refused(
        lambda x: norm.batch_norm(x, held, tensor(np.ones(3)), tensor(np.ones(2)), training=True),
        RUN,
        "weight should contain 3 elements not 2",
        X,
    ).check()
    assert held.array.tolist() == [0.0, 0.0, 0.0]


def test_a_norm_without_weights_costs_no_more_than_one_with_weights() -> None:
    large, channels = np.empty((20, 100, 35, 45, 10), np.float16), np.empty(100, np.float16)
    works = norm._batch_norm.cost.forward
    assert works(large, None, None, 1e-5) <= works(large, channels, channels, 1e-5)


@pytest.mark.parametrize("block", [1, 14, 40, 1 << 16])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_the_weights_gradient_of_layer_norm_in_blocks_of_rows_is_pytorchs(dtype, block, monkeypatch):
    monkeypatch.setattr(norm, "_BLOCK", block)
    rng = np.random.default_rng(7)
    given = [rng.standard_normal(shape).astype(dtype) for shape in ((3, 5, 7), (7,), (3, 5, 7))]
    mine, theirs = [tensor(each, True) for each in given], [torch.tensor(each, requires_grad=True) for each in given]
    made = call("layer_norm", [mine[0], (7,), mine[1]])
    backward([call("sum", [made * mine[2]])])
    (torch.nn.functional.layer_norm(theirs[0], (7,), theirs[1]) * theirs[2]).sum().backward()
    tolerance = 4e-3 if dtype == "float16" else 1e-12
    for ours, its in zip(mine[:2], theirs[:2], strict=True):
        np.testing.assert_allclose(ours.grad.array, its.grad.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [3, 64, 3000])  # large ones by a loop
@pytest.mark.parametrize("block", [1, 1 << 16])
def test_the_weights_gradient_of_layer_norm_is_zero_where_all_elements_of_a_row_are_equal(rows, block, monkeypatch):
    monkeypatch.setattr(norm, "_BLOCK", block)
    given, weight = tensor(np.full((rows, 35), 3, np.float32)), tensor(np.ones(35, np.float32), True)
    slope = tensor(np.random.default_rng(7).standard_normal((rows, 35)).astype(np.float32))
    backward([call("sum", [call("layer_norm", [given, (35,), weight]) * slope])])
    assert not weight.grad.array.any()
