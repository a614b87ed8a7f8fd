"""instance_norm: normalizes each channel of each sample, as batch_norm with the samples as channels."""

from __future__ import annotations

from typing import Any

from gradwire_engine.core.device import Array
from gradwire_engine.core.errors import EngineError, Reason
from gradwire_engine.op.composite import composite
from gradwire_engine.op.op import op
from gradwire_engine.ops.nn.norms.norm import batch_norm
from gradwire_engine.ops.shape.join import repeat
from gradwire_engine.ops.shape.shape import reshape


@composite(updates={"running_mean": "use_input_stats", "running_var": "use_input_stats"})
def instance_norm(
    input: Array,
    running_mean: Array | None = None,
    running_var: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalize each channel of each sample to mean 0 and variance 1 (torch.nn.functional.instance_norm).

    input: (n, c, ...); the others: (c,). use_input_stats: use the input's statistics, and update the running ones in
    place by their mean over the samples; else use the running statistics.
    Raises EngineError: ARGUMENT_VALUE, RUNTIME, DTYPE.
    """
    samples, channels = input.shape[0], input.shape[1]
    if use_input_stats:
        size = 1
        for length in input.shape[2:]:
            size *= length
        if size == 1:
            raise EngineError(
                Reason.ARGUMENT_VALUE,
                f"Expected more than 1 spatial element when training, got input size torch.Size({list(input.shape)})",
            )
    elif running_mean is None or running_var is None:
        raise EngineError(
            Reason.RUNTIME, "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    rows = reshape(input, (1, samples * channels, *input.shape[2:]))
    several = [None if value is None else repeat(value, (samples,)) for value in (weight, bias)]
    running = [None if value is None else repeat(value, (samples,)) for value in (running_mean, running_var)]
    made = batch_norm(rows, *running, *several, use_input_stats, momentum, eps)
    if use_input_stats:
        for held, mixed in zip((running_mean, running_var), running, strict=True):
            _keep_mean(held, mixed, samples)
    return reshape(made, input.shape)


instance_norm.unsupported("bic", "batch_norm", of=("input",))


@op(name="_sample_mean", in_place=True, cost=4)
def _sample_mean(xp: Any, input: Array, several: Array, samples: int) -> Array:
    """Mean over the samples of a statistic per sample and channel."""
    return several.reshape(samples, -1).mean(0).astype(input.dtype, copy=False)


def _keep_mean(held: Any, mixed: Any, samples: int) -> None:
    """Write the mean over the samples into a running statistic, in place, without a gradient."""
    if held is not None:
        _sample_mean.in_place((held, mixed, samples))
