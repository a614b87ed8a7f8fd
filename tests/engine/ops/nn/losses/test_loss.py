"""Losses that compare elements: each reduction, weights, kinks, and what they share with other losses."""

import numpy as np
import pytest

from gradwire_engine import EngineError, Reason, grad_mode, tensor
from gradwire_engine.core import dtypes
from gradwire_engine.ops.nn.losses import loss
from tests.engine.oracle import Refused, Same, given, normal, refused, same, torch, uniform

F = torch.nn.functional
X, Y, P, Q = normal(4, 3), normal(4, 3), uniform(0.1, 0.9, 4, 3), uniform(0.1, 0.9, 4, 3)
NAMES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "kl_div")
HOW = ("none", "mean", "sum")


def _both(name: str) -> tuple:
    return getattr(loss, name), getattr(F, name)


SAME = [
    *(same(*_both(name), X, P, reduction=how) for name in NAMES for how in HOW),
    *(same(*_both("binary_cross_entropy"), P, Q, reduction=how) for how in HOW),
    same(*_both("mse_loss"), X, normal(3), reduction="sum"),
    same(*_both("mse_loss"), X, Y, weight=uniform(0.5, 2, 4, 3)),
    same(*_both("l1_loss"), given([1.0, 2.0]), given([1.0, 5.0]), smooth=False),
    same(*_both("smooth_l1_loss"), X, Y, beta=0.3),
    same(*_both("smooth_l1_loss"), X, Y, beta=0.0),
    same(*_both("smooth_l1_loss"), given([1.0, 1.0]), given([0.0, 1.0]), smooth=False),
    same(*_both("huber_loss"), X, Y, delta=0.4),
    same(*_both("huber_loss"), X, Y, weight=uniform(0.5, 2, 4, 3)),
    same(*_both("binary_cross_entropy"), P, Q, uniform(0.5, 2, 3).constant),
    same(
        *_both("binary_cross_entropy"),
        given([0.0, 1.0, 0.0]),
        given([0.0, 0.0, 1.0], grad=False),
        reduction="none",
        smooth=False,
        factor=100,
    ),
    same(
        *_both("binary_cross_entropy_with_logits"),
        X,
        P,
        uniform(0.5, 2, 3).constant,
        pos_weight=uniform(0.5, 2, 3).constant,
    ),
    same(
        *_both("binary_cross_entropy_with_logits"),
        given([1000.0, -1000.0]),
        given([0.0, 1.0], grad=False),
        reduction="none",
        smooth=False,
    ),
    same(*_both("kl_div"), X, Y, log_target=True),
    same(*_both("kl_div"), X, given(np.zeros((4, 3))), smooth=False),
    same(*_both("mse_loss"), normal(0), normal(0), smooth=False),
]
REFUSED = [
    refused(
        loss.mse_loss, Reason.ARGUMENT_VALUE, "most is not a valid value", X, Y, reduction="most", theirs=F.mse_loss
    ),
    refused(loss.mse_loss, Reason.ARGUMENT_VALUE, "same size", X, Y, weight=normal(3), theirs=F.mse_loss),
    refused(
        loss.mse_loss, Reason.NOT_SUPPORTED, "mse_cpu", normal(2, dtype="complex128"), normal(2, dtype="complex128")
    ),
    refused(loss.smooth_l1_loss, Reason.RUNTIME, "negative values for beta", X, Y, beta=-1.0, theirs=F.smooth_l1_loss),
    refused(loss.huber_loss, Reason.RUNTIME, "non-positive values for delta", X, Y, delta=0.0, theirs=F.huber_loss),
    refused(
        loss.smooth_l1_loss, Reason.RUNTIME, "negative values for beta", X, Y, beta=np.nan, theirs=F.smooth_l1_loss
    ),
    refused(loss.huber_loss, Reason.RUNTIME, "non-positive values for delta", X, Y, delta=np.nan, theirs=F.huber_loss),
    refused(
        loss.binary_cross_entropy,
        Reason.RUNTIME,
        "between 0 and 1",
        given([1.5]),
        given([1.0]),
        theirs=F.binary_cross_entropy,
    ),
    refused(
        loss.binary_cross_entropy,
        Reason.ARGUMENT_VALUE,
        "(torch.Size([3]))",
        P,
        uniform(0, 1, 3),
        theirs=F.binary_cross_entropy,
    ),
    refused(
        loss.binary_cross_entropy_with_logits,
        Reason.ARGUMENT_VALUE,
        "(torch.Size([3]))",
        X,
        uniform(0, 1, 3),
        theirs=F.binary_cross_entropy_with_logits,
    ),
    refused(loss.l1_loss, Reason.SHAPE, "tensor a (3)", X, normal(2), theirs=F.l1_loss),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize(
    ("averaged", "reduce", "wanted"),
    [
        (None, None, "sum"),
        (True, None, "mean"),
        (False, None, "sum"),
        (None, False, "none"),
        (False, False, "none"),
        (None, True, "mean"),
    ],
)
def test_deprecated_arguments_win_over_the_reduction(averaged, reduce, wanted: str) -> None:
    assert loss.reduction_of(averaged, reduce, "sum") == wanted


def test_an_argument_without_derivative_may_not_require_grad_while_recording() -> None:
    weight = tensor(np.ones(1), True)
    with pytest.raises(EngineError, match="'nll_loss' is not differentiable with respect to argument 'weight'"):
        loss.constant("nll_loss", weight=weight)
    with grad_mode(False):
        loss.constant("nll_loss", weight=weight)
    loss.constant("nll_loss", weight=None)


def test_half_losses_are_summed_in_float32() -> None:
    values = np.ones(4096, dtypes.float16)
    assert loss.reduced(np, values, "sum") == 4096
    assert loss.reduced(np, values, "mean").dtype == dtypes.float16
    assert np.isnan(loss.reduced(np, values[:0], "mean"))
    assert loss.reduced(np, values, "none") is values


def test_a_gradient_is_divided_where_the_mean_was_taken() -> None:
    values = np.zeros((2, 5))
    assert loss.spread(10.0, values, "mean") == 1.0
    assert loss.spread(10.0, values, "sum") == 10.0
    recorded = tensor(np.array([1.0, 3.0]))
    assert loss.reduce_op(recorded, "mean").array == 2.0
    assert loss.reduce_op(recorded, "sum").array == 4.0
    assert loss.reduce_op(recorded, "none") is recorded
