"""Processes (torch.multiprocessing): Python's own. A tensor that is sent to a process is copied to its session."""

from __future__ import annotations

import multiprocessing as _python
from multiprocessing import *  # noqa: F403
from typing import Any

from gradwire.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *_python.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


def get_all_sharing_strategies() -> set[str]:
    """The one way in which processes exchange tensors here: by copies."""
    return {"copy"}


def get_sharing_strategy() -> str:
    """ "copy"."""
    return "copy"


def set_sharing_strategy(new_strategy: str) -> None:
    """Do nothing: tensors are copied whatever the strategy."""


def __getattr__(name: str) -> Any:
    return getattr(_python, name)
