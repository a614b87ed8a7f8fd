"""Losses of labels, of pairs alike or not, and distances of all pairs."""

from tests.parity.harness import case, ints, of, refuses, s, t

F = "nn.functional."
WAYS = ("mean", "sum", "none")
SIGNS = of([1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], grad=False)
SIGN = of(1.0, -1.0, grad=False)
X, WEIGHT = t(2, 3), t(3, low=0.5, high=2, grad=False)
case(
    "soft_margin_loss",
    [s(X, SIGNS, reduction=way) for way in WAYS],
    s(X, of(1.0, -1.0, 1.0, grad=False)),
    torch=F + "soft_margin_loss",
    node=False,
)
case(
    "multi_margin_loss",
    [s(X, ints(0, 2), reduction=way) for way in WAYS],
    s(X, ints(2, 1), 2, 0.7),
    s(X, ints(2, 1), weight=WEIGHT),
    s(X, ints(2, 1), p=2, weight=WEIGHT, reduction="none"),
    s(t(3), ints(1)),
    s(t(3), t(dtype="int64", low=0, high=3, grad=False), reduction="none"),
    torch=F + "multi_margin_loss",
    node=False,
    order=1,
    half=False,
)
case(
    "multilabel_margin_loss",
    [s(X, ints([0, -1, 1], [2, 0, -1]), reduction=way) for way in WAYS],
    s(X, ints([-1, 0, 1], [1, 1, 0])),
    s(t(4), ints(3, 0, -1, 1)),
    torch=F + "multilabel_margin_loss",
    node=False,
    order=1,
    half=False,
)
case(
    "multilabel_soft_margin_loss",
    [s(X, t(2, 3, low=0, high=1), reduction=way) for way in WAYS],
    s(X, t(3, low=0, high=1), WEIGHT),
    s(t(3), t(3), reduction="none"),
    torch=F + "multilabel_soft_margin_loss",
    node=False,
)
case(
    "cosine_embedding_loss",
    [s(X, X, SIGN, reduction=way) for way in WAYS],
    s(X, X, SIGN, 0.3),
    s(t(3), t(3), t(values=1.0, grad=False)),
    torch=F + "cosine_embedding_loss",
    node=False,
)
case(
    "pdist",
    s(t(4, 3)),
    s(t(4, 3), 1.0),
    s(t(3, 3), p=3),
    s(t(1, 3)),
    s(t(4, 3), float("inf")),
    torch=F + "pdist",
    node=False,
    order=1,
    half=False,
)

REFUSALS = [
    refuses(
        "soft_margin_loss",
        RuntimeError,
        "doesn't match the broadcast shape",
        t(2),
        t(2, 2, grad=False),
        torch=F + "soft_margin_loss",
    ),
    refuses("multi_margin_loss", RuntimeError, "target out of range", X, ints(0, 3), torch=F + "multi_margin_loss"),
    refuses(
        "multi_margin_loss",
        ValueError,
        "only p == 1 and p == 2 supported",
        X,
        ints(0, 1),
        3,
        torch=F + "multi_margin_loss",
    ),
    refuses(
        "multi_margin_loss",
        RuntimeError,
        "inconsistent weight size",
        X,
        ints(0, 1),
        weight=t(2, grad=False),
        torch=F + "multi_margin_loss",
    ),
    refuses(
        "multi_margin_loss",
        RuntimeError,
        "target tensor should be 1-D",
        X,
        ints(0, 1, 2),
        torch=F + "multi_margin_loss",
    ),
    refuses(
        "multilabel_margin_loss",
        RuntimeError,
        "is out of range",
        t(3),
        ints(0, 1, 5),
        torch=F + "multilabel_margin_loss",
    ),
    refuses(
        "multilabel_margin_loss",
        RuntimeError,
        "inconsistent target size",
        X,
        ints(0, 1, 2),
        torch=F + "multilabel_margin_loss",
    ),
    refuses(
        "multilabel_soft_margin_loss",
        IndexError,
        "tensor has no dimensions",
        t(),
        t(),
        torch=F + "multilabel_soft_margin_loss",
    ),
    refuses(
        "cosine_embedding_loss", RuntimeError, "multi-target not supported", X, X, X, torch=F + "cosine_embedding_loss"
    ),
    refuses(
        "cosine_embedding_loss",
        RuntimeError,
        "target tensor expects 2D input tensors",
        t(3),
        t(3),
        t(3),
        torch=F + "cosine_embedding_loss",
    ),
    refuses("pdist", RuntimeError, "pdist only supports 2D tensors", t(3), torch=F + "pdist"),
    refuses("pdist", RuntimeError, "non-negative p values", X, -1.0, torch=F + "pdist"),
]
