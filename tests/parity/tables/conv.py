"""Convolution, its transpose, and padding."""

from typing import Any

from tests.parity.harness import case, in_dtype, refuses, s, t

C = "complex128"


def layers(dims: int) -> list[Any]:
    """Strides, padding, dilation, groups, pointwise, no batch, an empty one."""
    x, w = (5,) * dims, (3,) * dims
    return [
        s(t(2, 4, *x), t(6, 4, *w), t(6)),
        s(t(2, 4, *x), t(6, 2, *w), t(6), stride=2, padding=1, groups=2),
        s(t(1, 4, *x), t(4, 1, *w), padding=2, dilation=2, groups=4),
        s(t(3, 2, *x), t(4, 2, *(1,) * dims), t(4)),
        s(t(2, 2, *x), t(4, 2, *(1,) * dims), stride=2),
        s(t(2, *x), t(4, 2, *w)),
        s(t(0, 2, *x), t(4, 2, *w), t(4)),
        s(t(2, 2, *x), t(3, 2, *(2, 3, 1)[:dims]), stride=(2, 1, 3)[:dims], padding=(1, 0, 2)[:dims]),
    ]


def transposed(dims: int) -> list[Any]:
    """The same for the transpose, and output_padding."""
    x, w = (3,) * dims, (3,) * dims
    return [
        s(t(2, 4, *x), t(4, 6, *w), t(6)),
        s(t(2, 4, *x), t(4, 3, *w), t(6), stride=2, padding=1, groups=2, output_padding=1),
        s(t(1, 4, *x), t(4, 1, *w), padding=1, dilation=2, groups=4),
        s(t(2, 4, *x), t(4, 2, *(1,) * dims), t(2)),
        s(t(4, *x), t(4, 2, *w), stride=3),
    ]


for _dims in (1, 2, 3):
    # PyTorch adds up in half precision here, the engine in float32.
    case(f"conv{_dims}d", layers(_dims), tolerance=5)
    case(f"conv_transpose{_dims}d", transposed(_dims), tolerance=5)
case(
    "conv2d",
    s(t(2, 3, 6, 6), t(4, 3, 2, 3), t(4), padding="same"),
    s(t(2, 3, 6, 6), t(4, 3, 3, 3), t(4), padding="same", dilation=2),
    s(t(2, 3, 6, 6), t(4, 3, 2, 3), padding="valid"),
    tolerance=5,
)
case("conv2d", in_dtype("float64", t(2, 3, 6, 6, dtype=C), t(4, 3, 2, 3, dtype=C)), node=False, half=False)
# More images than one column buffer holds.
case("conv2d", in_dtype("float32", t(20, 16, 28, 28), t(8, 16, 3, 3), padding=1), half=False, order=1, tolerance=30)
case(
    "conv_transpose2d",
    in_dtype("float32", t(20, 16, 28, 28), t(16, 8, 3, 3), padding=1),
    half=False,
    order=1,
    tolerance=30,
)
case(  # more output padding than stride
    "conv_transpose2d",
    s(t(2, 3, 4, 3), t(3, 2, 2, 2), t(2), dilation=2, output_padding=1),
    s(t(2, 3, 4, 3), t(3, 2, 3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1), output_padding=1),
    node=False,
    half=False,
)
case(
    "pad",
    s(t(2, 3, 4), (1, 2)),
    s(t(2, 3, 4), (1, -2, -1, 1, 0, 1), value=2.5),
    s(t(2, 3, 4), (-3, 1)),
    s(t(2, 3), (0, 0), "constant", 1.0),
)

X, W = t(1, 3, 5, 5), t(4, 3, 3, 3)
REFUSALS = [
    refuses(
        "conv2d",
        RuntimeError,
        "expected input[1, 3, 5, 5] to have 2 channels, but got 3 channels instead",
        X,
        t(4, 2, 3, 3),
    ),
    refuses("conv2d", RuntimeError, "Kernel size can't be greater than actual input size", t(1, 3, 2, 2), W),
    refuses("conv2d", RuntimeError, "Expected 3D (unbatched) or 4D (batched) input to conv2d", t(5, 5), W),
    refuses("conv2d", RuntimeError, "expected bias to be 1-dimensional with 4 elements", X, W, t(5)),
    refuses("conv2d", RuntimeError, "expected scalar type Float but found Double", X, t(4, 3, 3, 3, dtype="float64")),
    refuses("conv2d", RuntimeError, "non-positive stride is not supported", X, W, stride=0),
    refuses("conv2d", RuntimeError, "negative padding is not supported", X, W, padding=-1),
    refuses("conv2d", RuntimeError, "dilation should be greater than zero", X, W, dilation=0),
    refuses(
        "conv2d",
        RuntimeError,
        "padding='same' is not supported for strided convolutions",
        X,
        W,
        padding="same",
        stride=2,
    ),
    refuses("conv2d", RuntimeError, "non-positive groups is not supported", X, W, groups=0),
    refuses(
        "conv2d",
        RuntimeError,
        "expected stride to be a single integer value or a list of 2 values",
        X,
        W,
        stride=(1, 2, 3),
    ),
    refuses("conv_transpose2d", RuntimeError, "to have 4 channels, but got 3 channels instead", X, W),
    refuses(
        "conv_transpose2d",
        RuntimeError,
        "output padding must be smaller than either stride or dilation",
        X,
        t(3, 4, 3, 3),
        output_padding=1,
    ),
    refuses("conv_transpose2d", RuntimeError, "Output size is too small", t(1, 3, 1, 1), t(3, 4, 3, 3), padding=2),
    refuses("pad", RuntimeError, "Padding length must be divisible by 2", t(2, 3), (1,)),
    refuses(
        "pad",
        RuntimeError,
        "Padding length should be less than or equal to two times the input dimension",
        t(2, 3),
        (1,) * 6,
    ),
]
