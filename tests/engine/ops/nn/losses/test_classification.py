"""nll_loss and cross_entropy: weights, ignored targets, smoothing, probabilities, and bad targets by number."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, tensor
from gradwire_engine.ops.nn.losses import classification
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch, uniform

F = torch.nn.functional
NLL, CE = (classification.nll_loss, F.nll_loss), (classification.cross_entropy, F.cross_entropy)
X, TARGET = normal(6, 4), given([0, 3, 1, 1, 2, 3], "int64", False)
IMAGES, MAP = normal(2, 4, 3, 2), integers(0, 4, 2, 3, 2)
WEIGHT = uniform(0.5, 2, 4).constant
SAME = [
    *(same(*pair, X, TARGET, reduction=how) for pair in (NLL, CE) for how in ("none", "mean", "sum")),
    *(
        same(*pair, X, TARGET, WEIGHT, ignore_index=3, reduction=how)
        for pair in (NLL, CE)
        for how in ("none", "mean", "sum")
    ),
    *(same(*pair, IMAGES, MAP, WEIGHT, reduction=how) for pair in (NLL, CE) for how in ("none", "mean")),
    *(same(*pair, normal(4), given(2, "int64", False)) for pair in (NLL, CE)),
    *(same(*pair, X, given([0, -100, 1, 1, 2, -100], "int64", False)) for pair in (NLL, CE)),
    *(same(*pair, X.constant, given([-100] * 6, "int64", False)) for pair in (NLL, CE)),
    *(same(*pair, normal(2, 4, 5), integers(0, 4, 2, 5)) for pair in (NLL, CE)),
    same(*CE, X, TARGET, WEIGHT, ignore_index=1, label_smoothing=0.2),
    same(*CE, IMAGES, MAP, label_smoothing=0.2, reduction="none"),
    same(*CE, X, uniform(0, 1, 6, 4), WEIGHT),
    same(*CE, X, uniform(0, 1, 6, 4), label_smoothing=0.3, reduction="none"),
    same(*CE, IMAGES, uniform(0, 1, 2, 4, 3, 2), reduction="sum"),
    same(*NLL, X, integers(0, 4, 6, dtype="uint8")),
]
OUT = Reason.INDEX_OUT_OF_RANGE
REFUSED = [
    refused(NLL[0], OUT, "Target 4 is out of bounds", X, given([0, 4, 1, 1, 2, 3], "int64"), theirs=NLL[1]),
    refused(NLL[0], OUT, "Target -1 is out of bounds", X, given([0, -1, 1, 1, 2, 3], "int64"), theirs=NLL[1]),
    refused(
        NLL[0],
        Reason.ARGUMENT_VALUE,
        "batch_size (6) to match target batch_size (5)",
        X,
        integers(0, 4, 5),
        theirs=NLL[1],
    ),
    refused(NLL[0], Reason.RUNTIME, "multi-target not supported", X, integers(0, 4, 6, 1), theirs=NLL[1]),
    refused(
        NLL[0], Reason.RUNTIME, "target size [2, 3, 2], got [2, 3, 3]", IMAGES, integers(0, 4, 2, 3, 3), theirs=NLL[1]
    ),
    refused(NLL[0], Reason.RUNTIME, "but got Int", X, integers(0, 4, 6, dtype="int32"), theirs=NLL[1]),
    refused(
        NLL[0],
        Reason.RUNTIME,
        "all 4 classes or no classes but got weight tensor of shape: [3]",
        X,
        TARGET,
        normal(3),
        theirs=NLL[1],
    ),
    refused(NLL[0], Reason.DTYPE, "Double but found Float", X, TARGET, normal(4, dtype="float32"), theirs=NLL[1]),
    refused(NLL[0], Reason.ARGUMENT_VALUE, "median is not a valid value", X, TARGET, reduction="median", theirs=NLL[1]),
    refused(CE[0], Reason.RUNTIME, "Got: 1.5", X, TARGET, label_smoothing=1.5, theirs=CE[1]),
    refused(CE[0], Reason.RUNTIME, "floating point target", X, uniform(0, 1, 6, 4), ignore_index=1, theirs=CE[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_an_out_of_range_target_is_told_with_the_number_of_classes() -> None:
    with pytest.raises(EngineError) as refusal:
        classification.nll_loss(tensor(np.zeros((1, 3))), tensor(np.array([7])))
    assert refusal.value.metadata == {"target": "7", "classes": "3"}
