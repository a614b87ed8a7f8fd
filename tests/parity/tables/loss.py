"""Losses."""

import math
from typing import Any

from tests.parity.harness import T, case, ints, of, once, refuses, s, t

REDUCTIONS = ("mean", "sum", "none")
WEIGHT = t(6, low=0.2, high=2, grad=False)


def classes(*shape: int, ignored: bool = False) -> T:
    """Targets below 6; the first one ignored if told."""
    count = math.prod(shape)
    values = [(place * 7 + 3) % 6 for place in range(count)]
    if ignored:
        values[0] = -100
    return T(shape, values=values, dtype="int64", grad=False)


def each(*args: Any, **kwargs: Any) -> list[Any]:
    """A call with each reduction."""
    return [s(*args, **kwargs, reduction=reduction) for reduction in REDUCTIONS]


CALLS = [
    one
    for x, y in (((4, 6), (4,)), ((4, 6, 5), (4, 5)), ((2, 6, 3, 2), (2, 3, 2)))
    for one in (
        *each(t(*x), classes(*y)),
        *each(t(*x), classes(*y), WEIGHT),
        *each(t(*x), classes(*y, ignored=True)),
        *each(t(*x), classes(*y, ignored=True), WEIGHT),
        *each(t(*x), classes(*y), WEIGHT, ignore_index=3),
    )
]
case("nll_loss", CALLS, s(t(6), classes()), once(t(2, 6), ints(-100, -100)), once(t(0, 6), ints()), tolerance=2)
case("cross_entropy", CALLS, s(t(6), classes()), tolerance=2)
case(
    "cross_entropy",
    each(t(4, 6), classes(4), label_smoothing=0.2),
    each(t(4, 6, 3), classes(4, 3, ignored=True), WEIGHT, label_smoothing=0.2),
    each(t(4, 6), classes(4, ignored=True), label_smoothing=0.2),
    once(t(2, 6), ints(-100, -100), label_smoothing=0.2),
    each(t(4, 6), t(4, 6, low=0, high=1)),
    each(t(4, 6, 3), t(4, 6, 3, low=0, high=1), WEIGHT, label_smoothing=0.3),
    node=False,
    tolerance=2,
)


def between(**kwargs: Any) -> list[Any]:
    """One shape and two that broadcast, every reduction, and no distance at all."""
    return [
        *each(t(3, 4), t(3, 4), **kwargs),
        *each(t(3, 4), t(4), **kwargs),
        s(t(), t(), **kwargs),
        once(of(1.0, 2.0), of(1.0, 2.0), **kwargs),
    ]


for _loss in ("mse_loss", "l1_loss", "smooth_l1_loss"):  # stretched before they are promoted
    case(_loss, once(t(3, dtype="float32"), t(dtype="float64")), node=False, half=False)
PAIR_WEIGHT = t(3, 4, low=0.2, high=2, grad=False)
case("mse_loss", between(), each(t(3, 4), t(3, 4), weight=PAIR_WEIGHT))
case(
    "mse_loss",
    s(t(3, 4), t(3, 4), size_average=False),
    s(t(3, 4), t(3, 4), reduce=False),
    once(t(3, dtype="float32"), t(3, dtype="float64")),
)
case("l1_loss", between(), each(t(3, 4), t(3, 4), weight=PAIR_WEIGHT))
case("smooth_l1_loss", between(), between(beta=0.3), between(beta=0.0))
case("huber_loss", between(), between(delta=0.3), each(t(3, 4), t(3, 4), weight=PAIR_WEIGHT), tolerance=2)

