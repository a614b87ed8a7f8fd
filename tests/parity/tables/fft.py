"""Fourier transforms."""

from tests.parity.harness import T, case, in_dtype, refuses, s, t

C = "complex128"
NORMS = ("backward", "ortho", "forward")


def c(*shape: int) -> T:
    """A complex tensor."""
    return t(*shape, dtype=C)


for name in ("fft", "ifft", "hfft", "irfft"):
    case(
        f"fft.{name}",
        [in_dtype("float64", c(3, 5), norm=norm) for norm in NORMS],
        [in_dtype("float64", c(4, 5), n, dim) for n, dim in ((3, 0), (7, -1), (6, 1), (1, -1), (2, 0))],
        in_dtype("float64", t(2, 3, dtype="complex64")),
        s(t(3, 4)),
        s(t(5, layout="F"), 4),
        in_dtype("float32", t(4, dtype="int64", low=0, high=5)),
        node=False,
        half=False,
    )
for name in ("rfft", "ihfft"):
    case(
        f"fft.{name}",
        [s(t(3, 5), norm=norm) for norm in NORMS],
        [s(t(4, 5), n, dim) for n, dim in ((3, 0), (7, -1), (6, 1), (1, -1), (2, 0))],
        s(t(2, 1)),
        in_dtype("float32", t(4, dtype="int64", low=0, high=5)),
        node=False,
        half=False,
    )
for name in ("fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn"):
    case(
        f"fft.{name}",
        [in_dtype("float64", c(2, 3, 4), norm=norm) for norm in NORMS],
        in_dtype("float64", c(2, 3, 4), (4, 2)),
        in_dtype("float64", c(2, 3, 4), (5, -1), (0, 1)),
        in_dtype("float64", c(2, 3, 4), dim=(2, 0)),
        s(t(3, 4)),
        node=False,
        half=False,
    )
for name in ("rfft2", "rfftn"):
    case(
        f"fft.{name}",
        [s(t(2, 3, 4), norm=norm) for norm in NORMS],
        s(t(2, 3, 4), (4, 2)),
        s(t(2, 3, 4), (5, -1), (0, 1)),
        s(t(2, 3, 5), dim=(2, 0)),
        node=False,
        half=False,
    )
for name in ("fftshift", "ifftshift"):
    case(f"fft.{name}", s(t(3, 4)), s(t(3, 4), 0), s(t(5)), s(t(3, 4, 5), (0, -1)), node=False)

REFUSALS = [
    refuses("fft.fft", RuntimeError, "Invalid number of data points (0) specified", t(3), 0),
    refuses("fft.fft", RuntimeError, 'Invalid normalization mode: "half"', t(3), norm="half"),
    refuses("fft.fft", IndexError, "Dimension out of range", t(3), dim=2),
    refuses("fft.fft", IndexError, "but tensor has no dimensions", t()),
    refuses("fft.fft", RuntimeError, "Unsupported dtype", t(3, dtype="float16")),
    refuses("fft.rfft", RuntimeError, "expects a real input tensor", c(3)),
    refuses("fft.fftn", RuntimeError, "FFT dims must be unique", t(3, 4), dim=(0, -2)),
    refuses(
        "fft.fftn", RuntimeError, "When given, dim and shape arguments must have the same length", t(3), (2, 2), (0,)
    ),
    refuses("fft.fftn", RuntimeError, "Got shape with 2 values but input tensor only has 1 dimensions", t(3), (2, 2)),
]
