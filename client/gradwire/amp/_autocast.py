"""autocast: computations use the tensors' dtypes, with a warning if another dtype was requested."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


class autocast:
    """A region, or with brackets a decorator, in which PyTorch would choose each op's precision (torch.autocast).

    Here it is taken, warns once that it is disabled, and changes nothing: cast the model (`model.half()`) instead.
    Raises RuntimeError for an unknown kind of device.
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if device_type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        if enabled:
            warnings.warn(
                "autocast is not supported here. Disabling: computations use the tensors' dtypes.",
                UserWarning,
                stacklevel=2,
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return called