INSIDE = {"low": 0.05, "high": 0.95}
case(
    "binary_cross_entropy",
    each(t(3, 4, **INSIDE), t(3, 4, **INSIDE)),
    each(t(3, 4, **INSIDE), t(3, 4, **INSIDE), t(4, low=0.2, high=2, grad=False)),
    tolerance=100,
)
case("binary_cross_entropy", once(of(0.0, 1.0, 0.5, grad=False), of(0.0, 1.0, 1.0)), half=False)
SPREAD = t(4, low=0.2, high=2, grad=False)
case(
    "binary_cross_entropy_with_logits",
    each(t(3, 4), t(3, 4, **INSIDE)),
    each(t(3, 4), t(3, 4, **INSIDE), SPREAD),
    each(t(3, 4), t(3, 4, **INSIDE), pos_weight=SPREAD),
    each(t(3, 4), t(3, 4, **INSIDE), SPREAD, pos_weight=SPREAD),
    once(of(1000.0, -1000.0, 0.0), of(1.0, 1.0, 0.0, grad=False)),
    torch="nn.functional.binary_cross_entropy_with_logits",
    tolerance=2,
)
case(
    "kl_div",
    each(t(3, 4), t(3, 4, **INSIDE)),
    each(t(3, 4), t(3, 4), log_target=True),
    s(t(3, 4), t(3, 4, **INSIDE), reduction="batchmean"),
    once(t(3), of(0.0, 1.0, 0.5, grad=False)),
    torch="nn.functional.kl_div",
    tolerance=2,
)

REFUSALS = [
    refuses("nll_loss", IndexError, "Target 7 is out of bounds.", t(2, 6), ints(1, 7)),
    refuses("nll_loss", IndexError, "Target -1 is out of bounds.", t(2, 6), ints(1, -1)),
    refuses(
        "nll_loss", ValueError, "Expected input batch_size (2) to match target batch_size (1).", t(2, 6), ints([1])
    ),
    refuses("nll_loss", RuntimeError, "expected target dtype to be Long or Byte, but got Float", t(2, 6), t(2)),
    refuses(
        "nll_loss",
        RuntimeError,
        "weight tensor should be defined either for all 6 classes or no classes",
        t(2, 6),
        ints(1, 2),
        t(4, grad=False),
    ),
    refuses(
        "nll_loss", RuntimeError, "is not differentiable with respect to argument 'weight'", t(2, 6), ints(1, 2), t(6)
    ),
    refuses("nll_loss", ValueError, "x is not a valid value for reduction", t(2, 6), ints(1, 2), reduction="x"),
    refuses("nll_loss", RuntimeError, "Expected target size [2, 4], got [2, 5]", t(2, 6, 4), ints([1] * 5, [1] * 5)),
    refuses("cross_entropy", IndexError, "Target 7 is out of bounds.", t(2, 6), ints(1, 7)),
    refuses(
        "cross_entropy", RuntimeError, "0D or 1D target tensor expected, multi-target not supported", t(2, 6), t(2, 4)
    ),
    refuses(
        "cross_entropy",
        RuntimeError,
        "label_smoothing must be between 0.0 and 1.0",
        t(2, 6),
        ints(1, 1),
        label_smoothing=2.0,
    ),
    refuses(
        "mse_loss",
        RuntimeError,
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        t(2, 3),
        t(4),
    ),
    refuses("mse_loss", NotImplementedError, "\"mse_cpu\" not implemented for 'Long'", ints(1), ints(2)),
    refuses("mse_loss", ValueError, "batchmean is not a valid value for reduction", t(3), t(3), reduction="batchmean"),
    refuses("smooth_l1_loss", RuntimeError, "does not support negative values for beta", t(3), t(3), beta=-1.0),
    refuses("huber_loss", RuntimeError, "does not support non-positive values for delta", t(3), t(3), delta=0.0),
    refuses(
        "binary_cross_entropy",
        RuntimeError,
        "all elements of input should be between 0 and 1",
        t(3, low=2, high=3),
        t(3),
    ),
    refuses("binary_cross_entropy", ValueError, "that is different to the input size", t(3), t(4)),
    refuses(
        "binary_cross_entropy_with_logits",
        ValueError,
        "must be the same as input size",
        t(3),
        t(4),
        torch="nn.functional.binary_cross_entropy_with_logits",
    ),
]
