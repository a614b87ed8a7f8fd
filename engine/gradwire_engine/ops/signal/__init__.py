"""Fourier transforms."""

from gradwire_engine.ops.signal import fft, stft

__all__ = ["fft", "stft"]
