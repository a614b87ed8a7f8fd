"""Libraries that use only the array API standard compute the same on remote tensors as on NumPy's arrays.

The checks are in the script `array_api_libraries.py`, because they need a separate process.
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("array_api_libraries.py")
# Per library: the distribution, the first version in which all checked functions accept any namespace, and the number
# of checks. The number detects lost checks.
LIBRARIES = {
    "compat": ("array-api-compat", (1, 11), 2),
    "scipy": ("scipy", (1, 17), 64),
    "sklearn": ("scikit-learn", (1, 9), 26),
    "einops": ("einops", (0, 8), 6),
    "xarray": ("xarray", (2025, 1), 14),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_computes_on_remote_tensors(library: str, server_address: str) -> None:
    distribution, least, count = LIBRARIES[library]
    try:
        found = version(distribution)
    except PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: pip install gradwire[test]")
    if tuple(int(part) for part in found.split(".")[:2]) < least:
        pytest.skip(f"{distribution} {found} takes fewer namespaces than {'.'.join(map(str, least))}")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), library, server_address], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.endswith(": ok")] == []
    assert len(lines) == count
