"""Averages of weights over training (torch.optim.swa_utils): plain and exponential, and the schedule for them."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradwire._base import dtypes
from gradwire._base.modes import no_grad
from gradwire._functions.create import tensor
from gradwire._tensor.tensor import Tensor
from gradwire.nn._module import Module
from gradwire.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from gradwire.optim._optimizer import Optimizer
from gradwire.optim.lr_scheduler import LRScheduler

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

_Averages = Sequence[Tensor]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """An exponential average of several tensors: averaged += (1 - decay) * (current - averaged)."""
    _check_decay(decay)

    @no_grad()
    def update(averaged: _Averages, current: _Averages, count: Any) -> None:
        for mean, value in zip(averaged, current, strict=True):
            if mean.is_floating_point() or mean.is_complex():
                mean.lerp_(value, 1 - decay)
            else:
                mean.copy_(mean * decay + value * (1 - decay))

    return update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """The plain average of several tensors: averaged += (current - averaged) / (count + 1)."""

    @no_grad()
    def update(averaged: _Averages, current: _Averages, count: Any) -> None:
        for mean, value in zip(averaged, current, strict=True):
            mean.add_((value - mean) / (count + 1))

    return update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Tensor]:
    """An exponential average of one tensor."""
    _check_decay(decay)

    @no_grad()
    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        made: Tensor = decay * averaged + (1 - decay) * current
        return made

    return average


def get_swa_avg_fn() -> Callable[..., Tensor]:
    """The plain average of one tensor."""

    @no_grad()
    def average(averaged: Tensor, current: Tensor, count: Any) -> Tensor:
        made: Tensor = averaged + (current - averaged) / (count + 1)
        return made

    return average


class AveragedModel(Module):
    """A copy of a model, `module`, with averages of the model's parameters, by default plain averages.

    `update_parameters(model)` includes the current ones; with `use_buffers` buffers are averaged, too, else copied.
    Raises AssertionError if both `avg_fn` and `multi_avg_fn` are given. Like torch.optim.swa_utils.AveragedModel.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[..., Tensor] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers
        # Whether there is a first average, known without asking the server; None after a state was loaded.
        self._begun: bool | None = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The copy's."""
        return self.module(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """As Module's."""
        self._begun = None
        return super().load_state_dict(state_dict, strict, assign)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Take a model's present parameters into the average."""
        if self._begun is None:
            self._begun = bool(self.n_averaged > 0)
        mine: Any = self.module.parameters()
        its: Any = model.parameters()
        if self.use_buffers:
            mine = itertools.chain(mine, self.module.buffers())
            its = itertools.chain(its, model.buffers())
        averaged = [each.detach() for each in mine]
        current = [each.detach().to(mean.device) for each, mean in zip(its, averaged, strict=True)]
        if not self._begun:
            for mean, value in zip(averaged, current, strict=True):
                mean.copy_(value)
        elif self.avg_fn is None:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averaged, current, self.n_averaged)
        else:
            for mean, value in zip(averaged, current, strict=True):
                mean.copy_(self.avg_fn(mean, value, self.n_averaged))
        if not self.use_buffers:
            for held, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                held.detach().copy_(buffer.detach())
        self.n_averaged += 1
        self._begun = True


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recompute the running statistics of a model's batch norms from a loader's inputs."""
    norms = [each for each in model.modules() if isinstance(each, (BatchNorm1d, BatchNorm2d, BatchNorm3d))]
    if not norms:
        return
    was_training = model.training
    model.train()
    momenta = {}
    for norm in norms:
        norm.reset_running_stats()
        momenta[norm] = norm.momentum
        norm.momentum = None  # the plain average of all batches
    for batch in loader:
        given = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(given if device is None else given.to(device))
    for norm, momentum in momenta.items():
        norm.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals each group's learning rate to `swa_lr` in `anneal_epochs` steps, by "cos" or "linear".

    Raises ValueError for another strategy, for negative epochs, and where there is another number of rates than groups.
    Like torch.optim.swa_utils.SWALR.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = optimizer.param_groups
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(groups)
        if len(rates) != len(groups):
            raise ValueError(
                f"swa_lr must have the same length as optimizer.param_groups: got {len(rates)} and {len(groups)}"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        for rate, group in zip(rates, groups, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self.anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of the way to the end is gone after so many steps."""
        gone = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return gone if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * gone)) / 2

    def get_lr(self) -> list[float]:
        """The groups' rates after one step more."""
        # As PyTorch, which counts from the second call on.
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before = self._share(step - 1)
        now = self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            first = group["lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + first * (1 - now))
        return rates
