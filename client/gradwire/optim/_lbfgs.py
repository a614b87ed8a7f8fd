"""L-BFGS: steps along the gradient times an approximate inverse Hessian, made of the last steps and gradient changes.

The values that decide whether to continue (loss, largest gradient, curvature) are read once per evaluation; vectors
never travel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from gradwire._base.modes import enable_grad, no_grad
from gradwire._graph.sparse_gradients import is_sparse
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor
from gradwire.optim._optimizer import Optimizer, Params, refuse_negative

Evaluate = Callable[[float], "Point"]


class Point(NamedTuple):
    """A point on the search line: the step, the loss there, its slope along the line, its gradient."""

    t: float
    loss: float
    slope: float
    grad: Tensor


class LBFGS(Optimizer):
    """Quasi-Newton steps; `step(closure)` makes up to `max_iter` of them and evaluates up to `max_eval` times.

    `closure` clears the gradients, computes the loss and its gradients, and returns it. `line_search_fn` is None (steps
    of length `lr`) or "strong_wolfe". Raises ValueError for several groups. Like torch.optim.LBFGS.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        refuse_negative("learning rate", lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Go downhill, and return the loss where this began. Raises TypeError without a closure."""
        if closure is None:
            raise TypeError("LBFGS.step() needs a closure that computes the loss again and returns it")
        group = self.param_groups[0]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        with enable_grad():
            first = closure()
        with no_grad():
            state = self.state[self._params()[0]]
            state.setdefault("func_evals", 0)
            state.setdefault("n_iter", 0)
            state["func_evals"] += 1
            grad = self._gradient()
            loss, largest = _read(first, grad.abs().max())
            if largest > group["tolerance_grad"]:
                self._descend(closure, state, group, loss, grad)
        return first

    def _descend(
        self, closure: Callable[[], Any], state: dict[str, Any], group: dict[str, Any], loss: float, grad: Tensor
    ) -> None:
        lr, evaluations = float(group["lr"]), 1
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, group, grad)
            state["prev_flat_grad"] = grad.clone()
            state["prev_loss"] = before = loss
            slope, total = _read(grad.dot(direction), grad.abs().sum())
            t = min(1.0, 1.0 / total if total else math.inf) * lr if state["n_iter"] == 1 else lr
            state["d"], state["t"] = direction, t
            if slope > -group["tolerance_change"]:
                break
            largest, made = math.inf, 0
            if group["line_search_fn"] is not None:
                found, made = self._search(closure, direction, Point(t, loss, slope, grad))
                t, loss, grad = found.t, found.loss, found.grad
                state["t"] = t
                self._move(t, direction)
                (largest,) = _read(grad.abs().max())
            else:
                self._move(t, direction)
                if iteration != group["max_iter"]:
                    with enable_grad():
                        value = closure()
                    grad, made = self._gradient(), 1
                    loss, largest = _read(value, grad.abs().max())
            evaluations += made
            state["func_evals"] += made
            if iteration == group["max_iter"] or evaluations >= group["max_eval"]:
                break
            if largest <= group["tolerance_grad"]:
                break
            (change,) = _read((direction * t).abs().max())
            if change <= group["tolerance_change"] or abs(loss - before) < group["tolerance_change"]:
                break

    def _direction(self, state: dict[str, Any], group: dict[str, Any], grad: Tensor) -> Tensor:
        """Minus the gradient times the history's estimate of the inverse Hessian."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            downhill: Tensor = -grad
            return downhill
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        curvature, square = _read(change.dot(step), change.dot(change))
        if curvature > 1e-10:
            if len(state["old_dirs"]) == group["history_size"]:
                for name in ("old_dirs", "old_stps", "ro"):
                    state[name].pop(0)
            state["old_dirs"].append(change)
            state["old_stps"].append(step)
            state["ro"].append(1.0 / curvature)
            state["H_diag"] = curvature / square
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        made: Tensor = -grad
        shares = []
        for changed, stepped, ro in reversed(history):
            share = stepped.dot(made) * ro
            shares.append(share)
            made = made - changed * share
        made = made * state["H_diag"]
        for (changed, stepped, ro), share in zip(history, reversed(shares), strict=True):
            made = made + stepped * (share - changed.dot(made) * ro)
        return made

    def _search(self, closure: Callable[[], Any], direction: Tensor, start: Point) -> tuple[Point, int]:
        """A step that fulfils the strong Wolfe conditions, and how many evaluations that took."""
        begun = [param.detach().clone() for param in self._params()]

        def evaluate(t: float) -> Point:
            self._move(t, direction)
            with enable_grad():
                value = closure()
            grad = self._gradient()
            loss, slope = _read(value, grad.dot(direction))
            for param, old in zip(self._params(), begun, strict=True):
                param.copy_(old)
            return Point(t, loss, slope, grad)

        (longest,) = _read(direction.abs().max())
        return strong_wolfe(evaluate, start, longest)

    def _gradient(self) -> Tensor:
        """All gradients as one vector; zeros where there is none."""
        parts = [_flat(ops.zeros_like(param) if param.grad is None else param.grad) for param in self._params()]
        return ops.cat([part.detach() for part in parts])

    def _move(self, t: float, direction: Tensor) -> None:
        start = 0
        for param in self._params():
            moved = ops.view_as_real(param) if param.is_complex() else param
            part = direction[start : start + moved.numel()]
            moved.add_(part.reshape(moved.shape), alpha=t)
            start += moved.numel()


def _flat(values: Tensor) -> Tensor:
    """All numbers in one dimension; a complex one is two, and a sparse tensor has those that it does not store."""
    values = values.to_dense() if is_sparse(values) else values
    made: Tensor = (ops.view_as_real(values) if values.is_complex() else values).reshape(-1)
    return made


def _read(*values: Any) -> list[float]:
    """The numbers of several tensors of one element, with one question."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    read = iter(ops.stack([value.detach().double().reshape(()) for value in tensors]).tolist() if tensors else [])
    return [float(next(read)) if isinstance(value, Tensor) else float(value) for value in values]


def _lowest(one: Point, other: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is lowest, within the bounds; else their middle."""
    low, high = bounds or (min(one.t, other.t), max(one.t, other.t))
    first = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.t - other.t)
    square = first**2 - one.slope * other.slope
    if not square >= 0:
        return (low + high) / 2.0
    root = math.sqrt(square)
    if one.t <= other.t:
        minimum = other.t - (other.t - one.t) * ((other.slope + root - first) / (other.slope - one.slope + 2 * root))
    else:
        minimum = one.t - (one.t - other.t) * ((one.slope + root - first) / (one.slope - other.slope + 2 * root))
    return min(max(minimum, low), high)


