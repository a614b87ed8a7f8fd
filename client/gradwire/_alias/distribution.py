"""The distribution "torch" under the alias, which libraries ask for its version before they import it."""

from __future__ import annotations

from importlib.metadata import Distribution
from typing import Any

from gradwire.torch_version import COMPATIBLE


class AliasedDistribution(Distribution):
    """Metadata of PyTorch's release that gradwire follows; it has no files."""

    def read_text(self, filename: str) -> str | None:
        """The text of METADATA and top_level.txt; None for others."""
        if filename in ("METADATA", "PKG-INFO"):
            return (
                f"Metadata-Version: 2.1\nName: torch\nVersion: {COMPATIBLE}\nSummary: gradwire under PyTorch's name\n"
            )
        return "torch\n" if filename == "top_level.txt" else None

    def locate_file(self, path: Any) -> Any:
        """Raise FileNotFoundError: there are no files."""
        raise FileNotFoundError(f"gradwire is aliased as torch, which has no file {path}")
