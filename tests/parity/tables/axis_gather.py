"""Padding by the input's own elements, windows and other strides, quantiles."""

from tests.parity.harness import case, edge, of, refuses, s, t

for mode, node in (("reflect", "ReflectionPad{}DBackward0"), ("replicate", "ReplicationPad{}DBackward0")):
    case("pad", s(t(2, 4), (2, 1), mode), s(t(2, 3, 4), (-1, 2), mode), node=node.format(1))
    case("pad", s(t(2, 3, 4), (2, 1, 0, 2), mode), s(t(1, 2, 3, 4), (1, 1, 1, 1), mode), node=node.format(2))
    case("pad", s(t(2, 3, 3, 4), (2, 1, 0, 2, 1, 1), mode), node=node.format(3))
case(
    "pad",
    s(t(2, 4), (2, 4), "circular"),
    s(t(2, 4), (-1, 2), "circular"),
    s(t(1, 2, 3, 4), (1, 0, 2, 3), "circular"),
    node=False,
)
case(
    "unfold",
    s(t(7), 0, 3, 2),
    s(t(3, 5, 2), 1, 2, 1),
    s(t(3, 5), -1, 5, 4),
    s(t(), 0, 1, 1),
    s(t(3, 5), 0, 0, 2),
    torch="Tensor.unfold",
    node="UnfoldBackward0",
)
case(
    "as_strided",
    s(t(3, 4), (2, 2), (4, 1)),
    s(t(3, 4), (3, 3), (1, 2), 2),
    s(t(3, 4), (2, 0), (1, 1)),
    s(t(4, 3, layout="F"), (2, 5), (1, 0)),
    s(t(6), (), (), 3),
    node="AsStridedBackward0",
)
FRACTIONS = of(0.0, 0.4, 1.0)
case(
    "quantile",
    s(t(3, 5), 0.3),
    s(t(3, 5), 0.5, 1),
    s(t(3, 5), 0.7, 0, True),
    s(t(2, 3, 4), of(0.1, 0.65), 1),
    s(t(2, 3, 4), of(0.1, 0.65), 1, True),
    s(t(5), of(0.2, 0.9), keepdim=True),
    s(t(), 0.5, 0),
    *[s(t(3, 6), 0.45, 1, interpolation=way) for way in ("lower", "higher", "midpoint", "nearest")],
    edge(of([1.0, float("nan"), 0.0], [3.0, 1.0, 2.0], grad=False), 0.5, 1),
    node=False,
    half=False,
)

REFUSALS = [
    refuses(
        "pad", RuntimeError, "Padding size should be less than the corresponding input", t(2, 3), (3, 1), "reflect"
    ),
    refuses("pad", RuntimeError, "causes wrapping around more than once", t(2, 3), (4, 1), "circular"),
    refuses("pad", NotImplementedError, "Unrecognised padding mode", t(2, 3), (1, 1), "mirror"),
    refuses("pad", NotImplementedError, "Padding size 2 is not supported for 1D", t(3), (1, 1), "reflect"),
    refuses("pad", RuntimeError, "doesn't take in value argument", t(2, 3), (1, 1), "reflect", 2.0),
    refuses(
        "unfold",
        RuntimeError,
        "maximum size for tensor at dimension 0 is 2 but size is 3",
        t(2),
        0,
        3,
        1,
        torch="Tensor.unfold",
    ),
    refuses("unfold", RuntimeError, "step is 0 but must be > 0", t(2), 0, 1, 0, torch="Tensor.unfold"),
    refuses("as_strided", RuntimeError, "are out of bounds for storage of size 24", t(6), (3, 3), (3, 1)),
    refuses("as_strided", RuntimeError, "mismatch in length of strides and shape", t(6), (3,), (3, 1)),
    refuses("quantile", RuntimeError, "must be in the range [0, 1] but got 1.5", t(3), 1.5),
    refuses("quantile", RuntimeError, "interpolation must be one of linear", t(3), 0.5, interpolation="cubic"),
    refuses("quantile", RuntimeError, "input tensor must be non-empty", t(0), 0.5),
]
