"""Resizing, looking up at real positions."""

from tests.parity.harness import case, once, refuses, s, t

LINE, IMAGE, BODY = t(2, 2, 5), t(2, 2, 4, 5), t(1, 2, 3, 2, 4)
for mode in ("nearest", "nearest-exact", "area"):
    case(
        "interpolate",
        s(LINE, 8, mode=mode),
        s(LINE, 3, mode=mode),
        s(IMAGE, (7, 3), mode=mode),
        s(IMAGE, scale_factor=[1.5, 2.3], mode=mode),
        s(BODY, (2, 4, 5), mode=mode),
        node=mode != "area",
    )
for mode, x in (("linear", LINE), ("bilinear", IMAGE), ("bicubic", IMAGE), ("trilinear", BODY)):
    case(
        "interpolate",
        [s(x, size, mode=mode, align_corners=align) for size in (1, 3, 9) for align in (None, True)],
        s(x, scale_factor=1.7, mode=mode),
        s(x, scale_factor=1.7, mode=mode, recompute_scale_factor=True),
    )
GRID, DEEP = t(2, 3, 4, 2, low=-1.3, high=1.3), t(1, 2, 3, 2, 3, low=-1.3, high=1.3)
for padding in ("zeros", "border", "reflection"):
    for align in (False, True):
        case(
            "grid_sample",
            s(IMAGE, GRID, "bilinear", padding, align),
            s(BODY, DEEP, "bilinear", padding, align),
            s(IMAGE, GRID, "bicubic", padding, align),
            torch="nn.functional.grid_sample",
            order=1,
            node=False,
            half=False,
        )
        case(
            "grid_sample",
            once(IMAGE, GRID, "nearest", padding, align),
            once(BODY, DEEP, "nearest", padding, align),
            torch="nn.functional.grid_sample",
            order=1,
            node=False,
            half=False,
        )

REFUSALS = [
    refuses("interpolate", ValueError, "either size or scale_factor should be defined", LINE),
    refuses("interpolate", ValueError, "only one of size or scale_factor should be defined", LINE, 3, 2.0),
    refuses("interpolate", ValueError, "align_corners option can only be set", LINE, 3, align_corners=True),
    refuses(
        "interpolate", NotImplementedError, "Got 3D input, but bilinear mode needs 4D input", LINE, 3, mode="bilinear"
    ),
    refuses("grid_sample", ValueError, "expected mode to be", IMAGE, GRID, "cubic", torch="nn.functional.grid_sample"),
    refuses(
        "grid_sample", RuntimeError, "to have same batch size", IMAGE, t(1, 3, 4, 2), torch="nn.functional.grid_sample"
    ),
]
