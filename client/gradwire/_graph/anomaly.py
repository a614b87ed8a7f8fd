"""Anomaly mode: backward checks each gradient, and refuses the first nan with the name of its node."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gradwire._base.errors import GradwireError


class _Anomaly:
    """Whether the mode is on: one setting for the whole process, as in PyTorch."""

    enabled = False
    check_nan = True


_STATE = _Anomaly()
_WARNING = (
    "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging."
)


_NO_PLACE = "No forward pass information is known of it: it was made too long ago, or by another client."


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on (torch.is_anomaly_enabled)."""
    return _STATE.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether backward checks for nan in anomaly mode (torch.is_anomaly_check_nan_enabled)."""
    return _STATE.check_nan


def checks_nan() -> bool:
    """Whether a backward that begins now checks for nan."""
    return _STATE.enabled and _STATE.check_nan


@contextmanager
def explained() -> Iterator[None]:
    """Warn of the node at which a backward was refused, if anomaly mode is on, as PyTorch does."""
    try:
        yield
    except GradwireError as error:
        node = error.metadata.get("node")
        if _STATE.enabled and node:
            text = f"Error detected in {node}. {str(error).partition(chr(10))[2].strip() or _NO_PLACE}"
            try:
                warnings.warn(text, UserWarning, stacklevel=4)
            except UserWarning:  # with warnings as errors, the warning must not replace the refusal
                sys.stderr.write(f"{text}\n")
        raise


class set_detect_anomaly:
    """Set anomaly mode from now on, or for a `with` block (torch.autograd.set_detect_anomaly).

    In this mode, a nan in backward raises a RuntimeError that names the node and the line that made it. With
    `check_nan=False`, backward accepts nan, and only refusals name the line.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _STATE.enabled, _STATE.check_nan
        _STATE.enabled, _STATE.check_nan = bool(mode), bool(check_nan)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        _STATE.enabled, _STATE.check_nan = self._before


class detect_anomaly:
    """Anomaly mode inside a `with` block (torch.autograd.detect_anomaly); see `set_detect_anomaly`. Warns."""

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._inside: list[set_detect_anomaly] = []
        warnings.warn(_WARNING, UserWarning, stacklevel=2)

    def __enter__(self) -> None:
        self._inside.append(set_detect_anomaly(True, self._check_nan))

    def __exit__(self, *exc: Any) -> None:
        self._inside.pop().__exit__(*exc)
