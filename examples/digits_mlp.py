"""Train a small network on scikit-learn's handwritten digits, with every tensor on a gradwire server.

    python examples/digits_mlp.py [--epochs 40] [--out demo-output] [--address host:port]

This is a PyTorch program with another import line. Without --address (or GRADWIRE_ADDRESS) the first tensor starts a
server, which ends with the program.
"""

import argparse
import time
from pathlib import Path

import matplotlib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import gradwire as torch
import gradwire.nn as nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BATCH = 64


def load_data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Load 1,797 images of 8 x 8 pixels in [0, 1] and their digits: 80 % for training, 20 % for testing."""
    images, digits = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        images / 16, digits, test_size=0.2, random_state=0, stratify=digits
    )
    return (
        torch.tensor(X_train, dtype=torch.float32),
        torch.tensor(X_test, dtype=torch.float32),
        torch.tensor(y_train),
        torch.tensor(y_test),
    )


def train(model: nn.Module, X: torch.Tensor, y: torch.Tensor, epochs: int) -> tuple[list[float], float]:
    """Train. Returns the mean loss of each epoch, and the number of steps per second."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    start = time.perf_counter()
    progress = tqdm(range(epochs), unit="epoch")
    for _ in progress:
        order = torch.randperm(len(X))
        total = torch.zeros(())
        for batch in order.split(BATCH):
            loss = criterion(model(X[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
        losses.append(total.item() / len(X))  # the only value read per epoch
        progress.set_postfix(loss=f"{losses[-1]:.4f}")
    steps = epochs * -(-len(X) // BATCH)
    return losses, steps / (time.perf_counter() - start)


def accuracy(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> float:
    """Return the fraction of correctly classified images."""
    with torch.no_grad():
        return (model(X).argmax(dim=1) == y).float().mean().item()


def draw_losses(losses: list[float], path: Path) -> None:
    """Plot the loss of each epoch."""
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(range(1, len(losses) + 1), losses)
    axes.set(xlabel="epoch", ylabel="training loss", yscale="log", title="64-256-10 on handwritten digits")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training images (default: 40)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="where pictures go (default: demo-output)"
    )
    parser.add_argument("--address", help="a running server's host:port (default: start one)")
    options = parser.parse_args()
    if options.address:
        torch.connect(options.address)

    torch.manual_seed(0)
    X_train, X_test, y_train, y_test = load_data()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    print(model)
    losses, rate = train(model, X_train, y_train, options.epochs)
    print(f"test accuracy {accuracy(model, X_test, y_test):.4f} on {len(X_test)} images, {rate:.0f} steps/s")

    options.out.mkdir(parents=True, exist_ok=True)
    draw_losses(losses, options.out / "loss.png")
    step = nn.functional.cross_entropy(model(X_test), y_test)
    torch.graph(step).save(options.out / "step.svg")
    print(f"wrote {options.out / 'loss.png'} and {options.out / 'step.svg'}")


if __name__ == "__main__":
    main()
