"""TensorBoard's files (torch.utils.tensorboard): the tensorboardX package writes them, if it is installed."""

from __future__ import annotations

from typing import Any

from gradwire._base.refused import refusal

__all__ = ["FileWriter", "SummaryWriter"]


class SummaryWriter:
    """tensorboardX.SummaryWriter. Raises NotImplementedError without that package."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make the writer of tensorboardX."""
        try:
            from tensorboardX import SummaryWriter as Writer
        except ImportError:
            why = "the tensorboardX package, which writes such files, is not installed (pip install tensorboardX)"
            raise refusal("utils.tensorboard.SummaryWriter", why) from None
        return Writer(*args, **kwargs)


FileWriter = SummaryWriter
