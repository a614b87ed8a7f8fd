"""Convolutions and their gradients, the engine in process with and without oneDNN, beside PyTorch, by CPU time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from gradwire_engine.ops.nn.convolution import onednn
from gradwire_engine.ops.nn.convolution.primitives import convolution, convolution_transpose, convolution_weight

Run = Callable[[], Any]
HEADER = (
    "| convolution | forward | of NumPy | input's gradient | of NumPy | weight's gradient | of NumPy |\n|"
    + " --- |" * 7
)


@dataclass(frozen=True)
class Shape:
    """A convolution with as much padding as keeps the size, if the stride is 1."""

    images: int
    given: int
    made: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        size, kernel = (" × ".join(map(str, each)) for each in (self.size, self.kernel))
        more = (f", stride {self.stride}" * (self.stride > 1)) + (f", {self.groups} groups" * (self.groups > 1))
        return f"{kernel}, {self.given} to {self.made} channels, {self.images} × {size}{more}"

    def passes(self) -> list[tuple[Run, Run]]:
        """Ours and PyTorch's: forward, the gradient of the input, that of the weight."""
        import torch

        rng = np.random.default_rng(0)
        padding = tuple(k // 2 for k in self.kernel)
        ones = (1,) * len(self.kernel)
        window = ((self.stride,) * len(self.kernel), padding, ones, self.groups)
        out = [(n + 2 * pad - k) // self.stride + 1 for n, pad, k in zip(self.size, padding, self.kernel, strict=True)]
        shapes = (
            (self.images, self.given, *self.size),
            (self.made, self.given // self.groups, *self.kernel),
            (self.images, self.made, *out),
        )
        x, w, g = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
        tx, tw, tg = map(torch.from_numpy, (x, w, g))
        theirs = (*window[:3], False, [0] * len(out), self.groups)

        def backward(mask: list[bool]) -> Any:
            return torch.ops.aten.convolution_backward(tg, tx, tw, None, *theirs, mask)

        return [
            (lambda: convolution.compute((x, w, None, *window)), lambda: torch.convolution(tx, tw, None, *theirs)),
            (
                lambda: convolution_transpose.compute((g, w, None, *window, self.size)),
                lambda: backward([True, False, False]),
            ),
            (
                lambda: convolution_weight.compute((x, g, *window, self.kernel)),
                lambda: backward([False, True, False]),
            ),
        ]


SHAPES = (
    Shape(16, 32, 32, (32, 32), (3, 3)),
    Shape(16, 64, 64, (16, 16), (3, 3)),
    Shape(16, 32, 64, (32, 32), (3, 3), stride=2),
    Shape(16, 64, 64, (16, 16), (3, 3), groups=4),
    Shape(8, 64, 64, (28, 28), (7, 7), groups=64),
    Shape(16, 64, 64, (28, 28), (3, 3), groups=64),
    Shape(8, 16, 16, (12, 12, 12), (3, 3, 3)),
    Shape(8, 64, 64, (256,), (5,)),
    Shape(1, 64, 64, (56, 56), (3, 3)),
)


def _without_onednn(run: Run) -> Any:
    with patch.object(onednn, "library", lambda: None):
        return run()


def _seconds(run: Run) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def measure(turns: int) -> Iterator[str]:
    """A row for each convolution: the median ratios to PyTorch's CPU time, with oneDNN and without."""
    for shape in SHAPES:
        cells = []
        for ours, theirs in shape.passes():
            sides = (theirs, ours, lambda ours=ours: _without_onednn(ours))
            for side in sides:
                side()
            times = [[_seconds(side) for side in sides] for _ in range(turns)]
            cells += [f"{statistics.median(turn[place] / turn[0] for turn in times):.2f} ×" for place in (1, 2)]
        yield f"| {shape} | " + " | ".join(cells) + " |"
