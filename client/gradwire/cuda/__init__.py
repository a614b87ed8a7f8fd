"""The server's GPUs (torch.cuda)."""

from __future__ import annotations

from typing import Any

from gradwire._functions.create import zeros
from gradwire._functions.random import manual_seed
from gradwire._session.sessions import current_session

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "synchronize",
]


def _devices() -> list[Any]:
    return [each for each in current_session().server_info().devices if each.name.startswith("cuda")]


def is_available() -> bool:
    """Whether the server has a GPU."""
    return bool(_devices())


def device_count() -> int:
    """How many GPUs the server has."""
    return len(_devices())


def current_device() -> int:
    """The GPU that "cuda" means: the first."""
    return 0


def get_device_name(device: int | None = None) -> str:
    """Description of a GPU. Raises RuntimeError if there is none."""
    found = _devices()
    number = device or 0
    if not 0 <= number < len(found):
        raise RuntimeError(f"the server has {len(found)} CUDA devices, so there is no cuda:{number}")
    return str(found[number].description)


def synchronize(device: Any = None) -> None:
    """Wait until everything issued so far is done, by the server and by its GPU, by default the first.

    Raises GradwireError if a command was refused.
    """
    current_session().sync()
    if is_available():
        number = getattr(device, "index", device)
        place = "cuda" if number is None else f"cuda:{number}" if isinstance(number, int) else str(device)
        zeros((), device=place).item()  # a read waits for all that the GPU was given before


def empty_cache() -> None:
    """Send the releases of dropped tensors now."""
    current_session().flush()


def manual_seed_all(seed: int) -> None:
    """Start the session's random numbers over; one generator serves all devices."""
    manual_seed(seed)
