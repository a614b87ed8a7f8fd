"""Anomaly mode: backward then looks at each gradient, and refuses the first nan by the name of what made it."""

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
    """Whether backward looks for nan where anomaly mode is on (torch.is_anomaly_check_nan_enabled)."""
    return _STATE.check_nan


def checks_nan() -> bool:
    """Whether a backward that begins now looks for nan."""
    return _STATE.enabled and _STATE.check_nan


@contextmanager
def explained() -> Iterator[None]:
    """Where anomaly mode is on, warn of the node that a refused backward came to, as PyTorch does."""
    try:
        yield
    except GradwireError as error:
        node = error.metadata.get("node")
        if _STATE.enabled and node:
            text = f"Error detected in {node}. {str(error).partition(chr(10))[2].strip() or _NO_PLACE}"
            try:
                warnings.warn(text, UserWarning, stacklevel=4)
            except UserWarning:  # where warnings are errors this one must not take the place of the refusal
                sys.stderr.write(f"{text}\n")
        raise


class set_detect_anomaly:
    """Switch anomaly mode from now on, or for a `with` block (torch.autograd.set_detect_anomaly).

    Inside, backward refuses what yields nan with a RuntimeError that names the node and the line of the program that
    made it; `check_nan=False` leaves only the lines.
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
