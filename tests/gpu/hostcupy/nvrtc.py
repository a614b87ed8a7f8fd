"""Compiles for a GPU, by NVRTC, what CuPy asked for since the build: python -m tests.gpu.hostcupy.nvrtc FOLDER

A process of its own, because NVRTC crashes in one that has loaded PyTorch. Its answers are kept beside the kernels.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from tests.gpu import hostcupy

# What CuPy compiles for on Hopper.
OPTIONS = ("-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")


def main(built: Path) -> int:
    """The number of sources that NVRTC refuses, each told."""
    hostcupy.install(built)
    compiler: Any = importlib.import_module("cupy.cuda.compiler")
    refused = 0
    for path in sorted((built / "kernels").glob("*.json")):
        passed = path.with_suffix(".ok")
        if passed.exists():
            continue
        held = json.loads(path.read_text())
        names = held["names"] or None
        program = compiler._NVRTCProgram(held["source"], "kernel.cu", (), (), name_expressions=names, method="cubin")
        try:
            program.compile((*held["options"], *OPTIONS), None)
            passed.touch()
        except compiler.CompileException as error:
            refused += 1
            print(f"{path}: {str(error)[:400]}")
    return refused


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1]).resolve()), 100))
