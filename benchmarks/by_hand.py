"""The floor of the NumPy stack: the training step of `workloads.training` with its derivatives written out."""

from __future__ import annotations

import itertools

import numpy as np

from gradwire._cli.workloads import RATE, Run, data


def training(batch: int, sizes: tuple[int, ...], steps: int) -> Run:
    """`steps` SGD steps of a ReLU MLP with cross-entropy, from the same numbers as everywhere."""
    inputs, labels, weights = data(batch, sizes)
    biases = [np.zeros(columns, np.float32) for _, columns in itertools.pairwise(sizes)]
    rows, rate = np.arange(batch), np.float32(RATE)

    def forward() -> tuple[list[np.ndarray], np.ndarray]:
        kept, hidden = [], inputs
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            kept.append(hidden)
            hidden = hidden @ weight
            hidden += bias
            if layer < len(weights) - 1:
                np.maximum(hidden, 0, out=hidden)
        return kept, hidden

    def step() -> np.floating:
        kept, scores = forward()
        scores -= scores.max(1, keepdims=True)
        powers = np.exp(scores)
        sums = powers.sum(1, keepdims=True)
        loss: np.floating = (np.log(sums[:, 0]) - scores[rows, labels]).mean()
        gradient = powers / sums
        gradient[rows, labels] -= 1
        gradient /= batch
        for layer in reversed(range(len(weights))):
            of_weight, of_bias = kept[layer].T @ gradient, gradient.sum(0)
            if layer:
                gradient = gradient @ weights[layer].T
                gradient *= kept[layer] > 0
            weights[layer] -= rate * of_weight
            biases[layer] -= rate * of_bias
        return loss

    def run() -> float:
        for _ in range(steps):
            loss = step()
        return float(loss)

    return run
