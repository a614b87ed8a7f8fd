"""What hooks cost: `python -m benchmarks.hooks`. One process, the embedded server, the cases in turns, best of each.

Each round is a backward that is waited for; what a hook adds to it is a round trip.
"""

import time
from collections.abc import Callable
from typing import Any

import gradwire

ROUNDS, REPEATS = 15, 40


class _Square(gradwire.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: gradwire.Tensor) -> gradwire.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: gradwire.Tensor) -> gradwire.Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 * x


def _cases() -> dict[str, tuple[gradwire.Session, Callable[[], None]]]:
    """Each in a session of its own: one hook makes all backwards of its session wait."""
    made: dict[str, tuple[gradwire.Session, Callable[[], None]]] = {}
    for name, hooks, function in (
        ("no hook", [], None),
        ("one hook", [lambda g: None], None),
        ("two hooks, one of which replaces the gradient", [lambda g: None, lambda g: g * 2], None),
        ("a custom function (`autograd.Function`)", [], _Square.apply),
        ("the hooks removed again", None, None),
    ):
        session = gradwire.connect()
        with session:
            x = gradwire.tensor([1.0, 2.0, 3.0], requires_grad=True)
            for hook in hooks or ():
                x.register_hook(hook)
            if hooks is None:
                x.register_hook(lambda g: None).remove()

        def step(x: Any = x, function: Any = function, session: gradwire.Session = session) -> None:
            (x * x if function is None else function(x)).sum().backward()
            session.sync()

        made[name] = (session, step)
    return made


def main() -> None:
    """Print a table: microseconds a backward, and against the first."""
    cases = _cases()
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, (session, step) in cases.items():
            with session:
                step()
                begun = time.perf_counter()
                for _ in range(REPEATS):
                    step()
                best[name] = min(best[name], (time.perf_counter() - begun) / REPEATS)
    first = best["no hook"]
    print("| what runs in the backward | time | ratio |\n| --- | --- | --- |")
    for name, seconds in best.items():
        print(f"| {name} | {seconds * 1e6:,.0f} µs | {seconds / first:.1f} × |")


if __name__ == "__main__":
    main()
