"""GradScaler: it scales losses up, so small gradients of half precision do not vanish. It skips steps with infinite
gradients."""

from __future__ import annotations

import weakref
from typing import Any

from gradwire._base.modes import no_grad
from gradwire._tensor import ops
from gradwire._tensor.tensor import Tensor


class GradScaler:
    """`scale(loss).backward(); step(optimizer); update()`. Like torch.amp.GradScaler.

    Each step reads one value: whether all gradients are finite. The scale falls by `backoff_factor` after a step that
    was skipped, and grows by `growth_factor` after `growth_interval` that were not. With `enabled=False` everything
    passes through. Raises ValueError for factors out of range.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and growth_factor <= 1.0:
            raise ValueError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise ValueError("The backoff factor must be < 1.0.")
        self._device = device
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._good_steps = 0
        # Per optimizer since the last update: whether its gradients were finite when they were unscaled.
        self._unscaled: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The present scale."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """The loss, or each of several, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(each) for each in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale. Raises RuntimeError the second time."""
        if not self._enabled:
            return
        if optimizer in self._unscaled:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if optimizer in self._stepped:
            raise RuntimeError("unscale_() is being called after step().")
        grads = [param.grad for group in optimizer.param_groups for param in group["params"] if param.grad is not None]
        if not grads:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        with no_grad():
            for grad in grads:
                grad.mul_(1.0 / self._scale)
            finite = ops.stack([grad.isfinite().all() for grad in grads]).all()
        self._unscaled[optimizer] = bool(finite)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, unless a gradient is infinite or nan. Raises RuntimeError the second time."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if optimizer in self._stepped:
            raise RuntimeError("step() has already been called since the last update().")
        if optimizer not in self._unscaled:
            self.unscale_(optimizer)
        self._stepped.add(optimizer)
        return optimizer.step(*args, **kwargs) if self._unscaled[optimizer] else None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adjust the scale, or set it. Raises AssertionError where no step was taken before."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            if not self._unscaled:
                raise AssertionError("No inf checks were recorded prior to update.")
            if all(self._unscaled.values()):
                self._good_steps += 1
                if self._good_steps == self._growth_interval:
                    self._scale *= self._growth_factor
                    self._good_steps = 0
            else:
                self._scale *= self._backoff_factor
                self._good_steps = 0
        self._unscaled.clear()
        self._stepped.clear()

    def state_dict(self) -> dict[str, Any]:
        """The state for `load_state_dict`."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._good_steps,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a `state_dict`. Raises RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._good_steps = state_dict["_growth_tracker"]
