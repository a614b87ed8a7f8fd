"""The version of PyTorch whose interface gradwire has, as `torch.__version__` says it under the alias."""

from __future__ import annotations

import re
from typing import Any

from gradwire._base.version import __version__ as own_version

__all__ = ["TorchVersion"]


def _parts(version: Any) -> tuple[int, ...]:
    """The numbers of a version, a tuple or text: "2.13.0+cpu" gives (2, 13, 0)."""
    given = version if isinstance(version, (tuple, list)) else re.split(r"[.]", str(version).partition("+")[0])
    numbers = []
    for each in given:
        found = re.match(r"\d+", str(each))
        if found is None:
            break
        numbers.append(int(found[0]))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


class TorchVersion(str):
    """Text that compares as a version, with texts and with tuples (torch.torch_version.TorchVersion)."""

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return _parts(self) < _parts(other)

    def __le__(self, other: Any) -> bool:
        return _parts(self) <= _parts(other)

    def __gt__(self, other: Any) -> bool:
        return _parts(self) > _parts(other)

    def __ge__(self, other: Any) -> bool:
        return _parts(self) >= _parts(other)

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) if isinstance(other, str) else _parts(self) == _parts(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


# The release of PyTorch that the tests compare with.
COMPATIBLE = "2.13.0"
__version__ = TorchVersion(f"{COMPATIBLE}+gradwire.{own_version}")
