"""Pooling."""

import math
from typing import Any

from tests.parity.harness import case, edge, in_dtype, of, refuses, s, t

WINDOWS: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (3, {"stride": 2, "padding": 1}),
    (3, {"stride": 1, "padding": 1}),
    (2, {"stride": 3, "ceil_mode": True}),
    (3, {"stride": 2, "padding": 1, "ceil_mode": True}),
]


def windows(dims: int, **more: Any) -> list[Any]:
    """Every window over a batch, and one without."""
    size = (7,) * dims if dims < 3 else (5,) * dims
    samples = [s(t(2, 3, *size), kernel, **options, **more) for kernel, options in WINDOWS]
    return [*samples, s(t(3, *size), 2, **more)]


for _dims in (1, 2, 3):
    _size = (6,) * _dims
    case(f"max_pool{_dims}d", windows(_dims), windows(_dims, dilation=2)[1:3], torch=f"nn.functional.max_pool{_dims}d")
    case(f"avg_pool{_dims}d", windows(_dims), windows(_dims, count_include_pad=False)[1:], half=_dims < 3)
    case(f"adaptive_avg_pool{_dims}d", [s(t(2, 3, *_size), wanted) for wanted in (1, 2, 4, 6, 8)], s(t(3, *_size), 5))
case(
    "max_pool2d",
    s(t(2, 3, 7, 8), (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    s(t(2, 3, 5, 5), 3, 2, 1, return_indices=True),
    edge(of([[[1, math.nan, 2, 2], [3, 0, 2, 2]]]), 2, return_indices=True),
    edge(of([[[-math.inf] * 3] * 3]), 2, 1, 1, return_indices=True),
    edge(of([[[1, 1, 2], [1, 2, 2], [0, 2, 2]]]), 2, 1, 1, return_indices=True),
    in_dtype("float32", t(2, 3, 6, 6, dtype="int64", grad=False), 2),
    s(t(0, 3, 6, 6), 2),
    torch="nn.functional.max_pool2d",
)
case(
    "avg_pool2d",
    s(t(2, 3, 6, 6), 3, divisor_override=2),
    in_dtype("float32", t(1, 3, 6, 6, dtype="int64", grad=False), 2),
)
case("adaptive_avg_pool2d", s(t(2, 3, 5, 7), (None, 2)), s(t(2, 3, 5, 7), (2, 1)))

X = t(1, 3, 5, 5)
REFUSALS = [
    refuses(
        "max_pool2d",
        RuntimeError,
        "pad should be at most half of effective kernel size, but got pad=2, kernel_size=3",
        X,
        3,
        padding=2,
        torch="nn.functional.max_pool2d",
    ),
    refuses(
        "max_pool2d",
        RuntimeError,
        "Given input size: (3x2x2). Calculated output size: (3x0x0). Output size is too small",
        t(1, 3, 2, 2),
        3,
        torch="nn.functional.max_pool2d",
    ),
    refuses(
        "max_pool2d",
        RuntimeError,
        "non-empty 3D or 4D (batch mode) tensor expected for input",
        t(5, 5),
        3,
        torch="nn.functional.max_pool2d",
    ),
    refuses(
        "max_pool2d",
        RuntimeError,
        "kernel_size must either be a single int, or a tuple of two ints",
        X,
        (3, 3, 3),
        torch="nn.functional.max_pool2d",
    ),
    refuses("max_pool2d", RuntimeError, "stride should not be zero", X, 2, stride=0, torch="nn.functional.max_pool2d"),
    refuses(
        "max_pool2d",
        RuntimeError,
        "dilation should be greater than zero",
        X,
        2,
        dilation=0,
        torch="nn.functional.max_pool2d",
    ),
    refuses("max_pool2d", RuntimeError, "pad must be non-negative", X, 2, padding=-1, torch="nn.functional.max_pool2d"),
    refuses(
        "max_pool2d",
        NotImplementedError,
        "\"max_pool2d\" not implemented for 'Bool'",
        t(1, 3, 5, 5, dtype="bool", grad=False),
        2,
        torch="nn.functional.max_pool2d",
    ),
    refuses(
        "max_pool1d", RuntimeError, "Invalid computed output size: 0", t(1, 3, 2), 3, torch="nn.functional.max_pool1d"
    ),
    refuses("avg_pool2d", RuntimeError, "Output size is too small", t(1, 3, 2, 2), 3),
    refuses("avg_pool2d", RuntimeError, "divisor must be not zero", X, 2, divisor_override=0),
    refuses(
        "adaptive_avg_pool2d",
        RuntimeError,
        "output_size must be 2",
        X,
        (1, 2, 3),
        torch="nn.functional.adaptive_avg_pool2d",
    ),
    refuses(
        "adaptive_avg_pool2d",
        RuntimeError,
        "must be greater than or equal to 0",
        X,
        (-1, 2),
        torch="nn.functional.adaptive_avg_pool2d",
    ),
    refuses(
        "max_pool2d",
        RuntimeError,
        "dilation should be greater than zero, but got dilationH: 0 dilationW: 1",
        t(1, 6, 6),
        3,
        dilation=(0, 1),
        torch="nn.functional.max_pool2d",
    ),
    refuses(
        "max_pool3d",
        RuntimeError,
        "dilation should be greater than zero, but got dilationT: 1 dilationH: -1 dilationW: 1",
        t(1, 6, 6, 6),
        3,
        dilation=(1, -1, 1),
        torch="nn.functional.max_pool3d",
    ),
    refuses(
        "max_pool2d",
        RuntimeError,
        "max_pool2d: dilation must be either a single int, or a tuple of two ints",
        t(1, 6, 6),
        3,
        dilation=(1, 1, 1),
        torch="nn.functional.max_pool2d",
    ),
    refuses(
        "max_pool1d",
        RuntimeError,
        "max_pool1d() dilation must be greater than zero, but got 0",
        t(1, 6),
        3,
        dilation=0,
        torch="nn.functional.max_pool1d",
    ),
    refuses(
        "max_pool1d",
        RuntimeError,
        "max_pool1d() stride must be greater than zero, but got 0",
        t(1, 6),
        3,
        stride=0,
        torch="nn.functional.max_pool1d",
    ),
    refuses(
        "max_pool1d",
        RuntimeError,
        "max_pool1d() kernel_size must be greater than zero, but got 0",
        t(1, 6),
        0,
        torch="nn.functional.max_pool1d",
    ),
    refuses(
        "max_pool1d",
        RuntimeError,
        "max_pool1d() padding must be non-negative, but got -1",
        t(1, 6),
        3,
        padding=-1,
        torch="nn.functional.max_pool1d",
    ),
    refuses(
        "max_pool1d",
        RuntimeError,
        "max_pool1d() padding should be at most half of kernel size, but got padding=2 and kernel_size=3",
        t(1, 6),
        3,
        padding=2,
        torch="nn.functional.max_pool1d",
    ),
]
