"""Adaptive maxima, unpooling, means of powers, local_response_norm, channel_shuffle, drops that draw nothing."""

from tests.parity.harness import case, edge, ints, of, refuses, s, t

F = "nn.functional."
NAN = float("nan")
for _dims in (1, 2, 3):
    _sizes = (5, 4, 3)[:_dims]
    case(
        f"adaptive_max_pool{_dims}d",
        s(t(2, 3, *_sizes), 2),
        s(t(2, *_sizes), 3, return_indices=True),
        s(t(2, 3, *_sizes), (2, None, 1)[:_dims]) if _dims > 1 else s(t(0, 3, 4), 2),
        edge(t(2, 6, *[1] * (_dims - 1), values=[NAN, 1, NAN, 2, 2, 1] * 2), (2, 1, 1)[:_dims]),
        torch=F + f"adaptive_max_pool{_dims}d",
        order=1 if _dims == 3 else 2,
        half=False,
    )

PLACES = ints([[[0, 3], [9, 11]], [[1, 2], [8, 15]]])
case(
    "max_unpool2d",
    s(t(2, 2, 2), PLACES, 2),
    s(t(2, 2, 2), PLACES, (2, 2), stride=2, padding=0, output_size=(5, 4)),
    s(t(1, 2, 2, 2), ints([PLACES.values]), 2),
    torch=F + "max_unpool2d",
    order=1,
    half=False,
)
case(
    "max_unpool1d",
    s(t(2, 2), ints([0, 3], [1, 2]), 2),
    s(t(1, 2, 2), ints([[[0, 3], [1, 2]]]), 2, output_size=(1, 2, 5)),
    torch=F + "max_unpool1d",
    order=1,
    half=False,
)
case("max_unpool3d", s(t(1, 1, 1, 2), ints([[[[0, 9]]]]), 2), torch=F + "max_unpool3d", order=1, half=False)
POSITIVE = {"low": 0.5, "high": 2.0}
case("lp_pool1d", s(t(2, 3, 6, **POSITIVE), 2, 3), s(t(3, 6, **POSITIVE), 3.0, 2, 1), torch=F + "lp_pool1d", half=False)
case(
    "lp_pool2d",
    s(t(2, 3, 4, 4, **POSITIVE), 2, 2),
    s(t(3, 5, 4, **POSITIVE), 1.5, (2, 3), ceil_mode=True),
    torch=F + "lp_pool2d",
    half=False,
)
case("lp_pool3d", s(t(1, 2, 4, 4, 2, **POSITIVE), 2, 2), torch=F + "lp_pool3d", half=False)
case(
    "local_response_norm",
    s(t(2, 5, 3), 2),
    s(t(2, 5, 3, 2), 3, alpha=0.1, beta=0.5, k=2.0),
    s(t(1, 4, 2, 2, 2), 1, 0.5),
    s(t(2, 3, 0), 2),
    torch=F + "local_response_norm",
    node=False,
    half=False,
)
case("channel_shuffle", s(t(2, 6, 3), 2), s(t(1, 6, 2, 2), 3), s(t(2, 4, 1), 4), torch=F + "channel_shuffle", order=1)
case("rrelu", s(t(3, 4)), s(t(3), 0.2, 0.4), edge(of(0.0, -1.0, NAN)), torch=F + "rrelu", node=False, in_place=False)
for _name, _shape in (("dropout1d", (2, 3, 4)), ("dropout2d", (2, 3, 4, 4)), ("dropout3d", (2, 3, 2, 2, 2))):
    case(_name, s(t(*_shape), 0.5, False), s(t(*_shape), 0.0), torch=F + _name, node=False)
    case(_name, s(t(*_shape), 1.0), torch=F + _name, node=False)
for _name in ("alpha_dropout", "feature_alpha_dropout"):
    case(_name, s(t(2, 3, 4), 0.5), s(t(2, 3, 4), 0.0, True), s(t(2, 3), 1.0, True), torch=F + _name, node=False)

REFUSALS = [
    refuses(
        "adaptive_max_pool2d",
        NotImplementedError,
        "not implemented for 'Long'",
        ints([[[1]]]),
        1,
        torch=F + "adaptive_max_pool2d",
    ),
    refuses(
        "adaptive_max_pool3d", RuntimeError, "Expected 4D or 5D tensor", t(2, 3, 3), 1, torch=F + "adaptive_max_pool3d"
    ),
    refuses(
        "max_unpool2d",
        RuntimeError,
        "Found an invalid max index",
        t(2, 2, 2),
        ints([[[0, 3], [9, 11]], [[1, 2], [8, 16]]]),
        2,
        torch=F + "max_unpool2d",
    ),
    refuses(
        "max_unpool2d",
        ValueError,
        "invalid output_size",
        t(2, 2, 2),
        PLACES,
        2,
        output_size=(9, 9),
        torch=F + "max_unpool2d",
    ),
    refuses("channel_shuffle", RuntimeError, "divisible by groups", t(2, 4, 2), 3, torch=F + "channel_shuffle"),
    refuses("channel_shuffle", RuntimeError, "expects input with > 2 dims", t(2, 4), 2, torch=F + "channel_shuffle"),
    refuses("local_response_norm", ValueError, "Expected 3D or higher", t(2, 2), 2, torch=F + "local_response_norm"),
    refuses("dropout1d", RuntimeError, "Expected 2D or 3D input", t(2), torch=F + "dropout1d"),
    refuses("dropout2d", RuntimeError, "at least 2 dimensions", t(2), torch=F + "dropout2d"),
    refuses("alpha_dropout", ValueError, "between 0 and 1", t(2), 2.0, torch=F + "alpha_dropout"),
    refuses("rrelu", RuntimeError, "Lower bound should be less than or equal", t(2), 1.0, 0.0, True, torch=F + "rrelu"),
]
