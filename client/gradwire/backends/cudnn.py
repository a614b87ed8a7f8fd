"""torch.backends.cudnn: the GPU's work is CuPy's here, and these settings change nothing."""

import contextlib
from collections.abc import Iterator

enabled = False
deterministic = False
benchmark = False
allow_tf32 = False
benchmark_limit = 10
fp32_precision = "none"


def is_available() -> bool:
    """False: there is no cuDNN."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str = "none",
) -> tuple[bool, bool, int, bool, bool, str]:
    """Set the settings that are given, and return all as they were."""
    before = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision)
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
    globals().update({name: value for name, value in zip(names, given, strict=True) if value is not None})
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """A block with other settings (torch.backends.cudnn.flags)."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)
