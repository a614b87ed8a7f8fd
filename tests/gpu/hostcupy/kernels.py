"""CuPy's kernels on the CPU: each source is compiled by g++ and loaded.

Compiled kernels stay in the build's folder, named by their content, so a second run compiles nothing. `nvrtc.py`
compiles the same sources for a GPU.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).resolve().parent / "native"
FLAGS = ("-O1", "-w", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off")


class Compiler:
    """Stands for `cupy.cuda.compiler._compile_module_with_cache`."""

    def __init__(self, built: Path) -> None:
        self.cache = built / "kernels"
        self.cache.mkdir(exist_ok=True)
        include = built / "site/cupy/_core/include"
        cccl = (include / "cupy/_cccl" / each for each in ("libcudacxx", "thrust", "cub"))
        cuda = (built / "site/nvidia" / each / "include" for each in ("cuda_runtime", "cuda_nvcc"))
        self.flags = [*FLAGS, *(f"-I{each}" for each in (include, *cccl, *cuda, NATIVE))]
        # A change of the translation makes every kernel anew.
        functions = (host_source, _how_threads_run, _reduction_in_loops)
        translation = (*FLAGS, *(inspect.getsource(each) for each in functions), (NATIVE / "hostcuda.h").read_text())
        self.version = hashlib.sha1("\n".join(translation).encode()).hexdigest()[:8]
        self.lock = threading.Lock()

    def module(self, source: str, options: tuple[str, ...] = (), *, name_expressions: Any = None, **others: Any) -> Any:
        """The loaded module of a source. Raises CuPy's CompileException for a source with errors."""
        from cupy.cuda import function

        wanted = sorted(name_expressions or ())
        name = hashlib.sha1((source + repr(options) + repr(wanted)).encode()).hexdigest()
        library = self.cache / f"{name}.{self.version}.so"
        with self.lock:
            if not library.exists():
                self.compile(source, options, wanted, library)
        module = function.Module()
        if wanted:
            module._set_mapping({name: f"NE_{place}" for place, name in enumerate(wanted)})
        module.load(str(library).encode() + b"\0")
        return module

    def compile(self, source: str, options: tuple[str, ...], wanted: list[str], library: Path) -> None:
        """Translate the source, compile it and put it at its place at once."""
        from cupy.cuda.compiler import CompileException

        cuda = self.cache / f"{library.name.split('.')[0]}.json"
        self.write(cuda, json.dumps({"source": source, "options": options, "names": wanted}))
        code = library.with_suffix(".cpp")
        self.write(code, host_source(source, wanted))
        made = library.with_suffix(f".{os.getpid()}")
        defined = [each for each in options if each.startswith("-D") and "CUPY" not in each]
        command = ["g++", f"-I{self.header().parent}", *self.flags, *defined, "-shared", str(code), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = "\n".join(line for line in done.stderr.splitlines() if "error" in line)
            raise CompileException(f"g++ refuses {code}: {errors[:600]}", source, "", options)
        made.replace(library)

    @staticmethod
    def write(path: Path, text: str) -> None:
        """Put a file at its place at once: g++ of another process may be reading it, and would compile half of it."""
        made = path.with_suffix(f"{path.suffix}.{os.getpid()}")
        made.write_text(text)
        made.replace(path)

    def header(self) -> Path:
        """hostcuda.h, compiled once: it takes longer than any kernel."""
        target = self.cache / f"header-{self.version}" / "hostcuda.h.gch"
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            made = target.with_suffix(f".{os.getpid()}")
            command = ["g++", *self.flags, "-x", "c++-header", str(NATIVE / "hostcuda.h"), "-o", str(made)]
            subprocess.run(command, check=True)
            made.replace(target)
        return target


def host_source(source: str, wanted: list[str]) -> str:
    """The C++ of a CUDA source: the same text after hostcuda.h, and an entry for each kernel."""
    names = re.findall(r"__global__\s+void\s*(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(", source)
    how = _how_threads_run(source)
    looped = _reduction_in_loops(source) if how == "HOST_FIBERS" else None
    if looped is not None:
        source, how = looped, "HOST_ONCE"
    shared = r"extern\s+__shared__\s+([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;"
    source = re.sub(shared, r"\1* \2 = (\1*)host_dynamic_;", source)
    if wanted:
        entries = [
            f"#define HOST_NE_{place} {name}\nHOST_KERNEL_NE(NE_{place}, (HOST_NE_{place}), {how})"
            for place, name in enumerate(wanted)
        ]
    else:
        entries = [f"HOST_KERNEL({name}, {how})" for name in names]
    return "\n".join(['#include "hostcuda.h"', source, *entries, ""])


def _how_threads_run(source: str) -> str:
    """How a kernel's threads run: as fibers if they wait for one another, else one after the other.

    CUPY_FOR strides by the whole grid, so one thread does all elements.
    """
    if re.search(r"__syncthreads|__shfl|__syncwarp", source):
        return "HOST_FIBERS"
    return "HOST_ONCE" if "CUPY_FOR(" in source and not re.search(r"\breturn\s*;", source) else "HOST_LOOPS"


def _reduction_in_loops(source: str) -> str | None:
    """CuPy's reduction kernel with loops instead of barriers, in the same order of sums; None for other kernels."""
    start, guard = "  unsigned int _tid = threadIdx.x;\n", "    if (_tid < _block_stride && _i < _out_ind.size()) {\n"
    size = re.search(r"_sdata_raw\[(\d+) \* sizeof", source)
    parts = (start, "  for (ptrdiff_t _i_base", guard, "typedef")
    if size is None or not all(part in source for part in parts) or "_type_reduce" not in source:
        return None
    head, body = source.split(start, 1)
    before, rest = body.split("  for (ptrdiff_t _i_base", 1)
    loop, rest = rest.split("{\n", 1)
    gather, rest = rest.split("    _sdata[_tid] = _s;\n    __syncthreads();\n", 1)
    out, _ = rest.split(guard, 1)[1].rsplit("    }\n  }\n}", 1)
    return f"""{head}  for (ptrdiff_t _i_base{loop}{{
    for (unsigned int _tid = 0; _tid < {size[1]}; _tid++) {{
{before}{gather}    _sdata[_tid] = _s;
    }}
    for (unsigned int _block = {size[1]} / 2; _block >= _block_stride; _block >>= 1) {{
      for (unsigned int _tid = 0; _tid < _block; _tid++) {{ _REDUCE(_block); }}
    }}
    for (unsigned int _tid = 0; _tid < _block_stride; _tid++) {{
      _type_reduce _s = _sdata[_tid]; ptrdiff_t _i = _i_base + _tid;
      if (_i < _out_ind.size()) {{
{out}      }}
    }}
  }}
}}"""
