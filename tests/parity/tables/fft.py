"""Fourier transforms."""

from tests.parity.harness import T, case, edge, in_dtype, refuses, s, t

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
WINDOW = t(8, low=0.5, high=1.5)
case(
    "stft",
    [s(t(2, 20), 8, return_complex=True), s(t(20), 8, 3, 6, return_complex=True), s(t(20), 8, return_complex=False)],
    [s(t(20), 8, center=False, normalized=True, return_complex=True), s(t(20), 7, onesided=False, return_complex=True)],
    [s(t(2, 20), 8, 2, window=WINDOW, pad_mode=mode, return_complex=True) for mode in ("constant", "circular")],
    s(t(20), 8, 3, 4, center=False, align_to_window=True, return_complex=True),
    [in_dtype("float64", c(20), 8), in_dtype("float64", t(20), 8, window=c(8), return_complex=True)],
    edge(t(20, dtype="float64"), 8, window=t(8, dtype="float32"), return_complex=True),
    node=False,
    half=False,
)
case(
    "istft",
    [in_dtype("float64", c(2, 5, 9), 8, 2, window=WINDOW), in_dtype("float64", c(5, 9), 8)],
    [in_dtype("float64", c(5, 9), 8, 2, length=length) for length in (10, 30)],
    in_dtype("float64", c(5, 9), 8, 2, center=False),
    [in_dtype("float64", c(5, 9), 8, 2, 6, normalized=True), in_dtype("float64", c(4, 9), 7, 2)],
    in_dtype("float64", c(8, 9), 8, 2, window=WINDOW, onesided=False),
    in_dtype("float64", c(8, 9), 8, 2, window=c(8), onesided=False, return_complex=True),
    node=False,
    half=False,
    tolerance=10.0,
)

REFUSALS = [
    refuses("stft", RuntimeError, "requires the return_complex parameter be given for real inputs", t(20), 8),
    refuses(
        "stft",
        RuntimeError,
        "expected a 1D window tensor of size equal to win_length",
        t(20),
        8,
        window=t(7),
        return_complex=True,
    ),
    refuses("stft", RuntimeError, "expected hop_length > 0", t(20), 8, 0, return_complex=True),
    refuses("stft", RuntimeError, "expected 0 < win_length <= n_fft", t(20), 8, 2, 9, return_complex=True),
    refuses("stft", RuntimeError, "expected a 1D or 2D tensor", t(1, 2, 20), 8, return_complex=True),
    refuses("stft", RuntimeError, "Cannot have onesided output", c(20), 8, onesided=True),
    refuses(
        "stft", RuntimeError, "should only be set when center", t(20), 8, align_to_window=True, return_complex=True
    ),
    refuses("istft", RuntimeError, "requires a complex-valued input", t(5, 9), 8),
    refuses("istft", RuntimeError, "expected the frequency dimension", c(4, 9), 8),
    refuses("istft", RuntimeError, "window overlap add min: 1", c(5, 9), 8, 2, window=t(8, low=0.0, high=0.0)),
    refuses("istft", RuntimeError, "expected 0 < hop_length <= win_length", c(5, 9), 8, 9),
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
