"""Transforms of windows of a signal, and the signal back from them."""

import numpy as np
import pytest

from gradwire_engine import Reason
from gradwire_engine.ops.signal import stft
from tests.engine.oracle import Refused, Same, normal, refused, same, torch, uniform

SIGNAL, WINDOW = normal(2, 40), uniform(0.2, 1, 8)
PAIR = (stft.stft, torch.stft)
BACK = (stft.istft, torch.istft)
SPECTRUM = normal(5, 9, dtype="complex128")
C = {"return_complex": True}
SAME = [
    same(*PAIR, SIGNAL, 8, **C),
    same(*PAIR, SIGNAL, 8, 3, window=WINDOW, **C),
    same(*PAIR, SIGNAL, 8, 4, 6, uniform(0.2, 1, 6), **C),
    same(*PAIR, SIGNAL, 8, center=False, **C),
    same(*PAIR, SIGNAL, 8, normalized=True, **C),
    same(*PAIR, SIGNAL, 8, onesided=False, **C),
    same(*PAIR, SIGNAL, 8, pad_mode="constant", **C),
    same(*PAIR, normal(40), 8, return_complex=False),
    same(*PAIR, normal(40, dtype="complex128"), 8, **C),
    same(*BACK, SPECTRUM.constant, 8, 2, window=WINDOW.constant, factor=100),
    same(*BACK, SPECTRUM.constant, 8, 2, window=WINDOW.constant, length=10, factor=100),
    same(*BACK, SPECTRUM.constant, 8, 2, window=WINDOW.constant, normalized=True, factor=100),
    same(
        *BACK,
        normal(2, 8, 9, dtype="complex128").constant,
        8,
        2,
        window=WINDOW.constant,
        onesided=False,
        return_complex=True,
        factor=100,
    ),
]
RUN = Reason.RUNTIME
REFUSED = [
    refused(PAIR[0], RUN, "return_complex", SIGNAL, 8, theirs=PAIR[1]),
    refused(PAIR[0], RUN, "onesided", normal(40, dtype="complex128"), 8, onesided=True, **C, theirs=PAIR[1]),
    refused(PAIR[0], RUN, "hop_length", SIGNAL, 8, 0, **C, theirs=PAIR[1]),
    refused(PAIR[0], RUN, "win_length", SIGNAL, 8, 2, 9, **C, theirs=PAIR[1]),
    refused(PAIR[0], RUN, "window", SIGNAL, 8, 2, window=uniform(0, 1, 7), **C, theirs=PAIR[1]),
    refused(BACK[0], RUN, "complex-valued input", normal(5, 9), 8, theirs=BACK[1]),
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_values_and_gradients_equal_pytorch(case: Same) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_refusal_names_what_is_wrong(case: Refused) -> None:
    case.check()


def test_the_inverse_transform_restores_the_signal() -> None:
    rng = np.random.default_rng(1)
    signal, window = rng.standard_normal(64), np.hanning(17)[:16]
    spectrum = stft.stft(signal, 16, 4, window=window, return_complex=True)
    found = stft.istft(spectrum, 16, 4, window=window, length=64)
    np.testing.assert_allclose(found, signal, atol=1e-12)
