"""The server's GPUs (torch.cuda)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from gradwire._base.wiring import names_of_paths
from gradwire._functions.create import zeros
from gradwire._functions.legacy import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from gradwire._functions.random import get_rng_state, manual_seed, set_rng_state
from gradwire._session.sessions import current_session
from gradwire._tensor.tensor import Tensor
from gradwire.cuda._streams import Event, Stream, StreamContext, current_stream, default_stream, stream
from gradwire.cuda._streams import device_context as device

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "Event",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "stream",
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


def set_device(device: Any) -> None:
    """Check that the server has the GPU. "cuda" goes on to mean its first one.

    Raises RuntimeError if it has not.
    """
    number = getattr(device, "index", device)
    get_device_name(number if isinstance(number, int) else None)


def get_device_properties(device: Any = None) -> SimpleNamespace:
    """The name of a GPU. Raises RuntimeError if there is none."""
    number = getattr(device, "index", device)
    return SimpleNamespace(name=get_device_name(number if isinstance(number, int) else None))


def init() -> None:
    """Do nothing: the server has initialized its GPUs."""


def ipc_collect() -> None:
    """Do nothing: processes share no memory of GPUs."""


def is_initialized() -> bool:
    """The same as `is_available`."""
    return is_available()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """The same as `is_available`."""
    return is_available()


def get_rng_state_all() -> list[Tensor]:
    """The session's state of random numbers for each GPU: one generator serves all devices."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restore what `get_rng_state_all` returned."""
    for state in new_states:
        set_rng_state(state)


__getattr__ = names_of_paths(__name__)
