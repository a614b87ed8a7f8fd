"""Layers: instance_norm, bilinear, embedding_bag; blocks, shuffled pixels, adaptive maxima."""

from tests.parity.harness import case, ints, refuses, s, t

MEAN, VAR = t(3, grad=False), t(3, low=0.5, high=2, grad=False)
case(
    "instance_norm",
    s(t(2, 3, 5)),
    s(t(2, 3, 2, 4), weight=t(3), bias=t(3), eps=0.1),
    s(t(2, 3, 5), MEAN, VAR, use_input_stats=False),
    torch="nn.functional.instance_norm",
    node=False,
    half=False,
    tolerance=3,
)
case(
    "bilinear",
    s(t(2, 3), t(2, 4), t(5, 3, 4)),
    s(t(2, 2, 3), t(2, 2, 4), t(5, 3, 4), t(5)),
    s(t(3), t(4), t(5, 3, 4), t(5)),
    torch="nn.functional.bilinear",
    node=False,
    half=False,
)
TABLE, BAG = t(6, 3), ints(1, 1, 4, 0, 5)
for mode in ("sum", "mean", "max"):
    case(
        "embedding_bag",
        s(ints([1, 2, 4], [0, 3, 5]), TABLE, mode=mode),
        s(BAG, TABLE, ints(0, 2, 4), mode=mode),
        s(BAG, TABLE, ints(0, 2, 2, 5), mode=mode, include_last_offset=True),
        s(BAG, TABLE, ints(0, 3), mode=mode, padding_idx=4),
        torch="nn.functional.embedding_bag",
        node=False,
        half=False,
        order=1,
    )
case(
    "embedding_bag",
    s(BAG, TABLE, ints(0, 2), mode="sum", per_sample_weights=t(5)),
    torch="nn.functional.embedding_bag",
    node=False,
    half=False,
    order=1,
)
IMAGE = t(2, 3, 5, 4)
case(
    "nn.functional.unfold",
    s(IMAGE, 2),
    s(IMAGE, (3, 2), (1, 2), (1, 0), (2, 1)),
    s(t(3, 5, 4), 2, stride=2),
    node=False,
)
case(
    "fold",
    s(t(2, 8, 6), (3, 4), 2),
    s(t(2, 12, 6), (5, 4), (3, 2), (1, 2), (1, 0), (2, 1)),
    s(t(8, 4), 4, 2, stride=2),
    node=False,
)
case("pixel_shuffle", s(t(2, 8, 3, 2), 2), s(t(9, 1, 2), 3))
case("pixel_unshuffle", s(t(2, 2, 4, 6), 2), s(t(1, 3, 6), 3))
case(
    "adaptive_max_pool2d",
    s(IMAGE, 2),
    s(IMAGE, (3, None)),
    s(t(3, 5, 4), (1, 1), True),
    s(IMAGE, (7, 2), True),
    torch="nn.functional.adaptive_max_pool2d",
)

REFUSALS = [
    refuses(
        "instance_norm",
        ValueError,
        "Expected more than 1 spatial element when training",
        t(2, 3, 1),
        torch="nn.functional.instance_norm",
    ),
    refuses("bilinear", RuntimeError, "batch dimensions do not match at dim 0", t(2, 3), t(1, 4), t(5, 3, 4)),
    refuses(
        "embedding_bag", ValueError, "offsets has to be a 1D Tensor", BAG, TABLE, torch="nn.functional.embedding_bag"
    ),
    refuses(
        "embedding_bag",
        ValueError,
        "mode has to be one of",
        ints([1, 2], [3, 4]),
        TABLE,
        mode="min",
        torch="nn.functional.embedding_bag",
    ),
    refuses(
        "nn.functional.unfold", RuntimeError, "calculated shape of the array of sliding blocks as (0, 1)", IMAGE, (6, 4)
    ),
    refuses("fold", RuntimeError, "but got input.size(2)=5", t(1, 8, 5), (3, 3), 2),
    refuses("pixel_shuffle", RuntimeError, "divisible by the square of upscale_factor", IMAGE, 2),
    refuses("adaptive_max_pool2d", RuntimeError, "Expected 3D or 4D tensor", t(3), 2),
]
