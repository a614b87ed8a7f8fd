"""The batching rule of custom functions without one of their own: one node for all samples.

The function's forward, backward and jvp each see one sample. What they return is unwrapped, so the graph is that of the
values. The gradient of an input that all samples share is the sum over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradwire._tensor.batching import BATCHING
from gradwire._tensor.tensor import Tensor
from gradwire.autograd.function import Function, formula
from gradwire.func._batched import LEVELS, BatchedTensor, Level, is_batched, spread, value_at
from gradwire.func._wrapped_ctx import SampleCtx


def call_on_samples(function: type[Function], args: Sequence[Any], level: Level) -> Any:
    """The function's results for one sample, recorded as one node for all of them."""
    samples = _Samples(function, args, level)
    outer = LEVELS.get()
    token = LEVELS.set(outer[: outer.index(level)])
    try:
        answer = samples.node().apply(*[value_at(each, level) for each in args])
    finally:
        LEVELS.reset(token)
    return samples.entered(answer, samples.differ)


class _Samples:
    """One call: which arguments and results differ from sample to sample."""

    def __init__(self, function: type[Function], args: Sequence[Any], level: Level) -> None:
        self.function = function
        self.level = level
        self.batched = [is_batched(each, level) for each in args]
        self.shapes = [tuple(each.shape) if isinstance(each, Tensor) else None for each in args]
        self.differ: list[bool] = []

    def node(self) -> type[Function]:
        """The function of all samples' values."""
        if self.function.setup_context is Function.setup_context:
            members: dict[str, Any] = {"forward": staticmethod(self._forward_with_ctx)}
        else:
            members = {"forward": staticmethod(self._forward), "setup_context": staticmethod(self._setup_context)}
        members |= {"backward": staticmethod(self._backward), "jvp": staticmethod(self._jvp)}
        return type(f"Vmapped{self.function.__name__}", (Function,), {"__module__": __name__, **members})

    def entered(self, answer: Any, batched: Sequence[bool]) -> Any:
        """Results or arguments as one sample."""
        several = isinstance(answer, tuple)
        wrapped = [
            BatchedTensor(each, self.level) if differs and each is not None else each
            for each, differs in zip(answer if several else (answer,), batched, strict=True)
        ]
        return tuple(wrapped) if several else wrapped[0]

    def _left(self, answer: Any) -> Any:
        """Results as the values of all samples; notes which differ."""
        several = isinstance(answer, tuple)
        results = answer if several else (answer,)
        self.differ = [is_batched(each, self.level) for each in results]
        values = tuple(value_at(each, self.level) for each in results)
        return values if several else values[0]

    def _forward(self, *values: Any) -> Any:
        with _inside(self.level):
            return self._left(self.function.forward(*self.entered(values, self.batched)))

    def _setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx._gradwire_sample = SampleCtx(ctx, self.level)
        with _inside(self.level):
            shown = self.entered(inputs, self.batched)
            same = {id(value_at(each, self.level)): each for each in shown if isinstance(each, Tensor)}
            several = isinstance(output, tuple)
            made = [
                same[id(value)] if id(value) in same else self.entered(value, (differs,))
                for value, differs in zip(output if several else (output,), self.differ, strict=True)
            ]
            self.function.setup_context(ctx._gradwire_sample, shown, tuple(made) if several else made[0])

    def _forward_with_ctx(self, ctx: Any, *values: Any) -> Any:
        ctx._gradwire_sample = SampleCtx(ctx, self.level)
        with _inside(self.level):
            return self._left(self.function.forward(ctx._gradwire_sample, *self.entered(values, self.batched)))

    def _backward(self, ctx: Any, *gradients: Any) -> Any:
        with _inside(self.level):
            shown = self.entered(gradients, self.differ)
            answer = formula(self.function)(ctx._gradwire_sample, *shown)
            found = answer if isinstance(answer, tuple) else (answer,)
            made = [self._reduced(each, place) for place, each in enumerate(found)]
        return tuple(made) if isinstance(answer, tuple) else made[0]

    def _reduced(self, gradient: Any, place: int) -> Any:
        """The gradient of the argument at a place, in the argument's shape."""
        if not isinstance(gradient, Tensor) or place >= len(self.batched):
            return gradient
        if not self.batched[place]:
            return value_at(gradient, self.level).sum(0) if is_batched(gradient, self.level) else gradient
        shape = self.shapes[place]
        fits = shape is None or tuple(gradient.shape) == shape
        return spread(gradient if fits else gradient.sum_to_size(shape), self.level)

    def _jvp(self, ctx: Any, *tangents: Any) -> Any:
        with _inside(self.level):
            answer = self.function.jvp(ctx._gradwire_sample.for_jvp(), *self.entered(tangents, self.batched))
            several = isinstance(answer, tuple)
            made = tuple(
                spread(each, self.level) if differs and isinstance(each, Tensor) else each
                for each, differs in zip(answer if several else (answer,), self.differ, strict=True)
            )
        return made if several else made[0]


@contextmanager
def _inside(level: Level) -> Iterator[None]:
    """Context in which a level is the innermost, whether or not its vmap is still under way."""
    token = LEVELS.set((*[each for each in LEVELS.get() if each.depth < level.depth], level))
    BATCHING.append(level)
    try:
        yield
    finally:
        BATCHING.remove(level)
        LEVELS.reset(token)


def reductify(
    grad_input: Any, grad_input_bdim: Any, input_bdim: Any, batch_size: int, target_shapes: Any = None
) -> tuple[Any, ...]:
    """Each input's gradient with the samples where the input has them: `reductify_leaf` of one or several."""
    slopes = grad_input if isinstance(grad_input, tuple) else (grad_input,)
    dims = grad_input_bdim if isinstance(grad_input_bdim, tuple) else (grad_input_bdim,)
    places = input_bdim if isinstance(input_bdim, tuple) else (input_bdim,)
    shapes = (None,) * len(slopes) if target_shapes is None else target_shapes
    return tuple(
        reductify_leaf(slope, dim, place, batch_size, shape)
        for slope, dim, place, shape in zip(slopes, dims, places, shapes, strict=False)
    )


def reductify_leaf(
    grad_input: Tensor | None,
    grad_input_bdim: int | None,
    input_bdim: int | None,
    batch_size: int,
    target_shape: Any = None,
) -> Tensor | None:
    """An input's gradient with the samples in the input's dimension, or summed over them where it has none.

    target_shape: the shape of the input's one sample, to which a gradient of a broadcast shape is summed.
    """
    if grad_input is None or (grad_input_bdim is None and input_bdim is None):
        return grad_input
    if input_bdim is None:
        return grad_input.sum(grad_input_bdim)
    if grad_input_bdim is None:
        whole = grad_input.expand((batch_size, *grad_input.shape))
    else:
        whole = grad_input.movedim(grad_input_bdim, 0)
    if target_shape is not None:
        missing = whole.dim() - 1 - len(target_shape)
        whole = whole.sum_to_size((batch_size, *(1,) * missing, *target_shape)).reshape((batch_size, *target_shape))
    return whole.movedim(0, input_bdim)
