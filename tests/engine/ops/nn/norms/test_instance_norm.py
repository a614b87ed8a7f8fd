"""instance_norm: by each sample's statistics or by the running ones, which it updates in place."""

import numpy as np
import pytest

from gradwire_engine import Reason, tensor
from gradwire_engine.ops.nn.norms.instance_norm import instance_norm
from tests.engine.oracle import Refused, Same, integers, normal, refused, same, torch, uniform

F = torch.nn.functional
X = normal(3, 2, 4, 5)
SAME = [
    same(instance_norm, F.instance_norm, X),
    same(instance_norm, F.instance_norm, X, weight=normal(2), bias=normal(2), eps=0.1),
    same(instance_norm, F.instance_norm, normal(3, 2, 6)),
    same(instance_norm, F.instance_norm, X, normal(2).constant, uniform(0.5, 2, 2).constant, use_input_stats=False),
]
REFUSED = [
    refused(instance_norm, Reason.ARGUMENT_VALUE, "torch.Size([3, 2, 1])", normal(3, 2, 1), theirs=F.instance_norm),
    refused(
        instance_norm, Reason.RUNTIME, "running_mean and running_var", X, use_input_stats=False, theirs=F.instance_norm
    ),
    refused(instance_norm, Reason.NOT_SUPPORTED, "'Long'", integers(0, 3, 1, 2, 3)),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("momentum", [0.1, 0.5])
def test_running_statistics_take_in_the_means_over_the_samples(momentum: float) -> None:
    rng = np.random.default_rng(1)
    x, mean, var = rng.standard_normal((3, 2, 5)), rng.standard_normal(2), rng.uniform(0.5, 2, 2)
    held = [tensor(mean.copy()), tensor(var.copy())]
    its = [torch.tensor(mean), torch.tensor(var)]
    instance_norm(tensor(x), *held, momentum=momentum)
    F.instance_norm(torch.tensor(x), *its, momentum=momentum)
    for mine, expected in zip(held, its, strict=True):
        np.testing.assert_allclose(mine.array, expected.numpy(), rtol=1e-12)
