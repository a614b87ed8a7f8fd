"""Learning rates that change from step to step: PyTorch's schedulers, number for number.

A scheduler writes plain numbers into its optimizer's groups, and nothing here touches a tensor: the optimizer's next
step carries the new number with it. Most schedulers compute a learning rate from the last one, not from the epoch, so
several can act on one optimizer.
"""

from __future__ import annotations

import math
import types
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from gradwire._compile.symbolic import (
    SymbolicNumber,
    cosine,
    equal,
    key_of,
    less,
    less_or_equal,
    select,
    value_of,
)
from gradwire.optim._optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

Factor = Callable[[int], float]


def _checked_optimizer(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
    return optimizer


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value per group. Raises ValueError for a list of another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups: {count}, got {len(value)}")
    return list(value)


EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available."
)
_ORDER = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def _function(method: Any) -> Any:
    """The function of a method, which is the same object each time."""
    return getattr(method, "__func__", method)


class LRScheduler:
    """The base of all schedulers; a subclass defines `get_lr()`: the next learning rates, one per group.

    Creating one sets the first learning rates; each `step()`, called after the optimizer's, sets the next. Raises
    TypeError for a non-optimizer, KeyError if `last_epoch` continues a schedule that was never started. Like
    torch.optim.lr_scheduler.LRScheduler.
    """

    _get_lr_called_within_step = False
    _is_initial = False
    #: Attributes that a step changes besides the rates: state of an exported program.
    _counters: ClassVar[tuple[str, ...]] = ("last_epoch",)
    optimizer: Optimizer

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = _checked_optimizer(optimizer)
        for place, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{place}] when resuming scheduler with "
                    "last_epoch >= 0: load the optimizer's state first, or begin with last_epoch=-1"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        optimizer._scheduled_step = _function(optimizer.step)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """The learning rates of `last_epoch`, one per group."""
        raise NotImplementedError(f"{type(self).__name__} gives no get_lr")

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last step set."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next epoch, or of a given one (deprecated in PyTorch, with its warning)."""
        if self._step_count == 1:
            self._warn_of_order()
        self._step_count += 1
        if epoch is not None:
            _warn_of_epoch()
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        optimizer = self.optimizer
        if _function(optimizer.step) is not getattr(optimizer, "_scheduled_step", None):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                f"Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. {_ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif not optimizer._opt_called:
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order: "
                "`optimizer.step()` before `lr_scheduler.step()`; else the first value of the schedule is skipped. "
                f"{_ORDER}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            rates = self.get_lr() if epoch is None or closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set(rates)

    def _set(self, rates: Iterable[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = self._rates()

    def _rates(self) -> list[float]:
        """The present learning rates."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def _warn_unless_stepping(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _times(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._rates()]

    def _each(self, change: Callable[[Any], Any]) -> list[Any]:
        """The present learning rates, each changed."""
        return [change(rate) for rate in self._rates()]

    def _counters_here(self) -> list[str]:
        """The counters that this scheduler has."""
        return [name for name in self._counters if name in self.__dict__]

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state, without its optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`; load the optimizer's too, which has the learning rates."""
        self.__dict__.update(state_dict)


def _warn_of_epoch() -> None:
    warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=3)


_LRScheduler = LRScheduler  # its name before PyTorch 2.0


class _Lambdas(LRScheduler):
    """What depends on functions of the epoch, one per group; those that are objects are part of the state."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1) -> None:
        count = len(_checked_optimizer(optimizer).param_groups)
        given = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * count
        if len(given) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(given)}")
        self.lr_lambdas: list[Factor] = given
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's numbers, and what its functions hold if they are objects; functions themselves are not."""
        state = super().state_dict()
        plain = (types.FunctionType, types.BuiltinFunctionType)
        state["lr_lambdas"] = [None if isinstance(fn, plain) else dict(fn.__dict__) for fn in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`; functions remain those given here."""
        for fn, held in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if held is not None:
                fn.__dict__.update(held)
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "lr_lambdas"})


class LambdaLR(_Lambdas):
    """The first learning rate times a function of the epoch. Like torch.optim.lr_scheduler.LambdaLR."""

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        return [base * fn(self.last_epoch) for fn, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_Lambdas):
    """The last learning rate times a function of the epoch. Like torch.optim.lr_scheduler.MultiplicativeLR."""

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        if self._is_initial:
            return self._rates()
        return [rate * fn(self.last_epoch) for fn, rate in zip(self.lr_lambdas, self._rates(), strict=True)]


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` epochs. Like torch.optim.lr_scheduler.StepLR."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        falls = select(equal(self.last_epoch, 0), lambda: 0, lambda: equal(self.last_epoch % self.step_size, 0))
        return self._each(lambda rate: select(falls, lambda: rate * self.gamma, lambda: rate))

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the milestones. Like torch.optim.lr_scheduler.MultiStepLR."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        if isinstance(self.last_epoch, SymbolicNumber):
            return self._each(self._after_milestones)
        falls = self.milestones.get(self.last_epoch, 0)
        return self._times(self.gamma**falls) if falls else self._rates()

    def _after_milestones(self, rate: Any) -> Any:
        """A rate times gamma if the symbolic `last_epoch` is a milestone."""
        for milestone, falls in self.milestones.items():
            rate = self._after_milestone(rate, milestone, self.gamma**falls)
        return rate

    def _after_milestone(self, rate: Any, milestone: int, factor: float) -> Any:
        return select(equal(self.last_epoch, milestone), lambda: rate * factor, lambda: rate)

    def _get_closed_form_lr(self) -> list[float]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times `factor` for the first `total_iters` epochs. Like torch.optim.lr_scheduler.ConstantLR."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        begins, ends = equal(self.last_epoch, 0), equal(self.last_epoch, self.total_iters)

        def changed(rate: Any) -> Any:
            return select(ends, lambda: rate * (1.0 / self.factor), lambda: rate)

        return self._each(lambda rate: select(begins, lambda: rate * self.factor, lambda: changed(rate)))

    def _get_closed_form_lr(self) -> list[float]:
        factor = 1.0 if self.last_epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Multiplies by a factor that changes linearly from `start_factor` to `end_factor` within `total_iters` epochs.

    Like torch.optim.lr_scheduler.LinearLR.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Finalizer multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        if self._is_initial:
            return self._times(self.start_factor) if self.last_epoch == 0 else self._rates()
        rise = self.end_factor - self.start_factor

        begins, is_over = equal(self.last_epoch, 0), less(self.total_iters, self.last_epoch)

        def climbed(rate: Any) -> Any:
            return rate * (1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

        def changed(rate: Any) -> Any:
            return select(is_over, lambda: rate, lambda: climbed(rate))

        return self._each(lambda rate: select(begins, lambda: rate * self.start_factor, lambda: changed(rate)))

    def _get_closed_form_lr(self) -> list[float]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * done) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times `gamma` every epoch. Like torch.optim.lr_scheduler.ExponentialLR."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        return self._rates() if self._is_initial else self._times(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to zero within `total_iters` epochs, along a power. Like torch.optim.lr_scheduler.PolynomialLR."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        if self._is_initial:
            return self._rates()

        is_over = less(self.total_iters, self.last_epoch)

        def lowered(rate: Any) -> Any:
            now, before = (1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
            return rate * (now / before) ** self.power

        return self._each(lambda rate: select(is_over, lambda: rate, lambda: lowered(rate)))

    def _get_closed_form_lr(self) -> list[float]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine wave down to `eta_min` in `T_max` epochs, and then up again.

    Like torch.optim.lr_scheduler.CosineAnnealingLR.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        if self._is_initial:
            return self._rates()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        is_lowest = equal((self.last_epoch - 1 - self.T_max) % (2 * self.T_max), 0)
        rise = (1 - math.cos(math.pi / self.T_max)) / 2

        def moved(rate: Any) -> Any:
            ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
            return ratio * (rate - self.eta_min) + self.eta_min

        def changed(rate: Any, base: float) -> Any:
            # At the minimum of the cosine the ratio would divide by zero.
            return select(is_lowest, lambda: rate + (base - self.eta_min) * rise, lambda: moved(rate))

        return [changed(rate, base) for rate, base in zip(self._rates(), self.base_lrs, strict=True)]

    def _height(self, epoch: int) -> Any:
        return 1 + cosine(math.pi * epoch / self.T_max)

    def _get_closed_form_lr(self) -> list[float]:
        half = self._height(self.last_epoch) / 2
        return [self.eta_min + (base - self.eta_min) * half for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine wave down, then at the top again: after `T_0` epochs, then after `T_mult` times as many, and so on.

    Like torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.
    """

    _counters = ("last_epoch", "T_cur", "T_i")

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if not isinstance(T_0, int) or T_0 <= 0:
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if not isinstance(T_mult, int) or T_mult < 1:
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class."""
        self._warn_unless_stepping()
        half = (1 + cosine(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * half for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to a given one, which may be a fraction. Raises ValueError below zero."""
        # In a program it is not the first step: SequentialLR makes that one by `_update_lr`.
        if epoch is None and not isinstance(self.last_epoch, SymbolicNumber) and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            self.last_epoch += 1
            position, length = self.T_cur + 1, self.T_i
            goes_on = less(position, length)
            self.T_cur = select(goes_on, lambda: position, lambda: position % length)
            self.T_i = select(goes_on, lambda: length, lambda: length * self.T_mult)
        else:
            self._jump(epoch)
            self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            rates = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set(rates)

    def _jump(self, epoch: float) -> None:
        """Find the cycle of an epoch, and the position in it."""
        if epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            waves = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**waves - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**waves


def _annealed(kind: str, start: float, end: float, done: Any) -> Any:
    """A number on its way from start to end, straight or along a cosine."""
    if kind == "linear":
        return (end - start) * done + start
    return end + (start - end) / 2.0 * (cosine(math.pi * done) + 1)


def _check_momentum(optimizer: Optimizer) -> bool:
    """Whether the optimizer's momentum is the first of its betas. Raises ValueError if it has none."""
    if not {"momentum", "betas"} & set(optimizer.defaults):
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group: dict[str, Any], momentum: float, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to `max_lr`, then down to a `final_div_factor`-th of the first; momentum opposite.

    Give `total_steps`, or `epochs` and `steps_per_epoch`; call `step()` after every batch. Raises ValueError for
    numbers out of range and for a step past the last. Like torch.optim.lr_scheduler.OneCycleLR.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = _checked_optimizer(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._schedule_phases = _one_cycle(pct_start * self.total_steps, self.total_steps, three_phase)
        self._anneal_func_type = anneal_strategy
        max_lrs = _per_group("max_lr", optimizer, max_lr)
        self.cycle_momentum = cycle_momentum
        if last_epoch == -1:
            for group, top in zip(optimizer.param_groups, max_lrs, strict=True):
                group["initial_lr"] = top / div_factor
                group["max_lr"] = top
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self.use_beta1 = _check_momentum(optimizer)
            tops = _per_group("max_momentum", optimizer, max_momentum)
            bottoms = _per_group("base_momentum", optimizer, base_momentum)
            if last_epoch == -1:
                for group, top, bottom in zip(optimizer.param_groups, tops, bottoms, strict=True):
                    _set_momentum(group, top, self.use_beta1)
                    group["max_momentum"] = top
                    group["base_momentum"] = bottom
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """See the class; sets the momentum too."""
        self._warn_unless_stepping()
        if value_of(self.last_epoch) > self.total_steps:
            raise ValueError(
                f"Tried to step {self.last_epoch} times. The specified number of total steps is {self.total_steps}"
            )
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._in_phase(group, "start_lr", "end_lr"))
            if self.cycle_momentum:
                _set_momentum(group, self._in_phase(group, "start_momentum", "end_momentum"), self.use_beta1)
        return rates

    def _in_phase(self, group: dict[str, Any], first: str, last: str, number: int = 0, start: float = 0.0) -> Any:
        """An option in the phase of `last_epoch`, which is the phase of this number or a later one."""
        phase = self._schedule_phases[number]
        end = phase["end_step"]

        def here() -> Any:
            done = (self.last_epoch - start) / (end - start)
            return _annealed(self._anneal_func_type, group[phase[first]], group[phase[last]], done)

        if number + 1 < len(self._schedule_phases):
            later = number + 1, end
            return select(less_or_equal(self.last_epoch, end), here, lambda: self._in_phase(group, first, last, *later))
        # A program that steps past the last step is refused for the division by zero.
        is_over = less(self.total_steps, self.last_epoch)
        return select(is_over, lambda: 1 / (self.last_epoch - self.last_epoch), here)


def _total_steps(total_steps: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
    named = {"total_steps": total_steps}
    if total_steps is None:
        named = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    for name, value in named.items():
        if not isinstance(value, int) or value <= 0:
            raise ValueError(f"Expected positive integer {name}, but got {value}")
    return math.prod(value for value in named.values() if value is not None)


def _one_cycle(rise: float, total: int, three_phase: bool) -> list[dict[str, Any]]:
    """The phases of OneCycleLR: where each ends, and between which of a group's options it moves."""

    def phase(end: float, start_lr: str, end_lr: str, start_momentum: str, end_momentum: str) -> dict[str, Any]:
        return {
            "end_step": end,
            "start_lr": start_lr,
            "end_lr": end_lr,
            "start_momentum": start_momentum,
            "end_momentum": end_momentum,
        }

    up = phase(float(rise) - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three_phase:
        return [up, phase(total - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    down = phase(float(2 * rise) - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum")
    return [up, down, phase(total - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]


class CyclicLR(LRScheduler):
    """Up and down between `base_lr` and `max_lr`; momentum opposite. Like torch.optim.lr_scheduler.CyclicLR.

    `mode`: "triangular", "triangular2" (half as high every cycle) or "exp_range" (times gamma every step). `scale_fn`
    overrides the height, per cycle or per step by `scale_mode`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = _checked_optimizer(optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        bottoms = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, bottom in zip(optimizer.param_groups, bottoms, strict=True):
                group["lr"] = bottom
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _check_momentum(optimizer)
            self.base_momentums = _per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = _per_group("max_momentum", optimizer, max_momentum)
            if last_epoch == -1:
                for group, bottom, top in zip(
                    optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
                ):
                    _set_momentum(group, top, self.use_beta1)
                    group["max_momentum"] = top
                    group["base_momentum"] = bottom
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bottoms

    def scale_fn(self, x: float) -> float:
        """The height of the wave in cycle or step `x`."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return self.gamma**x  # type: ignore[no-any-return]
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (x - 1)

    def get_lr(self) -> list[float]:
        """See the class; sets the momentum too."""
        self._warn_unless_stepping()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        position = 1.0 + self.last_epoch / self.total_size - cycle
        rise = select(
            less_or_equal(position, self.step_ratio),
            lambda: position / self.step_ratio,
            lambda: (position - 1) / (self.step_ratio - 1),
        )
        height = rise * self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, bottom, top in zip(
                self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True
            ):
                _set_momentum(group, top - (top - bottom) * height, self.use_beta1)
        return [base + (top - base) * height for base, top in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """As of any scheduler; a `scale_fn` of one's own is part of it only if it is an object."""
        state = super().state_dict()
        fn = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None if fn is None or isinstance(fn, types.FunctionType) else dict(fn.__dict__)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`."""
        held = state_dict["_scale_fn_custom"]
        if held is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(held)
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})


class _Several(LRScheduler):
    """What consists of other schedulers of the same optimizer."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, optimizer: Any, schedulers: Sequence[Any]) -> None:
        name = type(self).__name__
        for place, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {place} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {place} in the given schedulers sequence."
                )
            if optimizer is not scheduler.optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {place} has another optimizer than "
                    f"{type(optimizer).__name__}."
                )

    def state_dict(self) -> dict[str, Any]:
        """The state of each."""
        state = super().state_dict()
        del state["_schedulers"]
        return {**state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`."""
        for scheduler, held in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(held)
        self.__dict__.update({name: value for name, value in state_dict.items() if name != "_schedulers"})


class SequentialLR(_Several):
    """One scheduler after the other, the next from each milestone on. Like torch.optim.lr_scheduler.SequentialLR.

    Raises ValueError for schedulers of different optimizers, and unless there is one milestone less than schedulers.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        self._check(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each of them has made its first step already: that is undone, and made again by the one that begins.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _undo(self)
        begins = schedulers[bisect_right(milestones, 0)]
        begins._initial_step()
        self._last_lr = begins.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """A step of the current scheduler."""
        self.last_epoch += 1
        if isinstance(self.last_epoch, SymbolicNumber):
            self._step_any()
            return
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def _step_any(self) -> None:
        """A step of an exported program: the step of each scheduler, of which the symbolic `last_epoch` selects one."""
        places = [(group, "lr") for group in self.optimizer.param_groups]
        places += [(each.__dict__, key) for each in _all_of(self._schedulers) for key in each._counters_here()]
        before = [held[key] for held, key in places]

        def after(step: Callable[[], None]) -> list[Any]:
            step()
            taken = [held[key] for held, key in places]
            _put(places, before)
            return taken

        result: list[Any] = []
        for turn in reversed(range(len(self._schedulers))):
            scheduler = self._schedulers[turn]
            stepped = after(scheduler.step)
            if turn > 0:
                begun = after(lambda scheduler=scheduler: scheduler._update_lr(0))  # type: ignore[misc]
                stepped = _selected(equal(self.last_epoch, self._milestones[turn - 1]), begun, stepped)
            is_before = less(self.last_epoch, self._milestones[turn]) if result else None
            result = stepped if is_before is None else _selected(is_before, stepped, result)
        _put(places, result)
        self._last_lr = self._rates()


def _selected(condition: Any, these: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """These numbers if a symbolic condition holds, else the others."""
    return [
        one if key_of(one) == key_of(other) else select(condition, lambda one=one: one, lambda other=other: other)  # type: ignore[misc]
        for one, other in zip(these, others, strict=True)
    ]


def _put(places: Sequence[tuple[dict[str, Any], str]], numbers: Sequence[Any]) -> None:
    for (held, key), number in zip(places, numbers, strict=True):
        held[key] = number


def _all_of(schedulers: Iterable[LRScheduler]) -> Iterator[LRScheduler]:
    """The schedulers and those that they consist of."""
    for each in schedulers:
        yield each
        yield from _all_of(getattr(each, "_schedulers", ()))


def _undo(scheduler: LRScheduler) -> None:
    if isinstance(scheduler, _Several):
        for each in scheduler._schedulers:
            _undo(each)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Several):
    """Runs several schedulers: each step is a step of all. Like torch.optim.lr_scheduler.ChainedScheduler."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        self._check(optimizer, schedulers)
        self._schedulers = schedulers
        self.optimizer = optimizer
        self._last_lr = self._rates()

    def step(self, epoch: int | None = None) -> None:
        """A step of each."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a figure has not become better for more than `patience` epochs.

    `step(metrics)` is given the figure: a number, or a tensor of one element, which is then read. With mode="min",
    lower is better, by more than `threshold`, which is relative or absolute (`threshold_mode`). After a reduction
    `cooldown` epochs count for nothing; `min_lr` is the least. Like torch.optim.lr_scheduler.ReduceLROnPlateau.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.factor = factor
        self.optimizer = _checked_optimizer(optimizer)
        several = isinstance(min_lr, (list, tuple))
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != len(optimizer.param_groups):
            raise ValueError(f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}")
        self.default_min_lr = None if several else min_lr
        self.min_lrs: list[Any] = _per_group("min_lr", optimizer, min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = self._rates()
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether epochs count for nothing."""
        return self.cooldown_counter > 0

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Evaluate an epoch's metric, and reduce the learning rates if necessary."""
        figure = float(metrics)
        if epoch is not None:
            _warn_of_epoch()
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(figure, self.best):
            self.best = figure
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self._rates()

    def _is_better(self, figure: float, best: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        goal = best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return figure > goal if self.mode == "max" else figure < goal

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}): set `min_lrs` to one number per group."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                group["lr"] = new
