"""A convolutional network on scikit-learn's handwritten digits; one training step is one command to the server.

    python examples/digits_cnn.py [--epochs 15] [--eager]

`torch.compile` records the step once. Then the client sends the indices of a batch. The server runs forward, backward
and the optimizer's step. `--eager` sends op by op instead; the numbers are the same.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gradwire as torch
import gradwire.nn as nn

BATCH = 64


def build() -> nn.Sequential:
    """Two convolutions with batch norm and pooling, then a linear layer: 8 x 8 pixels to 10 digits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def make_step(model: nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Run one step of AdamW on a batch. Returns the loss before it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)

    def step(images: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), digits)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def accuracy(model: nn.Module, images: torch.Tensor, digits: torch.Tensor) -> float:
    """Return the fraction of correctly classified images; batch norm uses its running statistics."""
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == digits).float().mean()
    model.train()
    return right.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images (default: 15)")
    parser.add_argument("--eager", action="store_true", help="send op by op, without torch.compile")
    options = parser.parse_args()

    images, digits = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        (images / 16).reshape(-1, 1, 8, 8), digits, test_size=0.2, random_state=0, stratify=digits
    )
    X, y = torch.tensor(X_train, dtype=torch.float32), torch.tensor(y_train)
    torch.manual_seed(0)
    model = build()
    print(model)
    step = make_step(model) if options.eager else torch.compile(make_step(model))

    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for epoch in range(1, options.epochs + 1):
        order = torch.tensor(rng.permutation(len(X)))
        # Skips the last few images of an epoch, so all batches have one shape.
        losses = [step(X[batch], y[batch]) for batch in order.split(BATCH) if len(batch) == BATCH]
        print(f"epoch {epoch:2}  loss {torch.stack(losses).mean().item():.4f}")
    rate = options.epochs * (len(X) // BATCH) / (time.perf_counter() - start)
    right = accuracy(model, torch.tensor(X_test, dtype=torch.float32), torch.tensor(y_test))
    print(f"test accuracy {right:.4f} on {len(X_test)} images, {rate:.0f} steps/s")


if __name__ == "__main__":
    main()
