"""LBFGS minimizes Rosenbrock's function; its minimum is 0 at (1, 1).

    python examples/rosenbrock_lbfgs.py

Replace the import line by `import torch`: it prints the same, because nothing is random.
"""

import gradwire as torch


def rosenbrock(point: torch.Tensor) -> torch.Tensor:
    """(1 - x)^2 + 100 (y - x^2)^2."""
    x, y = point
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


def main() -> None:
    point = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([point], max_iter=4, tolerance_change=1e-14, line_search_fn="strong_wolfe")
    evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        value = rosenbrock(point)
        value.backward()
        return value

    for turn in range(12):
        value = optimizer.step(closure)
        x, y = point.tolist()
        print(f"{4 * turn:2} iterations: {value.item():.3e}, then at ({x:.6f}, {y:.6f})")
    print(f"{rosenbrock(point).item():.1e} after {evaluations} evaluations")


if __name__ == "__main__":
    main()
