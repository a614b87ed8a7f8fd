"""Bars: draws the progress of large transfers with tqdm, in a console or a notebook."""

from __future__ import annotations

from typing import Any


class Bars:
    """One bar per transfer. Raises ImportError without tqdm."""

    def __init__(self) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise ImportError("gradwire.progress() without a callback draws bars by tqdm: pip install tqdm") from error
        self._make = tqdm
        self._bar: Any = None
        self._kind = ""

    def show(self, kind: str, done: int, total: int) -> None:
        """Report that `done` of `total` bytes were transferred."""
        bar = self._bar
        if bar is None or self._kind != kind or bar.total != total or done < bar.n:
            self.close()
            self._kind = kind
            self._bar = bar = self._make(total=total, desc=kind, unit="B", unit_scale=True, unit_divisor=1024)
        bar.update(done - bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Close the current bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
