"""A training step as commands: a linear model's mean square error, its gradient, an update with SGD.

The session holds the weight `W`, the inputs `X` and the labels `Y`.
"""

from __future__ import annotations

import numpy as np

from gradwire.v1 import commands_pb2 as c
from gradwire.v1 import service_pb2 as s
from tests.server.harness import Id, command, op

W, X, Y = 1, 2, 3
IDS = 5  # ids that a step takes


def data() -> dict[int, np.ndarray]:
    """Values of W, X and Y by id, float32."""
    x = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    return {W: np.zeros((8, 1), np.float32), X: x, Y: x @ np.ones((8, 1), np.float32)}


def update(first: int) -> list[s.Command]:
    """Forward, backward and update; the new tensors' ids begin with `first`."""
    out, off, square, loss, grad = range(first, first + IDS)
    return [
        command(op("matmul", Id(X), Id(W), outputs=[out])),
        command(op("sub", Id(out), Id(Y), outputs=[off])),
        command(op("mul", Id(off), Id(off), outputs=[square])),
        command(op("mean", Id(square), outputs=[loss])),
        command(c.BackwardRequest(tensors=[loss])),
        command(c.GradRequest(tensor=W, id=grad)),
        command(op("sub_", Id(W), Id(grad), named={"alpha": 0.05}, grad_mode=2)),
        command(c.SetGradRequest(tensor=W)),
    ]


def read_loss(first: int) -> list[s.Command]:
    """Read the loss and release what the step made."""
    ids = range(first, first + IDS)
    return [command(c.ReadRequest(tensor=first + 3)), command(c.ReleaseRequest(tensors=ids))]