def strong_wolfe(
    evaluate: Evaluate,
    first: Point,
    longest: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance: float = 1e-9,
    most: int = 25,
) -> tuple[Point, int]:
    """The search of Nocedal and Wright, 3.5 and 3.6: bracket a good step, then close in on it.

    `first` has the first step to try, with the loss, slope and gradient of where the line begins.
    """
    start = first._replace(t=0.0)
    now, before, rounds, evaluations = evaluate(first.t), start, 0, 1
    bracket: list[Point] = []
    while rounds < most:
        if now.loss > start.loss + c1 * now.t * start.slope or (rounds > 1 and now.loss >= before.loss):
            bracket = [before, now]
            break
        if abs(now.slope) <= -c2 * start.slope:
            return now, evaluations
        if now.slope >= 0:
            bracket = [before, now]
            break
        t = _lowest(before, now, (now.t + 0.01 * (now.t - before.t), now.t * 10))
        before, now = now, evaluate(t)
        evaluations += 1
        rounds += 1
    if not bracket:
        bracket = [start, now]
    low, high = sorted(bracket, key=lambda point: point.loss)
    stuck = False
    while rounds < most and abs(high.t - low.t) * longest >= tolerance:
        # The bracket's order in time decides which branch of the cubic is taken.
        t = _lowest(bracket[0], bracket[1])
        t, stuck = _kept_inside(t, min(low.t, high.t), max(low.t, high.t), stuck)
        now = evaluate(t)
        evaluations += 1
        rounds += 1
        worse = now.loss > start.loss + c1 * now.t * start.slope or now.loss >= low.loss
        if worse:
            bracket[0 if bracket[0] is high else 1] = now
            low, high = sorted(bracket, key=lambda point: point.loss)
        else:
            done = abs(now.slope) <= -c2 * start.slope
            place = 0 if bracket[0] is low else 1
            if not done and now.slope * (high.t - low.t) >= 0:
                bracket[1 - place] = high = low
            bracket[place] = low = now
            if done:
                break
    return low, evaluations


def _kept_inside(t: float, low: float, high: float, stuck: bool) -> tuple[float, bool]:
    """Move a step away from its bracket's ends if it is near one twice in a row. Returns the step and nearness."""
    margin = 0.1 * (high - low)
    if min(high - t, t - low) >= margin:
        return t, False
    if stuck or t >= high or t <= low:
        return (high - margin if abs(t - high) < abs(t - low) else low + margin), False
    return t, True
