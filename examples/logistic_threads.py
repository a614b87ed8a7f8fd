"""Logistic regression in several threads that share a session: each adds its part's gradient to the same leaf.

    python examples/logistic_threads.py [--threads 4]

Backwards of all threads accumulate in `weight.grad`. The sum over all parts is the gradient of the whole data, so the
result equals that of one thread. Grad mode is per thread, as in PyTorch.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import gradwire as torch


def make_data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw points. Returns them, the side of each, and the true direction."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((rows, columns))
    direction = rng.standard_normal(columns)
    sides = (points @ direction + 0.3 * rng.standard_normal(rows) > 0).astype(float)
    return points, sides, direction


def train(points: np.ndarray, sides: np.ndarray, threads: int, steps: int) -> tuple[np.ndarray, list[float]]:
    """Run full-batch gradient descent. Returns the weights and the loss of each step."""
    X = torch.tensor(points).tensor_split(threads)
    y = torch.tensor(sides).tensor_split(threads)
    weight = torch.zeros(points.shape[1], dtype=torch.float64, requires_grad=True)
    losses = []

    def add_gradient(part: int) -> torch.Tensor:
        """Runs in a thread of the pool."""
        loss = torch.nn.functional.binary_cross_entropy_with_logits(X[part] @ weight, y[part], reduction="sum")
        loss = loss / len(points)
        loss.backward()
        return loss.detach()

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(steps):
            losses.append(sum(pool.map(add_gradient, range(threads))).item())  # waits for all threads
            with torch.no_grad():
                weight -= 2.0 * weight.grad
            weight.grad = None
    return weight.detach().numpy(), losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=4, help="how many share the work (default: 4)")
    parser.add_argument("--steps", type=int, default=100, help="steps of gradient descent (default: 100)")
    options = parser.parse_args()

    points, sides, direction = make_data(2_000, 8)
    weight, losses = train(points, sides, options.threads, options.steps)
    alone, _ = train(points, sides, 1, options.steps)
    cosine = weight @ direction / np.linalg.norm(weight) / np.linalg.norm(direction)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"right about {np.mean((points @ weight > 0) == sides):.1%} of the points")
    print(f"cosine with the true direction {cosine:.4f}")
    print(f"{options.threads} threads and one differ by {np.abs(weight - alone).max():.0e} at most")


if __name__ == "__main__":
    main()
