"""Fourier transforms of one and several dimensions, every normalization, lengths cut and padded, and gradients."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.signal import fft
from tests.engine.oracle import Refused, Same, given, integers, normal, refused, same, torch

X, Z = normal(3, 6), normal(3, 6, dtype="complex128")
NAMES_REAL, NAMES_COMPLEX = ("fft", "ifft", "rfft", "ihfft"), ("fft", "ifft", "irfft", "hfft")
MANY = ("fftn", "ifftn", "rfftn", "fft2", "ifft2", "rfft2")


def _both(name: str) -> tuple:
    return getattr(fft, name), getattr(torch.fft, name)


SAME = [
    *(same(*_both(name), X, norm=norm) for name in NAMES_REAL for norm in (None, "ortho", "forward")),
    *(same(*_both(name), Z, norm=norm) for name in NAMES_COMPLEX for norm in (None, "ortho", "forward")),
    *(same(*_both(name), X, n, 0) for name in NAMES_REAL for n in (2, 5)),
    *(same(*_both(name), Z, n, 1) for name in NAMES_COMPLEX for n in (4, 7, 11)),
    *(same(*_both(name), normal(2, 3, 4)) for name in MANY),
    *(same(*_both(name), normal(2, 3, 4), (5, 2)) for name in MANY),
    *(same(*_both(name), normal(2, 3, 4, dtype="complex128"), dim=(0, 1)) for name in ("fftn", "irfftn", "irfft2")),
    same(*_both("rfftn"), normal(2, 3, 4), (4, -1), (2, 0), "ortho"),
    same(*_both("fft"), integers(0, 9, 5)),
    same(*_both("fft"), normal(2, 17, dtype="float32")),
    same(*_both("fftshift"), normal(4, 5)),
    same(*_both("fftshift"), normal(4, 5), 1),
    same(*_both("ifftshift"), normal(4, 5), (0, 1)),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(fft.fft, RUN, 'Invalid normalization mode: "both"', X, norm="both", theirs=torch.fft.fft),
    refused(fft.fft, RUN, "Invalid number of data points (0)", X, 0, theirs=torch.fft.fft),
    refused(fft.fft, Reason.DIM_OUT_OF_RANGE, "but got 2", X, None, 2, theirs=torch.fft.fft),
    refused(fft.fft, Reason.DIM_OUT_OF_RANGE, "no dimensions", normal(), theirs=torch.fft.fft),
    refused(fft.rfft, RUN, "real input tensor, but got ComplexDouble", Z, theirs=torch.fft.rfft),
    refused(fft.fft, RUN, "Unsupported dtype Half", given([1.0, 2.0], "float16"), theirs=torch.fft.fft),
    refused(fft.fftn, RUN, "same length", X, (2,), (0, 1), theirs=torch.fft.fftn),
    refused(fft.fftn, RUN, "unique", X, None, (0, 0), theirs=torch.fft.fftn),
    refused(fft.fftn, RUN, "shape with 3 values but input tensor only has 2", X, (1, 2, 3), theirs=torch.fft.fftn),
    refused(fft.rfftn, RUN, "at least one axis", X, None, (), theirs=torch.fft.rfftn),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


@pytest.mark.parametrize("n", [1, 2, 5, 8, 31, 97])
def test_a_transform_and_its_inverse_give_the_signal_back(n: int) -> None:
    rng = np.random.default_rng(n)
    real = rng.standard_normal((2, n))
    np.testing.assert_allclose(fft.irfft(fft.rfft(real), n), real, atol=1e-12)
    whole = real + 1j * rng.standard_normal((2, n))
    np.testing.assert_allclose(fft.ifft(fft.fft(whole)), whole, atol=1e-12)
    np.testing.assert_array_equal(fft.ifftshift(fft.fftshift(real)), real)


def test_half_of_a_spectrum_gives_the_whole() -> None:
    real = np.random.default_rng(1).standard_normal((3, 5))
    whole = fft.r2c(real, (0, 1), 0, False)
    np.testing.assert_allclose(whole, np.fft.fft2(real), atol=1e-12)
    half = fft.r2c(real, (0, 1), 0, True)
    np.testing.assert_allclose(half, whole[:, :3], atol=1e-12)


def test_resizing_cuts_or_pads_with_zeros_at_the_end() -> None:
    assert fft.resized(np.array([1.0, 2.0, 3.0]), (0,), (2,)).tolist() == [1, 2]
    assert fft.resized(np.array([1.0, 2.0]), (0,), (4,)).tolist() == [1, 2, 0, 0]
