"""Losses with a margin and of densities."""

from tests.parity.harness import case, of, refuses, s, t

SIGNS = of([1.0, -1.0, 1.0, -1.0], [-1.0, -1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0], grad=False)
X, POSITIVE = t(3, 4), t(3, 4, low=0.5, high=3)
WAYS = ("mean", "sum", "none")
case(
    "hinge_embedding_loss",
    [s(X, SIGNS, reduction=way) for way in WAYS],
    s(X, SIGNS, 0.3),
    torch="nn.functional.hinge_embedding_loss",
    node=False,
)
case(
    "margin_ranking_loss",
    [s(X, X, SIGNS, reduction=way) for way in WAYS],
    s(X, X, SIGNS, 0.7),
    torch="nn.functional.margin_ranking_loss",
)
case("pairwise_distance", s(X, X), s(X, X, 3.0, keepdim=True), s(X, t(4)), node=False, half=False)
case(
    "triplet_margin_loss",
    [s(X, X, X, reduction=way) for way in WAYS],
    s(X, X, X, 2.0, 3.0, swap=True),
    s(t(4), t(4), t(4)),
    torch="nn.functional.triplet_margin_loss",
    half=False,
)
case(
    "poisson_nll_loss",
    [s(X, POSITIVE, reduction=way) for way in WAYS],
    s(POSITIVE, POSITIVE, False),
    s(X, POSITIVE, full=True),
    torch="nn.functional.poisson_nll_loss",
)
case(
    "gaussian_nll_loss",
    [s(X, X, POSITIVE, reduction=way) for way in WAYS],
    s(X, X, t(3, 1, low=0.5, high=3)),
    s(X, X, t(3, low=0.5, high=3), full=True),
    s(X, X, 1.5),
    s(X, X, POSITIVE, eps=0.01),
    node=False,
)

REFUSALS = [
    refuses(
        "hinge_embedding_loss",
        ValueError,
        "is not a valid value for reduction",
        X,
        SIGNS,
        reduction="max",
        torch="nn.functional.hinge_embedding_loss",
    ),
    refuses(
        "triplet_margin_loss",
        ValueError,
        "margin must be greater than 0",
        X,
        X,
        X,
        -1.0,
        torch="nn.functional.triplet_margin_loss",
    ),
    refuses("gaussian_nll_loss", ValueError, "var has negative entry/entries", X, X, -1.0),
    refuses("gaussian_nll_loss", ValueError, "var is of incorrect size", X, X, t(2, 4, low=1, high=2)),
]
