"""The namespace's capabilities (__array_namespace_info__): capabilities, dtypes, and the devices of the server."""

from __future__ import annotations

import importlib
from typing import Any

from gradwire._base import dtypes as _dtypes
from gradwire._base.dtypes import device, dtype
from gradwire._base.errors import GradwireValueError
from gradwire._session.sessions import server_info
from gradwire.array_api._dtypes import KINDS, isdtype

# NumPy's most, and so the server's.
_MAX_DIMENSIONS = 64
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def namespace(api_version: str | None) -> Any:
    """The namespace for a version of the standard; there is one, for each version only adds. Raises ValueError."""
    if api_version is not None and api_version not in _VERSIONS:
        raise GradwireValueError(f"the array API's versions known here are {', '.join(_VERSIONS)}, not {api_version!r}")
    return importlib.import_module("gradwire.array_api")


class Info:
    """The facts that a portable program queries before it computes."""

    def capabilities(self) -> dict[str, Any]:
        """Optional parts of the standard: boolean indexing and data-dependent shapes (which wait for the server)."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MAX_DIMENSIONS}

    def default_device(self) -> device:
        """The default device: the server's memory."""
        return device("cpu")

    def default_dtypes(self, *, device: Any = None) -> dict[str, dtype]:
        """The dtypes of arrays made of Python's numbers (gradwire.set_default_dtype changes the floating ones)."""
        real = _dtypes.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": _dtypes.int64,
            "indexing": _dtypes.int64,
        }

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, dtype]:
        """The standard's dtypes by name, all or of some kinds. Raises ValueError for an unknown kind."""
        wanted = tuple(KINDS) if kind is None else kind
        names = dict.fromkeys(name for names in KINDS.values() for name in names)
        return {name: _dtypes.BY_NAME[name] for name in names if isdtype(_dtypes.BY_NAME[name], wanted)}

    def devices(self) -> tuple[device, ...]:
        """The server's devices."""
        return tuple(device(one.name) for one in server_info().devices)


def __array_namespace_info__() -> Info:  # noqa: N807
    """The namespace's capabilities."""
    return Info()
