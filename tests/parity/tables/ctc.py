"""ctc_loss. Its gradient takes log-probabilities for normalized, so it is not what differences of any input give."""

from tests.parity.harness import Sample, case, edge, ints, refuses, t

SPOKEN = t(6, 2, 4, low=-3, high=-0.5)
TARGETS, LENGTHS, SIZES = ints([1, 2, 2], [3, 1, 0]), ints(6, 4), ints(3, 2)


def called(reduction: str, **kwargs: object) -> Sample:
    """All ways to give the same targets."""
    return edge(SPOKEN, TARGETS, LENGTHS, SIZES, reduction=reduction, **kwargs)


case(
    "ctc_loss",
    [called(reduction) for reduction in ("mean", "sum", "none")],
    edge(SPOKEN, ints(1, 2, 2, 3, 1), LENGTHS, SIZES),
    edge(SPOKEN, ints([0, 1, 0], [2, 1, 1]), LENGTHS, SIZES, 3, "none"),
    edge(SPOKEN, TARGETS, ints(6, 5), ints(3, 0), reduction="none"),
    edge(SPOKEN, TARGETS, ints(3, 4), SIZES, reduction="sum", zero_infinity=True),
    edge(t(6, 4, low=-3, high=-0.5), ints(1, 1), ints(6), ints(2)),
    torch="nn.functional.ctc_loss",
    order=1,
    half=False,
)

REFUSALS = [
    refuses(
        "ctc_loss",
        RuntimeError,
        "blank must be in label range",
        SPOKEN,
        TARGETS,
        LENGTHS,
        SIZES,
        4,
        torch="nn.functional.ctc_loss",
    ),
    refuses(
        "ctc_loss",
        RuntimeError,
        "input_lengths must be of size batch_size",
        SPOKEN,
        TARGETS,
        ints(6),
        SIZES,
        torch="nn.functional.ctc_loss",
    ),
]
