"""Dropout: of elements, of channels, and alpha dropout; rrelu. Each multiplies by random noise."""

from __future__ import annotations

import math
from typing import Any

from gradwire_engine.core import dtypes
from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.base.fill import zeros
from gradwire_engine.ops.elementwise.activation import leaky_relu
from gradwire_engine.ops.random.draw import sampler_for
from gradwire_engine.ops.shape.shape import squeeze, unsqueeze


@op(name="_dropout_noise", cost=4, draws=True)
def _dropout_noise(xp: Any, input: Array, p: float) -> Array:
    """Noise: 0 with probability p, else 1 / (1 - p), per element."""
    if p == 1:
        return xp.zeros(input.shape, input.dtype)
    kept = sampler_for(xp).kept(input, p)
    wide = dtypes.float64 if input.dtype == dtypes.float64 else dtypes.float32
    return xp.multiply(kept, input.dtype.type(1 / wide.type(1 - p)), dtype=input.dtype)


@composite(in_place=True, views="maybe", draws=True)
def dropout(input: Array, p: float = 0.5, training: bool = True) -> Any:
    """Set elements to 0 with probability p and scale the others by 1 / (1 - p) (torch.nn.functional.dropout).

    The noise is drawn from the session's generator. Raises EngineError: ARGUMENT_VALUE for p outside [0, 1], DTYPE.
    """
    if not 0 <= p <= 1:
        raise EngineError(Reason.ARGUMENT_VALUE, f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * zeros(input, ())
    if dtypes.category(input.dtype) < dtypes.FLOAT:
        raise EngineError(
            Reason.DTYPE, f"result type Float can't be cast to the desired output type {dtypes.TITLES[input.dtype]}"
        )
    return input * _dropout_noise(input, p)


def _channels(input: Any) -> tuple[int, ...]:
    """Shape of a mask of whole channels. Raises EngineError: RUNTIME."""
    if input.ndim < 2:
        raise EngineError(Reason.RUNTIME, "Feature dropout requires at least 2 dimensions in the input")
    return (*input.shape[:2], *[1] * (input.ndim - 2))


def _check_rate(p: float) -> None:
    if not 0 <= p <= 1:
        raise EngineError(Reason.ARGUMENT_VALUE, f"dropout probability has to be between 0 and 1, but got {p}")


def _draws(input: Any, p: float, training: bool) -> bool:
    """Whether some elements are dropped and others kept."""
    return training and 0 < p < 1 and 0 not in input.shape


def _channel_dropout(input: Any, p: float, training: bool, unbatched: bool) -> Any:
    _check_rate(p)
    if not _draws(input, p, training):
        return input * zeros(input, ()) if training and p == 1 and 0 not in input.shape else input
    batch = unsqueeze(input, 0) if unbatched else input
    made = batch * _dropout_noise(zeros(batch, _channels(batch)), p)
    return squeeze(made, 0) if unbatched else made


@composite(views="maybe", draws=True)
def dropout1d(input: Array, p: float = 0.5, training: bool = True) -> Any:
    """Set whole channels to 0 with probability p (torch.nn.functional.dropout1d). input: (n, c, l) or (c, l)."""
    if input.ndim not in (2, 3):
        raise EngineError(Reason.RUNTIME, f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input.")
    return _channel_dropout(input, p, training, input.ndim == 2)


@composite(views="maybe", draws=True)
def dropout2d(input: Array, p: float = 0.5, training: bool = True) -> Any:
    """Set whole channels to 0 with probability p (torch.nn.functional.dropout2d). input: (n, c, h, w)."""
    return _channel_dropout(input, p, training, False)


@composite(views="maybe", draws=True)
def dropout3d(input: Array, p: float = 0.5, training: bool = True) -> Any:
    """Set whole channels to 0 with probability p (torch.nn.functional.dropout3d). input: (n, c, d, h, w)."""
    return _channel_dropout(input, p, training, input.ndim != 5)


# SELU's limit at -inf. Dropped elements get this value, so that mean 0 and variance 1 are preserved.
_SATURATION = -1.7580993408473766


@op(name="_keep_noise", cost=4, draws=True)
def _keep_noise(xp: Any, input: Array, p: float) -> Array:
    """Noise: 0 with probability p, else 1, per element."""
    return sampler_for(xp).kept(input, p).astype(input.dtype)


def _alpha(input: Any, p: float, training: bool, shape: tuple[int, ...] | None) -> Any:
    _check_rate(p)
    if not _draws(input, p, training):
        return input * zeros(input, ()) if training and p == 1 and 0 not in input.shape else input
    scale = 1 / math.sqrt((_SATURATION * _SATURATION * p + 1) * (1 - p))
    kept = _keep_noise(zeros(input, shape), p)
    return input * (kept * scale) + ((1 - kept) * (_SATURATION * scale) + (-_SATURATION * scale * p))


@composite(views="maybe", draws=True)
def alpha_dropout(input: Array, p: float = 0.5, training: bool = False) -> Any:
    """Dropout that preserves the mean and variance of SELU's results (torch.nn.functional.alpha_dropout)."""
    return _alpha(input, p, training, None)


@composite(views="maybe", draws=True)
def feature_alpha_dropout(input: Array, p: float = 0.5, training: bool = False) -> Any:
    """alpha_dropout of whole channels (torch.nn.functional.feature_alpha_dropout)."""
    return _alpha(input, p, training, _channels(input) if _draws(input, p, training) else None)


@op(name="_rrelu_noise", cost=12, draws=True)
def _rrelu_noise(xp: Any, input: Array, lower: float, upper: float) -> Array:
    """Noise: a random slope where the input is not positive, else 1."""
    return sampler_for(xp).slopes(input, lower, upper)


@op(name="_times_noise", node="RreluWithNoiseBackward0", cost=4, draws=True)
def _times_noise(xp: Any, input: Array, noise: Array) -> Array:
    return input * noise


_times_noise.grad(input=lambda g, noise: _times_noise(g, noise))


@composite(in_place=True, draws=True)
def rrelu(input: Array, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Any:
    """leaky_relu with a random slope from [lower, upper]; without training, their mean (torch.nn.functional.rrelu).

    Raises EngineError: RUNTIME if lower is above upper, NOT_SUPPORTED for integers.
    """
    if dtypes.category(input.dtype) != dtypes.FLOAT:
        raise EngineError(
            Reason.NOT_SUPPORTED, f"\"rrelu_with_noise_out_cpu\" not implemented for '{dtypes.TITLES[input.dtype]}'"
        )
    if training:
        if lower > upper:
            raise EngineError(
                Reason.RUNTIME, f"Lower bound should be less than or equal to the upper bound: {lower}, {upper}"
            )
        return _times_noise(input, _rrelu_noise(input, lower, upper))
    return leaky_relu(input, (lower + upper) / 2)
